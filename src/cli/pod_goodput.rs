//! Options of `rdusim pod` about failures.

use clap::Args;

use crate::analysis;
use crate::diagnostics::Diagnostic;
use crate::pod::{Failures, Stragglers};

#[derive(Debug, Args)]
pub(super) struct GoodputArgs {
    /// Mean hours between failures of a chip, with its share of host and network: says what failures leave of a run
    #[arg(long, value_name = "HOURS", requires = "checkpoint_s")]
    mtbf_h: Option<f64>,
    /// Chips that compute longer, by a share drawn for each: `normal:DEVIATION`, `exponential:MEAN` or a file with a share on each line;
    /// a step takes what the slowest takes
    #[arg(long, value_name = "SHARES", conflicts_with = "search")]
    stragglers: Option<String>,
    /// With --mtbf-h: seconds of writing a checkpoint
    #[arg(long, value_name = "SECONDS", requires = "mtbf_h")]
    checkpoint_s: Option<f64>,
    /// With --mtbf-h: seconds from a failure until work goes on [default: 0]
    #[arg(long, value_name = "SECONDS", requires = "mtbf_h")]
    restart_s: Option<f64>,
    /// With --mtbf-h: seconds of work between checkpoints [default: the best]
    #[arg(long, value_name = "SECONDS", requires = "mtbf_h")]
    checkpoint_every_s: Option<f64>,
}

impl GoodputArgs {
    /// Whether any of them is given: each needs the mean time between failures.
    pub(super) fn is_given(&self) -> bool {
        self.mtbf_h.is_some() || self.stragglers.is_some()
    }

    /// How much longer chips compute, if that was given.
    pub(super) fn stragglers(&self) -> Result<Option<Stragglers>, Diagnostic> {
        self.stragglers.as_deref().map(analysis::stragglers).transpose()
    }

    /// How chips fail, if that was given.
    pub(super) fn failures(&self) -> Result<Option<Failures>, Diagnostic> {
        let Some((mtbf_h, checkpoint_s)) = self.mtbf_h.zip(self.checkpoint_s) else { return Ok(None) };
        let (restart_s, interval_s) = (self.restart_s.unwrap_or(0.0), self.checkpoint_every_s);
        let failures = Failures { mtbf_h, checkpoint_s, restart_s, interval_s };
        failures.check().map(|()| Some(failures))
    }
}
