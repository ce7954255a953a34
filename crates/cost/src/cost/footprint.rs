//! Sizes of a GEMM stage's parts, from its work table.

use rdusim_base::units::saturating_u64;
use rdusim_program::{PassWork, Reduction, SectionGraph, StageId};

use super::array::SystolicShape;

/// Sizes of a GEMM stage's parts that its buffers follow (all zero but `row_grain` for SIMD stages).
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct StageFootprint {
    /// Rows of a row tile of one output tile.
    pub row_grain: u64,
    /// Most weight bytes (values and metadata) that one column of PCUs holds of one column tile.
    pub weight_slot_bytes: u64,
    /// Most output columns of one PCU; of a stage that adds up over rows, most elements of its result.
    pub columns_per_pcu: u64,
    /// Flits a cycle of one stream of activations.
    pub activation_rate: f64,
    /// Flits a cycle of one stream of weights.
    pub weight_rate: f64,
    /// Flits a cycle of the partial sums that one PCU of a slice of K leaves to the next.
    pub partial_sum_rate: f64,
    /// Cycles by which a slice of K runs behind the slice before in a chain: a tile, and what its sums take to come out.
    pub partial_sum_cycles: u64,
    /// Cycles that sums take to come out, which are a step of a tree.
    pub merge_cycles: u64,
    /// Cycles of a row pass of the busiest lockstep group.
    pub pass_cycles: u64,
}

impl StageFootprint {
    /// Sizes of a GEMM stage from its work table (`[column_tile][group]`).
    pub fn of_gemm(
        graph: &SectionGraph<'_>,
        stage: StageId,
        shape: &SystolicShape,
        multicast_width: u64,
        work: &[Vec<PassWork>],
    ) -> Self {
        let most = |f: &dyn Fn(&PassWork) -> u64| work.iter().flatten().map(f).max().unwrap_or(0);
        let columns = |w: &PassWork| w.columns.div_ceil(multicast_width);
        // Columns of a lockstep group are dealt evenly: some of its PCUs have one more than others.
        let stored = most(&|w| {
            let all = u128::from(w.stored) * u128::from(columns(w));
            saturating_u64(all.div_ceil(u128::from(w.columns.max(1))))
        });
        let weight_slot_bytes = weight_slot_bytes(graph, stage, stored);
        let (activation_rate, weight_rate) = shape.stream_rates();
        let tile_cycles = most(&|w| w.cycles.checked_div(w.tiles).unwrap_or(0));
        Self {
            row_grain: shape.row_grain,
            weight_slot_bytes,
            columns_per_pcu: most(&columns),
            activation_rate,
            weight_rate,
            partial_sum_rate: shape.partial_flits as f64 / tile_cycles.max(1) as f64,
            partial_sum_cycles: tile_cycles + shape.skew_cycles + shape.partial_flits,
            merge_cycles: shape.skew_cycles + shape.drain_cycles(false, 0),
            pass_cycles: most(&|w| w.cycles),
        }
    }

    /// Cycles by which the results of a stage with `pk` slices of K come behind the sums of its first; `walk` is the way of sums
    /// from one slice to another.
    pub fn lag_cycles(&self, reduction: Reduction, pk: u64, walk: u64) -> u64 {
        let step = match reduction {
            Reduction::Chain => self.partial_sum_cycles,
            Reduction::Tree => self.merge_cycles,
        };
        reduction.steps(pk).saturating_mul(step.saturating_add(walk))
    }

    /// The same for output tiles of `depth` K rows, where row passes differ in the tiles they execute.
    #[must_use]
    pub fn with_depth(mut self, shape: &SystolicShape, depth: u64) -> Self {
        let tile_cycles = shape.tile_cycles(depth).max(1);
        self.partial_sum_rate = shape.partial_flits as f64 / tile_cycles as f64;
        self.partial_sum_cycles = tile_cycles + shape.skew_cycles + shape.partial_flits;
        self
    }
}

/// Bytes of `stored` values of a stage's weight and of their share of metadata or scales.
pub fn weight_slot_bytes(graph: &SectionGraph<'_>, stage: StageId, stored: u64) -> u64 {
    graph.stages[stage].weight.map_or(0, |w| {
        let tensor = &graph.workload.tensors[w];
        let all = u128::from(tensor.stored_elements().max(1));
        saturating_u64((u128::from(stored) * u128::from(tensor.stored_bytes())).div_ceil(all))
    })
}
