//! The event engine: row tiles, units, streams and links of one section in time order.
//!
//! Every actor (a lockstep group of PCUs, a copy between PMUs, an off-chip stream) walks its nest firing by firing. A firing
//! starts when its inputs are filled, its outputs have credits and the actor is free; what it moves then enters the links,
//! ports and memory tiers that it uses. A time that is given to a slot or a firing is never revised.
//! `docs/timing-model.md` fixes every convention.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rdusim_base::index::{Id, IndexVec};
use rdusim_base::units::{Bytes, Flits};
use rdusim_cost::cost::{
    Limits, SectionRun, SlotBytes, StageWork, Stopped, StreamBytes, TICKS_PER_CYCLE, Ticks, Waits, slot_bytes,
    to_cycles, transfer_bytes, transfer_flits, window_cycles,
};
use rdusim_graph::arch::Chip;
use rdusim_graph::workload::Workload;
use rdusim_program::{
    Amount, BufferId, BufferRole, Fabric, FlowKind, Input, Iteration, LoopLevel, Mapping, ProcessGraph, ProcessKind,
    Reduction, Section, SectionGraph, StageId, Streamed,
};

use super::actors::{Actor, Actors, Firing};
use super::buffer::{BufferState, Filled};
use super::deadline::Deadline;
use super::engine::{Engine, Event};
use super::memory::TierServer;
use super::network::Network;
use super::network::peak_demand::peaks;
use super::network::transfer_group::TransferGroup;
use super::steady::Steady;
use super::trace::{Recorder, SectionTrace};

/// Events after which a run is ended as too long.
pub const MOST_EVENTS: u64 = 200_000_000;

/// Events between two looks at whether the run is still wanted: some 10 ms of the host.
const EVENTS_BETWEEN_CHECKS: u64 = 1 << 14;

/// Steps that an event takes beside those at links and ports ([`Limits::work`]).
const EVENT_STEPS: u64 = 12;

/// Runs one section of a configuration of `workload` on `chip`, to the end or to one of the limits; `None` if its
/// operators are no pipeline.
pub(super) fn run(
    chip: &Chip,
    workload: &Workload,
    fabric: &Fabric,
    section: &Section,
    limits: Limits<'_>,
) -> Option<SectionRun> {
    let plan = Actors::new(chip, fabric, section);
    Some(Engine::new(chip, workload, fabric, section, &plan)?.run(limits))
}

/// Runs one section as [`run`] does, with the times at which its actors worked; the section begins at `start_cycle`.
pub(super) fn trace(
    chip: &Chip,
    workload: &Workload,
    fabric: &Fabric,
    section: &Section,
    limits: Limits<'_>,
    start_cycle: u64,
) -> Option<SectionTrace> {
    let plan = Actors::new(chip, fabric, section);
    let mut engine = Engine::new(chip, workload, fabric, section, &plan)?;
    engine.recorder = Some(Recorder::default());
    let tracks = engine.actors.iter().map(|actor| engine.track(actor)).collect();
    let (run, recorder) = engine.finish(limits);
    let Recorder { spans, repeats, is_cut, .. } = recorder.unwrap_or_default();
    let launch_cycles = chip.launch_cycles();
    let cycles = launch_cycles + run.cycles;
    Some(SectionTrace {
        name: section.name.clone(),
        start_cycle,
        launch_cycles,
        cycles,
        sram_bytes: section.sram_bytes + section.prefetches.iter().map(|load| load.bank_bytes).sum::<u64>(),
        tracks,
        spans,
        repeats,
        is_cut,
    })
}

impl<'a> Engine<'a> {
    /// Sets up a section of a configuration of `workload` on `chip`.
    fn new(
        chip: &'a Chip,
        workload: &'a Workload,
        fabric: &'a Fabric,
        section: &'a Section,
        plan: &'a Actors<'a>,
    ) -> Option<Self> {
        let graph = SectionGraph::new(workload, &section.operators, section.operators.len() > 1)?;
        let (schedule, tiling) = (&section.schedule, section.schedule.tiling());
        let work: IndexVec<StageId, StageWork> = section
            .stages
            .iter_enumerated()
            .map(|(s, stage)| StageWork::new(chip, &graph, tiling, s, stage.mapping, &stage.work, &stage.tiles))
            .collect();
        let streams = section.streams.len();
        let Actors { processes, list, transfer_groups, .. } = plan;
        let ProcessGraph { consumers, producers, of_stream: stream_actor, .. } = processes;
        let buffers = section
            .buffers
            .ids()
            .map(|b| {
                let spec = &section.buffers[b].spec;
                let (fills, reads) = (producers[b].len() as u64, consumers[b].len() as u64);
                BufferState::new(spec.depth, fills, reads, processes.slots(b))
            })
            .collect();
        let slot_flits = |kind: FlowKind| {
            let bytes: Bytes = match kind {
                FlowKind::Fill { stream, .. } | FlowKind::Drain { stream } => {
                    let first = schedule.step(section.streams[stream].stream.level, 0);
                    transfer_bytes(chip, &graph, section, stream, first).payload
                }
                FlowKind::Copy { resident } => match section.buffers[resident].spec.role {
                    BufferRole::Resident { tensor, .. } => {
                        Bytes(slot_bytes(&graph, tiling, tensor, schedule.step(LoopLevel::FIRING, 0)))
                    }
                    _ => Bytes(0),
                },
                _ => Bytes(0),
            };
            bytes.flits(chip.network.flit_bytes)
        };
        let first = |group: &TransferGroup| group.flows.first().map(|&f| &section.flows[f]);
        let moved = transfer_flits(chip, &graph, section, &work, transfer_groups.iter().map(first));
        let network = Network::new(
            chip,
            fabric,
            &section.flows,
            transfer_groups,
            &peaks(chip, section, &work, &slot_flits),
            &moved,
        );
        let mut engine = Self {
            chip,
            graph,
            section,
            tiling,
            work,
            actors: list.clone(),
            buffers,
            processes,
            consumers,
            producers,
            stream_actor,
            filling: IndexVec::filled(streams, Vec::new()),
            streams: IndexVec::filled(streams, StreamBytes::default()),
            tiers: TierServer::all(chip, &section.streams),
            network,
            queue: BinaryHeap::new(),
            end: 0,
            macs: 0,
            executed_macs: 0,
            expanded_elements: 0,
            simd_elements: IndexVec::filled(section.stages.len(), 0),
            recorder: None,
            longest: 0,
            setup: section.flows.iter().map(|flow| flow.route.len() as u64).sum(),
        };
        engine.slow_to_credit_loops(fabric, &moved);
        engine.take_what_was_loaded_before();
        engine.longest = engine.longest_firing();
        engine.network.look_back(engine.longest);
        Some(engine)
    }

    /// First slots that the section before has loaded are there.
    fn take_what_was_loaded_before(&mut self) {
        let section = self.section;
        for &stream in &section.prefetched {
            let index = self.stream_actor[stream];
            let actor = &self.actors[index];
            let SlotBytes { moved, .. } = transfer_bytes(self.chip, &self.graph, section, stream, actor.at);
            for &buffer in &actor.outputs {
                self.buffers[buffer].fill(0, Filled { first: 0, last: 0, parts: u64::MAX });
            }
            self.tiers[section.streams[stream].tier.index()].begin_behind_first(stream, moved);
            self.go_on(index, 1);
        }
    }

    /// Runs to the end, or to one of the limits.
    fn run(self, limits: Limits<'_>) -> SectionRun {
        self.finish(limits).0
    }

    fn finish(mut self, limits: Limits<'_>) -> (SectionRun, Option<Recorder>) {
        let most_ticks = limits.cycles.saturating_mul(TICKS_PER_CYCLE);
        let mut deadline = Deadline::new(self.section, &self.work, most_ticks, limits.work == u64::MAX);
        for actor in 0..self.actors.len() {
            self.wake(actor, 0);
        }
        let mut steady = if limits.skip { Steady::new(&self) } else { None };
        let mut events = 0u64;
        let mut stopped = None;
        let mut work = self.setup;
        while let Some(Reverse((mut now, event))) = self.queue.pop() {
            if matches!(event, Event::Serve(tier, channel) if !self.tiers[tier].is_due(channel, now)) {
                continue;
            }
            self.end = self.end.max(now);
            events += 1;
            work = self.setup + self.work_of(events, steady.as_ref());
            if events.is_multiple_of(EVENTS_BETWEEN_CHECKS) {
                limits.stop.check();
            }
            if events > limits.events || work > limits.work {
                stopped = Some(Stopped::Events);
                break;
            }
            let is_late = matches!(event, Event::Start(actor) if deadline.will_pass(&self.actors[actor], now));
            if is_late || deadline.has_passed(now) || deadline.is_outpaced(work, &self.actors, now) {
                stopped = Some(Stopped::Cycles);
                break;
            }
            match event {
                Event::Start(actor) => {
                    if let Some(steady) = steady.as_mut().filter(|steady| steady.is_reference(actor)) {
                        now = steady.skip_periods(&mut self, now);
                    }
                    self.start(actor, now);
                }
                Event::Emit(actor) => self.emit(actor, now),
                Event::Issue(stream, slot) if self.section.streams[stream].stream.writes => {
                    self.write(stream, slot, now);
                }
                Event::Issue(stream, slot) => self.issue(stream, slot, now),
                Event::Serve(tier, channel) => self.serve(tier, channel, now),
                Event::Arrive(stream, slot, first) => self.arrive(stream, slot, first, now),
            }
        }
        if stopped.is_none() && self.actors.iter().any(|a| a.next < a.count) {
            stopped = Some(Stopped::Deadlock(self.blocked()));
        }
        let usage = self.network.usage();
        let tiers_free = self.tiers.iter().map(TierServer::free_at).max().unwrap_or(0);
        // No link or port has moved more than fits into the time, however its sharing was simplified.
        let end = self.end.max(tiers_free).max(usage.most());
        let (busy_cycles, waits) = self.times_of_groups();
        let mut tier_busy_cycles: Vec<u64> = self.tiers.iter().map(|t| to_cycles(t.busy())).collect();
        for load in &self.section.prefetches {
            tier_busy_cycles[load.tier.index()] += self.chip.tier_rate(load.tier).cycles_for(load.moved_bytes);
        }
        let run = SectionRun {
            stopped,
            cycles: to_cycles(end),
            busy_cycles,
            waits,
            macs: self.macs,
            executed_macs: self.executed_macs,
            expanded_elements: self.expanded_elements,
            simd_elements: self.simd_elements,
            tier_busy_cycles,
            window_cycles: window_cycles(self.chip, self.section, &self.streams),
            streams: self.streams,
            usage,
            events,
            work,
            skipped: steady.map(Steady::into_skipped).unwrap_or_default(),
        };
        (run, self.recorder)
    }

    /// Of the groups of each stage, the cycles that they work, and those that they wait.
    fn times_of_groups(&self) -> (IndexVec<StageId, Vec<u64>>, IndexVec<StageId, Vec<Waits>>) {
        let mut busy_cycles: IndexVec<StageId, Vec<u64>> = IndexVec::filled(self.section.stages.len(), Vec::new());
        let mut waits: IndexVec<StageId, Vec<Waits>> = IndexVec::filled(self.section.stages.len(), Vec::new());
        for actor in &self.actors {
            if let ProcessKind::Group { stage, .. } = actor.kind {
                busy_cycles[stage].push(actor.busy_cycles);
                waits[stage]
                    .push(Waits { starved_cycles: to_cycles(actor.starved), stalled_cycles: to_cycles(actor.stalled) });
            }
        }
        (busy_cycles, waits)
    }

    /// Work that some events have cost, with all that they did to links and ports, and states written in search of a period.
    fn work_of(&self, events: u64, steady: Option<&Steady>) -> u64 {
        let (visits, rows) = self.network.steps();
        events * EVENT_STEPS + visits + rows + steady.map_or(0, Steady::written)
    }

    /// How long a firing of a lockstep group takes by itself: its work, and its operands at their ports. Others take no time.
    pub(super) fn length(&self, actor: &Actor, at: Iteration) -> Ticks {
        let ProcessKind::Group { stage, group } = actor.kind else { return 0 };
        let (work, tile) = (&self.work[stage], self.tiling.row_tile(at.row_tile));
        let fed = |feed, amount| self.network.longest(feed, work.flits(amount, at.column_tile, group, tile)).1;
        let fed = fed(actor.feed, Amount::Activations).max(fed(actor.weights, Amount::Weights));
        fed.max(work.cycles(at.column_tile, group, tile).ticks())
    }

    fn longest_firing(&self) -> Ticks {
        let steps = |actor: &Actor| {
            let row_tiles = match actor.kind {
                ProcessKind::Group { stage, .. } => self.work[stage].heaviest_row_tiles(self.tiling.row_tiles()),
                _ => 0..1,
            };
            row_tiles
                .flat_map(|row_tile| (0..self.tiling.column_tiles()).map(move |column_tile| (column_tile, row_tile)))
        };
        let schedule = self.processes.schedule();
        let longest = |actor| steps(actor).map(|(c, r)| self.length(actor, schedule.at(c, r))).max().unwrap_or(0);
        self.actors.iter().map(longest).max().unwrap_or(0)
    }

    /// Schedules an actor's next firing if everything it waits for has a time. A firing that could have begun before
    /// its inputs were known to be complete began at most its own length ago.
    pub(super) fn wake(&mut self, index: usize, now: Ticks) {
        let actor = &self.actors[index];
        if actor.scheduled.is_some() || actor.next >= actor.count || self.waits_for_its_sums(actor) {
            return;
        }
        let step = self.actors[index].at;
        let is_group = matches!(actor.kind, ProcessKind::Group { .. });
        // Operands of a lockstep group may go ahead of its work.
        let mut start = if is_group { actor.fed_at[0].min(actor.fed_at[1]) } else { actor.free_at };
        let Some(filled) = self.filled(actor, step) else { return };
        start = start.max(filled);
        let ready = start;
        let Some(credit) = self.credit(actor, step) else { return };
        start = start.max(credit);
        let stalled = start - ready;
        let event = match actor.kind {
            ProcessKind::Load { stream } => Event::Issue(stream, actor.next),
            _ => Event::Start(index),
        };
        if start < now {
            start = start.max(now.saturating_sub(self.length(actor, step)));
        }
        let actor = &mut self.actors[index];
        if is_group {
            actor.waits_for_credit = stalled;
        } else {
            actor.stalled += stalled;
            actor.starved += start - actor.free_at - stalled;
        }
        actor.scheduled = Some(start);
        self.queue.push(Reverse((start, event)));
    }

    fn start(&mut self, index: usize, now: Ticks) {
        self.actors[index].scheduled = None;
        match self.actors[index].kind {
            ProcessKind::Group { stage, group } => self.start_group(index, stage, group, now),
            ProcessKind::Copy { resident, operand } => self.start_copy(index, resident, operand, now),
            ProcessKind::Store { stream } => self.start_store(index, stream, now),
            ProcessKind::Load { .. } => {}
        }
    }

    /// Adds an actor's firing to the timeline, if there is one.
    pub(super) fn record(&mut self, index: usize, start: Ticks, end: Ticks) {
        if let Some(recorder) = &mut self.recorder {
            recorder.span(index, self.actors[index].next, start, end, 0);
        }
    }

    /// Releases the slots that a firing was the last to use, when its operands, weights or sums have left them, and wakes
    /// their producers.
    pub(super) fn release_inputs(
        &mut self,
        index: usize,
        at: Iteration,
        [operands, weights, sums]: [Ticks; 3],
        now: Ticks,
    ) {
        for i in 0..self.actors[index].inputs.len() {
            let Input { buffer, streamed, sequence, .. } = self.actors[index].inputs[i];
            let left = match streamed {
                _ if sequence.is_some() => weights,
                Streamed::Weights => weights,
                Streamed::Sums | Streamed::Merged => sums,
                _ => operands,
            };
            let mut is_free = false;
            for slot in self.processes.freed(&self.actors[index].inputs[i], at) {
                let filled = self.buffers[buffer].filled(slot).map_or(0, |filled| filled.last);
                is_free |= self.buffers[buffer].release(slot, left.max(filled));
            }
            for p in 0..if is_free { self.producers[buffer].len() } else { 0 } {
                self.wake(self.producers[buffer][p], now);
            }
        }
    }

    /// Marks a slot of a buffer as filled by one producer.
    pub(super) fn fill(&mut self, buffer: BufferId, at: Iteration, filled: Filled, now: Ticks) {
        let slot = self.ordinal(buffer, at);
        self.end = self.end.max(filled.last);
        if self.buffers[buffer].fill(slot, filled) {
            for c in 0..self.consumers[buffer].len() {
                self.wake(self.consumers[buffer][c], now);
            }
        }
    }

    fn emit(&mut self, index: usize, now: Ticks) {
        let ProcessKind::Group { stage, group } = self.actors[index].kind else { return };
        let Some(Firing { at, ends_at: end, tile, tiles, .. }) = self.actors[index].under_way.pop_front() else {
            return;
        };
        let row_tile = self.tiling.row_tile(at.row_tile);
        let work = &self.work[stage];
        let emits = self.emits(&self.actors[index], at);
        let forwards_sums = self.forwards_sums(&self.actors[index], at);
        let merges = self.processes.merges_sums(self.actors[index].kind, at);
        let (sends, amount) = if emits {
            (self.actors[index].results, Amount::ResultBytes)
        } else if forwards_sums {
            (self.actors[index].results, Amount::Partials)
        } else {
            (self.actors[index].partial_writes, Amount::Partials)
        };
        let flits = work.flits(amount, at.column_tile, group, row_tile);
        let skew = work.skew_cycles().ticks();
        // The vectors of a tile leave while the next tile is worked on.
        let window = match work.mapping() {
            Mapping::Gemm(_) => work.drain_cycles(group, emits, merges).ticks(),
            Mapping::Simd(m) => tile / m.passes,
        };
        let (worked, drains) = match work.mapping() {
            Mapping::Gemm(_) => (end.saturating_sub(work.idle_cycles(row_tile).ticks()).max(now), window),
            Mapping::Simd(_) => (end, 0),
        };
        // What is worked on now comes out when it has passed the array.
        let out = now + self.actors[index].feed_hops + skew;
        let sent_by = self.network.send(sends, flits, now, out, worked + drains - now);
        let leaves = self.network.least() / tiles;
        let of_tile = self.network.longest(sends, flits).0.div_ceil(tiles).max(1);
        let parts = self.network.fewest(sends, flits);
        let actor = &mut self.actors[index];
        let hops = actor.result_hops;
        let through = sent_by.max(out - now + worked + drains + leaves.saturating_sub(window));
        if self.next_adds_to_these_sums(&self.actors[index], at) {
            // The next firing starts from the sums of this one: its first tile waits until they are written, and read.
            let of_tile = [self.actors[index].partial_writes, self.actors[index].partial_reads]
                .map(|group| self.network.longest(group, Flits(flits.0 / tiles)).1);
            let read = out + hops + of_tile[0].max(of_tile[1]).max(drains);
            self.actors[index].free_at = self.actors[index].free_at.max(read);
        }
        if emits || forwards_sums {
            // The next slice of K begins with a whole tile in a chain, and adds vector by vector in a tree.
            let in_chain = self.section.stages[stage].mapping.reduction() == Reduction::Chain;
            let first = if forwards_sums && in_chain { drains } else { drains.div_ceil(of_tile) };
            for o in 0..self.actors[index].outputs.len() {
                let output = self.actors[index].outputs[o];
                self.fill(output, at, Filled { first: out + first + hops, last: through + hops, parts }, now);
            }
        }
        self.end = self.end.max(through + hops);
        self.wake(index, now);
    }

    fn start_copy(&mut self, index: usize, resident: BufferId, operand: BufferId, now: Ticks) {
        let at = self.actors[index].at;
        let BufferRole::Resident { tensor, .. } = self.section.buffers[resident].spec.role else { return };
        let flits = self.flits_of(Bytes(slot_bytes(&self.graph, self.tiling, tensor, at)));
        let through = self.network.send(self.actors[index].feed, flits, now, now, 0);
        self.record(index, now, through);
        let actor = &mut self.actors[index];
        let hops = actor.feed_hops;
        actor.free_at = through;
        self.go_on(index, 1);
        self.fill(operand, at, Filled { first: now + hops, last: through + hops, parts: 1 }, now);
        self.release_inputs(index, at, [through; 3], now);
        self.wake(index, now);
    }

    pub(super) fn flits_of(&self, bytes: Bytes) -> Flits {
        bytes.flits(self.chip.network.flit_bytes)
    }
}
