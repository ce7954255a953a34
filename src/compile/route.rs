//! Routing: a static multicast tree over real links for every flow.

use crate::arch::{Chip, Coordinate};

use super::fabric::{Direction, Fabric, Resource};

/// Chooses trees one by one, away from links that are already loaded.
#[derive(Debug)]
pub struct Router<'a> {
    chip: &'a Chip,
    fabric: &'a Fabric,
    /// Flits over the section of each link.
    load: Vec<f64>,
    /// Flits a link can move in the section's expected time.
    capacity: f64,
}

/// A multicast tree.
#[derive(Debug, Clone, Default)]
pub struct Tree {
    /// Links.
    pub links: Vec<Resource>,
    /// Cycles from the source switch to the farthest sink switch.
    pub hop_cycles: u64,
}

type Edge = (Coordinate, Direction);

impl<'a> Router<'a> {
    /// A router for one section that is expected to take `cycles`.
    pub fn new(chip: &'a Chip, fabric: &'a Fabric, cycles: u64) -> Self {
        let links = chip.grid.units.len() * 4 * fabric.lanes() as usize;
        Self { chip, fabric, load: vec![0.0; links], capacity: cycles.max(1) as f64 }
    }

    /// The most loaded link: flits over the section's expected cycles.
    pub fn worst_load(&self) -> f64 {
        self.load.iter().copied().fold(0.0, f64::max) / self.capacity
    }

    /// Routes from `source` to every sink and books `flits` on the links taken.
    pub fn route(&mut self, source: Coordinate, sinks: &[Coordinate], flits: f64) -> Tree {
        let median = |f: fn(&Coordinate) -> u32| {
            let mut list: Vec<u32> = sinks.iter().map(f).collect();
            list.sort_unstable();
            list[list.len() / 2]
        };
        let (mx, my) = (median(|c| c.x), median(|c| c.y));
        let mut best: Option<(f64, Vec<Edge>, u64)> = None;
        // A trunk along a row or a column, through the source or through the middle of the sinks.
        let mut trunks = vec![(true, source.y), (false, source.x)];
        if my != source.y {
            trunks.push((true, my));
        }
        if mx != source.x {
            trunks.push((false, mx));
        }
        for (along_row, at) in trunks {
            let (edges, length) = self.tree(source, sinks, along_row, at);
            let cost = edges.iter().map(|&edge| self.cost(edge, flits)).sum::<f64>();
            if best.as_ref().is_none_or(|(least, _, _)| cost < *least) {
                best = Some((cost, edges, length));
            }
        }
        let Some((_, edges, hop_cycles)) = best else { return Tree::default() };
        let mut links = Vec::with_capacity(edges.len());
        for (from, direction) in edges {
            let link = self.emptiest(from, direction);
            self.load[link as usize] += flits;
            links.push(link);
        }
        Tree { links, hop_cycles }
    }

    fn emptiest(&self, from: Coordinate, direction: Direction) -> Resource {
        let first = self.fabric.link(from, direction, 0);
        (first..first + self.fabric.lanes())
            .min_by(|&a, &b| self.load[a as usize].total_cmp(&self.load[b as usize]))
            .unwrap_or(first)
    }

    /// One for the hop, and steeply more for a link that would be over half full.
    fn cost(&self, (from, direction): Edge, flits: f64) -> f64 {
        let link = self.emptiest(from, direction);
        let full = (self.load[link as usize] + flits) / self.capacity;
        1.0 + 20.0 * (full - 0.5).max(0.0)
    }

    /// Edges of the tree with a trunk along row (or column) `at`, and the cycles to its farthest sink.
    fn tree(&self, source: Coordinate, sinks: &[Coordinate], along_row: bool, at: u32) -> (Vec<Edge>, u64) {
        // In trunk coordinates: `u` along the trunk, `v` across it.
        let split = |c: Coordinate| if along_row { (c.x, c.y) } else { (c.y, c.x) };
        let join = |u: u32, v: u32| if along_row { Coordinate { x: u, y: v } } else { Coordinate { x: v, y: u } };
        let (up, down, forth, back) = if along_row {
            (Direction::South, Direction::North, Direction::East, Direction::West)
        } else {
            (Direction::East, Direction::West, Direction::South, Direction::North)
        };
        let (su, sv) = split(source);
        let mut edges = Vec::new();
        let mut across = |u: u32, from: u32, to: u32| {
            if to > from {
                edges.extend((from..to).map(|v| (join(u, v), up)));
            } else {
                edges.extend((to + 1..=from).rev().map(|v| (join(u, v), down)));
            }
        };
        across(su, sv, at);
        let mut reach: std::collections::BTreeMap<u32, (u32, u32)> = std::collections::BTreeMap::new();
        for &sink in sinks {
            let (u, v) = split(sink);
            let (low, high) = reach.entry(u).or_insert((at, at));
            *low = (*low).min(v);
            *high = (*high).max(v);
        }
        for (&u, &(low, high)) in &reach {
            across(u, at, high);
            across(u, at, low);
        }
        let first = reach.keys().next().copied().unwrap_or(su).min(su);
        let last = reach.keys().next_back().copied().unwrap_or(su).max(su);
        edges.extend((su..last).map(|u| (join(u, at), forth)));
        edges.extend((first + 1..=su).rev().map(|u| (join(u, at), back)));
        edges.sort_unstable_by_key(|&(c, d)| (c, d as u8));
        edges.dedup();
        let hops = |sink: Coordinate| {
            let (u, v) = split(sink);
            u64::from(sv.abs_diff(at) + su.abs_diff(u) + at.abs_diff(v))
        };
        let length = sinks.iter().map(|&s| hops(s) * self.chip.network.hop_cycles + self.die_cycles(source, s)).max();
        (edges, length.unwrap_or(0))
    }

    /// Extra cycles for the die borders between two sites.
    fn die_cycles(&self, a: Coordinate, b: Coordinate) -> u64 {
        let die = self.chip.grid.die;
        let crossings = (a.x / die.0).abs_diff(b.x / die.0) + (a.y / die.1).abs_diff(b.y / die.1);
        u64::from(crossings) * self.chip.network.die_hop_cycles.saturating_sub(self.chip.network.hop_cycles)
    }
}
