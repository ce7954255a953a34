//! What models of some families have beside the dimensions that all have.

use super::experts::Experts;
use super::mamba::Mamba;

/// Parts of a model that most families lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a property that models differ in on its own")]
pub struct Extras {
    /// Width of a head, where it is not the model's width over its heads.
    pub head_width: Option<u64>,
    /// Queries, keys and values have biases, whatever other matrices have.
    pub attention_bias: bool,
    /// Queries and keys are normed.
    pub head_norm: bool,
    /// What attention and the feed-forward block make is normed before it is added to the residual stream.
    pub branch_norm: bool,
    /// Scores of attention, and logits, are capped by a hyperbolic tangent.
    pub capped_scores: bool,
    /// Keys and values come from a narrow latent vector.
    pub latent: Option<Latent>,
    /// The feed-forward block is one of experts.
    pub experts: Option<Experts>,
    /// Layers at the front whose feed-forward block has no experts.
    pub dense_layers: u64,
    /// Tokens are patches of images with so many values, which a product embeds; only the first token of an image has logits.
    pub patches: Option<u32>,
    /// Some or all layers have a recurrence in the place of attention.
    pub mamba: Option<Mamba>,
}

/// Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1): widths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Latent {
    /// Of the latent vector of queries; without it queries come from the residual stream.
    pub query: Option<u64>,
    /// Of the latent vector of keys and values, which the cache holds.
    pub key: u64,
    /// Of the part of a head's queries and keys that is not rotated.
    pub plain: u64,
    /// Of the part that is; the key's is common to all heads.
    pub rotated: u64,
    /// Of a head's values.
    pub value: u64,
}
