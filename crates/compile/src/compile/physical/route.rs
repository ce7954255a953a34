//! Routing: a static multicast tree over real links for every flow.
//!
//! Every flow first gets the cheapest of a few trees with a straight trunk. Links that would then be too full are
//! negotiated (after `McMurchie` and Ebeling, FPGA'95): the flows over them are taken out and grown again
//! sink by sink along cheapest paths, where a full link costs more each round.

use crate::compile::params::PARAMS;
use rdusim_graph::arch::{Chip, Coordinate};
use rdusim_program::{Direction, Fabric, Tree, beyond};

/// How flows come to share links.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Negotiation {
    /// Rounds at most.
    rounds: u32,
    /// Share of a link's rate beyond which flows look for another way.
    full: f64,
    /// As `PARAMS.routing.margin`.
    margin: u32,
    /// As `PARAMS.routing.detour_hops`.
    detour_hops: u32,
}

impl Negotiation {
    /// For a mapping that is tried: a few rounds, among fewer paths.
    pub(crate) const TRIAL: Self = Self {
        rounds: PARAMS.routing.trial_rounds,
        margin: PARAMS.routing.margin / 2,
        detour_hops: PARAMS.routing.detour_hops / 2,
        ..Self::WHOLE
    };
    /// As long as it helps.
    pub(crate) const WHOLE: Self = Self {
        rounds: PARAMS.routing.rounds,
        full: PARAMS.routing.full_link,
        margin: PARAMS.routing.margin,
        detour_hops: PARAMS.routing.detour_hops,
    };
    /// With shorter ways over fuller links.
    pub(crate) const FULLER: Self = Self { full: PARAMS.routing.fuller_link, ..Self::WHOLE };
}

/// What is to be routed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request<'r> {
    /// Switch of the source.
    pub source: Coordinate,
    /// Switches of the sinks.
    pub sinks: &'r [Coordinate],
    /// Flits a cycle while the section runs.
    pub rate: f64,
}

/// All that is to be routed, with the sinks of one behind those of another.
#[derive(Debug, Clone, Default)]
pub(crate) struct Requests {
    /// Source, rate, and where its sinks end.
    list: Vec<(Coordinate, f64, usize)>,
    sinks: Vec<Coordinate>,
}

impl Requests {
    /// Adds one.
    pub(crate) fn push(&mut self, source: Coordinate, sinks: impl IntoIterator<Item = Coordinate>, rate: f64) {
        self.sinks.extend(sinks);
        self.list.push((source, rate, self.sinks.len()));
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// One of them.
    pub(crate) fn get(&self, index: usize) -> Request<'_> {
        let (source, rate, end) = self.list[index];
        let start = index.checked_sub(1).map_or(0, |before| self.list[before].2);
        Request { source, sinks: &self.sinks[start..end], rate }
    }
}

/// A hop between neighbouring switches: site and direction, not yet one of the parallel links.
pub(super) type Edge = u32;

const DIRECTIONS: [Direction; 4] = [Direction::East, Direction::West, Direction::South, Direction::North];

/// Routes the flows of one section.
#[derive(Debug)]
pub(crate) struct Router<'a> {
    chip: &'a Chip,
    fabric: &'a Fabric,
    pub(super) columns: u32,
    /// Flits a cycle that an edge should carry at most.
    pub(super) capacity: f64,
    /// As `PARAMS.routing.margin`.
    margin: u32,
    /// As `PARAMS.routing.detour_hops`.
    detour_hops: u32,
    /// Where each edge leads; [`NOWHERE`] beyond the grid.
    pub(super) ends: Vec<u32>,
    /// Cycles of a hop over each edge.
    hop_cycles: Vec<u64>,
    /// What each edge carries.
    uses: Vec<Use>,
    /// What each edge costs a flow of `priced_rate`.
    pub(super) prices: Vec<f64>,
    /// Flits a cycle that `prices` are for; NaN for none. Flows come by falling rate, and those of a stage's groups are equal:
    /// prices hold for hundreds of flows.
    priced_rate: f64,
    /// Where each site stands.
    places: Vec<Coordinate>,
    search: PathSearch,
}

/// What an edge carries, and has carried.
#[derive(Debug, Clone, Copy)]
struct Use {
    /// Flits a cycle over all its parallel links.
    load: f64,
    /// One, and what overuse in earlier rounds has added to its cost.
    weight: f64,
}

/// The end of an edge that leads out of the grid.
const NOWHERE: u32 = u32::MAX;

/// Scratch of the path search, stamped instead of cleared.
#[derive(Debug)]
struct PathSearch {
    path_stamp: u32,
    tree_stamp: u32,
    seen: Vec<u32>,
    came_by: Vec<Edge>,
    in_tree: Vec<u32>,
    /// A bit for each direction in which edges at hand leave a site, where `seen_edges` has the stamp.
    leaving: Vec<u8>,
    seen_edges: Vec<u32>,
    /// Of sites in the window of the path at hand: the cost from there to the target.
    cost: Vec<f64>,
    /// And the edge to leave by; not read at the target.
    leave_by: Vec<Edge>,
    /// Along the line at hand: the costs of going on to the line before, and of coming along from below.
    onward: Vec<f64>,
    from_below: Vec<f64>,
    /// Sites of the tree near the target.
    near: Vec<u32>,
}

impl Use {
    /// One for the hop, and more the fuller the edge would be with `rate` more, and has been.
    #[inline]
    fn price(self, rate: f64, per_capacity: f64) -> f64 {
        let full = (self.load + rate) * per_capacity;
        self.weight * (1.0 + 0.5 * full + 8.0 * (full - 1.0).max(0.0))
    }
}

impl<'a> Router<'a> {
    /// A router over an empty network.
    pub(crate) fn new(chip: &'a Chip, fabric: &'a Fabric) -> Self {
        let sites = chip.grid.units.len();
        let columns = chip.grid.columns;
        let (mut ends, mut hop_cycles) = (Vec::with_capacity(sites * 4), Vec::with_capacity(sites * 4));
        for at in (0..chip.grid.rows).flat_map(|y| (0..columns).map(move |x| Coordinate { x, y })) {
            for direction in DIRECTIONS {
                let end = beyond(chip, at, direction);
                ends.push(end.map_or(NOWHERE, |end| end.y * columns + end.x));
                hop_cycles.push(end.map_or(0, |end| chip.hop_cycles(at, end)));
            }
        }
        Self {
            chip,
            fabric,
            columns,
            capacity: f64::from(fabric.lanes()),
            margin: PARAMS.routing.margin,
            detour_hops: PARAMS.routing.detour_hops,
            ends,
            hop_cycles,
            uses: vec![Use { load: 0.0, weight: 1.0 }; sites * 4],
            prices: vec![0.0; sites * 4],
            priced_rate: f64::NAN,
            places: (0..chip.grid.rows).flat_map(|y| (0..columns).map(move |x| Coordinate { x, y })).collect(),
            search: PathSearch {
                path_stamp: 0,
                tree_stamp: 0,
                seen: vec![0; sites],
                came_by: vec![0; sites],
                in_tree: vec![0; sites],
                leaving: vec![0; sites],
                seen_edges: vec![0; sites],
                cost: vec![0.0; sites],
                leave_by: vec![0; sites],
                onward: Vec::new(),
                from_below: Vec::new(),
                near: Vec::new(),
            },
        }
    }

    /// A tree for every request; crowded links are negotiated.
    pub(crate) fn route_all(mut self, requests: &Requests, negotiation: Negotiation) -> Vec<Tree> {
        let Negotiation { rounds, full, margin, detour_hops } = negotiation;
        self.capacity *= full;
        (self.margin, self.detour_hops) = (margin, detour_hops);
        let mut order: Vec<usize> = (0..requests.len()).collect();
        let rate = |r: usize| requests.list[r].1;
        order.sort_by(|&a, &b| rate(b).total_cmp(&rate(a)).then(a.cmp(&b)));
        let mut trees: Vec<Vec<Edge>> = vec![Vec::new(); requests.len()];
        for &r in &order {
            trees[r] = self.straight_tree(requests.get(r));
            self.book(&trees[r], rate(r));
        }
        let (mut least, mut stuck) = (self.overuse(), 0);
        // What was replaced since the best round, in order.
        let mut replaced: Vec<(usize, Vec<Edge>)> = Vec::new();
        for _ in 0..rounds {
            if least == 0.0 || stuck > PARAMS.routing.patience {
                break;
            }
            self.negotiate(requests, &order, &mut trees, &mut replaced);
            let overuse = self.overuse();
            stuck = if overuse < least * PARAMS.routing.progress { 0 } else { stuck + 1 };
            if overuse < least {
                least = overuse;
                replaced.clear();
            }
        }
        for (r, tree) in replaced.into_iter().rev() {
            trees[r] = tree;
        }
        self.to_links(requests, &order, trees)
    }

    /// The edges of a tree that lead to sinks, along each branch in turn from the source; the first way to a site
    /// counts.
    pub(super) fn tidy(&mut self, request: Request<'_>, edges: &[Edge]) -> Vec<Edge> {
        self.search.path_stamp += 1;
        let stamp = self.search.path_stamp;
        for &edge in edges {
            let site = (edge / 4) as usize;
            if self.search.seen_edges[site] != stamp {
                self.search.seen_edges[site] = stamp;
                self.search.leaving[site] = 0;
            }
            self.search.leaving[site] |= 1 << (edge % 4);
        }
        let source = self.site(request.source);
        let mut reached = Vec::with_capacity(edges.len() + 1);
        reached.push(source);
        self.search.seen[source as usize] = stamp;
        let mut next = 0;
        while let Some(&site) = reached.get(next) {
            next += 1;
            for edge in self.leaving(site, stamp) {
                let end = self.ends[edge as usize];
                if end != NOWHERE && self.search.seen[end as usize] != stamp {
                    self.search.seen[end as usize] = stamp;
                    self.search.came_by[end as usize] = edge;
                    reached.push(end);
                }
            }
        }
        self.search.tree_stamp += 1;
        let wanted = self.search.tree_stamp;
        self.search.in_tree[source as usize] = wanted;
        for sink in request.sinks {
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
            for edge in self.leaving(site, stamp).rev() {
                let end = self.ends[edge as usize];
                if end != NOWHERE
                    && end != source
                    && self.search.in_tree[end as usize] == wanted
                    && self.search.came_by[end as usize] == edge
                {
                    open.push(end);
                }
            }
        }
        tidied
    }

    /// The edges at hand that leave a site.
    fn leaving(&self, site: u32, stamp: u32) -> impl DoubleEndedIterator<Item = Edge> + use<> {
        let has = self.search.seen_edges[site as usize] == stamp;
        let mask = if has { self.search.leaving[site as usize] } else { 0 };
        (0..4).filter(move |direction| mask >> direction & 1 == 1).map(move |direction| site * 4 + direction)
    }

    /// Adds to what edges carry.
    fn book(&mut self, edges: &[Edge], rate: f64) {
        let per_capacity = 1.0 / self.capacity;
        for &edge in edges {
            let edge = edge as usize;
            self.uses[edge].load += rate;
            self.prices[edge] = self.uses[edge].price(self.priced_rate, per_capacity);
        }
    }

    /// Prices every edge for flows of a rate, unless it is priced for them already.
    pub(super) fn price_for(&mut self, rate: f64) {
        if self.priced_rate.to_bits() != rate.to_bits() {
            self.priced_rate = rate;
            let per_capacity = 1.0 / self.capacity;
            for (price, of) in self.prices.iter_mut().zip(&self.uses) {
                *price = of.price(rate, per_capacity);
            }
        }
    }

    /// Flits a cycle beyond what edges should carry, over all edges.
    fn overuse(&self) -> f64 {
        let capacity = self.capacity;
        self.uses.iter().map(|edge| (edge.load - capacity).max(0.0)).sum()
    }

    /// Reroutes the flows over full edges once; appends their trees before to `replaced`.
    fn negotiate(
        &mut self,
        requests: &Requests,
        order: &[usize],
        trees: &mut [Vec<Edge>],
        replaced: &mut Vec<(usize, Vec<Edge>)>,
    ) {
        let capacity = self.capacity;
        for Use { load, weight } in &mut self.uses {
            if *load > capacity {
                *weight += (*load - capacity) / capacity + 0.2;
            }
        }
        self.priced_rate = f64::NAN;
        for &r in order {
            let request = requests.get(r);
            if request.rate < PARAMS.routing.light_flow {
                break;
            }
            if trees[r].iter().all(|&edge| self.uses[edge as usize].load <= capacity) {
                continue;
            }
            let kept = self.prune(request, &trees[r]);
            self.book(&trees[r], -request.rate);
            let tree = self.grow(request, kept);
            self.book(&tree, request.rate);
            replaced.push((r, std::mem::replace(&mut trees[r], tree)));
        }
    }

    pub(super) fn site(&self, at: Coordinate) -> u32 {
        at.y * self.columns + at.x
    }

    /// What is left of a tree, in order from its source, when full edges are cut and what leads to no sink any more is
    /// dropped: only the sinks behind those edges are routed again (incremental rerouting, as in AIR, Murray et al., 2020).
    fn prune(&mut self, request: Request<'_>, tree: &[Edge]) -> Vec<Edge> {
        self.search.tree_stamp += 1;
        self.search.path_stamp += 1;
        let (reached, wanted) = (self.search.tree_stamp, self.search.path_stamp);
        let source = self.site(request.source);
        self.search.in_tree[source as usize] = reached;
        let mut kept: Vec<Edge> = Vec::with_capacity(tree.len());
        for &edge in tree {
            let is_cut = self.uses[edge as usize].load > self.capacity;
            if !is_cut && self.search.in_tree[(edge / 4) as usize] == reached {
                self.search.in_tree[self.ends[edge as usize] as usize] = reached;
                kept.push(edge);
            }
        }
        for sink in request.sinks {
            let site = self.site(*sink);
            self.search.seen[site as usize] = wanted;
        }
        let mut left = kept.len();
        for at in (0..kept.len()).rev() {
            let edge = kept[at];
            if self.search.seen[self.ends[edge as usize] as usize] == wanted {
                self.search.seen[(edge / 4) as usize] = wanted;
                left -= 1;
                kept[left] = edge;
            }
        }
        kept.drain(..left);
        kept
    }

    /// A tree grown from a part of it sink by sink, each along the cheapest path from what is already there.
    fn grow(&mut self, request: Request<'_>, mut edges: Vec<Edge>) -> Vec<Edge> {
        self.price_for(request.rate);
        let mut tree = vec![request.source];
        tree.extend(edges.iter().map(|&edge| self.places[self.ends[edge as usize] as usize]));
        let mut sinks = request.sinks.to_vec();
        let far = |c: &Coordinate| c.x.abs_diff(request.source.x) + c.y.abs_diff(request.source.y);
        sinks.sort_by_key(|c| (far(c), *c));
        sinks.dedup();
        self.search.tree_stamp += 1;
        let in_tree_stamp = self.search.tree_stamp;
        for &at in &tree {
            let site = self.site(at);
            self.search.in_tree[site as usize] = in_tree_stamp;
        }
        for sink in sinks {
            let target = self.site(sink);
            if self.search.in_tree[target as usize] == in_tree_stamp {
                continue;
            }
            let mut at = self.cheapest_path(&tree, target);
            while at != target {
                let edge = self.search.leave_by[at as usize];
                edges.push(edge);
                at = self.ends[edge as usize];
                self.search.in_tree[at as usize] = in_tree_stamp;
                tree.push(self.places[at as usize]);
            }
        }
        // One path is in order as it is.
        if request.sinks.len() == 1 { edges } else { self.tidy(request, &edges) }
    }

    /// Finds the cheapest path from a site of `tree` to `target`, of those that never turn back along the axis on which
    /// they are farther apart; `leave_by` leads there from the site returned. Without a heap: one sweep away from the
    /// target, line by line.
    fn cheapest_path(&mut self, tree: &[Coordinate], target: u32) -> u32 {
        let (columns, rows) = (self.columns, self.chip.grid.rows);
        let Self { places, prices, search, margin, detour_hops, .. } = self;
        let PathSearch { cost, leave_by, onward, from_below, near, .. } = search;
        let Coordinate { x: tx, y: ty } = places[target as usize];
        let hops = |at: &Coordinate| at.x.abs_diff(tx) + at.y.abs_diff(ty);
        // Only where the tree comes near: a path that starts farther off is hardly ever the cheapest.
        let nearest = tree.iter().map(hops).min().unwrap_or(0);
        near.clear();
        let (mut low, mut high) = ((tx, ty), (tx, ty));
        for &at in tree.iter().filter(|&at| hops(at) <= nearest + *detour_hops) {
            let Coordinate { x, y } = at;
            near.push(y * columns + x);
            low = (low.0.min(x), low.1.min(y));
            high = (high.0.max(x), high.1.max(y));
        }
        let along_x = high.0 - low.0 >= high.1 - low.1;
        // `u` runs along the longer axis, `v` across it.
        let (stride_u, stride_v) = if along_x { (1, columns) } else { (columns, 1) };
        let split = |(x, y): (u32, u32)| if along_x { (x, y) } else { (y, x) };
        let ((low_u, low_v), (high_u, high_v), (tu, tv)) = (split(low), split(high), split((tx, ty)));
        let most_v = if along_x { rows } else { columns } - 1;
        let (low_v, high_v) = (low_v.saturating_sub(*margin), (high_v + *margin).min(most_v));
        let [forth, back, up_edge, down_edge] = if along_x {
            [Direction::East, Direction::West, Direction::South, Direction::North]
        } else {
            [Direction::South, Direction::North, Direction::East, Direction::West]
        }
        .map(|direction| direction as u32);
        let width = (high_v - low_v + 1) as usize;
        for line in [&mut *onward, from_below] {
            line.clear();
            line.resize(width, f64::INFINITY);
        }
        // Costs along line `u`, where `onward` has those of going on from each site to the line before by edges in
        // direction `on`: or by an edge along the line, up and down each for itself, as none pays to turn back.
        let mut along = |u: u32, on: u32, onward: &mut [f64]| {
            let first = u * stride_u + low_v * stride_v;
            let sites = || (0..width as u32).map(|i| first + i * stride_v);
            let mut least = f64::INFINITY;
            for (site, (below, &on)) in sites().zip(from_below.iter_mut().zip(&*onward)) {
                *below = least + prices[(site * 4 + down_edge) as usize];
                least = on.min(*below);
            }
            let mut least = f64::INFINITY;
            let lines = onward.iter_mut().zip(&*from_below);
            for (site, (on_cost, &below)) in sites().rev().zip(lines.rev()) {
                let up = prices[(site * 4 + up_edge) as usize];
                let above = least + up;
                least = on_cost.min(above);
                let (mut cheapest, mut by) = (*on_cost, on);
                if below < cheapest {
                    (cheapest, by) = (below, down_edge);
                }
                if above < cheapest {
                    (cheapest, by) = (above, up_edge);
                }
                *on_cost = cheapest;
                cost[site as usize] = cheapest;
                leave_by[site as usize] = site * 4 + by;
            }
        };
        onward[(tv - low_v) as usize] = 0.0;
        along(tu, forth, onward);
        // Sites beyond the target come back to it, sites before it go forth.
        let mut sweep = |u: u32, on: u32, onward: &mut [f64]| {
            let first = u * stride_u + low_v * stride_v;
            for (i, next) in (0..).zip(&mut *onward) {
                *next += prices[((first + i * stride_v) * 4 + on) as usize];
            }
            along(u, on, onward);
        };
        let of_target = (high_u > tu && low_u < tu).then(|| onward.clone());
        for u in tu + 1..=high_u {
            sweep(u, back, onward);
        }
        if let Some(of_target) = of_target {
            *onward = of_target;
        }
        for u in (low_u..tu).rev() {
            sweep(u, forth, onward);
        }
        let cheapest = |&a: &u32, &b: &u32| cost[a as usize].total_cmp(&cost[b as usize]).then(a.cmp(&b));
        near.iter().copied().min_by(cheapest).unwrap_or(target)
    }

    /// Puts every edge of every tree on the emptiest of its parallel links, heavy flows first.
    fn to_links(&self, requests: &Requests, order: &[usize], mut trees: Vec<Vec<Edge>>) -> Vec<Tree> {
        let lanes = self.fabric.lanes();
        let mut load = vec![0.0; self.uses.len() * lanes as usize];
        let mut routed: Vec<Tree> = vec![Tree::default(); requests.len()];
        // Cycles from the source to each site of the tree at hand.
        let mut cycles: Vec<u64> = vec![0; self.chip.grid.units.len()];
        for &r in order {
            let request = requests.get(r);
            let mut links = std::mem::take(&mut trees[r]);
            cycles[self.site(request.source) as usize] = 0;
            // A tidied tree comes from its source, branch by branch.
            for link in &mut links {
                let edge = *link;
                let (from, end) = ((edge / 4) as usize, self.ends[edge as usize] as usize);
                cycles[end] = cycles[from] + self.hop_cycles[edge as usize];
                let first = edge * lanes;
                *link = (first..first + lanes)
                    .min_by(|&a, &b| f64::total_cmp(&load[a as usize], &load[b as usize]))
                    .unwrap_or(first);
                load[*link as usize] += request.rate;
            }
            let to_sink = |sink: &Coordinate| cycles[self.site(*sink) as usize];
            let hop_cycles = request.sinks.iter().map(to_sink).max().unwrap_or(0);
            routed[r] = Tree { links, hop_cycles };
        }
        routed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chip() -> Chip {
        let path = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("arch/sn10.toml");
        let text = std::fs::read_to_string(path).unwrap();
        rdusim_graph::arch::parse("sn10", &text, &[]).unwrap()
    }

    #[test]
    fn a_grown_path_costs_no_more_than_one_with_a_corner_and_a_grown_tree_reaches_its_sinks() {
        let chip = chip();
        let fabric = Fabric::new(&chip);
        let (columns, rows) = (chip.grid.columns, chip.grid.rows);
        // A plain generator of pseudo-random numbers: loads differ everywhere.
        let mut state = 1u64;
        let mut next = move |below: u32| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u32 % below
        };
        for case in 0..200 {
            let mut router = Router::new(&chip, &fabric);
            router.uses.iter_mut().for_each(|edge| edge.load = f64::from(next(300)) / 100.0);
            let mut site = || Coordinate { x: next(columns), y: next(rows) };
            let (source, sinks) = (site(), (0..=case % 5).map(|_| site()).collect::<Vec<_>>());
            let request = Request { source, sinks: &sinks, rate: 0.5 };
            let edges = router.grow(request, Vec::new());
            let mut reached = vec![router.site(source)];
            for &edge in &edges {
                assert!(reached.contains(&(edge / 4)), "case {case}: not in order from the source");
                let end = router.ends[edge as usize];
                assert!(end != NOWHERE && !reached.contains(&end), "case {case}: a switch twice");
                reached.push(end);
            }
            assert!(request.sinks.iter().all(|&sink| reached.contains(&router.site(sink))), "case {case}");
            if let &[sink] = request.sinks {
                let price = |edge: &Edge| router.uses[*edge as usize].price(request.rate, 1.0 / router.capacity);
                let cost = |path: &[Edge]| path.iter().map(price).sum::<f64>();
                for row_first in [true, false] {
                    let mut corner = Vec::new();
                    router.corner(source, sink, row_first, |edge| corner.push(edge));
                    assert!(cost(&edges) <= cost(&corner) + 1e-9, "case {case}");
                }
            }
        }
    }
}
