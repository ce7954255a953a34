//! The `cycle` fidelity: what the reference model counted, as every fidelity reports it.

use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::index::Id;
use rdusim_cost::cost::{SectionRun, Stopped, StreamBytes, Usage, bound_section};
use rdusim_cycle::{self as cycle, Ended, MOST_UNIT_CYCLES};
use rdusim_graph::arch::{Chip, TierId};
use rdusim_graph::workload::{OperatorId, Workload};
use rdusim_program::{Configuration, Fabric, Section};

/// Times over its estimate that a run may last before it is stopped.
const MOST_TIMES_ESTIMATE: u64 = 16;
/// Cycles that any run may last.
const LEAST_LIMIT: u64 = 1_000_000;

/// Runs one section, launch excluded. What follows from the configuration alone (busy cycles, arithmetic) is that of
/// the closed form.
pub(super) fn cycle_section(
    chip: &Chip,
    workload: &Workload,
    fabric: &Fabric,
    section: &Section,
) -> Option<SectionRun> {
    let most = section.estimated_cycles.saturating_mul(MOST_TIMES_ESTIMATE).max(LEAST_LIMIT);
    let run = cycle::run_section(chip, workload, fabric, section, most)?;
    let closed = bound_section(chip, workload, fabric, section)?;
    let busy = |(tier, &bytes): (usize, &u64)| chip.tier_rate(TierId::from_index(tier)).cycles_for(bytes);
    Some(SectionRun {
        stopped: run.ended.map(|ended| match ended {
            Ended::Deadlock(lines) => Stopped::Deadlock(lines),
            Ended::Limit => Stopped::Cycles,
        }),
        cycles: run.cycles,
        streams: run.streams.iter().map(|&(payload, waste)| StreamBytes { payload, waste }).collect(),
        tier_busy_cycles: run.tier_bytes.iter().enumerate().map(busy).collect(),
        usage: Usage::new(fabric, &section.flows, &run.flits),
        ..closed
    })
}

/// Refuses a configuration that is too large for the `cycle` fidelity.
///
/// # Errors
/// A diagnostic with its size, the limit, and what to change.
pub fn check_size(chip: &Chip, workload: &Workload, configuration: &Configuration) -> Result<(), Diagnostic> {
    let launch = |section: &Section| section.chip(chip, workload).launch_cycles();
    let cycles_of = |section: &Section| section.estimated_cycles.saturating_sub(launch(section));
    let size_of = |section: &Section| cycles_of(section).saturating_mul(cycle::units(section));
    let total = configuration.sections.iter().map(size_of).fold(0, u64::saturating_add);
    let Some(section) = configuration.sections.iter().max_by_key(|section| size_of(section)) else { return Ok(()) };
    let (cycles, units) = (cycles_of(section), cycle::units(section));
    if total <= MOST_UNIT_CYCLES {
        return Ok(());
    }
    let mode = configuration.mode.name();
    let name = |op: OperatorId| &workload.operators[op].name;
    let section_name = match section.operators[..] {
        [first, second, .., last] if section.operators.len() > 6 => {
            format!("{}+{}+…+{}", name(first), name(second), name(last))
        }
        _ => section.name.clone(),
    };
    Err(Diagnostic::new(format!(
        "too large for `--fidelity cycle`: {mode} is about {total} unit-cycles, the limit is {MOST_UNIT_CYCLES}; its \
         section `{section_name}` has {units} active units for about {cycles} cycles"
    ))
    .with_help(
        "make it smaller, for example with `--set workload.dims.tokens=64` or a smaller chip, or use `--fidelity event`",
    ))
}
