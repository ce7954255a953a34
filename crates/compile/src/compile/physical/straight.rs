//! Trees with a straight trunk: the first route of every flow, before links are negotiated.

use rdusim_graph::arch::Coordinate;
use rdusim_program::Direction;

use super::route::{Edge, Request, Router};

/// A straight trunk along a row, or along a column, and the sinks of its tree, by their places along and across it.
#[derive(Clone, Copy)]
struct Trunk<'l> {
    along_row: bool,
    at: u32,
    lines: &'l [(u32, u32)],
}

impl Router<'_> {
    /// The cheapest tree with a trunk along a row or a column, through the source or through the middle of the sinks.
    pub(super) fn straight_tree(&mut self, request: Request<'_>) -> Vec<Edge> {
        let Request { source, sinks, rate } = request;
        self.price_for(rate);
        let prices = &self.prices;
        let price = |edge: Edge| prices[edge as usize];
        if let &[sink] = sinks {
            let hops = source.x.abs_diff(sink.x) + source.y.abs_diff(sink.y);
            let [by_row, by_column] = [true, false].map(|row_first| {
                let mut cost = 0.0;
                self.corner(source, sink, row_first, |edge| cost += price(edge));
                cost
            });
            let mut path = Vec::with_capacity(hops as usize);
            self.corner(source, sink, by_row <= by_column, |edge| path.push(edge));
            return path;
        }
        // Sinks line by line across a trunk: once for every trunk along the same axis.
        let lines = [true, false].map(|along_row| {
            let split = |c: &Coordinate| if along_row { (c.x, c.y) } else { (c.y, c.x) };
            let mut lines: Vec<(u32, u32)> = sinks.iter().map(split).collect();
            lines.sort_unstable();
            lines
        });
        let (middle_x, middle_y) = (lines[0][sinks.len() / 2].0, lines[1][sinks.len() / 2].0);
        let trunks = [Some((true, source.y)), Some((false, source.x)), Some((true, middle_y)), Some((false, middle_x))];
        let is_other = |at: usize| at < 2 || trunks[at] != trunks[at - 2];
        let mut best: Option<(f64, (bool, u32))> = None;
        for (along_row, at) in (0..4).filter(|&at| is_other(at)).filter_map(|at| trunks[at]) {
            let mut cost = 0.0;
            let trunk = Trunk { along_row, at, lines: &lines[usize::from(!along_row)] };
            self.trunk_tree(source, trunk, |edge| cost += price(edge));
            if best.is_none_or(|(least, _)| cost < least) {
                best = Some((cost, (along_row, at)));
            }
        }
        let Some((_, (along_row, at))) = best else { return Vec::new() };
        let mut edges = Vec::with_capacity(4 * sinks.len() + 16);
        let trunk = Trunk { along_row, at, lines: &lines[usize::from(!along_row)] };
        self.trunk_tree(source, trunk, |edge| edges.push(edge));
        self.tidy(request, &edges)
    }

    /// Takes the path from a site to another with one corner, edge by edge.
    pub(super) fn corner(&self, from: Coordinate, to: Coordinate, row_first: bool, mut take: impl FnMut(Edge)) {
        let mut go = |mut site: u32, hops: u32, direction: Direction| {
            for _ in 0..hops {
                let edge = site * 4 + direction as u32;
                take(edge);
                site = self.ends[edge as usize];
            }
            site
        };
        let along = if to.x > from.x { Direction::East } else { Direction::West };
        let across = if to.y > from.y { Direction::South } else { Direction::North };
        let legs = [(from.x.abs_diff(to.x), along), (from.y.abs_diff(to.y), across)];
        let [first, second] = if row_first { legs } else { [legs[1], legs[0]] };
        let corner = go(self.site(from), first.0, first.1);
        go(corner, second.0, second.1);
    }

    /// Takes the edges of a tree with a straight trunk, each once.
    fn trunk_tree(&self, source: Coordinate, trunk: Trunk<'_>, mut take: impl FnMut(Edge)) {
        let Trunk { along_row, at, lines } = trunk;
        // In trunk coordinates: `u` along the trunk, `v` across it.
        let (su, sv) = if along_row { (source.x, source.y) } else { (source.y, source.x) };
        let (stride_u, stride_v) = if along_row { (1, self.columns) } else { (self.columns, 1) };
        let (up, down, forth, back) = if along_row {
            (Direction::South, Direction::North, Direction::East, Direction::West)
        } else {
            (Direction::East, Direction::West, Direction::South, Direction::North)
        };
        let edge = |u: u32, v: u32, direction: Direction| (u * stride_u + v * stride_v) * 4 + direction as u32;
        let mut across = |u: u32, from: u32, to: u32| {
            (from..to).for_each(|v| take(edge(u, v, up)));
            (to + 1..=from).rev().for_each(|v| take(edge(u, v, down)));
        };
        across(su, sv, at);
        for line in lines.chunk_by(|a, b| a.0 == b.0) {
            let (u, low, high) = (line[0].0, line[0].1.min(at), line[line.len() - 1].1.max(at));
            across(u, at, high);
            across(u, at, low);
        }
        let (first, last) = (lines[0].0.min(su), lines[lines.len() - 1].0.max(su));
        (su..last).for_each(|u| take(edge(u, at, forth)));
        (first + 1..=su).rev().for_each(|u| take(edge(u, at, back)));
    }
}
