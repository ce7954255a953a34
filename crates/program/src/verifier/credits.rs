//! Checks of credits: who fills and empties each buffer, and that the section runs to its end by counting alone.
//!
//! The execution has no time: a process (the lockstep groups of a slice of K, a copy, a stream) fires as soon as the slots
//! it reads are filled and those it fills are free, the firing rule of a synchronous data flow graph (Lee and
//! Messerschmitt 1987). The order does not matter to whether it ends, as firing takes nothing from another process. It is
//! followed for [`MOST_FIRINGS`] firings: slots that cannot be freed show when buffers have filled up for the first time.

use crate::buffer::BufferRole;
use crate::configuration::Section;
use crate::flow::FlowKind;
use crate::ids::{BufferId, StageId, StreamId};
use crate::nest::{Iteration, LoopLevel};
use crate::schedule::Schedule;
use crate::sequence::SequenceRead;
use crate::stage::{Stage, emits, forwards, merges};
use rdusim_base::index::IndexVec;
use rdusim_base::units::index;

use super::context::Verifier;
use super::fault::{Fault, Place};

/// Firings that are followed at most, of all processes together. It bounds what the check of a long section costs: a few
/// milliseconds without optimisation.
const MOST_FIRINGS: u64 = 1 << 15;

/// Slots of a buffer that are tried at most to say how many it needs.
const DEEPEST: u64 = 1 << 20;

/// What fires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Process {
    /// The lockstep groups of a slice of a stage's K.
    Stage { stage: StageId, slice: u64 },
    /// The copies of a resident buffer.
    Copy { resident: BufferId },
    /// An off-chip stream in.
    Load { stream: StreamId },
    /// An off-chip stream out.
    Store { stream: StreamId },
}

/// An end of a buffer at a process, and the slots that have passed it.
#[derive(Debug, Clone, Copy)]
struct Port {
    buffer: BufferId,
    passed: u64,
    /// Row tiles of its sequence that a firing reads.
    sequence: Option<SequenceRead>,
}

#[derive(Debug, Clone)]
struct Actor {
    process: Process,
    level: LoopLevel,
    count: u64,
    next: u64,
    inputs: Vec<Port>,
    outputs: Vec<Port>,
}

/// Every buffer is filled by some flow and emptied by another.
pub(super) fn ends(_: &Verifier<'_>, section: &Section) -> Result<(), Fault> {
    let mut ends: IndexVec<BufferId, _> = IndexVec::filled(section.buffers.len(), (false, false));
    for flow in &section.flows {
        if let Some(end) = flow.writes {
            ends[end.buffer].0 = true;
        }
        if let Some(end) = flow.reads {
            ends[end.buffer].1 = true;
        }
    }
    let Some(buffer) = ends.position(|&(fills, empties)| !fills || !empties) else { return Ok(()) };
    let what = if ends[buffer].0 { "empties" } else { "fills" };
    let title = format!("no flow {what} a buffer: {:?}", section.buffers[buffer].spec.role);
    Err(Fault::new(Place::Buffer(buffer), title, "expected flows into it and out of it"))
}

/// The section runs to its end, or to [`MOST_FIRINGS`], without a process that waits for ever.
pub(super) fn runs(verifier: &Verifier<'_>, section: &Section) -> Result<(), Fault> {
    let actors = actors(section);
    let depths: IndexVec<BufferId, u64> = section.buffers.iter().map(|buffer| buffer.spec.depth).collect();
    let mut run = Run::new(section, &actors, &depths);
    match run.finish() {
        Ended::Through => Ok(()),
        Ended::OutOfOrder { buffer } => {
            let title = format!("slots of a buffer are filled out of order: {:?}", section.buffers[buffer].spec.role);
            Err(Fault::new(Place::Buffer(buffer), title, "expected them in the order of the nest"))
        }
        Ended::Stuck => Err(stuck(verifier, section, &run, &actors, &depths)),
    }
}

/// Why a run cannot go on: the buffer that frees it with the fewest more slots, if one does alone.
fn stuck(
    verifier: &Verifier<'_>,
    section: &Section,
    run: &Run<'_>,
    actors: &[Actor],
    depths: &IndexVec<BufferId, u64>,
) -> Fault {
    let goes_on = |buffer: BufferId, depth: u64| {
        let mut depths = depths.clone();
        depths[buffer] = depth;
        matches!(Run::new(section, actors, &depths).finish(), Ended::Through)
    };
    let mut best: Option<(u64, BufferId)> = None;
    for buffer in run.full() {
        let slots = section.schedule.count(section.buffers[buffer].spec.level).min(DEEPEST);
        let (mut fails, mut frees) = (depths[buffer], slots);
        if frees <= fails || !goes_on(buffer, frees) {
            continue;
        }
        while frees - fails > 1 {
            let middle = fails + (frees - fails) / 2;
            if goes_on(buffer, middle) { frees = middle } else { fails = middle }
        }
        if best.is_none_or(|(more, other)| frees - depths[buffer] < more - depths[other]) {
            best = Some((frees, buffer));
        }
    }
    let who = run.waiting().map_or_else(String::new, |process| name(verifier, section, process));
    let Some((least, buffer)) = best else {
        let title = format!("the pipeline would stop: {who} waits for ever");
        return Fault::new(
            Place::Buffers,
            title,
            "expected buffers that are filled and emptied in the order of the nest",
        );
    };
    let held = match section.buffers[buffer].spec.role {
        BufferRole::Operand { tensor, .. }
        | BufferRole::Resident { tensor, .. }
        | BufferRole::Weight { tensor, .. }
        | BufferRole::State { tensor, .. }
        | BufferRole::Output { tensor, .. } => format!("`{}`", verifier.tensor(tensor)),
        BufferRole::PartialSums { .. } | BufferRole::PartialFifo { .. } => "partial sums".to_owned(),
    };
    let title = format!("the pipeline would stop: {who} waits, {} slots for {held} are full", depths[buffer]);
    Fault::new(Place::Depth(buffer), title, format!("expected at least {least}"))
}

fn name(verifier: &Verifier<'_>, section: &Section, process: Process) -> String {
    match process {
        Process::Stage { stage, .. } => format!("`{}`", verifier.stage(stage)),
        Process::Copy { .. } => "a copy".to_owned(),
        Process::Load { stream } | Process::Store { stream } => {
            format!("the stream of `{}`", verifier.tensor(section.streams[stream].stream.tensor))
        }
    }
}

/// The processes of a section, and the buffers between them as flows say.
fn actors(section: &Section) -> Vec<Actor> {
    let mut actors: Vec<Actor> = Vec::new();
    let mut add = |process, level| {
        let count = section.schedule.count(level);
        actors.push(Actor { process, level, count, next: 0, inputs: Vec::new(), outputs: Vec::new() });
        actors.len() - 1
    };
    // Where the processes of a stage, a resident buffer and a stream stand in the list.
    let stages: IndexVec<StageId, usize> = section
        .stages
        .iter_enumerated()
        .map(|(stage, of)| {
            let slices = 0..of.mapping.pk();
            let all: Vec<usize> = slices.map(|slice| add(Process::Stage { stage, slice }, of.level)).collect();
            all.first().copied().unwrap_or(0)
        })
        .collect();
    let copies: IndexVec<BufferId, Option<usize>> = section
        .buffers
        .iter_enumerated()
        .map(|(resident, buffer)| {
            matches!(buffer.spec.role, BufferRole::Resident { .. })
                .then(|| add(Process::Copy { resident }, LoopLevel::FIRING))
        })
        .collect();
    let streams: IndexVec<StreamId, usize> = section
        .streams
        .iter_enumerated()
        .map(|(stream, off_chip)| {
            let process = if off_chip.stream.writes { Process::Store { stream } } else { Process::Load { stream } };
            add(process, off_chip.stream.level)
        })
        .collect();
    let mut connect = |index: usize, buffer: BufferId, fills: bool| {
        let actor = &mut actors[index];
        let ports = if fills { &mut actor.outputs } else { &mut actor.inputs };
        // Partial sums that stay with their group are no one else's to wait for.
        let is_own = matches!(section.buffers[buffer].spec.role, BufferRole::PartialSums { .. });
        if !is_own && !ports.iter().any(|port| port.buffer == buffer) {
            let sequence = match section.buffers[buffer].spec.role {
                BufferRole::Weight { stage, .. } if !fills => section.stages[stage].spec.sequence,
                _ => None,
            };
            ports.push(Port { buffer, passed: 0, sequence });
        }
    };
    for flow in &section.flows {
        let index = match flow.kind {
            FlowKind::Fill { stream, .. } | FlowKind::Drain { stream } => Some(streams[stream]),
            FlowKind::Copy { resident } => copies[resident],
            FlowKind::Feed { stage, group }
            | FlowKind::Emit { stage, group }
            | FlowKind::State { stage, group }
            | FlowKind::PartialRead { stage, group }
            | FlowKind::PartialWrite { stage, group }
            | FlowKind::Forward { stage, group }
            | FlowKind::Merge { stage, group } => {
                Some(stages[stage] + index(section.stages[stage].mapping.k_slice(group)))
            }
        };
        let Some(index) = index else { continue };
        if let Some(end) = flow.reads {
            connect(index, end.buffer, false);
        }
        if let Some(end) = flow.writes {
            connect(index, end.buffer, true);
        }
    }
    actors
}

/// How a run ended.
enum Ended {
    /// All have fired as often as they must, or as often as is followed.
    Through,
    /// Processes are left, and none can fire.
    Stuck,
    /// A slot was filled that is not the next.
    OutOfOrder { buffer: BufferId },
}

/// An execution of a section by counting.
struct Run<'a> {
    section: &'a Section,
    schedule: &'a Schedule,
    actors: Vec<Actor>,
    depths: &'a IndexVec<BufferId, u64>,
    /// Slots of each buffer that all who fill it have filled, and that all who empty it have freed.
    filled: IndexVec<BufferId, u64>,
    freed: IndexVec<BufferId, u64>,
    /// Actors that fill each buffer, and that empty it.
    fills: IndexVec<BufferId, Vec<usize>>,
    empties: IndexVec<BufferId, Vec<usize>>,
}

impl<'a> Run<'a> {
    fn new(section: &'a Section, actors: &[Actor], depths: &'a IndexVec<BufferId, u64>) -> Self {
        let count = section.buffers.len();
        let (mut fills, mut empties) = (IndexVec::filled(count, Vec::new()), IndexVec::filled(count, Vec::new()));
        for (a, actor) in actors.iter().enumerate() {
            actor.outputs.iter().for_each(|port| fills[port.buffer].push(a));
            actor.inputs.iter().for_each(|port| empties[port.buffer].push(a));
        }
        Self {
            section,
            schedule: &section.schedule,
            actors: actors.to_vec(),
            depths,
            filled: IndexVec::filled(count, 0),
            freed: IndexVec::filled(count, 0),
            fills,
            empties,
        }
    }

    fn finish(&mut self) -> Ended {
        let mut firings = 0;
        loop {
            let before = firings;
            for index in 0..self.actors.len() {
                while firings < MOST_FIRINGS && self.can_fire(index) {
                    if let Some(buffer) = self.fire(index) {
                        return Ended::OutOfOrder { buffer };
                    }
                    firings += 1;
                }
            }
            if firings >= MOST_FIRINGS || self.actors.iter().all(|actor| actor.next >= actor.count) {
                return Ended::Through;
            }
            if firings == before {
                return Ended::Stuck;
            }
        }
    }

    fn level(&self, buffer: BufferId) -> LoopLevel {
        self.section.buffers[buffer].spec.level
    }

    /// Where an actor's next firing stands: stages and stores at the last of the firings that one of theirs covers.
    fn step(&self, actor: &Actor) -> Iteration {
        let step = self.schedule.step(actor.level, actor.next);
        match actor.process {
            Process::Stage { .. } | Process::Store { .. } => self.schedule.complete(actor.level, step),
            Process::Copy { .. } | Process::Load { .. } => step,
        }
    }

    /// Whether a firing fills the actor's outputs.
    fn produces(&self, actor: &Actor, at: Iteration) -> bool {
        let Process::Stage { stage, slice } = actor.process else { return true };
        let stage: &Stage = &self.section.stages[stage];
        let group = slice * (stage.mapping.groups() / stage.mapping.pk());
        forwards(stage, group, self.schedule, at) || emits(stage, group, self.schedule, at)
    }

    /// Whether a firing reads an input: sums of other slices of K only where its own are complete.
    fn takes(&self, actor: &Actor, port: &Port, at: Iteration) -> bool {
        let Process::Stage { stage, slice } = actor.process else { return true };
        let stage: &Stage = &self.section.stages[stage];
        let group = slice * (stage.mapping.groups() / stage.mapping.pk());
        !matches!(self.section.buffers[port.buffer].spec.role, BufferRole::PartialFifo { .. })
            || stage.mapping.starts_from_sums(group)
            || merges(stage, group, self.schedule, at)
    }

    fn can_fire(&self, index: usize) -> bool {
        let actor = &self.actors[index];
        if actor.next >= actor.count {
            return false;
        }
        let at = self.step(actor);
        let slot = |buffer: BufferId| self.schedule.ordinal(self.level(buffer), at);
        let needed = |port: &Port| self.schedule.needed(self.level(port.buffer), port.sequence, at);
        actor.inputs.iter().all(|port| !self.takes(actor, port, at) || needed(port) < self.filled[port.buffer])
            && (!self.produces(actor, at)
                || actor.outputs.iter().all(|port| self.has_room(port.buffer, slot(port.buffer))))
    }

    fn has_room(&self, buffer: BufferId, slot: u64) -> bool {
        slot < self.freed[buffer].saturating_add(self.depths[buffer])
    }

    /// Fires an actor; the buffer whose slots it fills out of order, if it does.
    fn fire(&mut self, index: usize) -> Option<BufferId> {
        let actor = &self.actors[index];
        let (at, produces) = (self.step(actor), self.produces(actor, self.step(actor)));
        self.actors[index].next += 1;
        for o in 0..self.actors[index].outputs.len() {
            if !produces {
                break;
            }
            let Port { buffer, passed, .. } = self.actors[index].outputs[o];
            if self.schedule.ordinal(self.level(buffer), at) != passed {
                return Some(buffer);
            }
            self.actors[index].outputs[o].passed += 1;
            self.filled[buffer] = self.passed(buffer, true);
        }
        for i in 0..self.actors[index].inputs.len() {
            let Port { buffer, sequence, .. } = self.actors[index].inputs[i];
            let freed = self.schedule.freed(self.level(buffer), sequence, at);
            if !freed.is_empty() {
                self.actors[index].inputs[i].passed += freed.end - freed.start;
                self.freed[buffer] = self.passed(buffer, false);
            }
        }
        None
    }

    /// Slots of a buffer that all who fill it (else: empty it) are done with.
    fn passed(&self, buffer: BufferId, fills: bool) -> u64 {
        let actors = if fills { &self.fills[buffer] } else { &self.empties[buffer] };
        let of = |&a: &usize| {
            let actor = &self.actors[a];
            let ports = if fills { &actor.outputs } else { &actor.inputs };
            ports.iter().find(|port| port.buffer == buffer).map_or(u64::MAX, |port| port.passed)
        };
        actors.iter().map(of).min().unwrap_or(0)
    }

    /// Buffers that an actor waits for room in.
    fn full(&self) -> Vec<BufferId> {
        let mut full = Vec::new();
        for actor in self.actors.iter().filter(|actor| actor.next < actor.count) {
            let at = self.step(actor);
            let has_room = |buffer| self.has_room(buffer, self.schedule.ordinal(self.level(buffer), at));
            let produces = self.produces(actor, at);
            full.extend(actor.outputs.iter().map(|port| port.buffer).filter(|&b| produces && !has_room(b)));
        }
        full.sort_unstable();
        full.dedup();
        full
    }

    /// A process that waits: one without room first.
    fn waiting(&self) -> Option<Process> {
        let mut open = self.actors.iter().filter(|actor| actor.next < actor.count);
        let full = self.full();
        let is_stalled = |actor: &&Actor| actor.outputs.iter().any(|port| full.contains(&port.buffer));
        open.clone().find(is_stalled).or_else(|| open.next()).map(|actor| actor.process)
    }
}
