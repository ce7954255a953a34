//! Speculative decoding: a small model drafts tokens one after the other, the large one verifies all of them in one pass
//! (Leviathan, Kalman and Matias, *Fast inference from transformers via speculative decoding*, 2023; Chen et al.,
//! *Accelerating large language model decoding with speculative sampling*, 2023).
//!
//! Both models lie on the same chips, divided in the same way, and take turns. A round keeps the drafted tokens up to the first
//! that is rejected, and one more of the large model: never none.

use super::service::Service;
use rdusim_base::diagnostics::Diagnostic;

/// Most tokens that are drafted in a round.
pub const MOST_DRAFTED: u64 = 64;

/// What is drafted, and how much of it is kept.
#[derive(Debug, Clone)]
pub struct Speculation {
    /// The model that drafts, divided as the one that verifies.
    pub draft: Service,
    /// Tokens that it drafts in a round.
    pub tokens: u64,
    /// Probability that a drafted token is accepted, each for itself.
    pub accept: f64,
}

impl Speculation {
    /// Refuses what cannot draft for `target`.
    ///
    /// # Errors
    /// A count or a share that is out of range, another vocabulary, or what cannot be divided.
    pub fn check(&self, target: &Service) -> Result<(), Diagnostic> {
        if !(1..=MOST_DRAFTED).contains(&self.tokens) {
            let title = format!("`--speculate` is {}, expected a count from 1 to {MOST_DRAFTED}", self.tokens);
            return Err(Diagnostic::new(title));
        }
        if !(0.0..=1.0).contains(&self.accept) {
            let title = format!("`--accept` is {}, expected a probability from 0 to 1", self.accept);
            return Err(Diagnostic::new(title));
        }
        if let Some(of) = [target, &self.draft].into_iter().find(|of| of.architecture.extras.mamba.is_some()) {
            let title = format!(
                "`--draft`: {} has Mamba-2 layers: states as they were before tokens that are rejected are not modelled",
                of.model
            );
            return Err(Diagnostic::new(title).with_help("leave `--draft` out"));
        }
        let (own, drafted) = (target.architecture.vocabulary, self.draft.architecture.vocabulary);
        if own != drafted {
            let title = format!(
                "`--draft`: {} has {drafted} tokens in its vocabulary, {} has {own}: what one drafts the other cannot verify",
                self.draft.model, target.model
            );
            return Err(Diagnostic::new(title).with_help("name a smaller model with the same tokens, or a config.json"));
        }
        self.draft.check().map_err(|why| {
            let title = format!("`--draft`: {}: {}", self.draft.model, why.title());
            Diagnostic::new(title).with_help("both models are divided alike over the same chips: change `--parallel`")
        })
    }

    /// What is to be said of drafts that are longer than a context.
    pub(super) fn too_long(&self, context: u64) -> Option<String> {
        (self.tokens >= context).then(|| {
            format!(
                "a draft of {} tokens is as long as the longest context, {context} tokens, or longer: most of it is never asked for",
                self.tokens
            )
        })
    }

    /// Tokens that a round gives a user in the mean: a sum of 1, a, a^2 ... a^K.
    pub fn expected(&self) -> f64 {
        (0..=self.tokens).map(|drafted| self.accept.powf(drafted as f64)).sum()
    }
}
