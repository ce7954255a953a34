//! What the firings of the gradient of a sparse weight work through: the output tiles under which the weight stores anything.
//!
//! Counted pass by pass from the mask and the output tiles of the program, by `docs/timing-model.md` (Sparse GEMM stages);
//! nothing is shared with `cost`.

use std::ops::Range;

use rdusim_graph::sparsity::BlockMask;
use rdusim_program::{GemmMapping, OutputTile, SectionGraph, Stage, StageId, Tiling};

use super::row_pass::{ArrayShape, RowPass};
use super::stored;

/// What a lockstep group works through on a row tile.
#[derive(Debug, Clone, Copy, Default)]
struct Firing {
    /// Output tiles that are executed, over all row passes, and k-steps of each.
    tiles: u64,
    depth: u64,
    /// Columns of them on one PCU.
    columns: u64,
}

/// The firings of a stage, `[column_tile][group][row_tile]`; one column tile if the weight is not cut.
#[derive(Debug)]
pub(super) struct SampledAmounts {
    firings: Vec<Vec<Vec<Firing>>>,
}

impl SampledAmounts {
    /// Counts them; `None` if the output tiles do not fit the nest.
    pub(super) fn new(
        graph: &SectionGraph<'_>,
        tiling: Tiling,
        index: StageId,
        stage: &Stage,
        mapping: &GemmMapping,
        shape: &ArrayShape,
    ) -> Option<Self> {
        let (mask, weight) = (graph.sampled(index)?, stage.spec.weight?);
        if stage.tiles.len() as u64 != stored::column_tiles_of_weight(graph, tiling, weight) {
            return None;
        }
        let of_group = |column_tile: u64, group: u64, tiles: &[OutputTile]| {
            let (_, k) = stored::part_of_weight(graph, tiling, weight, column_tile);
            let k = stored::rows_of_group(None, mapping, &k, group);
            let of_row_tile = |row_tile: u64| {
                let rows = row_tile * tiling.tile_rows..row_tile * tiling.tile_rows + tiling.rows_of(row_tile);
                firing(mask, mapping, shape.tile_rows, tiles, rows, k.end - k.start)
            };
            (0..tiling.row_tiles()).map(of_row_tile).collect()
        };
        let of_column_tile = |(column_tile, groups): (u64, &Vec<Vec<OutputTile>>)| {
            let fits = groups.len() as u64 == stage.mapping.groups();
            let firings = (0..).zip(groups).map(|(group, tiles)| of_group(column_tile, group, tiles)).collect();
            fits.then_some(firings)
        };
        let firings = (0..).zip(stage.tiles.iter()).map(of_column_tile).collect::<Option<_>>()?;
        Some(Self { firings })
    }

    /// All that a group does on a row tile.
    pub(super) fn row_pass(&self, shape: &ArrayShape, column_tile: u64, group: u64, row_tile: u64) -> RowPass {
        let of = &self.firings[(column_tile as usize).min(self.firings.len() - 1)];
        let Firing { tiles, depth, columns } = of[group as usize][row_tile as usize];
        RowPass::of_equal_tiles(shape, tiles, depth, columns)
    }
}

/// What a list of output tiles of depth `depth` comes to on the rows `rows` of the result.
fn firing(
    mask: &BlockMask,
    mapping: &GemmMapping,
    tile_rows: u64,
    list: &[OutputTile],
    rows: Range<u64>,
    depth: u64,
) -> Firing {
    let mut firing = Firing { depth, ..Firing::default() };
    let passes = (rows.end - rows.start).div_ceil(tile_rows).div_ceil(mapping.pm);
    for pass in 0..passes {
        for tile in list {
            let columns = tile.start..tile.start + tile.columns;
            let stores = |slice: u64| {
                let start = rows.end.min(rows.start + (slice * passes + pass) * tile_rows);
                stored::stored_elements(Some(mask), &columns, &(start..rows.end.min(start + tile_rows))) > 0
            };
            if (0..mapping.pm).any(stores) {
                firing.tiles += 1;
                firing.columns += tile.columns.div_ceil(mapping.multicast_width);
            }
        }
    }
    firing
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdusim_program::Reduction;

    #[test]
    fn a_firing_executes_the_output_tiles_under_which_something_is_stored() {
        // Blocks of 4 rows and 3 columns in a gradient of 10 by 8, of which rows 4 to 7 of columns 3 to 5 are stored.
        let mut mask = BlockMask::empty(10, 8, (4, 3));
        mask.keep(1, 1);
        let of = |pm, tile_rows, list: &[(u64, u64)], rows| {
            let mapping = GemmMapping {
                rows_on_lanes: true,
                pm,
                pn: 1,
                pk: 1,
                reduction: Reduction::Chain,
                multicast_width: 1,
                streams: 1,
                aligned: false,
                style: rdusim_program::Style::Skip,
            };
            let tile = |&(start, end): &(u64, u64)| OutputTile { start, columns: end - start };
            let list: Vec<OutputTile> = list.iter().map(tile).collect();
            let Firing { tiles, columns, .. } = firing(&mask, &mapping, tile_rows, &list, rows, 50);
            (tiles, columns)
        };
        // Of five passes of two rows two, of four of three rows two, of one pass one.
        assert_eq!(of(1, 2, &[(3, 6)], 0..10), (2, 6));
        assert_eq!(of(1, 3, &[(5, 8)], 0..10), (2, 6));
        assert_eq!(of(1, 10, &[(0, 8)], 0..10), (1, 8));
        assert_eq!(of(1, 2, &[(0, 3)], 0..10), (0, 0));
        // Two output tiles that share the block; the row tile of its last two rows.
        assert_eq!(of(1, 2, &[(0, 4), (4, 8)], 6..10), (2, 8));
        // Slices of four and three passes: rows 0 and 4, 1 and 5, 2 and 6, 3 and 7.
        assert_eq!(of(2, 1, &[(3, 6)], 0..8), (4, 12));
        assert_eq!(of(2, 2, &[(3, 6)], 0..8), (2, 6));
    }
}
