//! The runs of sections as lines of the log, target `engine`: those of a result at level debug, those that a search measures at level
//! trace.
//!
//! A section is one record of several lines.

use std::fmt::Write as _;

use rdusim_base::mode::Mode;
use rdusim_cost::cost::{SectionRun, SkippedPeriod, Stopped};
use rdusim_graph::workload::Workload;
use rdusim_outcome::Fidelity;
use rdusim_program::Section;

/// The target of the records.
const TARGET: &str = "engine";

/// Logs the run of a section of a result: what stopped it, what it skipped, and what its stages waited for.
pub(super) fn section(workload: &Workload, section: &Section, mode: Mode, fidelity: Fidelity, run: &SectionRun) {
    if !log::log_enabled!(target: TARGET, log::Level::Debug) {
        return;
    }
    let about = format!("{}, {}", section.name, mode.name());
    let mut text = format!("{about}: {}", ended(fidelity, run));
    if let Some(Stopped::Deadlock(lines)) = &run.stopped {
        for line in lines {
            let _ = write!(text, "\n{about}: {line}");
        }
    }
    for &SkippedPeriod { level, from, to, iterations, cycles } in &run.skipped.first {
        let _ = write!(
            text,
            "\n{about}: steady from iteration {from} of loop {level}: skipped to iteration {to}, {cycles} cycles, by a period of \
             {iterations}"
        );
    }
    let more = run.skipped.count.saturating_sub(run.skipped.first.len() as u64);
    if more > 0 {
        let _ = write!(text, "\n{about}: periods skipped beside these: {more}, {} cycles in all", run.skipped.cycles);
    }
    for (stage, waits) in section.stages.ids().zip(run.waits.iter()) {
        let most = |of: fn(&rdusim_cost::cost::Waits) -> u64| waits.iter().map(of).max().unwrap_or(0);
        let (starved, stalled) = (most(|of| of.starved_cycles), most(|of| of.stalled_cycles));
        if starved + stalled > 0 {
            let name = &workload.operators[section.stages[stage].spec.main].name;
            let busy = run.busy_cycles[stage].iter().max().copied().unwrap_or(0);
            let _ = write!(
                text,
                "\n{about}: stage `{name}` works {busy} cycles, waits up to {starved} for inputs and up to {stalled} for room \
                 behind it"
            );
        }
    }
    log::debug!(target: TARGET, "{text}");
}

/// Logs a run that a search has measured.
pub(super) fn measured(section: &Section, run: &SectionRun) {
    log::trace!(target: TARGET, "{}, measured by the search: {}", section.name, ended(Fidelity::Event, run));
}

/// What ended a run, and what it took: closed forms run nothing, and the reference counts no events.
fn ended(fidelity: Fidelity, run: &SectionRun) -> String {
    if fidelity == Fidelity::Bound {
        return format!("takes {} cycles at least", run.cycles);
    }
    let why = match &run.stopped {
        None => "drained",
        Some(Stopped::Deadlock(_)) => "stopped by a deadlock",
        Some(Stopped::Events) => "stopped at its limit of events or work",
        Some(Stopped::Cycles) => "stopped at its limit of cycles",
    };
    let events =
        if fidelity == Fidelity::Cycle { String::new() } else { format!(", events simulated: {}", run.events) };
    format!("{why} after {} cycles{events}", run.cycles)
}
