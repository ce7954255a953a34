//! What a PCU makes in a firing.

use std::ops::Range;

use super::block::Block;
use super::matrix::Matrix;

/// What one PCU has made in a firing: rows of the row tile, and runs of the output's columns.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) rows: Range<u64>,
    /// Runs of columns of the whole tensor.
    pub(super) columns: Vec<Range<u64>>,
    /// One matrix a run.
    pub(super) values: Vec<Matrix>,
}

impl Made {
    /// All of it, one run after the other.
    pub(super) fn in_line(&self) -> Block {
        let values: Vec<f64> = self.values.iter().flat_map(|m| m.values.iter().copied()).collect();
        Block { row: 0, column: 0, values: Matrix { rows: 1, columns: values.len(), values } }
    }
}
