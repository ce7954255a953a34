//! From a mode to an outcome: the one place that compiles and simulates.

use std::time::{Duration, Instant};

use crate::arch::Chip;
use crate::diagnostics::Diagnostic;
use crate::sim::{Fidelity, Mode, Outcome};
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
    seed: u64,
) -> Result<Execution, Diagnostic> {
    let (configuration, compiling) = timed(|| compile(chip, workload, mode, seed));
    let configuration = configuration?;
    let (outcome, simulating) = timed(|| simulate(chip, workload, configuration, fidelity));
    Ok(Execution { outcome, compiling, simulating })
}

#[expect(clippy::disallowed_methods, reason = "`-v` tells how long compiling and simulating took, on standard error")]
fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let result = work();
    (result, start.elapsed())
}

/// Stands for `compile::compile` until that is written; refuses every run.
fn compile(_: &Chip, _: &Workload, mode: Mode, _: u64) -> Result<Mode, Diagnostic> {
    match mode {
        Mode::Kbk | Mode::Fused => Err(Diagnostic::new("this build has no compiler yet: only `check` works")),
    }
}

/// Stands for `sim::simulate` until that is written; never reached.
fn simulate(_: &Chip, _: &Workload, mode: Mode, fidelity: Fidelity) -> Outcome {
    let stop = crate::sim::StopReason::Drained;
    Outcome { mode, fidelity, stop, cycles: 0, bound_cycles: 0, sections: Vec::new(), notes: Vec::new() }
}
