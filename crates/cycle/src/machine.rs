//! All units of a section, cycle after cycle.

use std::collections::VecDeque;

use rdusim_base::index::{Id, IndexVec};
use rdusim_base::interrupt;
use rdusim_graph::arch::{Chip, TierId};
use rdusim_graph::workload::Workload;
use rdusim_program::{
    BufferId, Fabric, FlowId, FlowKind, LoopLevel, Mapping, PcuId, ProcessKind, Section, SectionGraph, StageId,
    StreamId, Update,
};

use super::amounts::Amounts;
use super::array::{Array, Did};
use super::control::{Control, Order};
use super::memory::{Key, Progress, Tier};
use super::results::Operand;
use super::run::{CycleRun, Ended};
use super::simd::Pipeline;
use super::tree::{Ports, Tree};
use super::wires::{NEVER, Wires};

/// Turns of the loop over cycles between two looks for an interrupt: some tenths of a second on a large section.
const TURNS_BETWEEN_CHECKS: u64 = 1 << 10;

#[expect(clippy::large_enum_variant, reason = "there are few, and most are arrays")]
enum Unit {
    Array(Array),
    Pipeline(Pipeline),
}

/// An off-chip stream between its memory and its flows.
struct Stream {
    flows: Vec<FlowId>,
    /// Flits of each flow of the slots before, and of the first slot under way.
    before: Vec<u64>,
    of_slot: Vec<u64>,
    /// Slots under way, in order: bytes there, of how many.
    under_way: VecDeque<(u64, u64)>,
    /// First slot under way; slots begun.
    first: u64,
    begun: u64,
    /// Slots behind `first` that have been written.
    written: Vec<u64>,
    payload: u64,
    moved: u64,
}

impl Stream {
    /// Counts what its flows move of the first slot that is not through, once what was before it is.
    fn open_slot(&mut self, amounts: &Amounts<'_>, stream: StreamId) {
        let section = amounts.section;
        let level = section.streams[stream].stream.level;
        for (i, &flow) in self.flows.iter().enumerate() {
            self.before[i] += self.of_slot[i];
            self.of_slot[i] = if self.first < amounts.schedule.count(level) {
                amounts.flits(&section.flows[flow], amounts.step(level, self.first, false))
            } else {
                0
            };
        }
    }
}

/// A section with all its units.
pub(super) struct Machine<'a> {
    amounts: Amounts<'a>,
    wires: Wires,
    control: Control,
    units: Vec<Unit>,
    /// The agent of every unit, and the units of every agent.
    agent_of_unit: Vec<usize>,
    units_of_agent: Vec<Vec<usize>>,
    /// Units that may move in the next cycle, as bits.
    awake: Vec<u64>,
    /// Of every sink and of every flow's source, the unit.
    unit_of_sink: Vec<Option<usize>>,
    unit_of_flow: IndexVec<FlowId, Option<usize>>,
    tiers: Vec<Tier>,
    streams: IndexVec<StreamId, Stream>,
    progress: Vec<Progress>,
    end: u64,
}

impl<'a> Machine<'a> {
    /// Sets up a section; `None` if its operators are no pipeline, its routes no trees, or its output tiles do not fit its nest.
    pub(super) fn new(chip: &'a Chip, workload: &'a Workload, fabric: &Fabric, section: &'a Section) -> Option<Self> {
        let graph = SectionGraph::new(workload, &section.operators, section.operators.len() > 1)?;
        let ports = Ports::new(chip, fabric);
        let trees: Vec<Tree> =
            section.flows.iter().map(|flow| Tree::new(chip, fabric, &ports, flow)).collect::<Option<_>>()?;
        let depth = chip.network.fifo_depth_flits;
        // Operands have at most 4 bytes an element; an optimiser's state may have several words.
        let state_bytes =
            |update: Update| (update.state_columns * graph.dtype(update.state).bytes()).div_ceil(update.word);
        let element_bytes = graph.stages.iter().filter_map(|stage| stage.update).map(state_bytes).fold(4, u64::max);
        let widest = chip.pcu.lanes.values().copied().max().unwrap_or(1).max(chip.pcu.stages) * element_bytes;
        // A step of an operand fits into its input FIFO twice.
        let input_depth = depth.max(2 * widest.div_ceil(chip.network.flit_bytes));
        let holds = |_: usize, port| ports.pcu(port).map(|_| input_depth);
        let (packet, hop) = (chip.network.max_packet_flits, chip.network.hop_cycles);
        let amounts = Amounts::new(chip, graph, section)?;
        let ends = section.flows.iter().map(|flow| amounts.ends(flow)).collect();
        let wires = Wires::new(fabric, &trees, ends, depth, packet, hop, &holds);
        let control = Control::new(&amounts, &wires);
        let tiers = (0..chip.memory.len()).map(|t| Tier::new(chip, TierId::from_index(t), &section.streams)).collect();
        let streams: IndexVec<StreamId, Stream> = section
            .streams
            .ids()
            .map(|stream| {
                let of = |kind| matches!(kind, FlowKind::Fill { stream: s, .. } if s == stream);
                let flows: Vec<FlowId> = section.flows.ids().filter(|&f| of(section.flows[f].kind)).collect();
                let (before, of_slot) = (vec![0; flows.len()], vec![0; flows.len()]);
                let (under_way, written) = (VecDeque::new(), Vec::new());
                let first = amounts.first_slot(stream);
                let mut of =
                    Stream { flows, before, of_slot, under_way, first, begun: first, written, payload: 0, moved: 0 };
                of.open_slot(&amounts, stream);
                of
            })
            .collect();
        let mut machine = Self {
            unit_of_sink: vec![None; wires.sinks.len()],
            unit_of_flow: IndexVec::filled(section.flows.len(), None),
            streams,
            amounts,
            wires,
            control,
            units: Vec::new(),
            agent_of_unit: Vec::new(),
            units_of_agent: Vec::new(),
            awake: Vec::new(),
            tiers,
            progress: Vec::new(),
            end: 0,
        };
        machine.add_units(&ports)?;
        for &stream in &section.prefetched {
            let off_chip = &section.streams[stream];
            let (_, moved) =
                machine.amounts.stream_bytes(stream, machine.amounts.step(off_chip.stream.level, 0, false));
            machine.tiers[off_chip.tier.index()].pass(stream, moved);
        }
        Some(machine)
    }

    fn add_units(&mut self, ports: &Ports) -> Option<()> {
        let section = self.amounts.section;
        self.units_of_agent = vec![Vec::new(); self.control.agents.len()];
        for (s, stage) in section.stages.iter_enumerated() {
            let (pm, wide) = (stage.mapping.pm(), stage.group_width());
            for group in 0..stage.mapping.groups() {
                let is_this = |kind| matches!(kind, ProcessKind::Group { stage, group: g } if (stage, g) == (s, group));
                let agent = self.control.agents.iter().position(|agent| is_this(agent.kind))?;
                let first = self.units.len();
                for i in 0..pm {
                    match stage.mapping {
                        Mapping::Gemm(_) => {
                            for q in 0..wide {
                                self.add_array(ports, (s, group), stage.pcu(group, i, q))?;
                            }
                        }
                        Mapping::Simd(m) => {
                            for at in 0..wide * m.chain {
                                let passes_on = at % m.chain + 1 < m.chain;
                                self.add_pipeline(ports, s, stage.pcu(group, i, at), passes_on)?;
                            }
                        }
                    }
                }
                self.units_of_agent[agent] = (first..self.units.len()).collect();
                self.agent_of_unit.resize(self.units.len(), agent);
            }
        }
        self.awake = vec![0; self.units.len().div_ceil(64)];
        (0..self.units.len()).for_each(|unit| self.wake(unit));
        Some(())
    }

    /// Flows that come out at a PCU, with their sinks, and that begin at it.
    fn flows_of(&mut self, ports: &Ports, pcu: PcuId) -> (Vec<Operand>, Vec<FlowId>) {
        let unit = Some(self.units.len());
        let mut into = Vec::new();
        for (index, sink) in self.wires.sinks.iter().enumerate() {
            if ports.pcu(sink.resource) == Some(pcu) {
                self.unit_of_sink[index] = unit;
                into.push(Operand::new(FlowId::from_index(sink.flow as usize), index));
            }
        }
        let flows = &self.amounts.section.flows;
        let out: Vec<FlowId> = flows.ids().filter(|&f| ports.pcu(flows[f].route[0]) == Some(pcu)).collect();
        for &flow in &out {
            self.unit_of_flow[flow] = unit;
        }
        (into, out)
    }

    fn add_array(&mut self, ports: &Ports, place: (StageId, u64), pcu: PcuId) -> Option<()> {
        use rdusim_program::Amount;
        let (into, out) = self.flows_of(ports, pcu);
        let flows = &self.amounts.section.flows;
        let [mut rows, mut columns, mut sums, mut state, mut merged] = [const { Vec::new() }; 5];
        for operand in into {
            match flows[operand.flow].amount {
                Amount::Activations => rows.push(operand),
                Amount::Weights => columns.push(operand),
                Amount::State => state.push(operand),
                _ if matches!(flows[operand.flow].kind, FlowKind::Merge { .. }) => merged.push(operand),
                _ => sums.push(operand),
            }
        }
        let (partials, results): (Vec<FlowId>, Vec<FlowId>) =
            out.into_iter().partition(|&flow| matches!(flows[flow].kind, FlowKind::PartialWrite { .. }));
        let array =
            Array::new(&self.amounts, place.0, place.1, [rows, columns, sums, state, merged], [results, partials])?;
        self.units.push(Unit::Array(array));
        Some(())
    }

    fn add_pipeline(&mut self, ports: &Ports, stage: StageId, pcu: PcuId, passes_on: bool) -> Option<()> {
        let (into, out) = self.flows_of(ports, pcu);
        self.units.push(Unit::Pipeline(Pipeline::new(&self.amounts, stage, into, out, passes_on)?));
        Some(())
    }

    /// Runs to the end, or for `most_cycles`.
    pub(super) fn run(mut self, most_cycles: u64) -> CycleRun {
        let mut now = 0;
        let mut turns = 0_u64;
        let ended = loop {
            turns += 1;
            if turns.is_multiple_of(TURNS_BETWEEN_CHECKS) {
                interrupt::check();
            }
            let mut moved = self.remember(now);
            moved |= self.control.settle(&self.amounts, &mut self.wires, now);
            self.wake_begun();
            self.give_orders(now);
            self.tiers.iter_mut().for_each(|tier| tier.tick(now));
            if self.control.open == 0 {
                break None;
            }
            if now >= most_cycles {
                break Some(Ended::Limit);
            }
            moved |= self.tick_units(now);
            moved |= self.wires.tick(now);
            self.pass_on(now);
            if moved {
                now += 1;
                continue;
            }
            let next = self.tiers.iter().map(Tier::next_at).fold(self.wires.next_at(), u64::min);
            if next == NEVER {
                break Some(Ended::Deadlock(self.blocked()));
            }
            now = next.max(now + 1);
        };
        self.report(ended)
    }

    /// One cycle of the units that are awake; whether one moved.
    fn tick_units(&mut self, now: u64) -> bool {
        let mut moved = false;
        for word in 0..self.awake.len() {
            let mut awake = self.awake[word];
            while awake != 0 {
                let bit = awake & awake.wrapping_neg();
                awake ^= bit;
                let unit = word * 64 + bit.trailing_zeros() as usize;
                let enabled = self.control.agents[self.agent_of_unit[unit]].enabled;
                let did = match &mut self.units[unit] {
                    Unit::Array(u) => u.tick(&self.amounts, &mut self.wires, enabled, now),
                    Unit::Pipeline(u) => u.tick(&self.amounts, &mut self.wires, now),
                };
                if did == Did::Moved {
                    moved = true;
                } else {
                    self.awake[word] ^= bit;
                }
            }
        }
        moved
    }

    fn wake(&mut self, unit: usize) {
        self.awake[unit / 64] |= 1 << (unit % 64);
    }

    /// Wakes the units whose groups may begin another firing.
    fn wake_begun(&mut self) {
        while let Some(agent) = self.control.began.pop() {
            for i in 0..self.units_of_agent[agent].len() {
                self.wake(self.units_of_agent[agent][i]);
            }
        }
    }

    /// Takes what the memories have ready; whether anything arrived.
    fn remember(&mut self, now: u64) -> bool {
        let mut moved = false;
        for tier in 0..self.tiers.len() {
            let mut progress = std::mem::take(&mut self.progress);
            self.tiers[tier].arrive(now, &mut progress);
            moved |= !progress.is_empty();
            for step in progress.drain(..) {
                self.end = self.end.max(now);
                self.arrived(step, now);
            }
            self.progress = progress;
        }
        moved
    }

    fn arrived(&mut self, step: Progress, now: u64) {
        let (_, index, slot) = step.key;
        let off_chip = &self.amounts.section.streams[index].stream;
        let stream = &mut self.streams[index];
        if off_chip.writes {
            if step.bytes == step.of {
                stream.written.push(slot);
                let before = stream.first;
                while let Some(place) = stream.written.iter().position(|&slot| slot == stream.first) {
                    stream.written.swap_remove(place);
                    stream.first += 1;
                }
                if stream.first > before {
                    self.control.stored(&self.amounts, index, stream.first);
                }
            }
            return;
        }
        // A slot without bytes may have passed already, with the one before it.
        let Some(behind) = slot.checked_sub(stream.first) else { return };
        stream.under_way[behind as usize] = (step.bytes, step.of);
        while let Some(&(bytes, of)) = stream.under_way.front() {
            for (i, &flow) in stream.flows.iter().enumerate() {
                let all = stream.of_slot[i];
                let there = (u128::from(all) * u128::from(bytes) / u128::from(of.max(1))) as u64;
                self.wires.give(flow, stream.before[i] + there, now);
            }
            if bytes < of {
                return;
            }
            stream.under_way.pop_front();
            stream.first += 1;
            stream.open_slot(&self.amounts, index);
        }
    }

    fn key(&self, stream: StreamId, slot: u64) -> Key {
        let off_chip = &self.amounts.section.streams[stream].stream;
        let at = self.amounts.step(off_chip.level, slot, off_chip.writes);
        let due = if off_chip.writes { at } else { self.amounts.processes.due(stream, at) };
        (self.amounts.schedule.ordinal(LoopLevel::FIRING, due), stream, slot)
    }

    fn give_orders(&mut self, now: u64) {
        for order in std::mem::take(&mut self.control.orders) {
            match order {
                Order::Begin { stream, slot } => {
                    let off_chip = &self.amounts.section.streams[stream];
                    let at = self.amounts.step(off_chip.stream.level, slot, false);
                    let (payload, moved, runs) = self.amounts.stored_slot(stream, at);
                    let key = self.key(stream, slot);
                    let s = &mut self.streams[stream];
                    s.payload += payload;
                    s.moved += moved;
                    s.begun += 1;
                    let here = if off_chip.stream.writes { 0 } else { moved };
                    if !off_chip.stream.writes {
                        s.under_way.push_back((0, moved));
                    }
                    self.tiers[off_chip.tier.index()].ask(key, moved, here, runs, now);
                }
                Order::Offer { stream, slot, got, need } => {
                    let off_chip = &self.amounts.section.streams[stream];
                    let at = self.amounts.step(off_chip.stream.level, slot, false);
                    let moved = self.amounts.stream_bytes(stream, at).1;
                    let bytes = (u128::from(moved) * u128::from(got) / u128::from(need)) as u64;
                    let key = self.key(stream, slot);
                    self.tiers[off_chip.tier.index()].offer(key, bytes);
                }
            }
        }
    }

    /// Tells units and buffers what moved in this cycle.
    fn pass_on(&mut self, now: u64) {
        for i in 0..self.wires.delivered.len() {
            let sink = self.wires.delivered[i] as usize;
            self.end = now + 1;
            match self.unit_of_sink[sink] {
                Some(unit) => self.wake(unit),
                None => self.control.delivered(&self.amounts, sink),
            }
        }
        for i in 0..self.wires.injected.len() {
            let flow = FlowId::from_index(self.wires.injected[i] as usize);
            match self.unit_of_flow[flow] {
                Some(unit) => self.wake(unit),
                None if self.wires.sent(flow) == self.wires.ready(flow) => self.control.sent(flow),
                None => {}
            }
        }
    }

    fn blocked(&self) -> Vec<String> {
        let workload = self.amounts.graph.workload;
        let section = self.amounts.section;
        let tensor = |buffer: BufferId| {
            use rdusim_program::BufferRole;
            match section.buffers[buffer].spec.role {
                BufferRole::Operand { tensor, .. }
                | BufferRole::Resident { tensor, .. }
                | BufferRole::Weight { tensor, .. }
                | BufferRole::State { tensor, .. }
                | BufferRole::Output { tensor, .. } => workload.tensors[tensor].name.clone(),
                BufferRole::PartialSums { stage } | BufferRole::PartialFifo { stage, .. } => {
                    format!("sums of {}", self.stage_name(stage))
                }
            }
        };
        let mut lines = Vec::new();
        for (agent, unfilled, full) in self.control.blocked(&self.amounts) {
            let agent = &self.control.agents[agent];
            let name = match agent.kind {
                ProcessKind::Group { stage, group } => format!("`{}` lockstep group {group}", self.stage_name(stage)),
                ProcessKind::Copy { resident, .. } => format!("copies of `{}`", tensor(resident)),
                ProcessKind::Load { stream } => {
                    format!("load of `{}`", workload.tensors[section.streams[stream].stream.tensor].name)
                }
                ProcessKind::Store { stream } => {
                    format!("store of `{}`", workload.tensors[section.streams[stream].stream.tensor].name)
                }
            };
            let mut waits: Vec<String> = unfilled.iter().map(|&b| format!("a row tile of `{}`", tensor(b))).collect();
            waits.extend(full.iter().map(|&b| {
                let depth = section.buffers[b].spec.depth;
                format!("room in `{}` ({} of {depth} slots held)", tensor(b), self.control.held(b))
            }));
            lines.push(format!(
                "{name} at firing {} of {}: waits for {}",
                agent.enabled,
                agent.count,
                waits.join(", ")
            ));
        }
        for unit in &self.units {
            let (stage, firing) = match unit {
                Unit::Array(u) => (u.stage, u.firing()),
                Unit::Pipeline(u) => (u.stage, u.firing()),
            };
            let count = self.amounts.schedule.count(section.stages[stage].level);
            if firing < count {
                let line = format!("a PCU of `{}` is at firing {firing} of {count}", self.stage_name(stage));
                if !lines.contains(&line) {
                    lines.push(line);
                }
            }
        }
        lines
    }

    fn stage_name(&self, stage: StageId) -> &str {
        &self.amounts.graph.workload.operators[self.amounts.section.stages[stage].spec.main].name
    }

    fn report(self, ended: Option<Ended>) -> CycleRun {
        let section = self.amounts.section;
        CycleRun {
            ended,
            cycles: self.end,
            flits: section.flows.ids().map(|flow| self.wires.sent(flow)).collect(),
            loads: self.wires.loads().collect(),
            streams: self.streams.iter().map(|s| (s.payload, s.moved - s.payload)).collect(),
            tier_bytes: self.tiers.iter().map(|t| t.bytes).collect(),
        }
    }
}
