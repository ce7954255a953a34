//! What one event of a flow moves, and what a slot of an off-chip stream holds: the arithmetic of the mapping.

use crate::arch::Chip;
use crate::cost::{StageWork, reduced_extent, slot_bytes};
use crate::program::{
    BufferRole, Cadence, Flow, FlowKind, Nest, PassWork, Section, SectionGraph, Step, continues, emits, shared,
};

/// Flits and bytes of a section's events.
pub(super) struct Amounts<'a> {
    /// The chip.
    pub(super) chip: &'a Chip,
    /// The operators of the section.
    pub(super) graph: SectionGraph<'a>,
    /// The section.
    pub(super) section: &'a Section,
    /// The loop nest.
    pub(super) nest: Nest,
    /// Work of every stage.
    pub(super) work: Vec<StageWork>,
}

impl<'a> Amounts<'a> {
    /// Those of a section.
    pub(super) fn new(chip: &'a Chip, graph: SectionGraph<'a>, section: &'a Section) -> Self {
        let nest = section.nest;
        let stages = section.stages.iter().enumerate();
        let work =
            stages.map(|(s, stage)| StageWork::new(chip, &graph, &nest, s, stage.mapping, &stage.work)).collect();
        Self { chip, graph, section, nest, work }
    }

    /// The `n`-th step of a cadence; if `late`, its last. What happens once a token in a stage or leaves it happens in the
    /// last chunk, what is added up over tokens is complete with the last.
    pub(super) fn step(&self, cadence: Cadence, n: u64, late: bool) -> Step {
        let (step, nest) = (self.nest.step(cadence, n), &self.nest);
        let (chunk, end) = (nest.chunks() - 1, nest.tokens() - 1);
        match cadence {
            Cadence::Token if late => Step { chunk, ..step },
            Cadence::BlockChunk if late => Step { token: nest.block_range(step.block).end - 1, ..step },
            Cadence::Chunk if late => Step { block: nest.blocks() - 1, token: end, ..step },
            Cadence::Once if late => Step { block: nest.blocks() - 1, chunk, token: end },
            _ => step,
        }
    }

    /// Where the `n`-th firing of a stage stands.
    pub(super) fn stage_step(&self, stage: usize, n: u64) -> Step {
        self.step(self.section.stages[stage].cadence, n, true)
    }

    /// Flits that a flow has moved at the end of every event in which it moves some.
    pub(super) fn ends(&self, flow: &Flow) -> Box<[u64]> {
        let (cadence, late) = match flow.kind {
            FlowKind::Feed { stage, .. }
            | FlowKind::Emit { stage, .. }
            | FlowKind::PartialRead { stage, .. }
            | FlowKind::PartialWrite { stage, .. } => (self.section.stages[stage].cadence, true),
            FlowKind::Fill { stream, .. } => (self.section.streams[stream].stream.cadence, false),
            FlowKind::Drain { stream } => (self.section.streams[stream].stream.cadence, true),
            FlowKind::Copy { .. } => (Cadence::Firing, false),
        };
        let mut moved = 0;
        let events = (0..self.nest.count(cadence)).map(|n| self.flits(flow, self.step(cadence, n, late)));
        let ends = events.filter(|&flits| flits > 0).map(|flits| {
            moved += flits;
            moved
        });
        ends.collect()
    }

    /// Flits that a flow moves in the event at a step.
    pub(super) fn flits(&self, flow: &Flow, at: Step) -> u64 {
        let flit = self.chip.network.flit_bytes;
        let of_stage = |stage: usize, bundle: u64| {
            self.work[stage].flits(flow.amount, at.chunk, bundle, self.nest.rows_of(at.token))
        };
        let emits_here = |stage: usize, bundle| emits(&self.section.stages[stage], bundle, &self.nest, at);
        let all = match flow.kind {
            FlowKind::Feed { stage, bundle } => of_stage(stage, bundle),
            FlowKind::Emit { stage, bundle } if emits_here(stage, bundle) => of_stage(stage, bundle),
            FlowKind::PartialRead { stage, bundle }
                if continues(&self.section.stages[stage], bundle, &self.nest, at) =>
            {
                of_stage(stage, bundle)
            }
            FlowKind::PartialWrite { stage, bundle } if !emits_here(stage, bundle) => of_stage(stage, bundle),
            FlowKind::Emit { .. } | FlowKind::PartialRead { .. } | FlowKind::PartialWrite { .. } => 0,
            FlowKind::Fill { stream, .. } | FlowKind::Drain { stream } => {
                self.stream_bytes(stream, at).0.div_ceil(flit)
            }
            FlowKind::Copy { home } => match self.section.buffers[home].spec.role {
                BufferRole::Home { tensor, .. } => slot_bytes(&self.graph, &self.nest, tensor, at).div_ceil(flit),
                _ => 0,
            },
        };
        shared(all, flow.share)
    }

    /// Payload of a stream's slot, and the bytes of the bursts that hold it.
    pub(super) fn stream_bytes(&self, stream: usize, at: Step) -> (u64, u64) {
        let off_chip = &self.section.streams[stream];
        let burst = self.chip.memory[off_chip.tier].burst_bytes;
        if off_chip.stream.weight {
            let payload = self.weight_bytes(stream, at.chunk as usize);
            return (payload, payload.next_multiple_of(burst));
        }
        let tensor = &self.graph.workload.tensors[off_chip.stream.tensor];
        let payload = slot_bytes(&self.graph, &self.nest, off_chip.stream.tensor, at);
        if let Some((rows, columns)) = reduced_extent(&self.graph, &self.nest, off_chip.stream.tensor, at) {
            let (rows, whole) = (rows.end - rows.start, columns.end - columns.start == tensor.columns);
            let runs = if whole || rows == 0 { 1 } else { rows };
            return (payload, runs * (payload / runs).next_multiple_of(burst));
        }
        let rows = self.nest.rows_of(at.token);
        if payload < rows * tensor.columns * tensor.dtype.bytes() {
            (payload, rows * (payload / rows).next_multiple_of(burst))
        } else {
            (payload, payload.next_multiple_of(burst))
        }
    }

    /// Stored bytes of a chunk of a weight: its share by stored elements, exact in the sum over chunks.
    fn weight_bytes(&self, stream: usize, chunk: usize) -> u64 {
        let wanted = &self.section.streams[stream].stream;
        let total = self.graph.workload.tensors[wanted.tensor].stored_bytes();
        let user = self.section.stages.iter().find(|stage| stage.spec.weight == Some(wanted.tensor));
        let Some(stage) = user.filter(|_| wanted.cadence != Cadence::Once) else { return total };
        let stored = |chunks: &[Vec<PassWork>]| chunks.iter().flatten().map(|work| work.stored).sum::<u64>();
        let all = u128::from(stored(&stage.work).max(1));
        let upto = |chunks: usize| (u128::from(total) * u128::from(stored(&stage.work[..chunks])) / all) as u64;
        upto(chunk + 1) - upto(chunk)
    }
}
