//! What a firing of a GEMM stage works through and moves: output tiles, their depths, and the flits of its streams.
//!
//! Counted from the output tiles of the program and the mask of the weight, by the definitions of
//! `docs/timing-model.md` (GEMM stages); nothing is shared with `cost`.

use std::borrow::Cow;
use std::ops::Range;

use rdusim_graph::arch::Chip;
use rdusim_graph::workload::{CausalAxis, GemmForm};
use rdusim_program::{Amount, GemmMapping, Iteration, OutputTile, SectionGraph, Stage, StageId, Style, Tiling};

use super::gathered::Gathering;
use super::row_pass::{ArrayShape, RowPass};
use super::sampled_amounts::SampledAmounts;
use super::stored;
use super::sum_amounts::SumAmounts;

/// The row passes of a stage.
#[derive(Debug)]
enum Passes {
    /// Of output tiles that follow from the weight: `[column_tile][group]`; one column tile if the weight is not cut.
    ByColumnTile(Vec<Vec<RowPass>>),
    /// Of heads, by row tile of a sequence.
    ByRowTile(Vec<RowPass>),
    /// Over a result that is added up over rows.
    Sums(Box<SumAmounts>),
    /// Of what a mask leaves of a product.
    Sampled(SampledAmounts),
}

/// What the firings of a GEMM stage work through and move.
#[derive(Debug)]
pub(super) struct GemmAmounts {
    /// The array of its PCUs.
    pub(super) shape: ArrayShape,
    /// Row slices.
    pm: u64,
    flit_bytes: u64,
    result_bytes: u64,
    /// Bytes that the step in the tail reads, and that leave, for so many columns of complete sums.
    bytes_of_sums: ((u64, u64), (u64, u64)),
    is_gathered: bool,
    /// Lines of the array that a row takes.
    lines_of_row: u64,
    passes: Passes,
}

impl GemmAmounts {
    /// Counts them; `None` if the chip lacks the data type, or if the output tiles do not fit the nest.
    pub(super) fn new(
        chip: &Chip,
        graph: &SectionGraph<'_>,
        tiling: Tiling,
        index: StageId,
        stage: &Stage,
        mapping: &GemmMapping,
    ) -> Option<Self> {
        let dtype = graph.stage_dtype(index);
        let shape = ArrayShape::new(chip, dtype, mapping.rows_on_lanes, graph.last_functions(chip, index))?;
        let keys = Keys::new(graph, tiling, index);
        let passes = match graph.form(index) {
            _ if stage.spec.sums.is_some() => Passes::Sums(Box::new(SumAmounts::new(graph, tiling, index, mapping)?)),
            Some(_) if keys.is_some() => Passes::ByColumnTile(tiles_of_keys(&shape, &keys?, mapping)),
            Some(form) => Passes::ByRowTile(row_tiles_of_heads(&shape, tiling, &form, mapping)),
            None if graph.sampled(index).is_some() => {
                Passes::Sampled(SampledAmounts::new(graph, tiling, index, stage, mapping, &shape)?)
            }
            None => {
                let gathering = (mapping.style == Style::Gather)
                    .then(|| Gathering::new(chip, dtype, shape.tile_rows, mapping.multicast_width));
                let tiles = Tiles { graph, tiling, index, shape: &shape, mapping, gathering };
                Passes::ByColumnTile(tiles.column_tiles(stage)?)
            }
        };
        let (flit_bytes, result_bytes) = (chip.network.flit_bytes, graph.dtype(stage.spec.output).bytes());
        let is_gathered = mapping.style == Style::Gather;
        let bytes_of_sums = stage.spec.update.map_or(((0, 1), (result_bytes, 1)), |update| {
            let state = update.state_columns * graph.dtype(update.state).bytes();
            ((state, update.word), (update.result_columns * result_bytes, update.word))
        });
        let form = graph.form(index).filter(|_| stage.spec.sums.is_none());
        let lines_of_row = form.map_or(1, |form| form.heads / form.b_heads);
        Some(Self { shape, pm: mapping.pm, flit_bytes, result_bytes, bytes_of_sums, is_gathered, lines_of_row, passes })
    }

    /// The pass of a group over a row tile of `rows`; of a sampled product all of them.
    fn row_pass(&self, at: Iteration, group: u64, rows: u64) -> Cow<'_, RowPass> {
        match &self.passes {
            // A stage whose weight is not cut does the same in all column tiles.
            Passes::ByColumnTile(passes) => {
                Cow::Borrowed(&passes[(at.column_tile as usize).min(passes.len() - 1)][group as usize])
            }
            Passes::ByRowTile(passes) => Cow::Borrowed(&passes[at.row_tile as usize % passes.len()]),
            Passes::Sums(sums) => Cow::Owned(sums.row_pass(&self.shape, at, rows)),
            Passes::Sampled(sampled) => Cow::Owned(sampled.row_pass(&self.shape, at.column_tile, group, at.row_tile)),
        }
    }

    /// Passes of a firing over a row tile of `rows`: the output tiles of a column that the first row slice has.
    pub(super) fn row_passes(&self, at: Iteration, rows: u64) -> u64 {
        match &self.passes {
            Passes::Sums(sums) => sums.row_passes(&self.shape, at),
            _ => (self.slice_rows(rows) * self.lines_of_row).div_ceil(self.shape.tile_rows),
        }
    }

    /// Rows of a row tile of `rows` that the first row slice has: whole groups of as many as the array has lines.
    fn slice_rows(&self, rows: u64) -> u64 {
        (rows.div_ceil(self.shape.tile_rows).div_ceil(self.pm) * self.shape.tile_rows).min(rows)
    }

    /// How often a firing does the work of [`Self::row_pass`].
    fn times(&self, at: Iteration, rows: u64) -> u64 {
        if matches!(self.passes, Passes::Sampled(_)) { 1 } else { self.row_passes(at, rows) }
    }

    /// Output tiles of a firing.
    pub(super) fn tiles(&self, at: Iteration, group: u64, rows: u64) -> u64 {
        self.times(at, rows) * self.row_pass(at, group, rows).tiles
    }

    /// k-steps of output tile `tile` of a firing over a row tile of `rows`.
    pub(super) fn depth(&self, at: Iteration, group: u64, rows: u64, tile: u64) -> u64 {
        if let Passes::Sums(sums) = &self.passes {
            return sums.depth(rows);
        }
        let pass = self.row_pass(at, group, rows);
        pass.depths[(tile % pass.depths.len() as u64) as usize]
    }

    /// Flits of activations and of weights that output tile `tile` of a firing over a row tile of `rows` has taken with its first
    /// `k` k-steps.
    #[inline]
    pub(super) fn flits_upto(&self, at: Iteration, group: u64, rows: u64, tile: u64, k: u64) -> (u64, u64) {
        if self.is_gathered {
            let gathered = &self.row_pass(at, group, rows).gathered;
            if !gathered.is_empty() {
                return gathered[(tile % gathered.len() as u64) as usize].flits(k);
            }
        }
        (self.shape.activations.flits(k), self.shape.weights.flits(k))
    }

    /// How many k-steps after the first `k` of an output tile the flits of the next one are enough for. Gathered vectors are
    /// counted step by step.
    #[inline]
    pub(super) fn steps_of_flits(&self, k: u64) -> u64 {
        if self.is_gathered { 1 } else { self.shape.activations.steps_left(k).min(self.shape.weights.steps_left(k)) }
    }

    /// Depths of the output tiles of a row pass: `[column_tile][group][tile]`; none of heads, sums and sampled products.
    pub(super) fn depths(&self) -> Vec<Vec<Vec<u64>>> {
        let Passes::ByColumnTile(passes) = &self.passes else { return Vec::new() };
        passes.iter().map(|groups| groups.iter().map(|pass| pass.depths.clone()).collect()).collect()
    }

    /// Flits that a firing moves.
    pub(super) fn flits(&self, amount: Amount, at: Iteration, group: u64, rows: u64) -> u64 {
        let (pass, times) = (self.row_pass(at, group, rows), self.times(at, rows));
        let is_sampled = matches!(self.passes, Passes::Sampled(_));
        match amount {
            Amount::Activations => times * pass.activation_flits,
            Amount::Weights => times * pass.weight_flits,
            Amount::Partials => times * pass.tiles * self.shape.partial_flits,
            Amount::ResultBytes if matches!(self.passes, Passes::Sums(_)) => {
                let (bytes, columns) = self.bytes_of_sums.1;
                (pass.columns_of_pcu / columns * bytes).div_ceil(self.flit_bytes)
            }
            Amount::State => {
                let (bytes, columns) = self.bytes_of_sums.0;
                (pass.columns_of_pcu / columns * bytes).div_ceil(self.flit_bytes)
            }
            Amount::ResultBytes => {
                let rows = if is_sampled { rows.min(self.shape.tile_rows) } else { self.slice_rows(rows) };
                (rows * pass.columns_of_pcu * self.result_bytes).div_ceil(self.flit_bytes)
            }
            Amount::SlotBytes => 0,
        }
    }
}

/// The output tiles of a stage whose columns are dealt to lockstep groups.
struct Tiles<'a> {
    graph: &'a SectionGraph<'a>,
    tiling: Tiling,
    index: StageId,
    shape: &'a ArrayShape,
    mapping: &'a GemmMapping,
    /// How activations are gathered; `None` of a systolic array.
    gathering: Option<Gathering>,
}

impl Tiles<'_> {
    /// The row passes of every column tile and lockstep group; `None` if the output tiles do not fit the nest.
    fn column_tiles(&self, stage: &Stage) -> Option<Vec<Vec<RowPass>>> {
        let weight = stage.spec.weight?;
        let fits = stage.tiles.iter().all(|groups| groups.len() as u64 == stage.mapping.groups());
        if !fits || stage.tiles.len() as u64 != stored::column_tiles_of_weight(self.graph, self.tiling, weight) {
            return None;
        }
        let mask = self.graph.mask(self.index);
        let of_column_tile = |(column_tile, groups): (u64, &Vec<Vec<OutputTile>>)| {
            let (_, k) = stored::part_of_weight(self.graph, self.tiling, weight, column_tile);
            let of_group = |(group, tiles): (u64, &Vec<OutputTile>)| {
                self.row_pass(tiles, &stored::rows_of_group(mask, self.mapping, &k, group))
            };
            (0..).zip(groups).map(of_group).collect()
        };
        Some((0..).zip(stage.tiles.iter()).map(of_column_tile).collect())
    }

    /// The pass of a group over its output tiles and the weight rows `k`.
    fn row_pass(&self, tiles: &[OutputTile], k: &Range<u64>) -> RowPass {
        let mask = self.graph.mask(self.index);
        let columns = |tile: &OutputTile| tile.start..tile.start + tile.columns;
        if let Some(gathering) = &self.gathering {
            let gathered = tiles.iter().map(|tile| gathering.tile(mask, &columns(tile), k)).collect();
            return RowPass::of_gathered(self.shape, self.mapping, tiles, gathered);
        }
        let depth = |tile: &OutputTile| stored::depth(mask, &columns(tile), k);
        RowPass::new(self.shape, self.mapping, tiles, tiles.iter().map(depth).collect())
    }
}

/// A product with heads whose keys are cut, by the lengths of its column tiles.
struct Keys {
    form: GemmForm,
    /// Keys are columns of the product: of scores. Else they are its depth.
    are_columns: bool,
    tiles: Vec<u64>,
    /// Further steps of the depth: statistics.
    statistics: u64,
}

impl Keys {
    fn new(graph: &SectionGraph<'_>, tiling: Tiling, index: StageId) -> Option<Self> {
        let (main, form) = (graph.stages[index].main, graph.form(index)?);
        let keys = graph.cut_keys(tiling.tiled_axis)?;
        let are_columns = keys.scores == Some(main);
        if !keys.is_product(main) {
            return None;
        }
        let length = |column_tile| tiling.column_range(column_tile).map_or(0, |range| range.end - range.start);
        let tiles = (0..tiling.column_tiles()).map(length).collect();
        Some(Self { form, are_columns, tiles, statistics: if are_columns { 0 } else { keys.statistics } })
    }
}

/// The row passes of a product with heads in every tile of keys.
fn tiles_of_keys(shape: &ArrayShape, keys: &Keys, mapping: &GemmMapping) -> Vec<Vec<RowPass>> {
    let of = |&length: &u64| {
        let form = if keys.are_columns {
            GemmForm { n: length, ..keys.form }
        } else {
            GemmForm { k: length + keys.statistics, ..keys.form }
        };
        vec![RowPass::of_heads(shape, mapping, &form, 0)]
    };
    keys.tiles.iter().map(of).collect()
}

/// The row passes of a GEMM with heads, by row tile of a sequence: with causal attention a row tile works on the keys up to
/// its last row. Without it all row tiles are equal.
fn row_tiles_of_heads(shape: &ArrayShape, tiling: Tiling, form: &GemmForm, mapping: &GemmMapping) -> Vec<RowPass> {
    let keys = match form.causal {
        None => return vec![RowPass::of_heads(shape, mapping, form, 0)],
        Some(CausalAxis::Columns) => form.n,
        Some(CausalAxis::Depth) => form.k,
    };
    // The rows are the last of the keys, or the first of them if they are more.
    let before = keys.saturating_sub(form.m);
    let last_row = |row_tile: u64| (form.m).min((row_tile + 1) * tiling.tile_rows);
    let pass = |row_tile| RowPass::of_heads(shape, mapping, form, (before + last_row(row_tile)).min(keys));
    (0..form.m.div_ceil(tiling.tile_rows)).map(pass).collect()
}
