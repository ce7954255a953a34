//! Routing: a static multicast tree over real links for every flow.
//!
//! Every flow first gets the cheapest of a few trees with a straight trunk. Links that would then be too full are
//! negotiated (after `McMurchie` and Ebeling, FPGA'95): the flows over them are taken out and grown again
//! sink by sink along cheapest paths, where a full link costs more each round.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::arch::{Chip, Coordinate};

use super::fabric::{Direction, Fabric, Resource};

/// Share of a link's rate beyond which flows look for another way.
const FULL: f64 = 0.9;
/// Rounds of negotiation.
pub const ROUNDS: u32 = 16;
/// A round is progress if it leaves less than this share of the least overuse so far ...
const PROGRESS: f64 = 0.95;
/// ... and negotiation ends after this many rounds in a row without.
const PATIENCE: u32 = 3;
/// Hops farther than the nearest that a path may leave a tree.
const DETOUR: f32 = 4.0;
/// Flows below this share of a link's rate are not worth rerouting.
const LIGHT: f64 = 0.01;

/// What is to be routed.
#[derive(Debug, Clone)]
pub struct Request {
    /// Switch of the source.
    pub source: Coordinate,
    /// Switches of the sinks.
    pub sinks: Vec<Coordinate>,
    /// Flits a cycle while the section runs.
    pub rate: f64,
}

/// A multicast tree.
#[derive(Debug, Clone, Default)]
pub struct Tree {
    /// Links.
    pub links: Vec<Resource>,
    /// Cycles from the source switch to the farthest sink switch.
    pub hop_cycles: u64,
}

/// A hop between neighbouring switches: site and direction, not yet one of the parallel links.
type Edge = u32;

const DIRECTIONS: [Direction; 4] = [Direction::East, Direction::West, Direction::South, Direction::North];

/// Routes the flows of one section.
#[derive(Debug)]
pub struct Router<'a> {
    chip: &'a Chip,
    fabric: &'a Fabric,
    columns: u32,
    /// Flits a cycle that an edge should carry at most.
    capacity: f64,
    /// Where each edge leads; [`NOWHERE`] beyond the grid.
    ends: Vec<u32>,
    /// Flits a cycle over all parallel links of an edge.
    load: Vec<f64>,
    /// What overuse in earlier rounds has added to an edge's cost.
    history: Vec<f64>,
    search: Search,
}

/// The end of an edge that leads out of the grid.
const NOWHERE: u32 = u32::MAX;

/// Scratch of the path search, stamped instead of cleared.
#[derive(Debug)]
struct Search {
    path_stamp: u32,
    tree_stamp: u32,
    seen: Vec<u32>,
    cost: Vec<f32>,
    came_by: Vec<Edge>,
    in_tree: Vec<u32>,
    /// Sites to look at: their estimate's bits above, which sort as the number does, and the site below.
    open: BinaryHeap<Reverse<u64>>,
}

/// An entry of the heap of sites to look at.
fn entry(estimate: f32, site: u32) -> Reverse<u64> {
    Reverse(u64::from(estimate.to_bits()) << 32 | u64::from(site))
}

impl<'a> Router<'a> {
    /// A router over an empty network.
    pub fn new(chip: &'a Chip, fabric: &'a Fabric) -> Self {
        let sites = chip.grid.units.len();
        let columns = chip.grid.columns;
        let end = |edge: usize| {
            let at = Coordinate { x: (edge / 4) as u32 % columns, y: (edge / 4) as u32 / columns };
            beyond(chip, at, DIRECTIONS[edge % 4]).map_or(NOWHERE, |at| at.y * columns + at.x)
        };
        Self {
            chip,
            fabric,
            columns,
            capacity: f64::from(fabric.lanes()) * FULL,
            ends: (0..sites * 4).map(end).collect(),
            load: vec![0.0; sites * 4],
            history: vec![0.0; sites * 4],
            search: Search {
                path_stamp: 0,
                tree_stamp: 0,
                seen: vec![0; sites],
                cost: vec![0.0; sites],
                came_by: vec![0; sites],
                in_tree: vec![0; sites],
                open: BinaryHeap::new(),
            },
        }
    }

    /// A tree for every request; crowded links are negotiated for at most `rounds`.
    pub fn route_all(mut self, requests: &[Request], rounds: u32) -> Vec<Tree> {
        let mut order: Vec<usize> = (0..requests.len()).collect();
        order.sort_by(|&a, &b| requests[b].rate.total_cmp(&requests[a].rate).then(a.cmp(&b)));
        let mut trees: Vec<Vec<Edge>> = vec![Vec::new(); requests.len()];
        for &r in &order {
            trees[r] = self.straight_tree(&requests[r]);
            self.book(&trees[r], requests[r].rate);
        }
        let (mut least, mut stuck) = (f64::INFINITY, 0);
        for _ in 0..rounds {
            let overuse = self.overuse();
            stuck = if overuse < least * PROGRESS { 0 } else { stuck + 1 };
            least = least.min(overuse);
            if overuse == 0.0 || stuck > PATIENCE {
                break;
            }
            self.negotiate(requests, &order, &mut trees);
        }
        self.to_links(requests, &order, &trees)
    }

    /// The edges of a tree that lead to sinks, along each branch in turn from the source; the first way to a site
    /// counts.
    fn tidy(&mut self, request: &Request, edges: &[Edge]) -> Vec<Edge> {
        let mut leaving = edges.to_vec();
        leaving.sort_unstable();
        self.search.path_stamp += 1;
        let stamp = self.search.path_stamp;
        let source = self.site(request.source);
        let mut reached = vec![source];
        self.search.seen[source as usize] = stamp;
        let mut next = 0;
        while let Some(&site) = reached.get(next) {
            next += 1;
            let from = leaving.partition_point(|&edge| edge < site * 4);
            for &edge in leaving[from..].iter().take_while(|&&edge| edge / 4 == site) {
                let Some(end) = self.end(edge) else { continue };
                if self.search.seen[end as usize] != stamp {
                    self.search.seen[end as usize] = stamp;
                    self.search.came_by[end as usize] = edge;
                    reached.push(end);
                }
            }
        }
        self.search.tree_stamp += 1;
        let wanted = self.search.tree_stamp;
        self.search.in_tree[source as usize] = wanted;
        for sink in &request.sinks {
            let mut at = self.site(*sink);
            while self.search.in_tree[at as usize] != wanted {
                self.search.in_tree[at as usize] = wanted;
                at = self.search.came_by[at as usize] / 4;
            }
        }
        let mut tidied = Vec::with_capacity(edges.len());
        let mut open = vec![source];
        while let Some(site) = open.pop() {
            if site != source {
                tidied.push(self.search.came_by[site as usize]);
            }
            let from = leaving.partition_point(|&edge| edge < site * 4);
            let to = leaving.partition_point(|&edge| edge < site * 4 + 4);
            for &edge in leaving[from..to].iter().rev() {
                let ends_here = |end: &u32| {
                    self.search.in_tree[*end as usize] == wanted
                        && *end != source
                        && self.search.came_by[*end as usize] == edge
                };
                open.extend(self.end(edge).filter(ends_here));
            }
        }
        tidied
    }

    fn book(&mut self, edges: &[Edge], rate: f64) {
        for &edge in edges {
            self.load[edge as usize] += rate;
        }
    }

    /// Flits a cycle beyond what edges should carry, over all edges.
    fn overuse(&self) -> f64 {
        let capacity = self.capacity;
        self.load.iter().map(|load| (load - capacity).max(0.0)).sum()
    }

    /// Reroutes the flows over full edges once.
    fn negotiate(&mut self, requests: &[Request], order: &[usize], trees: &mut [Vec<Edge>]) {
        let capacity = self.capacity;
        for (load, history) in self.load.iter().zip(&mut self.history) {
            if *load > capacity {
                *history += (load - capacity) / capacity + 0.2;
            }
        }
        for &r in order {
            let request = &requests[r];
            if request.rate < LIGHT {
                break;
            }
            if trees[r].iter().all(|&edge| self.load[edge as usize] <= capacity) {
                continue;
            }
            self.book(&trees[r], -request.rate);
            trees[r] = self.grow(request);
            self.book(&trees[r], request.rate);
        }
    }

    fn site(&self, at: Coordinate) -> u32 {
        at.y * self.columns + at.x
    }

    fn edge(&self, from: Coordinate, direction: Direction) -> Edge {
        self.site(from) * 4 + direction as u32
    }

    /// The site an edge leads to.
    fn end(&self, edge: Edge) -> Option<u32> {
        Some(self.ends[edge as usize]).filter(|&end| end != NOWHERE)
    }

    /// Cycles of a hop over an edge.
    fn hop_cycles(&self, edge: Edge) -> u64 {
        let at = |site: u32| Coordinate { x: site % self.columns, y: site / self.columns };
        let crosses = self.chip.grid.crosses_die(at(edge / 4), at(self.ends[edge as usize]));
        if crosses { self.chip.network.die_hop_cycles } else { self.chip.network.hop_cycles }
    }

    /// One for the hop, and more the fuller the edge would be and has been.
    fn cost(&self, edge: Edge, rate: f64) -> f64 {
        let e = edge as usize;
        let full = (self.load[e] + rate) / self.capacity;
        (1.0 + self.history[e]) * (1.0 + 0.5 * full + 8.0 * (full - 1.0).max(0.0))
    }

    /// A tree grown sink by sink, each along the cheapest path from what is already there.
    fn grow(&mut self, request: &Request) -> Vec<Edge> {
        let mut edges: Vec<Edge> = Vec::new();
        let mut tree = vec![self.site(request.source)];
        let mut sinks = request.sinks.clone();
        let far = |c: &Coordinate| c.x.abs_diff(request.source.x) + c.y.abs_diff(request.source.y);
        sinks.sort_by_key(|c| (far(c), *c));
        sinks.dedup();
        self.search.tree_stamp += 1;
        let in_tree_stamp = self.search.tree_stamp;
        self.search.in_tree[tree[0] as usize] = in_tree_stamp;
        for sink in sinks {
            let target = self.site(sink);
            if self.search.in_tree[target as usize] == in_tree_stamp {
                continue;
            }
            let mut at = self.cheapest_path(&tree, target, request.rate);
            while self.search.in_tree[at as usize] != in_tree_stamp {
                self.search.in_tree[at as usize] = in_tree_stamp;
                tree.push(at);
                let edge = self.search.came_by[at as usize];
                edges.push(edge);
                at = edge / 4;
            }
        }
        self.tidy(request, &edges)
    }

    /// Finds the cheapest path from any site of `tree` to `target` (A*); `came_by` then leads back. Returns `target`.
    fn cheapest_path(&mut self, tree: &[u32], target: u32, rate: f64) -> u32 {
        let columns = self.columns;
        let (tx, ty) = (target % columns, target / columns);
        let ahead = |site: u32| ((site % columns).abs_diff(tx) + (site / columns).abs_diff(ty)) as f32;
        self.search.path_stamp += 1;
        let stamp = self.search.path_stamp;
        let mut open = std::mem::take(&mut self.search.open);
        open.clear();
        // Only where the tree comes near: a path that starts farther off is hardly ever the cheapest.
        let nearest = tree.iter().map(|&site| ahead(site)).fold(f32::INFINITY, f32::min);
        for &site in tree.iter().filter(|&&site| ahead(site) <= nearest + DETOUR) {
            self.search.seen[site as usize] = stamp;
            self.search.cost[site as usize] = 0.0;
            open.push(entry(ahead(site), site));
        }
        while let Some(Reverse(key)) = open.pop() {
            let (estimate, site) = (f32::from_bits((key >> 32) as u32), key as u32);
            if site == target {
                break;
            }
            let here = self.search.cost[site as usize];
            if estimate > here + ahead(site) {
                continue;
            }
            for edge in site * 4..site * 4 + 4 {
                let next = self.ends[edge as usize];
                if next == NOWHERE {
                    continue;
                }
                let cost = here + self.cost(edge, rate) as f32;
                let n = next as usize;
                if self.search.seen[n] != stamp || cost < self.search.cost[n] {
                    self.search.seen[n] = stamp;
                    self.search.cost[n] = cost;
                    self.search.came_by[n] = edge;
                    open.push(entry(cost + ahead(next), next));
                }
            }
        }
        self.search.open = open;
        target
    }

    /// The cheapest tree with a trunk along a row or a column, through the source or through the middle of the sinks.
    fn straight_tree(&mut self, request: &Request) -> Vec<Edge> {
        let median = |f: fn(&Coordinate) -> u32| {
            let mut list: Vec<u32> = request.sinks.iter().map(f).collect();
            list.sort_unstable();
            list[list.len() / 2]
        };
        let source = request.source;
        let (mx, my) = (median(|c| c.x), median(|c| c.y));
        let mut trunks = vec![(true, source.y), (false, source.x)];
        if my != source.y {
            trunks.push((true, my));
        }
        if mx != source.x {
            trunks.push((false, mx));
        }
        let mut best: Option<(f64, Vec<Edge>)> = None;
        for (along_row, at) in trunks {
            let edges = self.trunk_tree(source, &request.sinks, along_row, at);
            let cost = edges.iter().map(|&edge| self.cost(edge, request.rate)).sum::<f64>();
            if best.as_ref().is_none_or(|(least, _)| cost < *least) {
                best = Some((cost, edges));
            }
        }
        best.map(|(_, edges)| self.tidy(request, &edges)).unwrap_or_default()
    }

    /// Edges of the tree with a trunk along row (or column) `at`.
    fn trunk_tree(&self, source: Coordinate, sinks: &[Coordinate], along_row: bool, at: u32) -> Vec<Edge> {
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
                edges.extend((from..to).map(|v| self.edge(join(u, v), up)));
            } else {
                edges.extend((to + 1..=from).rev().map(|v| self.edge(join(u, v), down)));
            }
        };
        across(su, sv, at);
        let mut reach: Vec<(u32, u32)> = sinks.iter().map(|&s| split(s)).collect();
        reach.sort_unstable();
        for group in reach.chunk_by(|a, b| a.0 == b.0) {
            let (u, low, high) = (group[0].0, group[0].1.min(at), group[group.len() - 1].1.max(at));
            across(u, at, high);
            across(u, at, low);
        }
        let (first, last) = (reach[0].0.min(su), reach[reach.len() - 1].0.max(su));
        edges.extend((su..last).map(|u| self.edge(join(u, at), forth)));
        edges.extend((first + 1..=su).rev().map(|u| self.edge(join(u, at), back)));
        edges.sort_unstable();
        edges.dedup();
        edges
    }

    /// Puts every edge of every tree on the emptiest of its parallel links, heavy flows first.
    fn to_links(&self, requests: &[Request], order: &[usize], trees: &[Vec<Edge>]) -> Vec<Tree> {
        let lanes = self.fabric.lanes();
        let mut load = vec![0.0; self.load.len() * lanes as usize];
        let mut routed: Vec<Tree> = vec![Tree::default(); requests.len()];
        // Cycles from the source to each site of the tree at hand.
        let mut cycles: Vec<u64> = vec![0; self.chip.grid.units.len()];
        for &r in order {
            let mut links = Vec::with_capacity(trees[r].len());
            for &edge in &trees[r] {
                let first = edge * lanes;
                let link = (first..first + lanes)
                    .min_by(|&a, &b| f64::total_cmp(&load[a as usize], &load[b as usize]))
                    .unwrap_or(first);
                load[link as usize] += requests[r].rate;
                links.push(link);
            }
            cycles[self.site(requests[r].source) as usize] = 0;
            // A tidied tree comes from its source, branch by branch.
            for &edge in &trees[r] {
                let (from, end) = ((edge / 4) as usize, self.ends[edge as usize] as usize);
                cycles[end] = cycles[from] + self.hop_cycles(edge);
            }
            let to_sink = |sink: &Coordinate| cycles[self.site(*sink) as usize];
            let hop_cycles = requests[r].sinks.iter().map(to_sink).max().unwrap_or(0);
            routed[r] = Tree { links, hop_cycles };
        }
        routed
    }
}

/// The site across a link; `None` beyond the edge of the grid.
fn beyond(chip: &Chip, from: Coordinate, direction: Direction) -> Option<Coordinate> {
    let Coordinate { x, y } = from;
    match direction {
        Direction::East => (x + 1 < chip.grid.columns).then_some(Coordinate { x: x + 1, y }),
        Direction::West => x.checked_sub(1).map(|x| Coordinate { x, y }),
        Direction::South => (y + 1 < chip.grid.rows).then_some(Coordinate { x, y: y + 1 }),
        Direction::North => y.checked_sub(1).map(|y| Coordinate { x, y }),
    }
}

/// Where links lead from a source.
struct Reached {
    /// Cycles to the farthest sink that is reached.
    depth_cycles: u64,
    /// Sites in the order they are reached, with the cycles to each.
    sites: Vec<(Coordinate, u64)>,
}

/// Follows `links` from the source of a request, nearest sites first.
fn walk(chip: &Chip, fabric: &Fabric, request: &Request, links: &[Resource]) -> Reached {
    let mut leaving: Vec<(Coordinate, Coordinate)> = links
        .iter()
        .filter_map(|&link| fabric.link_at(link))
        .filter_map(|(from, direction, _)| beyond(chip, from, direction).map(|to| (from, to)))
        .collect();
    leaving.sort_unstable_by_key(|&(from, to)| (from.y, from.x, to.y, to.x));
    let key = |at: Coordinate| (at.y, at.x);
    let mut sites: Vec<(Coordinate, u64)> = vec![(request.source, 0)];
    let mut seen = rustc_hash::FxHashSet::default();
    seen.insert(request.source);
    let mut depth_cycles = 0;
    let mut next = 0;
    while let Some(&(site, cycles)) = sites.get(next) {
        next += 1;
        if request.sinks.contains(&site) {
            depth_cycles = depth_cycles.max(cycles);
        }
        let from = leaving.partition_point(|&(a, _)| key(a) < key(site));
        for &(_, end) in leaving[from..].iter().take_while(|&&(a, _)| a == site) {
            if seen.insert(end) {
                let crosses = chip.grid.crosses_die(site, end);
                let hop = if crosses { chip.network.die_hop_cycles } else { chip.network.hop_cycles };
                sites.push((end, cycles + hop));
            }
        }
    }
    Reached { depth_cycles, sites }
}

/// Why links are no tree.
pub struct Broken {
    /// Index of the link, if it is one's fault.
    pub link: Option<usize>,
    /// What is wrong.
    pub title: String,
    /// What was expected.
    pub expected: String,
}

/// The tree over `links`, if they lead from the request's source to all its sinks.
pub fn tree_over(chip: &Chip, fabric: &Fabric, request: &Request, links: &[Resource]) -> Result<Tree, Broken> {
    let reached = walk(chip, fabric, request, links);
    let reaches = |at: Coordinate| reached.sites.iter().any(|&(site, _)| site == at);
    let mut seen = rustc_hash::FxHashSet::default();
    let mut ends = rustc_hash::FxHashSet::default();
    ends.insert(request.source);
    for (index, &link) in links.iter().enumerate() {
        let broken = |title: String, expected: &str| Broken { link: Some(index), title, expected: expected.into() };
        let Some((from, direction, _)) = fabric.link_at(link) else { continue };
        let (x, y) = (from.x, from.y);
        if beyond(chip, from, direction).is_none() {
            return Err(broken(
                format!("the link from [{x}, {y}] leads out of the grid"),
                "expected a neighbour there",
            ));
        }
        if !seen.insert(link) {
            return Err(broken(format!("the link from [{x}, {y}] is used twice by one flow"), "expected it once"));
        }
        let end = beyond(chip, from, direction).filter(|&end| !ends.insert(end));
        if let Some(Coordinate { x, y }) = end {
            return Err(broken(format!("the route comes to the switch at [{x}, {y}] twice"), "expected one way there"));
        }
        if !reaches(from) {
            let title = format!("the route is broken: nothing leads to [{x}, {y}], where this link begins");
            return Err(broken(title, "expected a link that continues the route"));
        }
    }
    for sink in &request.sinks {
        if !reaches(*sink) {
            let title = format!("the route is broken: its links do not reach [{}, {}]", sink.x, sink.y);
            let expected = format!("expected links from [{}, {}] to there", request.source.x, request.source.y);
            return Err(Broken { link: None, title, expected });
        }
    }
    Ok(Tree { links: links.to_vec(), hop_cycles: reached.depth_cycles })
}
