//! The links of a flow as a tree: how far its sinks are, and, of configurations that were edited by hand, whether it is one.

use rdusim_graph::arch::{Chip, Coordinate};

use super::fabric::{Direction, Fabric, Resource, beyond};

/// A multicast tree.
#[derive(Debug, Clone, Default)]
pub struct Tree {
    /// Links.
    pub links: Vec<Resource>,
    /// Cycles from the source switch to the farthest sink switch.
    pub hop_cycles: u64,
}

/// Follows the links of one flow after another over the sites of a grid. Its lists are as long as the grid is large, so that
/// it is made once for many flows.
#[derive(Debug)]
pub struct TreeWalk<'a> {
    chip: &'a Chip,
    fabric: &'a Fabric,
    /// Directions of the links that leave each site, a bit each; none between two walks.
    leaving: Vec<u8>,
    /// Cycles of the hops to each site that the latest flow reaches.
    cycles: Vec<Option<u64>>,
    /// Those sites, nearest first, each with the place in this list of the site before it.
    reached: Vec<(Coordinate, usize)>,
}

impl<'a> TreeWalk<'a> {
    /// No flow followed yet.
    pub fn new(chip: &'a Chip, fabric: &'a Fabric) -> Self {
        let sites = chip.grid.units.len();
        Self { chip, fabric, leaving: vec![0; sites], cycles: vec![None; sites], reached: Vec::new() }
    }

    fn index(&self, at: Coordinate) -> usize {
        (at.y * self.chip.grid.columns + at.x) as usize
    }

    /// Follows `links` from the switch of a source, nearest sites first (breadth first).
    pub fn follow(&mut self, source: Coordinate, links: &[Resource]) {
        for (site, _) in std::mem::take(&mut self.reached) {
            let index = self.index(site);
            self.cycles[index] = None;
        }
        for (from, direction) in links.iter().filter_map(|&link| self.fabric.start_of(link)) {
            self.leaving[from] |= 1 << direction as u8;
        }
        self.reach(source, 0, 0);
        let mut next = 0;
        while let Some(&(site, _)) = self.reached.get(next) {
            let index = self.index(site);
            let (leaving, cycles) = (self.leaving[index], self.cycles[index].unwrap_or(0));
            for direction in Direction::ALL.into_iter().filter(|&direction| leaving >> direction as u8 & 1 == 1) {
                if let Some(end) = beyond(self.chip, site, direction) {
                    self.reach(end, cycles + self.chip.hop_cycles(site, end), next);
                }
            }
            next += 1;
        }
        for (from, _) in links.iter().filter_map(|&link| self.fabric.start_of(link)) {
            self.leaving[from] = 0;
        }
    }

    fn reach(&mut self, site: Coordinate, cycles: u64, from: usize) {
        let index = self.index(site);
        if self.cycles[index].is_none() {
            self.cycles[index] = Some(cycles);
            self.reached.push((site, from));
        }
    }

    /// Sites that the latest flow reaches, nearest first, each with the place of the site before it; the source, its own.
    pub fn reached(&self) -> &[(Coordinate, usize)] {
        &self.reached
    }

    /// Cycles of the hops from the latest flow's source to a site; `None` if its links do not lead there.
    pub fn cycles_to(&self, site: Coordinate) -> Option<u64> {
        self.cycles[self.index(site)]
    }
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
pub fn tree_over(
    walk: &mut TreeWalk<'_>,
    source: Coordinate,
    sinks: &[Coordinate],
    links: &[Resource],
) -> Result<Tree, Broken> {
    walk.follow(source, links);
    let (chip, fabric) = (walk.chip, walk.fabric);
    let reaches = |at: Coordinate| walk.cycles_to(at).is_some();
    let mut seen = rustc_hash::FxHashSet::default();
    let mut ends = rustc_hash::FxHashSet::default();
    ends.insert(source);
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
    for sink in sinks {
        if !reaches(*sink) {
            let title = format!("the route is broken: its links do not reach [{}, {}]", sink.x, sink.y);
            let expected = format!("expected links from [{}, {}] to there", source.x, source.y);
            return Err(Broken { link: None, title, expected });
        }
    }
    let farthest = sinks.iter().filter_map(|&sink| walk.cycles_to(sink)).max().unwrap_or(0);
    Ok(Tree { links: links.to_vec(), hop_cycles: farthest })
}
