//! Stages that add up over the rows of a section: what their PCUs take of both operands, and what they make of it.

use rdusim_base::index::Id;
use rdusim_base::units::Dtype;
use rdusim_cost::cost::Reducer;
use rdusim_graph::workload::{CausalAxis, TensorId};
use rdusim_program::{Iteration, PcuId, StageId};

use super::block::{Block, cut, write};
use super::compute;
use super::fault::Fault;
use super::flow_share::part_columns;
use super::group::Firing;
use super::inbox::Operand;
use super::layout::{ArrayPlace, part_of_sums};
use super::machine::Machine;
use super::made::Made;
use super::matrix::{Matrix, is_unwritten};
use super::meaning::Causal;
use super::wires::Unit;

impl Machine<'_> {
    /// The sums of one PCU after a row tile: rows of the result by columns, head after head.
    pub(super) fn add_up(&self, firing: Firing, continues: bool) -> Result<Made, Fault> {
        let Firing { actor, stage, place, pcu, at, .. } = firing;
        let ArrayPlace { row_slice: i, column: q } = place;
        let spec = &self.section.stages[stage].spec;
        let Some(reducer) = self.layout.work[stage].reducer() else {
            return Ok(Made { rows: 0..0, columns: Vec::new(), values: Vec::new() });
        };
        let count = self.layout.tiling.rows_of(at.row_tile);
        let x = self.taken(firing, 0, reducer)?;
        let dy = self.taken(firing, 1, reducer)?;
        let (rows, columns, heads) =
            (reducer.rows_of(at.column_tile, i), reducer.columns_of(at.column_tile, q), reducer.heads_of(q));
        let (m, n) = part_of_sums(reducer, at.column_tile, place);
        let sums = if continues {
            let name = format!("partial sums of `{}`", self.tensor_name(spec.output));
            self.operand(actor, pcu, Operand::Partials, 1, m * n, &name)?
        } else {
            Matrix { rows: 1, columns: (m * n) as usize, values: vec![0.0; (m * n) as usize] }
        };
        let whole = self.layout.graph.stage_dtype(stage) == Dtype::Int8;
        let operator = &self.layout.workload.operators[spec.main];
        let causal = self.layout.graph.form(stage).and_then(|form| Causal::of(operator, &form));
        let causal = causal.filter(|causal| causal.axis == CausalAxis::Depth);
        let (all_rows, all_columns) = (reducer.rows(at.column_tile), reducer.columns(at.column_tile));
        let widths = (all_rows.end - all_rows.start, all_columns.end - all_columns.start);
        let first_row = self.layout.first_row(at.row_tile);
        let mut values = Vec::with_capacity(heads.clone().count());
        let mut next = 0;
        for head in heads {
            let mut list = Vec::with_capacity((m * (columns.end - columns.start)) as usize);
            for row in rows.clone() {
                for column in columns.clone() {
                    let (mut sum, mut integer) = (sums.values[next] as f32, sums.values[next] as i32);
                    next += 1;
                    for of in head * reducer.group()..(head + 1) * reducer.group() {
                        let (a, b) = (of * widths.0 + row - all_rows.start, of * widths.1 + column - all_columns.start);
                        for t in 0..count {
                            if causal.is_some_and(|causal| !causal.keeps(row, first_row + t)) {
                                continue;
                            }
                            let (a, b) = (x.row(t as usize)[a as usize], dy.row(t as usize)[b as usize]);
                            sum += a as f32 * b as f32;
                            integer = integer.wrapping_add((a as i32).wrapping_mul(b as i32));
                        }
                    }
                    list.push(if whole { f64::from(integer) } else { f64::from(sum) });
                }
            }
            let width = (columns.end - columns.start) as usize;
            values.push(Matrix { rows: m as usize, columns: width, values: list });
        }
        Ok(Made { rows, columns: Vec::new(), values })
    }

    /// What the step in the tail of a PCU reads; `None` if there is no step.
    pub(super) fn state_of(&self, firing: Firing) -> Option<Result<Matrix, Fault>> {
        let Firing { actor, stage, place, pcu, at, .. } = firing;
        let update = self.section.stages[stage].spec.update?;
        let (m, n) = part_of_sums(self.layout.work[stage].reducer()?, at.column_tile, place);
        let name = format!("`{}`", self.tensor_name(update.state));
        Some(self.operand(actor, pcu, Operand::State, m, n / update.word * update.state_columns, &name))
    }

    /// An operand of a PCU: all rows of the row tile, and of the columns those it takes.
    fn taken(&self, firing: Firing, operand: usize, reducer: &Reducer) -> Result<Matrix, Fault> {
        let Firing { actor, stage, place, pcu, at, .. } = firing;
        let tensor: TensorId = self.section.stages[stage].spec.activations[operand];
        let rows = self.layout.tiling.rows_of(at.row_tile) as usize;
        let mut matrix = Matrix::unwritten(rows, reducer.width(at.column_tile, operand) as usize);
        let kind = if operand == 0 { Operand::Activation(0) } else { Operand::Weights };
        for incoming in self.inbox[pcu.index()].iter().filter(|incoming| incoming.operand == kind) {
            if let Err((row, column)) = write(&mut matrix, &incoming.block, &(0..u64::MAX)) {
                let what = format!(
                    "row {row}, column {column} of `{}` comes twice, or does not belong to it",
                    self.tensor_name(tensor)
                );
                return Err(self.fault(actor, Some(Unit::Pcu(pcu)), what));
            }
        }
        for run in reducer.wanted(at.column_tile, operand, place.row_slice, place.column) {
            let missing = |row: &usize| {
                matrix.row(*row)[run.start as usize..run.end as usize].iter().any(|&value| is_unwritten(value))
            };
            if let Some(row) = (0..rows).find(missing) {
                let what = format!(
                    "part of row {row}, columns {}..{} of `{}` never arrived",
                    run.start,
                    run.end,
                    self.tensor_name(tensor)
                );
                return Err(self.fault(actor, Some(Unit::Pcu(pcu)), what));
            }
        }
        Ok(matrix)
    }

    /// Results of a stage that adds up into the store buffer beside each of its PCUs.
    pub(super) fn emit_sums(
        &mut self,
        actor: usize,
        stage: StageId,
        at: Iteration,
        made: &[(PcuId, Made)],
    ) -> Result<(), Fault> {
        let s = &self.section.stages[stage];
        let wide = s.group_width();
        let mut results: Vec<(PcuId, Matrix)> = Vec::with_capacity(made.len());
        for (slice, (pcu, made)) in (0..).zip(made) {
            let of = ArrayPlace { row_slice: slice / wide, column: slice % wide };
            let rows = (made.rows.end - made.rows.start) as usize;
            let mut whole: Vec<Vec<f64>> = vec![Vec::new(); rows];
            let heads = match (s.spec.update, made.values.as_slice()) {
                (Some(update), [sums, state]) => {
                    whole = compute::update(self.layout.workload, update.operator, sums, state);
                    &[]
                }
                (_, heads) => heads,
            };
            for head in heads {
                let (row, column) =
                    self.layout.place_of_sum(stage, at, of, 0, whole.first().map_or(0, Vec::len) as u64);
                let argument = |tensor: TensorId| self.memory[tensor.index()].as_ref();
                let at = (row, column, head.columns);
                let values = compute::finish(self.layout.workload, &s.spec, &head.values, at.0, at.1, at.2, argument);
                for (line, values) in whole.iter_mut().zip(values.chunks(head.columns.max(1))) {
                    line.extend_from_slice(values);
                }
            }
            let columns = whole.first().map_or(0, Vec::len);
            for (row, line) in whole.iter().enumerate() {
                for (column, &value) in line.iter().enumerate() {
                    let place = (row as u64, column as u64);
                    let (row, column) = self.layout.place_in(s.spec.output, stage, at, of, place.0, place.1);
                    let emitted = &mut self.emitted[stage];
                    emitted.values.row_mut(row as usize)[column as usize] = value;
                    emitted.from[row as usize * emitted.values.columns + column as usize] = pcu.index() as u32;
                }
            }
            results.push((*pcu, Matrix { rows, columns, values: whole.concat() }));
        }
        for n in 0..self.actors[actor].results.len() {
            let f = self.actors[actor].results[n];
            let Some(end) = self.section.flows[f].writes else { continue };
            let Some(Unit::Pcu(source)) = self.traces[f].source else { continue };
            let Some((_, values)) = results.iter().find(|(pcu, _)| *pcu == source) else { continue };
            let span = part_columns(&self.section.buffers[end.buffer], end, values.columns as u64);
            let block = cut(values, 0..values.rows, &span);
            self.deliver(actor, f, end, at, &Block { row: 0, ..block })?;
        }
        Ok(())
    }
}
