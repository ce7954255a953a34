//! Work of the gradient of a sparse weight: a product of two dense matrices, of which the weight's mask says what is computed
//! (a sampled dense-dense product).
//!
//! A row pass executes an output tile if any element under it is stored. Row slices of PCUs take their weights from one
//! multicast, so that a pass of all slices is executed together. What a firing executes is counted from the mask, row tile
//! by row tile.

use rdusim_base::units::index;
use std::ops::Range;
use std::sync::Arc;

use rdusim_graph::sparsity::BlockMask;
use rdusim_program::{GemmMapping, OutputTile, PassWork, SectionGraph, StageId, TileLists, Tiling, k_slice};

use super::array::SystolicShape;
use super::tile_tables::weight_ranges;

/// What a lockstep group executes of a row tile.
#[derive(Debug, Clone, Copy, Default)]
struct Executed {
    /// Output tiles, over all row passes.
    tiles: u64,
    /// Columns of them on one PCU.
    columns: u64,
    /// Their elements on all row slices.
    elements: u64,
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
            let lists = lists.iter().take(index(groups));
            executed.push(lists.map(|list| executed_of(mask, &passes, list, mapping.multicast_width)).collect());
        }
        let ranges = weight_ranges(graph, tiling.tiled_axis, stage);
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
        let of = self.executed.get(index(column_tile)).or(self.executed.last());
        let of = of.and_then(|groups| groups.get(index(group % self.groups_of_slice)));
        of.and_then(|row_tiles| row_tiles.get(index(row_tile))).copied().unwrap_or_default()
    }

    /// Work of a lockstep group on a row tile, all row passes; `mean` has what does not depend on the row tile.
    pub(super) fn work(
        &self,
        shape: &SystolicShape,
        column_tile: u64,
        group: u64,
        row_tile: u64,
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

    /// MACs of a lockstep group on a row tile, those for elements that are not stored included.
    pub(super) fn executed_macs(&self, column_tile: u64, group: u64, row_tile: u64) -> u64 {
        self.executed(column_tile, group, row_tile).elements * self.depth(column_tile, group)
    }

    fn depth(&self, column_tile: u64, group: u64) -> u64 {
        let depths = self.depths.get(index(column_tile)).or(self.depths.last());
        depths.and_then(|of| of.get(index(group / self.groups_of_slice))).copied().unwrap_or(0)
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

/// A row pass of all row slices.
struct RowPass {
    /// Blocks of rows under each slice.
    blocks: Vec<Range<u64>>,
    /// Rows of all slices.
    rows: u64,
}

/// Every row pass of every row tile.
fn row_passes(tiling: Tiling, pm: u64, row_grain: u64, block_rows: u64) -> Vec<Vec<RowPass>> {
    let of_row_tile = |row_tile: u64| {
        let (first, rows) = (row_tile * tiling.tile_rows, tiling.rows_of(row_tile));
        let passes = rows.div_ceil(row_grain).div_ceil(pm);
        let of_pass = |pass: u64| {
            let of_slice = |slice: u64| {
                let start = (slice * passes + pass) * row_grain;
                (first + start.min(rows)) / block_rows..(first + (start + row_grain).min(rows)).div_ceil(block_rows)
            };
            let has_rows = |slice: &u64| (slice * passes + pass) * row_grain < rows;
            let rows_of = |slice: u64| row_grain.min(rows - (slice * passes + pass) * row_grain);
            RowPass {
                blocks: (0..pm).filter(has_rows).map(of_slice).collect(),
                rows: (0..pm).filter(has_rows).map(rows_of).sum(),
            }
        };
        (0..passes).map(of_pass).collect()
    };
    (0..tiling.row_tiles()).map(of_row_tile).collect()
}

/// What a list of output tiles executes of each row tile.
fn executed_of(
    mask: &BlockMask,
    row_tiles: &[Vec<RowPass>],
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
            upto.push(upto[index(row)] + u64::from(stores(row)));
        }
        let is_stored = |rows: &Range<u64>| upto[index(rows.end)] > upto[index(rows.start)];
        for (sum, passes) in executed.iter_mut().zip(row_tiles) {
            let run = || passes.iter().filter(|pass| pass.blocks.iter().any(is_stored));
            let tiles = run().count() as u64;
            sum.tiles += tiles;
            sum.elements += run().map(|pass| pass.rows).sum::<u64>() * tile.columns;
            sum.columns += tiles * tile.columns.div_ceil(multicast_width);
        }
    }
    executed
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rdusim_graph::sparsity::Pattern;
    use rdusim_program::{LoopOrder, Nest};

    fn tiling(rows: u64, tile_rows: u64) -> Tiling {
        let block_tiles = rows.div_ceil(tile_rows);
        Nest { rows, tile_rows, block_tiles, tiled_axis: None, order: LoopOrder::ColumnTileOuter }.tiling()
    }

    fn lists(columns: u64, width: u64) -> Vec<OutputTile> {
        let tile = |start: u64| OutputTile { start, columns: width.min(columns - start) };
        (0..columns).step_by(width as usize).map(tile).collect()
    }

    /// Output tiles by row tile.
    fn tiles(mask: &BlockMask, tile_rows: u64, pm: u64, grain: u64, list: &[OutputTile]) -> Vec<u64> {
        let passes = row_passes(tiling(mask.rows(), tile_rows), pm, grain, mask.block_rows());
        executed_of(mask, &passes, list, 1).iter().map(|executed| executed.tiles).collect()
    }

    #[test]
    fn a_block_is_executed_where_it_lies() {
        // Four by four blocks of 16 x 16, of which the one in block row 2 and block column 1 is stored.
        let mut mask = BlockMask::empty(64, 64, (16, 16));
        mask.keep(2, 1);
        // Tiles and passes of its own size: one output tile in the row tile that holds it.
        assert_eq!(tiles(&mask, 32, 1, 16, &lists(64, 16)), [0, 1]);
        assert_eq!(tiles(&mask, 16, 1, 16, &lists(64, 16)), [0, 0, 1, 0]);
        // Two tiles of 12 columns meet it, columns 12 to 35, in two passes of 12 rows, rows 24 to 47.
        assert_eq!(tiles(&mask, 64, 1, 12, &lists(64, 12)), [4]);
        // Two row slices: passes of rows 0 and 32, 16 and 48 together. The block is in the first.
        assert_eq!(tiles(&mask, 64, 2, 16, &lists(64, 16)), [1]);
        // With one more in block row 3 in both, with one in block row 0 still in one.
        mask.keep(3, 1);
        assert_eq!(tiles(&mask, 64, 2, 16, &lists(64, 16)), [2]);
        let mut mask = BlockMask::empty(64, 64, (16, 16));
        mask.keep(2, 1);
        mask.keep(0, 1);
        assert_eq!(tiles(&mask, 64, 2, 16, &lists(64, 16)), [1]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn what_is_executed_covers_what_is_stored_and_no_other_passes(
            rows in 1u64..150, columns in 1u64..80, block in (1u64..20, 1u64..20), density in 0.02f64..0.9,
            tile_rows in 1u64..70, pm in 1u64..5, grain in 1u64..20, width in 1u64..40, seed: u64,
        ) {
            let mask = Pattern::Random { density }.draw(rows, columns, block, seed);
            let list = lists(columns, width);
            let found = tiles(&mask, tile_rows, pm, grain, &list);
            // Element by element, as the definition says.
            let is_stored = |r: u64, c: u64| mask.is_kept(r / block.0, c / block.1);
            let by_elements: Vec<u64> = (0..rows.div_ceil(tile_rows)).map(|t| {
                let (first, end) = (t * tile_rows, rows.min((t + 1) * tile_rows));
                let passes = (end - first).div_ceil(grain).div_ceil(pm);
                let executes = |pass: u64, tile: &OutputTile| (first..end)
                    .filter(|row| (row - first) / grain % passes == pass)
                    .any(|row| (tile.start..tile.start + tile.columns).any(|column| is_stored(row, column)));
                (0..passes).map(|pass| list.iter().filter(|tile| executes(pass, tile)).count() as u64).sum()
            }).collect();
            prop_assert_eq!(&found, &by_elements);
            // Slices that skip together execute no fewer passes' worth of rows than each by itself.
            let alone: u64 = tiles(&mask, tile_rows, 1, grain, &list).iter().sum();
            prop_assert!(found.iter().sum::<u64>() * pm >= alone);
            prop_assert!(alone * grain * width >= mask.stored_elements());
        }
    }
}
