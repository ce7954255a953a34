//! What one firing of a placed stage costs: cycles of its lockstep groups and flits of its flows.

use std::ops::Range;

use rdusim_base::units::{Bytes, Dtype, Flits, index, saturating_u64};
use rdusim_graph::arch::Chip;
use rdusim_graph::workload::GemmForm;
use rdusim_program::{Amount, Mapping, PassWork, RowTile, SectionGraph, StageId, TileLists, Tiling, Update};

use super::array::SystolicShape;
use super::heads::{RowTileOf, causal_work};
use super::reducer::Reducer;
use super::sampled::SampledWork;
use super::time::Cycles;

/// Costs of one stage, in the units of the chip it was made for.
#[derive(Debug, Clone)]
pub struct StageWork {
    mapping: Mapping,
    shape: Option<SystolicShape>,
    /// The same with a step in the tail, for the row tile with which the sums are complete: the section's last.
    last_shape: Option<SystolicShape>,
    work: Vec<Vec<PassWork>>,
    /// Of causal attention, the shape of its products.
    causal: Option<GemmForm>,
    tiling: Tiling,
    /// The axis of the columns of its result, if column tiles or panels cut it.
    cut_columns: Option<usize>,
    /// Of a stage that adds up over rows, its part of the result.
    reducer: Option<Reducer>,
    /// Of the gradient of a sparse weight, what its firings execute.
    sampled: Option<SampledWork>,
    /// Columns a SIMD stage works through.
    columns: u64,
    /// Columns of the result.
    result_columns: u64,
    /// Of attention whose keys are cut, heads that have a run of the cut axis each; else one.
    runs: u64,
    /// Columns of statistics that a softmax over tiles of keys leaves in each column tile.
    statistics: u64,
    /// MACs for a stored element of the second operand and a row: heads that share it.
    sharers: u64,
    /// Groups of columns that a SIMD function takes whole (heads, a row); `None` for single columns.
    units: Option<u64>,
    /// The second operand is stored in another format.
    is_expanded: bool,
    /// MACs of so many rows, where that is not told by the stored weights.
    macs_of_rows: Option<(u64, u64)>,
    /// The state that a firing takes over from the one before, in rows of its operand.
    carried_rows: u64,
    element_bytes: u64,
    result_bytes: u64,
    /// Of a step in the tail, columns of the state, and of the result, for so many of the sums; and bytes of an element of
    /// the state.
    update: Option<(Update, u64)>,
    lanes: u64,
    flit_bytes: u64,
    pipeline_cycles: u64,
}

impl StageWork {
    /// Costs of stage `index` of a section, from the work of a row pass and the output tiles that make it.
    pub fn new(
        chip: &Chip,
        graph: &SectionGraph<'_>,
        tiling: Tiling,
        index: StageId,
        mapping: Mapping,
        work: &[Vec<PassWork>],
        tiles: &TileLists,
    ) -> Self {
        let spec = &graph.stages[index];
        let dtype: Dtype = graph.stage_dtype(index);
        let kept = graph.is_k_cut(tiling.tiled_axis, index) || spec.sums.is_some();
        let sums = mapping.reduction().most_before(mapping.pk()).max(u64::from(kept));
        let shape = match &mapping {
            Mapping::Gemm(m) => SystolicShape::new(chip, dtype, m.rows_on_lanes, graph.tail_functions(index), sums)
                .map(|shape| shape.in_style(chip, dtype, m.style).with_lines(graph.lines_of_row(index))),
            Mapping::Simd(_) => None,
        };
        let last_shape = match &mapping {
            Mapping::Gemm(m) if spec.update.is_some() => {
                SystolicShape::new(chip, dtype, m.rows_on_lanes, graph.last_functions(chip, index), sums)
            }
            _ => None,
        };
        let reducer = match (&mapping, &shape) {
            (Mapping::Gemm(m), Some(shape)) => {
                Reducer::new(graph, tiling.tiled_axis, tiling.tile_rows, index, m, shape)
            }
            _ => None,
        };
        let sampled = match (&mapping, &shape) {
            (Mapping::Gemm(m), Some(shape)) => SampledWork::new(graph, tiling, index, m, shape, tiles),
            _ => None,
        };
        let causal = graph.form(index).filter(|form| form.causal.is_some() && reducer.is_none());
        let chain = if let Mapping::Simd(m) = &mapping { m.chain } else { 1 };
        let keys = graph.cut_keys(tiling.tiled_axis);
        let cuts_heads = keys.is_some_and(|keys| keys.is_product(spec.main));
        Self {
            mapping,
            shape,
            last_shape,
            work: work.to_vec(),
            causal,
            tiling,
            cut_columns: graph.column_axis(spec.output).filter(|&axis| tiling.cuts(Some(axis))),
            reducer,
            sampled,
            columns: if graph.is_gemm(index) {
                graph.workload.tensors[spec.output].columns
            } else {
                graph.simd_columns(index)
            },
            result_columns: graph.workload.tensors[spec.output].columns,
            runs: keys.map_or(1, |keys| keys.heads),
            statistics: keys.map_or(0, |keys| keys.statistics_of(spec.output)),
            sharers: graph.form(index).filter(|_| cuts_heads).map_or(1, |form| form.heads / form.b_heads),
            units: graph.units(index),
            is_expanded: spec.weight.is_some_and(|weight| graph.workload.tensors[weight].is_expanded()),
            macs_of_rows: (graph.form(index).is_some() && !cuts_heads || graph.sampled(index).is_some())
                .then(|| (graph.workload.stored_macs(spec.main), graph.rows)),
            carried_rows: u64::from(graph.kind(index).is_carried()),
            element_bytes: dtype.bytes(),
            result_bytes: graph.dtype(spec.output).bytes(),
            update: spec.update.map(|update| (update, graph.dtype(update.state).bytes())),
            lanes: chip.pcu.lanes.get(&dtype).copied().unwrap_or(1),
            flit_bytes: chip.network.flit_bytes,
            pipeline_cycles: chip.pcu.stages * chain,
        }
    }

    /// The stage's mapping.
    pub fn mapping(&self) -> Mapping {
        self.mapping
    }

    /// The array of its PCUs, of a GEMM.
    pub fn shape(&self) -> Option<SystolicShape> {
        self.shape
    }

    /// Of a stage that adds up over rows, its part of the result.
    pub fn reducer(&self) -> Option<&Reducer> {
        self.reducer.as_ref()
    }

    /// Output columns in a column tile.
    pub fn width(&self, column_tile: u64) -> u64 {
        let cut = self.cut_columns.and_then(|axis| self.tiling.range_of(Some(axis), column_tile));
        cut.map_or(self.columns, |range| self.runs * (range.end - range.start))
    }

    /// Work of a lockstep group in a column tile (a stage off the cut has one column tile).
    pub fn pass(&self, column_tile: u64, group: u64) -> PassWork {
        let column_tile = self.work.get(index(column_tile)).or(self.work.last());
        column_tile.and_then(|groups| groups.get(index(group))).copied().unwrap_or_default()
    }

    /// Work of a lockstep group in a column tile and a row tile: of a row pass, or of all where passes differ.
    #[inline]
    fn pass_of(&self, column_tile: u64, group: u64, tile: RowTile) -> PassWork {
        if let (Some(index), Some(sampled), Some(shape)) = (tile.index, &self.sampled, &self.shape) {
            return sampled.work(shape, column_tile, group, index, self.pass(column_tile, group));
        }
        match (tile.index, &self.causal, &self.mapping, &self.shape) {
            (Some(index), Some(form), Mapping::Gemm(m), Some(shape)) => {
                let number = index % self.different_row_tiles();
                causal_work(form, shape, m, RowTileOf { number, rows: self.tiling.tile_rows })
            }
            _ => self.pass(column_tile, group),
        }
    }

    /// Row tiles, from the first of the section on, that stand for all others: the first, those of a sequence of causal
    /// attention, or all of a product that a mask samples.
    pub fn different_row_tiles(&self) -> u64 {
        if let Some(sampled) = &self.sampled {
            return sampled.row_tiles();
        }
        let of_reducer = self.reducer.as_ref().map_or(1, Reducer::different_row_tiles);
        self.causal.map_or(of_reducer, |form| form.m.div_ceil(self.tiling.tile_rows))
    }

    /// The row tile whose firing left the sums that the one on `tile` begins from, where their number differs.
    pub fn sums_before(&self, tile: RowTile) -> RowTile {
        let differ = self.reducer.as_ref().is_some_and(|reducer| reducer.different_row_tiles() > 1);
        RowTile { index: tile.index.map(|index| if differ { index.saturating_sub(1) } else { index }), ..tile }
    }

    /// Row passes of one PCU over a row tile (SIMD: rows).
    #[inline]
    pub fn passes(&self, rows: u64) -> u64 {
        match (&self.shape, &self.mapping) {
            (Some(shape), mapping) => shape.passes(rows, mapping.pm()),
            (None, mapping) => rows.div_ceil(mapping.pm()),
        }
    }

    /// Row tiles among which the longest firing is: with causal attention the last see most, and the very last may be short.
    pub fn heaviest_row_tiles(&self, row_tiles: u64) -> Range<u64> {
        let different = self.different_row_tiles().min(row_tiles);
        if self.sampled.is_some() { 0..different } else { different.saturating_sub(2)..different }
    }

    /// Whether a mask says which output tiles its firings execute.
    pub fn is_sampled(&self) -> bool {
        self.sampled.is_some()
    }

    /// Whether firings of a lockstep group in a column tile cost what they cost in the column tile before.
    pub fn is_as_before(&self, column_tile: u64, group: u64) -> bool {
        let Some(before) = column_tile.checked_sub(1) else { return false };
        if self.sampled.is_some() {
            return false;
        }
        let passes = |column_tile| self.reducer.as_ref().map(|reducer| reducer.passes(column_tile, RowTile::mean(0)));
        self.width(column_tile) == self.width(before)
            && self.pass(column_tile, group) == self.pass(before, group)
            && passes(column_tile) == passes(before)
    }

    /// How often a firing does the work of [`Self::pass_of`]: its row passes. A stage that adds up over rows passes over those of
    /// its result.
    #[inline]
    fn row_passes(&self, column_tile: u64, tile: RowTile) -> u64 {
        if self.sampled.is_some() && tile.index.is_some() {
            return 1;
        }
        self.reducer.as_ref().map_or_else(|| self.passes(tile.rows), |reducer| reducer.passes(column_tile, tile))
    }

    /// Rows of a row tile of `rows` rows that row slice `slice` works on; the last slices may have fewer, or none. All PCUs
    /// that add up over rows take all of them.
    #[inline]
    pub fn slice_rows(&self, rows: u64, slice: u64) -> Range<u64> {
        if self.reducer.is_some() {
            return if slice == 0 { 0..rows } else { rows..rows };
        }
        let each =
            self.shape.as_ref().map_or_else(|| self.passes(rows), |shape| shape.slice_rows(rows, self.mapping.pm()));
        (slice * each).min(rows)..((slice + 1) * each).min(rows)
    }

    /// Output columns of SIMD column slice `slice` in a column tile, counted from the column tile's first.
    pub fn slice_columns(&self, column_tile: u64, slice: u64) -> Range<u64> {
        self.part_of(self.width(column_tile), column_tile, slice)
    }

    /// The same of an operand: all of one that heads share.
    pub fn given_to(&self, columns: u64, is_shared: bool, column_tile: u64, slice: u64) -> Range<u64> {
        if is_shared { 0..columns } else { self.part_of(columns, column_tile, slice) }
    }

    /// Columns of SIMD column slice `slice`, of an operand or result that has `columns` of them in a column tile: those of the
    /// slice's heads, or of its elements where operands have several columns for one.
    pub fn part_of(&self, columns: u64, column_tile: u64, slice: u64) -> Range<u64> {
        let pn = if let Mapping::Simd(m) = &self.mapping { m.pn } else { 1 };
        let units = self.units.unwrap_or(self.width(column_tile)).max(1);
        let each = units.div_ceil(pn) * columns.div_ceil(units);
        (slice * each).min(columns)..((slice + 1) * each).min(columns)
    }

    /// Cycles a lockstep group is occupied by a firing.
    #[inline]
    pub fn cycles(&self, column_tile: u64, group: u64, tile: RowTile) -> Cycles {
        Cycles(match &self.mapping {
            Mapping::Gemm(_) => match (&self.reducer, &self.shape) {
                (Some(reducer), Some(shape)) => {
                    reducer.passes(column_tile, tile)
                        * reducer.tiles(column_tile)
                        * self.shape_in(*shape, tile).tile_cycles(reducer.depth(tile.rows))
                }
                _ => self.row_passes(column_tile, tile) * self.pass_of(column_tile, group, tile).cycles,
            },
            Mapping::Simd(m) => self.vectors(column_tile, tile.rows) * m.passes,
        })
    }

    /// Vectors of one SIMD PCU in a firing.
    fn vectors(&self, column_tile: u64, rows: u64) -> u64 {
        match &self.mapping {
            Mapping::Simd(m) => {
                let columns = self.slice_columns(column_tile, 0);
                (rows.div_ceil(m.pm) + self.carried_rows) * (columns.end - columns.start).div_ceil(self.lanes)
            }
            Mapping::Gemm(_) => 0,
        }
    }

    /// Tiles of a lockstep group's firing: results leave after each (SIMD: after each row).
    #[inline]
    pub fn tiles(&self, column_tile: u64, group: u64, tile: RowTile) -> u64 {
        match &self.mapping {
            Mapping::Gemm(_) => self.row_passes(column_tile, tile) * self.pass_of(column_tile, group, tile).tiles,
            Mapping::Simd(m) if m.passes > 1 => self.passes(tile.rows),
            Mapping::Simd(_) => self.vectors(column_tile, tile.rows),
        }
    }

    /// Cycles from a tile's last operand to where its results begin to leave (SIMD: from a vector to its result).
    pub fn skew_cycles(&self) -> Cycles {
        Cycles(self.shape.map_or(self.pipeline_cycles, |shape| shape.skew_cycles))
    }

    /// Cycles in which the results of a tile of a lockstep group, or else its partial sums, leave; `merges` sums of other slices
    /// of K.
    pub fn drain_cycles(&self, group: u64, results: bool, merges: bool) -> Cycles {
        let before = || self.mapping.reduction().before(self.mapping.k_slice(group), self.mapping.pk());
        let merged = if merges { before().count() as u64 } else { 0 };
        let shape = self.last_shape.filter(|_| results).or(self.shape);
        Cycles(shape.map_or(0, |shape| shape.drain_cycles(results, merged)))
    }

    /// Cycles at the end of an output tile in which it only drains.
    pub fn idle_cycles(&self, tile: RowTile) -> Cycles {
        Cycles(self.shape.map_or(0, |shape| self.shape_in(shape, tile).idle_cycles()))
    }

    /// The array as it works in a row tile: in the section's last one with the step in the tail, if there is one.
    fn shape_in(&self, shape: SystolicShape, tile: RowTile) -> SystolicShape {
        let is_last = tile.index.is_some_and(|index| index + 1 == self.tiling.row_tiles());
        self.last_shape.filter(|_| is_last).unwrap_or(shape)
    }

    /// MACs a firing executes on all PCUs (padding included), and SIMD element operations.
    pub fn stored_macs(&self, column_tile: u64, rows: u64) -> u64 {
        match &self.mapping {
            Mapping::Gemm(_) => {
                if let Some((macs, of_rows)) = self.macs_of_rows {
                    return saturating_u64(u128::from(macs) * u128::from(rows) / u128::from(of_rows));
                }
                let stored = (0..self.mapping.groups()).map(|b| self.pass(column_tile, b).stored).sum::<u64>();
                stored * self.sharers * rows
            }
            Mapping::Simd(_) => 0,
        }
    }

    /// The same and MACs on elements that are not stored: those of the union of masks under a stream, and of output tiles that a
    /// gradient executes for a part of their elements.
    pub fn executed_macs(&self, column_tile: u64, tile: RowTile) -> u64 {
        let stored = self.stored_macs(column_tile, tile.rows);
        let Mapping::Gemm(_) = &self.mapping else { return stored };
        let groups = 0..self.mapping.groups();
        if let (Some(sampled), Some(row_tile)) = (&self.sampled, tile.index) {
            return groups.map(|group| sampled.executed_macs(column_tile, group, row_tile)).sum();
        }
        if self.macs_of_rows.is_some() {
            return stored;
        }
        stored + groups.map(|group| self.pass(column_tile, group).zeros).sum::<u64>() * self.sharers * tile.rows
    }

    /// Elements of a packed second operand that are expanded as a firing reads them: all of the column tile in every row pass.
    pub fn expanded_elements(&self, column_tile: u64, rows: u64) -> u64 {
        if !self.is_expanded {
            return 0;
        }
        (0..self.mapping.groups()).map(|group| self.pass(column_tile, group).stored).sum::<u64>() * self.passes(rows)
    }

    /// Elements of the stage's output in a column tile.
    pub fn output_elements(&self, column_tile: u64, rows: u64) -> u64 {
        if let Some(reducer) = &self.reducer {
            let of_result = reducer.rows(column_tile);
            return (of_result.end - of_result.start) * reducer.width(column_tile, 1) / reducer.group();
        }
        rows * self.width(column_tile).min(self.result_columns)
    }

    /// Elements a SIMD firing computes.
    pub fn simd_elements(&self, column_tile: u64, rows: u64) -> u64 {
        match &self.mapping {
            Mapping::Gemm(_) => 0,
            Mapping::Simd(_) => rows * self.width(column_tile),
        }
    }

    /// Flits of one PCU's first operand stream in a firing.
    fn activation_flits(&self, column_tile: u64, group: u64, tile: RowTile) -> u64 {
        match (&self.mapping, &self.shape) {
            (Mapping::Gemm(_), _) => {
                let of_pass = self.of_reducer(column_tile, tile.rows, SystolicShape::a_flits);
                self.row_passes(column_tile, tile)
                    * of_pass.unwrap_or_else(|| self.pass_of(column_tile, group, tile).a_flits)
            }
            (Mapping::Simd(m), _) => {
                self.vectors(column_tile, tile.rows)
                    * m.passes
                    * (self.lanes * self.element_bytes).div_ceil(self.flit_bytes)
            }
        }
    }

    fn weight_flits(&self, column_tile: u64, group: u64, tile: RowTile) -> u64 {
        let of_pass = self.of_reducer(column_tile, tile.rows, SystolicShape::w_flits);
        self.row_passes(column_tile, tile) * of_pass.unwrap_or_else(|| self.pass_of(column_tile, group, tile).w_flits)
    }

    /// Flits of an operand in a row pass of a stage whose depth is the row tile's rows.
    fn of_reducer(&self, column_tile: u64, rows: u64, flits: fn(&SystolicShape, u64) -> u64) -> Option<u64> {
        let (reducer, shape) = self.reducer.as_ref().zip(self.shape.as_ref())?;
        Some(reducer.tiles(column_tile) * flits(shape, reducer.depth(rows)))
    }

    fn partial_flits(&self, column_tile: u64, group: u64, tile: RowTile) -> u64 {
        let each = self.shape.map_or(0, |s| s.partial_flits);
        if let (None, Some(sampled), Some(shape)) = (tile.index, &self.sampled, &self.shape) {
            let cycles = self.cycles(column_tile, group, tile).0;
            return cycles.div_ceil(sampled.tile_cycles(shape, column_tile, group)) * each;
        }
        self.row_passes(column_tile, tile) * self.pass_of(column_tile, group, tile).tiles * each
    }

    /// Bytes one PCU of a lockstep group emits in a firing.
    fn result_bytes(&self, column_tile: u64, group: u64, tile: RowTile) -> Bytes {
        if let Some(reducer) = &self.reducer {
            let (columns, word) = self.update.map_or((1, 1), |(update, _)| (update.result_columns, update.word));
            return Bytes(reducer.sums(column_tile) / word * columns * self.result_bytes);
        }
        if let (Some(sampled), Some(index)) = (&self.sampled, tile.index) {
            return Bytes(sampled.results(column_tile, group, index, tile.rows) * self.result_bytes);
        }
        if let (Mapping::Gemm(m), Some(shape)) = (&self.mapping, &self.shape) {
            let rows = shape.slice_rows(tile.rows, m.pm);
            let columns = self.pass(column_tile, group).columns.div_ceil(m.multicast_width);
            return Bytes(rows * columns * self.result_bytes);
        }
        // The first slice has the most columns: whole heads where the function takes them whole.
        let made = self.width(column_tile).min(self.result_columns) + self.statistics;
        let columns = self.part_of(made, column_tile, 0);
        Bytes(self.passes(tile.rows) * (columns.end - columns.start) * self.result_bytes)
    }

    /// Bytes that the step in the tail of one PCU reads when its sums are complete.
    fn state_bytes(&self, column_tile: u64) -> Bytes {
        let of = |(reducer, (update, bytes)): (&Reducer, &(Update, u64))| {
            reducer.sums(column_tile) / update.word * update.state_columns * bytes
        };
        Bytes(self.reducer.as_ref().zip(self.update.as_ref()).map_or(0, of))
    }

    fn worst_rate(&self, flits: impl Fn(u64, u64) -> u64) -> f64 {
        let rows = RowTile::mean(self.tiling.tile_rows);
        let mut worst: f64 = 0.0;
        for column_tile in 0..self.work.len().max(1) as u64 {
            for group in 0..self.mapping.groups() {
                worst =
                    worst.max(flits(column_tile, group) as f64 / self.cycles(column_tile, group, rows).0.max(1) as f64);
            }
        }
        worst
    }

    /// Flits a cycle of one slice's activation stream while the stage runs (SIMD: of all PCUs on the slice).
    pub fn activation_rate(&self) -> f64 {
        let streams = if let Mapping::Simd(m) = &self.mapping { m.pn as f64 } else { 1.0 };
        self.worst_rate(|c, b| self.activation_flits(c, b, RowTile::mean(self.tiling.tile_rows))) * streams
    }

    /// Flits a cycle of one PCU column's weight stream.
    pub fn weight_rate(&self) -> f64 {
        self.worst_rate(|c, b| self.weight_flits(c, b, RowTile::mean(self.tiling.tile_rows)))
    }

    /// Flits a cycle of one PCU's partial sums, each way.
    pub fn partial_rate(&self) -> f64 {
        self.worst_rate(|c, b| self.partial_flits(c, b, RowTile::mean(self.tiling.tile_rows)))
    }

    /// Flits one event of a flow that feeds or leaves this stage moves, before the flow's share.
    #[inline]
    pub fn flits(&self, amount: Amount, column_tile: u64, group: u64, tile: RowTile) -> Flits {
        match amount {
            Amount::Activations => Flits(self.activation_flits(column_tile, group, tile)),
            Amount::Weights => Flits(self.weight_flits(column_tile, group, tile)),
            Amount::Partials => Flits(self.partial_flits(column_tile, group, tile)),
            Amount::ResultBytes => self.result_bytes(column_tile, group, tile).flits(self.flit_bytes),
            Amount::State => self.state_bytes(column_tile).flits(self.flit_bytes),
            Amount::SlotBytes => Flits(0),
        }
    }
}
