//! Buffers in PMUs: what they are for, their slots, and the banks that hold them.

use rdusim_base::units::{index, saturating_u64};
use std::ops::Range;

use rdusim_base::index::IndexVec;
use rdusim_graph::arch::Chip;
use rdusim_graph::workload::TensorId;

use super::ids::{BufferId, PmuId, StageId};
use super::nest::LoopLevel;

/// What a buffer is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BufferRole {
    /// Activations beside the PCUs of a stage that read them.
    Operand {
        /// Reading stage.
        stage: StageId,
        /// Tensor.
        tensor: TensorId,
    },
    /// One copy of activations that are used again in every column tile; copied to a stage's operand buffer when used.
    Resident {
        /// Stage it is copied to.
        stage: StageId,
        /// Tensor.
        tensor: TensorId,
    },
    /// Weights of a stage.
    Weight {
        /// Reading stage.
        stage: StageId,
        /// Tensor.
        tensor: TensorId,
    },
    /// fp32 partial sums of a stage between column tiles.
    PartialSums {
        /// Accumulating stage.
        stage: StageId,
    },
    /// fp32 partial sums on their way from a slice of a stage's K to the next.
    PartialFifo {
        /// Stage.
        stage: StageId,
        /// The slice that leaves them.
        slice: u64,
    },
    /// What the step in the tail of a stage that adds up over rows reads beside its sums: every PCU's part.
    State {
        /// Stage.
        stage: StageId,
        /// Tensor.
        tensor: TensorId,
    },
    /// Results on their way off chip.
    Output {
        /// Tensor.
        tensor: TensorId,
        /// Emitting stage.
        stage: StageId,
    },
}

/// A buffer before it has a place: `copies x slices` pieces of `depth x slot_bytes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct BufferSpec {
    /// Purpose.
    pub role: BufferRole,
    /// How often a slot is filled.
    pub level: LoopLevel,
    /// Slots.
    pub depth: u64,
    /// Distinct parts of a slot.
    pub slices: u64,
    /// Copies of every part.
    pub copies: u64,
    /// Bytes of one part of one slot (the largest).
    pub slot_bytes: u64,
    /// PMUs a piece is spread over at least, for their ports.
    pub spread: u64,
}

impl BufferSpec {
    /// PMU banks of one piece.
    pub fn banks(&self, chip: &Chip) -> u64 {
        self.slot_bytes.saturating_mul(self.depth).div_ceil(chip.pmu.bank_bytes()).max(self.spread)
    }

    /// PMU banks of the buffer.
    #[inline]
    pub fn total_banks(&self, chip: &Chip) -> u64 {
        self.banks(chip).saturating_mul(self.slices * self.copies)
    }
}

/// A buffer in its PMUs.
#[derive(Debug, Clone)]
pub struct Buffer {
    /// Purpose and sizes.
    pub spec: BufferSpec,
    /// One piece a copy and slice: piece `copy * slices + slice`.
    pub pieces: Vec<Piece>,
}

impl Buffer {
    /// The piece of a copy and slice.
    pub fn piece(&self, copy: u64, slice: u64) -> &Piece {
        &self.pieces[index(copy * self.spec.slices + slice)]
    }
}

/// The resident buffer that an operand buffer is copied from.
pub fn resident_of(buffers: &IndexVec<BufferId, Buffer>, operand: BufferId) -> Option<BufferId> {
    let BufferRole::Operand { stage, tensor } = buffers[operand].spec.role else { return None };
    buffers.position(|buffer| buffer.spec.role == BufferRole::Resident { stage, tensor })
}

/// A piece of a buffer: banks of one PMU or of several.
#[derive(Debug, Clone, Default)]
pub struct Piece {
    /// Its parts.
    pub parts: Vec<Part>,
}

impl Piece {
    /// Which of `extent` columns (of weights and partial sums: of elements in order) part `part` holds: as many as its
    /// share of the banks, the first part the first.
    #[inline]
    pub fn span(&self, part: usize, extent: u64) -> Range<u64> {
        let banks = |parts: &[Part]| parts.iter().map(|p| u128::from(p.banks)).sum::<u128>();
        let all = banks(&self.parts).max(1);
        let upto = |n: usize| saturating_u64(u128::from(extent) * banks(&self.parts[..n]) / all);
        upto(part)..upto(part + 1)
    }
}

/// Banks of one PMU that hold part of a piece, and the ports they are reached through.
#[derive(Debug, Clone, Copy)]
pub struct Part {
    /// The PMU.
    pub pmu: PmuId,
    /// Banks.
    pub banks: u64,
    /// Read port.
    pub read_port: u64,
    /// Write port.
    pub write_port: u64,
}
