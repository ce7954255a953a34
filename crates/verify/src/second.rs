//! Second operands that a stage of the section makes, row tile by row tile: results into their slots, and slots to PCUs.

use std::ops::Range;

use rdusim_program::{BufferId, BufferRole, FlowEnd, FlowId, Iteration, LoopLevel, SequenceRead};

use super::actors::Kind;
use super::block::{Block, write};
use super::fault::Fault;
use super::flow_share::part_columns;
use super::group::Firing;
use super::inbox::Operand;
use super::machine::Machine;
use super::made::Made;
use super::matrix::{Matrix, is_unwritten};
use super::weights::Element;
use super::wires::Unit;

impl Machine<'_> {
    /// How an actor reads a buffer that another stage fills as its second operand; `None` of other buffers.
    pub(super) fn sequence(&self, kind: Kind, buffer: BufferId) -> Option<SequenceRead> {
        match (kind, self.section.buffers[buffer].spec.role) {
            (Kind::Group { stage, .. }, BufferRole::Weight { stage: of, .. }) if of == stage => {
                self.section.stages[stage].spec.sequence
            }
            _ => None,
        }
    }

    /// Results of a PCU into a slice of a second operand.
    pub(super) fn emit_second(
        &mut self,
        actor: usize,
        flow: FlowId,
        end: FlowEnd,
        at: Iteration,
        made: &Made,
        values: &[Matrix],
    ) -> Result<(), Fault> {
        let BufferRole::Weight { stage: reader, .. } = self.section.buffers[end.buffer].spec.role else {
            return Err(self.fault(actor, None, "results go into a buffer that is no second operand".to_owned()));
        };
        let elements = self.layout.made_elements(reader, at.row_tile, end.slice);
        let span = part_columns(&self.section.buffers[end.buffer], end, elements.len() as u64);
        let mut line = Matrix::unwritten(1, (span.end - span.start) as usize);
        for (to, element) in line.values.iter_mut().zip(&elements[span.start as usize..span.end as usize]) {
            let mut runs = made.columns.iter().zip(values);
            let has = |run: &Range<u64>| run.contains(&element.column) && made.rows.contains(&element.row);
            let of = runs.find(|(run, _)| has(run));
            if let Some((run, values)) = of {
                let row = values.row((element.row - made.rows.start) as usize);
                *to = row[(element.column - run.start) as usize];
            }
        }
        self.deliver(actor, flow, end, at, &Block { row: 0, column: span.start as usize, values: line })
    }

    /// What a flow takes of the row tiles of a sequence, where a PCU works on it; `None` if the flow does not begin there.
    pub(super) fn take_second(&self, flow: FlowId, end: FlowEnd, at: Iteration, read: SequenceRead) -> Option<Block> {
        let buffer = &self.section.buffers[end.buffer];
        let BufferRole::Weight { stage, .. } = buffer.spec.role else { return None };
        let piece = buffer.piece(0, end.slice);
        if self.traces[flow].source != Some(Unit::Pmu(piece.parts.get(end.part)?.pmu)) {
            return None;
        }
        let mut values = Matrix::unwritten(1, self.layout.weight_index(stage, 0, end.slice)?.values);
        for slot in self.layout.schedule.read_slots(buffer.spec.level, Some(read), at) {
            let elements = self.layout.made_elements(stage, self.layout.slot_step(buffer, slot).row_tile, end.slice);
            let held = self.rings[end.buffer].piece(slot, end.slice as usize)?;
            for n in piece.span(end.part, elements.len() as u64) {
                // Rows beyond those of a sequence have no place of their own: the first keep it.
                let place = &mut values.values[elements[n as usize].place];
                if is_unwritten(*place) {
                    *place = held.values[n as usize];
                }
            }
        }
        Some(Block { row: 0, column: 0, values })
    }

    /// The second operand of a PCU, put together from what arrived: all of the row tiles that its firing reads.
    pub(super) fn second_operand(
        &self,
        firing: Firing,
        slice: u64,
        read: SequenceRead,
        name: &str,
    ) -> Result<Matrix, Fault> {
        let Firing { actor, stage, pcu, at, .. } = firing;
        let count = self.layout.weight_index(stage, 0, slice).map_or(0, |index| index.values);
        let mut matrix = Matrix::unwritten(1, count);
        for incoming in self.arrived(pcu).filter(|incoming| incoming.operand == Operand::Weights) {
            if let Err((_, column)) = write(&mut matrix, &incoming.block, &(0..u64::MAX)) {
                let what = format!("value {column} of its part of {name} comes twice, or does not belong to it");
                return Err(self.fault(actor, Some(Unit::Pcu(pcu)), what));
            }
        }
        let level = LoopLevel::ROW_TILE;
        for slot in self.layout.schedule.read_slots(level, Some(read), at) {
            let row_tile = self.layout.schedule.step(level, slot).row_tile;
            let elements = self.layout.made_elements(stage, row_tile, slice);
            if let Some(missing) = elements.iter().find(|element| is_unwritten(matrix.values[element.place])) {
                let Element { row, column, .. } = *missing;
                let what = format!("row {row}, column {column} of row tile {row_tile} of {name} never arrived");
                return Err(self.fault(actor, Some(Unit::Pcu(pcu)), what));
            }
        }
        Ok(matrix)
    }
}
