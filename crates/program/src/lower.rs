//! A section as a [`Dataflow`]: its loops and nests with its processes and buffers.
//!
//! Each [`LoopLevel`] names the nest of a process or of the slots of a buffer. Processes are those of the section's [`ProcessGraph`], in the same order. A stage that accumulates fills its
//! partial sums, slot by slot, with its last contribution to each; what leaves them is a process of its own, listed
//! behind the others, that copies complete sums into the stage's outputs; of slices of K one for each, which adds those of others.

use rdusim_base::index::IndexVec;

use super::buffer::BufferRole;
use super::configuration::Section;
use super::dataflow::{Access, Along, Axis, Buffer, BufferId, Dataflow, Dim, LoopId, Process, ProcessKind, Stream};
use super::ids::{StageId, StreamId};
use super::nest::LoopLevel;
use super::processes::{self, ProcessGraph, Streamed};

/// The dataflow of a section whose processes are `processes`.
pub fn dataflow(section: &Section, processes: &ProcessGraph) -> Dataflow {
    let lowering = Lowering { section, processes };
    let buffers = section.buffers.ids().map(|b| lowering.buffer(b)).collect();
    let mut list: IndexVec<_, Process> = processes.list.iter().map(|process| lowering.process(process)).collect();
    for (b, buffer) in section.buffers.iter_enumerated() {
        if let BufferRole::PartialSums { stage } = buffer.spec.role {
            for slice in 0..section.stages[stage].mapping.pk() {
                list.push(lowering.emission(stage, slice, b));
            }
        }
    }
    Dataflow { loops: section.schedule.loops().clone(), processes: list, buffers, carried: Vec::new() }
}

struct Lowering<'a> {
    section: &'a Section,
    processes: &'a ProcessGraph,
}

impl Lowering<'_> {
    /// The loops of a nest.
    fn nest(&self, level: LoopLevel) -> &[LoopId] {
        self.section.schedule.loops_of(level)
    }

    fn buffer(&self, index: BufferId) -> Buffer {
        let spec = &self.section.buffers[index].spec;
        let mut buffer = Buffer::new(&format!("buffer {index}"), self.nest(spec.level), spec.depth);
        buffer.parts = match spec.role {
            BufferRole::PartialSums { stage } => self.section.stages[stage].mapping.groups(),
            // Complete sums come from one process.
            _ if self.takes_sums(index) => 1,
            _ => self.processes.producers[index].len() as u64,
        };
        buffer
    }

    /// The buffer in which a stage accumulates over firings.
    fn partial_of(&self, stage: StageId) -> Option<BufferId> {
        self.section.buffers.position(|buffer| buffer.spec.role == BufferRole::PartialSums { stage })
    }

    /// Whether a buffer is filled from sums that a stage has accumulated.
    fn takes_sums(&self, buffer: BufferId) -> bool {
        self.processes.producers[buffer].iter().any(|&p| match self.processes.list[p].kind {
            processes::ProcessKind::Group { stage, .. } => self.partial_of(stage).is_some(),
            _ => false,
        })
    }

    fn process(&self, process: &processes::Process) -> Process {
        let (name, kind) = match process.kind {
            processes::ProcessKind::Group { stage, group } => {
                (format!("stage {stage} group {group}"), ProcessKind::Stage)
            }
            processes::ProcessKind::Copy { resident, .. } => (format!("copy of buffer {resident}"), ProcessKind::Copy),
            processes::ProcessKind::Load { stream } => {
                (format!("load {stream}"), ProcessKind::Load(self.stream(stream)))
            }
            processes::ProcessKind::Store { stream } => {
                (format!("store {stream}"), ProcessKind::Store(self.stream(stream)))
            }
        };
        let mut lowered = Process::new(&name, kind, self.nest(process.level));
        let partial = match process.kind {
            processes::ProcessKind::Group { stage, .. } => self.partial_of(stage),
            _ => None,
        };
        // Complete sums are added to where they leave.
        for input in process.inputs.iter().filter(|input| partial.is_none() || input.streamed != Streamed::Merged) {
            lowered = lowered.reading(input.buffer, self.access(input));
        }
        match partial {
            Some(partial) => lowered.writing(partial, Access::same()),
            None => process.outputs.iter().fold(lowered, |lowered, &b| lowered.writing(b, Access::same())),
        }
    }

    /// The slots that a firing reads of an input.
    fn access(&self, input: &processes::Input) -> Access {
        let Some(read) = input.sequence else { return Access::same() };
        let slots = self.nest(self.section.buffers[input.buffer].spec.level);
        let of_sequence = slots.iter().filter(|id| !self.nest(read.within).contains(id));
        of_sequence.fold(Access::same(), |access, &id| {
            access.with(id, if read.is_prefix { Along::Prefix { of: id } } else { Along::All })
        })
    }

    /// What copies the complete sums of a slice of a stage's K into its outputs, or adds those of other slices to them on the way.
    fn emission(&self, stage: StageId, slice: u64, partial: BufferId) -> Process {
        let mapping = &self.section.stages[stage].mapping;
        let is_of_slice = |process: &&processes::Process| matches!(process.kind, processes::ProcessKind::Group { stage: of, group } if of == stage && mapping.k_slice(group) == slice);
        let groups = || self.processes.list.iter().filter(is_of_slice);
        let sorted = |buffers: &mut dyn Iterator<Item = BufferId>| {
            let mut list: Vec<BufferId> = buffers.collect();
            list.sort_unstable();
            list.dedup();
            list
        };
        let outputs = sorted(&mut groups().flat_map(|process| &process.outputs).copied());
        let inputs = groups().flat_map(|process| &process.inputs);
        let merged = sorted(&mut inputs.filter(|input| input.streamed == Streamed::Merged).map(|input| input.buffer));
        let level = self.section.buffers[partial].spec.level;
        let kind = if merged.is_empty() { ProcessKind::Copy } else { ProcessKind::Stage };
        let process = Process::new(&format!("results of stage {stage} slice {slice}"), kind, self.nest(level));
        let process = process.reading(partial, Access::same());
        let process = merged.into_iter().fold(process, |process, b| process.reading(b, Access::same()));
        outputs.into_iter().fold(process, |process, b| process.writing(b, Access::same()))
    }

    /// A stream's walk over its tensor, in elements of the nest's axes: a dimension for each that selects part of it.
    fn stream(&self, index: StreamId) -> Stream {
        let stream = &self.section.streams[index].stream;
        let tiling = self.section.schedule.tiling();
        let rows = Dim::along(Axis::Row, tiling.rows);
        let panels = tiling.tiled_axis.and_then(|cut| cut.panels);
        let tiled = if panels.is_some() { Axis::K } else { Axis::Column };
        let columns = tiling.tiled_axis.map(|cut| Dim::along(tiled, cut.extent));
        let panels = panels.map(|panels| Dim::along(Axis::Column, panels.extent));
        // What is read again in every column tile does not have the tiled axis.
        let is_reread = stream.level == LoopLevel::FIRING && stream.passes > tiling.panels();
        let mut shape = Vec::new();
        match stream.level {
            LoopLevel::FIRING => {
                shape.push(rows);
                shape.extend(columns.filter(|_| !is_reread));
            }
            LoopLevel::ROW_TILE => shape.push(rows),
            LoopLevel::PANEL_ROW => {
                shape.push(rows);
                shape.extend(panels);
            }
            LoopLevel::BLOCK_COLUMN => {
                // Weights or results of a sequence, or weights that every row block reads again.
                let of_sequence = stream.writes || stream.passes == 1;
                shape.extend(of_sequence.then_some(rows));
                shape.extend(panels.into_iter().chain(columns));
            }
            LoopLevel::COLUMN => shape.extend(panels.into_iter().chain(columns)),
            _ => {}
        }
        if shape.is_empty() {
            shape.push(Dim::whole(1));
        }
        Stream::memory(shape, 1, 0)
    }
}
