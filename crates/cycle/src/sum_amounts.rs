//! What a firing of a stage that adds up over rows works through: the result's output tiles, as deep as the row tile has rows.
//!
//! By `docs/timing-model.md` (GEMMs that add up over rows); nothing is shared with `cost`.

use std::ops::Range;

use rdusim_graph::workload::{CausalAxis, GemmForm};
use rdusim_program::{GemmMapping, Iteration, SectionGraph, StageId, TiledAxis, Tiling};

use super::row_pass::{ArrayShape, RowPass};

/// The product X^T dY of the columns of two operands, over row tiles that pass by.
#[derive(Debug)]
pub(super) struct SumAmounts {
    /// Rows and columns of the result of one head.
    result: (u64, u64),
    /// Where they are cut into column tiles.
    cuts: (Option<TiledAxis>, Option<TiledAxis>),
    /// Heads that the first stream of PCUs has, and heads of the operands that add up in each.
    heads: u64,
    group: u64,
    /// Row slices, and columns of PCUs of a stream.
    slices: (u64, u64),
    /// Of causal attention whose result lies in one row slice, the queries by the keys that they see.
    causal: Option<GemmForm>,
    tile_rows: u64,
    row_tiles: u64,
}

impl SumAmounts {
    /// Those of a stage; `None` if it does not have two operands.
    pub(super) fn new(graph: &SectionGraph<'_>, tiling: Tiling, index: StageId, mapping: &GemmMapping) -> Option<Self> {
        let &[x, dy] = graph.stages[index].activations.as_slice() else { return None };
        let tensors = &graph.workload.tensors;
        let cut = |tensor| tiling.tiled_axis.filter(|cut| graph.column_axis(tensor) == Some(cut.axis));
        let form = graph.form(index);
        let rows_of_sequence = (graph.rows / form.map_or(1, |form| form.instances)).max(1);
        let whole = (tensors[x].columns, tensors[dy].columns);
        let (result, heads, depth) = form.map_or((whole, 1, rows_of_sequence), |f| ((f.m, f.n), f.heads, f.k));
        let is_causal = mapping.pm == 1 && form.is_some_and(|form| form.causal.is_some());
        let queries = form.filter(|_| is_causal).map(|form| GemmForm {
            m: rows_of_sequence,
            n: form.m,
            causal: Some(CausalAxis::Columns),
            ..form
        });
        Some(Self {
            result,
            cuts: (cut(x), cut(dy)),
            heads: heads.div_ceil(mapping.streams),
            group: (depth / rows_of_sequence).max(1),
            slices: (mapping.pm, mapping.pn / mapping.streams),
            causal: queries,
            tile_rows: tiling.tile_rows,
            row_tiles: rows_of_sequence.div_ceil(tiling.tile_rows),
        })
    }

    /// Rows and columns of a head's result in a column tile.
    fn extent(&self, column_tile: u64) -> (u64, u64) {
        let length = |range: &Range<u64>| range.end.saturating_sub(range.start);
        let part = |cut: Option<TiledAxis>, whole: u64| match cut {
            Some(cut) => length(&(column_tile * cut.tile..whole.min((column_tile + 1) * cut.tile))),
            None => whole,
        };
        (part(self.cuts.0, self.result.0), part(self.cuts.1, self.result.1))
    }

    /// Row passes of the first row slice over its part of the result: of the keys that the row tile's last row sees, where
    /// later ones get nothing.
    pub(super) fn row_passes(&self, shape: &ArrayShape, at: Iteration) -> u64 {
        let rows = match self.causal {
            Some(queries) => queries.causal_extent(at.row_tile % self.row_tiles, self.tile_rows),
            None => self.extent(at.column_tile).0,
        };
        rows.div_ceil(shape.tile_rows).div_ceil(self.slices.0)
    }

    /// k-steps of an output tile, on a row tile of `rows` rows.
    pub(super) fn depth(&self, rows: u64) -> u64 {
        rows * self.group
    }

    /// A pass over the result's output tiles of a PCU, on a row tile of `rows` rows.
    pub(super) fn row_pass(&self, shape: &ArrayShape, at: Iteration, rows: u64) -> RowPass {
        let (all_rows, all_columns) = self.extent(at.column_tile);
        let of_slice =
            |extent: u64, grain: u64, slices: u64| extent.min(extent.div_ceil(grain).div_ceil(slices) * grain);
        let columns = of_slice(all_columns, shape.tile_columns, self.slices.1);
        let tiles = self.heads * columns.div_ceil(shape.tile_columns);
        let sums = of_slice(all_rows, shape.tile_rows, self.slices.0) * columns * self.heads;
        RowPass::of_equal_tiles(shape, tiles, self.depth(rows), sums)
    }
}
