//! Bytes of the transfers of an off-chip stream.

use crate::arch::Chip;
use crate::program::{LoopLevel, PassWork, Section, SectionGraph, Stage, Step, StreamId};
use crate::workload::View;

use super::slots::{reduced_extent, slot_bytes};

/// Payload and moved bytes (whole bursts) of the slot of a stream at a step.
pub fn transfer_bytes(
    chip: &Chip,
    graph: &SectionGraph<'_>,
    section: &Section,
    stream: StreamId,
    at: Step,
) -> (u64, u64) {
    let off_chip = &section.streams[stream];
    let burst = chip.memory[off_chip.tier].burst_bytes;
    let tensor = &graph.workload.tensors[off_chip.stream.tensor];
    if off_chip.stream.weight {
        // Weights lie off chip in the order they are read.
        let payload = weight_bytes(graph, section, stream, at);
        return (payload, payload.next_multiple_of(burst));
    }
    let tiling = section.schedule.tiling();
    let payload = slot_bytes(graph, tiling, off_chip.stream.tensor, at);
    if let Some((rows, columns)) = reduced_extent(graph, tiling, off_chip.stream.tensor, at) {
        // Whole rows are one run, parts of them a run each.
        let (rows, width) = (rows.end - rows.start, columns.end - columns.start);
        let part = width < tensor.columns;
        let (runs, run) = if part { (rows, payload / rows.max(1)) } else { (1, payload) };
        return (payload, runs * run.next_multiple_of(burst));
    }
    let rows = tiling.rows_of(at.row_tile);
    let run = payload / rows;
    // A row-major tensor of which some columns move (a column tile, or part of a wider tensor) does so in runs of a row, whole
    // bursts each; else a row tile is one run. Windows and sparse tensors lie as they are moved.
    let is_one_run = tensor.window().is_some() || tensor.mask.is_some();
    let is_narrow = |part: View| part.is_part && tensor.columns < graph.workload.tensors[part.of].columns;
    let moved = if tensor.view.is_some_and(|view| view.transposed) {
        // Columns of the tensor as it lies in memory: a run of them in each of its rows.
        let run = rows * tensor.dtype.bytes();
        (payload / run) * run.next_multiple_of(burst)
    } else if !is_one_run && (run < tensor.columns * tensor.dtype.bytes() || tensor.view.is_some_and(is_narrow)) {
        rows * run.next_multiple_of(burst)
    } else {
        payload.next_multiple_of(burst)
    };
    (payload, moved)
}

/// The same of the first slot of a stream.
pub fn first_slot_bytes(chip: &Chip, graph: &SectionGraph<'_>, section: &Section, stream: StreamId) -> (u64, u64) {
    transfer_bytes(chip, graph, section, stream, section.schedule.step(section.streams[stream].stream.level, 0))
}

/// Stored bytes of one slot of a weight stream: its share of values and metadata, exact over all slots.
fn weight_bytes(graph: &SectionGraph<'_>, section: &Section, stream: StreamId, at: Step) -> u64 {
    let wanted = &section.streams[stream].stream;
    let total = graph.workload.tensors[wanted.tensor].stored_bytes();
    let whole = |stage: &Stage| stage.spec.weight == Some(wanted.tensor);
    let form = section.stages.position(whole).and_then(|s| graph.form(s));
    if let Some(form) = form.filter(|_| wanted.level == LoopLevel::BLOCK_COLUMN) {
        return total / form.instances;
    }
    let stage = section.stages.iter().find(|stage| whole(stage));
    let Some(stage) = stage.filter(|_| wanted.level != LoopLevel::ONCE) else { return total };
    let stored = |column_tile: &Vec<PassWork>| column_tile.iter().map(|w| w.stored).sum::<u64>();
    let all: u64 = stage.work.iter().map(stored).sum();
    let before: u64 = stage.work[..at.column_tile as usize].iter().map(stored).sum();
    let upto = before + stored(&stage.work[at.column_tile as usize]);
    let part = |n: u64| (u128::from(total) * u128::from(n) / u128::from(all.max(1))) as u64;
    part(upto) - part(before)
}
