//! How long the stages of an execution take, for `-v`.

use std::time::{Duration, Instant};

use super::verbose;
use crate::analysis::Stage;

/// When each stage ended, from the start on.
#[derive(Debug)]
pub(super) struct Stopwatch {
    since: Instant,
    /// Looking for configurations.
    pub(super) compiling: Duration,
    /// Running them.
    pub(super) running: Duration,
    /// Time in which the runs' modes were bounded, for their gaps.
    pub(super) bounding: Duration,
}

impl Stopwatch {
    #[expect(clippy::disallowed_methods, reason = "`-v` tells how long things took, on standard error")]
    pub(super) fn start() -> Self {
        Self { since: Instant::now(), compiling: Duration::ZERO, running: Duration::ZERO, bounding: Duration::ZERO }
    }

    /// A stage has ended.
    #[expect(clippy::disallowed_methods, reason = "`-v` tells how long things took, on standard error")]
    pub(super) fn ended(&mut self, stage: Stage) {
        let now = Instant::now();
        let took = now.duration_since(self.since);
        self.since = now;
        match stage {
            Stage::Compiled => self.compiling = took,
            Stage::Simulated => self.running = took,
            Stage::Bounded => self.bounding = took,
        }
    }

    /// Time since the last stage ended.
    pub(super) fn rest(&self) -> Duration {
        self.since.elapsed()
    }

    /// Says on standard error how long compiling and then `running` took.
    pub(super) fn tell(&self, running: &str) {
        let (compiling, took) = (self.compiling.as_secs_f64(), self.running.as_secs_f64());
        verbose::time(&format!("compile {compiling:.3} s  {running} {took:.3} s"));
    }
}

#[expect(clippy::disallowed_methods, reason = "`-v` tells how long things took, on standard error")]
pub(super) fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let result = work();
    (result, start.elapsed())
}
