//! Simulation: a [`Configuration`] on a chip becomes an [`Outcome`].
//!
//! Three fidelities walk the same configuration: `bound` in closed form, `event` in time order, and `cycle` (which stands
//! in a room of its own) unit by unit. None has its own idea of the mapping.

mod account;
mod actors;
mod ahead;
mod apart;
mod buffer;
mod clock;
mod closed;
mod contention;
mod deadlock;
mod event;
mod fifo;
mod judged;
mod late;
mod load;
mod memory;
mod network;
mod outcome;
mod peaks;
mod pipeline;
mod ready;
mod ring;
mod run;
mod sharing;
mod state;
mod steady;
mod steps;
mod time;
mod trace;
mod transfer;
mod usage;

pub use event::MOST_EVENTS;
pub use judged::check_size;
pub use load::{SectionLoad, section_load};
pub use outcome::{
    BoundBy, BundleOutcome, Busy, EnergyJ, Fidelity, LinkLoad, Outcome, SectionOutcome, StageOutcome, StopReason,
    TensorTraffic, Traffic,
};
pub use pipeline::{NodeRun, Pipeline, PipelineRun};
pub use trace::{MOST_SPANS, Repeat, SectionTrace, Span};

pub use crate::mode::Mode;

use crate::arch::Chip;
use crate::compile::{
    self, BaseCache, Care, Compiled, Configuration, Exhausted, Fabric, Section, Verdict, Way, compile_modes,
};
use crate::diagnostics::Diagnostic;
use crate::workload::Workload;

pub use run::SectionRun;

use run::{Limits, Stopped};

/// Events after which [`measure`] gives up.
const MOST_MEASURED_EVENTS: u64 = 4_000_000;

/// Compiles as [`crate::compile::compile_modes`] does, with the event engine as the judge of what is chosen.
///
/// # Errors
/// As there.
pub fn compile_measured(chip: &Chip, workload: &Workload, modes: &[Mode]) -> Result<Vec<Measured>, Diagnostic> {
    compile_with(chip, workload, modes, Care::Full, &BaseCache::default())
}

/// As [`compile_measured`], with as much care as is asked for. `bases` may be shared by calls for one workload and chips
/// whose PCUs and PMU banks are alike.
///
/// # Errors
/// As there.
pub fn compile_with(
    chip: &Chip,
    workload: &Workload,
    modes: &[Mode],
    care: Care,
    bases: &BaseCache,
) -> Result<Vec<Measured>, Diagnostic> {
    let fabric = Fabric::new(chip);
    let judge = |section: &Section, most| measure(chip, workload, &fabric, section, most);
    let mut compiled = compile_modes(chip, workload, modes, Way { care, judge: Some(&judge), bases })?;
    for measured in &mut compiled {
        ahead::load_ahead(chip, workload, &fabric, measured);
    }
    Ok(compiled)
}

/// The best of all mappings of a small graph, by the event engine ([`crate::compile::exhaust`]).
pub fn exhaust(chip: &Chip, workload: &Workload, most: u64) -> Option<Exhausted> {
    let fabric = Fabric::new(chip);
    compile::exhaust(chip, workload, &|section, most| measure(chip, workload, &fabric, section, most), most)
}

/// A configuration with the event engine's runs of its sections.
pub type Measured = Compiled<SectionRun>;

/// Runs one section, until it takes more than `most_cycles`, launch included.
fn measure(
    chip: &Chip,
    workload: &Workload,
    fabric: &Fabric,
    section: &Section,
    most_cycles: u64,
) -> Verdict<SectionRun> {
    let chip = &*section.chip(chip, workload);
    let launch = chip.launch_cycles();
    let limits = Limits { events: MOST_MEASURED_EVENTS, cycles: most_cycles.saturating_sub(launch), skip: true };
    let Some(run) = event::run(chip, workload, fabric, section, limits) else { return Verdict::Unknown };
    match run.stopped {
        None => Verdict::Takes(run.cycles + launch, run),
        Some(Stopped::Deadlock(_) | Stopped::Cycles) => Verdict::TooLong,
        Some(Stopped::Events) => Verdict::Unknown,
    }
}

/// Runs a configuration of `workload` on `chip`, section by section.
pub fn simulate(chip: &Chip, workload: &Workload, configuration: &Configuration, fidelity: Fidelity) -> Outcome {
    simulate_sections(chip, workload, configuration, fidelity, &[], true)
}

/// As [`simulate`], event by event, though all repeats: the same outcome, later.
pub fn simulate_unskipped(
    chip: &Chip,
    workload: &Workload,
    configuration: &Configuration,
    fidelity: Fidelity,
) -> Outcome {
    simulate_sections(chip, workload, configuration, fidelity, &[], false)
}

/// As [`simulate`], without repeating the runs that are at hand already.
pub fn simulate_measured(chip: &Chip, workload: &Workload, measured: &Measured, fidelity: Fidelity) -> Outcome {
    let runs = if fidelity == Fidelity::Event { &measured.runs[..] } else { &[] };
    simulate_sections(chip, workload, &measured.configuration, fidelity, runs, true)
}

/// When every unit and stream worked, section by section: what the event engine simulates of a configuration, without
/// the periods it skips.
pub fn trace(chip: &Chip, workload: &Workload, configuration: &Configuration) -> Vec<SectionTrace> {
    let fabric = Fabric::new(chip);
    let limits = Limits { events: MOST_EVENTS, cycles: u64::MAX, skip: true };
    let mut start_cycle = 0;
    let trace_section = |section: &Section| {
        let chip = &*section.chip(chip, workload);
        let trace = event::trace(chip, workload, &fabric, section, limits, start_cycle)?;
        start_cycle += trace.cycles;
        Some(trace)
    };
    configuration.sections.iter().filter_map(trace_section).collect()
}

/// Runs one section with the event engine: raw counts. `None` if its operators are no pipeline of `workload`.
pub fn run_section(chip: &Chip, workload: &Workload, section: &Section, skip: bool) -> Option<SectionRun> {
    let limits = Limits { events: MOST_EVENTS, cycles: u64::MAX, skip };
    event::run(chip, workload, &Fabric::new(chip), section, limits)
}

/// `known`: runs of the event engine, as far as there are any, section by section.
fn simulate_sections(
    chip: &Chip,
    workload: &Workload,
    configuration: &Configuration,
    fidelity: Fidelity,
    known: &[Option<SectionRun>],
    skip: bool,
) -> Outcome {
    let fabric = Fabric::new(chip);
    let mut sections = Vec::with_capacity(configuration.sections.len());
    let mut stop = StopReason::Drained;
    for (index, section) in configuration.sections.iter().enumerate() {
        let chip = &*section.chip(chip, workload);
        let run = match (known.get(index), fidelity) {
            (Some(Some(run)), _) => Some(run.clone()),
            (_, Fidelity::Bound) => closed::bound_section(chip, workload, &fabric, section),
            // Kernels are a GPU's: of an RDU, `event` is meant.
            (_, Fidelity::Event | Fidelity::Kernel) => {
                let limits = Limits { events: MOST_EVENTS, cycles: u64::MAX, skip };
                event::run(chip, workload, &fabric, section, limits)
            }
            (_, Fidelity::Cycle) => judged::cycle_section(chip, workload, &fabric, section),
        };
        let Some(run) = run else { continue };
        sections.push(account::section_outcome(chip, workload, section, &run));
        match run.stopped {
            None => continue,
            Some(Stopped::Deadlock(mut lines)) => {
                lines.extend(deadlock::cure(chip, workload, &fabric, section));
                stop = StopReason::Deadlock(lines);
            }
            Some(Stopped::Events | Stopped::Cycles) => {
                let (after, instead) = match fidelity {
                    Fidelity::Cycle => (String::new(), "event"),
                    _ => (format!(" after {MOST_EVENTS} events"), "bound"),
                };
                stop = StopReason::Limit(format!(
                    "section `{}` was stopped{after} at cycle {}: use `--fidelity {instead}`, or smaller dimensions",
                    section.name, run.cycles
                ));
            }
        }
        break;
    }
    Outcome {
        mode: configuration.mode,
        fidelity,
        stop,
        cycles: sections.iter().map(|s| s.cycles).sum(),
        bound_cycles: crate::bound::bound_cycles(chip, workload, configuration.mode),
        sections,
        notes: configuration.notes.clone(),
    }
}
