//! Every stream of a placed section as a flow between ports: the requests that the router serves.
//!
//! Flows come in a fixed order: operands of each stage, results of each stage, copies, off-chip streams.

mod feeds;
mod off_chip;
mod results;

use crate::compile::params::PARAMS;
use rdusim_base::index::{Id, IndexVec};
use rdusim_cost::cost::slot_bytes;
use rdusim_graph::arch::{Chip, Coordinate};
use rdusim_program::{
    Amount, BufferId, BufferRole, Fabric, Flow, FlowEnd, FlowId, FlowKind, Iteration, LoopLevel, Part, PcuId, Resource,
    ResourceKind, RowTile, SectionGraph, shared,
};

use super::placed::Placed;
use super::route::Requests;
use super::unrouted::Unrouted;

/// A slice of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct BufferSlice {
    buffer: BufferId,
    slice: u64,
}

/// Makes the flows of a section.
pub(crate) struct FlowBuilder<'a> {
    chip: &'a Chip,
    fabric: &'a Fabric,
    graph: &'a SectionGraph<'a>,
    placed: &'a Placed,
    busy_cycles: f64,
    flows: IndexVec<FlowId, Flow>,
    requests: Requests,
    mean_rates: IndexVec<FlowId, f64>,
    /// Scratch: sinks of the flow at hand.
    sinks: Vec<End>,
}

/// An end of a flow: a port, and the site its unit stands at.
type End = (Resource, Coordinate);

impl<'a> FlowBuilder<'a> {
    /// A builder of the flows of `placed`; `busy_cycles` is the time in which links move what they move.
    pub(crate) fn new(
        chip: &'a Chip,
        fabric: &'a Fabric,
        graph: &'a SectionGraph<'a>,
        placed: &'a Placed,
        busy_cycles: u64,
    ) -> Self {
        Self {
            chip,
            fabric,
            graph,
            placed,
            busy_cycles: busy_cycles.max(1) as f64,
            flows: IndexVec::new(),
            requests: Requests::default(),
            mean_rates: IndexVec::new(),
            sinks: Vec::new(),
        }
    }

    /// All flows, in a fixed order, still without links.
    pub(crate) fn build(mut self) -> Unrouted {
        for stage in self.placed.stages.ids() {
            self.feeds(stage);
        }
        for stage in self.placed.stages.ids() {
            self.results(stage);
        }
        self.copies();
        self.off_chip();
        Unrouted { flows: self.flows, requests: self.requests, mean_rates: self.mean_rates }
    }

    fn pcu_site(&self, pcu: PcuId) -> Coordinate {
        self.chip.grid.pcus[pcu.index()]
    }

    fn read_end(&self, part: &Part) -> End {
        (self.fabric.pmu_read(part.pmu, part.read_port), self.chip.grid.pmus[part.pmu.index()])
    }

    fn write_end(&self, part: &Part) -> End {
        (self.fabric.pmu_write(part.pmu, part.write_port), self.chip.grid.pmus[part.pmu.index()])
    }

    fn add(&mut self, kind: FlowKind, amount: Amount, share: (u64, u64), source: End, sinks: &[End]) -> &mut Flow {
        let mean_rate = self.section_flits(kind, amount, share) / self.busy_cycles;
        let rate = mean_rate + PARAMS.routing.burst_weight * (self.burst_rate(kind, share) - mean_rate).max(0.0);
        self.mean_rates.push(mean_rate);
        self.requests.push(source.1, sinks.iter().map(|s| s.1), rate);
        let is_pmu = |end: &End| self.fabric.kind(end.0) == ResourceKind::PmuPort;
        // With room for its links, which are as many as that where it leads to one place only.
        let hops = sinks.last().map_or(0, |s| source.1.x.abs_diff(s.1.x) + source.1.y.abs_diff(s.1.y));
        let mut route = Vec::with_capacity(1 + sinks.len() + hops as usize);
        route.push(source.0);
        route.extend(sinks.iter().map(|s| s.0));
        let pmu_sinks = sinks.iter().filter(|s| is_pmu(s)).count() as u64;
        let from_pmu = is_pmu(&source);
        let (reads, writes, links, hop_cycles) = (None, None, 0, 0);
        let at =
            self.flows.push(Flow { kind, amount, share, reads, writes, route, links, hop_cycles, pmu_sinks, from_pmu });
        &mut self.flows[at]
    }

    /// Flits a cycle an off-chip flow moves while its tier serves only it: what its links must bear in bursts.
    fn burst_rate(&self, kind: FlowKind, share: (u64, u64)) -> f64 {
        let (FlowKind::Fill { stream, .. } | FlowKind::Drain { stream }) = kind else { return 0.0 };
        let tier = self.chip.tier_rate(self.placed.streams[stream].tier).bytes_per_cycle();
        let flits = tier / self.chip.network.flit_bytes as f64 * share.0 as f64 / share.1 as f64;
        flits.min(1.0)
    }

    /// Flits a flow moves in the whole section, to weigh its links by.
    fn section_flits(&self, kind: FlowKind, amount: Amount, share: (u64, u64)) -> f64 {
        let nest = &self.placed.nest;
        let rows = RowTile::mean(nest.tile_rows);
        let flit = self.chip.network.flit_bytes;
        let (each, events) = match kind {
            FlowKind::Feed { stage, group }
            | FlowKind::Emit { stage, group }
            | FlowKind::State { stage, group }
            | FlowKind::PartialRead { stage, group }
            | FlowKind::PartialWrite { stage, group }
            | FlowKind::Forward { stage, group }
            | FlowKind::Merge { stage, group } => {
                let emits = matches!(kind, FlowKind::Emit { .. } | FlowKind::State { .. });
                let stage_of = &self.placed.stages[stage];
                let level = if emits { stage_of.result_level() } else { stage_of.level };
                (self.placed.work[stage].flits(amount, 0, group, rows).0, nest.count(level))
            }
            FlowKind::Fill { stream, .. } | FlowKind::Drain { stream } => {
                let stream = &self.placed.streams[stream].stream;
                let bytes = stream.tensor_bytes.saturating_mul(stream.passes);
                (bytes.div_ceil(flit), 1)
            }
            FlowKind::Copy { resident } => {
                let BufferRole::Resident { tensor, .. } = self.placed.buffers[resident].spec.role else { return 0.0 };
                let bytes =
                    slot_bytes(self.graph, nest.tiling(), tensor, Iteration { block: 0, column_tile: 0, row_tile: 0 });
                (bytes.div_ceil(flit), nest.count(LoopLevel::FIRING))
            }
        };
        shared(each, share) as f64 * events as f64
    }

    /// One flow for each part of a slice, to that part of every copy.
    fn fill_piece(
        &mut self,
        kind: FlowKind,
        amount: Amount,
        share: (u64, u64),
        source: End,
        reads: Option<FlowEnd>,
        BufferSlice { buffer: index, slice }: BufferSlice,
    ) {
        let buffer = &self.placed.buffers[index];
        let parts = (0..buffer.spec.copies).map(|c| buffer.piece(c, slice).parts.len()).max().unwrap_or(0);
        let mut sinks = std::mem::take(&mut self.sinks);
        for part in 0..parts {
            sinks.clear();
            let mut portion = (1, 1);
            for copy in 0..buffer.spec.copies {
                let piece = buffer.piece(copy, slice);
                if let Some(p) = piece.parts.get(part) {
                    let banks: u64 = piece.parts.iter().map(|p| p.banks).sum();
                    // The largest part at this position: copies may be cut differently.
                    if sinks.is_empty() || p.banks * portion.1 > portion.0 * banks {
                        portion = (p.banks, banks);
                    }
                    sinks.push(self.write_end(p));
                }
            }
            let flow = self.add(kind, amount, (share.0 * portion.0, share.1 * portion.1), source, &sinks);
            flow.reads = reads;
            flow.writes = Some(FlowEnd { buffer: index, slice, part });
        }
        self.sinks = sinks;
    }
}

fn pairs(a: u64, b: u64) -> impl Iterator<Item = (u64, u64)> {
    (0..a).flat_map(move |x| (0..b).map(move |y| (x, y)))
}
