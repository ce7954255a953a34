//! Kinds of feed-forward blocks by their widths.

use super::super::experts::Experts;
use super::super::preset::Activation;

/// A feed-forward block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feed {
    /// None: the layer has something that mixes tokens alone.
    None,
    /// A matrix from the model's width to itself.
    Matrix,
    /// A block that every token meets.
    Dense(FeedBlock),
    /// Experts.
    Experts(Expertise),
}

/// A block of two matrices, or of three with a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeedBlock {
    /// Its width.
    pub width: u64,
    /// What stands between the matrices.
    pub activation: Activation,
    /// Matrices have biases.
    pub bias: bool,
}

/// Experts, and what stands around them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expertise {
    /// How many, how wide, and the block that every token meets beside them.
    pub experts: Experts,
    /// What stands between the matrices of an expert.
    pub activation: Activation,
    /// The router has a bias, and so have matrices of experts, whose biases are left out.
    pub bias: bool,
    /// Width that rows are brought to before the experts, and back from behind them, if it is not the model's.
    pub latent: Option<u64>,
}

impl Activation {
    /// Matrices of a block: with a gate three.
    pub fn matrices(self) -> u64 {
        if matches!(self, Self::GatedSilu | Self::GatedGelu) { 3 } else { 2 }
    }
}
