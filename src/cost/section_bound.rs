//! The `bound` fidelity: the closed form of a configuration, a lower bound of what the event engine finds.

use crate::arch::Chip;
use crate::index::Id;
use crate::program::{
    BufferRole, Cadence, Fabric, Flow, FlowKind, Nest, ResourceKind, Section, SectionGraph, Step, Sums, continues,
    emits, shared,
};
use crate::units::Rate;
use crate::workload::Workload;

use super::counts::{SectionRun, StreamBytes};
use super::slots::slot_bytes;
use super::stage_work::StageWork;
use super::time::{TICKS_PER_CYCLE, to_cycles};
use super::transfer::{first_slot_bytes, transfer_bytes};
use super::usage::Usage;

/// Steps that stand for all others: every chunk, with the first token and, if it is shorter, the last.
struct Classes {
    steps: Vec<(Step, u64)>,
}

impl Classes {
    /// Representatives of the firings of a nest, and how many firings each stands for.
    fn of_firings(nest: &Nest) -> Self {
        let last = nest.tokens() - 1;
        let ragged = nest.is_ragged(last);
        let mut steps = Vec::new();
        for chunk in 0..nest.chunks() {
            let full = nest.tokens() - u64::from(ragged);
            if full > 0 {
                steps.push((Step { block: 0, chunk, token: 0 }, full));
            }
            if ragged {
                steps.push((Step { block: nest.blocks() - 1, chunk, token: last }, 1));
            }
        }
        Self { steps }
    }

    /// Those of one event a token.
    fn of_tokens(nest: &Nest) -> Self {
        let mut all = Self::of_firings(nest);
        let last = nest.chunks() - 1;
        all.steps.retain(|(step, _)| step.chunk == last);
        all
    }

    fn of(nest: &Nest, cadence: Cadence) -> Self {
        match cadence {
            Cadence::Firing => Self::of_firings(nest),
            Cadence::Token => Self::of_tokens(nest),
            Cadence::BlockChunk | Cadence::Chunk => {
                let times = if cadence == Cadence::BlockChunk { nest.blocks() } else { 1 };
                let steps = (0..nest.chunks()).map(|chunk| (Step { block: 0, chunk, token: 0 }, times)).collect();
                Self { steps }
            }
            Cadence::Once => Self { steps: vec![(Step { block: 0, chunk: 0, token: 0 }, 1)] },
        }
    }
}

/// Bounds one section, launch excluded.
pub fn bound_section(chip: &Chip, workload: &Workload, fabric: &Fabric, section: &Section) -> Option<SectionRun> {
    let graph = SectionGraph::new(workload, &section.operators, section.operators.len() > 1)?;
    let nest = &section.nest;
    let work: Vec<StageWork> = section
        .stages
        .iter()
        .enumerate()
        .map(|(s, stage)| StageWork::new(chip, &graph, nest, s, stage.mapping, &stage.work))
        .collect();
    let sizes = Sizes { chip, graph: &graph, section, work: &work };
    let sent: Vec<u64> = section.flows.iter().map(|flow| sizes.flow_flits(flow)).collect();
    let usage = Usage::new(fabric, &section.flows, &sent);
    let mut busy_cycles = Vec::new();
    let (mut macs, mut simd_elements) = (0, vec![0; section.stages.len()]);
    for (s, stage) in section.stages.iter().enumerate() {
        let mut busy = vec![0; stage.mapping.bundles() as usize];
        for (step, times) in Classes::of(nest, stage.cadence).steps {
            let rows = nest.rows_of(step.token);
            for (bundle, sum) in busy.iter_mut().enumerate() {
                *sum += times * work[s].cycles(step.chunk, bundle as u64, rows);
            }
            macs += times * work[s].stored_macs(step.chunk, rows);
            simd_elements[s] += times * work[s].simd_elements(step.chunk, rows);
            if emits(stage, stage.mapping.bundles() - 1, nest, step) {
                let tail = stage.spec.tail.len() as u64;
                simd_elements[s] += times * tail * work[s].output_elements(step.chunk, rows);
            }
        }
        busy_cycles.push(busy);
    }
    let mut streams = Vec::new();
    let mut tier_bytes = vec![0u64; chip.memory.len()];
    for (index, off_chip) in section.streams.iter().enumerate() {
        let mut bytes = StreamBytes::default();
        for (step, times) in Classes::of(nest, off_chip.stream.cadence).steps {
            let (payload, moved) = transfer_bytes(chip, &graph, section, index, step);
            bytes.payload += times * payload;
            bytes.waste += times * (moved - payload);
        }
        if section.loaded_before.contains(&index) {
            let (payload, moved) = first_slot_bytes(chip, &graph, section, index);
            bytes.payload -= payload;
            bytes.waste -= moved - payload;
        }
        tier_bytes[off_chip.tier.index()] += bytes.payload + bytes.waste;
        streams.push(bytes);
    }
    for load in &section.loads_ahead {
        tier_bytes[load.tier.index()] += load.moved_bytes;
    }
    let tier_ticks: Vec<u64> = tier_bytes
        .iter()
        .enumerate()
        .map(|(t, &bytes)| {
            let rate: Rate = chip.tier_rate(crate::arch::TierId::from_index(t));
            rate.ticks(bytes, TICKS_PER_CYCLE)
        })
        .collect();
    let kinds = [ResourceKind::Link, ResourceKind::PmuPort, ResourceKind::PcuPort, ResourceKind::AgPort];
    let wires = kinds.iter().map(|&k| to_cycles(usage.busiest(k))).max().unwrap_or(0);
    let latency = section.streams.iter().map(|s| chip.tier_latency_cycles(s.tier)).min().unwrap_or(0);
    let compute = busy_cycles.iter().flatten().copied().max().map_or(0, |busy| busy + latency);
    let memory = tier_ticks.iter().copied().map(to_cycles).max().unwrap_or(0);
    Some(SectionRun {
        stopped: None,
        cycles: compute.max(memory).max(wires),
        busy_cycles,
        waits: Vec::new(),
        macs,
        simd_elements,
        streams,
        tier_busy_cycles: tier_ticks.into_iter().map(to_cycles).collect(),
        usage,
        events: 0,
    })
}

/// Flits that every flow of a section moves, in the order of its flows.
pub fn flow_flits(chip: &Chip, workload: &Workload, section: &Section) -> Option<Vec<u64>> {
    let graph = SectionGraph::new(workload, &section.operators, section.operators.len() > 1)?;
    let stages = section.stages.iter().enumerate();
    let work: Vec<StageWork> =
        stages.map(|(s, stage)| StageWork::new(chip, &graph, &section.nest, s, stage.mapping, &stage.work)).collect();
    let sizes = Sizes { chip, graph: &graph, section, work: &work };
    Some(section.flows.iter().map(|flow| sizes.flow_flits(flow)).collect())
}

/// Flits that the whole amount moves in a section, of which each of some flows carries its share.
pub fn transfer_flits<'f>(
    chip: &Chip,
    graph: &SectionGraph<'_>,
    section: &Section,
    work: &[StageWork],
    flows: impl Iterator<Item = Option<&'f Flow>>,
) -> Vec<u64> {
    let sizes = Sizes { chip, graph, section, work };
    flows.map(|flow| flow.map_or(0, |flow| sizes.flits(flow, (1, 1)))).collect()
}

struct Sizes<'a> {
    chip: &'a Chip,
    graph: &'a SectionGraph<'a>,
    section: &'a Section,
    work: &'a [StageWork],
}

impl Sizes<'_> {
    /// Flits a flow moves in the whole section.
    fn flow_flits(&self, flow: &Flow) -> u64 {
        self.flits(flow, flow.share)
    }

    /// Flits that a share of what a flow is part of moves in the whole section.
    fn flits(&self, flow: &Flow, share: (u64, u64)) -> u64 {
        let nest = &self.section.nest;
        if let FlowKind::PartialRead { stage, .. } | FlowKind::PartialWrite { stage, .. } | FlowKind::Emit { stage, .. } =
            flow.kind
            && let Some(sums) = self.section.stages[stage].spec.sums
        {
            return self.flits_of_sums(flow, share, stage, sums);
        }
        let stage_flits = |stage: usize, bundle: u64, wanted: &dyn Fn(Step) -> bool| {
            let classes = Classes::of(nest, self.section.stages[stage].cadence);
            classes
                .steps
                .iter()
                .filter(|(step, _)| wanted(*step))
                .map(|&(step, times)| {
                    let rows = nest.rows_of(step.token);
                    times * shared(self.work[stage].flits(flow.amount, step.chunk, bundle, rows), share)
                })
                .sum()
        };
        match flow.kind {
            FlowKind::Feed { stage, bundle } => stage_flits(stage, bundle, &|_| true),
            FlowKind::PartialRead { stage, bundle } => {
                stage_flits(stage, bundle, &|step| continues(&self.section.stages[stage], bundle, nest, step))
            }
            FlowKind::PartialWrite { stage, bundle } => {
                stage_flits(stage, bundle, &|step| !emits(&self.section.stages[stage], bundle, nest, step))
            }
            FlowKind::Emit { stage, bundle } => {
                stage_flits(stage, bundle, &|step| emits(&self.section.stages[stage], bundle, nest, step))
            }
            FlowKind::Fill { stream, .. } | FlowKind::Drain { stream } => {
                let classes = Classes::of(nest, self.section.streams[stream].stream.cadence);
                let bytes = |step| transfer_bytes(self.chip, self.graph, self.section, stream, step).0;
                let before = self.section.loaded_before.contains(&stream);
                self.slots(share, &classes, &bytes) - if before { self.first_slot_flits(share, stream) } else { 0 }
            }
            FlowKind::Copy { home } => {
                let BufferRole::Home { tensor, .. } = self.section.buffers[home].spec.role else { return 0 };
                let bytes = |step| slot_bytes(self.graph, nest, tensor, step);
                self.slots(share, &Classes::of(nest, Cadence::Firing), &bytes)
            }
        }
    }

    /// Flits of a share of the first slot of a stream.
    fn first_slot_flits(&self, share: (u64, u64), stream: usize) -> u64 {
        let (payload, _) = first_slot_bytes(self.chip, self.graph, self.section, stream);
        shared(payload.div_ceil(self.chip.network.flit_bytes), share)
    }

    /// Flits of the sums over tokens that a flow reads, writes or leaves: alike in all tokens.
    fn flits_of_sums(&self, flow: &Flow, share: (u64, u64), stage: usize, sums: Sums) -> u64 {
        let nest = &self.section.nest;
        let along_cut = self.section.stages[stage].cadence == Cadence::Firing;
        let groups = sums.groups(nest);
        let times = if matches!(flow.kind, FlowKind::Emit { .. }) { groups } else { nest.tokens() - groups };
        let of_chunk = |chunk| self.work[stage].flits(flow.amount, chunk, 0, nest.token_rows);
        let chunks = if along_cut { 0..nest.chunks() } else { nest.chunks() - 1..nest.chunks() };
        chunks.map(|chunk| times * shared(of_chunk(chunk), share)).sum()
    }

    fn slots(&self, share: (u64, u64), classes: &Classes, bytes: &dyn Fn(Step) -> u64) -> u64 {
        let flit = self.chip.network.flit_bytes;
        classes.steps.iter().map(|&(step, times)| times * shared(bytes(step).div_ceil(flit), share)).sum()
    }
}
