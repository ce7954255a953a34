//! A trace of requests on all replicas of a system, and what its users saw.

use super::super::parallel::Parallel;
use super::super::system::{Stack, System};
use super::chip::Work;
use super::grid::{Grid, Range};
use super::memory::{ServingMemory, of_work};
use super::phases::Server;
use super::requests::Request;
use super::schedule::{Answer, Drafted, Limits, Replayed, replay};
use super::served::of_model;
use super::service::{Load, MOST_ROWS, RequestSize, Service};
use super::speculation::Speculation;
use rdusim_base::diagnostics::Diagnostic;

/// What a trace is run under; what is not given follows from the memory of a chip.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Policy {
    /// Requests that a replica runs at one time; 0 for all users of a closed loop.
    pub users: u64,
    /// Tokens whose keys and values a replica holds at one time.
    pub kv_tokens: Option<u64>,
    /// Tokens of prompts that start in one iteration.
    pub prefill_tokens: u64,
    /// Share of each prompt, from its start, whose keys and values are at hand from requests before.
    pub prefix_share: f64,
    /// Tokens of prompts that go with the tokens of requests that run, at most, in a pass; if not given prompts go alone.
    pub chunk: Option<u64>,
    /// Seed of what is drawn: which drafted tokens are accepted.
    pub seed: u64,
    /// A closed loop of so many users of all replicas, each of whom sends a request when the last one is answered; if not given
    /// requests come at their times.
    pub concurrency: Option<u64>,
}

/// Tokens of prompts of an iteration, if neither the caller nor the stack says.
pub const PREFILL_TOKENS: u64 = 8192;

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
    (service, speculation): (&Service, Option<&Speculation>),
    requests: &[Request],
    policy: &Policy,
    known: Option<&Grid>,
) -> Result<Streamed, Diagnostic> {
    let replicas = service.parallel.dp;
    // A replica alone: others have links and chips of their own. Those that share experts out run together.
    let together = service.replicas_together();
    let alone =
        |service: &Service| Service { parallel: Parallel { dp: together, ..service.parallel }, ..service.clone() };
    let one = alone(service);
    let drafting = speculation.map(|of| Speculation { draft: alone(&of.draft), ..of.clone() });
    Server::new(system, stack, service)?;
    let server = Server::new(system, stack, &one)?;
    policy.check(&one, speculation.is_some())?;
    let most = |of: fn(&Request) -> u64| requests.iter().map(of).max().unwrap_or(1);
    let shortest = requests.iter().map(|request| request.prompt).min().unwrap_or(1);
    let longest = (shortest, most(|request| request.prompt));
    let most_context = most(|request| request.prompt + request.output);
    let runs_at_once = policy.users.min(requests.len() as u64);
    let passes = Passes { prompt: longest.1, users: runs_at_once, chunk: policy.chunk };
    let room = kv_room(system, stack.memory_share, &one, drafting.as_ref(), &passes);
    let kv_tokens = policy.kv_tokens.map_or(room.0, |tokens| tokens.min(room.1));
    // More users than have room, or than there are requests, never run at one time.
    let size = service.request_size();
    // Where caches grow, as many may run as have begun.
    let grows = stack.scheduler.grows_caches;
    let least = |request: &Request| size.units(request.prompt + if grows { 1 } else { request.output });
    let least = requests.iter().map(least).min().unwrap_or(1).max(1);
    let able = runs_at_once.min((kv_tokens / least).max(1));
    let drafted = speculation.map(|of| Drafted { tokens: of.tokens, accept: of.accept, seed: policy.seed });
    let limits = Limits { size, drafted, ..policy.limits(stack, kv_tokens) };
    // The least prefill is of what is not at hand, or of what is.
    let parts = [limits.cached(shortest), shortest - limits.cached(shortest)];
    let least = parts.into_iter().filter(|&part| part > 0).min().unwrap_or(1);
    let range = Range { most_users: able, prompts: (least, longest.1), most_context, chunk: policy.chunk };
    let server = match &drafting {
        Some(of) => {
            let most = (able * most_context).min(kv_tokens).div_ceil(able);
            server.with_draft(of, &Load::filling(&one.parallel, able * together, most))?
        }
        None => server,
    };
    let grid = match known {
        Some(grid) => {
            grid.check(&server, &range)?;
            grid.clone()
        }
        None => Grid::new(&server, &one, &range)?,
    };
    let runs = replayed(requests, &grid, &limits, replicas, policy.concurrency)?;
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
        notes: notes((service, speculation), policy, &grid, most_context),
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
    (service, speculation): (&Service, Option<&Speculation>),
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

impl Policy {
    /// The same under an engine's scheduler, as far as nothing else is asked for.
    #[must_use]
    pub fn under(&self, stack: &Stack, replicas: u64) -> Self {
        let users = match (self.users, self.concurrency) {
            (0, Some(all)) => all.div_ceil(replicas.max(1)),
            (0, None) => 1,
            (users, _) => users,
        };
        Self { users, chunk: self.chunk.or(stack.scheduler.chunk()), ..*self }
    }

    /// A closed loop under an engine's scheduler: so many users of each of `replicas` replicas.
    pub fn closed(stack: &Stack, users: u64, replicas: u64) -> Self {
        let pass = stack.scheduler.pass_tokens.unwrap_or(PREFILL_TOKENS);
        Self {
            users,
            kv_tokens: None,
            prefill_tokens: pass,
            prefix_share: 0.0,
            chunk: stack.scheduler.mixes_prompts.then_some(pass),
            seed: 1,
            concurrency: Some(users * replicas),
        }
    }

    /// Limits of a replica that holds so many tokens.
    fn limits(&self, stack: &Stack, kv_tokens: u64) -> Limits {
        Limits {
            users: self.users,
            kv_tokens,
            size: RequestSize::TOKENS,
            prefill_tokens: self.prefill_tokens,
            prefix_share: self.prefix_share,
            chunk: self.chunk,
            drafted: None,
            concurrency: None,
            prompts_first: stack.scheduler.prompts_first,
            grows_caches: stack.scheduler.grows_caches,
            request_s: stack.request_us / 1e6,
            first_s: stack.first_us / 1e6,
        }
    }

    /// Refuses what is out of range, or does not go together.
    fn check(&self, service: &Service, drafts: bool) -> Result<(), Diagnostic> {
        if self.users == 0 || self.users > 1 << 12 {
            return Err(Diagnostic::new(format!("`--batch` is {}, expected a count from 1 to 4096", self.users)));
        }
        if let Some(users) = self.concurrency.filter(|&users| users < service.parallel.dp || users > 1 << 20) {
            let title =
                format!("`--concurrency` is {users}, expected a user of each replica at least, and at most 2^20");
            return Err(Diagnostic::new(title));
        }
        if !(0.0..1.0).contains(&self.prefix_share) {
            let title = format!("`--prefix-share` is {}, expected a share from 0, below 1", self.prefix_share);
            return Err(Diagnostic::new(title));
        }
        let together = service.parallel.dp;
        let rows = |rows: u64, what: &str| {
            if rows.saturating_mul(together) <= MOST_ROWS {
                return Ok(());
            }
            let title = format!(
                "{what}: passes have {rows} rows on each of {together} replicas that run together, at most {MOST_ROWS} in all are modelled"
            );
            Err(Diagnostic::new(title).with_help(format!("rows times replicas are at most {MOST_ROWS}")))
        };
        rows(self.users, &format!("`--batch` is {}", self.users))?;
        let Some(chunk) = self.chunk else { return Ok(()) };
        if chunk == 0 {
            return Err(Diagnostic::new("`--prefill-chunk` is 0, expected a count from 1"));
        }
        rows(
            chunk.saturating_add(self.users),
            &format!("`--prefill-chunk` is {chunk} beside the tokens of {} users of `--batch`", self.users),
        )?;
        if service.parallel.pp > 1 {
            let title = format!(
                "`--prefill-chunk`: passes of prompts and tokens are modelled for one stage, pp is {}",
                service.parallel.pp
            );
            return Err(Diagnostic::new(title).with_help("use tp in place of pp, or leave `--prefill-chunk` out"));
        }
        if service.architecture.extras.mamba.is_some() {
            let title = format!(
                "`--prefill-chunk`: {} has Mamba-2 layers: passes of parts of prompts that go on from a state are not modelled",
                service.model
            );
            return Err(Diagnostic::new(title).with_help("leave `--prefill-chunk` out"));
        }
        if drafts {
            let title = "`--prefill-chunk` and `--draft`: a round that carries prompts is not modelled";
            return Err(Diagnostic::new(title).with_help("leave one of them out"));
        }
        Ok(())
    }
}

/// The passes that a replica takes at most.
struct Passes {
    /// Tokens of the longest prompt.
    prompt: u64,
    /// Requests that run at one time.
    users: u64,
    /// Tokens of prompts that go with theirs.
    chunk: Option<u64>,
}

impl Passes {
    /// Bytes of a chip beside keys and values in the pass of a model that needs most: a prefill, a token or `tokens` tokens of
    /// each user, or tokens and parts of prompts.
    fn most_bytes(&self, service: &Service, tokens: u64) -> ServingMemory {
        let dp = service.parallel.dp;
        let alone = Load { batch: dp, micro_batch: 1, tokens: self.prompt };
        let all = Load::filling(&service.parallel, self.users * dp, self.prompt);
        let mut works = vec![(alone, Work::Prompts), (all, Work::tokens(tokens))];
        works.extend(self.chunk.map(|chunk| (all, Work::Mixed { chunk, before: 0 })));
        let passes =
            works.into_iter().map(|(load, work)| ServingMemory { kv_cache: 0, ..of_work(service, &load, work) });
        passes.max_by_key(ServingMemory::peak).unwrap_or_default()
    }
}

/// Tokens whose keys and values find room: in the fastest memory that has any left beside weights and the largest pass, and in
/// all memory. A model that drafts has weights, keys and values of its own; both take turns.
fn kv_room(
    system: &System,
    memory_share: f64,
    service: &Service,
    draft: Option<&Speculation>,
    passes: &Passes,
) -> (u64, u64) {
    let own = passes.most_bytes(service, 1 + draft.map_or(0, |of| of.tokens));
    let drafting = draft.map_or_else(ServingMemory::default, |of| passes.most_bytes(&of.draft, 1));
    let turn = |memory: &ServingMemory| memory.activations.saturating_add(memory.buffers);
    let used = own.weights.saturating_add(drafting.weights).saturating_add(turn(&own).max(turn(&drafting)));
    let each = service.request_size().unit_bytes + draft.map_or(0, |of| of.draft.kv_bytes_per_token());
    let mut capacity = 0;
    let mut room = Vec::new();
    for tier in system.chip.device().tiers() {
        capacity += (tier.capacity_bytes as f64 * memory_share) as u64;
        room.push(capacity.saturating_sub(used) / each.max(1));
    }
    let all = room.last().copied().unwrap_or(0);
    (room.into_iter().find(|&tokens| tokens > 0).unwrap_or(0), all)
}
