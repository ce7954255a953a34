//! Second operands of GEMMs that another stage of the section makes: keys and values. A slot of such a buffer is a row
//! tile, and a firing reads the row tiles of its own sequence: all of them, or with causal attention those up to its own
//! (the access `Prefix` of [`super::dataflow`]). Its last row tile frees those of the whole sequence.

use std::ops::Range;

use rdusim_graph::workload::{CausalAxis, OperatorId, OperatorKind, Workload};

use super::nest::{Iteration, LoopLevel};
use super::schedule::Schedule;

/// The rows that a firing reads of a second operand which another stage makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SequenceRead {
    /// Those up to its own row tile, not all of the sequence.
    pub is_prefix: bool,
    /// The nest with one point a sequence: row blocks, or the section.
    pub within: LoopLevel,
}

impl SequenceRead {
    /// Row tiles of a sequence.
    pub fn row_tiles(self, schedule: &Schedule) -> u64 {
        let nest = schedule.nest();
        if self.within == LoopLevel::ONCE { nest.row_tiles() } else { nest.block_tiles }
    }
}

impl Schedule {
    /// The last slot of a buffer with slots at `level` that the firing at a step reads.
    #[inline]
    pub fn needed(&self, level: LoopLevel, read: Option<SequenceRead>, at: Iteration) -> u64 {
        match read {
            Some(SequenceRead { is_prefix: false, within }) => self.ordinal(level, self.complete(within, at)),
            _ => self.ordinal(level, at),
        }
    }

    /// Slots of the buffer that the firing at a step is the last to read.
    #[inline]
    pub fn freed(&self, level: LoopLevel, read: Option<SequenceRead>, at: Iteration) -> Range<u64> {
        let slot = self.ordinal(level, at);
        match read {
            None => slot..slot + u64::from(self.is_last_use(level, at)),
            Some(SequenceRead { within, .. }) if self.is_last_use(within, at) => {
                self.first_of(level, within, at)..slot + 1
            }
            Some(_) => slot..slot,
        }
    }

    /// Slots that the firing at a step reads.
    pub fn read_slots(&self, level: LoopLevel, read: Option<SequenceRead>, at: Iteration) -> Range<u64> {
        let needed = self.needed(level, read, at);
        match read {
            None => needed..needed + 1,
            Some(SequenceRead { within, .. }) => self.first_of(level, within, at)..needed + 1,
        }
    }

    /// The first slot of the sequence that a step lies in.
    fn first_of(&self, level: LoopLevel, within: LoopLevel, at: Iteration) -> u64 {
        self.ordinal(level, self.step(within, self.ordinal(within, at)))
    }
}

/// How a GEMM reads its second operand, if it is made by another of `operators`, over the `rows` rows that they share;
/// `None` from off chip.
pub(super) fn sequence_read(workload: &Workload, operators: &[OperatorId], op: OperatorId) -> Option<SequenceRead> {
    let operator = &workload.operators[op];
    let second = *operator.inputs.get(1).filter(|_| operator.kind == OperatorKind::Gemm)?;
    operators.iter().find(|&&other| workload.operators[other].output == second)?;
    let form = operator.form?;
    let within = if form.instances > 1 { LoopLevel::BLOCK_COLUMN } else { LoopLevel::ONCE };
    // Keys lie along the rows of the second operand, or across them.
    let is_prefix = match form.causal {
        None => false,
        Some(CausalAxis::Columns) => operator.options.transpose_b,
        Some(CausalAxis::Depth) => !operator.options.transpose_b,
    };
    Some(SequenceRead { is_prefix, within })
}

/// Whether a GEMM may read the second operand that another operator of a section over `rows` rows makes: head by head or
/// sequence by sequence, as many rows of it as of the first, all of them stored.
pub(super) fn may_be_made_here(workload: &Workload, op: OperatorId, rows: u64) -> bool {
    let operator = &workload.operators[op];
    let Some(&second) = operator.inputs.get(1) else { return false };
    let tensor = &workload.tensors[second];
    operator.form.is_some()
        && !operator.options.transpose_a
        && tensor.rows == rows
        && tensor.mask.is_none()
        && tensor.view.is_none()
}
