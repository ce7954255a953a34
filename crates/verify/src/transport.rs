//! Moving blocks of numbers over flows: out of a source, along its links, into whatever stands at the ports they reach.

use std::ops::Range;
use std::rc::Rc;

use rdusim_base::index::Id;
use rdusim_graph::workload::TensorId;
use rdusim_program::{Amount, BufferId, BufferRole, FlowEnd, FlowId, FlowKind, Iteration, StageId, StreamId};

use super::block::{Block, cut, write};
use super::fault::Fault;
use super::flow_share::part_columns;
use super::inbox::{Incoming, Operand};
use super::layout::ArrayPlace;
use super::machine::Machine;
use super::matrix::{Matrix, is_unwritten};
use super::wires::Unit;

impl Machine<'_> {
    /// The runs of columns in each row that an off-chip flow carries of a slice's part: (row, columns).
    fn runs(&self, flow: FlowId, columns: &Range<u64>, rows: u64) -> Vec<(u64, Range<u64>)> {
        let width = columns.end - columns.start;
        let range = self.stripes[flow].range(rows * width);
        let mut runs = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let (row, first) = (at / width, at % width);
            let end = width.min(first + range.end - at);
            runs.push((row, columns.start + first..columns.start + end));
            at += end - first;
        }
        runs
    }

    /// Writes a block that a flow carries into the copies of the part at its end, where its links lead.
    pub(super) fn deliver(
        &mut self,
        actor: usize,
        flow: FlowId,
        end: FlowEnd,
        at: Iteration,
        block: &Block,
    ) -> Result<(), Fault> {
        let buffer = &self.section.buffers[end.buffer];
        let slot = self.slot(end.buffer, at);
        let mut sinks = self.traces[flow].sinks.iter();
        for copy in 0..buffer.spec.copies {
            let piece = buffer.piece(copy, end.slice);
            let Some(part) = piece.parts.get(end.part) else { continue };
            // What arrives at another unit is lost.
            if sinks.next() != Some(&Some(Unit::Pmu(part.pmu))) {
                continue;
            }
            let number = (copy * buffer.spec.slices + end.slice) as usize;
            let Some(target) = self.rings[end.buffer].piece_mut(slot, number) else { continue };
            let span = piece.span(end.part, target.columns as u64);
            let written = write(target, block, &span);
            if let Err((row, column)) = written {
                let what = format!(
                    "row {row}, column {column} of {} of the {} is written twice, or has no place in it",
                    self.layout.slot_name(buffer, slot),
                    self.layout.buffer_name(buffer)
                );
                return Err(self.fault(actor, Some(Unit::Pmu(part.pmu)), what));
            }
        }
        Ok(())
    }

    /// Reads the block that a flow takes from the part at its beginning; `None` if the flow does not begin there.
    pub(super) fn take(
        &self,
        flow: FlowId,
        copy: u64,
        end: FlowEnd,
        at: Iteration,
        columns: Option<&Range<u64>>,
    ) -> Option<Block> {
        let buffer = &self.section.buffers[end.buffer];
        let copy = copy % buffer.spec.copies.max(1);
        let part = buffer.piece(copy, end.slice).parts.get(end.part)?;
        if self.traces[flow].source != Some(Unit::Pmu(part.pmu)) {
            return None;
        }
        let number = (copy * buffer.spec.slices + end.slice) as usize;
        let slot = self.rings[end.buffer].piece(self.slot(end.buffer, at), number)?;
        let span = buffer.piece(copy, end.slice).span(end.part, slot.columns as u64);
        let wanted = columns.map_or(span.clone(), |c| c.start.max(span.start)..c.end.min(span.end));
        Some(cut(slot, 0..slot.rows, &wanted))
    }

    /// One slot of an off-chip stream into every buffer it fills.
    pub(super) fn load(&mut self, actor: usize, stream: StreamId, at: Iteration) -> Result<(), Fault> {
        let off_chip = &self.section.streams[stream];
        let tensor = off_chip.stream.tensor;
        let mut packed: Option<(BufferId, u64, Vec<f64>)> = None;
        for n in 0..self.actors[actor].feeds.len() {
            let f = self.actors[actor].feeds[n];
            let flow = &self.section.flows[f];
            let (Some(end), Some(Unit::Ag(agcu, ag))) = (flow.writes, self.traces[f].source) else { continue };
            if !off_chip.ags.contains(&(agcu, ag)) {
                continue;
            }
            let buffer = &self.section.buffers[end.buffer];
            let (rows, extent) = self.layout.extent(buffer, at, end.slice);
            let columns = part_columns(buffer, end, extent.end - extent.start);
            if let BufferRole::Weight { stage, .. } = buffer.spec.role {
                let known = packed.as_ref().is_some_and(|(b, slice, _)| (*b, *slice) == (end.buffer, end.slice));
                if !known {
                    packed = Some((end.buffer, end.slice, self.packed(actor, stage, at, end.slice)?));
                }
            }
            let held = self.layout.held(buffer, at, end.slice);
            for (row, run) in self.runs(f, &columns, rows.end - rows.start) {
                let values: Vec<f64> = if let (BufferRole::Weight { .. }, Some((_, _, packed))) =
                    (buffer.spec.role, &packed)
                {
                    packed[run.start as usize..run.end as usize].to_vec()
                } else {
                    let Some(memory) = self.off_chip(tensor) else { continue };
                    if let BufferRole::State { stage, .. } = buffer.spec.role {
                        let wide = self.section.stages[stage].group_width();
                        let pcu = ArrayPlace { row_slice: end.slice / wide, column: end.slice % wide };
                        let value = |column| {
                            let (row, column) = self.layout.place_in(tensor, stage, at, pcu, row, column);
                            memory.row(row as usize)[column as usize]
                        };
                        let values: Vec<f64> = run.clone().map(value).collect();
                        let values = Matrix { rows: 1, columns: values.len(), values };
                        let block = Block { row: row as usize, column: run.start as usize, values };
                        self.deliver(actor, f, end, at, &block)?;
                        continue;
                    }
                    let first = self.layout.columns(tensor, at.column_tile).start + extent.start;
                    let of_row_tile = self.layout.first_row(at.row_tile) + rows.start + row;
                    let line = memory.row(held.as_ref().map_or(of_row_tile, |held| held.pixels[row as usize]) as usize);
                    let columns = first + run.start..first + run.end;
                    let runs = self.layout.runs_in_tensor(tensor, at.column_tile, &columns);
                    let values = runs.iter().flat_map(|(_, of)| &line[of.start as usize..of.end as usize]);
                    values.copied().collect()
                };
                let values = Matrix { rows: 1, columns: values.len(), values };
                self.deliver(actor, f, end, at, &Block { row: row as usize, column: run.start as usize, values })?;
            }
        }
        Ok(())
    }

    /// The stored weights of a slot of one column of PCUs, from off chip.
    fn packed(&self, actor: usize, stage: StageId, at: Iteration, slice: u64) -> Result<Vec<f64>, Fault> {
        let spec = &self.section.stages[stage].spec;
        let index = self.layout.weight_index(stage, at.column_tile, slice);
        match (spec.weight, index) {
            (Some(weight), Some(index)) => {
                let Some(memory) = self.off_chip(weight) else {
                    let what = format!("`{}` is read before it is off chip", self.tensor_name(weight));
                    return Err(self.fault(actor, None, what));
                };
                if let Some(form) = self.layout.graph.form(stage) {
                    let operator = &self.layout.workload.operators[spec.main];
                    // A row block is a sequence, if sequences have second operands of their own.
                    let sequence = if form.instances > 1 { at.block } else { 0 };
                    let first = |tensor| self.layout.first_key(tensor, at.column_tile);
                    let place = [sequence, first(spec.activations[0]), first(spec.output)];
                    let tile = self.layout.heads_tile(stage, at.column_tile).map_or(form, |tile| tile.form);
                    return Ok(super::weights::pack_heads(operator, &form, &tile, memory, index, place));
                }
                let s = &self.section.stages[stage];
                let k = self.layout.k_rows(stage, at.column_tile, slice / s.group_width());
                Ok(super::weights::pack(memory, index, k.start))
            }
            _ => Ok(Vec::new()),
        }
    }

    /// A tensor off chip, as it is read in this section; `None` if it is not there yet.
    pub(super) fn off_chip(&self, tensor: TensorId) -> Option<&Matrix> {
        self.views[tensor.index()].as_ref().or(self.memory[tensor.index()].as_ref())
    }

    /// One slot of a store buffer to where its generators write.
    pub(super) fn store(&mut self, actor: usize, stream: StreamId, at: Iteration) -> Result<(), Fault> {
        let off_chip = &self.section.streams[stream];
        let id = off_chip.stream.tensor;
        let tensor = &self.layout.workload.tensors[id];
        for n in 0..self.actors[actor].feeds.len() {
            let f = self.actors[actor].feeds[n];
            let Some(end) = self.section.flows[f].reads else { continue };
            let Some(&Some(Unit::Ag(agcu, ag))) = self.traces[f].sinks.first() else { continue };
            let Some(block) = self.take(f, 0, end, at, None) else { continue };
            if !off_chip.ags.contains(&(agcu, ag)) {
                continue;
            }
            let (rows, _) = self.layout.extent(&self.section.buffers[end.buffer], at, end.slice);
            let (first_row, first) =
                (self.layout.first_row(at.row_tile) + rows.start, self.layout.columns(id, at.column_tile).start);
            let width = block.column as u64..(block.column + block.values.columns) as u64;
            let runs = self.runs(f, &width, block.values.rows as u64);
            let memory = self.memory[id.index()]
                .get_or_insert_with(|| Matrix::unwritten(tensor.rows as usize, tensor.columns as usize));
            // Sums lie off chip where their PCU's part of the result does.
            let sums_of = match self.section.buffers[end.buffer].spec.role {
                BufferRole::Output { stage, .. } if self.section.stages[stage].spec.sums.is_some() => {
                    let wide = self.section.stages[stage].group_width();
                    Some((stage, ArrayPlace { row_slice: end.slice / wide, column: end.slice % wide }))
                }
                _ => None,
            };
            let mut twice = None;
            for (row, run) in runs {
                for column in run {
                    let (to_row, to) = if let Some((stage, pcu)) = sums_of {
                        self.layout.place_in(id, stage, at, pcu, row, column)
                    } else {
                        let column = first + column..first + column + 1;
                        let run = self.layout.runs_in_tensor(id, at.column_tile, &column);
                        (first_row + row, run.first().map_or(column.start, |(_, of)| of.start))
                    };
                    let target = &mut memory.row_mut(to_row as usize)[to as usize];
                    if !is_unwritten(*target) {
                        twice = Some((to_row, to));
                    }
                    *target = block.values.row(row as usize)[column as usize - block.column];
                }
            }
            if let Some((row, column)) = twice {
                let what = format!("row {row}, column {column} of `{}` is stored twice", tensor.name);
                return Err(self.fault(actor, Some(Unit::Ag(agcu, ag)), what));
            }
        }
        Ok(())
    }

    /// One slot of a resident buffer to the copies beside the PCUs.
    pub(super) fn copy(&mut self, actor: usize, at: Iteration) -> Result<(), Fault> {
        for n in 0..self.actors[actor].feeds.len() {
            let f = self.actors[actor].feeds[n];
            let flow = &self.section.flows[f];
            let (Some(from), Some(to)) = (flow.reads, flow.writes) else { continue };
            let buffer = &self.section.buffers[to.buffer];
            let (_, held) = self.layout.extent(buffer, at, to.slice);
            let columns = part_columns(buffer, to, held.end - held.start);
            if let Some(block) = self.take(f, 0, from, at, Some(&columns)) {
                self.deliver(actor, f, to, at, &block)?;
            }
        }
        Ok(())
    }

    /// What a flow from a PMU is for at a PCU.
    pub(super) fn operand_of(&self, flow: FlowId) -> Operand {
        let flow = &self.section.flows[flow];
        match (flow.amount, flow.reads) {
            (Amount::Weights, _) => Operand::Weights,
            (Amount::Partials, Some(end)) => match (flow.kind, self.section.buffers[end.buffer].spec.role) {
                (FlowKind::Merge { .. }, BufferRole::PartialFifo { slice, .. }) => Operand::Merged(slice),
                _ => Operand::Partials,
            },
            (Amount::Partials, None) => Operand::Partials,
            (Amount::State, _) => Operand::State,
            (_, Some(end)) => match self.section.buffers[end.buffer].spec.role {
                BufferRole::Operand { stage, tensor } => {
                    let activations = &self.section.stages[stage].spec.activations;
                    Operand::Activation(activations.iter().position(|&t| t == tensor).unwrap_or(0))
                }
                _ => Operand::Activation(0),
            },
            (_, None) => Operand::Activation(0),
        }
    }

    /// Hands a block to every PCU that a flow's links reach.
    pub(super) fn hand_over(&mut self, flow: FlowId, operand: Operand, block: Block) {
        let block = Rc::new(block);
        for sink in &self.traces[flow].sinks {
            if let Some(Unit::Pcu(pcu)) = sink {
                self.inbox[pcu.index()].push(Incoming { operand, block: Rc::clone(&block) });
            }
        }
    }
}
