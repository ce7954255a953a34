//! The `cycle` fidelity: the reference model of the event engine.
//!
//! Every PCU, port, link, FIFO and memory channel of a section moves cycle by cycle and flit by flit. It is written from
//! the [`Configuration`](rdusim_program::Configuration) and `docs/timing-model.md` alone. It shares no code with the event
//! engine and none with `cost`: it counts the depths of tiles, flits and bytes itself, from the output tiles of the program,
//! shapes and masks.

mod agents;
mod amounts;
mod array;
mod control;
mod gathered;
mod gemm_amounts;
mod machine;
mod memory;
mod results;
mod row_pass;
mod run;
mod sampled_amounts;
mod section_amounts;
mod simd;
mod simd_amounts;
mod stored;
mod sum_amounts;
#[cfg(test)]
mod tests;
mod timing_wheel;
mod tree;
mod winner_tree;
mod wires;

pub use run::{CycleRun, Ended};
pub use section_amounts::{SectionAmounts, amounts_of};

use machine::Machine;

use rdusim_graph::arch::Chip;
use rdusim_graph::workload::Workload;
use rdusim_program::{Fabric, Section};

/// Most unit-cycles of a run: about 64 units for a million cycles.
pub const MOST_UNIT_CYCLES: u64 = 64_000_000;

/// PCUs, PMUs and address generators that a section uses.
pub fn units(section: &Section) -> u64 {
    let pcus: u64 = section.stages.iter().map(|stage| stage.pcus.len() as u64).sum();
    let ags: u64 = section.streams.iter().map(|stream| stream.ags.len() as u64).sum();
    pcus + section.pmus + ags
}

/// Runs a section for at most `most_cycles`; `None` if it is no pipeline or a route no tree, which a compiled
/// configuration does not come to.
pub fn run_section(
    chip: &Chip,
    workload: &Workload,
    fabric: &Fabric,
    section: &Section,
    most_cycles: u64,
) -> Option<CycleRun> {
    Some(Machine::new(chip, workload, fabric, section)?.run(most_cycles))
}
