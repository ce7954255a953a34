//! Work of a GEMM that adds up over the rows a section streams.

use std::ops::Range;

use crate::program::{Chunking, GemmMapping, PassWork, SectionGraph};
use crate::workload::{CausalAxis, GemmForm};

use super::array::SystolicShape;
use super::extents::StageExtents;

/// A stage that adds up over rows, in its nest and mapping. Rows and columns are those of its result.
#[derive(Debug, Clone, Copy)]
pub struct Reducer {
    /// Rows and columns of a head's result, heads, and heads of the operands that are added up in each.
    m: u64,
    n: u64,
    heads: u64,
    group: u64,
    /// Cut along the rows, or the columns.
    row_cut: Option<Chunking>,
    column_cut: Option<Chunking>,
    /// Rows that a mean token of causal attention adds to.
    reached: Option<u64>,
    mapping: GemmMapping,
    row_grain: u64,
    column_grain: u64,
}

impl Reducer {
    /// Stage `stage` of a section in the array shape of its mapping; `None` if it adds nothing up.
    pub fn new(
        graph: &SectionGraph<'_>,
        chunking: Option<Chunking>,
        token_rows: u64,
        stage: usize,
        mapping: &GemmMapping,
        shape: &SystolicShape,
    ) -> Option<Self> {
        let spec = &graph.stages[stage];
        spec.sums?;
        let tensors = &graph.workload.tensors;
        let along = |axis: Option<usize>| chunking.filter(|cut| axis == Some(cut.axis));
        let (x, dy) = (*spec.activations.first()?, *spec.activations.get(1)?);
        let mut reducer = Self {
            m: tensors[x].columns,
            n: tensors[dy].columns,
            heads: 1,
            group: 1,
            row_cut: along(graph.column_axis(x)),
            column_cut: along(graph.column_axis(dy)),
            reached: None,
            mapping: *mapping,
            row_grain: shape.row_grain,
            column_grain: shape.column_grain,
        };
        if let Some(form) = graph.form(stage) {
            let rows = (graph.rows / form.instances).max(1);
            (reducer.m, reducer.n, reducer.heads, reducer.group) = (form.m, form.n, form.heads, (form.k / rows).max(1));
            // Row slices of PCUs go on in step: the first has keys in every token.
            if form.causal.is_some() && mapping.pm == 1 {
                let pairs = GemmForm { m: rows, n: form.m, causal: Some(CausalAxis::Columns), ..form };
                reducer.reached = Some(pairs.mean_causal_extent(token_rows, shape.row_grain));
            }
        }
        Some(reducer)
    }

    /// Columns of PCUs that share a stream of heads.
    fn each(&self) -> u64 {
        self.mapping.pn / self.mapping.streams
    }

    /// Rows of the result that a chunk makes.
    pub fn rows(&self, chunk: u64) -> Range<u64> {
        range(self.row_cut, chunk, self.m)
    }

    /// Columns of a head's result that a chunk makes.
    pub fn columns(&self, chunk: u64) -> Range<u64> {
        range(self.column_cut, chunk, self.n)
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
    pub fn rows_of(&self, chunk: u64, i: u64) -> Range<u64> {
        slice(self.rows(chunk), self.mapping.pm, self.row_grain, i)
    }

    /// Columns, of each of its heads, that PCU column `q` makes.
    pub fn columns_of(&self, chunk: u64, q: u64) -> Range<u64> {
        slice(self.columns(chunk), self.each(), self.column_grain, q % self.each())
    }

    /// Heads of the result that PCU column `q` makes.
    pub fn heads_of(&self, q: u64) -> Range<u64> {
        let each = self.heads.div_ceil(self.mapping.streams);
        let stream = q / self.each();
        (stream * each).min(self.heads)..((stream + 1) * each).min(self.heads)
    }

    /// Columns of an operand, counted from the chunk's first, that a PCU takes: of X by its rows of the result, of dY by
    /// its columns.
    pub fn wanted(&self, chunk: u64, operand: usize, (i, q): (u64, u64)) -> Vec<Range<u64>> {
        let (width, whole, part) = if operand == 0 {
            (self.m, self.rows(chunk), self.rows_of(chunk, i))
        } else {
            (self.n, self.columns(chunk), self.columns_of(chunk, q))
        };
        let heads = self.heads_of(q);
        let heads = heads.start * self.group..heads.end * self.group;
        let runs = heads.map(|head| head * width + part.start - whole.start..head * width + part.end - whole.start);
        runs.filter(|run| run.start < run.end).collect()
    }

    /// Columns of an operand in a chunk.
    pub fn width(&self, chunk: u64, operand: usize) -> u64 {
        let of_head = if operand == 0 { self.rows(chunk) } else { self.columns(chunk) };
        self.heads * self.group * (of_head.end - of_head.start)
    }

    /// Row passes of the busiest PCU in a token of a chunk.
    pub fn passes(&self, chunk: u64) -> u64 {
        let rows = self.rows(chunk);
        let rows = self.reached.unwrap_or(rows.end - rows.start);
        rows.div_ceil(self.row_grain).div_ceil(self.mapping.pm)
    }

    /// Tiles of a row pass of the busiest PCU.
    pub fn tiles(&self, chunk: u64) -> u64 {
        let (heads, columns) = (self.heads_of(0), self.columns(chunk));
        (heads.end - heads.start) * (columns.end - columns.start).div_ceil(self.column_grain).div_ceil(self.each())
    }

    /// Most useful row slices and columns of PCUs.
    pub fn most_splits(&self) -> (u64, u64) {
        let (rows, columns) = (self.rows(0), self.columns(0));
        let tiles = (columns.end - columns.start).div_ceil(self.column_grain);
        ((rows.end - rows.start).div_ceil(self.row_grain), self.heads * tiles)
    }

    /// Sums that the busiest PCU keeps of a chunk.
    pub fn sums(&self, chunk: u64) -> u64 {
        let (rows, columns, heads) = (self.rows_of(chunk, 0), self.columns_of(chunk, 0), self.heads_of(0));
        (rows.end - rows.start) * (columns.end - columns.start) * (heads.end - heads.start)
    }

    /// Depth of a tile in a token of `rows` rows.
    pub fn depth(&self, rows: u64) -> u64 {
        rows * self.group
    }

    /// Work of one row pass of a full token in a chunk.
    fn work(&self, shape: &SystolicShape, chunk: u64, token_rows: u64) -> PassWork {
        let (tiles, depth) = (self.tiles(chunk), self.depth(token_rows));
        let (rows, columns) = (self.rows(chunk), self.columns(chunk));
        let columns = (columns.end - columns.start) * self.heads;
        PassWork {
            cycles: tiles * shape.tile_cycles(depth),
            tiles,
            a_flits: tiles * shape.a_flits(depth),
            w_flits: tiles * shape.w_flits(depth),
            columns,
            stored: (rows.end - rows.start) * columns * self.group,
        }
    }

    /// Whether chunks divide the rows or the columns of the result.
    pub fn is_cut(&self) -> bool {
        self.row_cut.or(self.column_cut).is_some()
    }
}

fn range(cut: Option<Chunking>, chunk: u64, extent: u64) -> Range<u64> {
    match cut {
        Some(cut) => (chunk * cut.width).min(extent)..((chunk + 1) * cut.width).min(extent),
        None => 0..extent,
    }
}

/// Part `at` of a range dealt to `parts` in whole tiles of `grain`; the last parts may have fewer, or none.
fn slice(whole: Range<u64>, parts: u64, grain: u64, at: u64) -> Range<u64> {
    let each = (whole.end - whole.start).div_ceil(grain).div_ceil(parts) * grain;
    let upto = |at: u64| (whole.start + at * each).min(whole.end);
    upto(at)..upto(at + 1)
}

/// Work of a stage, `[chunk][bundle]`: it has one bundle.
pub fn reducer_work(
    reducer: &Reducer,
    shape: &SystolicShape,
    chunking: Option<Chunking>,
    token_rows: u64,
) -> Vec<Vec<PassWork>> {
    let chunks = chunking.filter(|_| reducer.is_cut()).map_or(1, |cut| cut.extent.div_ceil(cut.width));
    (0..chunks).map(|chunk| vec![reducer.work(shape, chunk, token_rows)]).collect()
}

/// Sizes of a stage's buffers: of its sums those of the widest chunk, the first.
pub fn reducer_extents(reducer: &Reducer, shape: &SystolicShape) -> StageExtents {
    let (activation_rate, weight_rate) = shape.stream_rates();
    StageExtents {
        row_grain: shape.row_grain,
        weight_slot_bytes: 0,
        columns_per_pcu: reducer.sums(0),
        activation_rate,
        weight_rate,
        ..StageExtents::default()
    }
}
