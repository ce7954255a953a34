//! The dimensions of Mamba-2 layers, and what of them cannot be written.

use std::ops::Range;

/// The most heads, and rows of a chunk.
const MOST: u32 = 1 << 20;

/// Layers of a model, or of a part of it, by what stands in them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct HybridLayers {
    /// With a recurrence.
    pub recurrent: u32,
    /// With attention.
    pub attention: u32,
    /// A feed-forward block alone.
    pub feeds: u32,
}

/// Which layers of a model have attention, and which are a feed-forward block alone; all others have a recurrence. Bit n is of layer n.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct LayerOrder {
    /// With attention.
    pub attention: u128,
    /// A feed-forward block alone.
    pub feeds: u128,
}

impl LayerOrder {
    /// Most layers of which the order is kept.
    pub const MOST: u64 = 128;

    /// What the layers of a range are.
    pub fn of(&self, layers: Range<u64>) -> HybridLayers {
        let count = |mask: u128| layers.clone().filter(|&at| at < Self::MOST && mask >> at & 1 == 1).count() as u32;
        let (attention, feeds) = (count(self.attention), count(self.feeds));
        let all = layers.end.saturating_sub(layers.start) as u32;
        HybridLayers { recurrent: all - attention - feeds, attention, feeds }
    }
}

/// What a model with Mamba-2 layers has beside attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mamba {
    /// Layers with a recurrence.
    pub layers: u32,
    /// Layers with attention.
    pub attention: u32,
    /// Layers that are a feed-forward block alone.
    pub feeds: u32,
    /// Where in the model they stand.
    pub order: LayerOrder,
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

    /// How many layers are what.
    pub fn counts(&self) -> HybridLayers {
        HybridLayers { recurrent: self.layers, attention: self.attention, feeds: self.feeds }
    }

    /// The same with other layers.
    #[must_use]
    pub fn with(self, layers: HybridLayers) -> Self {
        let HybridLayers { recurrent, attention, feeds } = layers;
        Self { layers: recurrent, attention, feeds, ..self }
    }

    /// Columns of the projection of B or C.
    pub fn of_groups(&self) -> u64 {
        u64::from(self.groups) * u64::from(self.state)
    }

    /// Elements that a sequence holds in a layer from token to token: the state, and the inputs of the rows before.
    pub fn held(&self) -> u64 {
        self.width() * u64::from(self.state) + (u64::from(self.taps) - 1) * (self.width() + 2 * self.of_groups())
    }

    /// Elements of a layer's matrices: for gate, input, B, C and step, and back.
    pub fn matrices(&self, hidden: u64) -> u64 {
        hidden * (3 * self.width() + 2 * self.of_groups() + u64::from(self.heads))
    }

    /// Elements of a layer's vectors: taps and biases of convolutions, biases and rates of steps, what passes the state by, the norm.
    pub fn vectors(&self) -> u64 {
        let convolved = self.width() + 2 * self.of_groups();
        convolved * (u64::from(self.taps) + 1) + 2 * u64::from(self.heads) + 2 * self.width()
    }

    /// The part of one of `ranks` tensor ranks: whole heads with their groups, which several ranks have where there are fewer.
    #[must_use]
    pub fn share(self, ranks: u64) -> Self {
        let part = |count: u64| (count / ranks.max(1)).max(1);
        Self { heads: part(self.heads.into()) as u32, groups: part(self.groups.into()) as u16, ..self }
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
