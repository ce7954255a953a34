//! What a firing of a GEMM stage works through and moves: output tiles, their depths, and the flits of its streams.
//!
//! Counted from the output tiles of the program and the mask of the weight, by the definitions of DESIGN §3 and of
//! `docs/timing-model.md` (GEMM stages); nothing is shared with `cost`.

use std::ops::Range;

use crate::arch::Chip;
use crate::program::{Amount, GemmMapping, OutputTile, SectionGraph, Stage, Style, Tiling};
use crate::sparsity::BlockMask;
use crate::units::Dtype;

use super::stored;

/// How many k-steps of an operand a flit holds, or flits a k-step takes. A flit holds whole k-steps.
#[derive(Debug, Clone, Copy)]
pub(super) struct Packing {
    steps: u64,
    flits: u64,
}

impl Packing {
    fn new(bytes_of_step: u64, flit_bytes: u64) -> Self {
        Self { steps: (flit_bytes / bytes_of_step).max(1), flits: bytes_of_step.div_ceil(flit_bytes) }
    }

    /// Flits of `k` k-steps.
    pub(super) fn flits(self, k: u64) -> u64 {
        k.div_ceil(self.steps) * self.flits
    }
}

/// A PCU as an output-stationary array, for one data type and orientation.
#[derive(Debug, Clone, Copy)]
pub(super) struct ArrayShape {
    /// Lanes of the data type.
    pub(super) lanes: u64,
    /// Stages: vectors of `lanes` results that drain from an output tile.
    pub(super) stages: u64,
    /// Activation rows of an output tile.
    tile_rows: u64,
    /// The side of an output tile along the activations, k-step by k-step.
    pub(super) activations: Packing,
    /// The side along the weight columns.
    pub(super) weights: Packing,
    /// Flits of the fp32 partial sums of an output tile.
    pub(super) partial_flits: u64,
    /// Cycles that a vector of results takes through the tail, all of its functions one after the other.
    pub(super) tail_cycles: u64,
}

impl ArrayShape {
    /// The array of a stage that computes in `dtype`, with `tail` functions in its tail; `None` if the chip lacks the type.
    fn new(chip: &Chip, dtype: Dtype, rows_on_lanes: bool, tail: u64) -> Option<Self> {
        let (lanes, stages) = (*chip.pcu.lanes.get(&dtype)?, chip.pcu.stages);
        let (rows, columns) = if rows_on_lanes { (lanes, stages) } else { (stages, lanes) };
        let flit_bytes = chip.network.flit_bytes;
        Some(Self {
            lanes,
            stages,
            tile_rows: rows,
            activations: Packing::new(rows * dtype.bytes(), flit_bytes),
            weights: Packing::new(columns * dtype.bytes(), flit_bytes),
            partial_flits: (rows * columns * Dtype::Fp32.bytes()).div_ceil(flit_bytes),
            tail_cycles: lanes.div_ceil(chip.pcu.tail_elements) * tail,
        })
    }
}

/// What a lockstep group does in one pass over the rows of an output tile.
#[derive(Debug, Clone)]
struct RowPass {
    /// k-steps of each output tile, in the order they are done.
    depths: Vec<u64>,
    /// Flits of the activations that one row slice takes.
    activation_flits: u64,
    /// Flits of the weights that one column of PCUs takes.
    weight_flits: u64,
    /// Most result columns that one PCU has.
    columns_of_pcu: u64,
}

impl RowPass {
    /// The pass of a group that does `tiles` over the weight rows `k`.
    fn new(
        shape: &ArrayShape,
        mapping: &GemmMapping,
        mask: Option<&BlockMask>,
        tiles: &[OutputTile],
        k: &Range<u64>,
    ) -> Self {
        let depth = |tile: &OutputTile| stored::depth(mask, &(tile.start..tile.start + tile.columns), k);
        let depths: Vec<u64> = tiles.iter().map(depth).collect();
        Self {
            activation_flits: depths.iter().map(|&depth| shape.activations.flits(depth)).sum(),
            weight_flits: depths.iter().map(|&depth| shape.weights.flits(depth)).sum(),
            columns_of_pcu: tiles.iter().map(|tile| tile.columns).sum::<u64>().div_ceil(mapping.multicast_width),
            depths,
        }
    }
}

/// What the firings of a GEMM stage work through and move.
#[derive(Debug)]
pub(super) struct GemmAmounts {
    /// The array of its PCUs.
    pub(super) shape: ArrayShape,
    /// Row slices.
    pm: u64,
    flit_bytes: u64,
    result_bytes: u64,
    /// `[column_tile][group]`; one column tile if the weight is not cut.
    passes: Vec<Vec<RowPass>>,
}

impl GemmAmounts {
    /// Counts them; `None` for what the reference model does not run (heads, row reductions, gathered or sampled operands),
    /// or if the output tiles do not fit the nest.
    pub(super) fn new(
        chip: &Chip,
        graph: &SectionGraph<'_>,
        tiling: Tiling,
        index: usize,
        (stage, mapping): (&Stage, &GemmMapping),
    ) -> Option<Self> {
        let weight = stage.spec.weight?;
        let is_plain = graph.form(index).is_none() && graph.sampled(index).is_none() && stage.spec.sums.is_none();
        if !is_plain || mapping.style != Style::Skip {
            return None;
        }
        let dtype = graph.stage_dtype(index);
        let shape = ArrayShape::new(chip, dtype, mapping.rows_on_lanes, stage.spec.tail.len() as u64)?;
        let fits = stage.tiles.iter().all(|groups| groups.len() as u64 == stage.mapping.groups());
        if !fits || stage.tiles.len() as u64 != stored::column_tiles_of_weight(graph, tiling, weight) {
            return None;
        }
        let mask = graph.mask(index);
        let of_column_tile = |(column_tile, groups): (u64, &Vec<Vec<OutputTile>>)| {
            let (_, k) = stored::part_of_weight(graph, tiling, weight, column_tile);
            let of_group = |(group, tiles): (u64, &Vec<OutputTile>)| {
                RowPass::new(&shape, mapping, mask, tiles, &stored::rows_of_group(mask, mapping, &k, group))
            };
            (0..).zip(groups).map(of_group).collect()
        };
        Some(Self {
            shape,
            pm: mapping.pm,
            flit_bytes: chip.network.flit_bytes,
            result_bytes: graph.dtype(stage.spec.output).bytes(),
            passes: (0..).zip(stage.tiles.iter()).map(of_column_tile).collect(),
        })
    }

    fn row_pass(&self, column_tile: u64, group: u64) -> &RowPass {
        // A stage whose weight is not cut does the same in all column tiles.
        let column_tile = (column_tile as usize).min(self.passes.len() - 1);
        &self.passes[column_tile][group as usize]
    }

    /// Passes of a firing over a row tile of `rows`: the output tiles of a column that the first row slice has.
    pub(super) fn row_passes(&self, rows: u64) -> u64 {
        rows.div_ceil(self.shape.tile_rows).div_ceil(self.pm)
    }

    /// Output tiles of a firing.
    pub(super) fn tiles(&self, column_tile: u64, group: u64, rows: u64) -> u64 {
        self.row_passes(rows) * self.row_pass(column_tile, group).depths.len() as u64
    }

    /// k-steps of output tile `tile` of a firing.
    pub(super) fn depth(&self, column_tile: u64, group: u64, tile: u64) -> u64 {
        let depths = &self.row_pass(column_tile, group).depths;
        depths[(tile % depths.len() as u64) as usize]
    }

    /// Depths of the output tiles of a row pass: `[column_tile][group][tile]`.
    pub(super) fn depths(&self) -> Vec<Vec<Vec<u64>>> {
        self.passes.iter().map(|groups| groups.iter().map(|pass| pass.depths.clone()).collect()).collect()
    }

    /// Flits that a firing moves.
    pub(super) fn flits(&self, amount: Amount, column_tile: u64, group: u64, rows: u64) -> u64 {
        let pass = self.row_pass(column_tile, group);
        match amount {
            Amount::Activations => self.row_passes(rows) * pass.activation_flits,
            Amount::Weights => self.row_passes(rows) * pass.weight_flits,
            Amount::Partials => self.tiles(column_tile, group, rows) * self.shape.partial_flits,
            Amount::ResultBytes => {
                let rows = rows.min(self.row_passes(rows) * self.shape.tile_rows);
                (rows * pass.columns_of_pcu * self.result_bytes).div_ceil(self.flit_bytes)
            }
            Amount::SlotBytes => 0,
        }
    }
}
