//! Sparse weights as data: which elements or blocks are stored or needed, where the masks come from, what storing them takes.

mod active;
mod distribution;
mod draw;
mod format;
mod mask;
mod pattern;
pub mod read;
mod statistics;
mod storage;

pub use active::{ActiveNeurons, MOST_NEURONS, NeuronAxis};
pub use distribution::{LayerShape, erk_densities};
pub use format::{Format, Storage};
pub use mask::BlockMask;
pub use pattern::{MOST_GROUP, Pattern};
pub use statistics::{Balance, Bin, Statistics};
pub use storage::{smallest, storage};
