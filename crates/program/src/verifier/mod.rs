//! The verifier: whether a program can be what it says, from the program, the chip and the operator graph alone.
//!
//! It runs after every pass of the compiler in debug builds and tests, and on every configuration read from a file. It
//! uses nothing of the compiler or the simulators: what the operators and the nest imply is derived here once more, so
//! that a fault of a pass shows. Checks run in the order of this page, and one that relies on another only where that one
//! holds. Every check reports its first fault.
//!
//! Of a section:
//!
//! | group | check | holds if |
//! | --- | --- | --- |
//! | nest | `nest` | rows, row tile, row block and column tile are in range; widths are multiples of mask blocks; the order has its cut; no stage along the cut follows an accumulating one; a row block is a sequence where sequences have weights of their own |
//! | | `stages` | stages are those the operators make; each runs at the loop level, and is cut, as the nest says; only stages off the cut recompute |
//! | mappings | `mapping` | the mapping is of the stage's kind; its fields are in range and divide each other; the chip has as many PCUs |
//! | units | `pcus` | every PCU is on the grid and has one stage; each stage has as many as its mapping takes |
//! | | `generators` | every address generator exists and has one stream; each stream has one at least |
//! | buffers | `roles` | every stage has one buffer an operand, weight, partial sum and result that leaves, cut into slices and copies as it is mapped, and no other |
//! | | `levels` | every buffer is filled at the loop level at which its contents are made or read |
//! | memory | `banks` | every buffer has slots, and a piece a slice and copy; pieces have banks for all slots; PMUs exist and are not over capacity in sum; ports exist |
//! | | `slots` | the slices of a slot hold a whole row tile; those of a weight all its stored bytes, over all column tiles |
//! | | `partial_sums` | buffers of partial sums have a slot for each that is under way |
//! | | `sequences` | buffers of second operands that stages of the section make have a slot for each row tile of a sequence |
//! | | `sram` | the PMUs and bytes that the section states are the sum over its buffers |
//! | streams | `ends` | every tensor that enters or leaves has one stream for its buffers, and no other tensor has |
//! | | `tiers` | every stream goes to the tier that holds its tensor |
//! | | `bytes` | every stream moves all bytes of its tensor, as many times as the nest asks for them |
//! | routes | `resources` | every route is a source port, sink ports and links that the chip has |
//! | | `trees` | the links are a tree from the source to every sink; the flow's hops, links and PMU ends are those of its route |
//! | flows | `flow_ends` | every flow begins and ends at the units of its kind: the part it reads, all copies of the part it writes, the PCUs this part is for, generators of its stream |
//! | | `buffer_ends` | every buffer is filled by a flow and emptied by a flow |
//! | shares | `shares` | together, flows carry all of a slice from and to memory, all of a resident copy, all operands and partial sums of every PCU, and all results of every PCU into every buffer that takes them |
//! | coverage | `coverage` | in every column tile, each output column is in the tiles of one lockstep group of each slice of K; each stored element of the weight is met once |
//! | credits | `credits` | the section runs to its end by counting slots, without time ([`credits`]) |
//!
//! Over all sections of a configuration:
//!
//! | check | holds if |
//! | --- | --- |
//! | `operators` | every operator runs in one section, behind those whose results it reads |
//! | `tiers` | every tensor has a tier, and tiers hold what is in them |
//! | `loads` | weights that a section finds loaded are loaded by the section before, which it always follows, and both fit |

mod buffers;
mod context;
mod coverage;
mod credits;
mod fault;
mod flows;
mod mapping;
mod memory;
mod nest;
mod positions;
mod residency;
mod roles;
mod routes;
mod sections;
mod shares;
mod streams;
mod units;

pub use context::Verifier;
pub use fault::{Fault, Place, Violation};
pub use mapping::from_one;
pub use memory::Banks;
pub use units::{Generators, Pcus};

use rdusim_graph::arch::Chip;
use rdusim_graph::workload::Workload;

use super::configuration::{Configuration, Section};
use super::fabric::Fabric;
use super::graph::SectionGraph;

/// A check of a section, and its name.
type Check = (&'static str, fn(&Verifier<'_>, &Section) -> Result<(), Fault>);

/// A check over all sections, and its name.
type CheckOfAll = (&'static str, fn(&Chip, &Workload, &Configuration) -> Result<(), Fault>);

/// The checks in the order in which they run, in groups: a check relies on all groups before its own, on none in it.
const GROUPS: [&[Check]; 15] = [
    &[("nest", nest::check)],
    &[("stages", nest::stages)],
    &[("mapping", mapping::check)],
    &[("pcus", units::pcus), ("generators", units::generators)],
    &[("roles", buffers::roles)],
    &[("cadences", buffers::levels)],
    &[("banks", memory::banks)],
    &[
        ("slots", residency::slots),
        ("partial_sums", residency::partial_sums),
        ("sequences", residency::sequences),
        ("sram", memory::sums),
    ],
    &[("ends", streams::ends), ("tiers", streams::tiers), ("bytes", streams::bytes)],
    &[("resources", routes::resources)],
    &[("trees", routes::trees)],
    &[("flow_ends", flows::ends)],
    &[("buffer_ends", credits::ends)],
    &[("shares", shares::check), ("coverage", coverage::check)],
    &[("credits", credits::runs)],
];

/// Checks over all sections of a configuration.
const OF_ALL: [CheckOfAll; 3] =
    [("operators", sections::operators), ("tiers", sections::tiers), ("loads", sections::loads)];

impl Verifier<'_> {
    /// What the first group of checks that fails finds wrong with a section; empty if all hold.
    pub fn violations(&self, section: &Section) -> Vec<Violation> {
        let of_group = |group: &&[Check]| -> Vec<Violation> {
            let found = group.iter().filter_map(|(check, run)| Some((*check, run(self, section).err()?)));
            found.map(|(check, fault)| Violation { check, section: section.name.clone(), fault }).collect()
        };
        GROUPS.iter().map(of_group).find(|found| !found.is_empty()).unwrap_or_default()
    }

    /// Checks a section.
    ///
    /// # Errors
    /// The first fault.
    pub fn section(&self, section: &Section) -> Result<(), Fault> {
        let mut checks = GROUPS.iter().flat_map(|group| group.iter());
        checks.try_for_each(|(_, run)| run(self, section))
    }
}

/// What the verifier finds wrong with a configuration; empty if all checks hold.
pub fn violations(chip: &Chip, workload: &Workload, fabric: &Fabric, configuration: &Configuration) -> Vec<Violation> {
    let mut found = of_all(chip, workload, configuration);
    if !found.is_empty() {
        return found;
    }
    for section in &configuration.sections {
        let Some(graph) = SectionGraph::new(workload, &section.operators, section.operators.len() > 1) else {
            let title = "the operators of the section are no pipeline over rows that they share";
            let fault = Fault::new(Place::Section, title, "expected operators over the same rows");
            found.push(Violation { check: "stages", section: section.name.clone(), fault });
            continue;
        };
        let chip = &*section.chip(chip, workload);
        let verifier = Verifier { chip, fabric, graph: &graph, tiers: &configuration.tiers };
        found.extend(verifier.violations(section));
    }
    found
}

/// What is wrong between the sections of a configuration.
pub fn of_all(chip: &Chip, workload: &Workload, configuration: &Configuration) -> Vec<Violation> {
    let of_check = |(check, run): &CheckOfAll| {
        let fault = run(chip, workload, configuration).err()?;
        Some(Violation { check, section: String::new(), fault })
    };
    OF_ALL.iter().filter_map(of_check).collect()
}
