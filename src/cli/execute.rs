//! From modes to outcomes: the one place that compiles and simulates.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use rayon::prelude::*;

use crate::arch::Chip;
use crate::compile::{Compiled, simulate_measured};
use crate::diagnostics::Diagnostic;
use crate::mode::Mode;
use crate::outcome::{Fidelity, Outcome};
use crate::sim::{check_size, simulate_unskipped};
use crate::workload::Workload;

use super::configured;
use super::run_args::ConfigArgs;

/// What the runs gave, and how long they took.
pub(super) struct Execution {
    pub(super) configurations: Vec<Compiled>,
    pub(super) outcomes: Vec<Outcome>,
    pub(super) compiling: Duration,
    pub(super) simulating: Duration,
}

/// Compiles `workload` for `chip` in each mode, or takes a saved configuration, and simulates the configurations;
/// without `skip`, every event of them.
pub(super) fn execute(
    chip: &Chip,
    workload: &Workload,
    modes: &[Mode],
    fidelity: Fidelity,
    from: &ConfigArgs,
    skip: bool,
) -> Result<Execution, Diagnostic> {
    let (configurations, compiling) = timed(|| configured::configurations(from, chip, workload, modes));
    let configurations = configurations?;
    if fidelity == Fidelity::Cycle {
        configurations.iter().try_for_each(|measured| check_size(chip, workload, &measured.configuration))?;
    }
    let (outcomes, simulating) = timed(|| {
        let simulated = configurations.par_iter().map(|measured| {
            if skip {
                simulate_measured(chip, workload, measured, fidelity)
            } else {
                simulate_unskipped(chip, workload, &measured.configuration, fidelity)
            }
        });
        simulated.collect()
    });
    Ok(Execution { configurations, outcomes, compiling, simulating })
}

#[expect(clippy::disallowed_methods, reason = "`-v` tells how long things took, on standard error")]
pub(super) fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let result = work();
    (result, start.elapsed())
}

/// Says on standard error how long compiling and simulating took.
pub(super) fn tell_durations(execution: &Execution) {
    let (compiling, simulating) = (execution.compiling.as_secs_f64(), execution.simulating.as_secs_f64());
    // A closed standard error costs nothing but this line.
    let _ = writeln!(io::stderr().lock(), "compile {compiling:.3} s  simulate {simulating:.3} s");
}
