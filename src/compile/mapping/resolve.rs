//! What follows from a nest and the mappings of its stages, without a choice left.

use crate::arch::Chip;
use crate::cost::StageExtents;
use crate::program::{Mapping, Nest, PassWork, SectionGraph, TileLists};

use super::residency::Residency;
use super::roles::StageRoles;
use crate::cost::TileTables;

/// The parts stages play in a nest, their exact work, and the sizes their buffers follow.
#[derive(Debug)]
pub struct Exact {
    /// Part each stage plays in the nest.
    pub roles: StageRoles,
    /// Work of each GEMM stage, `[chunk][bundle]`; empty for SIMD stages.
    pub work: Vec<Vec<Vec<PassWork>>>,
    /// Output tiles of each stage.
    pub tiles: Vec<TileLists>,
    /// Sizes of each stage.
    pub extents: Vec<StageExtents>,
}

/// Works the stages of a section out in full.
pub fn exact(chip: &Chip, graph: &SectionGraph<'_>, nest: &Nest, residency: Residency, mappings: &[Mapping]) -> Exact {
    let bases = TileTables::new(chip, graph, nest.chunking);
    let (work, tiles): (Vec<_>, Vec<_>) = mappings
        .iter()
        .enumerate()
        .map(|(s, mapping)| match mapping {
            Mapping::Gemm(m) => bases.work_and_tiles(s, m, nest.token_rows),
            Mapping::Simd(_) => (Vec::new(), TileLists::default()),
        })
        .unzip();
    let extents = mappings
        .iter()
        .enumerate()
        .map(|(s, mapping)| match mapping {
            Mapping::Gemm(m) => bases.extents(s, m, &work[s], &tiles[s]),
            Mapping::Simd(_) => StageExtents::default(),
        })
        .collect();
    Exact { roles: StageRoles::with(graph, nest, residency), work, tiles, extents }
}
