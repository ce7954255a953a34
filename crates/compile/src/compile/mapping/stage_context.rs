//! A stage in a loop nest: what its mappings are worked out from.

use rdusim_graph::arch::Chip;
use rdusim_program::{Nest, SectionGraph, StageId};

use super::bases::StageBases;
use super::roles::{StageRoles, duty_factor};

/// A stage of a section, in a loop nest, on a chip.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StageContext<'a> {
    /// Chip.
    pub chip: &'a Chip,
    /// Section.
    pub graph: &'a SectionGraph<'a>,
    /// Column splits of the section's GEMMs under the nest's cut.
    pub bases: &'a StageBases<'a>,
    /// Loop nest.
    pub nest: &'a Nest,
    /// Part that each stage takes in it.
    pub roles: &'a StageRoles,
    /// The stage.
    pub stage: StageId,
}

impl StageContext<'_> {
    /// The stage works in one of this many column tiles only.
    pub(crate) fn duty_factor(&self) -> u64 {
        duty_factor(self.graph, self.nest, self.roles, self.stage)
    }

    /// Row tiles of full height, and the rows of the short one after them, 0 without.
    pub(crate) fn row_tiles(&self) -> (u64, u64) {
        (self.graph.rows / self.nest.tile_rows, self.graph.rows % self.nest.tile_rows)
    }
}
