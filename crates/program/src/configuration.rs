//! The compiled result: everything the simulator needs to know, and nothing it has to decide.

use std::borrow::Cow;
use std::sync::Arc;

use rdusim_base::index::{Id, IndexVec};
use rdusim_base::mode::Mode;
use rdusim_graph::arch::{Chip, TierId};
use rdusim_graph::workload::{OperatorId, OperatorKind, TensorId, Workload};

use super::buffer::{Buffer, BufferRole, resident_of};
use super::dataflow::DomainError;
use super::flow::Flow;
use super::ids::{BufferId, FlowId, StageId, StreamId};
use super::nest::Nest;
use super::schedule::Schedule;
use super::stage::Stage;
use super::stream::OffChip;

/// A compiled graph.
#[derive(Debug, Clone)]
pub struct Configuration {
    /// How the graph was cut.
    pub mode: Mode,
    /// Sections in the order they run.
    pub sections: Vec<Section>,
    /// Memory tier of each tensor.
    pub tiers: Vec<TierId>,
    /// What a user should know about the mapping.
    pub notes: Vec<String>,
}

impl Configuration {
    /// The section that runs before another every time, or in every repetition but the first: the one in front of it in their
    /// block, and of the first section of a block that is repeated, the last.
    pub fn section_before(&self, index: usize, workload: &Workload) -> Option<usize> {
        let section = self.sections.get(index)?;
        if let Some(before) = index.checked_sub(1).filter(|&before| section.follows(&self.sections[before], workload)) {
            return Some(before);
        }
        let behind = self.sections[index + 1..].iter().take_while(|behind| behind.follows(section, workload)).count();
        let is_repeated = workload.operators[*section.operators.first()?].repeat > 1;
        (behind > 0 && is_repeated).then_some(index + behind)
    }
}

/// One section, placed and routed.
#[derive(Debug, Clone)]
pub struct Section {
    /// Name.
    pub name: String,
    /// Operators, in topological order.
    pub operators: Vec<OperatorId>,
    /// Loops, and the nests that stages, streams and buffers walk.
    pub schedule: Arc<Schedule>,
    /// Stages, in topological order.
    pub stages: IndexVec<StageId, Stage>,
    /// Buffers in PMUs.
    pub buffers: IndexVec<BufferId, Buffer>,
    /// Off-chip streams.
    pub streams: IndexVec<StreamId, OffChip>,
    /// Network flows.
    pub flows: IndexVec<FlowId, Flow>,
    /// PMUs with something in them.
    pub pmus: u64,
    /// Bytes of the occupied banks.
    pub sram_bytes: u64,
    /// Of those, bytes no slot uses.
    pub sram_bank_loss_bytes: u64,
    /// Cycles the compiler expected, launch included.
    pub estimated_cycles: u64,
    /// Streams of weights whose first slot is in its banks when the section begins: the one before has loaded it, or, for the
    /// first repetition of a block, nothing else runs while it is loaded.
    pub prefetched: Vec<StreamId>,
    /// What it loads for the section behind it while it runs; the last of a block for the first of the next repetition.
    pub prefetches: Vec<Prefetch>,
}

impl Section {
    /// Banks of each PMU that it takes.
    pub fn taken_banks(&self, chip: &Chip) -> Vec<u64> {
        let mut banks = vec![0; chip.grid.pmus.len()];
        for part in self.buffers.iter().flat_map(|buffer| &buffer.pieces).flat_map(|piece| &piece.parts) {
            banks[part.pmu.index()] += part.banks;
        }
        banks
    }

    /// Gives it the schedule of its nest after a change.
    ///
    /// # Errors
    /// The nest has a tile or block of 0 elements; the section is as before.
    pub fn change_nest(&mut self, change: impl FnOnce(&mut Nest)) -> Result<(), DomainError> {
        let mut nest = self.schedule.nest();
        change(&mut nest);
        self.schedule = Arc::new(Schedule::of(&nest)?);
        Ok(())
    }

    /// Whether one launch runs all repetitions of its block. It does where the section is the whole block: no other section is
    /// configured between two repetitions, and address generators step from the tensors of one repetition to those of the
    /// next. What one repetition leaves for the next passes through memory. Kernel by kernel, every operator is launched.
    pub fn is_looped(&self, workload: &Workload, mode: Mode) -> bool {
        mode == Mode::Fused && is_whole_block(workload, &self.operators)
    }

    /// Whether it runs behind another every time.
    pub fn follows(&self, before: &Self, workload: &Workload) -> bool {
        let place = |section: &Self| {
            let op = &workload.operators[section.operators[0]];
            (op.block, op.repeat, op.phase, op.every)
        };
        place(before) == place(self)
    }
}

/// Whether operators are all those of a block that is repeated in every step, in one phase.
pub fn is_whole_block(workload: &Workload, operators: &[OperatorId]) -> bool {
    let place = |op: OperatorId| {
        let op = &workload.operators[op];
        (op.block, op.phase, op.repeat, op.every)
    };
    let Some(&first) = operators.first() else { return false };
    let (block, phase, repeat, every) = place(first);
    let is_left_out = |id: OperatorId| {
        let op = &workload.operators[id];
        (op.block, op.phase) == (block, phase) && !operators.contains(&id)
    };
    block.is_some()
        && repeat > 1
        && every == 1
        && operators.iter().all(|&op| place(op) == place(first))
        && !workload.operators.ids().any(is_left_out)
}

/// Weights that a section loads for the one behind it, in time that memory has to spare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefetch {
    /// The weight.
    pub tensor: TensorId,
    /// The tier it comes from.
    pub tier: TierId,
    /// Bytes of the first slot of its stream.
    pub payload_bytes: u64,
    /// Bytes moved, whole bursts.
    pub moved_bytes: u64,
    /// Bytes of the banks that take them.
    pub bank_bytes: u64,
    /// Flits injected into the network.
    pub flits: u64,
    /// The same times links.
    pub flit_hops: u64,
    /// Flits written to PMUs.
    pub written_flits: u64,
}

impl Section {
    /// The resident buffer that an operand buffer is copied from.
    pub fn resident_of(&self, operand: BufferId) -> Option<BufferId> {
        resident_of(&self.buffers, operand)
    }

    /// Whether an off-chip stream fills or drains a buffer.
    pub fn is_end(&self, stream: StreamId, buffer: BufferId) -> bool {
        self.streams[stream].stream.is_end(&self.buffers, buffer)
    }

    /// Whether a buffer takes partial sums from one slice of K to the next.
    pub fn is_partial_fifo(&self, buffer: BufferId) -> bool {
        matches!(self.buffers[buffer].spec.role, BufferRole::PartialFifo { .. })
    }

    /// The chip as this section finds it ([`Chip::in_section`]).
    pub fn chip<'c>(&self, chip: &'c Chip, workload: &Workload) -> Cow<'c, Chip> {
        let multiplies = self.stages.iter().any(|stage| workload.operators[stage.spec.main].kind == OperatorKind::Gemm);
        let moved = self.streams.iter().map(|off_chip| workload.tensors[off_chip.stream.tensor].stored_bytes());
        chip.in_section(if multiplies { 0 } else { moved.max().unwrap_or(0) })
    }
}
