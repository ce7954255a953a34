//! Times of prefill and decode at a grid of points, and between them by linear interpolation.

use std::collections::BTreeMap;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::mixed::{Chunk, Mixed};
use super::phases::Server;
use super::points::{between, geometric, place};
use super::service::{Load, Service};
use super::time::{Cost, Step, StepParts};
use rdusim_base::diagnostics::Diagnostic;

/// How far a compiled step in the middle of an interval of users may be from a straight line, as a share, before the interval is
/// halved. A smooth curve is then a quarter of it off between the points that the middle adds. On RDUs each point is some seconds.
const TOLERANCE: f64 = 0.04;

/// Points of the grid along the context at most; each is four times the one before.
const MOST_CONTEXTS: usize = 5;

/// What a grid has to cover.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// Most users of a step.
    pub most_users: u64,
    /// Tokens of the shortest and of the longest prompt.
    pub prompts: (u64, u64),
    /// Tokens of the longest context.
    pub most_context: u64,
    /// Tokens of prompts in a pass that carries tokens too, if passes do.
    pub chunk: Option<u64>,
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
    /// A decode step, context by context for each number of users; where another model drafts, a round.
    pub decode: Vec<Vec<Cost>>,
    /// What iterations of the longest context are made of, for each number of users.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<StepParts>,
    /// Tokens of a prompt.
    pub prompts: Vec<u64>,
    /// Prefill of one user.
    pub prefill: Vec<Cost>,
    /// Passes that mix prompts and tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mixed: Option<Mixed>,
}

/// Iterations, context by context for each number of users.
type Rows = Vec<Vec<Step>>;

/// Rows of costs by users, where each takes long: the first and the last, and between them, by bisection, as many as make steps in the
/// middle of an interval be near what their neighbours say of them.
fn refined(users: &[u64], rows: &dyn Fn(&[u64]) -> Result<Rows, Diagnostic>) -> Result<(Vec<u64>, Rows), Diagnostic> {
    let last = users.len().saturating_sub(1);
    let ends: Vec<usize> = if last > 0 { vec![0, last] } else { vec![0] };
    let first = rows(&ends.iter().map(|&at| users[at]).collect::<Vec<u64>>())?;
    let mut known: BTreeMap<usize, Vec<Step>> = ends.into_iter().zip(first).collect();
    let mut open = vec![(0, last)];
    while !open.is_empty() {
        // All intervals of a round at the same time.
        let round: Vec<(usize, usize, usize)> = std::mem::take(&mut open)
            .into_iter()
            .filter(|(low, high)| high - low > 1)
            .map(|(low, high)| (low, low.midpoint(high), high))
            .collect();
        let made = rows(&round.iter().map(|&(_, at, _)| users[at]).collect::<Vec<u64>>())?;
        for ((low, at, high), found) in round.into_iter().zip(made) {
            let part = (users[at] - users[low]) as f64 / (users[high] - users[low]) as f64;
            let off = known[&low].iter().zip(&known[&high]).zip(&found).map(|((low, high), found)| {
                (low.cost.towards(high.cost, part).seconds / found.cost.seconds - 1.0).abs()
            });
            if off.fold(0.0, f64::max) > TOLERANCE {
                open.extend([(low, at), (at, high)]);
            }
            known.insert(at, found);
        }
    }
    Ok((known.keys().map(|&at| users[at]).collect(), known.into_values().collect()))
}

impl Grid {
    /// Simulates the points that cover a range.
    ///
    /// # Errors
    /// What the simulation of any of them refuses.
    pub fn new(server: &Server<'_>, service: &Service, range: &Range) -> Result<Self, Diagnostic> {
        let users = geometric(1, range.most_users, 2);
        let mut contexts = geometric(range.prompts.0.min(range.most_context), range.most_context, 4);
        // Short contexts differ least.
        let excess = contexts.len().saturating_sub(MOST_CONTEXTS);
        contexts.drain(1..=excess);
        let prompts = geometric(range.prompts.0, range.prompts.1, 4);
        let replicas = server.replicas();
        let load = |users: u64, tokens: u64| Load::filling(&service.parallel, users * replicas, tokens);
        // Where steps are compiled, both ways to write attention are tried in the two that differ most, and one that wins in both is
        // taken for all others.
        let compiles = server.compiles();
        let settled = if compiles {
            let corners = [(users.first(), contexts.first()), (users.last(), contexts.last())];
            let tried = corners.par_iter().filter_map(|(users, tokens)| Some((*(*users)?, *(*tokens)?)));
            tried.try_for_each(|(users, tokens)| server.iteration(&load(users, tokens)).map(|_| ()))?;
            Some(server.settled())
        } else {
            None
        };
        let server = settled.as_ref().unwrap_or(server);
        let rows = |users: &[u64]| -> Result<Rows, Diagnostic> {
            let points: Vec<(u64, u64)> =
                users.iter().flat_map(|&users| contexts.iter().map(move |&tokens| (users, tokens))).collect();
            let costs = points.par_iter().map(|&(users, tokens)| server.iteration(&load(users, tokens)));
            let costs: Vec<Step> = costs.collect::<Result<_, _>>()?;
            Ok(costs.chunks(contexts.len().max(1)).map(<[Step]>::to_vec).collect())
        };
        let (users, steps) = if compiles { refined(&users, &rows)? } else { (users.clone(), rows(&users)?) };
        let prefill: Vec<Cost> =
            prompts.par_iter().map(|&tokens| server.prompt(&load(1, tokens))).collect::<Result<_, _>>()?;
        let mixed = range.chunk.map(|chunk| Mixed::new(server, &users, chunk, range.prompts.1)).transpose()?;
        let decode = steps.iter().map(|row| row.iter().map(|step| step.cost).collect()).collect();
        let parts = steps.iter().filter_map(|row| row.last()).map(|step| step.parts).collect();
        Ok(Self { inputs: server.fingerprint(), users, contexts, decode, parts, prompts, prefill, mixed })
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
            && (grid.parts.is_empty() || grid.parts.len() == grid.users.len())
            && grid.prefill.len() == grid.prompts.len();
        let last = |list: &[u64]| list.last().copied().unwrap_or(0);
        let is_covered = |mixed: &Mixed| mixed.covers(last(&grid.users), last(&grid.prompts));
        let is_whole = is_whole && grid.mixed.as_ref().is_none_or(is_covered);
        let costs = grid.decode.iter().flatten().chain(&grid.prefill);
        if !is_whole || ![&grid.users, &grid.contexts, &grid.prompts].into_iter().all(|list| rises(list)) {
            return Err(refuse("the lists of `grid` do not fit each other"));
        }
        let is_sound = costs.into_iter().all(Cost::is_sound)
            && grid.parts.iter().all(StepParts::is_sound)
            && grid.mixed.as_ref().is_none_or(Mixed::is_sound);
        if !is_sound {
            return Err(refuse("a time or an energy of `grid` is none: 0 to 1e9 s, 0 to 1e15 J"));
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
        let chunk = self.mixed.as_ref().map_or(0, |mixed| last(&mixed.chunks));
        if range.chunk.is_some_and(|wanted| wanted != chunk) {
            let title =
                format!("`--grid`: its passes have {chunk} tokens of prompts, not {}", range.chunk.unwrap_or(0));
            return Err(Diagnostic::new(title).with_help("leave `--grid` out: the points are simulated"));
        }
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

    /// Prefill of one user; of more tokens than any point has, in proportion.
    pub fn prefill(&self, tokens: u64) -> Cost {
        let (at, part) = place(&self.prompts, tokens as f64);
        let longest = self.prompts.last().map_or(tokens, |&longest| longest.max(1));
        between(&self.prefill, at, part).times((tokens as f64 / longest as f64).max(1.0))
    }

    /// A pass of a token of each of `users` users, with so many tokens of context on average, and of parts of prompts.
    pub fn mixed(&self, users: u64, context: f64, chunks: &[Chunk]) -> Cost {
        let decode = if users > 0 { self.decode(users, context) } else { Cost::default() };
        let Some(mixed) = self.mixed.as_ref().filter(|_| !chunks.is_empty()) else { return decode };
        let rows = users + chunks.iter().map(|chunk| chunk.tokens).sum::<u64>();
        let mut cost = mixed.products_of(rows);
        if users > 0 {
            cost = cost.plus(decode.beyond(mixed.products_of(users)));
        }
        for chunk in chunks {
            cost = cost.plus(mixed.attention(chunk));
            cost.seconds += if chunk.ends { mixed.token_s } else { 0.0 };
        }
        // What more rows take is never less.
        Cost { seconds: cost.seconds.max(decode.seconds), joules: cost.joules.max(decode.joules) }
    }
}
