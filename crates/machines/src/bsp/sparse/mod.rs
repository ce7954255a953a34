//! Products with a sparse matrix: its blocks over tiles, from the real mask.
//!
//! `static` knows the pattern when the program is compiled, `dynamic` has it as data. Both follow poplibs `lib/popsparse`: the
//! splits, the terms of their cost and the cycles of their vertices; here every term counts the blocks of the mask itself.

mod blocks;
mod bucket_plan;
mod buckets;
mod execute;
mod on_tile;
mod sampled;
mod static_plan;

use std::sync::Arc;

use super::step::{Superstep, TileLoad};
use rdusim_base::units::Dtype;
use rdusim_graph::arch::Bsp;

pub use blocks::Blocks;
pub use bucket_plan::dynamic_plan;
pub use execute::execute_sparse;
pub use sampled::sampled_plan;
pub use static_plan::static_plan;

/// A sparse matrix times a dense one of `columns` columns.
#[derive(Debug)]
pub struct SparseProduct<'a> {
    /// The sparse matrix.
    pub blocks: &'a Blocks,
    /// Columns of the dense matrix, and of the result.
    pub columns: u64,
    /// Of both operands and the result.
    pub dtype: Dtype,
    /// Bytes of a tile that the product may take while it runs.
    pub available: f64,
}

/// A sparse product as supersteps.
#[derive(Debug, Clone)]
pub struct SparsePlan {
    /// The supersteps.
    pub steps: Vec<Superstep>,
    /// Cycles of all of them.
    pub cycles: f64,
    /// Tiles with stored blocks.
    pub tiles: u64,
    /// How it is split, in words.
    pub shape: String,
    /// Blocks of the tile that has most, over the mean of the tiles at work.
    pub imbalance: f64,
    /// Steps in which what did not fit its bucket was passed on.
    pub propagation_steps: u64,
    /// What each tile does and holds in the step that multiplies.
    pub loads: Arc<[TileLoad]>,
    /// The name of that step.
    pub loads_of: &'static str,
}

/// What a vertex of a kernel is told beside its blocks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kernel<'a> {
    pub(super) chip: &'a Bsp,
    pub(super) block: u64,
    pub(super) single: bool,
}

impl Kernel<'_> {
    pub(super) fn threads(&self) -> f64 {
        self.chip.tile.threads as f64
    }
}
