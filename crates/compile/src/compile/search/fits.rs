//! Whether a nest can fit at all: a lower bound on the banks of all its mappings, before any is allocated (branch and bound).
//!
//! Every part of an array has buffers of its own, so that the mapping of a stage on the fewest PCUs holds the fewest bytes. The
//! bound adds those up, with the row block that suits each buffer best, no room for the latency of memory, and the residency that holds least.

use crate::compile::mapping::buffers::buffers;
use crate::compile::mapping::front::{Candidate, StageCandidates};
use crate::compile::mapping::residency::{LatencySlots, Residency};
use crate::compile::mapping::roles::StageRoles;
use rdusim_base::index::IndexVec;
use rdusim_cost::cost::StageFootprint;
use rdusim_program::{BufferSpec, LoopOrder, Mapping, Nest, StageId};

use super::breakpoints::residencies_of;
use super::space::SectionSearch;

impl SectionSearch<'_> {
    /// Banks that every mapping of a nest takes at least.
    pub(super) fn least_banks(
        &self,
        nest: &Nest,
        roles: &StageRoles,
        stages: &IndexVec<StageId, StageCandidates>,
    ) -> u64 {
        let Some(fewest) = stages.iter().map(|stage| stage.get(0)).collect::<Option<Vec<Candidate>>>() else {
            return 0;
        };
        let mappings: IndexVec<StageId, Mapping> = fewest.iter().map(|candidate| candidate.mapping).collect();
        let footprint: IndexVec<StageId, StageFootprint> = fewest.iter().map(|candidate| candidate.footprint).collect();
        // As in `residencies`: a row block may be cut short where column tiles are outermost. What a block holds is then less, and
        // sums over rows, of which none is complete before the last block, are more.
        let is_cut_short = nest.order == LoopOrder::ColumnTileOuter && nest.column_tiles() > 1;
        let short = Nest { block_tiles: if is_cut_short { 1 } else { nest.block_tiles }, ..*nest };
        let bytes = |roles: &StageRoles, inputs: bool, weights: bool, recompute: bool| {
            let residency = Residency { inputs, weights, recompute, latency_slots: LatencySlots::None };
            let list = |nest| buffers(self.chip, self.graph, nest, roles, residency, &mappings, &footprint);
            let held = |spec: &BufferSpec| {
                spec.depth.saturating_mul(spec.slices * spec.copies).saturating_mul(spec.slot_bytes)
            };
            let least = |(whole, short): (&BufferSpec, &BufferSpec)| held(whole).min(held(short));
            list(nest).iter().zip(&list(&short)).map(least).fold(0, u64::saturating_add)
        };
        let kept = residencies_of(nest).iter().map(|&(inputs, weights)| bytes(roles, inputs, weights, false)).min();
        let again = roles.recomputing(self.graph, nest).map(|again| bytes(&again, false, false, true));
        kept.into_iter().chain(again).min().unwrap_or(0).div_ceil(self.chip.pmu.bank_bytes())
    }
}
