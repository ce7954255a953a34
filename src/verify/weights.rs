//! Weights as they lie off chip and in PMUs: stored values in the order they are read, and the index that finds them.

use std::ops::Range;

use crate::compile::Tile;
use crate::workload::Tensor;

use super::matrix::Matrix;

/// The columns of one PCU under one tile of its bundle, and the K rows it steps through.
#[derive(Debug, Clone)]
pub(super) struct TileIndex {
    /// Weight columns.
    pub(super) columns: Range<u64>,
    /// K rows that the bundle executes, counted from the chunk's first.
    pub(super) steps: Vec<u32>,
    /// Weight elements of this PCU that are stored, of all its columns in all steps, in reading order.
    pub(super) stored: Vec<bool>,
}

/// The index of one PCU column of a stage for one chunk: what of the slot belongs where.
#[derive(Debug, Clone, Default)]
pub(super) struct SlotIndex {
    pub(super) tiles: Vec<TileIndex>,
    /// Stored values in the slot.
    pub(super) values: usize,
}

impl SlotIndex {
    /// Columns of the PCU under all tiles.
    pub(super) fn columns(&self) -> u64 {
        self.tiles.iter().map(|t| t.columns.end - t.columns.start).sum()
    }
}

/// The index of PCU column `q` of `share` in a bundle that does `tiles` with the K rows `k`.
///
/// # Errors
/// A sentence, when a tile does not execute the K rows that it was timed with.
pub(super) fn index(tensor: &Tensor, tiles: &[Tile], k: Range<u64>, q: u64, share: u64) -> Result<SlotIndex, String> {
    let mut slot = SlotIndex::default();
    for tile in tiles {
        let end = (tile.start + tile.columns).min(tensor.columns);
        let whole = tile.start..end;
        let columns = tile.columns_of(q, share);
        let columns = columns.start.min(end)..columns.end.min(end);
        let mut steps = Vec::new();
        let mut stored = Vec::new();
        for row in k.clone() {
            let kept =
                |n: u64| tensor.mask.as_ref().is_none_or(|m| m.is_kept(row / m.block_rows(), n / m.block_columns()));
            if whole.clone().any(kept) {
                steps.push((row - k.start) as u32);
                stored.extend(columns.clone().map(kept));
            }
        }
        if steps.len() as u64 != tile.k {
            return Err(format!(
                "the tile of columns {}..{end} was timed with {} K rows, its blocks are in {}",
                tile.start,
                tile.k,
                steps.len()
            ));
        }
        slot.values += stored.iter().filter(|&&stored| stored).count();
        slot.tiles.push(TileIndex { columns, steps, stored });
    }
    Ok(slot)
}

/// The stored values of a slot, in the order of its index, from the matrix off chip; `k` is the chunk's first K row.
pub(super) fn pack(matrix: &Matrix, index: &SlotIndex, k: u64) -> Vec<f64> {
    let mut values = Vec::with_capacity(index.values);
    for tile in &index.tiles {
        let mut stored = tile.stored.iter();
        for &step in &tile.steps {
            let row = matrix.row(k as usize + step as usize);
            for column in tile.columns.clone() {
                if stored.next() == Some(&true) {
                    values.push(row[column as usize]);
                }
            }
        }
    }
    values
}
