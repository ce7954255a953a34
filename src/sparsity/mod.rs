//! Block masks of sparse weights: which blocks are stored, and what finding them costs.

mod mask;

pub use mask::BlockMask;
