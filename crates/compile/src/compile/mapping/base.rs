//! What a GEMM stage works in one way of splitting it over PCUs, whatever the row tile size.

use rdusim_cost::cost::StageFootprint;
use rdusim_program::{GemmMapping, Reduction, Style};

/// Work of a GEMM stage for one choice of columns, for one row pass over all column tiles.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Base {
    pub rows_on_lanes: bool,
    pub pn: u64,
    pub pk: u64,
    /// How the sums of its slices of K come together.
    pub reduction: Reduction,
    pub multicast_width: u64,
    pub aligned: bool,
    pub style: Style,
    /// Busiest lockstep group of each column tile, summed.
    pub in_step_cycles: u64,
    /// Busiest lockstep group over all column tiles.
    pub free_cycles: u64,
    /// Of the gradient of a sparse weight, what the busiest lockstep group would take if it skipped nothing.
    pub dense_cycles: Option<u64>,
    /// Output tiles of a row pass of the busiest lockstep group.
    pub tiles_of_pass: u64,
    pub footprint: StageFootprint,
}

impl Base {
    /// The mapping with `pm` row slices.
    pub(crate) fn mapping(&self, pm: u64) -> GemmMapping {
        let &Self { rows_on_lanes, pn, pk, reduction, multicast_width, aligned, style, .. } = self;
        GemmMapping { rows_on_lanes, pm, pn, pk, reduction, multicast_width, streams: 1, aligned, style }
    }

    /// Cycles of a mean row pass of `pm` row slices, whose passes go on together: of a gradient that is sampled those under
    /// which any slice stores something.
    pub(crate) fn pass_cycles(&self, is_in_step: bool, pm: u64) -> u64 {
        let cycles = if is_in_step { self.in_step_cycles } else { self.free_cycles };
        let Some(dense) = self.dense_cycles.filter(|_| pm > 1) else { return cycles };
        let skipped = 1.0 - (cycles as f64 / dense.max(1) as f64).min(1.0);
        (dense as f64 * (1.0 - skipped.powf(pm as f64))).ceil() as u64
    }
}

/// A mapping that no other beats in both PCUs and work, whatever the row tile size.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SumsBase {
    pub mapping: GemmMapping,
    /// Tiles of the busiest PCU in a row tile, over all column tiles.
    pub tiles: u64,
    pub footprint: StageFootprint,
}
