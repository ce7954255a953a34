//! Sparse weights as data: which elements or blocks are stored, where the masks come from, what storing them takes.

mod distribution;
mod draw;
mod format;
mod mask;
mod pattern;
pub mod read;
mod statistics;
mod storage;

pub use distribution::{LayerShape, erk_densities};
pub use format::{Format, Storage};
pub use mask::BlockMask;
pub use pattern::{MOST_GROUP, Pattern};
pub use statistics::{Balance, Bin, Statistics};
pub use storage::{smallest, storage};
