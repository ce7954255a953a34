//! A layer, its kind, and a model made of layers.

use super::attention::{Compressed, HeadAttention, LatentAttention};
use super::feed::{Expertise, Feed};
use super::recurrence::{DeltaNet, Lightning};
use crate::model::mamba::Mamba;
use crate::model::preset::Norm;
use crate::model::storage::StorageFormat;

/// Most kinds of layers of a model.
pub const MOST_KINDS: usize = 64;

/// What mixes the tokens of a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mixer {
    /// Nothing: the layer is a feed-forward block alone.
    None,
    /// A matrix from the model's width to itself, in the place of attention.
    Matrix,
    /// Attention with heads of queries, keys and values.
    Heads(HeadAttention),
    /// Attention whose keys and values are made of a latent vector.
    Latent(LatentAttention),
    /// Attention over a window and over keys that stand for several tokens each.
    Compressed(Compressed),
    /// A gated delta rule: a state that is corrected by each token.
    Delta(DeltaNet),
    /// Linear attention with a fixed decay for each head.
    Lightning(Lightning),
    /// A state space with a rate for each head (Mamba-2); of its counts of layers none is used.
    Recurrence(Mamba),
}

/// Norms around the blocks of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockNorms {
    /// Each block reads what a norm makes of the residual stream.
    pub before: bool,
    /// What each block makes is normed before it is added.
    pub behind: bool,
    /// Mixer and feed-forward block read the same norm, side by side.
    pub parallel: bool,
}

impl BlockNorms {
    /// A norm before each block.
    pub const USUAL: Self = Self { before: true, behind: false, parallel: false };
}

/// A kind of layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerKind {
    /// What mixes tokens.
    pub mixer: Mixer,
    /// The feed-forward block.
    pub feed: Feed,
    /// Norms around both.
    pub norms: BlockNorms,
    /// Formats of matrices by name, where they are stored otherwise than in the data type of products.
    pub formats: Vec<(String, StorageFormat)>,
}

/// A model by its layers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stack {
    /// Width of the residual stream.
    pub hidden: u64,
    /// Rows of the table of tokens.
    pub vocabulary: u64,
    /// The output matrix is the table of tokens.
    pub tied: bool,
    /// Norm of the blocks.
    pub norm: Norm,
    /// Rows of a learned table of positions.
    pub positions: Option<u64>,
    /// Residual streams side by side, which each block reads and writes with learned weights (hyper-connections); usually 1.
    pub streams: u64,
    /// Format of the output matrix, if it is not in the data type of products.
    pub output_format: Option<StorageFormat>,
    /// Kinds of layers, no two alike.
    pub kinds: Vec<LayerKind>,
    /// The kind of each layer.
    pub order: Vec<u16>,
}

impl Stack {
    /// Layers of each kind among those of a range.
    pub fn counts(&self, layers: std::ops::Range<usize>) -> Vec<u64> {
        let mut counts = vec![0; self.kinds.len()];
        for kind in self.order.get(layers).unwrap_or_default() {
            counts[usize::from(*kind)] += 1;
        }
        counts
    }

    /// Layers of each kind in the whole model.
    pub fn all_counts(&self) -> Vec<u64> {
        self.counts(0..self.order.len())
    }

    /// A model of these layers: equal ones become one kind.
    ///
    /// # Errors
    /// The number of kinds, if it is above [`MOST_KINDS`].
    pub fn set_layers(&mut self, layers: Vec<LayerKind>) -> Result<(), usize> {
        self.kinds.clear();
        self.order.clear();
        for layer in layers {
            let at = self.kinds.iter().position(|known| *known == layer).unwrap_or_else(|| {
                self.kinds.push(layer);
                self.kinds.len() - 1
            });
            self.order.push(at as u16);
        }
        if self.kinds.len() > MOST_KINDS { Err(self.kinds.len()) } else { Ok(()) }
    }

    /// The experts of the first kind of layers that has some.
    pub fn experts(&self) -> Option<&Expertise> {
        self.kinds.iter().find_map(|kind| match &kind.feed {
            Feed::Experts(experts) => Some(experts),
            _ => None,
        })
    }
}

impl LayerKind {
    /// A layer with norms before its blocks, in the data type of products.
    pub fn new(mixer: Mixer, feed: Feed) -> Self {
        Self { mixer, feed, norms: BlockNorms::USUAL, formats: Vec::new() }
    }

    /// How a matrix is stored, if not in the data type of products.
    pub fn format_of(&self, matrix: &str) -> Option<&StorageFormat> {
        self.formats.iter().find(|(known, _)| known == matrix).map(|(_, format)| format)
    }

    /// Blocks of the layer.
    pub fn blocks(&self) -> u64 {
        u64::from(self.mixer != Mixer::None) + u64::from(self.feed != Feed::None)
    }
}
