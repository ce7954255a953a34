//! The dimensions of Mamba-2 layers, and what of them cannot be written.

/// The most heads, and rows of a chunk.
const MOST: u32 = 1 << 20;

/// What a model with Mamba-2 layers has beside attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mamba {
    /// Layers with a recurrence.
    pub layers: u32,
    /// Layers with attention.
    pub attention: u32,
    /// Layers that are a feed-forward block alone.
    pub feeds: u32,
    /// Whether a feed-forward block follows in layers with a recurrence or attention.
    pub has_feed: bool,
    /// Heads of the recurrence.
    pub heads: u32,
    /// Width of a head.
    pub head: u16,
    /// Columns of a head's state.
    pub state: u16,
    /// Groups of heads that share the inputs and outputs of their states (B and C).
    pub groups: u16,
    /// Rows that a convolution takes, this one included.
    pub taps: u16,
    /// Rows of a chunk, at most; 1 for the recurrence row by row.
    pub span: u32,
}

impl Mamba {
    /// Rows of a chunk of a sequence.
    pub fn chunk_of(&self, sequence: u64) -> u64 {
        u64::from(self.span).min(sequence).max(1)
    }

    /// Width of all heads.
    pub fn width(&self) -> u64 {
        u64::from(self.heads) * u64::from(self.head)
    }

    /// What cannot be written, and what to do.
    pub(super) fn refusal(&self, is_training: bool, is_decoding: bool, sequence: u64) -> Option<(String, String)> {
        let counts = [self.heads, self.head.into(), self.state.into(), self.groups.into(), self.taps.into(), self.span];
        if counts.contains(&0) || self.heads > MOST || self.span > MOST {
            return Some((
                format!("heads, their width, states, groups, taps and chunks of Mamba-2 are {counts:?}"),
                format!("each is expected from 1 to {MOST}"),
            ));
        }
        if !self.heads.is_multiple_of(self.groups.into()) {
            let title = format!("{} groups do not divide the {} heads of Mamba-2", self.groups, self.heads);
            return Some((title, "expected a divisor".to_owned()));
        }
        if is_training {
            let title = "a model with Mamba-2 layers cannot be trained: scans have no gradient here".to_owned();
            return Some((title, "choose `--phase forward`, `prefill` or `decode`".to_owned()));
        }
        if is_decoding {
            return None;
        }
        let chunk = self.chunk_of(sequence);
        if !sequence.is_multiple_of(chunk) {
            let title = format!("a sequence of {sequence} tokens is no multiple of the chunk of {chunk} rows");
            return Some((
                title,
                "give `--sequence` (of `import` the tokens of a sequence) that is, or another `--chunk`".to_owned(),
            ));
        }
        None
    }
}
