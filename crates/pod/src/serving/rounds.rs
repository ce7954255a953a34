//! Rounds of speculative decoding: steps of the model that drafts, and the pass that verifies.

use super::super::system::{Stack, System};
use super::chip::Work;
use super::memory::{ServingMemory, TierUse, of_work, tiers};
use super::phases::{Drafter, Server};
use super::service::{Load, Service};
use super::speculation::Speculation;
use super::time::{ServedPhase, ServingTime};
use rdusim_base::diagnostics::Diagnostic;

impl Drafter<'_> {
    /// The same, in which attention is compiled as it was the fastest so far.
    pub(super) fn settled(self) -> Self {
        let server = Box::new(self.server.settled());
        Self { server, ..self }
    }

    /// What the tiers of the fullest chip hold of it.
    fn tiers(&self, load: &Load) -> Result<Vec<TierUse>, Diagnostic> {
        let draft = &self.speculation.draft;
        tiers(self.server.chip(), draft, load, &of_work(draft, load, Work::TOKEN))
    }
}

/// A round: tokens that are drafted, and the pass that verifies them.
#[derive(Debug, Clone, PartialEq)]
pub struct Round {
    /// Name of the model that drafts.
    pub model: String,
    /// Probability that a token is accepted.
    pub accept: f64,
    /// Tokens that are drafted.
    pub tokens: u64,
    /// Tokens that it gives a user in the mean.
    pub expected: f64,
    /// A step of the model that drafts.
    pub draft: ServedPhase,
    /// The pass that verifies.
    pub verify: ServedPhase,
    /// Memory of the model that drafts, of its fullest chip.
    pub draft_memory: ServingMemory,
}

impl Round {
    /// Seconds of all steps that draft.
    pub fn draft_s(&self) -> f64 {
        self.draft.seconds * self.tokens as f64
    }

    /// Joules of the round.
    pub fn joules(&self) -> f64 {
        self.verify.joules + self.draft.joules * self.tokens as f64
    }

    /// Seconds of the round.
    pub fn seconds(&self) -> f64 {
        self.draft_s() + self.verify.seconds
    }

    /// Seconds a token of a user.
    pub fn token_s(&self) -> f64 {
        self.seconds() / self.expected
    }

    /// The round as one phase, of which `useful` FLOP over what the chips could do in a second are of tokens that are kept.
    pub fn phase(&self, useful: f64) -> ServedPhase {
        let (n, own, other) = (self.tokens as f64, &self.verify, &self.draft);
        let time = |of: fn(&ServingTime) -> f64| of(&own.time) + n * of(&other.time);
        let traffic = own.traffic.iter().zip(&other.traffic);
        ServedPhase {
            seconds: self.seconds(),
            time: ServingTime {
                compute: time(|time| time.compute),
                tensor_comm: time(|time| time.tensor_comm),
                pipeline_comm: time(|time| time.pipeline_comm),
                expert_comm: time(|time| time.expert_comm),
                bubble: time(|time| time.bubble),
                other: time(|time| time.other),
            },
            critical: own.critical,
            traffic: traffic.map(|((level, a), (_, b))| (level.clone(), a + self.tokens * b)).collect(),
            joules: self.joules(),
            mfu: useful / self.seconds(),
            bound_s: own.bound_s + n * other.bound_s,
        }
    }

    /// FLOP of all passes over what the chips could do.
    pub fn hfu(&self) -> f64 {
        (self.verify.mfu * self.verify.seconds + self.draft.mfu * self.draft_s()) / self.seconds()
    }
}

impl<'s> Server<'s> {
    /// The model with another that drafts for it. What the other holds for `most` users and tokens takes the fastest memory first: it is
    /// read more often.
    ///
    /// # Errors
    /// As [`Speculation::check`] and [`Server::new`].
    pub fn with_draft(self, speculation: &'s Speculation, most: &Load) -> Result<Self, Diagnostic> {
        let (system, stack, service): (&'s System, &'s Stack, &'s Service) = self.setup();
        speculation.check(service)?;
        let server = Server::new(system, stack, &speculation.draft)?;
        let mut drafter = Drafter { server: Box::new(server), speculation, held: Vec::new() };
        drafter.held = drafter.tiers(most)?.iter().map(|tier| tier.weights + tier.kv_cache).collect();
        Ok(self.beside(drafter))
    }

    /// What the tiers of the fullest chip hold of the model that drafts.
    pub(super) fn drafter_tiers(&self, load: &Load) -> Result<Option<Vec<TierUse>>, Diagnostic> {
        self.drafter.as_ref().map(|drafter| drafter.tiers(load)).transpose()
    }

    /// A round of drafting and verifying, if another model drafts.
    ///
    /// # Errors
    /// What the chip's simulation refuses.
    pub fn round(&self, load: &Load) -> Result<Option<Round>, Diagnostic> {
        let Some(Drafter { server, speculation, .. }) = &self.drafter else { return Ok(None) };
        let (tokens, expected) = (speculation.tokens, speculation.expected());
        // What is verified is part of the context.
        let verified = Load { tokens: load.tokens.max(tokens + 1), ..*load };
        Ok(Some(Round {
            model: speculation.draft.model.clone(),
            accept: speculation.accept,
            tokens,
            expected,
            // What is drafted goes to the other model, not to users.
            draft: server.step(load, Work::TOKEN, 0.0)?,
            verify: self.step(&verified, Work::tokens(tokens + 1), load.micro_batch as f64 * expected)?,
            draft_memory: of_work(&speculation.draft, load, Work::TOKEN),
        }))
    }

    /// The prompts of the model that drafts, if one does.
    pub(super) fn draft_prefill(&self, load: &Load) -> Result<Option<ServedPhase>, Diagnostic> {
        self.drafter.as_ref().map(|drafter| drafter.server.prefill(load)).transpose()
    }
}
