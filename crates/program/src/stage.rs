//! Stages on their units, and which of their firings begin from sums or emit results.

use super::graph::StageSpec;
use super::ids::PcuId;
use super::mapping::{Mapping, PassWork, TileLists};
use super::nest::{Iteration, LoopLevel};
use super::schedule::Schedule;
use rdusim_base::units::index;

/// A stage on its units.
#[derive(Debug, Clone)]
pub struct Stage {
    /// What it computes.
    pub spec: StageSpec,
    /// How it lies on its units.
    pub mapping: Mapping,
    /// Its nest: of all firings, or of row tiles.
    pub level: LoopLevel,
    /// Its K axis is cut: it accumulates over column tiles, and emits in the last.
    pub k_cut: bool,
    /// Its output columns are cut.
    pub n_cut: bool,
    /// It is off the cut, and computes the same again in every column tile: nothing keeps what it makes.
    pub recomputed: bool,
    /// Work of one row pass, `[column_tile][group]`; empty for SIMD stages. One column tile if the cut does not touch it.
    pub work: Vec<Vec<PassWork>>,
    /// Stored elements of the column tiles of `work` before each, and of all at the end: [`Stage::stored_before`].
    pub stored_before: Vec<u64>,
    /// Output tiles that `work` sums up.
    pub tiles: TileLists,
    /// PCUs, in the order of [`Stage::pcu`].
    pub pcus: Vec<PcuId>,
}

impl Stage {
    /// Sums of the stored elements of column tiles before each, and of all: a slot of a weight stream is a difference of two.
    pub fn stored_before(work: &[Vec<PassWork>]) -> Vec<u64> {
        let mut before = 0;
        let of_tile = |tile: &Vec<PassWork>| {
            before += tile.iter().map(|of_group| of_group.stored).sum::<u64>();
            before
        };
        std::iter::once(0).chain(work.iter().map(of_tile)).collect()
    }

    /// The PCU of a lockstep group at row slice `i` and column `q` within the lockstep group (SIMD: column slice times chain).
    pub fn pcu(&self, group: u64, i: u64, q: u64) -> PcuId {
        let (pm, wide) = match &self.mapping {
            Mapping::Gemm(m) => (m.pm, m.multicast_width),
            Mapping::Simd(m) => (m.pm, m.pn * m.chain),
        };
        self.pcus[index((group * pm + i) * wide + q)]
    }

    /// The nest of its results: its own, or that of the sums over several of its firings.
    pub fn result_level(&self) -> LoopLevel {
        match self.spec.sums {
            Some(sums) => sums.level(self.level == LoopLevel::FIRING),
            None => LoopLevel::of_results(self.level, self.k_cut, self.n_cut),
        }
    }

    /// Columns of PCUs in a lockstep group.
    pub fn group_width(&self) -> u64 {
        match &self.mapping {
            Mapping::Gemm(m) => m.multicast_width,
            Mapping::Simd(m) => m.pn,
        }
    }
}

/// Whether the sums of a lockstep group are complete at a step, but for those of other slices of K: in every firing, or in the
/// last of those that add up to a result.
fn completes(stage: &Stage, schedule: &Schedule, at: Iteration) -> bool {
    schedule.ends(stage.level, stage.result_level(), at).1
}

/// Whether a lockstep group emits at a step: every firing, or the last of those that add up to a result. Of slices of K the
/// last does.
pub fn emits(stage: &Stage, group: u64, schedule: &Schedule, at: Iteration) -> bool {
    completes(stage, schedule, at) && !stage.mapping.forwards_sums(group)
}

/// Whether a lockstep group forwards its partial sums to another slice of K at a step.
pub fn forwards(stage: &Stage, group: u64, schedule: &Schedule, at: Iteration) -> bool {
    completes(stage, schedule, at) && stage.mapping.forwards_sums(group)
}

/// Whether a lockstep group starts at a step from the sums of an earlier one, or of the slice of K before.
pub fn continues(stage: &Stage, group: u64, schedule: &Schedule, at: Iteration) -> bool {
    !schedule.ends(stage.level, stage.result_level(), at).0 || stage.mapping.starts_from_sums(group)
}

/// Whether a lockstep group adds the sums of other slices of K to its own at a step.
pub fn merges(stage: &Stage, group: u64, schedule: &Schedule, at: Iteration) -> bool {
    completes(stage, schedule, at) && stage.mapping.merges_sums(group)
}
