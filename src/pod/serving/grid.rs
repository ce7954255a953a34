//! Times of prefill and decode at a grid of points, and between them by linear interpolation.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::phases::{ServedPhase, Server};
use super::service::{Load, Service};
use crate::diagnostics::Diagnostic;

/// Points of the grid along the context at most; each is four times the one before.
const MOST_CONTEXTS: usize = 5;

/// Seconds and joules.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    /// Seconds.
    pub seconds: f64,
    /// Joules.
    pub joules: f64,
}

impl Cost {
    /// Between this and the other: 0 is this, 1 the other.
    fn towards(self, other: Self, part: f64) -> Self {
        let between = |a: f64, b: f64| a + (b - a) * part;
        Self { seconds: between(self.seconds, other.seconds), joules: between(self.joules, other.joules) }
    }
}

impl From<&ServedPhase> for Cost {
    fn from(phase: &ServedPhase) -> Self {
        Self { seconds: phase.seconds, joules: phase.joules }
    }
}

/// What a grid has to cover.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// Most users of a step.
    pub most_users: u64,
    /// Tokens of the shortest and of the longest prompt.
    pub prompts: (u64, u64),
    /// Tokens of the longest context.
    pub most_context: u64,
}

/// Simulated points.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grid {
    /// Of system, software, model and decomposition: a grid is read again for the same ones alone.
    pub inputs: String,
    /// Users: powers of two, and the most.
    pub users: Vec<u64>,
    /// Tokens of the context.
    pub contexts: Vec<u64>,
    /// A decode step, context by context for each number of users.
    pub decode: Vec<Vec<Cost>>,
    /// Tokens of a prompt.
    pub prompts: Vec<u64>,
    /// Prefill of one user.
    pub prefill: Vec<Cost>,
}

/// From `most` down to `least`, each a `factor`-th of the one before.
fn geometric((least, most): (u64, u64), factor: u64) -> Vec<u64> {
    let mut list: Vec<u64> =
        std::iter::successors(Some(most), |n| Some(n / factor)).take_while(|&n| n > least).collect();
    list.push(least);
    list.reverse();
    list
}

impl Grid {
    /// Simulates the points that cover a range.
    ///
    /// # Errors
    /// What the simulation of any of them refuses.
    pub fn new(server: &Server<'_>, service: &Service, range: &Range) -> Result<Self, Diagnostic> {
        let users = geometric((1, range.most_users), 2);
        let mut contexts = geometric((range.prompts.0.min(range.most_context), range.most_context), 4);
        // Short contexts differ least.
        let excess = contexts.len().saturating_sub(MOST_CONTEXTS);
        contexts.drain(1..=excess);
        let prompts = geometric(range.prompts, 4);
        let load = |users: u64, tokens: u64| Load::filling(&service.parallel, users, tokens);
        let points: Vec<(u64, u64)> =
            users.iter().flat_map(|&users| contexts.iter().map(move |&tokens| (users, tokens))).collect();
        let decode: Vec<Cost> = points
            .par_iter()
            .map(|&(users, tokens)| server.decode(&load(users, tokens)).map(|phase| Cost::from(&phase)))
            .collect::<Result<_, _>>()?;
        let prefill: Vec<Cost> = prompts
            .par_iter()
            .map(|&tokens| server.prefill(&load(1, tokens)).map(|phase| Cost::from(&phase)))
            .collect::<Result<_, _>>()?;
        let decode = decode.chunks(contexts.len().max(1)).map(<[Cost]>::to_vec).collect();
        Ok(Self { inputs: server.fingerprint(), users, contexts, decode, prompts, prefill })
    }

    /// The grid of an earlier result (`result.json` of `--phase requests`).
    ///
    /// # Errors
    /// A file without one, or one whose lists do not fit each other.
    pub fn read(path: &str, text: &str) -> Result<Self, Diagnostic> {
        #[derive(Deserialize)]
        struct Earlier {
            grid: Grid,
        }
        let refuse = |why: &str| {
            Diagnostic::new(format!("{path}: {why}"))
                .with_help("`--grid` takes the result.json that `--phase requests --out DIR` wrote")
        };
        let Earlier { grid } =
            serde_json::from_str(text).map_err(|error| refuse(&format!("no grid of simulated points: {error}")))?;
        let rises = |list: &[u64]| !list.is_empty() && list.windows(2).all(|pair| pair[0] < pair[1]);
        let is_whole = grid.decode.len() == grid.users.len()
            && grid.decode.iter().all(|list| list.len() == grid.contexts.len())
            && grid.prefill.len() == grid.prompts.len();
        let costs = grid.decode.iter().flatten().chain(&grid.prefill);
        let is_sound = |cost: &Cost| cost.seconds.is_finite() && cost.seconds > 0.0 && cost.joules.is_finite();
        if !is_whole || ![&grid.users, &grid.contexts, &grid.prompts].into_iter().all(|list| rises(list)) {
            return Err(refuse("the lists of `grid` do not fit each other"));
        }
        if !costs.into_iter().all(is_sound) {
            return Err(refuse("a time of `grid` is no time"));
        }
        Ok(grid)
    }

    /// Refuses a range that the points do not cover, and points of other inputs.
    ///
    /// # Errors
    /// What differs, or is beyond the last point.
    pub fn check(&self, server: &Server<'_>, range: &Range) -> Result<(), Diagnostic> {
        if self.inputs != server.fingerprint() {
            let title = "`--grid`: its points are of another system, software, model or decomposition";
            return Err(Diagnostic::new(title).with_help("leave `--grid` out: the points are simulated"));
        }
        let last = |list: &[u64]| list.last().copied().unwrap_or(0);
        let pairs = [
            ("requests at one time", last(&self.users), range.most_users),
            ("tokens of context", last(&self.contexts), range.most_context),
            ("tokens of a prompt", last(&self.prompts), range.prompts.1),
        ];
        match pairs.into_iter().find(|(_, has, wanted)| has < wanted) {
            None => Ok(()),
            Some((what, has, wanted)) => {
                let title = format!("`--grid`: its points go to {has} {what}, the requests have {wanted}");
                Err(Diagnostic::new(title).with_help("leave `--grid` out: the points are simulated"))
            }
        }
    }

    /// A decode step of `users` users with so many tokens of context on average.
    pub fn decode(&self, users: u64, context: f64) -> Cost {
        let (row, down) = place(&self.users, users as f64);
        let (column, right) = place(&self.contexts, context);
        let of = |row: usize| {
            let Some(list) = self.decode.get(row) else { return Cost::default() };
            between(list, column, right)
        };
        if down > 0.0 { of(row).towards(of(row + 1), down) } else { of(row) }
    }

    /// Prefill of one user whose first `cached` tokens have their keys and values already: what the whole prompt takes
    /// beyond those, and no less than the rest alone.
    pub fn prefill_behind(&self, cached: u64, tokens: u64) -> Cost {
        let whole = self.prefill(tokens);
        if cached == 0 {
            return whole;
        }
        let (known, rest) = (self.prefill(cached), self.prefill(tokens.saturating_sub(cached)));
        let beyond = Cost { seconds: whole.seconds - known.seconds, joules: whole.joules - known.joules };
        if beyond.seconds > rest.seconds { beyond } else { rest }
    }

    /// Prefill of one user.
    pub fn prefill(&self, tokens: u64) -> Cost {
        let (at, part) = place(&self.prompts, tokens as f64);
        between(&self.prefill, at, part)
    }
}

fn between(list: &[Cost], at: usize, part: f64) -> Cost {
    match (list.get(at), list.get(at + 1)) {
        (Some(low), Some(high)) => low.towards(*high, part),
        (Some(only), None) => *only,
        _ => Cost::default(),
    }
}

/// The interval of a list in order that a value lies in, and how far in it; values outside take the nearest end.
fn place(list: &[u64], value: f64) -> (usize, f64) {
    let above = list.partition_point(|&point| point as f64 <= value);
    if above == 0 {
        return (0, 0.0);
    }
    match (list.get(above - 1), list.get(above)) {
        (Some(&low), Some(&high)) => (above - 1, (value - low as f64) / (high - low) as f64),
        _ => (above - 1, 0.0),
    }
}
