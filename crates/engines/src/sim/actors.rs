//! The actors of a section and the buffers between them.

use std::collections::VecDeque;

use rdusim_base::units::index;
use rdusim_cost::cost::{Ticks, cycles};
use rdusim_graph::arch::{Chip, Coordinate};
use rdusim_program::{
    Amount, BufferId, Fabric, Flow, FlowKind, Input, Iteration, LoopLevel, Process, ProcessFlows, ProcessGraph,
    ProcessKind, Section,
};

use super::hops::{GroupHops, site};
use super::network::transfer_group::TransferGroup;
use super::taken::Taken;

/// A firing that has begun and has not emitted results yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Firing {
    /// Where it stands in the nest.
    pub(super) at: Iteration,
    /// When its first results leave, which is what the engine's state knows of that event.
    pub(super) emits_at: Ticks,
    /// When it ends.
    pub(super) ends_at: Ticks,
    /// How long one of its output tiles takes.
    pub(super) tile: Ticks,
    /// Its output tiles.
    pub(super) tiles: u64,
}

/// One actor and the firing it has come to.
#[derive(Debug, Clone)]
pub(super) struct Actor {
    /// What it is.
    pub(super) kind: ProcessKind,
    /// The loop level at which it fires.
    pub(super) level: LoopLevel,
    /// Firings in the section.
    pub(super) count: u64,
    /// How many of these have begun; not all of them have ended.
    pub(super) next: u64,
    /// Where the next one stands in the nest; of an actor that has begun its last, the last.
    pub(super) at: Iteration,
    /// When it is free for the next.
    pub(super) free_at: Ticks,
    /// Of a lockstep group: when the activations, and the weights, of the firings begun have left their PMUs, so that those of
    /// the next may follow.
    pub(super) fed_at: [Ticks; 2],
    /// Of a lockstep group: how long its next firing waits for credits after its inputs are filled.
    pub(super) waits_for_credit: Ticks,
    /// Of a lockstep group: when its latest firings take their operands.
    pub(super) taken: Taken,
    /// When its next firing begins, if it is in the queue.
    pub(super) scheduled: Option<Ticks>,
    /// Buffers it reads.
    pub(super) inputs: Vec<Input>,
    /// Buffers it fills.
    pub(super) outputs: Vec<BufferId>,
    /// The transfer group of its activations; of streams and copies, of all they move.
    pub(super) feed: usize,
    /// The transfer group of its weights.
    pub(super) weights: usize,
    /// The transfer group of its results.
    pub(super) results: usize,
    /// The transfer group of the partial sums it starts from.
    pub(super) partial_reads: usize,
    /// The transfer group of the partial sums it leaves.
    pub(super) partial_writes: usize,
    /// The transfer group of what the step in its tail reads.
    pub(super) state: usize,
    /// The transfer group of the sums of other slices of K that it adds to its own.
    pub(super) merges: usize,
    /// Time of the hops of these sums.
    pub(super) merge_hops: Ticks,
    /// Flits of an activation stream, and of a weight stream, that FIFOs between PMU and PCU hold.
    pub(super) holds: [u64; 2],
    /// Time of the hops of the longest route of an operand.
    pub(super) feed_hops: Ticks,
    /// Time of the hops of results behind those of operands, on the longest way through one PCU.
    pub(super) result_hops: Ticks,
    /// Firings that have begun and have not emitted results yet, the oldest first.
    pub(super) under_way: VecDeque<Firing>,
    /// Cycles it has worked.
    pub(super) busy_cycles: u64,
    /// Time it has waited for its inputs ...
    pub(super) starved: Ticks,
    /// ... and for credits of its outputs.
    pub(super) stalled: Ticks,
}

/// How many transfer groups a lockstep group has: from `feed` to `merges` of [`Actor`].
const GROUPS: usize = 7;

impl Actor {
    /// How many transfer groups it has, from that of its activations on.
    pub(super) fn transfer_groups(&self) -> usize {
        if matches!(self.kind, ProcessKind::Group { .. }) { GROUPS } else { 1 }
    }
}

/// Every actor of a section, and what it sends.
pub(super) struct Actors<'a> {
    section: &'a Section,
    chip: &'a Chip,
    fabric: &'a Fabric,
    /// Who fires, and what each firing needs.
    pub(super) processes: ProcessGraph,
    /// Actors, one a process.
    pub(super) list: Vec<Actor>,
    /// Their transfer groups.
    pub(super) transfer_groups: Vec<TransferGroup>,
}

impl<'a> Actors<'a> {
    /// The actors of a section, none of which has fired.
    pub(super) fn new(chip: &'a Chip, fabric: &'a Fabric, section: &'a Section) -> Self {
        let processes = ProcessGraph::new(section);
        let mut actors = Self { section, chip, fabric, processes, list: Vec::new(), transfer_groups: Vec::new() };
        for index in 0..actors.processes.list.len() {
            actors.add_actor(index);
        }
        let mut hops = GroupHops::new(chip, fabric);
        for index in 0..actors.list.len() {
            hops.begin();
            actors.add_flows(index, &mut hops);
        }
        actors
    }

    fn add_actor(&mut self, index: usize) {
        let Process { kind, level, firings, ref inputs, ref outputs, .. } = self.processes.list[index];
        let first = self.transfer_groups.len();
        // Streams have several transfers on their way.
        let serial = !matches!(kind, ProcessKind::Load { .. } | ProcessKind::Store { .. });
        let count = if matches!(kind, ProcessKind::Group { .. }) { GROUPS } else { 1 };
        let independent = matches!(kind, ProcessKind::Copy { .. } | ProcessKind::Store { .. });
        self.transfer_groups.resize(first + count, TransferGroup { flows: Vec::new(), serial, independent });
        self.list.push(Actor {
            kind,
            level,
            count: firings,
            next: 0,
            at: self.processes.point(self.list.len(), 0),
            free_at: 0,
            fed_at: [0; 2],
            waits_for_credit: 0,
            taken: Taken::default(),
            scheduled: None,
            inputs: inputs.clone(),
            outputs: outputs.clone(),
            feed: first,
            weights: first + 1,
            results: first + 2,
            partial_reads: first + 3,
            partial_writes: first + 4,
            state: first + 5,
            merges: first + 6,
            merge_hops: 0,
            holds: [u64::MAX; 2],
            feed_hops: 0,
            result_hops: 0,
            under_way: VecDeque::new(),
            busy_cycles: 0,
            starved: 0,
            stalled: 0,
        });
    }

    fn add_flows(&mut self, index: usize, hops: &mut GroupHops<'_>) {
        let ProcessFlows { operands, weights, results, partial_reads, partial_writes, state, merges } =
            &self.processes.list[index].flows;
        let actor = &mut self.list[index];
        // Results come after all operands: their hops follow those.
        let of_actor = [
            (actor.feed, operands),
            (actor.weights, weights),
            (actor.partial_reads, partial_reads),
            (actor.results, results),
            (actor.partial_writes, partial_writes),
            (actor.state, state),
            (actor.merges, merges),
        ];
        for (group, flows) in of_actor.into_iter().take(actor.transfer_groups()) {
            self.transfer_groups[group].flows.clone_from(flows);
            for flow in flows.iter().map(|&f| &self.section.flows[f]) {
                if matches!(flow.kind, FlowKind::Feed { .. }) {
                    // A FIFO at every switch, and one at the PCU.
                    let depth = self.chip.network.fifo_depth_flits;
                    let kind = usize::from(flow.amount == Amount::Weights);
                    let holds = (switches_to_nearest(self.chip, self.fabric, flow) + 1) * depth;
                    actor.holds[kind] = actor.holds[kind].min(holds);
                }
                match flow.kind {
                    FlowKind::State { .. } => {}
                    FlowKind::PartialRead { .. }
                        if !flow.reads.is_some_and(|end| self.section.is_partial_fifo(end.buffer)) => {}
                    FlowKind::Merge { .. } => actor.merge_hops = actor.merge_hops.max(cycles(flow.hop_cycles)),
                    FlowKind::PartialWrite { .. } | FlowKind::Forward { .. } | FlowKind::Emit { .. } => {
                        hops.add_results(flow);
                    }
                    FlowKind::Feed { .. } | FlowKind::PartialRead { .. } => hops.add_operands(flow),
                    _ => actor.feed_hops = actor.feed_hops.max(cycles(flow.hop_cycles)),
                }
            }
        }
        if matches!(actor.kind, ProcessKind::Group { .. }) {
            (actor.feed_hops, actor.result_hops) = (cycles(hops.operands()), cycles(hops.results()));
        }
    }
}

/// Switches on the route of a flow from PMUs to the nearest of its PCUs: a flit leaves a FIFO when every branch has taken
/// it, so that a multicast holds no more than its shortest route.
fn switches_to_nearest(chip: &Chip, fabric: &Fabric, flow: &Flow) -> u64 {
    let ports = &flow.route[..flow.route.len() - index(flow.links)];
    let [source, sinks @ ..] = ports else { return 1 };
    let Some(from) = site(chip, fabric, *source) else { return 1 };
    let away = |to: Coordinate| u64::from(from.x.abs_diff(to.x) + from.y.abs_diff(to.y));
    let nearest = sinks.iter().filter_map(|&sink| site(chip, fabric, sink)).map(away).min();
    nearest.map_or(flow.links, |away| away.min(flow.links)) + 1
}
