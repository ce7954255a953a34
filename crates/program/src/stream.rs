//! Off-chip streams: what moves between a memory tier and the section's buffers.

use rdusim_base::index::IndexVec;
use rdusim_base::units::Rate;
use rdusim_graph::arch::{Chip, TierId};
use rdusim_graph::workload::TensorId;

use super::buffer::{Buffer, BufferRole, resident_of};
use super::ids::BufferId;
use super::nest::LoopLevel;

/// An off-chip stream of a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stream {
    /// Tensor.
    pub tensor: TensorId,
    /// How often a part of it moves.
    pub level: LoopLevel,
    /// Written off chip (else read).
    pub writes: bool,
    /// Whether the tensor is a weight in this section.
    pub weight: bool,
    /// Bytes of the whole tensor that one pass moves.
    pub tensor_bytes: u64,
    /// Passes over the tensor.
    pub passes: u64,
}

impl Stream {
    /// Whether it fills or drains a buffer: the one that takes what the tier delivers, as often as it does. A copy of a
    /// resident buffer is filled from there.
    pub fn is_end(&self, buffers: &IndexVec<BufferId, Buffer>, index: BufferId) -> bool {
        let spec = &buffers[index].spec;
        match spec.role {
            BufferRole::Output { tensor, .. } => self.writes && tensor == self.tensor,
            BufferRole::State { tensor, .. } => {
                !self.writes && !self.weight && tensor == self.tensor && spec.level == self.level
            }
            BufferRole::Weight { tensor, .. } => self.weight && tensor == self.tensor && spec.level == self.level,
            BufferRole::Operand { tensor, .. } | BufferRole::Resident { tensor, .. } => {
                !self.writes
                    && !self.weight
                    && tensor == self.tensor
                    && spec.level == self.level
                    && resident_of(buffers, index).is_none()
            }
            BufferRole::PartialSums { .. } | BufferRole::PartialFifo { .. } => false,
        }
    }
}

/// An off-chip stream with its address generators.
#[derive(Debug, Clone)]
pub struct OffChip {
    /// What moves.
    pub stream: Stream,
    /// The tier it moves to or from.
    pub tier: TierId,
    /// Address generators: (AGCU, generator in it).
    pub ags: Vec<(u32, u32)>,
}

impl OffChip {
    /// The rate that the accesses which its address generators may have under way allow, if they are limited.
    pub fn window_rate(&self, chip: &Chip) -> Option<Rate> {
        chip.window_rate(self.tier, self.ags.len() as u64)
    }
}
