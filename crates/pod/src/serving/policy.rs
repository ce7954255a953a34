//! What requests are run under: how many at one time, how prompts start, whose turn it is.

use super::super::system::Stack;
use super::schedule::Limits;
use super::service::{MOST_ROWS, RequestSize, Service};
use rdusim_base::diagnostics::Diagnostic;

/// Most requests that a replica runs at one time.
pub(super) const MOST_USERS: u64 = 1 << 12;

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
    pub(super) fn limits(&self, stack: &Stack, kv_tokens: u64) -> Limits {
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
    pub(super) fn check(&self, service: &Service, drafts: bool) -> Result<(), Diagnostic> {
        if self.users == 0 || self.users > MOST_USERS {
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
