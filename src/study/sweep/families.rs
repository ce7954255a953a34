//! Points of a study whose chips are alike but for how much they have of some resources, and which of them is poorer than which.
//!
//! A richer chip can run what a poorer one does ([`crate::compile::handed_on`]). So the mappings of a point compete at every
//! point that is richer: more of a resource never makes a study's result slower. The order follows from the whole study, never from
//! the order in which its points run.

use indexmap::{IndexMap, IndexSet};

use crate::arch::Chip;

/// Points of a family up to which mappings are handed on: the time to compare all with all grows with their square.
const MOST_OF_A_FAMILY: usize = 4096;

/// A point among those of its study.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Place {
    /// Points of one ground share their configurations.
    pub(super) ground: u128,
    /// Points of one family differ in resources alone.
    pub(super) family: u128,
    /// The point's index.
    pub(super) point: usize,
    /// How much its chip has of each resource: more is richer.
    pub(super) has: Vec<f64>,
}

/// A resource of which a chip may have more.
struct Resource {
    /// The field, or the table, that says how much.
    path: &'static str,
    /// How much there is.
    of: fn(&Chip) -> u64,
}

const RESOURCES: [Resource; 15] = [
    Resource { path: "grid.columns", of: |chip| u64::from(chip.grid.columns) },
    Resource { path: "grid.rows", of: |chip| u64::from(chip.grid.rows) },
    Resource { path: "grid.pcus", of: Chip::pcus },
    Resource { path: "grid.agcus", of: |chip| chip.grid.ags() },
    Resource { path: "pcu.accumulator_sets", of: |chip| chip.pcu.accumulator_sets },
    Resource { path: "pcu.tail_elements", of: |chip| chip.pcu.tail_elements },
    Resource { path: "pcu.vector_inputs", of: |chip| chip.pcu.vector_inputs },
    Resource { path: "pcu.vector_outputs", of: |chip| chip.pcu.vector_outputs },
    Resource { path: "pmu.capacity_bytes", of: |chip| chip.pmu.capacity_bytes },
    Resource { path: "pmu.read_ports", of: |chip| chip.pmu.read_ports },
    Resource { path: "pmu.write_ports", of: |chip| chip.pmu.write_ports },
    Resource { path: "network.links_per_direction", of: |chip| chip.network.links_per_direction },
    Resource { path: "network.fifo_depth_flits", of: |chip| chip.network.fifo_depth_flits },
    Resource { path: "ag.bytes_per_cycle", of: |chip| chip.ag_bytes_per_cycle },
    Resource { path: "ag.outstanding", of: |chip| chip.ag_outstanding.unwrap_or(u64::MAX) },
];

/// Fields of the grid that follow from how many columns and rows there are.
const OF_THE_GRID: [&str; 4] = ["grid.tile_columns", "grid.tile_rows", "grid.die_columns", "grid.die_rows"];

/// Whether a field says how much of a resource there is, rates apart.
pub(super) fn is_amount(path: &str) -> bool {
    let is_in = |table: &str| path.strip_prefix(table).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    RESOURCES.iter().any(|resource| is_in(resource.path)) || OF_THE_GRID.contains(&path)
}

/// How much a chip has of what may grow: clock, speed of launches, rate and nearness of each memory tier, and the resources of the table.
/// More lanes or stages of a PCU are none: tiles that fill an array leave a larger one idle in part.
pub(super) fn resources(chip: &Chip) -> Vec<f64> {
    let of_tiers = chip.memory.iter().flat_map(|tier| [tier.bandwidth_bytes_per_s as f64, -tier.latency_ns]);
    let launch_s = chip.seconds(chip.launch_cycles());
    let amounts = RESOURCES.iter().map(|resource| (resource.of)(chip) as f64);
    [chip.clock_hz as f64, -launch_s].into_iter().chain(of_tiers).chain(amounts).collect()
}

/// A ground, and what its mappings compete with.
#[derive(Debug)]
struct Member {
    point: usize,
    /// Of the poorer grounds those that no other of them is richer than.
    poorer: Vec<u128>,
    /// Grounds before it on the longest way up.
    level: usize,
}

/// The grounds of a study.
#[derive(Debug, Default)]
pub(super) struct Families {
    members: IndexMap<u128, Member>,
}

fn is_poorer(one: &[f64], other: &[f64]) -> bool {
    one != other && one.len() == other.len() && one.iter().zip(other).all(|(one, other)| one <= other)
}

impl Families {
    pub(super) fn new(places: impl IntoIterator<Item = Place>) -> Self {
        let mut families: IndexMap<u128, IndexMap<u128, Place>> = IndexMap::new();
        for place in places {
            families.entry(place.family).or_default().entry(place.ground).or_insert(place);
        }
        let mut members = IndexMap::new();
        for family in families.into_values() {
            let mut rising: Vec<Place> = family.into_values().collect();
            // What is poorer comes before; of equals the first of the study.
            rising.sort_by(|a, b| {
                let by_part = a.has.iter().zip(&b.has).map(|(a, b)| a.total_cmp(b)).find(|order| order.is_ne());
                by_part.unwrap_or(std::cmp::Ordering::Equal).then(a.point.cmp(&b.point))
            });
            let hands_on = rising.len() <= MOST_OF_A_FAMILY;
            let mut levels: Vec<usize> = Vec::with_capacity(rising.len());
            for (at, place) in rising.iter().enumerate() {
                let mut poorer: Vec<usize> = Vec::new();
                for before in (0..if hands_on { at } else { 0 }).rev() {
                    let has = &rising[before].has;
                    if is_poorer(has, &place.has) && !poorer.iter().any(|&other| is_poorer(has, &rising[other].has)) {
                        poorer.push(before);
                    }
                }
                let level = poorer.iter().map(|&other| levels[other] + 1).max().unwrap_or(0);
                levels.push(level);
                let poorer = poorer.into_iter().map(|other| rising[other].ground).collect();
                members.insert(place.ground, Member { point: place.point, poorer, level });
            }
        }
        Self { members }
    }

    /// The poorer grounds whose mappings compete at one.
    pub(super) fn poorer(&self, ground: u128) -> &[u128] {
        self.members.get(&ground).map_or(&[], |member| &member.poorer)
    }

    /// The point that a ground is compiled for.
    pub(super) fn point(&self, ground: u128) -> Option<usize> {
        Some(self.members.get(&ground)?.point)
    }

    /// Some grounds and all that they rest on, level by level: each behind all that are poorer.
    pub(super) fn levels(&self, wanted: impl IntoIterator<Item = u128>) -> Vec<Vec<u128>> {
        let mut found: IndexSet<u128> = wanted.into_iter().collect();
        let mut next = 0;
        while let Some(&ground) = found.get_index(next) {
            next += 1;
            found.extend(self.poorer(ground).iter().copied());
        }
        let mut levels: Vec<Vec<u128>> = Vec::new();
        for ground in found {
            let level = self.members.get(&ground).map_or(0, |member| member.level);
            if levels.len() <= level {
                levels.resize(level + 1, Vec::new());
            }
            levels[level].push(ground);
        }
        levels
    }
}

#[cfg(test)]
mod tests {
    use super::{Families, Place};

    fn place(ground: u128, has: [f64; 2]) -> Place {
        Place { ground, family: 7, point: ground as usize, has: has.to_vec() }
    }

    #[test]
    fn grounds_rest_on_the_nearest_that_are_poorer() {
        // A grid of two by two, in another order than by size, and one that is richer than the first alone in one resource.
        let families = Families::new([
            place(3, [2.0, 2.0]),
            place(0, [1.0, 1.0]),
            place(1, [2.0, 1.0]),
            place(2, [1.0, 2.0]),
            place(4, [0.5, 3.0]),
        ]);
        assert_eq!(families.poorer(0), [0u128; 0]);
        assert_eq!((families.poorer(1), families.poorer(2)), (&[0][..], &[0][..]));
        let mut of_richest = families.poorer(3).to_vec();
        of_richest.sort_unstable();
        assert_eq!(of_richest, [1, 2]);
        assert_eq!(families.poorer(4), [0u128; 0]);
        assert_eq!(families.levels([3]), [vec![0], vec![1, 2], vec![3]]);
        assert_eq!(families.levels([4]), [vec![4]]);
        assert_eq!((families.point(2), families.point(9)), (Some(2), None));
    }
}
