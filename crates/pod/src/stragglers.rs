//! Stragglers: chips that take longer than they should. Chips wait for each other in every step, so that a step takes what the slowest of
//! them takes. A chip's computing takes 1 + X times its time, X drawn for each chip, and what a step takes longer is the expected
//! largest of N draws times its computing (order statistics; David and Nagaraja, *Order Statistics*, 2003).

use std::sync::Arc;

use rdusim_base::diagnostics::Diagnostic;

/// How much longer chips compute, as shares of their time.
#[derive(Debug, Clone, PartialEq)]
pub enum Stragglers {
    /// Normal around zero with this deviation: some are faster.
    Normal(f64),
    /// Exponential with this mean.
    Exponential(f64),
    /// One of these, each as likely, in ascending order.
    Measured(Arc<[f64]>),
}

/// What the slowest chip makes of a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Slowest {
    /// How much longer it computes in the mean, as a share.
    pub slower: f64,
    /// Seconds of a step with it.
    pub step_s: f64,
}

/// Most of a slow-down that is a share.
const MOST: f64 = 100.0;

impl Stragglers {
    /// Reads `normal:DEVIATION` or `exponential:MEAN`. `None` for another word.
    ///
    /// # Errors
    /// What is wrong with the number.
    pub fn parse(text: &str) -> Result<Option<Self>, Diagnostic> {
        let number = |text: &str| {
            let share = text.parse::<f64>().ok().filter(|share| (0.0..=MOST).contains(share));
            share.ok_or_else(|| {
                let title = format!("`--stragglers`: found {text:?}, expected a share from 0 to {MOST}");
                Diagnostic::new(title).with_help("for example normal:0.02")
            })
        };
        if let Some(share) = text.strip_prefix("normal:") {
            return number(share).map(|of| Some(Self::Normal(of)));
        }
        text.strip_prefix("exponential:").map(|share| number(share).map(Self::Exponential)).transpose()
    }

    /// Those that were measured: a share each.
    ///
    /// # Errors
    /// None at all, or what is no share above -1.
    pub fn measured(shares: &[f64]) -> Result<Self, Diagnostic> {
        if shares.is_empty() || shares.iter().any(|share| !(-1.0..=MOST).contains(share)) {
            let title = format!("`--stragglers`: expected shares above -1, at most {MOST}, one a line");
            return Err(Diagnostic::new(title).with_help("0.05 is a chip that computes 5 % longer"));
        }
        let mut shares = shares.to_vec();
        shares.sort_by(f64::total_cmp);
        Ok(Self::Measured(shares.into()))
    }

    /// The expected largest of so many draws.
    pub fn slowest(&self, chips: u64) -> f64 {
        let n = chips.max(1) as f64;
        match self {
            Self::Normal(deviation) => deviation * largest_normal(n),
            // The harmonic number: the k-th to come waits a k-th of the mean.
            Self::Exponential(mean) => mean * (1..=chips.max(1)).rev().map(|k| 1.0 / k as f64).sum::<f64>(),
            Self::Measured(shares) => {
                let all = shares.len() as f64;
                let upto = |count: usize| (count as f64 / all).powf(n);
                shares.iter().enumerate().map(|(at, share)| share * (upto(at + 1) - upto(at))).sum()
            }
        }
    }

    /// What the slowest chip makes of a step of so many seconds, of which it computes some.
    pub fn of_step(&self, chips: u64, step_s: f64, computing_s: f64) -> Slowest {
        let slower = self.slowest(chips);
        Slowest { slower, step_s: step_s + slower.max(0.0) * computing_s }
    }
}

/// Steps of the integral below to a deviation, and deviations on either side.
const STEPS: i32 = 1000;
const DEVIATIONS: i32 = 10;

/// The expected largest of n standard normal draws: the integral of 1 - F(x)^n above zero, less that of F(x)^n below. F is summed
/// up from the upper end, where 1 - F is small.
fn largest_normal(n: f64) -> f64 {
    let step = 1.0 / f64::from(STEPS);
    let density = |x: f64| (-x * x / 2.0).exp() / std::f64::consts::TAU.sqrt();
    let (mut above, mut sum) = (0.0, 0.0);
    for at in (-DEVIATIONS * STEPS..DEVIATIONS * STEPS).rev() {
        // The middle of the step, and half of what lies in it.
        let x = (f64::from(at) + 0.5) * step;
        let own = density(x) * step;
        let power = (n * f64::ln_1p(-(above + own / 2.0).min(1.0 - f64::EPSILON))).exp();
        sum += step * if x > 0.0 { 1.0 - power } else { -power };
        above += own;
    }
    sum
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    use super::*;

    #[test]
    fn the_largest_of_a_few_is_known() {
        // Of two normal draws 1 / sqrt(pi), of three one and a half times as much; of one the mean.
        let two = 1.0 / std::f64::consts::PI.sqrt();
        let of = |chips| Stragglers::Normal(1.0).slowest(chips);
        assert!(of(1).abs() < 1e-6 && (of(2) - two).abs() < 1e-6 && (of(3) - 1.5 * two).abs() < 1e-6);
        assert!((Stragglers::Exponential(0.1).slowest(3) - 0.1 * (1.0 + 0.5 + 1.0 / 3.0)).abs() < 1e-12);
        let measured = Stragglers::measured(&[0.4, 0.0]).expect("shares");
        // Of two chips both are fast a quarter of the time.
        assert!((measured.slowest(2) - 0.3).abs() < 1e-12);
    }

    #[test]
    fn closed_forms_are_what_draws_give() {
        let mut rng = Pcg64Mcg::seed_from_u64(5);
        let chips = 4096;
        let (draws, mut normal, mut exponential) = (400, 0.0, 0.0);
        for _ in 0..draws {
            let (mut most, mut longest) = (f64::NEG_INFINITY, 0.0_f64);
            for _ in 0..chips {
                // Box and Muller.
                let (u, v): (f64, f64) = (rng.random(), rng.random());
                let radius = (-2.0 * f64::ln_1p(-u)).sqrt();
                most = most.max(radius * (std::f64::consts::TAU * v).cos());
                longest = longest.max(-f64::ln_1p(-u));
            }
            normal += most / f64::from(draws);
            exponential += longest / f64::from(draws);
        }
        assert!((Stragglers::Normal(1.0).slowest(chips) / normal - 1.0).abs() < 0.02, "{normal}");
        assert!((Stragglers::Exponential(1.0).slowest(chips) / exponential - 1.0).abs() < 0.03, "{exponential}");
    }

    #[test]
    fn more_chips_wait_longer_up_to_65536() {
        for of in [
            Stragglers::Normal(0.02),
            Stragglers::Exponential(0.01),
            Stragglers::measured(&[0.0; 99].map(|x: f64| x)).expect("shares"),
        ] {
            let all: Vec<f64> = (0..=16).map(|power| of.slowest(1 << power)).collect();
            assert!(all.is_sorted(), "{all:?}");
        }
        // Tables of normal order statistics have 3.2414 of 1,000.
        assert!((Stragglers::Normal(1.0).slowest(1000) - 3.2414).abs() < 1e-3);
    }
}
