//! The loop nest of a section: blocks of rows, chunks of one axis, tokens.

use std::ops::Range;

/// Which of the two inner loops is outermost within a row block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LoopOrder {
    /// `for block { for chunk { for token } }`: each weight chunk meets every token of the block.
    ChunkOuter,
    /// `for block { for token { for chunk } }`: weights stay, a token passes through every chunk.
    TokenOuter,
}

/// One axis cut into chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Chunking {
    /// Index into the section's axes.
    pub axis: usize,
    /// Length of the axis.
    pub extent: u64,
    /// Elements of a chunk (the last may be shorter).
    pub width: u64,
}

/// How often something happens in the nest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cadence {
    /// Once for each (block, chunk, token).
    Firing,
    /// Once for each (block, token).
    Token,
    /// Once for each (block, chunk).
    BlockChunk,
    /// Once for each chunk in the whole section.
    Chunk,
    /// Once in the section.
    Once,
}

/// The loop nest all stages of a section walk in step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Nest {
    /// Rows of the section's activations.
    pub rows: u64,
    /// Rows of a token (the last of a run may have fewer).
    pub token_rows: u64,
    /// Tokens of a row block (the last block may have fewer).
    pub block_tokens: u64,
    /// The axis cut into chunks, if any.
    pub chunking: Option<Chunking>,
    /// Order of the two inner loops.
    pub order: LoopOrder,
}

/// A place in the nest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Row block.
    pub block: u64,
    /// Chunk.
    pub chunk: u64,
    /// Token, counted over the whole section.
    pub token: u64,
}

impl Nest {
    /// Tokens of the section.
    pub fn tokens(&self) -> u64 {
        self.rows.div_ceil(self.token_rows)
    }

    /// Row blocks.
    pub fn blocks(&self) -> u64 {
        self.tokens().div_ceil(self.block_tokens)
    }

    /// Chunks of the cut axis (one without a cut).
    pub fn chunks(&self) -> u64 {
        self.chunking.map_or(1, |c| c.extent.div_ceil(c.width))
    }

    /// Elements of the cut axis in a chunk; `None` without a cut.
    pub fn chunk_range(&self, chunk: u64) -> Option<Range<u64>> {
        self.chunking.map(|c| chunk * c.width..(c.extent.min((chunk + 1) * c.width)))
    }

    /// Rows of a token.
    pub fn rows_of(&self, token: u64) -> u64 {
        self.token_rows.min(self.rows - token * self.token_rows)
    }

    /// Whether a token is the short last one.
    pub fn is_ragged(&self, token: u64) -> bool {
        self.rows_of(token) != self.token_rows
    }

    /// Tokens of a block: the first, and how many.
    pub fn block_range(&self, block: u64) -> Range<u64> {
        block * self.block_tokens..self.tokens().min((block + 1) * self.block_tokens)
    }

    /// Number of events of a cadence in the section.
    pub fn count(&self, cadence: Cadence) -> u64 {
        match cadence {
            Cadence::Firing => self.tokens() * self.chunks(),
            Cadence::Token => self.tokens(),
            Cadence::BlockChunk => self.blocks() * self.chunks(),
            Cadence::Chunk => self.chunks(),
            Cadence::Once => 1,
        }
    }

    /// The step at which event `n` of a cadence happens (the first, where it lasts several); `n` is below
    /// [`Self::count`].
    pub fn step(&self, cadence: Cadence, n: u64) -> Step {
        debug_assert!(n < self.count(cadence), "event {n} of {}, {cadence:?}, in {self:?}", self.count(cadence));
        let chunks = self.chunks();
        match cadence {
            Cadence::Firing => {
                let block = n / (self.block_tokens * chunks);
                let tokens = self.block_range(block);
                let within = n - block * self.block_tokens * chunks;
                let in_block = tokens.end - tokens.start;
                let (chunk, token) = match self.order {
                    LoopOrder::ChunkOuter => (within / in_block, within % in_block),
                    LoopOrder::TokenOuter => (within % chunks, within / chunks),
                };
                Step { block, chunk, token: tokens.start + token }
            }
            Cadence::Token => Step { block: n / self.block_tokens, chunk: 0, token: n },
            Cadence::BlockChunk => {
                let block = n / chunks;
                Step { block, chunk: n % chunks, token: block * self.block_tokens }
            }
            Cadence::Chunk => Step { block: 0, chunk: n, token: 0 },
            Cadence::Once => Step { block: 0, chunk: 0, token: 0 },
        }
    }

    /// The event of a cadence that covers a step: the inverse of [`Self::step`].
    pub fn ordinal(&self, cadence: Cadence, at: Step) -> u64 {
        let chunks = self.chunks();
        match cadence {
            Cadence::Firing => match self.order {
                LoopOrder::ChunkOuter => {
                    let tokens = self.block_range(at.block);
                    let within = at.chunk * (tokens.end - tokens.start) + at.token - tokens.start;
                    at.block * self.block_tokens * chunks + within
                }
                LoopOrder::TokenOuter => at.token * chunks + at.chunk,
            },
            Cadence::Token => at.token,
            Cadence::BlockChunk => at.block * chunks + at.chunk,
            Cadence::Chunk => at.chunk,
            Cadence::Once => 0,
        }
    }

    /// Whether the firing at `at` is the last that uses its event of `cadence`.
    pub fn is_last_use(&self, cadence: Cadence, at: Step) -> bool {
        let last_chunk = || at.chunk + 1 == self.chunks();
        let last_token = || at.token + 1 == self.block_range(at.block).end;
        match cadence {
            Cadence::Firing => true,
            Cadence::Token => last_chunk(),
            Cadence::BlockChunk => last_token(),
            Cadence::Chunk => last_token() && at.block + 1 == self.blocks(),
            Cadence::Once => last_token() && last_chunk() && at.block + 1 == self.blocks(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ordinal_inverts_step(rows in 1u64..200, tm in 1u64..50, bt in 1u64..8, extent in 1u64..60, width in 1u64..60, outer: bool) {
            let order = if outer { LoopOrder::ChunkOuter } else { LoopOrder::TokenOuter };
            let nest = Nest { rows, token_rows: tm, block_tokens: bt, chunking: Some(Chunking { axis: 0, extent, width }), order };
            let mut rows_seen = 0;
            for n in 0..nest.count(Cadence::Firing) {
                let step = nest.step(Cadence::Firing, n);
                prop_assert_eq!(nest.ordinal(Cadence::Firing, step), n);
                rows_seen += nest.rows_of(step.token);
            }
            prop_assert_eq!(rows_seen, rows * nest.chunks());
            for cadence in [Cadence::Token, Cadence::BlockChunk, Cadence::Chunk, Cadence::Once] {
                let mut last_uses = 0;
                for n in 0..nest.count(cadence) {
                    prop_assert_eq!(nest.ordinal(cadence, nest.step(cadence, n)), n);
                }
                for n in 0..nest.count(Cadence::Firing) {
                    last_uses += u64::from(nest.is_last_use(cadence, nest.step(Cadence::Firing, n)));
                }
                prop_assert_eq!(last_uses, nest.count(cadence));
            }
        }
    }
}
