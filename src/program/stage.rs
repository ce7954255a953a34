//! Stages on their units, and which of their firings begin from sums or emit results.

use super::graph::StageSpec;
use super::ids::PcuId;
use super::mapping::{Mapping, PassWork, TileLists};
use super::nest::{Cadence, Nest, Step};

/// A stage on its units.
#[derive(Debug, Clone)]
pub struct Stage {
    /// What it computes.
    pub spec: StageSpec,
    /// How it lies on its units.
    pub mapping: Mapping,
    /// `Firing` if it runs once a chunk and token, `Token` if once a token.
    pub cadence: Cadence,
    /// Its K axis is cut: it accumulates over chunks, and emits in the last.
    pub k_cut: bool,
    /// Its output columns are cut.
    pub n_cut: bool,
    /// It is off the cut, and computes the same anew in every chunk: nothing keeps what it makes.
    pub again: bool,
    /// Work of one row pass, `[chunk][bundle]`; empty for SIMD stages. One chunk if the cut does not touch it.
    pub work: Vec<Vec<PassWork>>,
    /// Output tiles that `work` sums up.
    pub tiles: TileLists,
    /// PCUs, in the order of [`Stage::pcu`].
    pub pcus: Vec<PcuId>,
}

impl Stage {
    /// The PCU of a bundle at row slice `i` and column `q` within the bundle (SIMD: column slice times chain).
    pub fn pcu(&self, bundle: u64, i: u64, q: u64) -> PcuId {
        let (pm, wide) = match &self.mapping {
            Mapping::Gemm(m) => (m.pm, m.share),
            Mapping::Simd(m) => (m.pm, m.pn * m.chain),
        };
        self.pcus[((bundle * pm + i) * wide + q) as usize]
    }

    /// Columns of PCUs in a bundle.
    pub fn bundle_width(&self) -> u64 {
        match &self.mapping {
            Mapping::Gemm(m) => m.share,
            Mapping::Simd(m) => m.pn,
        }
    }
}

/// Whether a bundle emits at a step: every firing, or in the last chunk when its stage accumulates, or with the last row
/// that it adds up. Of slices of K the last does.
pub fn emits(stage: &Stage, bundle: u64, nest: &Nest, at: Step) -> bool {
    match stage.spec.sums {
        Some(sums) => sums.ends(nest, at).1,
        None => (!stage.k_cut || at.chunk + 1 == nest.chunks()) && !stage.mapping.hands_on(bundle),
    }
}

/// Whether a bundle starts at a step from the sums of an earlier one, or of the slice of K before.
pub fn continues(stage: &Stage, bundle: u64, nest: &Nest, at: Step) -> bool {
    match stage.spec.sums {
        Some(sums) => !sums.ends(nest, at).0,
        None => (stage.k_cut && at.chunk > 0) || stage.mapping.k_slice(bundle) > 0,
    }
}
