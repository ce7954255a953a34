//! What a check of the verifier sees besides the section.

use crate::fabric::Fabric;
use crate::graph::SectionGraph;
use crate::ids::StageId;
use crate::nest::{LoopLevel, LoopOrder, Nest};
use rdusim_base::index::Id;
use rdusim_graph::arch::{Chip, TierId};
use rdusim_graph::workload::{OperatorId, TensorId};

/// A chip, and the operators of the section that is checked on it.
#[derive(Debug, Clone, Copy)]
pub struct Verifier<'a> {
    /// The chip.
    pub chip: &'a Chip,
    /// The chip's links and ports.
    pub fabric: &'a Fabric,
    /// The operators of the section.
    pub graph: &'a SectionGraph<'a>,
    /// Memory tier of each tensor.
    pub tiers: &'a [TierId],
}

impl Verifier<'_> {
    /// Name of a tensor.
    pub fn tensor(&self, tensor: TensorId) -> &str {
        self.graph.workload.tensors.get(tensor).map_or("a tensor that is none", |tensor| &tensor.name)
    }

    /// Name of a stage: that of its main operator.
    pub fn stage(&self, stage: StageId) -> &str {
        &self.graph.workload.operators[self.graph.stages[stage].main].name
    }

    /// The main operator of a stage.
    pub fn main(&self, stage: StageId) -> OperatorId {
        self.graph.stages[stage].main
    }

    /// Whether column tiles or panels of the nest cut a tensor's columns.
    pub fn cuts_columns(&self, nest: &Nest, tensor: TensorId) -> bool {
        nest.tiling().cuts(self.graph.column_axis(tensor))
    }

    /// Whether panels of the nest cut a tensor's columns.
    pub fn has_panels_of(&self, nest: &Nest, tensor: TensorId) -> bool {
        nest.tiled_axis.is_some_and(|cut| cut.has_panels_of(self.graph.column_axis(tensor)))
    }

    /// Whether the nest tiles a weight's rows.
    pub fn cuts_rows(&self, nest: &Nest, tensor: TensorId) -> bool {
        nest.tiled_axis.is_some_and(|cut| self.graph.row_axis(tensor) == Some(cut.axis))
    }

    /// Columns of a tensor in a column tile of the nest.
    pub fn columns(&self, nest: &Nest, tensor: TensorId, column_tile: u64) -> u64 {
        let columns = self.graph.columns_in(nest.tiled_axis, tensor, column_tile);
        columns.end - columns.start
    }

    /// Whether every sequence meets a weight of its own in a stage.
    pub fn has_own_weights(&self, stage: StageId) -> bool {
        self.graph.form(stage).is_some_and(|form| form.instances > 1)
    }

    /// Tier of a tensor; `None` if the tensor is not listed.
    pub fn tier_of(&self, tensor: TensorId) -> Option<TierId> {
        self.tiers.get(tensor.index()).copied()
    }

    /// Passes that a read of a tensor makes over it: an operand that is off the cut and is read at every firing is read
    /// again for every column tile, one along the cut for every panel; a tiled weight that does not stay is read again for every
    /// row block.
    pub fn passes(&self, nest: &Nest, tensor: TensorId, level: LoopLevel, own_weight: Option<bool>) -> u64 {
        match own_weight {
            None if level == LoopLevel::FIRING && !self.cuts_columns(nest, tensor) => nest.column_tiles(),
            None if level == LoopLevel::FIRING => nest.panels(),
            Some(false) if level == LoopLevel::BLOCK_COLUMN => nest.blocks(),
            _ => 1,
        }
    }

    /// Whether column tiles are the outer loop, and there are several.
    pub fn repeats_rows(nest: &Nest) -> bool {
        nest.order == LoopOrder::ColumnTileOuter && nest.column_tiles() > 1
    }
}
