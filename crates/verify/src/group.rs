//! One firing of a lockstep group of PCUs: operands over their feeds, sums, results over their flows.

use std::ops::Range;

use rdusim_base::index::Id;
use rdusim_graph::workload::{CausalAxis, OperatorKind, TensorId};
use rdusim_program::{
    Amount, Buffer, BufferId, BufferRole, FlowEnd, FlowId, Iteration, Mapping, PcuId, StageId, continues, forwards,
    merges,
};

use super::block::{self, Block, write};
use super::compute;
use super::fault::Fault;
use super::flow_share::part_columns;
use super::inbox::{Incoming, Operand};
use super::keys;
use super::layout::ArrayPlace;
use super::machine::Machine;
use super::made::Made;
use super::matrix::Matrix;
use super::meaning::Causal;
use super::recurrent_functions;
use super::wires::Unit;

/// What one PCU does when its group fires.
#[derive(Clone, Copy)]
pub(super) struct Firing {
    pub actor: usize,
    pub stage: StageId,
    pub group: u64,
    /// The PCU's place in its group.
    pub place: ArrayPlace,
    pub pcu: PcuId,
    pub at: Iteration,
}

impl Machine<'_> {
    /// Feeds, computes, and sends results or partial sums.
    pub(super) fn group(
        &mut self,
        actor: usize,
        stage: StageId,
        group: u64,
        at: Iteration,
        emits: bool,
    ) -> Result<(), Fault> {
        let s = &self.section.stages[stage];
        self.feed(actor, group, at, emits);
        let first_column_tile = !continues(s, group, self.layout.schedule, at);
        if !first_column_tile {
            self.read_partials(actor, at, emits || forwards(s, group, self.layout.schedule, at))?;
        }
        if merges(s, group, self.layout.schedule, at) {
            for n in 0..self.actors[actor].merges.len() {
                let f = self.actors[actor].merges[n];
                let Some(end) = self.section.flows[f].reads else { continue };
                if let Some(block) = self.take(f, 0, end, at, None) {
                    let operand = self.operand_of(f);
                    self.hand_over(f, operand, block);
                }
            }
        }
        let (pm, wide) = (s.mapping.pm(), s.group_width());
        let chain = if let Mapping::Simd(m) = s.mapping { m.chain } else { 1 };
        let mut made = Vec::new();
        for (i, q) in (0..pm).flat_map(|i| (0..wide).map(move |q| (i, q))) {
            // A chain's results leave from its last PCU.
            let pcu = s.pcu(group, i, q * chain + chain - 1);
            let firing = Firing { actor, stage, group, place: ArrayPlace { row_slice: i, column: q }, pcu, at };
            let sums = match s.mapping {
                Mapping::Gemm(_) if s.spec.sums.is_some() => {
                    let mut made = self.add_up(firing, !first_column_tile)?;
                    // What the step in the tail reads lies behind the sums.
                    made.values.extend(self.state_of(firing).filter(|_| emits).transpose()?);
                    made
                }
                Mapping::Gemm(_) => self.gemm(firing, first_column_tile)?,
                Mapping::Simd(_) => self.simd(firing)?,
            };
            made.push((pcu, sums));
        }
        for offset in 0..pm * wide * chain {
            let pcu = s.pcus[(group * pm * wide * chain + offset) as usize];
            self.inbox[pcu.index()].clear();
        }
        match (emits, s.spec.sums) {
            (false, _) if forwards(s, group, self.layout.schedule, at) => self.forward(actor, at, &made),
            (false, _) => self.write_partials(actor, stage, at, &made),
            (true, None) => self.emit(actor, stage, at, &made),
            (true, Some(_)) => self.emit_sums(actor, stage, at, &made),
        }
    }

    /// Operands from PMUs to PCUs, and along chains of PCUs.
    fn feed(&mut self, actor: usize, group: u64, at: Iteration, emits: bool) {
        for n in 0..self.actors[actor].feeds.len() {
            let f = self.actors[actor].feeds[n];
            if self.section.flows[f].amount == Amount::State && !emits {
                continue;
            }
            let Some(end) = self.section.flows[f].reads else { continue };
            let operand = self.operand_of(f);
            let columns = self.pipeline_columns(f, end, at);
            let buffer = &self.section.buffers[end.buffer];
            let windows = self.layout.held(buffer, at, end.slice);
            let taken = columns.as_ref().filter(|_| windows.is_none());
            let taken = match self.sequence(self.actors[actor].kind, end.buffer) {
                Some(read) => self.take_second(f, end, at, read),
                None => self.take(f, group, end, at, taken),
            };
            let Some(mut block) = taken else { continue };
            if let Some(windows) = windows {
                let whole = windows.expanded(&block, self.beside(buffer));
                let held = whole.column as u64..(whole.column + whole.values.columns) as u64;
                let wanted = columns.as_ref().map_or(held.clone(), |c| c.start.max(held.start)..c.end.min(held.end));
                let from = wanted.start.max(held.start) - held.start;
                block = block::cut(
                    &whole.values,
                    0..whole.values.rows,
                    &(from..from.max(wanted.end.saturating_sub(held.start))),
                );
                block.column += whole.column;
            }
            if let Some(columns) = columns {
                // A pipeline counts its columns from its first.
                block.column = block.column.saturating_sub(columns.start as usize);
            }
            self.hand_over(f, operand, block);
        }
        // Chains hand on what their first PCUs have by now.
        for n in 0..self.actors[actor].feeds.len() {
            let f = self.actors[actor].feeds[n];
            if self.section.flows[f].reads.is_none() {
                self.pass_on(f);
            }
        }
    }

    /// What stands in a window for what lies beside the image.
    fn beside(&self, buffer: &Buffer) -> f64 {
        let BufferRole::Operand { stage, .. } = buffer.spec.role else { return 0.0 };
        match self.layout.graph.kind(stage) {
            OperatorKind::MaxPool => f64::NEG_INFINITY,
            OperatorKind::RestProduct => 1.0,
            _ => 0.0,
        }
    }

    /// A PCU of a chain forwards what it has to the next.
    fn pass_on(&mut self, flow: FlowId) {
        let Some(Unit::Pcu(from)) = self.traces[flow].source else { return };
        let held = self.inbox[from.index()].clone();
        for sink in &self.traces[flow].sinks {
            if let Some(Unit::Pcu(to)) = sink {
                self.inbox[to.index()].extend(held.iter().cloned());
            }
        }
    }

    /// Columns of its operand that the SIMD pipeline at the end of a flow works on.
    fn pipeline_columns(&self, flow: FlowId, end: FlowEnd, at: Iteration) -> Option<Range<u64>> {
        let Some(&Some(Unit::Pcu(pcu))) = self.traces[flow].sinks.first() else { return None };
        let stage = self.section.stages.position(|s| s.pcus.contains(&pcu))?;
        let s = &self.section.stages[stage];
        let Mapping::Simd(m) = s.mapping else { return None };
        let position = s.pcus.iter().position(|&p| p == pcu)? as u64;
        let BufferRole::Operand { tensor, .. } = self.section.buffers[end.buffer].spec.role else { return None };
        Some(self.part_of(stage, tensor, at, position / m.chain % m.pn))
    }

    /// Columns of a tensor that a SIMD pipeline takes or makes, counted from the column tile's first.
    fn part_of(&self, stage: StageId, tensor: TensorId, at: Iteration, slice: u64) -> Range<u64> {
        let columns = self.layout.columns(tensor, at.column_tile);
        let is_shared = self.layout.graph.is_shared(stage, tensor);
        self.layout.work[stage].given_to(columns.end - columns.start, is_shared, at.column_tile, slice)
    }

    /// What has arrived at a PCU.
    pub(super) fn arrived(&self, pcu: PcuId) -> impl Iterator<Item = &Incoming> {
        self.inbox[pcu.index()].iter()
    }

    /// One operand of a PCU, put together from what arrived.
    pub(super) fn operand(
        &self,
        actor: usize,
        pcu: PcuId,
        operand: Operand,
        rows: u64,
        columns: u64,
        name: &str,
    ) -> Result<Matrix, Fault> {
        let mut matrix = Matrix::unwritten(rows as usize, columns as usize);
        for incoming in self.inbox[pcu.index()].iter().filter(|incoming| incoming.operand == operand) {
            if let Err((row, column)) = write(&mut matrix, &incoming.block, &(0..u64::MAX)) {
                let what =
                    format!("row {row}, column {column} of its tile of {name} comes twice, or does not belong to it");
                return Err(self.fault(actor, Some(Unit::Pcu(pcu)), what));
            }
        }
        if let Some((row, column)) = matrix.first_unwritten() {
            let what = format!("row {row}, column {column} of its tile of {name} never arrived");
            return Err(self.fault(actor, Some(Unit::Pcu(pcu)), what));
        }
        Ok(matrix)
    }

    fn gemm(&self, firing: Firing, first_column_tile: bool) -> Result<Made, Fault> {
        let Firing { actor, stage, group, place: ArrayPlace { row_slice: i, column: q }, pcu, at } = firing;
        let s = &self.section.stages[stage];
        let rows = self.layout.work[stage].slice_rows(self.layout.tiling.rows_of(at.row_tile), i);
        let slice = group * s.group_width() + q;
        let (Some(weight), Some(index)) = (s.spec.weight, self.layout.weight_index(stage, at.column_tile, slice))
        else {
            return Ok(Made { rows, columns: Vec::new(), values: Vec::new() });
        };
        let count = rows.end - rows.start;
        let input = s.spec.activations[0];
        let stream = q * s.mapping.streams() / s.group_width();
        let width = self.layout.columns_given(stage, at.column_tile, stream + s.mapping.k_slice(group));
        let quoted = |tensor| format!("`{}`", self.tensor_name(tensor));
        let shape = (count, width.end - width.start);
        let activations = self.operand(actor, pcu, Operand::Activation(0), shape.0, shape.1, &quoted(input))?;
        let weights = match s.spec.sequence {
            Some(read) => self.second_operand(firing, slice, read, &quoted(weight))?,
            None => self.operand(actor, pcu, Operand::Weights, 1, index.values as u64, &quoted(weight))?,
        };
        let mut partials = if first_column_tile {
            None
        } else {
            let name = format!("partial sums of {}", quoted(s.spec.output));
            Some(self.operand(actor, pcu, Operand::Partials, 1, count * index.columns(), &name)?)
        };
        let rescales = self.layout.rescales(stage);
        let statistics = if rescales { self.statistics_of(stage, at, &activations, index) } else { Vec::new() };
        if let Some(partials) = &mut partials {
            keys::scale(&mut partials.values, index, statistics.iter().map(|of| of.0), count as usize);
        }
        let dtype = self.layout.graph.stage_dtype(stage);
        let operator = &self.layout.workload.operators[s.spec.main];
        let form = self.layout.graph.form(stage);
        let first_row = self.layout.first_row(at.row_tile) + rows.start;
        let causal = form.and_then(|form| Some((Causal::of(operator, &form)?, form.m)));
        let keeps = causal.map(|(causal, m)| {
            move |axis, row: usize, other| causal.axis != axis || causal.keeps((first_row + row as u64) % m, other)
        });
        let keeps = keeps.as_ref().map(|keeps| keeps as &dyn Fn(CausalAxis, usize, u64) -> bool);
        let partials = partials.as_ref().map(|p| &p.values[..]);
        let mut sums = compute::gemm(dtype, &activations, index, &weights.values, partials, keeps);
        if merges(s, group, self.layout.schedule, at) {
            for other in s.mapping.reduction().before(s.mapping.k_slice(group), s.mapping.pk()) {
                let name = format!("sums of K slice {other} of {}", quoted(s.spec.output));
                let merged = self.operand(actor, pcu, Operand::Merged(other), 1, sums.len() as u64, &name)?;
                compute::add(dtype, &mut sums, &merged.values);
            }
        }
        if self.layout.schedule.ends(s.level, s.result_level(), at).1 {
            keys::scale(&mut sums, index, statistics.iter().map(|of| 1.0 / of.1), count as usize);
        }
        // Columns of heads count from the first of the column tile.
        let first = form.map_or(0, |_| self.layout.columns(s.spec.output, at.column_tile).start);
        let (mut columns, mut values, mut next) = (Vec::new(), Vec::new(), 0);
        for tile in &index.tiles {
            let width = (tile.columns.end - tile.columns.start) as usize;
            let end = next + width * count as usize;
            columns.push(first + tile.columns.start..first + tile.columns.end);
            values.push(Matrix { rows: count as usize, columns: width, values: sums[next..end].to_vec() });
            next = end;
        }
        Ok(Made { rows, columns, values })
    }

    fn simd(&self, firing: Firing) -> Result<Made, Fault> {
        let Firing { actor, stage, place: ArrayPlace { row_slice: i, column: j }, pcu, at, .. } = firing;
        let s = &self.section.stages[stage];
        let work = &self.layout.work[stage];
        let rows = work.slice_rows(self.layout.tiling.rows_of(at.row_tile), i);
        let columns = self.part_of(stage, s.spec.output, at, j);
        let mut operands = Vec::new();
        for (n, &tensor) in s.spec.activations.iter().enumerate() {
            let given = self.part_of(stage, tensor, at, j);
            let shape = (rows.end - rows.start, given.end - given.start);
            let name = format!("`{}`", self.tensor_name(tensor));
            operands.push(self.operand(actor, pcu, Operand::Activation(n), shape.0, shape.1, &name)?);
        }
        let first = self.layout.columns(s.spec.output, at.column_tile).start;
        let run = first + columns.start..first + columns.end;
        if self.layout.keeps_statistics(stage) {
            return Ok(self.softmax_of_keys(stage, &operands[0], rows, at, run));
        }
        let first_row = self.layout.first_row(at.row_tile) + rows.start;
        let argument = |tensor: TensorId| self.memory[tensor.index()].as_ref();
        if recurrent_functions::is_recurrent(self.layout.graph.kind(stage)) {
            let place = (first_row, run.start);
            return Ok(Made {
                rows,
                columns: Vec::from([run]),
                values: vec![self.recurrent(stage, &operands, place, j)],
            });
        }
        let simd = |operands: &[Matrix], column| {
            compute::simd(self.layout.workload, &s.spec, operands, first_row, column, argument)
        };
        let runs = self.layout.runs_in_tensor(s.spec.output, at.column_tile, &run);
        let [(0, whole)] = runs.as_slice() else {
            // Scores of several heads, one head after the other.
            let mut values = Matrix::unwritten((rows.end - rows.start) as usize, (run.end - run.start) as usize);
            for (first, columns) in runs {
                let here = first as u64..first as u64 + columns.end - columns.start;
                let part = |of: &Matrix| block::cut(of, 0..of.rows, &here).values;
                let parts: Vec<Matrix> = operands.iter().map(part).collect();
                let values_here = Block { row: 0, column: first, values: simd(&parts, columns.start) };
                if write(&mut values, &values_here, &(0..u64::MAX)).is_err() {
                    return Err(self.fault(actor, Some(Unit::Pcu(pcu)), "it computes a column twice".to_owned()));
                }
            }
            return Ok(Made { rows, columns: Vec::from([run]), values: vec![values] });
        };
        let values = vec![simd(&operands, whole.start)];
        Ok(Made { rows, columns: Vec::from([run]), values })
    }

    /// The part of a pipeline of a recurrence, from the state that its rows before left.
    fn recurrent(&self, stage: StageId, operands: &[Matrix], first: (u64, u64), slice: u64) -> Matrix {
        let spec = &self.section.stages[stage].spec;
        let operator = &self.layout.workload.operators[spec.main];
        let operand = |n: usize| {
            let input = operator.inputs.get(n).or(operator.inputs.last());
            &operands[spec.activations.iter().position(|t| Some(t) == input).unwrap_or(0)]
        };
        let vectors = operator.vectors.iter().filter_map(|&v| self.memory[v.index()].as_ref()).collect();
        let given = recurrent_functions::Given { operands: [operand(0), operand(1)], vectors, first };
        let mut carried = self.carried.borrow_mut();
        let state = carried.entry((stage.index(), slice)).or_default();
        recurrent_functions::pipeline(self.layout.workload, operator, &given, state)
    }

    /// Results into every buffer that takes them; what each PCU emits is noted.
    fn emit(&mut self, actor: usize, stage: StageId, at: Iteration, made: &[(PcuId, Made)]) -> Result<(), Fault> {
        let spec = &self.section.stages[stage].spec;
        let is_gemm = spec.weight.is_some();
        let first_row = self.layout.first_row(at.row_tile);
        let argument = |tensor: TensorId| self.memory[tensor.index()].as_ref();
        let finish = |made: &Made, run: &Range<u64>, m: &Matrix| {
            // An output tile lies in one head.
            let columns = self.layout.runs_in_tensor(spec.output, at.column_tile, run);
            let column = columns.first().map_or(run.start, |(_, columns)| columns.start);
            let place = (first_row + made.rows.start, column, m.columns);
            let values = if is_gemm {
                compute::finish(self.layout.workload, spec, &m.values, place.0, place.1, place.2, argument)
            } else {
                m.values.clone()
            };
            Matrix { rows: m.rows, columns: m.columns, values }
        };
        let finish = |made: &Made| -> Vec<Matrix> {
            made.columns.iter().zip(&made.values).map(|(run, m)| finish(made, run, m)).collect()
        };
        let results: Vec<(PcuId, &Made, Vec<Matrix>)> =
            made.iter().map(|(pcu, made)| (*pcu, made, finish(made))).collect();
        self.note(actor, stage, at, &results)?;
        for n in 0..self.actors[actor].results.len() {
            let f = self.actors[actor].results[n];
            let Some(end) = self.section.flows[f].writes else { continue };
            let Some(Unit::Pcu(source)) = self.traces[f].source else { continue };
            let buffer = &self.section.buffers[end.buffer];
            if let BufferRole::Weight { .. } = buffer.spec.role {
                for (_, made, values) in results.iter().filter(|(pcu, ..)| *pcu == source) {
                    self.emit_second(actor, f, end, at, made, values)?;
                }
                continue;
            }
            let (taken, width) = self.layout.extent(buffer, at, end.slice);
            let span = part_columns(buffer, end, width.end - width.start);
            // Columns count from the first of the slice.
            let first = self.layout.columns(spec.output, at.column_tile).start + width.start;
            for (_, made, values) in results.iter().filter(|(pcu, ..)| *pcu == source) {
                let rows = made.rows.start.max(taken.start)..made.rows.end.min(taken.end);
                if rows.is_empty() {
                    continue;
                }
                for (run, values) in made.columns.iter().zip(values) {
                    let wanted = run.start.max(first + span.start)..run.end.min(first + span.end);
                    if wanted.is_empty() {
                        continue;
                    }
                    let from = (rows.start - made.rows.start) as usize..(rows.end - made.rows.start) as usize;
                    let cut = block::cut(values, from, &(wanted.start - run.start..wanted.end - run.start));
                    let row = (rows.start - taken.start) as usize;
                    let block = Block { row, column: (wanted.start - first) as usize, values: cut.values };
                    self.deliver(actor, f, end, at, &block)?;
                }
            }
        }
        Ok(())
    }

    /// Notes what a stage emits, and where it came from.
    fn note(
        &mut self,
        actor: usize,
        stage: StageId,
        at: Iteration,
        results: &[(PcuId, &Made, Vec<Matrix>)],
    ) -> Result<(), Fault> {
        let first_row = self.layout.first_row(at.row_tile) as usize;
        let output = self.section.stages[stage].spec.output;
        let mut outside = None;
        for (pcu, made, values) in results {
            for (run, values) in made.columns.iter().zip(values) {
                for (first, columns) in self.layout.runs_in_tensor(output, at.column_tile, run) {
                    let emitted = &mut self.emitted[stage];
                    if columns.end as usize > emitted.values.columns {
                        outside = Some((*pcu, columns.end));
                        continue;
                    }
                    let (start, end) = (columns.start as usize, columns.end as usize);
                    for row in 0..values.rows {
                        let to = first_row + made.rows.start as usize + row;
                        let line = &values.row(row)[first..first + end - start];
                        emitted.values.row_mut(to)[start..end].copy_from_slice(line);
                        let width = emitted.values.columns;
                        emitted.from[to * width + start..to * width + end].fill(pcu.index() as u32);
                    }
                }
                if self.layout.keeps_statistics(stage) && at.column_tile + 1 == self.layout.tiling.column_tiles() {
                    self.normalise(stage, made.rows.clone(), at, run);
                }
            }
        }
        match outside {
            Some((pcu, end)) => {
                let what = format!("it computes up to column {end}, behind the last of its output");
                Err(self.fault(actor, Some(Unit::Pcu(pcu)), what))
            }
            None => Ok(()),
        }
    }

    /// The piece and ring of partial sums behind a flow's end.
    fn partial_piece(&self, end: FlowEnd) -> usize {
        debug_assert!(matches!(self.section.buffers[end.buffer].spec.role, BufferRole::PartialSums { .. }));
        end.slice as usize
    }

    /// Hands over the sums that a firing starts from; `last`: nobody does again.
    fn read_partials(&mut self, actor: usize, at: Iteration, last: bool) -> Result<(), Fault> {
        let mut ended = Vec::new();
        for n in 0..self.actors[actor].partial_reads.len() {
            let f = self.actors[actor].partial_reads[n];
            let Some(end) = self.section.flows[f].reads else { continue };
            let buffer = &self.section.buffers[end.buffer];
            if matches!(buffer.spec.role, BufferRole::PartialFifo { .. }) {
                if let Some(block) = self.take(f, 0, end, at, None) {
                    self.hand_over(f, Operand::Partials, block);
                }
                continue;
            }
            let piece = buffer.piece(0, end.slice);
            let Some(part) = piece.parts.get(end.part) else { continue };
            let ring = &self.partials[end.buffer][self.partial_piece(end)];
            let slot = self.slot(end.buffer, at);
            let Some(sums) = ring.piece(slot, 0) else {
                let what = format!(
                    "the {} of {} are gone",
                    self.layout.buffer_name(buffer),
                    self.layout.slot_name(buffer, slot)
                );
                return Err(self.fault(actor, Some(Unit::Pmu(part.pmu)), what));
            };
            if self.traces[f].source == Some(Unit::Pmu(part.pmu)) {
                let block = block::cut(sums, 0..1, &piece.span(end.part, sums.columns as u64));
                self.hand_over(f, Operand::Partials, block);
            }
            if last && !ended.contains(&(end.buffer, end.slice as usize)) {
                ended.push((end.buffer, end.slice as usize));
            }
        }
        for (buffer, piece) in ended {
            let slot = self.slot(buffer, at);
            self.partials[buffer][piece].release(slot);
        }
        Ok(())
    }

    /// Hands sums on to another slice of K.
    fn forward(&mut self, actor: usize, at: Iteration, made: &[(PcuId, Made)]) -> Result<(), Fault> {
        for n in 0..self.actors[actor].forwards.len() {
            let f = self.actors[actor].forwards[n];
            let Some(end) = self.section.flows[f].writes else { continue };
            let made = made.iter().find(|(pcu, _)| self.traces[f].source == Some(Unit::Pcu(*pcu)));
            if let Some((_, made)) = made {
                self.deliver(actor, f, end, at, &made.in_line())?;
            }
        }
        Ok(())
    }

    fn write_partials(
        &mut self,
        actor: usize,
        stage: StageId,
        at: Iteration,
        made: &[(PcuId, Made)],
    ) -> Result<(), Fault> {
        let mut begun: Vec<(BufferId, usize)> = Vec::new();
        for n in 0..self.actors[actor].partial_writes.len() {
            let f = self.actors[actor].partial_writes[n];
            let Some(end) = self.section.flows[f].writes else { continue };
            let buffer = &self.section.buffers[end.buffer];
            let piece = buffer.piece(0, end.slice);
            let Some(part) = piece.parts.get(end.part) else { continue };
            let number = self.partial_piece(end);
            let width = self.layout.extent(buffer, at, end.slice).1.end;
            if !begun.contains(&(end.buffer, number)) {
                begun.push((end.buffer, number));
                let slot = self.slot(end.buffer, at);
                let ring = &mut self.partials[end.buffer][number];
                if let Err(held) = ring.claim(slot, || vec![Matrix::unwritten(1, width as usize)]) {
                    let what = format!(
                        "the {} of {} overwrite those of {} before their last read: the buffer has {} slots",
                        self.layout.buffer_name(buffer),
                        self.layout.slot_name(buffer, slot),
                        self.layout.slot_name(buffer, held),
                        ring.depth()
                    );
                    return Err(self.fault(actor, Some(Unit::Pmu(part.pmu)), what));
                }
                if let Some(sums) = ring.piece_mut(slot, 0) {
                    *sums = Matrix::unwritten(1, width as usize);
                }
                if width * 4 > buffer.spec.slot_bytes {
                    let what = format!(
                        "{width} partial sums of `{}` have no room in {} bytes",
                        self.layout.stage_name(stage),
                        buffer.spec.slot_bytes
                    );
                    return Err(self.fault(actor, Some(Unit::Pmu(part.pmu)), what));
                }
            }
            let Some(Unit::Pcu(source)) = self.traces[f].source else { continue };
            let Some((_, made)) = made.iter().find(|(pcu, _)| *pcu == source) else { continue };
            if self.traces[f].sinks.first() != Some(&Some(Unit::Pmu(part.pmu))) {
                continue;
            }
            let block = made.in_line();
            let span = piece.span(end.part, width);
            let slot = self.slot(end.buffer, at);
            let Some(sums) = self.partials[end.buffer][number].piece_mut(slot, 0) else { continue };
            if write(sums, &block, &span).is_err() {
                let what = format!(
                    "partial sums of `{}` are written twice, or where they have no place",
                    self.layout.stage_name(stage)
                );
                return Err(self.fault(actor, Some(Unit::Pmu(part.pmu)), what));
            }
        }
        Ok(())
    }
}
