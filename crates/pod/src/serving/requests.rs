//! Requests of users, drawn at random times.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use rdusim_base::diagnostics::{Diagnostic, number};

/// Most requests of a trace.
pub(super) const MOST_REQUESTS: u64 = 1 << 20;
/// Most tokens of a prompt or of an answer.
pub(super) const MOST_TOKENS: u64 = 1 << 20;

/// A request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Request {
    /// Seconds from the start of the trace.
    pub arrival_s: f64,
    /// Tokens of the prompt.
    pub prompt: u64,
    /// Tokens of the answer.
    pub output: u64,
}

/// Requests that arrive independently of each other (a Poisson process).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Arrivals {
    /// Mean number a second.
    pub per_s: f64,
    /// How many.
    pub count: u64,
    /// Mean tokens of a prompt; each has from half to one and a half times as many, all equally likely.
    pub prompt: u64,
    /// Mean tokens of an answer, spread in the same way.
    pub output: u64,
    /// Seed of the generator.
    pub seed: u64,
}

/// Requests of a closed loop: prompts and answers of lengths between two bounds, all equally likely.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoopRequests {
    /// How many.
    pub count: u64,
    /// Fewest and most tokens of a prompt.
    pub prompt: (u64, u64),
    /// Fewest and most tokens of an answer.
    pub output: (u64, u64),
    /// Seed of the generator.
    pub seed: u64,
}

impl LoopRequests {
    /// Draws them: the same seed gives the same ones.
    pub fn drawn(&self) -> Vec<Request> {
        let mut rng = Pcg64Mcg::seed_from_u64(self.seed);
        let mut between = |(least, most): (u64, u64)| rng.random_range(least..=most.max(least));
        (0..self.count)
            .map(|_| Request { arrival_s: 0.0, prompt: between(self.prompt), output: between(self.output) })
            .collect()
    }
}

/// Draws requests: the same seed gives the same ones.
///
/// # Errors
/// A rate or a count that is out of range.
pub fn drawn(arrivals: &Arrivals) -> Result<Vec<Request>, Diagnostic> {
    let Arrivals { per_s, count, prompt, output, seed } = *arrivals;
    if !(per_s.is_finite() && per_s > 0.0 && per_s <= 1e9) {
        return Err(Diagnostic::new(format!(
            "`--arrivals` is {}, expected requests a second: above 0, up to 1e9",
            number(per_s)
        )));
    }
    let counts = [
        ("--requests", count, MOST_REQUESTS),
        ("--prompt-tokens", prompt, MOST_TOKENS / 2),
        ("--output-tokens", output, MOST_TOKENS / 2),
    ];
    if let Some((flag, found, most)) = counts.into_iter().find(|(_, found, most)| !(1..=*most).contains(found)) {
        return Err(Diagnostic::new(format!("`{flag}` is {found}, expected a count from 1 to {most}")));
    }
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let mut arrival_s = 0.0;
    let mut list = Vec::with_capacity(count as usize);
    for _ in 0..count {
        // 53 random bits are a number from 0, below 1.
        let uniform = rng.random_range(0..1_u64 << 53) as f64 / (1_u64 << 53) as f64;
        arrival_s -= (1.0 - uniform).ln() / per_s;
        let mut about = |mean: u64| rng.random_range(mean.div_ceil(2)..=mean + mean / 2);
        let (prompt, output) = (about(prompt), about(output));
        list.push(Request { arrival_s, prompt, output });
    }
    Ok(list)
}
