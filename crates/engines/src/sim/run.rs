//! Runs of whole configurations and of single sections, at any fidelity.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use rdusim_cost::cost::{Limits, SectionRun, Stop, Stopped, bound_cycles, bound_section, first_load_cycles};
use rdusim_graph::arch::Chip;
use rdusim_graph::workload::Workload;
use rdusim_outcome::{Fidelity, LinkLoad, Outcome, StopReason};
use rdusim_program::{Configuration, Fabric, Section};

use super::event::MOST_EVENTS;
use super::trace::SectionTrace;
use super::{account, deadlock, event, logged, reference};

/// No limit but that of events.
const TO_THE_END: Limits<'_> =
    Limits { events: MOST_EVENTS, cycles: u64::MAX, work: u64::MAX, skip: true, stop: Stop::NEVER };

/// What running one section within limits has shown.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "made once a measurement, and most hold a run")]
pub enum Measurement {
    /// The section drains after these cycles, launch included; the run that showed it.
    Takes(u64, SectionRun),
    /// It takes more than `most_cycles`, or ends in a deadlock; work of the run that showed it.
    TooLong(u64),
    /// The run was stopped at `most_work` before either was known.
    Unknown {
        /// Work of the run that was stopped.
        work: u64,
        /// Cycles it would take at the rate of that run, launch included; 0 if it did not come to work.
        at_rate: u64,
        /// Work that all of it would take at that rate, if nothing is skipped; `u64::MAX` if it did not come to work.
        all_work: u64,
    },
}

/// Runs one section, until it takes more than `most_cycles`, launch included, or more than `most_work` ([`Limits::work`]).
pub fn measure(
    chip: &Chip,
    workload: &Workload,
    fabric: &Fabric,
    section: &Section,
    most_cycles: u64,
    most_work: u64,
    stop: Stop<'_>,
) -> Measurement {
    let chip = &*section.chip(chip, workload);
    let launch = chip.launch_cycles();
    let cycles = most_cycles.saturating_sub(launch);
    let limits = Limits { cycles, work: most_work, stop, ..TO_THE_END };
    let Some(run) = event::run(chip, workload, fabric, section, limits) else {
        return Measurement::Unknown { work: 0, at_rate: 0, all_work: u64::MAX };
    };
    logged::measured(section, &run);
    match run.stopped {
        None => Measurement::Takes(run.cycles + launch, run),
        Some(Stopped::Deadlock(_) | Stopped::Cycles) => Measurement::TooLong(run.work),
        Some(Stopped::Events) => {
            let all = bound_section(chip, workload, fabric, section).map_or(0, |bound| worked(&bound));
            let at_rate_of_run = |of_run: u64| match worked(&run) {
                0 => None,
                done => {
                    Some(u64::try_from(u128::from(of_run) * u128::from(all) / u128::from(done)).unwrap_or(u64::MAX))
                }
            };
            Measurement::Unknown {
                work: run.work,
                at_rate: at_rate_of_run(run.cycles).map_or(0, |cycles| cycles.saturating_add(launch)),
                all_work: at_rate_of_run(run.work).unwrap_or(u64::MAX),
            }
        }
    }
}

/// Cycles that all lockstep groups have worked together.
fn worked(run: &SectionRun) -> u64 {
    run.busy_cycles.iter().flatten().sum()
}

/// Runs a configuration of `workload` on `chip`, section by section.
pub fn simulate(chip: &Chip, workload: &Workload, configuration: &Configuration, fidelity: Fidelity) -> Outcome {
    simulate_sections(chip, workload, configuration, fidelity, &[], Told { limits: TO_THE_END, is_logged: true })
}

/// As [`simulate`], event by event, though all repeats: the same outcome, later.
pub fn simulate_unskipped(
    chip: &Chip,
    workload: &Workload,
    configuration: &Configuration,
    fidelity: Fidelity,
) -> Outcome {
    let limits = Limits { skip: false, ..TO_THE_END };
    simulate_sections(chip, workload, configuration, fidelity, &[], Told { limits, is_logged: true })
}

/// As [`simulate`], without repeating the event engine's `runs` of its sections that are at hand.
pub fn simulate_known(
    chip: &Chip,
    workload: &Workload,
    configuration: &Configuration,
    fidelity: Fidelity,
    runs: &[Option<SectionRun>],
    stop: Stop<'_>,
) -> Outcome {
    let limits = Limits { stop, ..TO_THE_END };
    simulate_sections(chip, workload, configuration, fidelity, runs, Told { limits, is_logged: true })
}

/// The cycles of [`simulate_known`], for a search that compares configurations: none of them is logged as a result.
pub fn cycles_known(
    chip: &Chip,
    workload: &Workload,
    configuration: &Configuration,
    runs: &[Option<SectionRun>],
) -> u64 {
    let how = Told { limits: TO_THE_END, is_logged: false };
    simulate_sections(chip, workload, configuration, Fidelity::Event, runs, how).cycles
}

/// As [`simulate`], as long as it takes no more than `most_cycles`; `None` if it takes more.
pub fn simulate_within(
    chip: &Chip,
    workload: &Workload,
    configuration: &Configuration,
    fidelity: Fidelity,
    most_cycles: u64,
    stop: Stop<'_>,
) -> Option<Outcome> {
    let limits = Limits { cycles: most_cycles, stop, ..TO_THE_END };
    let outcome = simulate_sections(chip, workload, configuration, fidelity, &[], Told { limits, is_logged: true });
    let is_stopped = most_cycles < u64::MAX && matches!(outcome.stop, StopReason::Limit(_));
    (!is_stopped && outcome.cycles <= most_cycles).then_some(outcome)
}

/// When every unit and stream worked, section by section: what the event engine simulates of a configuration, without
/// the periods it skips.
pub fn trace(chip: &Chip, workload: &Workload, configuration: &Configuration) -> Vec<SectionTrace> {
    let fabric = Fabric::new(chip);
    let mut start_cycle = 0;
    let trace_section = |section: &Section| {
        let chip = &*section.chip(chip, workload);
        let trace = event::trace(chip, workload, &fabric, section, TO_THE_END, start_cycle)?;
        start_cycle += trace.cycles;
        Some(trace)
    };
    configuration.sections.iter().filter_map(trace_section).collect()
}

/// Runs one section with the event engine: raw counts. `None` if its operators are no pipeline of `workload`.
pub fn run_section(chip: &Chip, workload: &Workload, section: &Section, skip: bool) -> Option<SectionRun> {
    event::run(chip, workload, &Fabric::new(chip), section, Limits { skip, ..TO_THE_END })
}

/// How far sections run, and whether the log tells of them.
#[derive(Clone, Copy)]
struct Told<'s> {
    limits: Limits<'s>,
    is_logged: bool,
}

/// `known`: runs of the event engine, as far as there are any, section by section.
fn simulate_sections(
    chip: &Chip,
    workload: &Workload,
    configuration: &Configuration,
    fidelity: Fidelity,
    known: &[Option<SectionRun>],
    how: Told<'_>,
) -> Outcome {
    let Told { limits, is_logged } = how;
    let fabric = Fabric::new(chip);
    let mut sections = Vec::with_capacity(configuration.sections.len());
    let mut stop = StopReason::Drained;
    let mut loads_of: FxHashMap<*const u64, Arc<[LinkLoad]>> = FxHashMap::default();
    let most_cycles = limits.cycles;
    let mut left = most_cycles;
    for (index, section) in configuration.sections.iter().enumerate() {
        limits.stop.check();
        let chip = &*section.chip(chip, workload);
        let cycles = if most_cycles == u64::MAX { u64::MAX } else { left.saturating_sub(chip.launch_cycles()) };
        let run = match (known.get(index), fidelity) {
            (Some(Some(run)), _) => Some(run.clone()),
            (_, Fidelity::Bound) => bound_section(chip, workload, &fabric, section),
            // Kernels are a GPU's: of an RDU, `event` is meant.
            (_, Fidelity::Event | Fidelity::Kernel) => {
                event::run(chip, workload, &fabric, section, Limits { cycles, ..limits })
            }
            (_, Fidelity::Cycle) => reference::cycle_section(chip, workload, &fabric, section),
        };
        let Some(run) = run else { continue };
        if is_logged {
            logged::section(workload, section, configuration.mode, fidelity, &run);
        }
        let loads = match known.get(index) {
            // Runs at hand outlive this call, and so do the places of what isomorphic ones share.
            Some(Some(run)) => {
                let shared = loads_of.entry(run.usage.resource_flits.as_ptr());
                Arc::clone(shared.or_insert_with(|| account::loads(run)))
            }
            _ => account::loads(&run),
        };
        left = left.saturating_sub(run.cycles.saturating_add(chip.launch_cycles()));
        let first_load = first_load_cycles(chip, workload, configuration, index);
        sections.push(account::section_outcome(chip, workload, section, &run, configuration.mode, first_load, loads));
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
        bound_cycles: bound_cycles(chip, workload, configuration.mode),
        least_cycles: None,
        sections,
        notes: configuration.notes.clone(),
    }
}
