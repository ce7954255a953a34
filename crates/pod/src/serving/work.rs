//! A pass of a stage: what its tokens are, and which part of the model it goes through.

use rdusim_models::model::{HybridLayers, Phase};

/// What the tokens of a pass are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Work {
    /// Prompts; the last token of each has logits.
    Prompts,
    /// New tokens of each user, the last of a context whose other keys and values are held.
    Tokens {
        /// Of each user.
        new: u64,
        /// Rows of all users that have logits, at most.
        sampled: u64,
    },
    /// A row of each user, without its attention.
    Rows {
        /// Rows that have logits, at most.
        sampled: u64,
    },
    /// A new token of each user, and a part of the prompt of one more; that part's last token may have logits.
    Mixed {
        /// Tokens of the part.
        chunk: u64,
        /// Tokens of the prompt before it, whose keys and values are held.
        before: u64,
    },
}

impl Work {
    /// A new token of each user.
    pub(super) const TOKEN: Self = Self::tokens(1);

    /// So many new tokens of each user, all with logits.
    pub(super) const fn tokens(new: u64) -> Self {
        Self::Tokens { new, sampled: u64::MAX }
    }

    /// Rows of so many users with so many tokens of context.
    pub(super) fn rows(self, users: u64, tokens: u64) -> u64 {
        match self {
            Self::Prompts => users.saturating_mul(tokens),
            Self::Tokens { new, .. } => users.saturating_mul(new),
            Self::Rows { .. } => users,
            Self::Mixed { chunk, .. } => users.saturating_add(chunk),
        }
    }

    /// Of these, those with logits.
    pub(super) fn sampled(self, users: u64) -> u64 {
        match self {
            Self::Prompts => users,
            Self::Tokens { new, sampled } => users.saturating_mul(new).min(sampled),
            Self::Rows { sampled } => users.min(sampled),
            Self::Mixed { .. } => users + 1,
        }
    }
}

/// What a stage does at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Pass {
    /// Prompts or tokens.
    pub work: Work,
    /// Users.
    pub users: u64,
    /// Tokens of a prompt or a context.
    pub tokens: u64,
    /// Whether the embedding is part of the stage.
    pub is_first: bool,
    /// Whether the logits are.
    pub is_last: bool,
    /// What its layers are, in a model with recurrences.
    pub hybrid: Option<HybridLayers>,
    /// The first stage whose layers are of the same kinds, in a model of several.
    pub stage: u64,
    /// The only kind of its layers, if a stage is simulated kind by kind.
    pub kind: Option<u16>,
    /// Its layers.
    pub layers: u64,
}

impl Pass {
    /// Whether tokens meet a cache.
    pub(super) fn phase(&self) -> Phase {
        if self.work == Work::Prompts { Phase::Prefill } else { Phase::Decode }
    }
}
