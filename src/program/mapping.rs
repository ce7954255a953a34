//! How a stage lies on its units, and the work that follows from it.
//!
//! A GEMM stage has `pm x pn x pk` PCUs: `pm` row slices of a row tile by `pn` columns of PCUs by `pk` slices of K. `share`
//! neighbouring columns take one multicast of the activations and run in lockstep (a *lockstep group*); with a sparse weight they
//! skip only what all of them skip. With `share = 1` every column of PCUs reads its own copy and skips alone.
//!
//! The slices of K are a chain: each starts its tiles from the fp32 partial sums of the slice before, which come through
//! PMUs, and the last one has the results.

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

/// Columns of an output tile of gathered rows at most: a cycle's vectors are told from each other by one bit for each.
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

impl GemmMapping {
    /// Lockstep groups of one slice of K.
    pub fn k_slice_groups(&self) -> u64 {
        self.pn / self.multicast_width
    }

    /// The slice of K that a lockstep group works on: lockstep groups lie slice by slice.
    pub fn k_slice(&self, group: u64) -> u64 {
        if self.pk == 1 { 0 } else { group / self.k_slice_groups() }
    }

    /// Whether a lockstep group hands its partial sums on to the next slice of K.
    pub fn forwards_sums(&self, group: u64) -> bool {
        self.k_slice(group) + 1 < self.pk
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

    /// Whether a lockstep group hands its partial sums on to the next slice of K.
    pub fn forwards_sums(&self, group: u64) -> bool {
        matches!(self, Self::Gemm(m) if m.forwards_sums(group))
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
