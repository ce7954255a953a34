//! Who acts in a section: read from its flows, which say what each actor reads and fills.

use rdusim_program::{BufferId, BufferRole, FlowId, FlowKind, LoopLevel, ProcessKind, Section, StageId, StreamId};

/// What an actor is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// An off-chip stream in.
    Load { stream: StreamId },
    /// A resident buffer's copies.
    Copy { resident: BufferId },
    /// PCUs of a stage in lockstep.
    Group { stage: StageId, group: u64 },
    /// An off-chip stream out.
    Store { stream: StreamId },
}

/// One actor, and how far it has come.
#[derive(Debug, Clone)]
pub(super) struct Actor {
    pub(super) kind: Kind,
    pub(super) level: LoopLevel,
    pub(super) count: u64,
    /// Firings done.
    pub(super) next: u64,
    /// Buffers it reads, and those it fills.
    pub(super) inputs: Vec<BufferId>,
    pub(super) outputs: Vec<BufferId>,
    /// Flows of its operands or of its stream.
    pub(super) feeds: Vec<FlowId>,
    /// Flows of its results.
    pub(super) results: Vec<FlowId>,
    /// Flows of partial sums it starts from, and of those it leaves.
    pub(super) partial_reads: Vec<FlowId>,
    pub(super) partial_writes: Vec<FlowId>,
    /// Flows of sums that it hands on to another slice of K, and of those that it adds to its own.
    pub(super) forwards: Vec<FlowId>,
    pub(super) merges: Vec<FlowId>,
}

/// The actors of a section in the order of the data: loads, copies, stages in topological order, stores.
pub(super) fn actors(section: &Section) -> Vec<Actor> {
    let mut list = Vec::new();
    let streams = section.streams.iter_enumerated();
    let loads =
        streams.clone().filter(|(_, s)| !s.stream.writes).map(|(stream, s)| (Kind::Load { stream }, s.stream.level));
    let stores = streams.filter(|(_, s)| s.stream.writes).map(|(stream, s)| (Kind::Store { stream }, s.stream.level));
    let residents = section.flows.iter().filter_map(|flow| match flow.kind {
        FlowKind::Copy { resident } => Some(resident),
        _ => None,
    });
    let mut residents: Vec<BufferId> = residents.collect();
    residents.dedup();
    let stages = section.stages.iter_enumerated();
    let groups =
        stages.flat_map(|(stage, s)| (0..s.mapping.groups()).map(move |group| (Kind::Group { stage, group }, s.level)));
    let copies = residents.into_iter().map(|resident| (Kind::Copy { resident }, LoopLevel::FIRING));
    for (kind, level) in loads.chain(copies).chain(groups).chain(stores) {
        list.push(Actor {
            kind,
            level,
            count: section.schedule.count(level),
            next: 0,
            inputs: Vec::new(),
            outputs: Vec::new(),
            feeds: Vec::new(),
            results: Vec::new(),
            partial_reads: Vec::new(),
            partial_writes: Vec::new(),
            forwards: Vec::new(),
            merges: Vec::new(),
        });
    }
    for (f, flow) in section.flows.iter_enumerated() {
        let kind = match flow.kind {
            FlowKind::Fill { stream, .. } => Kind::Load { stream },
            FlowKind::Drain { stream } => Kind::Store { stream },
            FlowKind::Copy { resident } => Kind::Copy { resident },
            FlowKind::Feed { stage, group }
            | FlowKind::Emit { stage, group }
            | FlowKind::State { stage, group }
            | FlowKind::PartialRead { stage, group }
            | FlowKind::PartialWrite { stage, group }
            | FlowKind::Forward { stage, group }
            | FlowKind::Merge { stage, group } => Kind::Group { stage, group },
        };
        let Some(actor) = list.iter_mut().find(|a| a.kind == kind) else { continue };
        match flow.kind {
            FlowKind::PartialRead { .. } => actor.partial_reads.push(f),
            FlowKind::PartialWrite { .. } => actor.partial_writes.push(f),
            FlowKind::Forward { .. } => actor.forwards.push(f),
            FlowKind::Merge { .. } => actor.merges.push(f),
            FlowKind::Emit { .. } => actor.results.push(f),
            _ => actor.feeds.push(f),
        }
        // Sums that stay with their stage wait for nobody.
        let stays = |buffer: BufferId| matches!(section.buffers[buffer].spec.role, BufferRole::PartialSums { .. });
        let add = |list: &mut Vec<BufferId>, buffer| {
            if !list.contains(&buffer) && !stays(buffer) {
                list.push(buffer);
            }
        };
        if let Some(end) = flow.reads {
            add(&mut actor.inputs, end.buffer);
        }
        if let Some(end) = flow.writes {
            add(&mut actor.outputs, end.buffer);
        }
    }
    list
}

/// When a process may fire: the buffers whose slots it reads and fills, read from the flows of a section alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FiringRule {
    /// The process.
    pub process: ProcessKind,
    /// Firings in the section.
    pub firings: u64,
    /// Buffers it reads, rising.
    pub reads: Vec<BufferId>,
    /// Buffers it fills, rising.
    pub writes: Vec<BufferId>,
}

/// The firing rules of a section's processes. They are derived without its
/// [`ProcessGraph`](rdusim_program::ProcessGraph), so that each can be held against the other.
pub fn firing_rules(section: &Section) -> Vec<FiringRule> {
    let sorted = |list: &[BufferId]| {
        let mut list = list.to_vec();
        list.sort_unstable();
        list
    };
    let rule = |actor: &Actor| FiringRule {
        process: match actor.kind {
            Kind::Load { stream } => ProcessKind::Load { stream },
            Kind::Copy { resident } => {
                ProcessKind::Copy { resident, operand: actor.outputs.first().copied().unwrap_or(resident) }
            }
            Kind::Group { stage, group } => ProcessKind::Group { stage, group },
            Kind::Store { stream } => ProcessKind::Store { stream },
        },
        firings: actor.count,
        reads: sorted(&actor.inputs),
        writes: sorted(&actor.outputs),
    };
    actors(section).iter().map(rule).collect()
}
