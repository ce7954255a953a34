//! The closed-form cost of a plan that the search compares.

use crate::compile::params::PARAMS;
use rdusim_base::index::{Id, IndexVec};
use rdusim_graph::arch::{Chip, TierId};
use rdusim_graph::workload::TensorId;
use rdusim_program::{
    BufferId, BufferRole, BufferSpec, LoopLevel, LoopOrder, Mapping, Nest, SectionGraph, StageId, Stream, StreamId,
};

use super::front::Candidate;
use super::link_load::{Distances, operand_flit_hops, routable_flit_hops};
use super::pipeline::Pipeline;
use super::roles::StageRoles;
use super::streams::streams;

/// What a plan is expected to cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Estimate {
    /// Cycles, launch included.
    pub cycles: u64,
    /// What plans are compared by: cycles, and a little for every off-chip byte.
    pub score: u64,
    /// Cycles the busiest stage or port works: the time that links must keep up with.
    pub busy_cycles: u64,
    /// Cycles, launch included, that it cannot beat: its busiest stage's, or those its tensors take to move.
    pub least_cycles: u64,
    /// Cycles of computing, as far as memory lets it, and of moving, as far as computing does.
    parts: (u64, u64),
    /// Firings of the nest.
    pub firings: u64,
    /// Off-chip bytes read.
    pub read_bytes: u64,
    /// Off-chip bytes written.
    pub write_bytes: u64,
    /// Whether anything is read from off chip more than once.
    pub reads_again: bool,
    /// Cycles that it takes less if the first slots of its weights are on chip when it begins.
    pub prefetch_saves_cycles: u64,
    /// Cycles in which the memory tier that it uses most is idle.
    pub idle_memory_cycles: u64,
}

impl Estimate {
    /// Of a plan that nobody compares with others: cycles, launch included, and those its busiest stage works.
    pub(crate) fn of_work(cycles: u64, busy_cycles: u64) -> Self {
        Self {
            cycles,
            score: cycles,
            busy_cycles,
            least_cycles: cycles,
            parts: (busy_cycles, 0),
            firings: 0,
            read_bytes: 0,
            write_bytes: 0,
            reads_again: false,
            prefetch_saves_cycles: 0,
            idle_memory_cycles: 0,
        }
    }

    /// Cycles in which links should be able to move what they move.
    pub(crate) fn link_cycles(&self, chip: &Chip) -> u64 {
        let running = self.cycles.saturating_sub(chip.launch_cycles());
        self.busy_cycles.max((running as f64 * PARAMS.estimate.links_busy) as u64)
    }

    /// Cycles if computing took twice as long. Of mappings that wait for memory as long as each other, it is least for the one
    /// whose units have most to spare.
    pub(crate) fn with_slow_computing(&self) -> u64 {
        let (compute, off_chip) = self.parts;
        compute.saturating_mul(2).max(off_chip)
    }

    /// The estimate with only `slots` to hide the latency of memory in. A slot is asked for, comes, is worked on, and is free
    /// again; the slots take turns.
    pub(crate) fn with_slots(mut self, latency_cycles: u64, slots: u64) -> Self {
        let (compute, off_chip) = self.parts;
        let turn = self.firings.saturating_mul(latency_cycles).saturating_add(compute).saturating_add(off_chip);
        let waits = turn / slots.max(1);
        let more = waits.saturating_sub(compute.max(off_chip));
        self.parts.1 = off_chip.max(waits);
        self.cycles = self.cycles.saturating_add(more);
        self.idle_memory_cycles = self.idle_memory_cycles.saturating_add(more);
        self.score = self.score.saturating_add(more);
        self
    }
}

/// Cycles to hand a row tile from stage to stage: skew and drain of an array, and a walk across part of the grid.
/// Deep buffers hide most of it; charging it keeps the search from row tiles too small to be worth their hand-over.
fn hand_over_cycles(chip: &Chip, graph: &SectionGraph<'_>) -> f64 {
    let lanes = graph.widest_lanes(chip);
    (lanes + 2 * chip.pcu.stages + walk_cycles(chip)) as f64
}

/// Cycles across part of the grid.
fn walk_cycles(chip: &Chip) -> u64 {
    u64::from(chip.grid.columns + chip.grid.rows) / 4 * chip.network.hop_cycles
}

/// How much slower the most crowded GEMM stage runs because its operand streams fill the links around it.
///
/// An operand piece lies farther from its PCUs the more PMUs it needs and the fuller they are.
fn crowding(
    chip: &Chip,
    graph: &SectionGraph<'_>,
    nest: &Nest,
    buffers: &IndexVec<BufferId, BufferSpec>,
    picked: &IndexVec<StageId, Candidate>,
) -> f64 {
    let banks = |b: &BufferSpec| b.total_banks(chip);
    let filled = buffers.iter().map(banks).sum::<u64>() as f64 / (chip.pmus() * chip.pmu.banks) as f64;
    let stage_crowding = |(s, candidate): (StageId, &Candidate)| {
        let Mapping::Gemm(m) = &candidate.mapping else { return 1.0 };
        let distance = |weights: bool| {
            let pmus = buffers
                .iter()
                .filter(|b| match b.role {
                    BufferRole::Operand { stage, tensor } => {
                        stage == s && weights == is_second_operand(graph, stage, tensor)
                    }
                    BufferRole::Weight { stage, .. } => weights && stage == s,
                    _ => false,
                })
                .map(|b| b.banks(chip) as f64 / chip.pmu.banks as f64)
                .sum::<f64>();
            ((0.5 + pmus.sqrt()) / (1.0 - filled).max(0.1)).min(f64::from(chip.grid.columns) / 4.0)
        };
        let from = Distances { activations: distance(false), weights: distance(true) };
        let operands = operand_flit_hops(m, &candidate.footprint, from);
        let rewritten =
            |b: &&BufferSpec| matches!(b.role, BufferRole::Operand { stage, .. } if stage == s) && b.copies > 1;
        let copies: f64 = buffers
            .iter()
            .filter(rewritten)
            .map(|b| {
                let flits = nest.count(b.level) * b.slices * b.slot_bytes.div_ceil(chip.network.flit_bytes);
                flits as f64 * (2.0 * b.copies as f64 + distance(false)) / candidate.cycles.max(1) as f64
            })
            .sum();
        ((operands + copies) / routable_flit_hops(chip, m.pm * m.pn * m.pk)).max(1.0)
    };
    picked.iter_enumerated().map(stage_crowding).fold(1.0, f64::max)
}

/// Whether a tensor is the second operand of a stage that adds up over rows: it comes as weights do.
fn is_second_operand(graph: &SectionGraph<'_>, stage: StageId, tensor: TensorId) -> bool {
    let spec = &graph.stages[stage];
    spec.sums.is_some() && spec.activations.get(1) == Some(&tensor)
}

/// Cycles the busiest PMU port needs for what is written through it once, or read through it by GEMMs: every copy is
/// written in full, every PCU that has a part of a slot writes a flit at least, and a flit may be wider than a port.
fn port_cycles(
    chip: &Chip,
    graph: &SectionGraph<'_>,
    nest: &Nest,
    buffers: &IndexVec<BufferId, BufferSpec>,
    picked: &IndexVec<StageId, Candidate>,
) -> f64 {
    let flit = chip.network.flit_bytes;
    let cycles_per_flit = flit.div_ceil(chip.pmu.port_bytes) as f64;
    let pmus = |buffer: &BufferSpec| buffer.banks(chip).div_ceil(chip.pmu.banks).max(buffer.spread);
    let port = |buffer: &BufferSpec| {
        let (produced, written) = match buffer.role {
            BufferRole::Operand { tensor, .. } | BufferRole::Resident { tensor, .. } => (graph.producer(tensor), true),
            BufferRole::Weight { stage, tensor } if graph.stages[stage].sequence.is_some() => {
                (graph.producer(tensor), true)
            }
            // Whoever adds up over rows writes once, at the end.
            BufferRole::Output { stage, .. } => (Some(stage), graph.stages[stage].sums.is_none()),
            BufferRole::Weight { .. }
            | BufferRole::State { .. }
            | BufferRole::PartialSums { .. }
            | BufferRole::PartialFifo { .. } => (None, false),
        };
        let writers = produced.map_or(1, |stage| match &picked[stage].mapping {
            Mapping::Gemm(m) => (m.pm * m.pn).div_ceil(buffer.slices),
            Mapping::Simd(m) => (m.pm * m.pn).div_ceil(buffer.slices),
        });
        let write = if written {
            let flits = nest.count(buffer.level) * buffer.slot_bytes.div_ceil(flit).max(writers);
            flits as f64 / (pmus(buffer) * chip.pmu.write_ports) as f64
        } else {
            0.0
        };
        // A PCU's stream comes through one port of each PMU that has a part of it.
        let read = |stage: StageId, rate: fn(&Candidate) -> f64| match &picked[stage].mapping {
            Mapping::Gemm(_) => rate(&picked[stage]) * picked[stage].cycles as f64 / pmus(buffer) as f64,
            Mapping::Simd(_) => 0.0,
        };
        let read = match buffer.role {
            BufferRole::Operand { stage, tensor } if graph.stages[stage].sums.is_some() => {
                // One buffer for all streams, which take turns on the read ports.
                let Mapping::Gemm(m) = &picked[stage].mapping else { return 0.0 };
                let turns = chip.pmu.read_ports as f64;
                if is_second_operand(graph, stage, tensor) {
                    read(stage, |c| c.footprint.weight_rate) * m.pn as f64 / turns
                } else {
                    read(stage, |c| c.footprint.activation_rate) * (m.pm * m.streams) as f64 / turns
                }
            }
            BufferRole::Operand { stage, .. } => read(stage, |c| c.footprint.activation_rate),
            BufferRole::Weight { stage, .. } => read(stage, |c| c.footprint.weight_rate),
            _ => 0.0,
        };
        write.max(read) * cycles_per_flit
    };
    buffers.iter().map(port).fold(0.0, f64::max)
}

/// Bytes that all passes of a stream move, padding to whole bursts included: narrow column tiles of a row-major tensor move
/// a burst or more for every row.
fn moved_bytes(chip: &Chip, graph: &SectionGraph<'_>, nest: &Nest, stream: &Stream, tier: TierId) -> u64 {
    let payload = stream.tensor_bytes.saturating_mul(stream.passes);
    let tensor = &graph.workload.tensors[stream.tensor];
    let row_bytes = tensor.dense_bytes().div_ceil(tensor.rows);
    let run = match nest.tiled_axis {
        _ if tensor.view.is_some_and(|view| view.transposed) && !stream.weight => nest.tile_rows * tensor.dtype.bytes(),
        _ if stream.weight => payload.div_ceil(nest.count(stream.level)),
        Some(cut) => match cut.range_of(graph.column_axis(stream.tensor), 0) {
            Some(range) if range.end < tensor.columns => range.end * tensor.dtype.bytes(),
            _ => nest.tile_rows * row_bytes,
        },
        None => nest.tile_rows * row_bytes,
    };
    let piece = graph.workload.piece_elements(stream.tensor).filter(|_| !stream.weight);
    let run = piece.map_or(run, |piece| run.min(piece * tensor.dtype.bytes())).max(1);
    payload.div_ceil(run).saturating_mul(run.next_multiple_of(chip.memory[tier].burst_bytes))
}

/// Whether a stage reads a tensor that comes before any that adds up over column tiles, or does.
fn reads_early(graph: &SectionGraph<'_>, roles: &StageRoles, tensor: TensorId) -> bool {
    let reads = |s: StageId| graph.stages[s].activations.contains(&tensor) || graph.stages[s].weight == Some(tensor);
    graph.stages.ids().any(|s| !roles.is_late(s) && reads(s))
}

/// Whether column tiles are the outer loop.
fn is_cut_outside(nest: &Nest) -> bool {
    nest.column_tiles() > 1 && nest.order == LoopOrder::ColumnTileOuter
}

/// Bytes that a plan moves off chip.
struct Moved {
    /// In all, by tier.
    per_tier: Vec<u64>,
    /// Read for stages that do not wait for all column tiles, by tier.
    early: Vec<u64>,
    /// Written when the last rows have passed, by tier.
    late_sums: Vec<u64>,
    /// Read for the first column tile of the steps in tails, by tier.
    first_state: Vec<u64>,
    reads: u64,
    writes: u64,
    /// Reads of weights.
    weights: u64,
    /// Those for the first row block; weights that stay on chip count in full.
    first_weights: u64,
    /// Reads of activations for the first row block.
    first_block: u64,
    /// Reads of activations for the first firing.
    first_firing: u64,
    /// Writes of the last firing.
    last_firing: u64,
    /// Writes of the last row block.
    late_writes: u64,
}

impl Moved {
    fn new(
        chip: &Chip,
        graph: &SectionGraph<'_>,
        nest: &Nest,
        roles: &StageRoles,
        streams: &IndexVec<StreamId, Stream>,
        tiers: &[TierId],
    ) -> Self {
        let [per_tier, early, late_sums, first_state] = [(); 4].map(|()| vec![0u64; chip.memory.len()]);
        let mut moved = Self {
            per_tier,
            early,
            late_sums,
            first_state,
            reads: 0,
            writes: 0,
            weights: 0,
            first_weights: 0,
            first_block: 0,
            first_firing: 0,
            last_firing: 0,
            late_writes: 0,
        };
        for stream in streams {
            let tier = tiers[stream.tensor.index()];
            let bytes = moved_bytes(chip, graph, nest, stream, tier);
            moved.per_tier[tier.index()] = moved.per_tier[tier.index()].saturating_add(bytes);
            if stream.writes {
                moved.add_written(nest, stream, tier, bytes);
                continue;
            }
            moved.reads = moved.reads.saturating_add(bytes);
            if reads_early(graph, roles, stream.tensor) {
                moved.early[tier.index()] = moved.early[tier.index()].saturating_add(bytes);
            }
            // What the steps in tails read is awaited in every column tile: the first is not hidden.
            match stream.level {
                _ if stream.weight => {}
                LoopLevel::COLUMN => moved.first_state[tier.index()] += bytes / nest.column_tiles(),
                LoopLevel::ONCE => moved.first_state[tier.index()] += bytes,
                _ => {}
            }
            if stream.weight {
                moved.weights = moved.weights.saturating_add(bytes);
                let blocks = if stream.level == LoopLevel::BLOCK_COLUMN { nest.blocks() } else { 1 };
                moved.first_weights = moved.first_weights.saturating_add(bytes / blocks);
                continue;
            }
            if stream.level == LoopLevel::ROW_TILE {
                moved.first_block += stream.tensor_bytes / nest.blocks();
            }
            let firings = match stream.level {
                LoopLevel::FIRING | LoopLevel::PANEL_ROW => nest.count(stream.level),
                _ => nest.row_tiles(),
            };
            moved.first_firing = moved.first_firing.saturating_add(bytes / firings);
        }
        moved
    }

    fn add_written(&mut self, nest: &Nest, stream: &Stream, tier: TierId, bytes: u64) {
        self.writes = self.writes.saturating_add(bytes);
        if [LoopLevel::FIRING, LoopLevel::ROW_TILE, LoopLevel::PANEL_ROW].contains(&stream.level) {
            self.last_firing += bytes / nest.count(stream.level);
        }
        let cut_outside = is_cut_outside(nest);
        let late_sums = &mut self.late_sums[tier.index()];
        match stream.level {
            LoopLevel::ROW_TILE if cut_outside => self.late_writes += bytes / nest.blocks(),
            LoopLevel::PANEL_ROW => self.late_writes += bytes / (nest.blocks() * nest.panels()),
            // What is added up over rows leaves with the last of them.
            LoopLevel::BLOCK_COLUMN => *late_sums += bytes / nest.blocks(),
            LoopLevel::COLUMN if cut_outside && nest.blocks() == 1 => *late_sums += bytes / nest.column_tiles(),
            LoopLevel::COLUMN | LoopLevel::ONCE => *late_sums += bytes,
            _ => {}
        }
    }
}

/// Cycles that stages behind an accumulating one take beside the others. With column tiles outside they get nothing before the
/// last column tile: they overlap with that, and with the next row block.
fn late_cycles(nest: &Nest, roles: &StageRoles, picked: &IndexVec<StageId, Candidate>) -> f64 {
    if !is_cut_outside(nest) {
        return 0.0;
    }
    let most = |late: bool| {
        let stages = picked.iter_enumerated().filter(|(s, _)| roles.is_late(*s) == late);
        stages.map(|(_, c)| c.worked_cycles()).max().unwrap_or(0) as f64
    };
    let (late, early) = (most(true), most(false));
    (late.min(early) / nest.panels() as f64 - early / nest.column_tiles() as f64).max(0.0) / nest.blocks() as f64
}

/// Costs a plan: compute, memory and what cannot overlap of them.
pub(crate) fn estimate(
    chip: &Chip,
    graph: &SectionGraph<'_>,
    nest: &Nest,
    buffers: &IndexVec<BufferId, BufferSpec>,
    roles: &StageRoles,
    picked: &IndexVec<StageId, Candidate>,
    tiers: &[TierId],
) -> Estimate {
    let streams = streams(graph, nest, buffers);
    let moved = Moved::new(chip, graph, nest, roles, &streams, tiers);
    let Moved { reads, writes, weights, first_weights, first_block, late_writes, .. } = moved;
    let rate = streams.iter().next().map_or(1.0, |s| chip.tier_rate(tiers[s.tensor.index()]).bytes_per_cycle());
    let slowest_tier = |bytes: &[u64]| {
        let time = |(t, &bytes): (usize, &u64)| bytes as f64 / chip.tier_rate(TierId::from_index(t)).bytes_per_cycle();
        bytes.iter().enumerate().map(time).fold(0.0, f64::max)
    };
    let memory = slowest_tier(&moved.per_tier);
    let firings = nest.count(LoopLevel::FIRING) as f64;
    let pipeline = Pipeline::new(graph, nest, roles);
    let slowest = pipeline.slowest(|s| picked[s].cycles) + firings * hand_over_cycles(chip, graph);
    // A row tile passes every stage once before the slowest has all it works on; a stage that no cut touches fires but once a
    // row tile.
    // The sums of slices of K go through PMUs.
    let lag = |s: StageId| {
        let (mapping, footprint) = (&picked[s].mapping, &picked[s].footprint);
        footprint.lag_cycles(mapping.reduction(), mapping.pk(), walk_cycles(chip)) as f64
    };
    let fill = pipeline.fill_cycles(|s| picked[s].worked_cycles(), lag) + late_cycles(nest, roles, picked);
    let slowest =
        (slowest * crowding(chip, graph, nest, buffers, picked)).max(port_cycles(chip, graph, nest, buffers, picked));
    let firing = slowest / firings;
    let column_tile_parts = (nest.blocks() * nest.column_tiles()) as f64;
    let first_firing = moved.first_firing as f64 / rate;
    let first_weights = first_weights as f64 / rate;
    let mut compute = slowest + fill;
    let mut after_reads = firing;
    let first_slots = match nest.order {
        LoopOrder::ColumnTileOuter => first_weights / nest.column_tiles() as f64,
        LoopOrder::RowTileOuter => first_weights,
    };
    // Cycles of the first row block that wait for memory, if the first slots of weights take so long.
    let opening = |slots: f64| match nest.order {
        // The first column tile's compute must cover the loading of a block of activations and of the first weights, and that
        // of the block the loading of all its weights but for the last column tile.
        LoopOrder::ColumnTileOuter => {
            let block = first_block as f64 / rate;
            let column_tile = slowest / column_tile_parts;
            let all = block + slots + first_weights - first_slots;
            let in_all = all + column_tile - slowest / nest.blocks() as f64;
            (block + slots - column_tile).max(first_firing + slots).max(in_all).max(0.0)
        }
        // Weights come side by side, and each stage waits for its own: the first row tile passes some meanwhile.
        LoopOrder::RowTileOuter => (slots - slowest / nest.row_tiles() as f64 - fill / 2.0).max(first_firing),
    };
    let waits_for_weights = opening(first_slots) - opening(0.0);
    compute += opening(first_slots);
    if nest.order == LoopOrder::ColumnTileOuter && weights > 0 {
        after_reads = slowest / column_tile_parts + fill;
    }
    let tail = after_reads.max(late_writes as f64 / rate);
    let read_time = reads as f64 / rate + tail;
    let late_sums = slowest_tier(&moved.late_sums);
    // Memory is idle for them while rows pass, and behind the last nothing is left to compute.
    compute += late_sums + slowest_tier(&moved.first_state) + moved.last_firing as f64 / rate;
    let off_chip = (memory + firing).max(read_time + late_sums);
    // The last row tile passes the stages behind an accumulating one when all that others read has come.
    let late = pipeline.late_cycles(|s| picked[s].worked_cycles(), lag);
    let least = slowest_tier(&moved.early) + late;
    let running = |compute: f64, off_chip: f64, least: f64| {
        compute.max(off_chip).max(least) + PARAMS.estimate.unhidden * compute.min(off_chip)
    };
    let alone = running(compute, off_chip, least);
    let cycles = chip.launch_cycles() as f64 + alone;
    let without = |cycles: f64| (cycles - first_slots).max(0.0);
    let prefetched = running(compute - waits_for_weights, without(off_chip), without(least).max(late));
    let score = cycles + PARAMS.estimate.byte_price * memory;
    let work = picked.iter().map(Candidate::worked_cycles).max().unwrap_or(0);
    Estimate {
        least_cycles: chip.launch_cycles().saturating_add(work.max(memory.min(1e18) as u64)),
        firings: nest.count(LoopLevel::FIRING),
        parts: (compute.min(1e18) as u64, off_chip.min(1e18) as u64),
        cycles: cycles.min(1e18) as u64,
        score: score.min(1e18) as u64,
        busy_cycles: slowest.min(1e18) as u64,
        read_bytes: reads,
        write_bytes: writes,
        reads_again: streams.iter().any(|stream| stream.passes > 1),
        prefetch_saves_cycles: (alone - prefetched).clamp(0.0, 1e18) as u64,
        idle_memory_cycles: (alone - memory).clamp(0.0, 1e18) as u64,
    }
}
