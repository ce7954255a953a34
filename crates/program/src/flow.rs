//! Flows: static routes between ports, and how much one event of each moves.

use super::fabric::Resource;
use super::ids::{BufferId, StageId, StreamId};
use rdusim_base::units::saturating_u64;

/// Who starts a flow, and for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FlowKind {
    /// Off-chip stream into a buffer.
    Fill {
        /// Stream.
        stream: StreamId,
        /// Buffer.
        buffer: BufferId,
    },
    /// Resident buffer into a stage's operand buffer.
    Copy {
        /// Resident buffer.
        resident: BufferId,
    },
    /// PMU to PCUs of a lockstep group, for the whole of a firing.
    Feed {
        /// Stage.
        stage: StageId,
        /// Lockstep group.
        group: u64,
    },
    /// Results of a lockstep group, into a buffer.
    Emit {
        /// Stage.
        stage: StageId,
        /// Lockstep group.
        group: u64,
    },
    /// Partial sums of a lockstep group, read before (every column tile but the first), or those of the slice of K before, in a
    /// chain.
    PartialRead {
        /// Stage.
        stage: StageId,
        /// Lockstep group.
        group: u64,
    },
    /// Partial sums of a lockstep group, written back (every column tile but the last).
    PartialWrite {
        /// Stage.
        stage: StageId,
        /// Lockstep group.
        group: u64,
    },
    /// State that the step in a stage's tail reads, when the sums of a lockstep group are complete.
    State {
        /// Stage.
        stage: StageId,
        /// Lockstep group.
        group: u64,
    },
    /// Partial sums of a lockstep group, complete for its slice of K, on their way to another.
    Forward {
        /// Stage.
        stage: StageId,
        /// Lockstep group.
        group: u64,
    },
    /// Partial sums of another slice of K that a lockstep group adds to its own as these leave.
    Merge {
        /// Stage.
        stage: StageId,
        /// Lockstep group.
        group: u64,
    },
    /// Store buffer to an off-chip stream.
    Drain {
        /// Stream.
        stream: StreamId,
    },
}

/// How many flits one event of a flow moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Amount {
    /// Activations of a lockstep group: its passes times the work table's activation flits.
    Activations,
    /// Weights of a lockstep group's PCU column.
    Weights,
    /// One tile of partial sums a pass and tile.
    Partials,
    /// What the step in the tail reads beside the sums of a PCU, in bytes.
    State,
    /// Part of the slot that moves, in bytes.
    SlotBytes,
    /// Part of the lockstep group's result, in bytes.
    ResultBytes,
}

/// A part of a buffer that a flow reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowEnd {
    /// Buffer.
    pub buffer: BufferId,
    /// Slice; a flow that writes a slice writes all its copies.
    pub slice: u64,
    /// Part of the slice's pieces.
    pub part: usize,
}

/// A static route from one port to others.
#[derive(Debug, Clone)]
pub struct Flow {
    /// Who starts it.
    pub kind: FlowKind,
    /// What one event moves ...
    pub amount: Amount,
    /// ... of which this flow carries `share.0 / share.1`.
    pub share: (u64, u64),
    /// What of a buffer it reads; `None` from a PCU or an address generator.
    pub reads: Option<FlowEnd>,
    /// What of a buffer it fills; `None` into a PCU or an address generator.
    pub writes: Option<FlowEnd>,
    /// Ports and links of the tree: the source's port, a port for each sink, the links.
    pub route: Vec<Resource>,
    /// Links in the tree.
    pub links: u64,
    /// Cycles from the source to the farthest sink.
    pub hop_cycles: u64,
    /// PMU write ports at the sinks.
    pub pmu_sinks: u64,
    /// Whether the source is a PMU.
    pub from_pmu: bool,
}

/// The part of `amount` that a flow with `share` carries.
#[inline]
pub fn shared(amount: u64, share: (u64, u64)) -> u64 {
    if share.0 == share.1 {
        return amount;
    }
    match amount.checked_mul(share.0) {
        Some(product) => product.div_ceil(share.1),
        None => saturating_u64((u128::from(amount) * u128::from(share.0)).div_ceil(u128::from(share.1))),
    }
}
