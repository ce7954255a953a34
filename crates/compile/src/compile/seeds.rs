//! Seeds: configurations that compete with what a search finds, so that two laws hold by construction.
//!
//! - More effort is never slower: what less effort has found is a seed of more.
//! - Fused is never slower than with epilogues or kernel by kernel, where they are asked for with it: their sections are sections
//!   that fused may have.
//!
//! A seed is taken where it is faster.

use rdusim_base::mode::Mode;
use rdusim_engines::sim;
use rdusim_graph::arch::Chip;
use rdusim_graph::workload::Workload;
use rdusim_program::Configuration;

use super::compiled::Compiled;

/// Of the configurations of the same modes at less effort and at more, the faster of each; all of those at more if there are none
/// at less.
pub(super) fn faster_of_each(
    chip: &Chip,
    workload: &Workload,
    less: Vec<Compiled>,
    mut more: Vec<Compiled>,
) -> Vec<Compiled> {
    for (more, less) in more.iter_mut().zip(less) {
        if cycles(chip, workload, &less) < cycles(chip, workload, more) {
            *more = less;
        }
    }
    more
}

/// Gives the fused configuration the sections of another mode where that is faster.
pub fn compare_fused_with_others(chip: &Chip, workload: &Workload, found: &mut [Compiled]) {
    let Some(fused) = found.iter().position(|of| of.configuration.mode == Mode::Fused) else { return };
    for other in (0..found.len()).filter(|&other| other != fused) {
        let seed = as_fused(&found[other], &found[fused]);
        if cycles(chip, workload, &seed) < cycles(chip, workload, &found[fused]) {
            found[fused] = seed;
        }
    }
}

/// The sections of another mode as a fused run has them, with what is to be known of the run in place of its own remarks.
fn as_fused(of: &Compiled, fused: &Compiled) -> Compiled {
    let Compiled { configuration, runs } = of.clone();
    let mut notes = fused.configuration.notes.clone();
    notes.push(format!("the sections are those of the mode {}: no faster ones were found", configuration.mode.name()));
    Compiled { configuration: Configuration { mode: Mode::Fused, notes, ..configuration }, runs }
}

/// Cycles of a configuration, by the runs that measured it.
fn cycles(chip: &Chip, workload: &Workload, compiled: &Compiled) -> u64 {
    let Compiled { configuration, runs } = compiled;
    sim::cycles_known(chip, workload, configuration, runs)
}
