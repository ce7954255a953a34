//! The part that each stage takes in a section's loop nest.

use rdusim_base::index::IndexVec;
use rdusim_graph::workload::TensorId;
use rdusim_program::{LoopLevel, LoopOrder, Nest, SectionGraph, StageId};

use super::residency::Residency;

/// How stages take part in a nest.
#[derive(Debug, Clone)]
pub(crate) struct StageRoles {
    /// `Firing` for stages along the cut axis, `PanelRow` for others along the one that is cut into panels, else `RowTile`.
    pub level: IndexVec<StageId, LoopLevel>,
    /// The stage's K is cut: it accumulates over column tiles.
    pub k_cut: IndexVec<StageId, bool>,
    /// The stage's output columns are cut.
    pub n_cut: IndexVec<StageId, bool>,
    /// The stage comes after an accumulating one: it runs in the last column tile.
    late: IndexVec<StageId, bool>,
    /// The stage is off the cut and computes the same again in every column tile.
    pub recomputed: IndexVec<StageId, bool>,
}

impl StageRoles {
    /// Roles of every stage of `graph` in `nest`.
    pub(crate) fn new(graph: &SectionGraph<'_>, nest: &Nest) -> Self {
        let axis = nest.tiled_axis.map(|c| c.axis);
        let along = |tensor| axis.is_some() && graph.column_axis(tensor) == axis;
        let in_panels = |tensor| nest.tiled_axis.is_some_and(|cut| cut.has_panels_of(graph.column_axis(tensor)));
        let mut roles = Self {
            level: IndexVec::new(),
            k_cut: IndexVec::new(),
            n_cut: IndexVec::new(),
            late: IndexVec::new(),
            recomputed: IndexVec::filled(graph.stages.len(), false),
        };
        for (s, stage) in graph.stages.iter_enumerated() {
            let is_gemm = stage.weight.is_some();
            let both = stage.sums.is_some() && along(stage.activations[1]);
            let input_cut = along(stage.activations[0]) || both;
            roles.k_cut.push(is_gemm && input_cut);
            roles.n_cut.push(along(stage.output) || in_panels(stage.output));
            let touches = input_cut || along(stage.output);
            roles.level.push(match (touches, in_panels(stage.output)) {
                (true, _) => LoopLevel::FIRING,
                (false, true) => LoopLevel::PANEL_ROW,
                (false, false) => LoopLevel::ROW_TILE,
            });
            let second = stage.weight.iter().filter(|_| stage.sequence.is_some());
            let late = stage.activations.iter().chain(second).any(|&tensor| {
                graph.producer(tensor).is_some_and(|p| roles.late.get(p).copied().unwrap_or(false) || roles.k_cut[p])
            });
            let of = roles.late.push(late);
            debug_assert_eq!(of, s);
        }
        roles
    }

    /// The same where what stages off the cut make for those along it is computed again in every column tile; `None` if no stage
    /// makes such a thing, or column tiles are not outermost.
    pub(crate) fn recomputing(&self, graph: &SectionGraph<'_>, nest: &Nest) -> Option<Self> {
        if nest.order == LoopOrder::RowTileOuter || nest.column_tiles() == 1 {
            return None;
        }
        let mut roles = self.clone();
        // Stages come behind those they read from.
        for (s, spec) in graph.stages.iter_enumerated().rev() {
            let is_wanted_in_column_tiles = || {
                let mut readers =
                    graph.stages.iter().zip(&roles.level).filter(|(r, _)| r.activations.contains(&spec.output));
                readers.clone().next().is_some() && readers.all(|(_, &level)| level == LoopLevel::FIRING)
            };
            // A sequence of keys is made and met once.
            let is_of_sequence = spec.sequence.is_some() || graph.stages.iter().any(|r| r.weight == Some(spec.output));
            // What carries a state would need that of the row block's first row again.
            let is_carried = graph.kind(s).is_carried();
            let makes_once = self.level[s] == LoopLevel::ROW_TILE && !self.late[s] && spec.sums.is_none();
            let makes_once = makes_once && !is_of_sequence && !is_carried;
            if makes_once && !graph.leaves_section(spec.output) && is_wanted_in_column_tiles() {
                roles.recomputed[s] = true;
                roles.level[s] = LoopLevel::FIRING;
            }
        }
        roles.recomputed.iter().any(|&recomputed| recomputed).then_some(roles)
    }

    /// Roles of every stage of `graph` in `nest`, as what stays on chip asks for.
    pub(crate) fn with(graph: &SectionGraph<'_>, nest: &Nest, residency: Residency) -> Self {
        let roles = Self::new(graph, nest);
        if residency.recompute { roles.recomputing(graph, nest).unwrap_or(roles) } else { roles }
    }

    /// Whether a stage comes after an accumulating one.
    pub(crate) fn is_late(&self, stage: StageId) -> bool {
        self.late[stage]
    }

    /// Whether no stage along the cut axis comes after an accumulating one. Such a stage would want the first column tile of
    /// its other operands again when their last has passed (`y = f(x) + x` with `x` cut), and the pipeline would stop.
    pub(crate) fn is_one_pass(&self) -> bool {
        self.late.iter().zip(&self.level).all(|(late, level)| !late || *level != LoopLevel::FIRING)
    }

    /// Slot loop level of a tensor that stages produce or consume.
    pub(crate) fn tensor_level(&self, graph: &SectionGraph<'_>, nest: &Nest, tensor: TensorId) -> LoopLevel {
        match nest.tiled_axis {
            Some(cut) if cut.is_along(graph.column_axis(tensor)) => LoopLevel::FIRING,
            Some(cut) if cut.has_panels_of(graph.column_axis(tensor)) => LoopLevel::PANEL_ROW,
            _ if graph.producer(tensor).is_some_and(|producer| self.recomputed[producer]) => LoopLevel::FIRING,
            _ => LoopLevel::ROW_TILE,
        }
    }

    /// Whether `stage` must find every row tile of a row block of `tensor` still on chip when it comes to them.
    pub(crate) fn holds_block(&self, graph: &SectionGraph<'_>, nest: &Nest, stage: StageId, tensor: TensorId) -> bool {
        if nest.order == LoopOrder::RowTileOuter || nest.column_tiles() == 1 {
            return false;
        }
        if self.tensor_level(graph, nest, tensor) != LoopLevel::ROW_TILE {
            return false;
        }
        if self.level[stage] == LoopLevel::FIRING {
            return true;
        }
        match graph.producer(tensor) {
            Some(p) => self.late[stage] && !self.late[p] && !self.k_cut[p],
            None => {
                self.late[stage]
                    && graph.stages.iter().zip(&self.late).any(|(s, late)| !late && s.activations.contains(&tensor))
            }
        }
    }
}

/// With column tiles outermost, a stage off the cut works during the first column tile or the last only, while the others work
/// in all. A GEMM behind an accumulating stage is left out: it overlaps with the next row block instead.
pub(crate) fn duty_factor(graph: &SectionGraph<'_>, nest: &Nest, roles: &StageRoles, stage: StageId) -> u64 {
    let spec = &graph.stages[stage];
    let simd = spec.weight.is_none() && spec.sums.is_none();
    let off_cut = roles.level[stage] != LoopLevel::FIRING && nest.order == LoopOrder::ColumnTileOuter;
    let idle_column_tiles = nest.count(LoopLevel::FIRING) / nest.count(roles.level[stage]).max(1);
    if off_cut && (simd || !roles.is_late(stage)) { idle_column_tiles } else { 1 }
}
