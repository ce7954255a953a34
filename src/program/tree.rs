//! Whether the links of a flow are a tree from its source to its sinks: of configurations that were edited by hand.

use crate::arch::{Chip, Coordinate};

use super::fabric::{Fabric, Resource, beyond};

/// A multicast tree.
#[derive(Debug, Clone, Default)]
pub struct Tree {
    /// Links.
    pub links: Vec<Resource>,
    /// Cycles from the source switch to the farthest sink switch.
    pub hop_cycles: u64,
}

/// Where links lead from a source.
struct Reached {
    /// Sites that are reached, and the cycles of the hops to them.
    sites: rustc_hash::FxHashMap<Coordinate, u64>,
}

impl Reached {
    /// Cycles to a sink, if it is reached.
    fn cycles_to(&self, sink: Coordinate) -> u64 {
        self.sites.get(&sink).copied().unwrap_or(0)
    }
}

/// Cycles of the hops over `links` from a source's switch to that of each sink.
pub fn cycles_to_sinks(
    chip: &Chip,
    fabric: &Fabric,
    source: Coordinate,
    sinks: &[Coordinate],
    links: &[Resource],
) -> Vec<u64> {
    let reached = walk(chip, fabric, source, links);
    sinks.iter().map(|&sink| reached.cycles_to(sink)).collect()
}

/// Follows `links` from the source of a request, nearest sites first.
fn walk(chip: &Chip, fabric: &Fabric, source: Coordinate, links: &[Resource]) -> Reached {
    let mut leaving: Vec<(Coordinate, Coordinate)> = links
        .iter()
        .filter_map(|&link| fabric.link_at(link))
        .filter_map(|(from, direction, _)| beyond(chip, from, direction).map(|to| (from, to)))
        .collect();
    leaving.sort_unstable_by_key(|&(from, to)| (from.y, from.x, to.y, to.x));
    let key = |at: Coordinate| (at.y, at.x);
    let mut sites: Vec<(Coordinate, u64)> = vec![(source, 0)];
    let mut seen = rustc_hash::FxHashMap::default();
    seen.insert(source, 0);
    let mut next = 0;
    while let Some(&(site, cycles)) = sites.get(next) {
        next += 1;
        let from = leaving.partition_point(|&(a, _)| key(a) < key(site));
        for &(_, end) in leaving[from..].iter().take_while(|&&(a, _)| a == site) {
            let cycles = cycles + chip.hop_cycles(site, end);
            if let std::collections::hash_map::Entry::Vacant(new) = seen.entry(end) {
                new.insert(cycles);
                sites.push((end, cycles));
            }
        }
    }
    Reached { sites: seen }
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
    chip: &Chip,
    fabric: &Fabric,
    source: Coordinate,
    sinks: &[Coordinate],
    links: &[Resource],
) -> Result<Tree, Broken> {
    let reached = walk(chip, fabric, source, links);
    let reaches = |at: Coordinate| reached.sites.contains_key(&at);
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
    let farthest = sinks.iter().map(|&sink| reached.cycles_to(sink)).max().unwrap_or(0);
    Ok(Tree { links: links.to_vec(), hop_cycles: farthest })
}
