//! A replica alone, which shares neither links nor chips with others: what it holds and runs at one time, and the points that its
//! iterations are made of.

use super::super::parallel::Parallel;
use super::super::system::{Stack, System};
use super::chip::Work;
use super::grid::{Grid, Range};
use super::memory::{ServingMemory, of_work};
use super::phases::Server;
use super::policy::Policy;
use super::requests::Request;
use super::schedule::{Drafted, Limits};
use super::service::{Load, Service};
use super::speculation::Speculation;
use rdusim_base::diagnostics::Diagnostic;

/// A replica alone. Those that share experts out run together.
pub(super) struct Alone<'s> {
    system: &'s System,
    stack: &'s Stack,
    /// The model on the chips of the replica.
    service: Service,
    /// The model that drafts on the same chips.
    pub(super) drafting: Option<Speculation>,
    /// What it holds and runs at one time.
    pub(super) limits: Limits,
    /// What its grid covers.
    pub(super) range: Range,
}

impl<'s> Alone<'s> {
    /// Limits of a replica and what its requests ask for.
    pub(super) fn new(
        system: &'s System,
        stack: &'s Stack,
        service: &Service,
        speculation: Option<&Speculation>,
        requests: &[Request],
        policy: &Policy,
    ) -> Result<Self, Diagnostic> {
        let together = service.replicas_together();
        let alone =
            |service: &Service| Service { parallel: Parallel { dp: together, ..service.parallel }, ..service.clone() };
        let one = alone(service);
        let drafting = speculation.map(|of| Speculation { draft: alone(&of.draft), ..of.clone() });
        Server::new(system, stack, &one)?;
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
        Ok(Self { system, stack, service: one, drafting, limits, range })
    }

    /// The points that cover its requests, simulated if none are `known`.
    pub(super) fn grid(&self, known: Option<&Grid>) -> Result<Grid, Diagnostic> {
        let server = Server::new(self.system, self.stack, &self.service)?;
        let able = self.range.most_users;
        let server = match &self.drafting {
            Some(of) => {
                let together = self.service.replicas_together();
                let most = (able * self.range.most_context).min(self.limits.kv_tokens).div_ceil(able);
                server.with_draft(of, &Load::filling(&self.service.parallel, able * together, most))?
            }
            None => server,
        };
        match known {
            Some(grid) => {
                grid.check(&server, &self.range)?;
                Ok(grid.clone())
            }
            None => Grid::new(&server, &self.service, &self.range),
        }
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
