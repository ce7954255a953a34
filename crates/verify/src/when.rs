//! When a fault happens: the event engine on the same configuration says at which cycle the firing at fault begins.

use rdusim_base::index::Id;
use rdusim_engines::sim::trace;
use rdusim_graph::arch::Chip;
use rdusim_graph::workload::Workload;
use rdusim_program::{BufferRole, Configuration, Section};

use super::actors::Kind;
use super::fault::Fault;

/// The cycle of the run at which a fault's firing begins; if it never does, that at which its section stands still.
pub(super) fn cycle(
    chip: &Chip,
    workload: &Workload,
    configuration: &Configuration,
    section: &Section,
    fault: &Fault,
) -> Option<u64> {
    let (kind, number) = *fault.firing.clone()?;
    let timeline = trace(chip, workload, configuration).into_iter().find(|trace| trace.name == section.name)?;
    let track = track(section, kind)?;
    let begin = timeline.start_cycle + timeline.launch_cycles;
    let span = timeline.spans.iter().find(|span| span.track == track && span.number == number);
    let never = (timeline.repeats.is_empty() && !timeline.is_cut).then_some(timeline.start_cycle + timeline.cycles);
    span.map(|span| begin + span.start_cycle).or(never)
}

/// The event engine's number of an actor: lockstep groups by stage, then copies, then streams.
fn track(section: &Section, kind: Kind) -> Option<usize> {
    let groups = |stages: usize| section.stages.iter().take(stages).map(|s| s.mapping.groups() as usize).sum::<usize>();
    let residents = || {
        let is_resident = |b: &rdusim_program::Buffer| matches!(b.spec.role, BufferRole::Resident { .. });
        section.buffers.iter_enumerated().filter(move |(_, b)| is_resident(b)).map(|(b, _)| b)
    };
    let all = groups(section.stages.len());
    Some(match kind {
        Kind::Group { stage, group } => groups(stage.index()) + group as usize,
        Kind::Copy { resident } => all + residents().position(|b| b == resident)?,
        Kind::Load { stream } | Kind::Store { stream } => all + residents().count() + stream.index(),
    })
}
