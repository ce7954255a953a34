//! What a weight stores, counted block by block from its mask.
//!
//! Everything here follows from the definitions of `docs/timing-model.md`; nothing is shared with `cost`.

use std::ops::Range;

use rdusim_graph::sparsity::BlockMask;
use rdusim_graph::workload::TensorId;
use rdusim_program::{GemmMapping, SectionGraph, Tiling, k_slice};

/// Depth of an output tile in k-steps: rows among `k` in which any block under `columns` is stored, or all rows of `k`
/// without a mask.
pub(super) fn depth(mask: Option<&BlockMask>, columns: &Range<u64>, k: &Range<u64>) -> u64 {
    let Some(mask) = mask else { return k.end - k.start };
    let block_columns = blocks(columns, mask.block_columns());
    blocks(k, mask.block_rows())
        .filter(|&row| block_columns.clone().any(|column| mask.is_kept(row, column)))
        .map(|row| overlap(k, row, mask.block_rows()))
        .sum()
}

/// Elements that a weight stores in `columns` and rows `k`.
pub(super) fn stored_elements(mask: Option<&BlockMask>, columns: &Range<u64>, k: &Range<u64>) -> u64 {
    let Some(mask) = mask else { return (columns.end - columns.start) * (k.end - k.start) };
    let mut elements = 0;
    for column in blocks(columns, mask.block_columns()) {
        let width = overlap(columns, column, mask.block_columns());
        for row in blocks(k, mask.block_rows()).filter(|&row| mask.is_kept(row, column)) {
            elements += width * overlap(k, row, mask.block_rows());
        }
    }
    elements
}

/// Blocks of `size` that a range touches.
pub(super) fn blocks(range: &Range<u64>, size: u64) -> Range<u64> {
    range.start / size..range.end.div_ceil(size)
}

/// Elements of a range that lie in block `at` of `size`.
fn overlap(range: &Range<u64>, at: u64, size: u64) -> u64 {
    range.end.min((at + 1) * size) - range.start.max(at * size)
}

/// Columns and rows of a weight that the section works on in a column tile: those of the column tile, or its panel, along an axis
/// that is cut, and all along another.
pub(super) fn part_of_weight(
    graph: &SectionGraph<'_>,
    tiling: Tiling,
    weight: TensorId,
    column_tile: u64,
) -> (Range<u64>, Range<u64>) {
    let tensor = &graph.workload.tensors[weight];
    let part = |axis: Option<usize>, extent: u64| tiling.range_of(axis, column_tile).unwrap_or(0..extent);
    (part(graph.column_axis(weight), tensor.columns), part(graph.row_axis(weight), tensor.rows))
}

/// Column tiles that a weight has: one if no axis of it is cut.
pub(super) fn column_tiles_of_weight(graph: &SectionGraph<'_>, tiling: Tiling, weight: TensorId) -> u64 {
    let axes = [graph.column_axis(weight), graph.row_axis(weight)];
    if axes.into_iter().any(|axis| tiling.cuts(axis)) { tiling.column_tiles() } else { 1 }
}

/// Weight rows, among the rows `k` of a column tile, that a lockstep group works on: its slice of K.
pub(super) fn rows_of_group(mask: Option<&BlockMask>, mapping: &GemmMapping, k: &Range<u64>, group: u64) -> Range<u64> {
    // Slices of K begin and end between blocks of the mask.
    let grain = mask.map_or(1, BlockMask::block_rows);
    k_slice(k, mapping.k_slice(group), mapping.pk, grain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_and_elements_are_those_of_the_blocks_drawn() {
        // Blocks of 4 rows and 3 columns in a matrix of 10 by 8; the last blocks are cut off.
        let mut mask = BlockMask::empty(10, 8, (4, 3));
        for (row, column) in [(0, 0), (2, 0), (1, 2), (2, 2)] {
            mask.keep(row, column);
        }
        let of = |columns: Range<u64>, k: Range<u64>| {
            (depth(Some(&mask), &columns, &k), stored_elements(Some(&mask), &columns, &k))
        };
        assert_eq!(of(0..3, 0..10), (6, 18));
        assert_eq!(of(6..8, 0..10), (6, 12));
        // The union of both: block rows 0, 1 and 2.
        assert_eq!(of(2..7, 0..10), (10, 12));
        assert_eq!(of(3..6, 0..10), (0, 0));
        assert_eq!(of(0..8, 4..8), (4, 8));
        assert_eq!(depth(None, &(0..3), &(2..9)), 7);
    }
}
