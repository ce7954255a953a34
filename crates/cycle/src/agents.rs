//! What the control keeps of every agent, of the flows it reads and fills, and of the slots of buffers.

use std::cmp::Ordering;

use rdusim_program::{BufferId, FlowId, FlowKind, Input, Iteration, LoopLevel, ProcessKind, StreamId};

use super::amounts::{Amounts, StageAmounts};
use super::winner_tree::WinnerTree;

/// A process of the section, and how far it has come.
#[derive(Debug)]
pub(super) struct Agent {
    pub(super) kind: ProcessKind,
    pub(super) count: u64,
    /// Firings it may begin.
    pub(super) enabled: u64,
    /// Inputs whose slots must be filled before it begins.
    pub(super) whole: Vec<Input>,
    pub(super) outputs: Vec<BufferId>,
    pub(super) readers: Vec<usize>,
}

/// A flow out of PMUs.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) flow: FlowId,
    pub(super) agent: usize,
    /// The firing it sends now, its flits, and those of the firings before.
    pub(super) firing: u64,
    pub(super) of_firing: u64,
    pub(super) before: u64,
    /// Buffer that is read as it fills, and the fills of the slice that is read; `None` if none fills it.
    pub(super) streamed: Option<(BufferId, Option<usize>)>,
    /// Slots of its buffer it is done with.
    pub(super) released: u64,
    /// Of partial sums, the fill that writes them, and its flits up to each firing.
    pub(super) sums: Option<(usize, Vec<u64>)>,
}

/// A way into a buffer, or into an address generator.
#[derive(Debug)]
pub(super) struct Fill {
    pub(super) flow: FlowId,
    pub(super) target: Target,
    /// Its group, and which of the group it is; of partial sums that stay with their stage no group.
    pub(super) group: Option<(usize, usize)>,
    pub(super) slot: u64,
    pub(super) slots: u64,
    pub(super) got: u64,
    pub(super) need: u64,
    pub(super) total: u64,
    /// Of partial sums that stay with their stage, the readers.
    pub(super) sums_read_by: Vec<usize>,
}

impl Fill {
    /// Orders fills by how far they have come: slots, then the part of the slot.
    #[inline]
    pub(super) fn progress(&self, other: &Self) -> Ordering {
        let parts = || (self.got * other.need).cmp(&(other.got * self.need));
        self.slot.cmp(&other.slot).then_with(parts)
    }
}

/// Fills that fill the same slots together: those of a slice of a buffer, or of a stream.
#[derive(Debug)]
pub(super) struct FillGroup {
    pub(super) target: Target,
    pub(super) slice: u64,
    pub(super) fills: Vec<usize>,
    /// Which of them is the furthest behind.
    pub(super) slowest: WinnerTree,
}

impl FillGroup {
    /// The fill of `fills` that is the furthest behind.
    pub(super) fn slowest<'f>(&self, fills: &'f [Fill]) -> &'f Fill {
        &fills[self.fills[self.slowest.least()]]
    }

    /// The part of a slot that all of them have filled, as a fraction.
    pub(super) fn part(&self, fills: &[Fill], slot: u64) -> (u64, u64) {
        let slowest = self.slowest(fills);
        match slowest.slot.cmp(&slot) {
            Ordering::Less => (0, 1),
            Ordering::Equal => (slowest.got, slowest.need),
            Ordering::Greater => (1, 1),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    Buffer(BufferId),
    Sums(BufferId),
    Stream(StreamId),
}

#[derive(Debug)]
pub(super) struct Slots {
    pub(super) level: LoopLevel,
    pub(super) depth: u64,
    pub(super) filled: u64,
    pub(super) released: u64,
    /// Groups of the fills of each of its slices.
    pub(super) slices: Vec<usize>,
    pub(super) readers: Vec<usize>,
    /// Readers that have released no more slots than all have.
    pub(super) unreleased: usize,
    /// Agents that wait for its slots to be filled, or to be free.
    pub(super) consumers: Vec<usize>,
    pub(super) producers: Vec<usize>,
    /// Given back by memory writes, not by readers.
    pub(super) stored: bool,
}

impl Slots {
    /// Slots that all fills of all slices are through with.
    pub(super) fn filled_slots(&self, groups: &[FillGroup], fills: &[Fill]) -> u64 {
        self.slices.iter().map(|&slice| groups[slice].slowest(fills).slot).min().unwrap_or(0)
    }
}

/// Of the `all` flits that a flow reads in a firing, those that can be read when `part` of the slot is there.
pub(super) fn first_reading(
    amounts: &Amounts<'_>,
    flow: FlowId,
    at: Iteration,
    all: u64,
    got: u64,
    need: u64,
    filled_by: Option<&Agent>,
) -> u64 {
    let flow = &amounts.section.flows[flow];
    if got == need {
        return all;
    }
    let stage = match flow.kind {
        FlowKind::Feed { stage, .. } => stage,
        // Sums go on in the order they come.
        FlowKind::PartialRead { .. } | FlowKind::Merge { .. } => return all * got / need,
        _ => return all,
    };
    let rows = amounts.tiling.rows_of(at.row_tile);
    match &amounts.stages[stage] {
        // Weights are read once a row pass, in the order they come.
        StageAmounts::Gemm(work) => all / work.row_passes(at, rows).max(1) * got / need,
        StageAmounts::Simd(work) if work.passes == 1 => all * got / need,
        StageAmounts::Simd(work) => {
            // Each row is read several times, the first time as it comes. A GEMM produces whole groups of rows.
            let lines = work.rows_of_slice(rows).max(1);
            let per_line = all / lines;
            if let Some(Agent { kind: ProcessKind::Group { stage: from, .. }, .. }) = filled_by
                && let StageAmounts::Gemm(from) = &amounts.stages[*from]
            {
                let groups = from.row_passes(at, rows).max(1);
                return lines * (groups * got / need) / groups * per_line;
            }
            let whole = lines * got / need;
            let within = lines * got % need;
            whole * per_line + per_line / work.passes * within / need
        }
    }
}
