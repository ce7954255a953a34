//! What failures leave of a long run: checkpoints, work that is lost, restarts.
//!
//! Failures of any chip stop all of them and come at random times (exponential), so a run between two checkpoints is
//! repeated until it succeeds: the closed form is exact (Daly, *A higher order estimate of the optimum checkpoint interval
//! for restart dumps*, 2006; to first order Young, 1974).

use rdusim_base::diagnostics::Diagnostic;

/// How chips fail, and what is done about it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Failures {
    /// Mean hours between failures of one chip with its share of everything around it.
    pub mtbf_h: f64,
    /// Seconds of writing a checkpoint, in which nothing else is done.
    pub checkpoint_s: f64,
    /// Seconds from a failure until work goes on from the last checkpoint.
    pub restart_s: f64,
    /// Seconds of work between checkpoints; the best interval if not given.
    pub interval_s: Option<f64>,
}

/// What is left.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Goodput {
    /// Mean seconds between failures of any chip.
    pub mtbf_s: f64,
    /// Seconds of work between checkpoints.
    pub interval_s: f64,
    /// Share of the time in which a run comes further.
    pub share: f64,
    /// Share of the time that checkpoints take, of those that are kept.
    pub checkpoint: f64,
    /// The rest: work that is lost, checkpoints that are, and restarts.
    pub lost: f64,
}

impl Failures {
    /// Refuses what is no time.
    ///
    /// # Errors
    /// The option and what was expected.
    pub fn check(&self) -> Result<(), Diagnostic> {
        let positive = |seconds: f64| seconds.is_finite() && seconds > 0.0;
        let times = [
            ("--mtbf-h", positive(self.mtbf_h), "above 0"),
            ("--checkpoint-s", positive(self.checkpoint_s), "above 0"),
            ("--restart-s", self.restart_s.is_finite() && self.restart_s >= 0.0, "from 0"),
            ("--checkpoint-every-s", self.interval_s.is_none_or(positive), "above 0"),
        ];
        match times.into_iter().find(|(_, is_fine, _)| !is_fine) {
            Some((flag, _, expected)) => Err(Diagnostic::new(format!("`{flag}`: expected a time {expected}"))),
            None => Ok(()),
        }
    }

    /// What is left of a run on so many chips.
    pub fn goodput(&self, chips: u64) -> Goodput {
        let mtbf_s = self.mtbf_h * 3600.0 / chips.max(1) as f64;
        let interval_s = self.interval_s.unwrap_or_else(|| best_interval(self.checkpoint_s, mtbf_s));
        // Time to come over an interval and its checkpoint, with all repetitions and restarts.
        let whole = mtbf_s * (self.restart_s / mtbf_s).exp() * ((interval_s + self.checkpoint_s) / mtbf_s).exp_m1();
        let (share, checkpoint) = (interval_s / whole, self.checkpoint_s / whole);
        Goodput { mtbf_s, interval_s, share, checkpoint, lost: 1.0 - share - checkpoint }
    }
}

/// Daly's interval, his equation 37; where a checkpoint takes longer than twice the time between failures, that time.
fn best_interval(checkpoint_s: f64, mtbf_s: f64) -> f64 {
    let ratio = checkpoint_s / (2.0 * mtbf_s);
    if ratio >= 1.0 {
        return mtbf_s;
    }
    (2.0 * checkpoint_s * mtbf_s).sqrt() * (1.0 + ratio.sqrt() / 3.0 + ratio / 9.0) - checkpoint_s
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(interval_s: Option<f64>, chips: u64) -> Goodput {
        Failures { mtbf_h: 50_000.0, checkpoint_s: 60.0, restart_s: 300.0, interval_s }.goodput(chips)
    }

    #[test]
    fn the_interval_is_the_best_of_all() {
        for chips in [64, 1024, 16_384, 65_536] {
            let best = of(None, chips);
            for factor in [0.3, 0.8, 0.95, 1.05, 1.25, 3.0] {
                let other = of(Some(best.interval_s * factor), chips);
                // The closed form is near the optimum, not on it.
                assert!(other.share <= best.share * 1.0005, "{chips} chips, {factor}: {other:?} {best:?}");
            }
            assert!((best.share + best.checkpoint + best.lost - 1.0).abs() < 1e-12 && best.lost > 0.0);
        }
        // 50,000 h over 1,024 chips are 48.8 h; Young: the root of 2 x 60 s x 175,781 s is 4,593 s.
        let best = of(None, 1024);
        assert!((best.mtbf_s - 175_781.25).abs() < 0.1 && (best.interval_s / 4593.0 - 1.0).abs() < 0.02, "{best:?}");
        // To first order 60 s of 4,593 for checkpoints, as much for lost work, 300 s of 175,781 for restarts.
        assert!((1.0 - best.share - (2.0 * 60.0 / 4593.0 + 300.0 / 175_781.0)).abs() < 1e-3, "{best:?}");
    }

    #[test]
    fn more_chips_leave_less() {
        let shares: Vec<f64> = [64, 1024, 16_384, 65_536].map(|chips| of(None, chips).share).to_vec();
        assert!(shares.is_sorted_by(|more, less| more > less), "{shares:?}");
    }
}
