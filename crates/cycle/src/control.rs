//! Row tiles and credits: who may begin its next firing, and which flits of it are there to be sent.
//!
//! An *agent* is whatever walks the loop nest: a lockstep group of PCUs, the copies of a resident buffer, an off-chip stream. It may
//! begin a firing when the slots it reads are filled and those it fills are free. A *reader* is a flow out of PMUs; it
//! sends the flits of the firings that its agent may begin, and of slots that are read as they fill, no flit before its
//! data. A slot is free again when its readers have sent their last flit of it.

use std::cmp::Ordering;

use rdusim_base::index::{Id, IndexVec};
use rdusim_program::{
    BufferId, BufferRole, FlowId, FlowKind, Input, Iteration, Mapping, ProcessKind, StreamId, Streamed,
};

use super::agents::{Agent, Fill, FillGroup, Reader, Slots, Target, first_reading};
use super::amounts::Amounts;
use super::winner_tree::WinnerTree;
use super::wires::Wires;

/// What the control tells the memory.
#[derive(Debug, Clone, Copy)]
pub(super) enum Order {
    /// A stream may move its next slot.
    Begin { stream: StreamId, slot: u64 },
    /// Part of a slot that is written has come to the address generators: of so many flits, the scarcest.
    Offer { stream: StreamId, slot: u64, got: u64, need: u64 },
}

/// Row tiles and credits of a section.
#[derive(Debug)]
pub(super) struct Control {
    pub(super) agents: Vec<Agent>,
    readers: Vec<Reader>,
    fills: Vec<Fill>,
    groups: Vec<FillGroup>,
    buffers: IndexVec<BufferId, Slots>,
    /// By sink and by flow.
    fill_of: Vec<Option<usize>>,
    reader_of: IndexVec<FlowId, Option<usize>>,
    store_of: IndexVec<StreamId, Option<usize>>,
    woken_agents: Vec<usize>,
    woken_readers: Vec<usize>,
    /// Whether each reader is among them.
    is_woken: Vec<bool>,
    pub(super) orders: Vec<Order>,
    /// Agents that may begin a firing since the list was last read.
    pub(super) began: Vec<usize>,
    /// Readers, fills and stores that are not through.
    pub(super) open: usize,
}

impl Control {
    /// The state before the first cycle.
    pub(super) fn new(amounts: &Amounts<'_>, wires: &Wires) -> Self {
        let section = amounts.section;
        let buffers = section.buffers.iter_enumerated().map(|(index, buffer)| Slots {
            level: buffer.spec.level,
            depth: buffer.spec.depth,
            filled: 0,
            released: 0,
            slices: Vec::new(),
            readers: Vec::new(),
            unreleased: 0,
            consumers: amounts.processes.consumers[index].clone(),
            producers: amounts.processes.producers[index].clone(),
            stored: matches!(buffer.spec.role, BufferRole::Output { .. }),
        });
        let mut control = Self {
            agents: Vec::new(),
            readers: Vec::new(),
            fills: Vec::new(),
            groups: Vec::new(),
            buffers: buffers.collect(),
            fill_of: vec![None; wires.sinks.len()],
            reader_of: IndexVec::filled(section.flows.len(), None),
            store_of: IndexVec::filled(section.streams.len(), None),
            woken_agents: Vec::new(),
            woken_readers: Vec::new(),
            is_woken: Vec::new(),
            orders: Vec::new(),
            began: Vec::new(),
            open: 0,
        };
        control.add_agents(amounts);
        control.add_fills(amounts, wires);
        control.add_groups();
        control.add_readers(amounts);
        control.is_woken = vec![false; control.readers.len()];
        control.buffers.iter_mut().for_each(|slots| slots.unreleased = slots.readers.len());
        control.woken_agents = (0..control.agents.len()).collect();
        control
    }

    /// An agent for each process of the section.
    fn add_agents(&mut self, amounts: &Amounts<'_>) {
        for (index, process) in amounts.processes.list.iter().enumerate() {
            if let ProcessKind::Store { stream } = process.kind {
                self.store_of[stream] = Some(index);
                self.open += 1;
            }
            // What is read as it comes does not keep its reader from beginning.
            let whole = process.inputs.iter().filter(|input| input.streamed == Streamed::Not);
            let whole = whole.copied().collect();
            let (outputs, readers) = (process.outputs.clone(), Vec::new());
            let enabled = match process.kind {
                ProcessKind::Load { stream } => amounts.first_slot(stream),
                _ => 0,
            };
            self.agents.push(Agent { kind: process.kind, count: process.firings, enabled, whole, outputs, readers });
        }
    }

    fn add_fills(&mut self, amounts: &Amounts<'_>, wires: &Wires) {
        for (index, sink) in wires.sinks.iter().enumerate().filter(|(_, sink)| sink.is_unit) {
            let id = FlowId::from_index(sink.flow as usize);
            let flow = &amounts.section.flows[id];
            let (target, slice, level) = match (flow.kind, flow.writes) {
                (FlowKind::Drain { stream }, _) => {
                    (Target::Stream(stream), 0, amounts.section.streams[stream].stream.level)
                }
                (FlowKind::PartialWrite { stage, .. }, Some(end)) => {
                    (Target::Sums(end.buffer), end.slice, amounts.section.stages[stage].level)
                }
                (_, Some(end)) => (Target::Buffer(end.buffer), end.slice, self.buffers[end.buffer].level),
                (_, None) => continue,
            };
            let slots = amounts.schedule.count(level);
            let slot = match flow.kind {
                FlowKind::Fill { stream, .. } => amounts.first_slot(stream),
                _ => 0,
            };
            let fill = self.fills.len();
            self.fill_of[index] = Some(fill);
            if let Target::Buffer(buffer) = target {
                self.buffers[buffer].filled = slot;
            }
            let group = (!matches!(target, Target::Sums(_))).then(|| self.group(target, slice));
            if let Some((group, _)) = group {
                self.groups[group].fills.push(fill);
            }
            self.fills.push(Fill {
                flow: id,
                target,
                group,
                slot,
                slots,
                got: 0,
                need: 0,
                total: 0,
                sums_read_by: Vec::new(),
            });
            self.open += 1;
            self.next_slot(amounts, fill);
        }
    }

    /// The group of a slice of a target, added if there is none yet, and which of the group the next fill is.
    fn group(&mut self, target: Target, slice: u64) -> (usize, usize) {
        let known = match target {
            Target::Buffer(buffer) => self.group_of_slice(buffer, slice),
            _ => self.groups.iter().position(|group| group.target == target),
        };
        let group = known.unwrap_or_else(|| {
            let slowest = WinnerTree::new(1, |_, _| Ordering::Equal);
            self.groups.push(FillGroup { target, slice, fills: Vec::new(), slowest });
            if let Target::Buffer(buffer) = target {
                self.buffers[buffer].slices.push(self.groups.len() - 1);
            }
            self.groups.len() - 1
        });
        (group, self.groups[group].fills.len())
    }

    fn group_of_slice(&self, buffer: BufferId, slice: u64) -> Option<usize> {
        self.buffers[buffer].slices.iter().copied().find(|&group| self.groups[group].slice == slice)
    }

    /// Finds the slowest fill of every group, and the slots that are filled as nothing comes for them.
    fn add_groups(&mut self) {
        for FillGroup { fills, slowest, .. } in &mut self.groups {
            let order = |a: usize, b: usize| self.fills[fills[a]].progress(&self.fills[fills[b]]);
            *slowest = WinnerTree::new(fills.len(), order);
        }
        for slots in &mut self.buffers {
            slots.filled = slots.filled_slots(&self.groups, &self.fills).max(slots.filled);
        }
    }

    /// Finds what a fill's slot needs, past slots it produces nothing to.
    fn next_slot(&mut self, amounts: &Amounts<'_>, fill: usize) {
        let f = &mut self.fills[fill];
        let (level, late) = match f.target {
            Target::Buffer(buffer) => (self.buffers[buffer].level, true),
            Target::Sums(_) => {
                let FlowKind::PartialWrite { stage, .. } = amounts.section.flows[f.flow].kind else { return };
                (amounts.section.stages[stage].level, true)
            }
            Target::Stream(stream) => (amounts.section.streams[stream].stream.level, true),
        };
        f.got = 0;
        while f.slot < f.slots {
            f.need = amounts.flits(&amounts.section.flows[f.flow], amounts.step(level, f.slot, late));
            if f.need > 0 {
                return;
            }
            f.slot += 1;
        }
        self.open -= 1;
    }

    fn add_readers(&mut self, amounts: &Amounts<'_>) {
        let section = amounts.section;
        for (index, flow) in section.flows.iter_enumerated() {
            let Some(end) = flow.reads else { continue };
            let agent = amounts.processes.of_flow[index];
            let reader = self.readers.len();
            let role = section.buffers[end.buffer].spec.role;
            let streamed = match (flow.kind, role) {
                (FlowKind::Feed { stage, .. }, BufferRole::Weight { .. }) => {
                    section.stages[stage].spec.sequence.is_none()
                }
                (FlowKind::PartialRead { .. }, BufferRole::PartialFifo { .. }) | (FlowKind::Merge { .. }, _) => true,
                (FlowKind::Feed { stage, .. }, _) => matches!(section.stages[stage].mapping, Mapping::Simd(_)),
                _ => false,
            };
            let sums =
                matches!(role, BufferRole::PartialSums { .. }).then(|| self.sums_read_by(amounts, index)).flatten();
            if sums.is_none() {
                self.buffers[end.buffer].readers.push(reader);
            } else {
                let writes = |fill: &&mut Fill| amounts.section.flows[fill.flow].writes == Some(end);
                self.fills.iter_mut().filter(writes).for_each(|fill| fill.sums_read_by.push(reader));
            }
            self.reader_of[index] = Some(reader);
            self.agents[agent].readers.push(reader);
            self.readers.push(Reader {
                flow: index,
                agent,
                firing: 0,
                of_firing: 0,
                before: 0,
                streamed: streamed.then(|| (end.buffer, self.group_of_slice(end.buffer, end.slice))),
                released: 0,
                sums,
            });
            self.open += 1;
            self.readers[reader].of_firing = amounts.flits(flow, self.step(amounts, agent, 0));
        }
    }

    /// The fill that writes the sums a flow reads, and its flits up to each firing.
    fn sums_read_by(&self, amounts: &Amounts<'_>, reading: FlowId) -> Option<(usize, Vec<u64>)> {
        let flows = &amounts.section.flows;
        let fill = self.fills.iter().position(|fill| {
            matches!(fill.target, Target::Sums(_)) && flows[fill.flow].writes == flows[reading].reads
        })?;
        let FlowKind::PartialWrite { stage, .. } = flows[self.fills[fill].flow].kind else { return None };
        let mut sum = 0;
        let upto = (0..self.fills[fill].slots).map(|n| {
            sum += amounts.flits(&flows[self.fills[fill].flow], amounts.stage_step(stage, n));
            sum
        });
        Some((fill, upto.collect()))
    }

    /// Where the `n`-th firing of an agent stands: of a store, where what it writes is complete.
    pub(super) fn step(&self, amounts: &Amounts<'_>, agent: usize, n: u64) -> Iteration {
        let (processes, at) = (&amounts.processes, amounts.processes.point(agent, n));
        match self.agents[agent].kind {
            ProcessKind::Store { .. } | ProcessKind::Group { .. } => {
                processes.complete_point(processes.list[agent].level, at)
            }
            ProcessKind::Copy { .. } | ProcessKind::Load { .. } => at,
        }
    }

    /// The buffers an agent's next firing waits for: filled slots, room.
    fn waits_for(&self, amounts: &Amounts<'_>, agent: usize) -> (Vec<BufferId>, Vec<BufferId>) {
        let a = &self.agents[agent];
        let at = self.step(amounts, agent, a.enabled);
        let slot = |b: BufferId| amounts.processes.slot(b, at);
        let empty = |input: &&Input| self.buffers[input.buffer].filled <= amounts.processes.needed(input, at);
        let full = |&b: &BufferId| slot(b) >= self.buffers[b].released + self.buffers[b].depth;
        let unfilled = a.whole.iter().filter(empty).map(|input| input.buffer).collect();
        let produces = amounts.processes.produces(a.kind, at);
        (unfilled, a.outputs.iter().copied().filter(|b| produces && full(b)).collect())
    }

    /// Whether an agent's next firing waits for no buffer.
    fn can_begin(&self, amounts: &Amounts<'_>, agent: usize) -> bool {
        let a = &self.agents[agent];
        let at = self.step(amounts, agent, a.enabled);
        let slot = |b: BufferId| amounts.processes.slot(b, at);
        let is_free = |&b: &BufferId| slot(b) < self.buffers[b].released + self.buffers[b].depth;
        a.whole.iter().all(|input| amounts.processes.needed(input, at) < self.buffers[input.buffer].filled)
            && (!amounts.processes.produces(a.kind, at) || a.outputs.iter().all(is_free))
    }

    /// Lets agents begin what they may, and readers send what is there; whether anything changed.
    pub(super) fn settle(&mut self, amounts: &Amounts<'_>, wires: &mut Wires, now: u64) -> bool {
        let mut changed = false;
        loop {
            if let Some(agent) = self.woken_agents.pop() {
                while self.agents[agent].enabled < self.agents[agent].count && self.can_begin(amounts, agent) {
                    let slot = self.agents[agent].enabled;
                    self.agents[agent].enabled += 1;
                    self.began.push(agent);
                    changed = true;
                    if let ProcessKind::Load { stream } | ProcessKind::Store { stream } = self.agents[agent].kind {
                        self.orders.push(Order::Begin { stream, slot });
                    }
                    for reader in 0..self.agents[agent].readers.len() {
                        self.wake(self.agents[agent].readers[reader]);
                    }
                }
            } else if let Some(reader) = self.woken_readers.pop() {
                self.is_woken[reader] = false;
                changed |= self.refill(amounts, wires, reader, now);
            } else {
                return changed;
            }
        }
    }

    /// Flits of a reader's firing that may be sent.
    fn there(&self, amounts: &Amounts<'_>, reader: &Reader) -> u64 {
        let at = self.step(amounts, reader.agent, reader.firing);
        if let Some((fill, upto)) = &reader.sums {
            let kind = self.agents[reader.agent].kind;
            let ProcessKind::Group { stage, .. } = kind else { return 0 };
            if !amounts.processes.continues(kind, at) {
                return 0;
            }
            let written = amounts
                .processes
                .sums_before(stage, at)
                .map_or(0, |before| amounts.schedule.ordinal(amounts.section.stages[stage].level, before) as usize);
            let first = written.checked_sub(1).map_or(0, |n| upto[n]);
            return self.fills[*fill].total.saturating_sub(first).min(reader.of_firing);
        }
        let Some((buffer, group)) = reader.streamed else { return reader.of_firing };
        let slots = &self.buffers[buffer];
        let slot = amounts.processes.slot(buffer, at);
        if slots.filled > slot {
            return reader.of_firing;
        }
        let filled = group.map_or((1, 1), |group| self.groups[group].part(&self.fills, slot));
        first_reading(
            amounts,
            reader.flow,
            at,
            reader.of_firing,
            filled.0,
            filled.1,
            slots.producers.first().map(|&g| &self.agents[g]),
        )
    }

    /// Gives a reader what is there, past firings that are sent.
    fn refill(&mut self, amounts: &Amounts<'_>, wires: &mut Wires, reader: usize, now: u64) -> bool {
        let mut changed = false;
        loop {
            let r = &self.readers[reader];
            if r.firing >= self.agents[r.agent].enabled {
                return changed;
            }
            let total = r.before + self.there(amounts, r);
            let (flow, all) = (r.flow, r.before + r.of_firing);
            if total > wires.ready(flow) {
                wires.give(flow, total, now);
                changed = true;
            }
            if wires.sent(flow) < all || self.frees_unfilled(amounts, reader) {
                return changed;
            }
            changed = true;
            self.finish(amounts, reader);
        }
    }

    /// Whether a firing that takes nothing of a slot would free it before it is filled.
    fn frees_unfilled(&self, amounts: &Amounts<'_>, reader: usize) -> bool {
        let r = &self.readers[reader];
        let Some((buffer, _)) = r.streamed.filter(|_| r.of_firing == 0) else { return false };
        let at = self.step(amounts, r.agent, r.firing);
        let input = amounts.processes.list[r.agent].inputs.iter().find(|input| input.buffer == buffer);
        let frees = input.is_some_and(|input| !amounts.processes.freed(input, at).is_empty());
        frees && amounts.processes.slot(buffer, at) >= self.buffers[buffer].filled
    }

    /// A reader has sent a firing.
    fn finish(&mut self, amounts: &Amounts<'_>, reader: usize) {
        let r = &self.readers[reader];
        let at = self.step(amounts, r.agent, r.firing);
        let (firing, flow, agent) = (r.firing + 1, r.flow, r.agent);
        let releases = r.sums.is_none();
        let r = &mut self.readers[reader];
        r.firing = firing;
        r.before += r.of_firing;
        if firing < self.agents[agent].count {
            let next = self.step(amounts, agent, firing);
            self.readers[reader].of_firing = amounts.flits(&amounts.section.flows[flow], next);
        } else {
            self.open -= 1;
        }
        let Some(end) = amounts.section.flows[flow].reads.filter(|_| releases) else { return };
        let slots = &self.buffers[end.buffer];
        let input = amounts.processes.list[agent].inputs.iter().find(|input| input.buffer == end.buffer);
        let freed = input.map_or(0..0, |input| amounts.processes.freed(input, at));
        if slots.stored || freed.is_empty() {
            return;
        }
        let before = self.readers[reader].released;
        self.readers[reader].released += freed.end - freed.start;
        if before > slots.released {
            return;
        }
        let slots = &mut self.buffers[end.buffer];
        slots.unreleased -= 1;
        if slots.unreleased == 0 {
            let released = |&reader: &usize| self.readers[reader].released;
            let least = slots.readers.iter().map(released).min().unwrap_or(0);
            slots.unreleased = slots.readers.iter().filter(|&reader| released(reader) == least).count();
            self.release(end.buffer, least);
        }
    }

    fn release(&mut self, buffer: BufferId, released: u64) {
        let slots = &mut self.buffers[buffer];
        if released > slots.released {
            slots.released = released;
            self.woken_agents.extend_from_slice(&slots.producers);
        }
    }

    /// A memory write is through: so many slots of a stream are.
    pub(super) fn stored(&mut self, amounts: &Amounts<'_>, stream: StreamId, slots: u64) {
        let tensor = amounts.section.streams[stream].stream.tensor;
        for (b, buffer) in amounts.section.buffers.iter_enumerated() {
            if matches!(buffer.spec.role, BufferRole::Output { tensor: t, .. } if t == tensor) {
                self.release(b, slots);
            }
        }
        if let Some(agent) = self.store_of[stream]
            && slots == self.agents[agent].count
        {
            self.open -= 1;
        }
    }

    /// A flow's source has sent all it was given.
    pub(super) fn sent(&mut self, flow: FlowId) {
        if let Some(reader) = self.reader_of[flow] {
            self.wake(reader);
        }
    }

    /// A reader is woken.
    fn wake(&mut self, reader: usize) {
        if !std::mem::replace(&mut self.is_woken[reader], true) {
            self.woken_readers.push(reader);
        }
    }

    /// A flit has come out at a sink.
    pub(super) fn delivered(&mut self, amounts: &Amounts<'_>, sink: usize) {
        let Some(fill) = self.fill_of[sink] else { return };
        let f = &mut self.fills[fill];
        f.got += 1;
        f.total += 1;
        let (target, slot) = (f.target, f.slot);
        if f.got == f.need {
            f.slot += 1;
            self.next_slot(amounts, fill);
        }
        let Some((group, member)) = self.fills[fill].group else {
            for reader in 0..self.fills[fill].sums_read_by.len() {
                self.wake(self.fills[fill].sums_read_by[reader]);
            }
            return;
        };
        let FillGroup { fills, slowest, .. } = &mut self.groups[group];
        // Only what all fills of the group have filled can be read or written.
        if slowest.update(member, |a, b| self.fills[fills[a]].progress(&self.fills[fills[b]])) {
            match target {
                Target::Stream(stream) => self.offer(stream, group, slot),
                Target::Buffer(buffer) => self.fill(buffer, group),
                Target::Sums(_) => {}
            }
        }
    }

    /// More of a slice of a buffer has been filled.
    fn fill(&mut self, buffer: BufferId, group: usize) {
        let slots = &mut self.buffers[buffer];
        let filled = slots.filled_slots(&self.groups, &self.fills);
        let is_full = filled > slots.filled;
        if is_full {
            slots.filled = filled;
            self.woken_agents.extend_from_slice(&slots.consumers);
        }
        // Of a slot that is not full, only those who read the same slice have more to read.
        for reader in 0..self.buffers[buffer].readers.len() {
            let reader = self.buffers[buffer].readers[reader];
            if self.readers[reader].streamed.is_some_and(|(_, of)| is_full || of == Some(group)) {
                self.wake(reader);
            }
        }
    }

    /// Tells the memory how much has come to the address generators of a stream, whose slowest was in `slot`.
    fn offer(&mut self, stream: StreamId, group: usize, slot: u64) {
        let slowest = self.groups[group].slowest(&self.fills);
        let (upto, got, need) = (slowest.slot, slowest.got, slowest.need);
        self.orders.extend((slot..upto).map(|slot| Order::Offer { stream, slot, got: 1, need: 1 }));
        if got > 0 {
            self.orders.push(Order::Offer { stream, slot: upto, got, need });
        }
    }

    /// Sums up who cannot go on: agent, firing, buffers whose slots it waits for, buffers whose room.
    pub(super) fn blocked(&self, amounts: &Amounts<'_>) -> Vec<(usize, Vec<BufferId>, Vec<BufferId>)> {
        let open = (0..self.agents.len()).filter(|&a| self.agents[a].enabled < self.agents[a].count);
        open.map(|agent| {
            let (unfilled, full) = self.waits_for(amounts, agent);
            (agent, unfilled, full)
        })
        .collect()
    }

    /// Slots of a buffer that are held: filled and not given back.
    pub(super) fn held(&self, buffer: BufferId) -> u64 {
        self.buffers[buffer].filled - self.buffers[buffer].released.min(self.buffers[buffer].filled)
    }
}
