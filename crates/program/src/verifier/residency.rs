//! Checks of what a slot holds: the bytes of a row tile, of a weight's column tile, of all partial sums.

use crate::buffer::{BufferRole, BufferSpec};
use crate::configuration::Section;
use crate::ids::StageId;
use crate::nest::{LoopLevel, LoopOrder, Nest};

use super::context::Verifier;
use super::fault::{Fault, Place};

/// Bytes of a partial sum: fp32.
const SUM_BYTES: u64 = 4;

/// The slices of every slot hold all that comes into it, whole weights and row tiles.
pub(super) fn slots(verifier: &Verifier<'_>, section: &Section) -> Result<(), Fault> {
    for (b, buffer) in section.buffers.iter_enumerated() {
        let spec = &buffer.spec;
        let (slots, needed) = bytes(verifier, section, spec);
        let held = spec.slices.saturating_mul(spec.slot_bytes).saturating_mul(slots);
        if held < needed {
            let title = format!("{slots} slots of {} slices of {} B hold {held} B", spec.slices, spec.slot_bytes);
            let expected = format!("expected {needed} B: {:?}", spec.role);
            return Err(Fault::new(Place::SlotBytes(b), title, expected));
        }
    }
    Ok(())
}

/// How many slots hold different parts of the same thing, and its bytes: all column tiles of a weight; else one slot.
fn bytes(verifier: &Verifier<'_>, section: &Section, spec: &BufferSpec) -> (u64, u64) {
    let (nest, graph) = (&section.schedule.nest(), verifier.graph);
    let of_rows = |tensor| {
        let columns = verifier.columns(nest, tensor, 0);
        let of = &graph.workload.tensors[tensor];
        of.elements_to_hold(nest.tile_rows, columns).saturating_mul(of.dtype.bytes())
    };
    match spec.role {
        BufferRole::Operand { tensor, .. } | BufferRole::Resident { tensor, .. } => (1, of_rows(tensor)),
        BufferRole::Weight { stage, tensor } if graph.stages[stage].sequence.is_some() => (1, of_rows(tensor)),
        BufferRole::Weight { stage, tensor } => {
            let slots = match spec.level {
                LoopLevel::BLOCK_COLUMN if verifier.has_own_weights(stage) => {
                    nest.blocks() * if verifier.cuts_rows(nest, tensor) { nest.column_tiles() } else { 1 }
                }
                LoopLevel::BLOCK_COLUMN | LoopLevel::COLUMN => nest.column_tiles(),
                _ => 1,
            };
            (slots, graph.workload.tensors[tensor].stored_bytes())
        }
        BufferRole::PartialSums { stage } if section.stages[stage].spec.sums.is_some() => {
            (1, result_elements(verifier, nest, stage).saturating_mul(SUM_BYTES))
        }
        BufferRole::PartialSums { stage } | BufferRole::PartialFifo { stage, .. } => {
            let output = graph.workload.operators[verifier.main(stage)].output;
            let columns = verifier.columns(nest, output, 0);
            (1, nest.tile_rows.saturating_mul(columns).saturating_mul(SUM_BYTES))
        }
        BufferRole::Output { stage, tensor } | BufferRole::State { stage, tensor }
            if section.stages[stage].spec.sums.is_some() =>
        {
            let (columns, word) = graph.summed(tensor).map_or((1, 1), |(_, scale)| scale);
            let elements = result_elements(verifier, nest, stage) / word;
            (1, elements.saturating_mul(columns).saturating_mul(graph.dtype(tensor).bytes()))
        }
        BufferRole::Output { tensor, .. } | BufferRole::State { tensor, .. } => {
            let row_bytes = verifier.columns(nest, tensor, 0).saturating_mul(graph.dtype(tensor).bytes());
            (1, nest.tile_rows.saturating_mul(row_bytes))
        }
    }
}

/// Elements of the result of a stage that adds up over rows: of one column tile, and of one sequence.
fn result_elements(verifier: &Verifier<'_>, nest: &Nest, stage: StageId) -> u64 {
    let output = verifier.graph.main_output(stage);
    let tensor = &verifier.graph.workload.tensors[output];
    let instances = verifier.graph.form(stage).map_or(1, |form| form.instances.max(1));
    let (mut rows, mut columns) = (tensor.rows / instances, tensor.columns);
    if let Some(cut) = nest.tiled_axis {
        if verifier.cuts_rows(nest, output) {
            rows = rows.min(cut.tile);
        } else if verifier.cuts_columns(nest, output) {
            columns = columns.min(cut.tile);
        }
    }
    rows.saturating_mul(columns)
}

/// Second operands that are made here stay until the last row tile of their sequence has met them.
pub(super) fn sequences(verifier: &Verifier<'_>, section: &Section) -> Result<(), Fault> {
    for (b, buffer) in section.buffers.iter_enumerated() {
        let BufferRole::Weight { stage, tensor } = buffer.spec.role else { continue };
        let Some(read) = section.stages[stage].spec.sequence else { continue };
        let least = read.row_tiles(&section.schedule);
        if buffer.spec.depth < least {
            let (depth, name) = (buffer.spec.depth, verifier.tensor(tensor));
            let title = format!("{depth} slots for the row tiles of `{name}` that a sequence has");
            return Err(Fault::new(Place::Depth(b), title, format!("expected at least {least}: a whole sequence")));
        }
    }
    Ok(())
}

/// Buffers of partial sums keep those of all row tiles, or column tiles, that are under way at once.
pub(super) fn partial_sums(verifier: &Verifier<'_>, section: &Section) -> Result<(), Fault> {
    let nest = &section.schedule.nest();
    for (b, buffer) in section.buffers.iter_enumerated() {
        let BufferRole::PartialSums { stage: s } = buffer.spec.role else { continue };
        let stage = &section.stages[s];
        let least = match stage.spec.sums {
            Some(sums) => sums.depth(nest, stage.level == LoopLevel::FIRING),
            None if nest.order == LoopOrder::ColumnTileOuter => nest.block_tiles.min(nest.row_tiles()),
            None => 1,
        };
        if buffer.spec.depth < least {
            let name = verifier.stage(s);
            let title = format!("{} slots for the partial sums of `{name}`", buffer.spec.depth);
            return Err(Fault::new(
                Place::Depth(b),
                title,
                format!("expected at least {least}: as many are under way"),
            ));
        }
    }
    Ok(())
}
