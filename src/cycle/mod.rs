//! The `cycle` fidelity: the judge of the event engine.
//!
//! Every PCU, port, link, FIFO and memory channel of a section moves cycle by cycle and flit by flit. It is written from
//! the [`Configuration`](crate::compile::Configuration) and `docs/timing-model.md` alone and shares no code with the
//! event engine, only the arithmetic that is the mapping: the loop nest, and the flits and tiles of a firing.

mod amounts;
mod array;
mod control;
mod machine;
mod memory;
mod results;
mod simd;
mod tree;
mod wires;

use crate::arch::Chip;
use crate::compile::{Fabric, Resource, Section};
use crate::workload::Workload;

use machine::Machine;

/// What a section did, launch excluded.
#[derive(Debug)]
pub struct CycleRun {
    /// Why it ended: `None` if drained.
    pub ended: Option<Ended>,
    /// Cycles from the first request to the last byte.
    pub cycles: u64,
    /// Flits that each flow has moved.
    pub flits: Vec<u64>,
    /// Flits that went over each link and port.
    pub loads: Vec<(Resource, u64)>,
    /// Payload and other bytes of each off-chip stream.
    pub streams: Vec<(u64, u64)>,
    /// Bytes that each memory tier has served.
    pub tier_bytes: Vec<u64>,
}

/// Why a section did not drain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// Nothing could move; one line for each that is blocked.
    Deadlock(Vec<String>),
    /// It took too many cycles.
    Limit,
}

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
