//! Attention over tiles of keys on numbers: where the scores of a tile lie in their tensor, the softmax that keeps a running
//! maximum and sum of every row and head (Milakov and Gimelshein 2018), and the product that scales what it has added up.

use std::ops::Range;

use rdusim_base::index::Id;
use rdusim_graph::workload::TensorId;
use rdusim_program::{Iteration, KeyAxis, StageId};

use super::bounded::FP32;
use super::bounded_matrix::Bounded;
use super::layout::Layout;
use super::machine::Machine;
use super::made::Made;
use super::matrix::Matrix;
use super::number::round;
use super::running::Running;
use super::weights::SlotIndex;

impl Layout<'_> {
    /// The attention whose keys column tiles cut, of a tensor or result along them.
    fn keys_along(&self, tensor: TensorId) -> Option<&KeyAxis> {
        let cut = self.tiling.tiled_axis.filter(|cut| self.graph.column_axis(tensor) == Some(cut.axis));
        self.graph.cut_keys(cut)
    }

    /// Keys of a column tile.
    fn keys_in(&self, column_tile: u64) -> Range<u64> {
        self.tiling.column_range(column_tile).unwrap_or(0..0)
    }

    /// The first key of a column tile, of a tensor along the keys; 0 of others.
    pub(super) fn first_key(&self, tensor: TensorId, column_tile: u64) -> u64 {
        self.keys_along(tensor).map_or(0, |_| self.keys_in(column_tile).start)
    }

    /// A run of columns as column tiles count them, as runs of the tensor's columns: where in the run each begins, and its
    /// columns. Scores lie head by head in a column tile; statistics are no columns of the tensor.
    pub(super) fn runs_in_tensor(
        &self,
        tensor: TensorId,
        column_tile: u64,
        run: &Range<u64>,
    ) -> Vec<(usize, Range<u64>)> {
        let Some(keys) = self.keys_along(tensor) else { return vec![(0, run.clone())] };
        let first = self.columns(tensor, column_tile).start;
        let of_tile = self.keys_in(column_tile);
        let length = of_tile.end - of_tile.start;
        let each = length + keys.statistics_of(tensor) / keys.heads;
        let (from, to) = (run.start - first, run.end - first);
        let of_head = |head: u64| {
            let part = from.max(head * each)..to.min(head * each + length);
            let column = head * keys.extent + of_tile.start + part.start.saturating_sub(head * each);
            let count = part.end.saturating_sub(part.start);
            (count > 0).then(|| ((part.start - from) as usize, column..column + count))
        };
        (from / each..to.div_ceil(each)).filter_map(of_head).collect()
    }

    /// Whether a stage is a softmax over tiles of keys.
    pub(super) fn keeps_statistics(&self, stage: StageId) -> bool {
        let spec = &self.section.stages[stage].spec;
        self.keys_along(spec.output).is_some_and(|keys| keys.softmax == Some(spec.main))
    }

    /// Whether a stage scales the sums of the tiles of keys before: the product with the values.
    pub(super) fn rescales(&self, stage: StageId) -> bool {
        let spec = &self.section.stages[stage].spec;
        let first = spec.activations.first().copied();
        first
            .and_then(|tensor| self.keys_along(tensor))
            .is_some_and(|keys| keys.softmax.is_some() && keys.context == Some(spec.main))
    }
}

impl Machine<'_> {
    /// A softmax over a tile of keys on the rows and heads of one pipeline: the exponentials of each head, and behind them its
    /// statistics.
    pub(super) fn softmax_of_keys(
        &self,
        stage: StageId,
        scores: &Matrix,
        rows: Range<u64>,
        at: Iteration,
        run: Range<u64>,
    ) -> Made {
        let output = self.section.stages[stage].spec.output;
        let of_keys = self.layout.keys_along(output).map(|keys| (self.layout.keys_in(at.column_tile), keys.statistics));
        let (keys, statistics) = of_keys.unwrap_or((0..0, 0));
        let length = (keys.end - keys.start).max(1);
        let dtype = self.layout.graph.dtype(output);
        let first_row = self.layout.first_row(at.row_tile) + rows.start;
        let first_head = (run.start - self.layout.columns(output, at.column_tile).start) / (length + statistics);
        let vector = self.layout.workload.operators[self.section.stages[stage].spec.main].vectors.first();
        let sinks = vector.and_then(|vector| self.memory[vector.index()].as_ref());
        let mut running = self.running.borrow_mut();
        let mut values = Vec::with_capacity(scores.rows * (run.end - run.start) as usize);
        for row in 0..scores.rows {
            for (head, scores) in (first_head..).zip(scores.row(row).chunks(length as usize)) {
                let narrow: Vec<f32> = scores.iter().map(|&x| x as f32).collect();
                let begin = || Running::new(sinks.map(|sinks| sinks.row(0)[head as usize] as f32));
                let state = running.entry((stage.index(), first_row + row as u64, head)).or_insert_with(begin);
                if at.column_tile == 0 {
                    *state = begin();
                }
                let (exponentials, factor) = state.take(&narrow);
                values.extend(exponentials.into_iter().map(|x| round(dtype, x)));
                let mut behind = vec![0.0; statistics as usize];
                behind.iter_mut().zip([factor, state.sum]).for_each(|(to, x)| *to = f64::from(x));
                values.extend(behind);
            }
        }
        let matrix = Matrix { rows: scores.rows, columns: (run.end - run.start) as usize, values };
        Made { rows, columns: vec![run], values: vec![matrix] }
    }

    /// Brings the exponentials that a softmax over tiles of keys has emitted to the shares that they stand for, when the last
    /// tile has passed: of some rows and a run of columns of the last column tile.
    pub(super) fn normalise(&mut self, stage: StageId, rows: Range<u64>, at: Iteration, run: &Range<u64>) {
        let output = self.section.stages[stage].spec.output;
        let Some((extent, each)) = self.layout.keys_along(output).map(|keys| {
            let of_tile = self.layout.keys_in(at.column_tile);
            (keys.extent, of_tile.end - of_tile.start + keys.statistics)
        }) else {
            return;
        };
        let first = self.layout.columns(output, at.column_tile).start;
        let first_row = self.layout.first_row(at.row_tile);
        let running = self.running.borrow();
        for row in first_row + rows.start..first_row + rows.end {
            for head in (run.start - first) / each..(run.end - first).div_ceil(each) {
                let Some(state) = running.get(&(stage.index(), row, head)) else { continue };
                for tile in 0..=at.column_tile {
                    let (keys, share) = (self.layout.keys_in(tile), state.share(tile as usize));
                    let columns = head * extent + keys.start..head * extent + keys.end;
                    let line = self.emitted[stage].values.row_mut(row as usize);
                    for x in &mut line[columns.start as usize..columns.end as usize] {
                        *x *= share;
                    }
                }
            }
        }
    }

    /// The factors of a PCU's sums before, and the sums of exponentials, output tile by output tile, row by row.
    pub(super) fn statistics_of(
        &self,
        stage: StageId,
        at: Iteration,
        given: &Matrix,
        index: &SlotIndex,
    ) -> Vec<(f32, f32)> {
        let depth = self.layout.heads_tile(stage, at.column_tile).map_or(0, |tile| tile.form.k);
        let of_tile = |first: u64| {
            let of_row = move |row: usize| {
                let behind = &given.row(row)[(first + depth) as usize..];
                (behind[0] as f32, behind[1] as f32)
            };
            (0..given.rows).map(of_row)
        };
        index.tiles.iter().flat_map(|tile| of_tile(tile.first_activation)).collect()
    }
}

/// Multiplies the sums of every row of every output tile, in line, with a number of its own.
pub(super) fn scale(sums: &mut [f64], index: &SlotIndex, factors: impl Iterator<Item = f32>, rows: usize) {
    let widths = index.tiles.iter().flat_map(|tile| std::iter::repeat_n(tile.columns.end - tile.columns.start, rows));
    let mut rest = sums;
    for (width, factor) in widths.zip(factors) {
        let (line, behind) = rest.split_at_mut(width as usize);
        for x in line.iter_mut() {
            *x = f64::from(*x as f32 * factor);
        }
        rest = behind;
    }
}

/// Shares as a product over so many tiles of keys takes them; exact of none. It has exponentials below the maximum of their tile,
/// and multiplies its sums with a factor in fp32 for every tile behind and with the reciprocal of a sum: each is an exponential
/// of 4 ulps and a difference of maxima at most, which together are no larger than the widest difference of two scores.
pub(super) fn bounded(shares: Matrix, tiles: u64) -> Bounded {
    let mut given = Bounded::exact(shares);
    if tiles > 0 {
        let relative = (16 * tiles + 64) as f64 * FP32;
        given.error.values.iter_mut().zip(&given.value.values).for_each(|(error, x)| *error = relative * x.abs());
    }
    given
}
