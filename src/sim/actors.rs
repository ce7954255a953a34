//! The actors of a section and the buffers between them.

use crate::arch::{Chip, Coordinate};
use crate::cost::{Ticks, cycles};
use crate::index::Id;
use crate::program::{
    Amount, BufferId, Direction, Fabric, Flow, FlowKind, Input, LoopLevel, Mapping, Port, Process, ProcessFlows,
    ProcessGraph, ProcessKind, Section, Step,
};

use super::apart::weight;
use super::transfer_group::Volley;

/// A firing that has begun and not yet emitted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Firing {
    /// Where it stands in the nest.
    pub(super) at: Step,
    /// When it begins to emit.
    pub(super) emits_at: Ticks,
    /// When it ends.
    pub(super) ends_at: Ticks,
    /// How long a tile takes.
    pub(super) tile: Ticks,
    /// How many there are.
    pub(super) tiles: u64,
}

/// The firing of a lockstep group that was begun last.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Latest {
    /// When it ends.
    pub(super) end: Ticks,
    /// How long it works.
    pub(super) occupied: Ticks,
    /// Flits of its longest activation stream, and of its longest weight stream.
    pub(super) flits: [u64; 2],
}

impl Latest {
    /// When all but the last `flits` of a kind of operand have been taken.
    pub(super) fn taken(&self, kind: usize, flits: u64) -> Ticks {
        let all = self.flits[kind].max(1);
        let left = (u128::from(self.occupied) * u128::from(flits.min(all)) / u128::from(all)) as Ticks;
        self.end.saturating_sub(left)
    }
}

/// The results of a lockstep group that left last.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Left {
    /// When the first did.
    pub(super) from: Ticks,
    /// Flits of the longest stream.
    pub(super) flits: u64,
}

/// One actor and the firing it has come to.
#[derive(Debug, Clone)]
pub(super) struct Actor {
    /// What it is.
    pub(super) kind: ProcessKind,
    /// How often it fires.
    pub(super) level: LoopLevel,
    /// Firings in the section.
    pub(super) count: u64,
    /// Firings done.
    pub(super) next: u64,
    /// When it is free for the next.
    pub(super) free_at: Ticks,
    /// Of a lockstep group: when the activations, and the weights, of the firings begun have left their PMUs, so that those of
    /// the next may follow.
    pub(super) fed_at: [Ticks; 2],
    /// ... and when, as far as was known, they are through the last link or port.
    pub(super) fed_by: [Ticks; 2],
    /// Of a lockstep group: how long its next firing waits for room, its inputs being there.
    pub(super) waits_for_room: Ticks,
    /// Of a lockstep group: its latest firing.
    pub(super) latest: Latest,
    /// Of a lockstep group: its latest results.
    pub(super) left: Left,
    /// When its next firing begins, if it is in the queue.
    pub(super) scheduled: Option<Ticks>,
    /// Buffers it reads.
    pub(super) inputs: Vec<Input>,
    /// Buffers it fills.
    pub(super) outputs: Vec<BufferId>,
    /// The volley of its activations (streams and copies: of all they move).
    pub(super) feed: usize,
    /// The volley of its weights.
    pub(super) weights: usize,
    /// The volley of its results.
    pub(super) results: usize,
    /// The volley of partial sums it starts from.
    pub(super) partial_reads: usize,
    /// The volley of partial sums it leaves.
    pub(super) partial_writes: usize,
    /// Flits of an activation stream, and of a weight stream, that FIFOs between PMU and PCU hold.
    pub(super) holds: [u64; 2],
    /// What comes through the ports of its PCUs, each kind of port once: parts of its activations and of its weights, of
    /// [`super::apart::GRAIN`].
    pub(super) ports: Vec<[u64; 2]>,
    /// Longest way of an operand.
    pub(super) feed_hops: Ticks,
    /// Longest way of a result.
    pub(super) result_hops: Ticks,
    /// The firing under way.
    pub(super) firing: Option<Firing>,
    /// Cycles it has worked.
    pub(super) busy_cycles: u64,
    /// Time it has waited for its inputs ...
    pub(super) starved: Ticks,
    /// ... and for room in its outputs, or for results to leave.
    pub(super) stalled: Ticks,
}

impl Actor {
    /// How many volleys it has, from that of its activations on.
    pub(super) fn volleys(&self) -> usize {
        if matches!(self.kind, ProcessKind::Group { .. }) { 5 } else { 1 }
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
    /// What actors send together.
    pub(super) volleys: Vec<Volley>,
}

impl<'a> Actors<'a> {
    /// The actors of a section, none of which has fired.
    pub(super) fn new(chip: &'a Chip, fabric: &'a Fabric, section: &'a Section) -> Self {
        let processes = ProcessGraph::new(section);
        let mut actors = Self { section, chip, fabric, processes, list: Vec::new(), volleys: Vec::new() };
        for index in 0..actors.processes.list.len() {
            actors.add_actor(index);
        }
        for index in 0..actors.list.len() {
            actors.add_flows(index);
        }
        actors.add_ports();
        actors
    }

    fn add_actor(&mut self, index: usize) {
        let Process { kind, level, firings, ref inputs, ref outputs, .. } = self.processes.list[index];
        let volley = self.volleys.len();
        // Streams have several transfers on their way.
        let serial = !matches!(kind, ProcessKind::Load { .. } | ProcessKind::Store { .. });
        let volleys = if matches!(kind, ProcessKind::Group { .. }) { 5 } else { 1 };
        let apart = matches!(kind, ProcessKind::Copy { .. } | ProcessKind::Store { .. });
        self.volleys.resize(volley + volleys, Volley { flows: Vec::new(), serial, apart, holds_flits: None });
        self.list.push(Actor {
            kind,
            level,
            count: firings,
            next: 0,
            free_at: 0,
            fed_at: [0; 2],
            fed_by: [0; 2],
            waits_for_room: 0,
            latest: Latest::default(),
            left: Left::default(),
            scheduled: None,
            inputs: inputs.clone(),
            outputs: outputs.clone(),
            feed: volley,
            weights: volley + 1,
            results: volley + 2,
            partial_reads: volley + 3,
            partial_writes: volley + 4,
            holds: [u64::MAX; 2],
            ports: Vec::new(),
            feed_hops: 0,
            result_hops: 0,
            firing: None,
            busy_cycles: 0,
            starved: 0,
            stalled: 0,
        });
    }

    fn add_flows(&mut self, index: usize) {
        let ProcessFlows { operands, weights, results, partial_reads, partial_writes } =
            &self.processes.list[index].flows;
        let actor = &mut self.list[index];
        let volleys = [
            (actor.feed, operands),
            (actor.weights, weights),
            (actor.results, results),
            (actor.partial_reads, partial_reads),
            (actor.partial_writes, partial_writes),
        ];
        // Links of a chain of PCUs come one after the other, behind the operands of its first.
        let (mut chain_hops, mut longest_chain) = (0, 0);
        for (volley, flows) in volleys.into_iter().take(actor.volleys()) {
            self.volleys[volley].flows.clone_from(flows);
            for flow in flows.iter().map(|&f| &self.section.flows[f]) {
                if let FlowKind::Feed { stage, .. } = flow.kind {
                    // A FIFO at every switch, and one at the PCU.
                    let depth = self.chip.network.fifo_depth_flits;
                    let kind = usize::from(flow.amount == Amount::Weights);
                    // The fewest of all count: most are seen not to be fewer before they are counted.
                    if (least_switches(self.chip, self.fabric, flow) + 1) * depth < actor.holds[kind] {
                        let holds = (switches_to_nearest(self.chip, self.fabric, flow) + 1) * depth;
                        actor.holds[kind] = actor.holds[kind].min(holds);
                        if let Mapping::Gemm(_) = self.section.stages[stage].mapping {
                            let known = &mut self.volleys[volley].holds_flits;
                            *known = Some(known.map_or(holds, |known| known.min(holds)));
                        }
                    }
                }
                let hops = cycles(flow.hop_cycles);
                match flow.kind {
                    FlowKind::PartialRead { .. }
                        if !flow.reads.is_some_and(|end| self.section.is_partial_fifo(end.buffer)) => {}
                    FlowKind::PartialWrite { .. } | FlowKind::Emit { .. } => {
                        actor.result_hops = actor.result_hops.max(hops);
                    }
                    FlowKind::Feed { .. } if !flow.from_pmu => {
                        chain_hops += hops;
                        longest_chain = longest_chain.max(chain_hops);
                    }
                    _ => {
                        chain_hops = 0;
                        actor.feed_hops = actor.feed_hops.max(hops);
                    }
                }
            }
        }
        actor.feed_hops += longest_chain;
    }

    /// Sums up what comes through each port of each lockstep group.
    fn add_ports(&mut self) {
        let mut parts: Vec<[u64; 2]> = vec![[0; 2]; self.fabric.count()];
        let mut met: Vec<usize> = Vec::new();
        for actor in self.list.iter_mut().filter(|actor| matches!(actor.kind, ProcessKind::Group { .. })) {
            for (kind, volley) in [actor.feed, actor.weights].into_iter().enumerate() {
                for flow in self.volleys[volley].flows.iter().map(|&f| &self.section.flows[f]) {
                    let part = weight(flow.share, 1);
                    let ports = &flow.route[..flow.route.len() - flow.links as usize];
                    let is_input = |port: &&u32| matches!(self.fabric.port_at(**port), Some(Port::PcuIn(..)));
                    for port in ports.iter().filter(is_input).map(|&port| port as usize) {
                        if parts[port] == [0; 2] {
                            met.push(port);
                        }
                        parts[port][kind] += part;
                    }
                }
            }
            for port in met.drain(..) {
                let parts = std::mem::take(&mut parts[port]);
                if !actor.ports.contains(&parts) {
                    actor.ports.push(parts);
                }
            }
        }
    }
}

/// Where the unit of a port stands, if it is a PMU that is read, or a PCU.
fn site(chip: &Chip, fabric: &Fabric, port: u32) -> Option<Coordinate> {
    match fabric.port_at(port) {
        Some(Port::PmuRead(pmu, _)) => Some(chip.grid.pmus[pmu.index()]),
        Some(Port::PcuIn(pcu, _) | Port::PcuOut(pcu, _)) => Some(chip.grid.pcus[pcu.index()]),
        _ => None,
    }
}

/// No more than [`switches_to_nearest`], told by how far the nearest stands.
fn least_switches(chip: &Chip, fabric: &Fabric, flow: &Flow) -> u64 {
    let ports = &flow.route[..flow.route.len() - flow.links as usize];
    let [source, sinks @ ..] = ports else { return 1 };
    let Some(from) = site(chip, fabric, *source) else { return 1 };
    let away = |to: Coordinate| u64::from(from.x.abs_diff(to.x) + from.y.abs_diff(to.y));
    let nearest = sinks.iter().filter_map(|&sink| site(chip, fabric, sink)).map(away).min();
    nearest.map_or(flow.links, |away| away.min(flow.links)) + 1
}

/// Switches on the way of a flow from PMUs to the nearest of its PCUs. A flit leaves a FIFO when every branch has taken it,
/// so that a multicast holds no more than its shortest way.
fn switches_to_nearest(chip: &Chip, fabric: &Fabric, flow: &Flow) -> u64 {
    let (ports, links) = flow.route.split_at(flow.route.len() - flow.links as usize);
    let [source, sinks @ ..] = ports else { return 1 };
    let mut reached: Vec<Coordinate> = site(chip, fabric, *source).into_iter().collect();
    if sinks.len() == 1 || reached.is_empty() {
        return flow.links + 1;
    }
    let sinks: Vec<Coordinate> = sinks.iter().filter_map(|&sink| site(chip, fabric, sink)).collect();
    let mut ahead: Vec<_> = links.iter().filter_map(|&link| fabric.link_at(link)).collect();
    for switches in 1..=flow.links {
        if sinks.iter().any(|sink| reached.contains(sink)) {
            return switches;
        }
        let mut next = Vec::new();
        ahead.retain(|&(from, direction, _)| {
            let is_crossed = reached.contains(&from);
            if is_crossed {
                next.push(neighbour(from, direction));
            }
            !is_crossed
        });
        reached = next;
    }
    flow.links + 1
}

/// The switch next to one.
fn neighbour(Coordinate { x, y }: Coordinate, direction: Direction) -> Coordinate {
    match direction {
        Direction::East => Coordinate { x: x + 1, y },
        Direction::West => Coordinate { x: x.wrapping_sub(1), y },
        Direction::South => Coordinate { x, y: y + 1 },
        Direction::North => Coordinate { x, y: y.wrapping_sub(1) },
    }
}
