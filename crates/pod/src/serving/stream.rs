//! A trace of requests on all replicas of a system, and what its users saw.

use super::super::system::{Stack, System};
use super::alone::Alone;
use super::grid::Grid;
use super::phases::Server;
use super::policy::Policy;
use super::requests::Request;
use super::schedule::{Answer, Limits, Replayed, replay};
use super::served::of_model;
use super::service::Service;
use super::speculation::Speculation;
use rdusim_base::diagnostics::Diagnostic;

/// Mean and percentiles (nearest rank).
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Spread {
    /// Mean.
    pub mean: f64,
    /// As many are below as above.
    pub p50: f64,
    /// One in twenty is above.
    pub p95: f64,
    /// One in a hundred is above.
    pub p99: f64,
}

impl Spread {
    /// Of values in any order.
    pub fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut list: Vec<f64> = values.collect();
        list.sort_by(f64::total_cmp);
        let n = list.len();
        let rank = |percent: usize| list.get((n * percent).div_ceil(100).max(1) - 1).copied().unwrap_or(0.0);
        Self { mean: list.iter().sum::<f64>() / n.max(1) as f64, p50: rank(50), p95: rank(95), p99: rank(99) }
    }

    /// Of values that each occur so often; nothing if there are none.
    pub fn of_counted(values: impl Iterator<Item = (f64, u64)>) -> Option<Self> {
        let mut list: Vec<(f64, u64)> = values.collect();
        list.sort_by(|a, b| a.0.total_cmp(&b.0));
        let all: u64 = list.iter().map(|(_, times)| times).sum();
        let sum: f64 = list.iter().map(|&(value, times)| value * times as f64).sum();
        let rank = |percent: u64| {
            let wanted = (all * percent).div_ceil(100).max(1);
            let mut seen = 0;
            let reached = list.iter().find(|(_, times)| {
                seen += times;
                seen >= wanted
            });
            reached.map_or(0.0, |(value, _)| *value)
        };
        (all > 0).then(|| Self { mean: sum / all as f64, p50: rank(50), p95: rank(95), p99: rank(99) })
    }
}

/// What a model that drafts holds of a chip.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DraftUse {
    /// Name of the model.
    pub model: String,
    /// Bytes of its weights.
    pub weights: u64,
    /// Bytes of its keys and values of a token.
    pub kv_bytes_per_token: u64,
}

/// What a trace came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Streamed {
    /// Requests.
    pub requests: u64,
    /// Seconds until the last token.
    pub end_s: f64,
    /// Time to first token.
    pub ttft_s: Spread,
    /// Mean time from token to token of a request, if one has two tokens.
    pub token_s: Option<Spread>,
    /// Time from a token to the next of the same request, over all tokens, if a request has two.
    pub gap_s: Option<Spread>,
    /// From arrival to last token.
    pub latency_s: Spread,
    /// Tokens of answers.
    pub tokens: u64,
    /// Joules of the chips in iterations.
    pub joules: f64,
    /// Share of the time that replicas run iterations, mean.
    pub busy: f64,
    /// Requests that run in an iteration, mean.
    pub mean_running: f64,
    /// Limits of a replica.
    pub limits: Limits,
    /// Most tokens that a replica had reserved.
    pub most_kv_tokens: u64,
    /// Replica by replica.
    pub replicas: Vec<Replayed>,
    /// The points that were simulated.
    pub grid: Grid,
    /// The model that drafts, if one does.
    pub draft: Option<DraftUse>,
    /// One sentence each.
    pub notes: Vec<String>,
}

/// Runs a trace. The replicas take requests in turn. With a grid of points that are `known`, nothing is simulated.
///
/// # Errors
/// What cannot be divided, what the chip's simulation refuses, or requests that never fit.
pub fn stream(
    system: &System,
    stack: &Stack,
    service: &Service,
    speculation: Option<&Speculation>,
    requests: &[Request],
    policy: &Policy,
    known: Option<&Grid>,
) -> Result<Streamed, Diagnostic> {
    Server::new(system, stack, service)?;
    let replicas = service.parallel.dp;
    let own = Alone::new(system, stack, service, speculation, requests, policy)?;
    let grid = own.grid(known)?;
    let runs = replayed(requests, &grid, &own.limits, replicas, policy.concurrency)?;
    let (limits, drafting, most_context) = (own.limits, &own.drafting, own.range.most_context);
    let answers = || runs.iter().flat_map(|run| &run.answers);
    let end_s = runs.iter().map(|run| run.end_s).fold(0.0, f64::max);
    let sum = |of: fn(&Replayed) -> f64| runs.iter().map(of).sum::<f64>();
    let tokens: u64 = runs.iter().map(|run| run.tokens).sum();
    let iterations = sum(|run| run.iterations as f64);
    Ok(Streamed {
        requests: requests.len() as u64,
        end_s,
        ttft_s: Spread::of(answers().map(|answer| answer.ttft_s)),
        token_s: answers()
            .any(|answer| answer.token_s.is_some())
            .then(|| Spread::of(answers().filter_map(|answer| answer.token_s))),
        gap_s: Spread::of_counted(runs.iter().flat_map(|run| run.gaps.iter().copied())),
        latency_s: Spread::of(answers().map(|answer: &Answer| answer.latency_s)),
        tokens,
        joules: sum(|run| run.joules),
        busy: if end_s > 0.0 { sum(|run| run.busy_s) / (end_s * replicas as f64) } else { 0.0 },
        mean_running: sum(|run| run.served as f64) / iterations.max(1.0),
        limits,
        most_kv_tokens: runs.iter().map(|run| run.most_kv_tokens).max().unwrap_or(0),
        replicas: runs,
        draft: drafting.as_ref().map(|of| DraftUse {
            model: of.draft.model.clone(),
            weights: of.draft.most_weight_bytes(),
            kv_bytes_per_token: of.draft.kv_bytes_per_token(),
        }),
        notes: notes(service, speculation, policy, &grid, most_context),
        grid,
    })
}

/// Each replica's share of the requests, which come in turn, run to its end.
fn replayed(
    requests: &[Request],
    grid: &Grid,
    limits: &Limits,
    replicas: u64,
    concurrency: Option<u64>,
) -> Result<Vec<Replayed>, Diagnostic> {
    (0..replicas)
        .map(|replica| {
            let own: Vec<Request> =
                requests.iter().skip(replica as usize).step_by(replicas as usize).copied().collect();
            // Users of a closed loop are shared out like requests.
            let of_replica = concurrency.map(|users| (users + replicas - 1 - replica) / replicas);
            let limits = Limits { concurrency: of_replica, ..*limits };
            replay(&own, grid, &limits, replica)
        })
        .collect()
}

/// What a result says of itself.
fn notes(
    service: &Service,
    speculation: Option<&Speculation>,
    policy: &Policy,
    grid: &Grid,
    most_context: u64,
) -> Vec<String> {
    let (replicas, together) = (service.parallel.dp, service.replicas_together());
    let mut notes = vec![
        format!(
            "{} points of users and context and {} prompts were simulated; between them times and joules are interpolated \
             linearly",
            grid.users.len() * grid.contexts.len(),
            grid.prompts.len()
        ),
        "first come, first served, iteration by iteration; ".to_owned()
            + match policy.chunk {
                None => "prompts take their prefill one after the other, before the tokens of those that run",
                Some(_) => {
                    "parts of prompts go with the tokens of those that run, in one pass that reads the weights once"
                }
            },
    ];
    if let Some(users) = policy.concurrency {
        notes.push(format!(
            "a closed loop: {users} users, each of whom sends the next request when the last one is answered; all begin at once"
        ));
    }
    if let Some(of) = speculation {
        notes.push(format!(
            "an iteration is a round: {} drafts {} tokens, which are verified in one pass; which are accepted is drawn for each request, \
             {:.3} tokens a round in the mean; prompts go through both models",
            of.draft.model,
            of.tokens,
            of.expected()
        ));
    }
    if policy.prefix_share > 0.0 {
        notes.push(format!(
            "the first {:.0} % of each prompt have their keys and values already; their memory is counted for each request",
            policy.prefix_share * 100.0
        ));
    }
    if together > 1 {
        notes.push(format!(
            "{together} replicas share experts out and run together: an iteration takes what it would if all had as many users; what \
             they wait for each other is not counted"
        ));
    }
    if replicas > together {
        let whose = if together > 1 { "groups of them" } else { "they" };
        notes.push(format!("{replicas} replicas take requests in turn; {whose} share neither links nor hosts"));
    }
    notes.extend(of_model(service, most_context));
    notes.extend(speculation.and_then(|of| of.too_long(most_context)));
    notes
}
