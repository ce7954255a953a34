//! How full the links around a GEMM stage are: what keeps PCUs from working at their rate.
//!
//! A multicast takes about two links a sink, as PCUs and PMUs alternate; before it comes the way from the PMUs that hold the operand.

use crate::compile::params::PARAMS;
use rdusim_cost::cost::StageFootprint;
use rdusim_graph::arch::Chip;
use rdusim_program::{GemmMapping, LoopLevel, LoopOrder};

use super::stage_context::StageContext;

/// Links from the PMUs of an operand to the first PCU that reads it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Distances {
    pub activations: f64,
    pub weights: f64,
}

/// Flits times links that a GEMM stage asks for in a cycle, its operands alone.
pub(crate) fn operand_flit_hops(mapping: &GemmMapping, footprint: &StageFootprint, from: Distances) -> f64 {
    let &GemmMapping { pm, pn, pk, multicast_width, streams, .. } = mapping;
    let groups = (mapping.k_slice_groups() * pk) as f64;
    let activations = groups
        * pm as f64
        * footprint.activation_rate
        * (2.0 * multicast_width as f64 + streams as f64 * from.activations);
    let weights = (pn * pk) as f64 * footprint.weight_rate * (2.0 * pm as f64 + from.weights);
    // To a PMU and on to the next slice.
    let relayed = (pm * pn * (pk - 1)) as f64 * footprint.partial_sum_rate * PARAMS.estimate.partial_sum_links;
    activations + weights + relayed
}

/// Flits times links that the links around so many PCUs carry in a cycle where routes are as even as can be had.
pub(crate) fn routable_flit_hops(chip: &Chip, pcus: u64) -> f64 {
    let sites_per_pcu = chip.grid.units.len() as f64 / chip.pcus() as f64;
    let links_per_pcu = sites_per_pcu * 4.0 * chip.network.links_per_direction as f64;
    pcus as f64 * links_per_pcu * PARAMS.estimate.routable
}

/// What of the load of a stage's links does not depend on its mapping.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LinkLoad<'a> {
    chip: &'a Chip,
    /// Flits of activations that are written to each copy of them.
    copied_flits: f64,
}

impl<'a> LinkLoad<'a> {
    pub(crate) fn new(at: &StageContext<'a>) -> Self {
        let (chip, graph, nest) = (at.chip, at.graph, at.nest);
        let activations = graph.stages[at.stage].activations[0];
        let row_bytes = {
            let tensor = &graph.workload.tensors[activations];
            tensor.columns * tensor.dtype.bytes()
        };
        let is_cut = nest.tiled_axis.is_some_and(|cut| graph.column_axis(activations) == Some(cut.axis));
        let comes_again = nest.order == LoopOrder::ColumnTileOuter && at.roles.level[at.stage] == LoopLevel::FIRING;
        let passes = match (comes_again, is_cut) {
            (true, true) => nest.panels(),
            (true, false) => nest.column_tiles(),
            (false, _) => 1,
        };
        let flits = (graph.rows * row_bytes.div_ceil(chip.network.flit_bytes)).saturating_mul(passes);
        Self { chip, copied_flits: flits as f64 }
    }

    /// Cycles that a mapping takes in the section: `cycles` of its PCUs, or what its links need if that is more. Operands come from
    /// as far as they do in placed sections (`typical_distance` of [`crate::compile::params::EstimateParams`]).
    pub(crate) fn paced_cycles(&self, mapping: &GemmMapping, footprint: &StageFootprint, cycles: u64) -> u64 {
        let distance = PARAMS.estimate.typical_distance;
        let from = Distances { activations: distance, weights: distance };
        let copies = mapping.k_slice_groups();
        let copied = if copies > 1 { self.copied_flits * (2.0 * copies as f64 + distance) } else { 0.0 };
        let hops = operand_flit_hops(mapping, footprint, from) * cycles as f64 + copied;
        let by_links = hops / routable_flit_hops(self.chip, mapping.pm * mapping.pn * mapping.pk);
        cycles.max(by_links.min(1e18) as u64)
    }
}
