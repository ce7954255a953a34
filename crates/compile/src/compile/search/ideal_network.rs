//! Runs of mappings on an ideal network: in the event engine, before they have places and routes.
//!
//! Stages, buffers, credits and memory tiers are simulated as in a measurement; transfers over links and through ports take no
//! time. A run takes a tenth of what placing and routing a mapping does, and shows what estimates in closed form leave out: how
//! lockstep groups of unequal work wait for each other, how a pipeline of few row tiles fills, and how streams share memory.

use crate::compile::mapping::plan::SectionPlan;
use crate::compile::physical::assemble::unplaced;
use rdusim_base::index::IndexVec;
use rdusim_engines::sim::Measurement;
use rdusim_graph::arch::Chip;
use rdusim_program::{BufferId, BufferSpec, Mapping, Nest, SectionGraph, StageId};

use super::context::SearchContext;
use super::space::Choice;

/// What a run on an ideal network has shown.
#[derive(Debug, Clone, Copy)]
pub(super) struct IdealRun {
    /// Cycles, launch included: of the run, or what the busiest stage takes among links and ports that are as full as
    /// estimated, if that is more. `None` where it comes to no end.
    pub(super) cycles: Option<u64>,
    /// Cycles of the run alone: links and ports only add to them, but for a little that timing anomalies take off.
    pub(super) least: u64,
    /// Work, in steps of the event engine.
    pub(super) work: u64,
}

/// What fixes the section that a choice becomes, but for its places and routes.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Identity {
    nest: Nest,
    mappings: IndexVec<StageId, Mapping>,
    buffers: IndexVec<BufferId, BufferSpec>,
    covers: u64,
}

/// A mapping worked out for its run on an ideal network.
pub(super) struct WorkedOut {
    plan: SectionPlan,
    pub(super) identity: Identity,
}

/// Works a mapping out, and tells what it is.
pub(super) fn work_out(chip: &Chip, graph: &SectionGraph<'_>, choice: &Choice) -> WorkedOut {
    let plan = choice.plan(chip, graph);
    let SectionPlan { nest, covers, .. } = plan;
    let identity = Identity { nest, mappings: plan.mappings.clone(), buffers: plan.buffers.clone(), covers };
    WorkedOut { plan, identity }
}

/// Runs a mapping on an ideal network, up to so much work. It comes to no end if it has more streams than the chip has address
/// generators.
pub(super) fn run_on_ideal_network(
    context: &SearchContext<'_>,
    chip: &Chip,
    graph: &SectionGraph<'_>,
    WorkedOut { plan, .. }: &WorkedOut,
    most_work: u64,
) -> IdealRun {
    context.stop.check();
    let section = unplaced(chip, graph, plan, context.tiers);
    let Some(section) = section else { return IdealRun { cycles: None, least: u64::MAX, work: 0 } };
    let among_links = chip.launch_cycles().saturating_add(plan.estimate.busy_cycles);
    match context.measure(&section, u64::MAX, most_work) {
        Measurement::Takes(cycles, run) => {
            IdealRun { cycles: Some(cycles.max(among_links)), least: cycles, work: run.work }
        }
        Measurement::TooLong(work) => IdealRun { cycles: None, least: u64::MAX, work },
        Measurement::Unknown { work, at_rate, .. } => {
            IdealRun { cycles: Some(at_rate.max(plan.estimate.cycles)), least: 0, work }
        }
    }
}
