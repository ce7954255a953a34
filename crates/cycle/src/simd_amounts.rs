//! What a firing of a SIMD stage works through and moves: vectors of its operands and bytes of its results.
//!
//! Counted by the definitions of `docs/timing-model.md` (SIMD stages); nothing is shared with `cost`.

use rdusim_graph::arch::Chip;
use rdusim_graph::workload::OperatorKind;
use rdusim_program::{Amount, SectionGraph, SimdMapping, Stage, StageId, Tiling};

/// What the firings of a SIMD stage work through and move.
#[derive(Debug)]
pub(super) struct SimdAmounts {
    /// Times that each vector is read.
    pub(super) passes: u64,
    /// Row slices.
    pm: u64,
    /// Rows that the state of a firing before takes, beside those of the row tile.
    carried_rows: u64,
    lanes: u64,
    /// Flits of a vector of one operand.
    flits_of_vector: u64,
    flit_bytes: u64,
    result_bytes: u64,
    /// Columns that the first, widest column slice reads, and those of its result, column tile by column tile; one column
    /// tile if the columns are not cut.
    columns: Vec<(u64, u64)>,
}

impl SimdAmounts {
    /// Counts them; `None` if the chip lacks the data type.
    pub(super) fn new(
        chip: &Chip,
        graph: &SectionGraph<'_>,
        tiling: Tiling,
        index: StageId,
        stage: &Stage,
        mapping: &SimdMapping,
    ) -> Option<Self> {
        let operator = &graph.workload.operators[stage.spec.main];
        let output = &graph.workload.tensors[stage.spec.output];
        let dtype = graph.stage_dtype(index);
        let lanes = *chip.pcu.lanes.get(&dtype)?;
        let axis = graph.column_axis(stage.spec.output);
        let is_cut = tiling.cuts(axis);
        // Of scores, a run of keys for every head; of what the softmax makes of them, with statistics behind each.
        let keys = graph.cut_keys(tiling.tiled_axis);
        let statistics = keys.map_or(0, |keys| keys.statistics_of(stage.spec.output));
        let columns_of = |column_tile| match tiling.range_of(axis, column_tile) {
            Some(range) => (range.end - range.start) * keys.map_or(1, |keys| keys.heads),
            None => graph.simd_columns(index),
        };
        // Slices take whole groups of columns: a row, or its heads, of a function that needs them whole; of a step of Adam
        // the elements whose new weights share a word of the result, if these come out even.
        let groups = match operator.kind {
            OperatorKind::AdamUpdate => {
                let gradient = &graph.workload.tensors[operator.inputs[0]];
                let elements_of_word = (output.dtype.bytes() / gradient.dtype.bytes()).max(1);
                let is_even = gradient.columns.is_multiple_of(elements_of_word);
                Some(if is_even { gradient.columns / elements_of_word } else { 1 })
            }
            kind if kind.is_row_wise() => Some(operator.heads.max(1)),
            _ => None,
        };
        let of_slice = |width: u64, columns: u64| {
            let groups = groups.unwrap_or(width).max(1);
            columns.min(groups.div_ceil(mapping.pn) * columns.div_ceil(groups))
        };
        let read_and_made =
            |width: u64| (of_slice(width, width), of_slice(width, width.min(output.columns) + statistics));
        let column_tiles = if is_cut { tiling.column_tiles() } else { 1 };
        Some(Self {
            passes: mapping.passes,
            pm: mapping.pm,
            carried_rows: u64::from(operator.kind.is_carried()),
            lanes,
            flits_of_vector: (lanes * dtype.bytes()).div_ceil(chip.network.flit_bytes),
            flit_bytes: chip.network.flit_bytes,
            result_bytes: output.dtype.bytes(),
            columns: (0..column_tiles).map(|column_tile| read_and_made(columns_of(column_tile))).collect(),
        })
    }

    fn columns(&self, column_tile: u64) -> (u64, u64) {
        self.columns[(column_tile as usize).min(self.columns.len() - 1)]
    }

    /// Rows of a row tile of `rows` that the first, longest row slice has.
    pub(super) fn rows_of_slice(&self, rows: u64) -> u64 {
        rows.div_ceil(self.pm)
    }

    /// Vectors of a row.
    pub(super) fn vectors_of_row(&self, column_tile: u64) -> u64 {
        self.columns(column_tile).0.div_ceil(self.lanes)
    }

    /// Vectors that a firing reads of each operand, those that are read again counted again.
    pub(super) fn vectors_read(&self, column_tile: u64, rows: u64) -> u64 {
        (self.rows_of_slice(rows) + self.carried_rows) * self.vectors_of_row(column_tile) * self.passes
    }

    /// Flits that a firing moves. It has no weights and no partial sums.
    pub(super) fn flits(&self, amount: Amount, column_tile: u64, rows: u64) -> u64 {
        match amount {
            Amount::Activations => self.vectors_read(column_tile, rows) * self.flits_of_vector,
            Amount::ResultBytes => {
                (self.rows_of_slice(rows) * self.columns(column_tile).1 * self.result_bytes).div_ceil(self.flit_bytes)
            }
            Amount::Weights | Amount::Partials | Amount::State | Amount::SlotBytes => 0,
        }
    }
}
