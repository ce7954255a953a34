//! Linear attention by its widths: a state in the place of a cache.

/// How the state of a delta rule decays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decay {
    /// By a factor of each head (Gated `DeltaNet`, Yang et al. 2024, arXiv:2412.06464).
    Head,
    /// By a factor of each column of a head's keys, made by two narrow products (Kimi delta attention, arXiv:2510.26692).
    Column,
}

/// A gated delta rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeltaNet {
    /// Heads of queries and keys.
    pub key_heads: u64,
    /// Heads of values; each has a state of `key x value`.
    pub value_heads: u64,
    /// Width of a head of keys.
    pub key: u64,
    /// Width of a head of values.
    pub value: u64,
    /// Rows that the convolutions take, this one included.
    pub taps: u64,
    /// How states decay.
    pub decay: Decay,
}

impl DeltaNet {
    /// Columns of all keys, and of all queries.
    pub fn keys(&self) -> u64 {
        self.key_heads * self.key
    }

    /// Columns of all values.
    pub fn values(&self) -> u64 {
        self.value_heads * self.value
    }

    /// Columns that the convolutions take.
    pub fn convolved(&self) -> u64 {
        2 * self.keys() + self.values()
    }

    /// Elements of all states of a sequence.
    pub fn state(&self) -> u64 {
        self.values() * self.key
    }
}

/// Linear attention with a fixed decay for each head (Lightning Attention, arXiv:2401.04658).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lightning {
    /// Heads; each has a state of `head x head`.
    pub heads: u64,
    /// Width of a head.
    pub head: u64,
}

/// Rows of a chunk of linear attention, at most.
const CHUNK: u64 = 64;

/// The chunk of a sequence: its largest power of two that divides it, at most [`CHUNK`].
pub fn chunk_of(sequence: u64) -> u64 {
    (1_u64 << sequence.trailing_zeros().min(63)).min(CHUNK)
}
