//! How far runs may be from the best mapping.

use crate::arch::Chip;
use crate::mode::Mode;
use crate::outcome::{Fidelity, Outcome, StopReason};
use crate::proof;
use crate::workload::Workload;

/// Writes down what no mapping beats in the mode of each run that the event engine has measured. The bounds follow the rules of that
/// engine (`docs/timing-model.md`), and are tested against it: an analytic bound may be below them, and nothing holds them
/// against the reference model. What was pinned or read from a file is measured against all mappings of its mode.
pub fn add_least_cycles(chip: &Chip, workload: &Workload, outcomes: &mut [Outcome]) {
    let is_bounded = |outcome: &Outcome| outcome.fidelity == Fidelity::Event && outcome.stop == StopReason::Drained;
    let modes: Vec<Mode> = outcomes.iter().filter(|outcome| is_bounded(outcome)).map(|outcome| outcome.mode).collect();
    let Some(least) = proof::least_cycles(chip, workload, &modes) else { return };
    for (outcome, least) in outcomes.iter_mut().filter(|outcome| is_bounded(outcome)).zip(least) {
        outcome.least_cycles = Some(least);
    }
}
