//! Work of a GEMM that adds up over the rows a section streams.

use std::ops::Range;

use rdusim_graph::workload::{CausalAxis, GemmForm};
use rdusim_program::{GemmMapping, PassWork, RowTile, SectionGraph, StageId, TiledAxis};

use super::array::SystolicShape;
use super::footprint::StageFootprint;

/// A stage that adds up over rows, in its nest and mapping. Rows and columns are those of its result.
#[derive(Debug, Clone, Copy)]
pub struct Reducer {
    /// Rows and columns of a head's result, heads, and heads of the operands that are added up in each.
    m: u64,
    n: u64,
    heads: u64,
    group: u64,
    /// Cut along the rows, or the columns.
    row_cut: Option<TiledAxis>,
    column_cut: Option<TiledAxis>,
    /// Of causal attention, the queries by the keys that they see: a row tile adds to the rows of those alone.
    causal: Option<GemmForm>,
    tile_rows: u64,
    mapping: GemmMapping,
    row_grain: u64,
    column_grain: u64,
}

impl Reducer {
    /// Stage `stage` of a section in the array shape of its mapping; `None` if it adds nothing up.
    pub fn new(
        graph: &SectionGraph<'_>,
        tiled_axis: Option<TiledAxis>,
        tile_rows: u64,
        stage: StageId,
        mapping: &GemmMapping,
        shape: &SystolicShape,
    ) -> Option<Self> {
        let spec = &graph.stages[stage];
        spec.sums?;
        let tensors = &graph.workload.tensors;
        let along = |axis: Option<usize>| tiled_axis.filter(|cut| axis == Some(cut.axis));
        let (x, dy) = (*spec.activations.first()?, *spec.activations.get(1)?);
        // No word of the result of a step in the tail is divided between PCUs.
        spec.update.is_none_or(|update| shape.column_grain.is_multiple_of(update.word)).then_some(())?;
        let mut reducer = Self {
            m: tensors[x].columns,
            n: tensors[dy].columns,
            heads: 1,
            group: 1,
            row_cut: along(graph.column_axis(x)),
            column_cut: along(graph.column_axis(dy)),
            causal: None,
            tile_rows,
            mapping: *mapping,
            row_grain: shape.row_grain,
            column_grain: shape.column_grain,
        };
        if let Some(form) = graph.form(stage) {
            let rows = (graph.rows / form.instances).max(1);
            (reducer.m, reducer.n, reducer.heads, reducer.group) = (form.m, form.n, form.heads, (form.k / rows).max(1));
            // Row slices of PCUs go on in step: the first has keys in every row tile.
            if form.causal.is_some() && mapping.pm == 1 {
                reducer.causal = Some(GemmForm { m: rows, n: form.m, causal: Some(CausalAxis::Columns), ..form });
            }
        }
        Some(reducer)
    }

    /// Columns of PCUs that share a stream of heads.
    fn each(&self) -> u64 {
        self.mapping.pn / self.mapping.streams
    }

    /// Rows of the result that a column tile makes.
    pub fn rows(&self, column_tile: u64) -> Range<u64> {
        range(self.row_cut, column_tile, self.m)
    }

    /// Columns of a head's result that a column tile makes.
    pub fn columns(&self, column_tile: u64) -> Range<u64> {
        range(self.column_cut, column_tile, self.n)
    }

    /// Heads of the operands for each of the result.
    pub fn group(&self) -> u64 {
        self.group
    }

    /// Rows and columns of one head's operands.
    pub fn widths(&self) -> (u64, u64) {
        (self.m, self.n)
    }

    /// Rows of the result that row slice `i` of the PCUs makes.
    pub fn rows_of(&self, column_tile: u64, i: u64) -> Range<u64> {
        slice(self.rows(column_tile), self.mapping.pm, self.row_grain, i)
    }

    /// Columns, of each of its heads, that PCU column `q` makes.
    pub fn columns_of(&self, column_tile: u64, q: u64) -> Range<u64> {
        slice(self.columns(column_tile), self.each(), self.column_grain, q % self.each())
    }

    /// Heads of the result that PCU column `q` makes.
    pub fn heads_of(&self, q: u64) -> Range<u64> {
        let each = self.heads.div_ceil(self.mapping.streams);
        let stream = q / self.each();
        (stream * each).min(self.heads)..((stream + 1) * each).min(self.heads)
    }

    /// Columns of an operand, counted from the column tile's first, that a PCU takes: of X by its rows of the result, of dY by
    /// its columns.
    pub fn wanted(&self, column_tile: u64, operand: usize, i: u64, q: u64) -> Vec<Range<u64>> {
        let (width, whole, part) = if operand == 0 {
            (self.m, self.rows(column_tile), self.rows_of(column_tile, i))
        } else {
            (self.n, self.columns(column_tile), self.columns_of(column_tile, q))
        };
        let heads = self.heads_of(q);
        let heads = heads.start * self.group..heads.end * self.group;
        let runs = heads.map(|head| head * width + part.start - whole.start..head * width + part.end - whole.start);
        runs.filter(|run| run.start < run.end).collect()
    }

    /// Columns of an operand in a column tile.
    pub fn width(&self, column_tile: u64, operand: usize) -> u64 {
        let of_head = if operand == 0 { self.rows(column_tile) } else { self.columns(column_tile) };
        self.heads * self.group * (of_head.end - of_head.start)
    }

    /// Row tiles of a sequence, if they differ: those of causal attention.
    pub fn different_row_tiles(&self) -> u64 {
        self.causal.map_or(1, |queries| queries.m.div_ceil(self.tile_rows))
    }

    /// Row passes of the busiest PCU in a row tile of a column tile.
    pub fn passes(&self, column_tile: u64, tile: RowTile) -> u64 {
        let rows = match (self.causal, tile.index) {
            (Some(queries), Some(index)) => queries.causal_extent(index % self.different_row_tiles(), self.tile_rows),
            (Some(queries), None) => queries.mean_causal_extent(self.tile_rows, self.row_grain),
            (None, _) => {
                let rows = self.rows(column_tile);
                rows.end - rows.start
            }
        };
        rows.div_ceil(self.row_grain).div_ceil(self.mapping.pm)
    }

    /// Tiles of a row pass of the busiest PCU.
    pub fn tiles(&self, column_tile: u64) -> u64 {
        let (heads, columns) = (self.heads_of(0), self.columns(column_tile));
        (heads.end - heads.start) * (columns.end - columns.start).div_ceil(self.column_grain).div_ceil(self.each())
    }

    /// Most useful row slices and columns of PCUs.
    pub fn most_splits(&self) -> (u64, u64) {
        let (rows, columns) = (self.rows(0), self.columns(0));
        let tiles = (columns.end - columns.start).div_ceil(self.column_grain);
        ((rows.end - rows.start).div_ceil(self.row_grain), self.heads * tiles)
    }

    /// Sums that the busiest PCU keeps of a column tile.
    pub fn sums(&self, column_tile: u64) -> u64 {
        let (rows, columns, heads) = (self.rows_of(column_tile, 0), self.columns_of(column_tile, 0), self.heads_of(0));
        (rows.end - rows.start) * (columns.end - columns.start) * (heads.end - heads.start)
    }

    /// Depth of a tile in a row tile of `rows` rows.
    pub fn depth(&self, rows: u64) -> u64 {
        rows * self.group
    }

    /// Work of one row pass of a full row tile in a column tile.
    fn work(&self, shape: &SystolicShape, column_tile: u64, tile_rows: u64) -> PassWork {
        let (tiles, depth) = (self.tiles(column_tile), self.depth(tile_rows));
        let (rows, columns) = (self.rows(column_tile), self.columns(column_tile));
        let columns = (columns.end - columns.start) * self.heads;
        PassWork {
            cycles: tiles * shape.tile_cycles(depth),
            tiles,
            a_flits: tiles * shape.a_flits(depth),
            w_flits: tiles * shape.w_flits(depth),
            columns,
            stored: (rows.end - rows.start) * columns * self.group,
            zeros: 0,
        }
    }

    /// Whether column tiles divide the rows or the columns of the result.
    pub fn is_cut(&self) -> bool {
        self.row_cut.or(self.column_cut).is_some()
    }
}

fn range(cut: Option<TiledAxis>, column_tile: u64, extent: u64) -> Range<u64> {
    match cut {
        Some(cut) => (column_tile * cut.tile).min(extent)..((column_tile + 1) * cut.tile).min(extent),
        None => 0..extent,
    }
}

/// Part `at` of a range dealt to `parts` in whole tiles of `grain`; the last parts may have fewer, or none.
fn slice(whole: Range<u64>, parts: u64, grain: u64, at: u64) -> Range<u64> {
    let each = (whole.end - whole.start).div_ceil(grain).div_ceil(parts) * grain;
    let upto = |at: u64| (whole.start + at * each).min(whole.end);
    upto(at)..upto(at + 1)
}

/// Work of a stage, `[column_tile][group]`: it has one lockstep group.
pub fn reducer_work(
    reducer: &Reducer,
    shape: &SystolicShape,
    tiled_axis: Option<TiledAxis>,
    tile_rows: u64,
) -> Vec<Vec<PassWork>> {
    let column_tiles = tiled_axis.filter(|_| reducer.is_cut()).map_or(1, |cut| cut.extent.div_ceil(cut.tile));
    (0..column_tiles).map(|column_tile| vec![reducer.work(shape, column_tile, tile_rows)]).collect()
}

/// Sizes of a stage's buffers: of its sums those of the widest column tile, the first.
pub fn reducer_footprint(reducer: &Reducer, shape: &SystolicShape) -> StageFootprint {
    let (activation_rate, weight_rate) = shape.stream_rates();
    StageFootprint {
        row_grain: shape.row_grain,
        weight_slot_bytes: 0,
        columns_per_pcu: reducer.sums(0),
        activation_rate,
        weight_rate,
        ..StageFootprint::default()
    }
}
