//! Seeds: configurations that compete with what a search finds, so that two laws hold by construction.
//!
//! - More effort is never slower, in graphs whose runs of operators are all candidates: what less effort finds is a seed of more.
//!   (In longer graphs a search at less effort takes half as long again.)
//! - Fused is never slower than with epilogues or kernel by kernel, where they are asked for with it: their sections are sections
//!   that fused may have.
//!
//! A seed is taken where it is faster. Invariant: of every mode asked for there is one configuration, in the order asked for.

use crate::arch::Chip;
use crate::cost::Stop;
use crate::diagnostics::Diagnostic;
use crate::mode::Mode;
use crate::outcome::Fidelity;
use crate::program::Configuration;
use crate::sim;
use crate::workload::Workload;

use super::compiled::Compiled;
use super::params::PARAMS;
use super::search::context::Effort;

/// A search for the configurations of some modes at an effort.
type Search<'s> = dyn Fn(Effort, &[Mode]) -> Result<Vec<Compiled>, Diagnostic> + 's;

/// What a search finds of some modes at an effort, or a seed of a mode where that is faster.
///
/// # Errors
/// Those of the search.
pub(super) fn with_seeds(
    chip: &Chip,
    workload: &Workload,
    modes: &[Mode],
    effort: Effort,
    search: &Search<'_>,
) -> Result<Vec<Compiled>, Diagnostic> {
    let mut found = of_effort(chip, workload, modes, effort, search)?;
    // A pinned partition is what was asked for.
    let Some(fused) = modes.iter().position(|&mode| mode == Mode::Fused).filter(|_| workload.sections.is_empty())
    else {
        return Ok(found);
    };
    for at in (0..modes.len()).filter(|&at| at != fused) {
        let seed = as_fused(found[at].clone(), &found[fused]);
        if cycles(chip, workload, &seed) < cycles(chip, workload, &found[fused]) {
            found[fused] = seed;
        }
    }
    Ok(found)
}

/// What a search finds at an effort, or at less where that is faster.
fn of_effort(
    chip: &Chip,
    workload: &Workload,
    modes: &[Mode],
    effort: Effort,
    search: &Search<'_>,
) -> Result<Vec<Compiled>, Diagnostic> {
    let less = match effort {
        Effort::Low => return search(effort, modes),
        Effort::Full => Effort::Low,
        Effort::Thorough => Effort::Full,
    };
    if workload.operators.len() > PARAMS.partition.most_listed {
        return search(effort, modes);
    }
    // What less effort cannot map is no seed.
    let seeds = of_effort(chip, workload, modes, less, search).ok();
    let mut found = search(effort, modes)?;
    for (found, seed) in found.iter_mut().zip(seeds.into_iter().flatten()) {
        if cycles(chip, workload, &seed) < cycles(chip, workload, found) {
            *found = seed;
        }
    }
    Ok(found)
}

/// The sections of another mode as a fused run has them, with what is to be known of the run in place of its own remarks.
fn as_fused(of: Compiled, fused: &Compiled) -> Compiled {
    let note =
        format!("the sections are those of the mode {}: no faster ones were found", of.configuration.mode.name());
    let mut notes = fused.configuration.notes.clone();
    notes.push(note);
    let configuration = Configuration { mode: Mode::Fused, notes, ..of.configuration };
    Compiled { configuration, ..of }
}

/// Cycles of a configuration, by the runs that measured it.
fn cycles(chip: &Chip, workload: &Workload, compiled: &Compiled) -> u64 {
    let Compiled { configuration, runs } = compiled;
    sim::simulate_known(chip, workload, configuration, Fidelity::Event, runs, Stop::NEVER).cycles
}
