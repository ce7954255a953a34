//! The part of each stage in a nest, derived from the operators alone, to be compared with what the compiler says.

use crate::graph::SectionGraph;
use crate::ids::StageId;
use crate::nest::Nest;
use rdusim_base::index::IndexVec;

/// What a nest makes of the stages of a section.
#[derive(Debug, Clone)]
pub(super) struct Roles {
    /// The stage has the cut axis along its operand or its result.
    pub along: IndexVec<StageId, bool>,
    /// The axis that is cut into panels is the columns of its result, and the cut axis is not.
    pub in_panels: IndexVec<StageId, bool>,
    /// The cut axis is the stage's K: it accumulates over column tiles.
    pub k_cut: IndexVec<StageId, bool>,
    /// The cut axis, or the one that is cut into panels, is the columns of the stage's result.
    pub n_cut: IndexVec<StageId, bool>,
    /// The stage comes after an accumulating one: it runs in the last column tile.
    pub late: IndexVec<StageId, bool>,
}

impl Roles {
    /// Roles of every stage.
    pub(super) fn new(graph: &SectionGraph<'_>, nest: &Nest) -> Self {
        let axis = nest.tiled_axis.map(|cut| cut.axis);
        let on_axis = |tensor| axis.is_some() && graph.column_axis(tensor) == axis;
        let count = graph.stages.len();
        let mut roles = Self {
            along: IndexVec::filled(count, false),
            in_panels: IndexVec::filled(count, false),
            k_cut: IndexVec::filled(count, false),
            n_cut: IndexVec::filled(count, false),
            late: IndexVec::filled(count, false),
        };
        for (s, spec) in graph.stages.iter_enumerated() {
            // Elementwise operands share their axis; of a row reduction, X and dY have one each.
            let operands = if spec.sums.is_some() { 2 } else { 1 };
            let input = spec.activations.iter().take(operands).any(|&tensor| on_axis(tensor));
            roles.k_cut[s] = spec.weight.is_some() && input;
            let on_panels = nest.tiled_axis.is_some_and(|cut| cut.has_panels_of(graph.column_axis(spec.output)));
            roles.n_cut[s] = on_axis(spec.output) || on_panels;
            roles.along[s] = input || on_axis(spec.output);
            roles.in_panels[s] = on_panels && !roles.along[s];
            let second = spec.weight.iter().filter(|_| spec.sequence.is_some());
            let producers = spec.activations.iter().chain(second).filter_map(|&tensor| graph.producer(tensor));
            let producers = producers.filter(|&p| p < s);
            roles.late[s] = producers.into_iter().any(|p| roles.late[p] || roles.k_cut[p]);
        }
        roles
    }

    /// Whether no stage along the cut comes after an accumulating one: such a stage would need the first column tile of
    /// its other operands again after the last has passed, and the pipeline would stop.
    pub(super) fn is_one_pass(&self) -> bool {
        self.late.iter().zip(&self.along).all(|(late, along)| !late || !along)
    }
}
