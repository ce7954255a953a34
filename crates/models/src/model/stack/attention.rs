//! Kinds of attention by their widths.

use super::super::extras::Latent;

/// Tokens that a token sees at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// So many, the token itself included.
    pub tokens: u64,
    /// Those of its own chunk of the sequence; else the last ones.
    pub chunked: bool,
}

/// Attention with heads of queries, and of keys and values that several of them may share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a property that models differ in on its own")]
pub struct HeadAttention {
    /// Heads of queries.
    pub heads: u64,
    /// Heads of keys and values.
    pub kv_heads: u64,
    /// Width of a head of queries and keys.
    pub key: u64,
    /// Width of a head of values.
    pub value: u64,
    /// Tokens that are seen, if not all.
    pub window: Option<Window>,
    /// Queries and keys are rotated.
    pub rotary: bool,
    /// Products of queries, keys and values have biases.
    pub bias: bool,
    /// The product behind attention has a bias.
    pub output_bias: bool,
    /// Queries and keys are normed.
    pub head_norm: bool,
    /// Columns of a gate on what the heads make, from the residual stream: 0 without one.
    pub gate: u64,
    /// Each head has a learned score that takes part in its softmax.
    pub sinks: bool,
    /// Keys are values too: one product makes both.
    pub key_is_value: bool,
    /// Keys and values are those of an earlier layer, and are kept there.
    pub shares_cache: bool,
    /// Scores are bounded by a hyperbolic tangent.
    pub capped: bool,
}

impl HeadAttention {
    /// Heads of one width without anything else.
    pub const fn new(heads: u64, kv_heads: u64, head: u64) -> Self {
        Self {
            heads,
            kv_heads,
            key: head,
            value: head,
            window: None,
            rotary: true,
            bias: false,
            output_bias: false,
            head_norm: false,
            gate: 0,
            sinks: false,
            key_is_value: false,
            shares_cache: false,
            capped: false,
        }
    }
}

/// What chooses the tokens that a query sees: index keys, which every query is compared with (`DeepSeek` sparse attention,
/// `DeepSeek`-V3.2, 2025).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Indexer {
    /// Heads of index queries.
    pub heads: u64,
    /// Width of an index query and key.
    pub head: u64,
    /// Tokens that are chosen.
    pub top: u64,
}

/// Multi-head latent attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LatentAttention {
    /// Heads.
    pub heads: u64,
    /// Widths of its compressed keys, values and queries.
    pub latent: Latent,
    /// What chooses tokens, if something does.
    pub indexer: Option<Indexer>,
}

/// Attention over a window of tokens and over compressed keys, which are values too (`DeepSeek`-V4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compressed {
    /// Heads of queries, which share one key.
    pub heads: u64,
    /// Width of a head.
    pub head: u64,
    /// Width of the latent vector of queries.
    pub query: u64,
    /// Groups of heads whose results go through a matrix of their own.
    pub groups: u64,
    /// Width of what such a matrix makes.
    pub output: u64,
    /// Last tokens that are seen as they are.
    pub window: u64,
    /// Tokens that a compressed key stands for; 0 where there are none.
    pub ratio: u64,
    /// What chooses compressed keys, if something does.
    pub indexer: Option<Indexer>,
}

/// Ratio up to which compressed keys overlap, so that each is made of two halves.
const OVERLAPPING: u64 = 4;

impl Compressed {
    /// Halves that a compressed key is made of.
    pub fn halves(&self) -> u64 {
        if self.ratio == OVERLAPPING { 2 } else { 1 }
    }
}
