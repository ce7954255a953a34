//! A section's mapping before its units have places.

use crate::compile::params::PARAMS;
use rdusim_base::index::IndexVec;
use rdusim_graph::arch::Chip;
use rdusim_program::{BufferId, BufferRole, BufferSpec, Mapping, Nest, PassWork, SectionGraph, StageId, TileLists};

use super::estimate::Estimate;
use super::roles::StageRoles;

/// A section's choices before units have places.
#[derive(Debug, Clone)]
pub(crate) struct SectionPlan {
    /// Loop nest.
    pub nest: Nest,
    /// Part each stage plays in it.
    pub roles: StageRoles,
    /// Mapping of each stage.
    pub mappings: IndexVec<StageId, Mapping>,
    /// Work of each GEMM stage, `[column_tile][group]`; empty for SIMD stages.
    pub work: IndexVec<StageId, Vec<Vec<PassWork>>>,
    /// Output tiles of each stage.
    pub tiles: IndexVec<StageId, TileLists>,
    /// Buffers.
    pub buffers: IndexVec<BufferId, BufferSpec>,
    /// Estimated cycles and traffic.
    pub estimate: Estimate,
    /// How many times over a stream's address generators cover the rate of its tier, at most.
    pub covers: u64,
}

/// Gives operand buffers of sparse stages more slots than the pipeline needs, while banks are to spare: lockstep groups whose
/// work differs from column tile to column tile then wait less for each other.
pub(crate) fn deepen(chip: &Chip, graph: &SectionGraph<'_>, buffers: &mut IndexVec<BufferId, BufferSpec>) {
    let most = ((chip.pmus() * chip.pmu.banks) as f64 * PARAMS.mapping.filled_banks) as u64;
    for depth in 3..=PARAMS.mapping.deepest_operand {
        for i in buffers.ids() {
            let total: u64 = buffers.iter().map(|b| b.total_banks(chip)).sum();
            let BufferRole::Operand { stage, .. } = buffers[i].role else { continue };
            if graph.mask(stage).or(graph.sampled(stage)).is_none() || buffers[i].depth >= depth {
                continue;
            }
            let deeper = BufferSpec { depth, ..buffers[i] };
            if total - buffers[i].total_banks(chip) + deeper.total_banks(chip) <= most {
                buffers[i] = deeper;
            }
        }
    }
}
