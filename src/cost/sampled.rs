//! Work of the gradient of a sparse weight: a product of two dense matrices, of which the weight's mask says what is computed
//! (a sampled dense-dense product).
//!
//! A row pass executes an output tile if any element under it is stored. Row slices of PCUs take their weights from one
//! multicast, so that a pass of all slices is executed together. What a firing executes is counted from the mask, row tile
//! by row tile.

use std::ops::Range;
use std::sync::Arc;

use crate::program::{GemmMapping, OutputTile, PassWork, SectionGraph, StageId, TileLists, Tiling, k_slice};
use crate::sparsity::BlockMask;

use super::array::SystolicShape;
use super::tile_tables::weight_ranges;

/// What a lockstep group executes of a row tile.
#[derive(Debug, Clone, Copy, Default)]
struct Executed {
    /// Output tiles, over all row passes.
    tiles: u64,
    /// Columns of them on one PCU.
    columns: u64,
}

/// What every firing of a stage executes.
#[derive(Debug, Clone)]
pub(super) struct SampledWork {
    /// `[column_tile][group of a slice of K][row_tile]`.
    executed: Arc<[Vec<Vec<Executed>>]>,
    /// K rows, `[column_tile][slice]`.
    depths: Vec<Vec<u64>>,
    row_grain: u64,
    groups_of_slice: u64,
    row_tiles: u64,
}

impl SampledWork {
    /// Counts what the output tiles of a stage execute; `None` if it is no sampled product.
    pub(super) fn new(
        graph: &SectionGraph<'_>,
        tiling: Tiling,
        stage: StageId,
        mapping: &GemmMapping,
        shape: &SystolicShape,
        tiles: &TileLists,
    ) -> Option<Self> {
        let mask = graph.sampled(stage)?;
        let passes = row_passes(tiling, mapping.pm, shape.row_grain, mask.block_rows());
        let groups = mapping.k_slice_groups();
        let mut executed: Vec<Vec<Vec<Executed>>> = Vec::with_capacity(tiles.len());
        for (column_tile, lists) in tiles.iter().enumerate() {
            // Column tiles of K have the same columns.
            if column_tile > 0 && tiles[column_tile - 1] == *lists {
                executed.push(executed[column_tile - 1].clone());
                continue;
            }
            let lists = lists.iter().take(groups as usize);
            executed.push(lists.map(|list| executed_of(mask, &passes, list, mapping.multicast_width)).collect());
        }
        let (ranges, _) = weight_ranges(graph, tiling.tiled_axis, stage);
        let of_slices = |(_, k): (Range<u64>, Range<u64>)| {
            let depth = |slice| {
                let k = k_slice(&k, slice, mapping.pk, graph.k_grain(stage));
                k.end - k.start
            };
            (0..mapping.pk).map(depth).collect()
        };
        Some(Self {
            executed: executed.into(),
            depths: ranges.into_iter().map(of_slices).collect(),
            row_grain: shape.row_grain,
            groups_of_slice: groups,
            row_tiles: tiling.row_tiles(),
        })
    }

    /// Row tiles, which all differ.
    pub(super) fn row_tiles(&self) -> u64 {
        self.row_tiles
    }

    fn executed(&self, column_tile: u64, group: u64, row_tile: u64) -> Executed {
        let of = self.executed.get(column_tile as usize).or(self.executed.last());
        let of = of.and_then(|groups| groups.get((group % self.groups_of_slice) as usize));
        of.and_then(|row_tiles| row_tiles.get(row_tile as usize)).copied().unwrap_or_default()
    }

    /// Work of a lockstep group on a row tile, all row passes; `mean` has what does not depend on the row tile.
    pub(super) fn work(
        &self,
        shape: &SystolicShape,
        (column_tile, group, row_tile): (u64, u64, u64),
        mean: PassWork,
    ) -> PassWork {
        let tiles = self.executed(column_tile, group, row_tile).tiles;
        let depth = self.depth(column_tile, group);
        PassWork {
            cycles: tiles * shape.tile_cycles(depth),
            tiles,
            a_flits: tiles * shape.a_flits(depth),
            w_flits: tiles * shape.w_flits(depth),
            ..mean
        }
    }

    fn depth(&self, column_tile: u64, group: u64) -> u64 {
        let depths = self.depths.get(column_tile as usize).or(self.depths.last());
        depths.and_then(|of| of.get((group / self.groups_of_slice) as usize)).copied().unwrap_or(0)
    }

    /// Cycles of an output tile that is executed.
    pub(super) fn tile_cycles(&self, shape: &SystolicShape, column_tile: u64, group: u64) -> u64 {
        shape.tile_cycles(self.depth(column_tile, group)).max(1)
    }

    /// Elements of the result that one PCU leaves of a row tile: those of the output tiles that were executed.
    pub(super) fn results(&self, column_tile: u64, group: u64, row_tile: u64, rows: u64) -> u64 {
        self.executed(column_tile, group, row_tile).columns * rows.min(self.row_grain)
    }
}

/// Blocks of rows under every row pass of every row tile, a range for each row slice.
fn row_passes(tiling: Tiling, pm: u64, row_grain: u64, block_rows: u64) -> Vec<Vec<Vec<Range<u64>>>> {
    let of_row_tile = |row_tile: u64| {
        let (first, rows) = (row_tile * tiling.tile_rows, tiling.rows_of(row_tile));
        let passes = rows.div_ceil(row_grain).div_ceil(pm);
        let of_pass = |pass: u64| {
            let of_slice = |slice: u64| {
                let start = (slice * passes + pass) * row_grain;
                (first + start.min(rows)) / block_rows..(first + (start + row_grain).min(rows)).div_ceil(block_rows)
            };
            let has_rows = |slice: &u64| (slice * passes + pass) * row_grain < rows;
            (0..pm).filter(has_rows).map(of_slice).collect()
        };
        (0..passes).map(of_pass).collect()
    };
    (0..tiling.row_tiles()).map(of_row_tile).collect()
}

/// What a list of output tiles executes of each row tile.
fn executed_of(
    mask: &BlockMask,
    row_tiles: &[Vec<Vec<Range<u64>>>],
    list: &[OutputTile],
    multicast_width: u64,
) -> Vec<Executed> {
    let mut executed = vec![Executed::default(); row_tiles.len()];
    let mut upto = Vec::new();
    for tile in list.iter().filter(|tile| tile.columns > 0) {
        // Rows of blocks before each that the tile stores anything of.
        let last = (tile.start + tile.columns - 1).min(mask.columns() - 1);
        let columns = tile.start / mask.block_columns()..last / mask.block_columns() + 1;
        upto.clear();
        upto.push(0u64);
        let stores =
            |row: u64| columns.clone().any(|n| mask.column_words(n)[(row / 64) as usize] >> (row % 64) & 1 == 1);
        for row in 0..mask.k_blocks() {
            upto.push(upto[row as usize] + u64::from(stores(row)));
        }
        let is_stored = |rows: &Range<u64>| upto[rows.end as usize] > upto[rows.start as usize];
        for (sum, passes) in executed.iter_mut().zip(row_tiles) {
            let tiles = passes.iter().filter(|slices| slices.iter().any(is_stored)).count() as u64;
            sum.tiles += tiles;
            sum.columns += tiles * tile.columns.div_ceil(multicast_width);
        }
    }
    executed
}
