//! Bytes of the transfers of an off-chip stream.

use rdusim_base::units::{Bytes, index, saturating_u64};
use rdusim_graph::arch::{Chip, TierId};
use rdusim_graph::workload::{View, Workload};
use rdusim_program::{Configuration, Iteration, LoopLevel, Prefetch, Section, SectionGraph, Stage, StreamId};

use super::slots::{reduced_extent, slot_bytes};

/// Bytes of a slot of an off-chip stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotBytes {
    /// Values and metadata: what passes through the network, and counts as traffic.
    pub payload: Bytes,
    /// The same in whole bursts: what the memory tier moves.
    pub moved: Bytes,
}

impl SlotBytes {
    /// Moved beyond the payload.
    pub fn waste(self) -> Bytes {
        Bytes(self.moved.0 - self.payload.0)
    }
}

/// Bytes of the slot of a stream at a step.
pub fn transfer_bytes(
    chip: &Chip,
    graph: &SectionGraph<'_>,
    section: &Section,
    stream: StreamId,
    at: Iteration,
) -> SlotBytes {
    let (payload, runs) = payload_and_runs(graph, section, stream, at);
    let burst = chip.memory[section.streams[stream].tier].burst_bytes;
    SlotBytes { payload: Bytes(payload), moved: Bytes(runs * (payload / runs).next_multiple_of(burst)) }
}

/// Runs of consecutive addresses, at least one and all of equal size, in which the slot of a stream at a step is stored.
pub fn transfer_runs(graph: &SectionGraph<'_>, section: &Section, stream: StreamId, at: Iteration) -> u64 {
    payload_and_runs(graph, section, stream, at).1
}

fn payload_and_runs(graph: &SectionGraph<'_>, section: &Section, stream: StreamId, at: Iteration) -> (u64, u64) {
    let off_chip = &section.streams[stream].stream;
    if off_chip.weight {
        // Weights lie off chip in the order they are read.
        return (weight_bytes(graph, section, stream, at), 1);
    }
    let tensor = &graph.workload.tensors[off_chip.tensor];
    let tiling = section.schedule.tiling();
    let payload = slot_bytes(graph, tiling, off_chip.tensor, at);
    if let Some((rows, columns)) = reduced_extent(graph, tiling, off_chip.tensor, at) {
        // Whole rows are one run, parts of them a run each.
        let is_part = columns.end - columns.start < tensor.columns;
        return (payload, if is_part { (rows.end - rows.start).max(1) } else { 1 });
    }
    let rows = tiling.rows_of(at.row_tile);
    let row_bytes = tensor.columns * tensor.dtype.bytes();
    // A row-major tensor of which some columns move (a column tile, or part of a wider tensor) does so in runs of a row, whole
    // bursts each; else a row tile is one run. Windows and sparse tensors lie as they are moved.
    let is_one_run = tensor.window().is_some() || tensor.mask.is_some();
    let is_narrow = |part: View| part.is_part && tensor.columns < graph.workload.tensors[part.of].columns;
    let runs = if tensor.view.is_some_and(|view| view.transposed) {
        // Columns of the tensor as it lies in memory: a run of them in each of its rows.
        (payload / (rows * tensor.dtype.bytes())).max(1)
    } else if tensor.view.is_some_and(|view| view.gathered) {
        rows
    } else if let Some(piece) = graph.workload.piece_elements(off_chip.tensor) {
        let columns = payload / (rows * tensor.dtype.bytes()).max(1);
        rows * columns.div_ceil(piece.max(1)).max(1)
    } else if !is_one_run && (payload / rows < row_bytes || tensor.view.is_some_and(is_narrow)) {
        // Of scores, the keys of a column tile lie apart head by head.
        let is_cut = tiling.tiled_axis.is_some_and(|cut| graph.column_axis(off_chip.tensor) == Some(cut.axis));
        let heads = graph.cut_keys(tiling.tiled_axis).filter(|_| is_cut).map_or(1, |keys| keys.heads);
        rows * heads
    } else {
        1
    };
    (payload, runs)
}

/// The same of the first slot of a stream.
pub fn first_slot_bytes(chip: &Chip, graph: &SectionGraph<'_>, section: &Section, stream: StreamId) -> SlotBytes {
    transfer_bytes(chip, graph, section, stream, section.schedule.step(section.streams[stream].stream.level, 0))
}

/// Cycles before the first repetition of a section whose weights the last section of its block loads for the others: then
/// they are loaded while nothing else runs.
pub fn first_load_cycles(chip: &Chip, workload: &Workload, configuration: &Configuration, index: usize) -> u64 {
    let section = &configuration.sections[index];
    let before = configuration.section_before(index, workload).filter(|&before| before > index);
    let Some(loads) = before.map(|before| &configuration.sections[before].prefetches).filter(|l| !l.is_empty()) else {
        return 0;
    };
    let of_tier = |tier: TierId| {
        let bytes = loads.iter().filter(|load| load.tier == tier).map(|load| load.moved_bytes).sum();
        chip.tier_rate(tier).cycles_for(bytes)
    };
    let of_stream = |(&stream, load): (&StreamId, &Prefetch)| {
        let ags = section.streams[stream].ags.len() as u64;
        load.moved_bytes.div_ceil((ags * chip.ag_bytes_per_cycle.min(chip.network.flit_bytes)).max(1))
    };
    let by_tiers = chip.memory.ids().map(of_tier).max().unwrap_or(0);
    let by_streams = section.prefetched.iter().zip(loads).map(of_stream).max().unwrap_or(0);
    let latency = loads.iter().map(|load| chip.tier_latency_cycles(load.tier)).max().unwrap_or(0);
    by_tiers.max(by_streams) + latency
}

/// Stored bytes of one slot of a weight stream: its share of values and metadata, exact over all slots.
fn weight_bytes(graph: &SectionGraph<'_>, section: &Section, stream: StreamId, at: Iteration) -> u64 {
    let wanted = &section.streams[stream].stream;
    let total = graph.workload.tensors[wanted.tensor].stored_bytes();
    let whole = |stage: &Stage| stage.spec.weight == Some(wanted.tensor);
    let form = section.stages.position(whole).and_then(|s| graph.form(s));
    // Every sequence has its own.
    let own = form.filter(|form| form.instances > 1 && wanted.level == LoopLevel::BLOCK_COLUMN);
    let total = total / own.map_or(1, |form| form.instances);
    let stage = section.stages.iter().find(|stage| whole(stage));
    let Some(stage) = stage.filter(|stage| wanted.level != LoopLevel::ONCE && (own.is_none() || stage.work.len() > 1))
    else {
        return total;
    };
    let before = &stage.stored_before;
    let all = before[stage.work.len()];
    let (before, upto) = (before[index(at.column_tile)], before[index(at.column_tile) + 1]);
    let part = |n: u64| saturating_u64(u128::from(total) * u128::from(n) / u128::from(all.max(1)));
    part(upto) - part(before)
}
