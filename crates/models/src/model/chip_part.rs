//! Which part of a model one chip of many has.

use super::experts::Router;

/// Which part of a model, and how its attention over a cache is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a property that parts differ in on its own")]
pub struct Part {
    /// The embedding stands before the layers; else their input comes from another chip.
    pub has_embedding: bool,
    /// There are no layers: the embedding or the logits are a part of their own.
    pub has_no_layers: bool,
    /// The last norm and the logits stand behind them: of each sequence's last token, in training of all, with the loss.
    pub has_logits: bool,
    /// Decoding: the query heads that share a head of keys are rows of one product (the cache lies head by head); else they
    /// are products side by side.
    pub heads_as_rows: bool,
    /// Training: micro-batches whose gradients add up in a step, if that is more than the one that is written.
    pub micro_batches: Option<u64>,
    /// Dropout of the probabilities of attention too, where there is dropout.
    pub drops_scores: bool,
    /// Feed-forward blocks are experts of other chips.
    pub router: Option<Router>,
    /// Decoding: new tokens of each sequence, if that is more than one; they are the last of its context.
    pub new_tokens: Option<u64>,
    /// The feed-forward block is left out: rows go from the norm before it to the sum behind it.
    pub has_no_feed_forward: bool,
    /// Attention is left out: rows go from its first products to its last one.
    pub has_no_attention: bool,
    /// Attention is one kernel, which bounds scores as it makes them.
    pub has_fused_attention: bool,
    /// Decoding: the last rows alone have logits, so many.
    pub sampled: Option<u64>,
}

impl Part {
    /// The layers alone, with all that is in them.
    pub const WHOLE: Self = Self {
        has_embedding: false,
        has_no_layers: false,
        has_logits: false,
        heads_as_rows: false,
        micro_batches: None,
        drops_scores: false,
        router: None,
        new_tokens: None,
        has_no_feed_forward: false,
        has_no_attention: false,
        has_fused_attention: false,
        sampled: None,
    };
}
