//! How a stage lies on its units, and the work that follows from it.
//!
//! A GEMM stage has `pm x pn x pk` PCUs: `pm` row slices of a row tile by `pn` columns of PCUs by `pk` slices of K. `share`
//! neighbouring columns take one multicast of the activations and run in lockstep (a *lockstep group*); with a sparse weight they
//! skip only what all of them skip. With `share = 1` every column of PCUs reads its own copy and skips alone.
//!
//! The fp32 partial sums of the slices go through PMUs ([`Reduction`]), and the last slice has the results.

use std::ops::Range;
use std::sync::Arc;

/// How a GEMM stage works through a sparse weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Style {
    /// A systolic array: it skips the K rows that nothing under a tile stores. Dense weights too.
    #[default]
    Skip,
    /// A SIMD pipeline: each stored row meets a gathered vector of activations ([`gather`]).
    Gather,
}

/// How the partial sums of the slices of K come together: for few sums a tree has the shorter way, a chain the fewer sums at one
/// PCU (Thakur, Rabenseifner and Gropp 2005).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reduction {
    /// Every slice starts its output tiles from the sums of the slice before: one after the other.
    #[default]
    Chain,
    /// All slices start from nothing, side by side, and a slice adds the sums of up to two others as its own leave: a binary heap
    /// whose root is the last slice.
    Tree,
}

impl Reduction {
    /// The slice of `pk` that takes the sums of slice `slice`; `None` of the last.
    pub fn next(self, slice: u64, pk: u64) -> Option<u64> {
        let behind = pk.checked_sub(slice + 1)?;
        match self {
            Self::Chain => (behind > 0).then_some(slice + 1),
            Self::Tree => Some(pk - 1 - behind.checked_sub(1)? / 2),
        }
    }

    /// The slices of `pk` whose sums slice `slice` takes.
    pub fn before(self, slice: u64, pk: u64) -> Range<u64> {
        let behind = pk.saturating_sub(slice + 1);
        match self {
            Self::Chain => slice.saturating_sub(1)..slice,
            Self::Tree => {
                let child = |n: u64| pk.saturating_sub(behind.saturating_mul(2) + n);
                child(3)..child(1)
            }
        }
    }

    /// Slices whose sums one slice takes at most.
    pub fn most_before(self, pk: u64) -> u64 {
        let most = if self == Self::Tree { 2 } else { 1 };
        most.min(pk.saturating_sub(1))
    }

    /// Times that sums are taken one behind the other, from the first slice's to the last's.
    pub fn steps(self, pk: u64) -> u64 {
        match self {
            Self::Chain => pk.saturating_sub(1),
            Self::Tree => u64::from(pk.max(1).ilog2()),
        }
    }
}

/// Columns of an output tile of gathered rows at most: one bit for each tells the vectors of a cycle apart.
pub const MOST_GATHERED_COLUMNS: u64 = 64;

/// Mapping of a GEMM stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GemmMapping {
    /// Rows of a row tile lie along the lanes (else weight columns do).
    pub rows_on_lanes: bool,
    /// Row slices of a row tile.
    pub pm: u64,
    /// Columns of PCUs.
    pub pn: u64,
    /// Slices of K, each on `pm x pn` PCUs.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub pk: u64,
    /// How the sums of the slices of K come together.
    #[serde(default, skip_serializing_if = "is_chain")]
    pub reduction: Reduction,
    /// Columns of PCUs on one stream of activations; divides `pn`.
    #[serde(alias = "share")]
    pub multicast_width: u64,
    /// Streams of activations to a lockstep group, each to as many of its columns: heads side by side. One but for a GEMM with
    /// heads; divides `pn`.
    pub streams: u64,
    /// Column tiles of a lockstep group begin and end at block borders of the mask, or lie within a block (else they are packed).
    pub aligned: bool,
    /// How it works through a sparse weight.
    #[serde(default)]
    pub style: Style,
}

fn one() -> u64 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "asked for so by serde")]
fn is_one(pk: &u64) -> bool {
    *pk == 1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "asked for so by serde")]
fn is_chain(reduction: &Reduction) -> bool {
    *reduction == Reduction::Chain
}

impl GemmMapping {
    /// All of a GEMM on one PCU, weight columns along the lanes.
    pub const ONE_PCU: Self = Self {
        rows_on_lanes: false,
        pm: 1,
        pn: 1,
        pk: 1,
        reduction: Reduction::Chain,
        multicast_width: 1,
        streams: 1,
        aligned: false,
        style: Style::Skip,
    };

    /// Lockstep groups of one slice of K.
    pub fn k_slice_groups(&self) -> u64 {
        self.pn / self.multicast_width
    }

    /// The slice of K that a lockstep group works on: lockstep groups lie slice by slice.
    pub fn k_slice(&self, group: u64) -> u64 {
        if self.pk == 1 { 0 } else { group / self.k_slice_groups() }
    }

    /// Whether a lockstep group forwards its partial sums to another slice of K.
    pub fn forwards_sums(&self, group: u64) -> bool {
        self.k_slice(group) + 1 < self.pk
    }

    /// Whether a lockstep group adds the sums of other slices of K to its own as these leave.
    pub fn merges_sums(&self, group: u64) -> bool {
        self.reduction == Reduction::Tree && !self.reduction.before(self.k_slice(group), self.pk).is_empty()
    }

    /// Whether a lockstep group starts from the sums of another slice of K.
    pub fn starts_from_sums(&self, group: u64) -> bool {
        self.reduction == Reduction::Chain && self.k_slice(group) > 0
    }

    /// Parts of the columns of a row slice of its operand, side by side: streams of heads, or slices of K.
    pub fn parts(&self) -> u64 {
        self.streams * self.pk
    }
}

/// Mapping of a SIMD stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SimdMapping {
    /// Row slices of a row tile.
    pub pm: u64,
    /// Column slices of a row tile.
    pub pn: u64,
    /// PCUs chained because the function is longer than one pipeline.
    pub chain: u64,
    /// Times each input element is read (row-wise functions read a row more than once).
    pub passes: u64,
}

/// Mapping of any stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mapping {
    /// Systolic GEMM.
    Gemm(GemmMapping),
    /// SIMD function.
    Simd(SimdMapping),
}

impl Mapping {
    /// PCUs the stage takes.
    pub fn pcus(&self) -> u64 {
        match self {
            Self::Gemm(m) => m.pm.saturating_mul(m.pn).saturating_mul(m.pk),
            Self::Simd(m) => m.pm * m.pn * m.chain,
        }
    }

    /// Lockstep groups of PCUs.
    pub fn groups(&self) -> u64 {
        match self {
            Self::Gemm(m) => m.k_slice_groups() * m.pk,
            Self::Simd(_) => 1,
        }
    }

    /// Slices of K.
    pub fn pk(&self) -> u64 {
        match self {
            Self::Gemm(m) => m.pk,
            Self::Simd(_) => 1,
        }
    }

    /// The slice of K that a lockstep group works on.
    pub fn k_slice(&self, group: u64) -> u64 {
        if let Self::Gemm(m) = self { m.k_slice(group) } else { 0 }
    }

    /// Whether a lockstep group forwards its partial sums to another slice of K.
    pub fn forwards_sums(&self, group: u64) -> bool {
        matches!(self, Self::Gemm(m) if m.forwards_sums(group))
    }

    /// Whether a lockstep group adds the sums of other slices of K to its own as these leave.
    pub fn merges_sums(&self, group: u64) -> bool {
        matches!(self, Self::Gemm(m) if m.merges_sums(group))
    }

    /// Whether a lockstep group starts from the sums of another slice of K.
    pub fn starts_from_sums(&self, group: u64) -> bool {
        matches!(self, Self::Gemm(m) if m.starts_from_sums(group))
    }

    /// The slice of K that takes the sums of slice `slice`; `None` of the last.
    pub fn next_slice(&self, slice: u64) -> Option<u64> {
        self.reduction().next(slice, self.pk())
    }

    /// How the sums of slices of K come together.
    pub fn reduction(&self) -> Reduction {
        if let Self::Gemm(m) = self { m.reduction } else { Reduction::Chain }
    }

    /// Streams of activations to a lockstep group.
    pub fn streams(&self) -> u64 {
        if let Self::Gemm(m) = self { m.streams } else { 1 }
    }

    /// Parts of the columns of a row slice of its operand, side by side.
    pub fn parts(&self) -> u64 {
        match self {
            Self::Gemm(m) => m.parts(),
            Self::Simd(_) => 1,
        }
    }

    /// Row slices of a row tile.
    pub fn pm(&self) -> u64 {
        match self {
            Self::Gemm(m) => m.pm,
            Self::Simd(m) => m.pm,
        }
    }
}

/// Slice `slice` of `pk` of a range of K rows, cut between blocks of `grain` of them.
pub fn k_slice(k: &Range<u64>, slice: u64, pk: u64, grain: u64) -> Range<u64> {
    let length = k.end - k.start;
    let at = |slice: u64| k.start + (length.div_ceil(grain) * slice / pk * grain).min(length);
    at(slice)..at(slice + 1)
}

/// Work of one lockstep group in one column tile for one row pass.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PassWork {
    /// Cycles.
    pub cycles: u64,
    /// Column tiles.
    pub tiles: u64,
    /// Flits of one row slice's activation stream.
    pub a_flits: u64,
    /// Flits of one PCU column's weight stream.
    pub w_flits: u64,
    /// Weight columns covered.
    pub columns: u64,
    /// Stored weight elements covered.
    pub stored: u64,
    /// Elements that are not stored and multiplied all the same: a PCU on one stream with others works through the union of
    /// their masks.
    pub zeros: u64,
}

/// Columns of a weight that a lockstep group of PCUs computes together, accumulated over its K rows in one go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputTile {
    /// First weight column.
    pub start: u64,
    /// Weight columns in it.
    pub columns: u64,
}

impl OutputTile {
    /// The tile's columns that PCU column `q` of `share` computes: they are divided evenly.
    pub fn columns_of(&self, q: u64, share: u64) -> Range<u64> {
        self.start + self.columns * q / share..self.start + self.columns * (q + 1) / share
    }
}

/// Output tiles of one row pass of every lockstep group, in the order in which the group does them:
/// `[column_tile][group][tile]`. One column tile if the weight is not cut. Empty for SIMD stages, GEMMs with heads and GEMMs that add up
/// over rows, whose columns follow from the mapping alone. Shared, as every placement of a plan has the plan's tiles.
pub type TileLists = Arc<[Vec<Vec<OutputTile>>]>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_of_slices_is_a_heap_whose_root_is_the_last() {
        let of = |slice| (Reduction::Tree.before(slice, 7), Reduction::Tree.next(slice, 7));
        assert_eq!([of(6), of(5), of(4)], [(4..6, None), (2..4, Some(6)), (0..2, Some(6))]);
        assert_eq!([of(3), of(2)], [(0..0, Some(5)), (0..0, Some(5))]);
        assert_eq!(Reduction::Tree.before(2, 4), 0..1);
        for reduction in [Reduction::Chain, Reduction::Tree] {
            for pk in 1..20 {
                let mut taken = vec![0; pk as usize];
                for slice in 0..pk {
                    assert!(reduction.before(slice, pk).count() as u64 <= reduction.most_before(pk));
                    for other in reduction.before(slice, pk) {
                        taken[other as usize] += 1;
                        assert_eq!(reduction.next(other, pk), Some(slice), "{reduction:?} {pk}");
                    }
                }
                assert!(taken[..pk as usize - 1].iter().all(|&n| n == 1) && taken[pk as usize - 1] == 0);
            }
        }
        assert_eq!([1, 2, 3, 4, 7, 8, 16].map(|pk| Reduction::Tree.steps(pk)), [0, 1, 1, 2, 2, 3, 4]);
    }
}
