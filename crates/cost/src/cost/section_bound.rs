//! The `bound` fidelity: the closed form of a configuration, a lower bound of what the event engine finds.

use rustc_hash::FxHashMap;

use rdusim_base::index::{Id, IndexVec};
use rdusim_base::units::{Bytes, Rate, index};
use rdusim_graph::arch::Chip;
use rdusim_graph::workload::{Tensor, Workload};
use rdusim_program::{
    BufferRole, Fabric, Flow, FlowId, FlowKind, Iteration, LoopLevel, OffChip, ResourceKind, RowTile, Schedule,
    Section, SectionGraph, Stage, StageId, StreamId, Sums, continues, emits, forwards, merges, shared,
};

use super::counts::{SectionRun, SkippedPeriods, StreamBytes};
use super::slots::{larger_shares, slot_bytes};
use super::stage_work::StageWork;
use super::time::{TICKS_PER_CYCLE, to_cycles};
use super::transfer::{first_slot_bytes, transfer_bytes};
use super::usage::Usage;

/// Steps that stand for all others: every column tile, with the row tiles that differ.
struct Classes {
    steps: Vec<(Iteration, u64)>,
}

impl Classes {
    /// Representatives of all firings of a section, and how many firings each stands for. Its first `different` row tiles
    /// stand for all but a shorter last one.
    fn of_firings(schedule: &Schedule, different: u64) -> Self {
        let tiling = schedule.tiling();
        let last = tiling.row_tiles() - 1;
        let ragged = tiling.is_ragged(last);
        let different = different.min(tiling.row_tiles());
        let mut steps = Vec::new();
        for column_tile in 0..tiling.column_tiles() {
            for row_tile in 0..different {
                // Row tiles `different` apart are equal.
                let like_it = (tiling.row_tiles() - row_tile).div_ceil(different);
                let full = like_it - u64::from(ragged && (last - row_tile).is_multiple_of(different));
                if full > 0 {
                    steps.push((schedule.at(column_tile, row_tile), full));
                }
            }
            if ragged {
                steps.push((schedule.at(column_tile, last), 1));
            }
        }
        Self { steps }
    }

    /// Those of the points of a nest. Points that cover all row tiles of a block, or of the section, are equal.
    fn of(schedule: &Schedule, level: LoopLevel, different: u64) -> Self {
        let column_tiles = schedule.tiling().column_tiles();
        match level {
            LoopLevel::FIRING => Self::of_firings(schedule, different),
            LoopLevel::ROW_TILE => {
                let mut all = Self::of_firings(schedule, different);
                all.steps.retain(|(step, _)| step.column_tile + 1 == column_tiles);
                all
            }
            LoopLevel::PANEL_ROW => {
                let mut all = Self::of_firings(schedule, different);
                all.steps.retain(|(step, _)| (step.column_tile + 1).is_multiple_of(schedule.tiles_of_panel()));
                all
            }
            LoopLevel::BLOCK_COLUMN | LoopLevel::COLUMN => {
                let times = schedule.count(level) / column_tiles;
                let steps = (0..column_tiles)
                    .map(|column_tile| (Iteration { block: 0, column_tile, row_tile: 0 }, times))
                    .collect();
                Self { steps }
            }
            _ => Self { steps: vec![(Iteration { block: 0, column_tile: 0, row_tile: 0 }, 1)] },
        }
    }

    /// Those of the slots of an activation tensor. Row tiles of windows have equal shares of the image, or some an element more
    /// than the first.
    fn of_slots(schedule: &Schedule, level: LoopLevel, tensor: &Tensor) -> Self {
        let mut all = Self::of(schedule, level, 1);
        let tiling = schedule.tiling();
        let full = tiling.row_tiles() - u64::from(tiling.is_ragged(tiling.row_tiles() - 1));
        let Some((with_more, first)) = tensor.window().and_then(|_| larger_shares(tensor, tiling.tile_rows, full))
        else {
            return all;
        };
        let mut larger = Vec::new();
        for (step, times) in all.steps.iter_mut().filter(|(step, times)| step.row_tile == 0 && *times == full) {
            *times -= with_more;
            larger.push((schedule.at(step.column_tile, first), with_more));
        }
        all.steps.append(&mut larger);
        all
    }
}

/// Bounds one section, launch excluded.
pub fn bound_section(chip: &Chip, workload: &Workload, fabric: &Fabric, section: &Section) -> Option<SectionRun> {
    let graph = SectionGraph::new(workload, &section.operators, section.operators.len() > 1)?;
    let schedule = &section.schedule;
    let tiling = schedule.tiling();
    let work: IndexVec<StageId, StageWork> = section
        .stages
        .iter_enumerated()
        .map(|(s, stage)| StageWork::new(chip, &graph, tiling, s, stage.mapping, &stage.work, &stage.tiles))
        .collect();
    let sizes = Sizes { chip, graph: &graph, section, work: &work };
    let sent: IndexVec<FlowId, u64> = sizes.all_flow_flits();
    let usage = Usage::new(fabric, &section.flows, &sent);
    let busy_cycles = busy_cycles(section, &work);
    let (mut macs, mut executed_macs, mut expanded_elements) = (0, 0, 0);
    let mut simd_elements = IndexVec::filled(section.stages.len(), 0);
    for (s, stage) in section.stages.iter_enumerated() {
        for (step, times) in Classes::of(schedule, stage.level, work[s].different_row_tiles()).steps {
            let rows = tiling.rows_of(step.row_tile);
            macs += times * work[s].stored_macs(step.column_tile, rows);
            executed_macs += times * work[s].executed_macs(step.column_tile, tiling.row_tile(step.row_tile));
            expanded_elements += times * work[s].expanded_elements(step.column_tile, rows);
            simd_elements[s] += times * work[s].simd_elements(step.column_tile, rows);
            if emits(stage, stage.mapping.groups() - 1, schedule, step) {
                let tail = stage.spec.tail.len() as u64;
                simd_elements[s] += times * tail * work[s].output_elements(step.column_tile, rows);
            }
        }
    }
    let (mut streams, tensors) = (IndexVec::new(), &workload.tensors);
    let mut tier_bytes = vec![0u64; chip.memory.len()];
    for (index, off_chip) in section.streams.iter_enumerated() {
        let mut bytes = StreamBytes::default();
        for (step, times) in Classes::of_slots(schedule, off_chip.stream.level, &tensors[off_chip.stream.tensor]).steps
        {
            let slot = transfer_bytes(chip, &graph, section, index, step);
            bytes.payload += times * slot.payload.0;
            bytes.waste += times * slot.waste().0;
        }
        if section.prefetched.contains(&index) {
            let slot = first_slot_bytes(chip, &graph, section, index);
            bytes.payload -= slot.payload.0;
            bytes.waste -= slot.waste().0;
        }
        tier_bytes[off_chip.tier.index()] += bytes.payload + bytes.waste;
        streams.push(bytes);
    }
    for load in &section.prefetches {
        tier_bytes[load.tier.index()] += load.moved_bytes;
    }
    let tier_ticks: Vec<u64> = tier_bytes
        .iter()
        .enumerate()
        .map(|(t, &bytes)| {
            let rate: Rate = chip.tier_rate(rdusim_graph::arch::TierId::from_index(t));
            rate.ticks(bytes, TICKS_PER_CYCLE)
        })
        .collect();
    let kinds = [ResourceKind::Link, ResourceKind::PmuPort, ResourceKind::PcuPort, ResourceKind::AgPort];
    let wires = kinds.iter().map(|&k| to_cycles(usage.busiest(k))).max().unwrap_or(0);
    let window_cycles = window_cycles(chip, section, &streams);
    let latency = section.streams.iter().map(|s| chip.tier_latency_cycles(s.tier)).min().unwrap_or(0);
    let compute = busy_cycles.iter().flatten().copied().max().map_or(0, |busy| busy + latency);
    let memory = tier_ticks.iter().copied().map(to_cycles).max().unwrap_or(0);
    Some(SectionRun {
        stopped: None,
        cycles: compute.max(memory).max(wires).max(window_cycles),
        busy_cycles,
        waits: IndexVec::new(),
        macs,
        executed_macs,
        expanded_elements,
        simd_elements,
        streams,
        tier_busy_cycles: tier_ticks.into_iter().map(to_cycles).collect(),
        window_cycles,
        usage,
        events: 0,
        work: 0,
        skipped: SkippedPeriods::default(),
    })
}

/// Cycles that each lockstep group of each stage works in the section.
pub fn busy_cycles(section: &Section, work: &IndexVec<StageId, StageWork>) -> IndexVec<StageId, Vec<u64>> {
    let (schedule, tiling) = (&section.schedule, section.schedule.tiling());
    let of_stage = |(s, stage): (StageId, &Stage)| {
        let mut busy = vec![0; index(stage.mapping.groups())];
        for (step, times) in Classes::of(schedule, stage.level, work[s].different_row_tiles()).steps {
            let row_tile = tiling.row_tile(step.row_tile);
            for (group, sum) in (0..).zip(&mut busy) {
                *sum += times * work[s].cycles(step.column_tile, group, row_tile).0;
            }
        }
        busy
    };
    section.stages.iter_enumerated().map(of_stage).collect()
}

/// Least cycles of any stream by Little's law: its bytes at the rate of the accesses that its address generators may
/// have under way.
pub fn window_cycles(chip: &Chip, section: &Section, moved: &IndexVec<StreamId, StreamBytes>) -> u64 {
    let cycles = |(off_chip, bytes): (&OffChip, &StreamBytes)| {
        off_chip.window_rate(chip).map_or(0, |rate| rate.cycles_for(bytes.payload + bytes.waste))
    };
    section.streams.iter().zip(moved.iter()).map(cycles).max().unwrap_or(0)
}

/// Flits that every flow of a section moves, in the order of its flows.
pub fn flow_flits(chip: &Chip, workload: &Workload, section: &Section) -> Option<IndexVec<FlowId, u64>> {
    let graph = SectionGraph::new(workload, &section.operators, section.operators.len() > 1)?;
    let stages = section.stages.iter_enumerated();
    let work: IndexVec<StageId, StageWork> = stages
        .map(|(s, stage)| {
            StageWork::new(chip, &graph, section.schedule.tiling(), s, stage.mapping, &stage.work, &stage.tiles)
        })
        .collect();
    let sizes = Sizes { chip, graph: &graph, section, work: &work };
    Some(sizes.all_flow_flits())
}

/// Flits that the whole amount moves in a section, of which each of some flows carries its share.
pub fn transfer_flits<'f>(
    chip: &Chip,
    graph: &SectionGraph<'_>,
    section: &Section,
    work: &IndexVec<StageId, StageWork>,
    flows: impl Iterator<Item = Option<&'f Flow>>,
) -> Vec<u64> {
    let sizes = Sizes { chip, graph, section, work };
    flows.map(|flow| flow.map_or(0, |flow| sizes.flits(flow, (1, 1)))).collect()
}

struct Sizes<'a> {
    chip: &'a Chip,
    graph: &'a SectionGraph<'a>,
    section: &'a Section,
    work: &'a IndexVec<StageId, StageWork>,
}

impl Sizes<'_> {
    /// Flits that each flow moves in the whole section. Flows of one kind and share move as many.
    fn all_flow_flits(&self) -> IndexVec<FlowId, u64> {
        let mut known = FxHashMap::default();
        let flits = |flow: &Flow| {
            *known.entry((flow.kind, flow.amount, flow.share)).or_insert_with(|| self.flits(flow, flow.share))
        };
        self.section.flows.iter().map(flits).collect()
    }

    /// Flits that a share of what a flow is part of moves in the whole section.
    fn flits(&self, flow: &Flow, share: (u64, u64)) -> u64 {
        let schedule = &self.section.schedule;
        let tiling = schedule.tiling();
        if let FlowKind::PartialRead { stage, .. }
        | FlowKind::PartialWrite { stage, .. }
        | FlowKind::State { stage, .. }
        | FlowKind::Emit { stage, .. } = flow.kind
            && let Some(sums) = self.section.stages[stage].spec.sums
            && self.work[stage].different_row_tiles() == 1
        {
            return self.flits_of_sums(flow, share, stage, sums);
        }
        let stage_flits = |stage: StageId, group: u64, wanted: &dyn Fn(Iteration) -> bool| {
            let different = self.work[stage].different_row_tiles();
            let classes = Classes::of(schedule, self.section.stages[stage].level, different);
            classes
                .steps
                .iter()
                .filter(|(step, _)| wanted(*step))
                .map(|&(step, times)| {
                    let tile = tiling.row_tile(step.row_tile);
                    let is_read = matches!(flow.kind, FlowKind::PartialRead { .. });
                    let tile = if is_read { self.work[stage].sums_before(tile) } else { tile };
                    times * shared(self.work[stage].flits(flow.amount, step.column_tile, group, tile).0, share)
                })
                .sum()
        };
        match flow.kind {
            FlowKind::Feed { stage, group } => stage_flits(stage, group, &|_| true),
            FlowKind::PartialRead { stage, group } => {
                stage_flits(stage, group, &|step| continues(&self.section.stages[stage], group, schedule, step))
            }
            FlowKind::PartialWrite { stage, group } => stage_flits(stage, group, &|step| {
                let stage = &self.section.stages[stage];
                !emits(stage, group, schedule, step) && !forwards(stage, group, schedule, step)
            }),
            FlowKind::Forward { stage, group } => {
                stage_flits(stage, group, &|step| forwards(&self.section.stages[stage], group, schedule, step))
            }
            FlowKind::Merge { stage, group } => {
                stage_flits(stage, group, &|step| merges(&self.section.stages[stage], group, schedule, step))
            }
            FlowKind::Emit { stage, group } | FlowKind::State { stage, group } => {
                stage_flits(stage, group, &|step| emits(&self.section.stages[stage], group, schedule, step))
            }
            FlowKind::Fill { stream, .. } | FlowKind::Drain { stream } => {
                let off_chip = &self.section.streams[stream].stream;
                let tensor = &self.graph.workload.tensors[off_chip.tensor];
                let classes = Classes::of_slots(schedule, off_chip.level, tensor);
                let bytes = |step| transfer_bytes(self.chip, self.graph, self.section, stream, step).payload;
                let before = self.section.prefetched.contains(&stream);
                self.slots(share, &classes, &bytes) - if before { self.first_slot_flits(share, stream) } else { 0 }
            }
            FlowKind::Copy { resident } => {
                let BufferRole::Resident { tensor, .. } = self.section.buffers[resident].spec.role else { return 0 };
                let bytes = |step| Bytes(slot_bytes(self.graph, tiling, tensor, step));
                let classes = Classes::of_slots(schedule, LoopLevel::FIRING, &self.graph.workload.tensors[tensor]);
                self.slots(share, &classes, &bytes)
            }
        }
    }

    /// Flits of a share of the first slot of a stream.
    fn first_slot_flits(&self, share: (u64, u64), stream: StreamId) -> u64 {
        let slot = first_slot_bytes(self.chip, self.graph, self.section, stream);
        shared(slot.payload.flits(self.chip.network.flit_bytes).0, share)
    }

    /// Flits of the sums over row tiles that a flow reads, writes or leaves: as many in all row tiles.
    fn flits_of_sums(&self, flow: &Flow, share: (u64, u64), stage: StageId, sums: Sums) -> u64 {
        let tiling = self.section.schedule.tiling();
        let along_cut = self.section.stages[stage].level == LoopLevel::FIRING;
        let completions = sums.completions(&self.section.schedule);
        let times = if matches!(flow.kind, FlowKind::Emit { .. } | FlowKind::State { .. }) {
            completions
        } else {
            tiling.row_tiles() - completions
        };
        let of_column_tile =
            |column_tile| self.work[stage].flits(flow.amount, column_tile, 0, RowTile::mean(tiling.tile_rows)).0;
        let column_tiles =
            if along_cut { 0..tiling.column_tiles() } else { tiling.column_tiles() - 1..tiling.column_tiles() };
        column_tiles.map(|column_tile| times * shared(of_column_tile(column_tile), share)).sum()
    }

    fn slots(&self, share: (u64, u64), classes: &Classes, bytes: &dyn Fn(Iteration) -> Bytes) -> u64 {
        let flit = self.chip.network.flit_bytes;
        classes.steps.iter().map(|&(step, times)| times * shared(bytes(step).flits(flit).0, share)).sum()
    }
}
