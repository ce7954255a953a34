//! A section's dataflow: loops, processes, buffers, and what repetitions of a block hand on.

use rdusim_base::index::{Id, IndexVec};

use super::access::Access;
use super::ids::{BufferId, LoopId, ProcessId};
use super::loops::Loop;
use super::streams::Stream;

/// The schedule of a section.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Dataflow {
    /// Loops that nests and slots are made of.
    pub loops: IndexVec<LoopId, Loop>,
    /// Stages, loads, stores and copies.
    pub processes: IndexVec<ProcessId, Process>,
    /// Buffers between them.
    pub buffers: IndexVec<BufferId, Buffer>,
    /// Tensors that a repetition of a block takes from an earlier one.
    pub carried: Vec<Carried>,
}

impl Dataflow {
    /// A buffer's name, or its number if the table has no such row.
    pub fn buffer_name(&self, id: BufferId) -> String {
        self.buffers.get(id).map_or_else(|| format!("buffer {}", id.index()), |buffer| buffer.name.clone())
    }

    /// A process's name, or its number if the table has no such row.
    pub fn process_name(&self, id: ProcessId) -> String {
        self.processes.get(id).map_or_else(|| format!("process {}", id.index()), |process| process.name.clone())
    }
}

/// What a process does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProcessKind {
    /// Computes.
    Stage,
    /// Moves slots from one buffer to others.
    Copy,
    /// Fills buffers from an off-chip stream.
    Load(Stream),
    /// Empties a buffer to an off-chip stream.
    Store(Stream),
}

/// A process: it fires once at each point of its nest, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Name.
    pub name: String,
    /// What it does.
    pub kind: ProcessKind,
    /// Its nest, outermost loop first.
    pub loops: Vec<LoopId>,
    /// Buffers it reads.
    pub reads: Vec<Port>,
    /// Buffers it writes.
    pub writes: Vec<Port>,
    /// Loops whose iterations differ in work beyond their number of elements (sparse column tiles).
    pub classes: Vec<IterationClasses>,
}

impl Process {
    /// A process without ports.
    pub fn new(name: &str, kind: ProcessKind, loops: &[LoopId]) -> Self {
        let (reads, writes, classes) = (Vec::new(), Vec::new(), Vec::new());
        Self { name: name.to_owned(), kind, loops: loops.to_vec(), reads, writes, classes }
    }

    /// The same, reading `buffer`.
    #[must_use]
    pub fn reading(mut self, buffer: BufferId, access: Access) -> Self {
        self.reads.push(Port { buffer, access });
        self
    }

    /// The same, writing `buffer`.
    #[must_use]
    pub fn writing(mut self, buffer: BufferId, access: Access) -> Self {
        self.writes.push(Port { buffer, access });
        self
    }
}

/// A class of work for each iteration of a loop: iterations of equal class and equal length cost the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IterationClasses {
    /// The loop.
    pub of: LoopId,
    /// Class of each iteration, from 0 without gaps.
    pub classes: Vec<u32>,
}

/// A buffer that a process touches, and which of its slots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// The buffer.
    pub buffer: BufferId,
    /// Slots by firing.
    pub access: Access,
}

/// A buffer: a sequence of slots of which `depth` exist at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Buffer {
    /// Name.
    pub name: String,
    /// Loops whose points are its slots, outermost first.
    pub slot_loops: Vec<LoopId>,
    /// Slots that exist at a time.
    pub depth: u64,
    /// Processes that each fill a part of every slot: 1, or the lockstep groups of a stage. A slot is filled when all
    /// parts are.
    pub parts: u64,
}

impl Buffer {
    /// A buffer whose slots have one producer.
    pub fn new(name: &str, slot_loops: &[LoopId], depth: u64) -> Self {
        Self { name: name.to_owned(), slot_loops: slot_loops.to_vec(), depth, parts: 1 }
    }
}

/// A tensor that a repetition of a block takes from the repetition `distance` before. The reader's port on `from` has
/// [`super::Along::Previous`], its port on `initial` covers the first `distance` repetitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Carried {
    /// The loop over repetitions.
    pub repeat: LoopId,
    /// The process that takes it.
    pub reader: ProcessId,
    /// The buffer that a repetition leaves it in; its outermost slot loop is `repeat`.
    pub from: BufferId,
    /// The buffer that holds it for the first repetitions; its outermost slot loop walks `distance` of them.
    pub initial: BufferId,
    /// Repetitions, at least 1.
    pub distance: u64,
}
