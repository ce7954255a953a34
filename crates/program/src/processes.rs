//! The process graph of a section: who fires, how often, what each firing needs, fills and frees.
//!
//! A *process* is a lockstep group of PCUs, the copies of a resident buffer, or an off-chip stream. It fires once at each
//! point of its own nest, in order, like a process of the section's [`Dataflow`](super::dataflow::Dataflow), from which
//! [`super::lower`] derives the same answers in general form. Here they follow from the section's
//! [`Schedule`], as engines ask for them at every firing; a test compares the two.
//!
//! Built once for a section. Engines keep their own timing and state; where a firing stands, which slots it uses, and
//! when it produces or forwards sums, they ask here.

use rdusim_base::units::index;
use std::ops::Range;
use std::sync::Arc;

use rdusim_base::index::IndexVec;
use rdusim_graph::workload::TensorId;

use super::buffer::BufferRole;
use super::configuration::Section;
use super::flow::{Amount, FlowKind};
use super::ids::{BufferId, FlowId, StageId, StreamId};
use super::mapping::{Mapping, Reduction};
use super::nest::{Iteration, LoopLevel};
use super::schedule::Schedule;
use super::sequence::SequenceRead;
use super::stage::Stage;

/// What a process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessKind {
    /// PCUs of a stage in lockstep.
    Group {
        /// Stage.
        stage: StageId,
        /// Lockstep group.
        group: u64,
    },
    /// A resident buffer's copies.
    Copy {
        /// Resident buffer.
        resident: BufferId,
        /// Operand buffer.
        operand: BufferId,
    },
    /// An off-chip stream in.
    Load {
        /// Stream.
        stream: StreamId,
    },
    /// An off-chip stream out.
    Store {
        /// Stream.
        stream: StreamId,
    },
}

/// What of a slot a firing may work on while the rest comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Streamed {
    /// Nothing.
    Not,
    /// Weights, tile by tile.
    Weights,
    /// Partial sums of the slice of K before, tile by tile.
    Sums,
    /// Partial sums of other slices of K that a lockstep group adds to its own as these leave.
    Merged,
    /// Vectors, in the order they come.
    Vectors,
    /// Rows that are read several times: those that are whole.
    Rows,
}

/// A buffer a process reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Input {
    /// Buffer.
    pub buffer: BufferId,
    /// What may be worked on while it comes.
    pub streamed: Streamed,
    /// The GEMM stage that makes it, group of rows by group.
    pub made_by: Option<StageId>,
    /// Row tiles of its sequence that a firing reads; `None` if it reads its own slot.
    pub sequence: Option<SequenceRead>,
}

impl Input {
    /// A buffer whose slots are read when they are filled.
    fn whole(buffer: BufferId) -> Self {
        Self { buffer, streamed: Streamed::Not, made_by: None, sequence: None }
    }
}

/// Flows that a process starts, by what they carry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProcessFlows {
    /// Its activations; of streams and copies, all they move.
    pub operands: Vec<FlowId>,
    /// Its weights.
    pub weights: Vec<FlowId>,
    /// Its results, or the sums that it forwards to another slice of K.
    pub results: Vec<FlowId>,
    /// Partial sums it starts from.
    pub partial_reads: Vec<FlowId>,
    /// Partial sums it leaves for a later firing of its own.
    pub partial_writes: Vec<FlowId>,
    /// What the step in its tail reads.
    pub state: Vec<FlowId>,
    /// Partial sums of other slices of K that it adds to its own as these leave.
    pub merges: Vec<FlowId>,
}

/// A process of a section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// What it is.
    pub kind: ProcessKind,
    /// How often it fires.
    pub level: LoopLevel,
    /// Firings in the section.
    pub firings: u64,
    /// Buffers it reads, but for partial sums that stay with their stage.
    pub inputs: Vec<Input>,
    /// Buffers it fills, likewise.
    pub outputs: Vec<BufferId>,
    /// Flows it starts.
    pub flows: ProcessFlows,
}

/// When a stage's lockstep groups begin from sums, produce results, or forward sums.
#[derive(Debug, Clone, Copy)]
struct StageRule {
    level: LoopLevel,
    results: LoopLevel,
    mapping: Mapping,
}

/// Processes of a section, and who fills and reads each buffer.
#[derive(Debug, Clone)]
pub struct ProcessGraph {
    schedule: Arc<Schedule>,
    levels: IndexVec<BufferId, LoopLevel>,
    rules: IndexVec<StageId, StageRule>,
    /// Processes: lockstep groups stage by stage, copies, streams.
    pub list: Vec<Process>,
    /// Processes that read each buffer.
    pub consumers: IndexVec<BufferId, Vec<usize>>,
    /// Processes that fill each buffer.
    pub producers: IndexVec<BufferId, Vec<usize>>,
    /// The process of each off-chip stream.
    pub of_stream: IndexVec<StreamId, usize>,
    /// The process that starts each flow.
    pub of_flow: IndexVec<FlowId, usize>,
    /// Streams in of which all readers come behind a stage that adds up over column tiles.
    is_late: IndexVec<StreamId, bool>,
}

impl ProcessGraph {
    /// The process graph of a section.
    pub fn new(section: &Section) -> Self {
        let rule =
            |stage: &Stage| StageRule { level: stage.level, results: stage.result_level(), mapping: stage.mapping };
        let mut graph = Self {
            schedule: Arc::clone(&section.schedule),
            levels: section.buffers.iter().map(|buffer| buffer.spec.level).collect(),
            rules: section.stages.iter().map(rule).collect(),
            list: Vec::new(),
            consumers: IndexVec::filled(section.buffers.len(), Vec::new()),
            producers: IndexVec::filled(section.buffers.len(), Vec::new()),
            of_stream: IndexVec::filled(section.streams.len(), 0),
            of_flow: IndexVec::new(),
            is_late: late_streams(section),
        };
        graph.add_groups(section);
        graph.add_copies(section);
        graph.add_streams(section);
        graph.add_flows(section);
        graph
    }

    fn add(&mut self, kind: ProcessKind, level: LoopLevel, inputs: Vec<Input>, outputs: Vec<BufferId>) {
        let index = self.list.len();
        for input in &inputs {
            self.consumers[input.buffer].push(index);
        }
        for &output in &outputs {
            self.producers[output].push(index);
        }
        let (firings, flows) = (self.schedule.count(level), ProcessFlows::default());
        self.list.push(Process { kind, level, firings, inputs, outputs, flows });
    }

    fn add_groups(&mut self, section: &Section) {
        for (s, stage) in section.stages.iter_enumerated() {
            let inputs = stage_inputs(section, s);
            let takes = |buffer: &BufferId| takes_output(section, *buffer, stage.spec.output);
            let outputs: Vec<BufferId> = section.buffers.ids().filter(takes).collect();
            for group in 0..stage.mapping.groups() {
                let (mut inputs, mut outputs) = (inputs.clone(), outputs.clone());
                if stage.mapping.forwards_sums(group) {
                    outputs.clear();
                }
                let k_slice = stage.mapping.k_slice(group);
                for (b, buffer) in section.buffers.iter_enumerated() {
                    let BufferRole::PartialFifo { stage: of, slice } = buffer.spec.role else { continue };
                    if (of, slice) == (s, k_slice) {
                        outputs.push(b);
                    } else if of == s && stage.mapping.next_slice(slice) == Some(k_slice) {
                        let is_chain = stage.mapping.reduction() == Reduction::Chain;
                        let streamed = if is_chain { Streamed::Sums } else { Streamed::Merged };
                        inputs.push(Input { streamed, ..Input::whole(b) });
                    }
                }
                self.add(ProcessKind::Group { stage: s, group }, stage.level, inputs, outputs);
            }
        }
    }

    fn add_copies(&mut self, section: &Section) {
        for operand in section.buffers.ids() {
            if let Some(resident) = section.resident_of(operand) {
                let inputs = vec![Input::whole(resident)];
                self.add(ProcessKind::Copy { resident, operand }, LoopLevel::FIRING, inputs, vec![operand]);
            }
        }
    }

    fn add_streams(&mut self, section: &Section) {
        for (stream, off_chip) in section.streams.iter_enumerated() {
            let level = off_chip.stream.level;
            let ends: Vec<BufferId> = section.buffers.ids().filter(|&b| section.is_end(stream, b)).collect();
            self.of_stream[stream] = self.list.len();
            if off_chip.stream.writes {
                let inputs = ends.iter().map(|&buffer| Input::whole(buffer)).collect();
                self.add(ProcessKind::Store { stream }, level, inputs, Vec::new());
            } else {
                self.add(ProcessKind::Load { stream }, level, Vec::new(), ends);
            }
        }
    }

    fn add_flows(&mut self, section: &Section) {
        let mut first_group = IndexVec::filled(section.stages.len(), 0);
        let mut copy_of = IndexVec::filled(section.buffers.len(), 0);
        for (index, process) in self.list.iter().enumerate() {
            match process.kind {
                ProcessKind::Group { stage, group: 0 } => first_group[stage] = index,
                ProcessKind::Copy { resident, .. } => copy_of[resident] = index,
                _ => {}
            }
        }
        for (f, flow) in section.flows.iter_enumerated() {
            let index = match flow.kind {
                FlowKind::Feed { stage, group }
                | FlowKind::State { stage, group }
                | FlowKind::PartialRead { stage, group }
                | FlowKind::PartialWrite { stage, group }
                | FlowKind::Forward { stage, group }
                | FlowKind::Merge { stage, group }
                | FlowKind::Emit { stage, group } => first_group[stage] + index(group),
                FlowKind::Fill { stream, .. } | FlowKind::Drain { stream } => self.of_stream[stream],
                FlowKind::Copy { resident } => copy_of[resident],
            };
            self.of_flow.push(index);
            let flows = &mut self.list[index].flows;
            let list = match flow.kind {
                FlowKind::Feed { .. } if flow.amount == Amount::Weights => &mut flows.weights,
                FlowKind::PartialRead { .. } => &mut flows.partial_reads,
                FlowKind::PartialWrite { .. } => &mut flows.partial_writes,
                FlowKind::State { .. } => &mut flows.state,
                FlowKind::Merge { .. } => &mut flows.merges,
                FlowKind::Emit { .. } | FlowKind::Forward { .. } => &mut flows.results,
                FlowKind::Feed { .. } | FlowKind::Fill { .. } | FlowKind::Drain { .. } | FlowKind::Copy { .. } => {
                    &mut flows.operands
                }
            };
            list.push(f);
        }
    }

    /// The loops, and the nests that processes and buffers walk.
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// Where firing `n` of a process stands: a stage at the last of the firings that one of its own covers, all else at the
    /// first.
    #[inline]
    pub fn point(&self, process: usize, n: u64) -> Iteration {
        let Process { kind, level, .. } = self.list[process];
        let step = self.schedule.step(level, n);
        match kind {
            ProcessKind::Group { .. } => self.schedule.complete(level, step),
            _ => step,
        }
    }

    /// Where what a store writes in the firing at `at` is complete: at the last of the firings that fill it.
    pub fn complete_point(&self, level: LoopLevel, at: Iteration) -> Iteration {
        self.schedule.complete(level, at)
    }

    /// The first firing that waits for what a stream reads at `at`: behind a stage that adds up over column tiles, none before
    /// the last of them.
    #[inline]
    pub fn due(&self, stream: StreamId, at: Iteration) -> Iteration {
        if self.is_late[stream] { self.schedule.complete(LoopLevel::PANEL_ROW, at) } else { at }
    }

    /// The number of a step among all firings: what is due first has the least.
    #[inline]
    pub fn rank(&self, at: Iteration) -> u64 {
        self.schedule.ordinal(LoopLevel::FIRING, at)
    }

    /// The slot of a buffer that the firing at a point uses.
    #[inline]
    pub fn slot(&self, buffer: BufferId, at: Iteration) -> u64 {
        self.schedule.ordinal(self.levels[buffer], at)
    }

    /// Slots that pass through a buffer.
    pub fn slots(&self, buffer: BufferId) -> u64 {
        self.schedule.count(self.levels[buffer])
    }

    /// The last slot of an input that the firing at a point reads: all before it are filled when it is.
    #[inline]
    pub fn needed(&self, input: &Input, at: Iteration) -> u64 {
        self.schedule.needed(self.levels[input.buffer], input.sequence, at)
    }

    /// Slots of an input that the firing at a point is the last to read.
    #[inline]
    pub fn freed(&self, input: &Input, at: Iteration) -> Range<u64> {
        self.schedule.freed(self.levels[input.buffer], input.sequence, at)
    }

    /// Whether a firing at a point emits results: every firing, or the last of those that add up to a result. Of slices of K
    /// the last does. Streams and copies always do.
    #[inline]
    pub fn emits(&self, kind: ProcessKind, at: Iteration) -> bool {
        let ProcessKind::Group { stage, group } = kind else { return true };
        self.completes(stage, at) && !self.rules[stage].mapping.forwards_sums(group)
    }

    /// Whether its firing at a point completes its sums, but for those of other slices of K.
    #[inline]
    fn completes(&self, stage: StageId, at: Iteration) -> bool {
        let rule = &self.rules[stage];
        self.schedule.ends(rule.level, rule.results, at).1
    }

    /// Whether it forwards its partial sums to another slice of K in the firing at a point.
    #[inline]
    pub fn forwards_sums(&self, kind: ProcessKind, at: Iteration) -> bool {
        let ProcessKind::Group { stage, group } = kind else { return false };
        self.rules[stage].mapping.forwards_sums(group) && self.completes(stage, at)
    }

    /// Whether it adds the sums of other slices of K to its own in the firing at a point.
    #[inline]
    pub fn merges_sums(&self, kind: ProcessKind, at: Iteration) -> bool {
        let ProcessKind::Group { stage, group } = kind else { return false };
        self.rules[stage].mapping.merges_sums(group) && self.completes(stage, at)
    }

    /// Whether it fills its outputs in the firing at a point: with results, or with sums for another slice of K.
    #[inline]
    pub fn produces(&self, kind: ProcessKind, at: Iteration) -> bool {
        let ProcessKind::Group { stage, .. } = kind else { return true };
        self.completes(stage, at)
    }

    /// Whether it reads an input in the firing at a point: sums that it adds to its own only where these are complete.
    #[inline]
    pub fn takes(&self, kind: ProcessKind, input: &Input, at: Iteration) -> bool {
        input.streamed != Streamed::Merged || self.merges_sums(kind, at)
    }

    /// Whether its firing at a point starts from the sums of an earlier one, or of the slice of K before.
    #[inline]
    pub fn continues(&self, kind: ProcessKind, at: Iteration) -> bool {
        let ProcessKind::Group { stage, group } = kind else { return false };
        let rule = &self.rules[stage];
        !self.schedule.ends(rule.level, rule.results, at).0 || rule.mapping.starts_from_sums(group)
    }

    /// The firing of a stage that left the sums which its firing at `at` continues; `None` if it begins them.
    pub fn sums_before(&self, stage: StageId, at: Iteration) -> Option<Iteration> {
        let rule = &self.rules[stage];
        self.schedule.before(rule.level, rule.results, at)
    }
}

/// Whether all stages that read a stream come behind one that adds up over column tiles.
fn late_streams(section: &Section) -> IndexVec<StreamId, bool> {
    let mut is_late: IndexVec<StageId, bool> = IndexVec::filled(section.stages.len(), false);
    for (s, stage) in section.stages.iter_enumerated() {
        let made_late = |tensor: &TensorId| {
            let producer = section.stages.position(|other| other.spec.output == *tensor).filter(|&p| p < s);
            producer.is_some_and(|p| is_late[p] || section.stages[p].k_cut)
        };
        let second = stage.spec.weight.iter().filter(|_| stage.spec.sequence.is_some());
        is_late[s] = stage.spec.activations.iter().chain(second).any(made_late);
    }
    let reads_late = |role: BufferRole| match role {
        BufferRole::Operand { stage, .. } | BufferRole::Resident { stage, .. } | BufferRole::Weight { stage, .. } => {
            is_late[stage]
        }
        _ => false,
    };
    let of_stream = |stream: StreamId| {
        let mut ends = section.buffers.ids().filter(|&b| section.is_end(stream, b)).peekable();
        ends.peek().is_some() && ends.all(|b| reads_late(section.buffers[b].spec.role))
    };
    section.streams.ids().map(of_stream).collect()
}

/// Buffers that the lockstep groups of a stage read, but for sums.
fn stage_inputs(section: &Section, s: StageId) -> Vec<Input> {
    let stage = &section.stages[s];
    let mut inputs = Vec::new();
    for (b, buffer) in section.buffers.iter_enumerated() {
        match buffer.spec.role {
            BufferRole::Operand { stage: of, tensor } if of == s => {
                let streamed = match stage.mapping {
                    Mapping::Gemm(_) => Streamed::Not,
                    Mapping::Simd(m) if m.passes > 1 => Streamed::Rows,
                    Mapping::Simd(_) => Streamed::Vectors,
                };
                let makes = |of: &Stage| of.spec.output == tensor && matches!(of.mapping, Mapping::Gemm(_));
                let made_by = section.stages.position(makes);
                inputs.push(Input { streamed, made_by, ..Input::whole(b) });
            }
            BufferRole::State { stage: of, .. } if of == s => inputs.push(Input::whole(b)),
            BufferRole::Weight { stage: of, .. } if of == s => {
                // Of a sequence, whole row tiles: a firing reads those before its own again.
                let sequence = stage.spec.sequence;
                let streamed = if sequence.is_some() { Streamed::Not } else { Streamed::Weights };
                inputs.push(Input { streamed, sequence, ..Input::whole(b) });
            }
            _ => {}
        }
    }
    inputs
}

/// Whether a buffer takes what a stage emits.
fn takes_output(section: &Section, buffer: BufferId, output: TensorId) -> bool {
    match section.buffers[buffer].spec.role {
        BufferRole::Operand { tensor, .. } => tensor == output && section.resident_of(buffer).is_none(),
        BufferRole::Resident { tensor, .. } | BufferRole::Output { tensor, .. } | BufferRole::Weight { tensor, .. } => {
            tensor == output
        }
        BufferRole::State { .. } | BufferRole::PartialSums { .. } | BufferRole::PartialFifo { .. } => false,
    }
}
