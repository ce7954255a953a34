//! Simulation: a [`Configuration`] on a chip becomes an [`Outcome`].
//!
//! Three fidelities walk the same configuration: `bound` in closed form, `event` in time order, and `cycle` (which stands
//! in a room of its own) unit by unit. None has its own idea of the mapping.

mod account;
mod actors;
mod buffer;
mod closed;
mod deadlock;
mod event;
mod judged;
mod load;
mod memory;
mod network;
mod outcome;
mod peaks;
mod run;
mod time;
mod transfer;

pub use event::MOST_EVENTS;
pub use judged::check_size;
pub use load::{SectionLoad, section_load};
pub use outcome::{
    BoundBy, EnergyJ, Fidelity, Outcome, SectionOutcome, StageOutcome, StopReason, TensorTraffic, Traffic,
};

pub use crate::mode::Mode;

use crate::arch::Chip;
use crate::compile::{Configuration, Fabric, Section, compile_modes};
use crate::diagnostics::Diagnostic;
use crate::workload::Workload;

use run::Stopped;

/// Events after which [`measure`] gives up.
const MOST_MEASURED_EVENTS: u64 = 4_000_000;

/// Compiles as [`crate::compile::compile_modes`] does, with the event engine as the judge of what is chosen.
///
/// # Errors
/// As there.
pub fn compile_measured(chip: &Chip, workload: &Workload, modes: &[Mode]) -> Result<Vec<Configuration>, Diagnostic> {
    let fabric = Fabric::new(chip);
    compile_modes(chip, workload, modes, Some(&|section| measure(chip, workload, &fabric, section)))
}

/// Cycles of one section, launch included; `None` if it takes too many events to tell. A section that cannot go on
/// takes for ever.
fn measure(chip: &Chip, workload: &Workload, fabric: &Fabric, section: &Section) -> Option<u64> {
    let run = event::Engine::new(chip, workload, fabric, section)?.run(MOST_MEASURED_EVENTS);
    match run.stopped {
        None => Some(run.cycles + chip.launch_cycles()),
        Some(Stopped::Deadlock(_)) => Some(u64::MAX),
        Some(Stopped::Limit) => None,
    }
}

/// Runs a configuration of `workload` on `chip`, section by section.
pub fn simulate(chip: &Chip, workload: &Workload, configuration: &Configuration, fidelity: Fidelity) -> Outcome {
    let fabric = Fabric::new(chip);
    let mut sections = Vec::with_capacity(configuration.sections.len());
    let mut stop = StopReason::Drained;
    for section in &configuration.sections {
        let run = match fidelity {
            Fidelity::Bound => closed::bound_section(chip, workload, &fabric, section),
            Fidelity::Event => {
                event::Engine::new(chip, workload, &fabric, section).map(|engine| engine.run(MOST_EVENTS))
            }
            Fidelity::Cycle => judged::cycle_section(chip, workload, &fabric, section),
        };
        let Some(run) = run else { continue };
        sections.push(account::section_outcome(chip, workload, section, &run));
        match run.stopped {
            None => continue,
            Some(Stopped::Deadlock(lines)) => stop = StopReason::Deadlock(lines),
            Some(Stopped::Limit) => {
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
