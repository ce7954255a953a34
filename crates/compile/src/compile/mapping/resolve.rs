//! What follows from a nest and the mappings of its stages, without a choice left.

use rdusim_base::index::IndexVec;
use rdusim_cost::cost::StageFootprint;
use rdusim_graph::arch::Chip;
use rdusim_program::{Mapping, Nest, PassWork, SectionGraph, StageId, TileLists};

use super::residency::Residency;
use super::roles::StageRoles;
use rdusim_cost::cost::TileTables;

/// The parts stages play in a nest, their exact work, and the sizes their buffers follow.
#[derive(Debug)]
pub(crate) struct Resolved {
    /// Part each stage plays in the nest.
    pub roles: StageRoles,
    /// Work of each GEMM stage, `[column_tile][group]`; empty for SIMD stages.
    pub work: IndexVec<StageId, Vec<Vec<PassWork>>>,
    /// Output tiles of each stage.
    pub tiles: IndexVec<StageId, TileLists>,
    /// Sizes of each stage.
    pub footprint: IndexVec<StageId, StageFootprint>,
}

/// Works the stages of a section out in full.
pub(crate) fn resolve(
    chip: &Chip,
    graph: &SectionGraph<'_>,
    nest: &Nest,
    residency: Residency,
    mappings: &IndexVec<StageId, Mapping>,
) -> Resolved {
    let bases = TileTables::new(chip, graph, nest.tiled_axis);
    let (work, tiles): (Vec<_>, Vec<_>) = mappings
        .iter_enumerated()
        .map(|(s, mapping)| match mapping {
            Mapping::Gemm(m) => bases.work_and_tiles(s, m, nest.tile_rows),
            Mapping::Simd(_) => (Vec::new(), TileLists::default()),
        })
        .unzip();
    let (work, tiles) = (IndexVec::from(work), IndexVec::from(tiles));
    let footprint = mappings
        .iter_enumerated()
        .map(|(s, mapping)| match mapping {
            Mapping::Gemm(m) => bases.footprint(s, m, &work[s], &tiles[s], nest.tile_rows),
            Mapping::Simd(_) => StageFootprint::default(),
        })
        .collect();
    Resolved { roles: StageRoles::with(graph, nest, residency), work, tiles, footprint }
}
