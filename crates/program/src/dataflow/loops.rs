//! Loops: one axis of the iteration space in tiles, with bounds that may follow an outer loop.

use std::ops::Range;

use super::ids::LoopId;

/// What the elements of a loop count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Axis {
    /// Repetitions of a block of the model (layers of a looped section).
    Repeat,
    /// Sequences of a batch.
    Sequence,
    /// Groups of rows that meet different weights (experts).
    Group,
    /// Rows of activations.
    Row,
    /// Columns of a result.
    Column,
    /// Keys and values of attention.
    Key,
    /// Attention heads.
    Head,
    /// The reduction axis of a GEMM.
    K,
}

/// A number that is affine in an iteration index: `offset + step * i`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Affine {
    /// Value at iteration 0, in elements.
    pub offset: i64,
    /// Difference between one iteration and the next, in elements.
    pub step: i64,
}

impl Affine {
    /// The same value in every iteration.
    pub fn constant(offset: i64) -> Self {
        Self { offset, step: 0 }
    }

    /// The value at iteration `i`; a negative one counts as 0.
    pub fn at(self, i: u64) -> u64 {
        let step = i64::try_from(i).unwrap_or(i64::MAX).saturating_mul(self.step);
        u64::try_from(self.offset.saturating_add(step)).unwrap_or(0)
    }
}

/// Which elements of its axis a loop walks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bound {
    /// All: `[0, extent)`.
    Full,
    /// `[start(i), min(extent, end(i)))`, where `i` is the iteration index of `outer`. Tiles of an outer tile of the same
    /// axis, or causal keys: those up to the row.
    Affine {
        /// The loop whose iteration index the bounds follow.
        outer: LoopId,
        /// First element.
        start: Affine,
        /// One past the last element.
        end: Affine,
    },
    /// `ranges[i]` clipped to the extent: ragged groups, such as the rows of expert `i`.
    Table {
        /// The loop whose iteration index selects the range.
        outer: LoopId,
        /// A range of elements for each iteration of `outer`.
        ranges: Vec<Range<u64>>,
    },
}

/// One loop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loop {
    /// What its elements count.
    pub axis: Axis,
    /// Length of the axis, in elements.
    pub extent: u64,
    /// Elements of one iteration; the last of a range may have fewer.
    pub tile: u64,
    /// Which elements it walks.
    pub bound: Bound,
}

impl Loop {
    /// A loop over the whole axis.
    pub fn full(axis: Axis, extent: u64, tile: u64) -> Self {
        Self { axis, extent, tile, bound: Bound::Full }
    }

    /// A loop over the elements of one tile of `outer`, a full loop of the same axis with tiles of `outer_tile` elements.
    pub fn within(outer: LoopId, outer_tile: u64, axis: Axis, extent: u64, tile: u64) -> Self {
        let step = i64::try_from(outer_tile).unwrap_or(i64::MAX);
        let bound = Bound::Affine { outer, start: Affine { offset: 0, step }, end: Affine { offset: step, step } };
        Self { axis, extent, tile, bound }
    }

    /// The loop its bounds follow.
    pub fn outer(&self) -> Option<LoopId> {
        match self.bound {
            Bound::Full => None,
            Bound::Affine { outer, .. } | Bound::Table { outer, .. } => Some(outer),
        }
    }

    /// Elements it walks while `outer` is in iteration `i`; an empty range starts at its end.
    pub fn elements(&self, i: u64) -> Range<u64> {
        let (start, end) = match &self.bound {
            Bound::Full => (0, self.extent),
            Bound::Affine { start, end, .. } => (start.at(i), end.at(i)),
            Bound::Table { ranges, .. } => {
                let range = usize::try_from(i).ok().and_then(|i| ranges.get(i));
                range.map_or((0, 0), |range| (range.start, range.end))
            }
        };
        let end = end.min(self.extent);
        start.min(end)..end
    }
}
