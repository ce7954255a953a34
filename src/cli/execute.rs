//! From a mode to an outcome: the one place that compiles and simulates.

use std::time::{Duration, Instant};

use crate::arch::Chip;
use crate::compile::compile;
use crate::diagnostics::Diagnostic;
use crate::sim::{Fidelity, Mode, Outcome, simulate};
use crate::workload::Workload;

/// What a run gave, and how long it took.
pub(super) struct Execution {
    pub(super) outcome: Outcome,
    pub(super) compiling: Duration,
    pub(super) simulating: Duration,
}

/// Compiles `workload` for `chip` and simulates the configuration.
pub(super) fn execute(
    chip: &Chip,
    workload: &Workload,
    mode: Mode,
    fidelity: Fidelity,
) -> Result<Execution, Diagnostic> {
    let (configuration, compiling) = timed(|| compile(chip, workload, mode));
    let configuration = configuration?;
    let (outcome, simulating) = timed(|| simulate(chip, workload, &configuration, fidelity));
    Ok(Execution { outcome, compiling, simulating })
}

#[expect(clippy::disallowed_methods, reason = "`-v` tells how long compiling and simulating took, on standard error")]
fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let result = work();
    (result, start.elapsed())
}
