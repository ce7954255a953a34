//! From modes to outcomes: the one place that compiles and simulates.

use std::time::{Duration, Instant};

use rayon::prelude::*;

use crate::arch::Chip;
use crate::diagnostics::Diagnostic;
use crate::sim::{Fidelity, Mode, Outcome, check_size, compile_measured, simulate};
use crate::workload::Workload;

/// What the runs gave, and how long they took.
pub(super) struct Execution {
    pub(super) outcomes: Vec<Outcome>,
    pub(super) compiling: Duration,
    pub(super) simulating: Duration,
}

/// Compiles `workload` for `chip` in each mode and simulates the configurations.
pub(super) fn execute(
    chip: &Chip,
    workload: &Workload,
    modes: &[Mode],
    fidelity: Fidelity,
) -> Result<Execution, Diagnostic> {
    let (configurations, compiling) = timed(|| compile_measured(chip, workload, modes));
    let configurations = configurations?;
    if fidelity == Fidelity::Cycle {
        configurations.iter().try_for_each(|configuration| check_size(chip, configuration))?;
    }
    let (outcomes, simulating) = timed(|| {
        configurations.par_iter().map(|configuration| simulate(chip, workload, configuration, fidelity)).collect()
    });
    Ok(Execution { outcomes, compiling, simulating })
}

#[expect(clippy::disallowed_methods, reason = "`-v` tells how long things took, on standard error")]
pub(super) fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let result = work();
    (result, start.elapsed())
}
