//! Off-chip streams: the tensor a load or a store walks, and its address.

use std::ops::Range;

use super::domain::{Domain, Point};
use super::loops::Axis;

/// Where a stream comes from or goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// The chip's own off-chip memory.
    Memory,
    /// Another chip, by its index.
    Peer(u32),
}

/// The address of a stream's tensor, affine in the iteration of the process's `Repeat` loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StreamBase {
    /// Byte address in the first repetition.
    pub base: u64,
    /// Bytes from one repetition to the next; 0 where every repetition moves the same tensor.
    pub step_per_repeat: u64,
}

/// One dimension of a stream's tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dim {
    /// Elements.
    pub extent: u64,
    /// The axis whose innermost loop selects a range of it; `None` if every firing moves the whole dimension.
    pub axis: Option<Axis>,
}

impl Dim {
    /// A dimension that the loops over `axis` walk.
    pub fn along(axis: Axis, extent: u64) -> Self {
        Self { extent, axis: Some(axis) }
    }

    /// A dimension that every firing moves whole.
    pub fn whole(extent: u64) -> Self {
        Self { extent, axis: None }
    }
}

/// What one pass of a stream over its tensor moves. The loops over axes of the tensor make a pass; each iteration of the
/// other loops starts a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coverage {
    /// Every element exactly once.
    Whole,
    /// No element twice; all passes together, every element: causal keys.
    Part,
}

/// The stream of a load or a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stream {
    /// Where it comes from or goes to.
    pub source: Source,
    /// Dimensions of the tensor of one repetition, stored row-major (the last dimension is contiguous).
    pub shape: Vec<Dim>,
    /// Bytes of an element.
    pub element_bytes: u64,
    /// Address.
    pub base: StreamBase,
    /// What a pass moves.
    pub coverage: Coverage,
}

impl Stream {
    /// A stream from or to memory that moves its whole tensor in each pass.
    pub fn memory(shape: Vec<Dim>, element_bytes: u64, base: u64) -> Self {
        let base = StreamBase { base, step_per_repeat: 0 };
        Self { source: Source::Memory, shape, element_bytes, base, coverage: Coverage::Whole }
    }

    /// The same with a new tensor `step` bytes further on in each repetition.
    #[must_use]
    pub fn stepping(mut self, step: u64) -> Self {
        self.base.step_per_repeat = step;
        self
    }

    /// The same with passes that move a part of the tensor.
    #[must_use]
    pub fn in_parts(mut self) -> Self {
        self.coverage = Coverage::Part;
        self
    }

    /// Bytes of the tensor of one repetition.
    pub fn tensor_bytes(&self) -> u64 {
        self.shape.iter().map(|dim| dim.extent).product::<u64>() * self.element_bytes
    }

    /// The range of each dimension that a firing moves, innermost loop of the axis.
    pub fn elements(&self, domain: &Domain, at: &Point) -> Vec<Range<u64>> {
        let range = |dim: &Dim| match dim.axis.and_then(|axis| domain.innermost(axis)) {
            Some(level) => domain.range(level, at),
            None => 0..dim.extent,
        };
        self.shape.iter().map(range).collect()
    }

    /// Bytes that a firing moves.
    pub fn bytes(&self, domain: &Domain, at: &Point) -> u64 {
        self.elements(domain, at).iter().map(|range| range.end - range.start).product::<u64>() * self.element_bytes
    }

    /// Byte address of the tensor in the repetition of a firing.
    pub fn address(&self, domain: &Domain, at: &Point) -> u64 {
        let repeat = domain.innermost(Axis::Repeat).map_or(0, |level| domain.range(level, at).start);
        self.base.base + self.base.step_per_repeat * repeat
    }
}
