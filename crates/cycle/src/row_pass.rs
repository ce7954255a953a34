//! One pass of a lockstep group over the rows of an output tile: its tiles, their depths, and the flits of their operands.
//!
//! By the definitions of `docs/timing-model.md` (GEMM stages); nothing is shared with `cost`.

use rdusim_base::units::Dtype;
use rdusim_graph::arch::Chip;
use rdusim_graph::workload::{CausalAxis, GemmForm};
use rdusim_program::{GemmMapping, OutputTile};

use super::gathered::GatheredTile;

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

    /// k-steps after the first `k` that the flits of the next one hold.
    #[inline]
    pub(super) fn steps_left(self, k: u64) -> u64 {
        self.steps - k % self.steps
    }

    /// Flits of `k` k-steps.
    #[inline]
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
    pub(super) tile_rows: u64,
    /// Columns of an output tile on one PCU.
    pub(super) tile_columns: u64,
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
    pub(super) fn new(chip: &Chip, dtype: Dtype, rows_on_lanes: bool, tail: u64) -> Option<Self> {
        let (lanes, stages) = (*chip.pcu.lanes.get(&dtype)?, chip.pcu.stages);
        let (rows, columns) = if rows_on_lanes { (lanes, stages) } else { (stages, lanes) };
        let flit_bytes = chip.network.flit_bytes;
        Some(Self {
            lanes,
            stages,
            tile_rows: rows,
            tile_columns: columns,
            activations: Packing::new(rows * dtype.bytes(), flit_bytes),
            weights: Packing::new(columns * dtype.bytes(), flit_bytes),
            partial_flits: (rows * columns * Dtype::Fp32.bytes()).div_ceil(flit_bytes),
            tail_cycles: lanes.div_ceil(chip.pcu.tail_elements) * tail,
        })
    }
}

/// What a lockstep group does in one pass over the rows of an output tile.
#[derive(Debug, Clone)]
pub(super) struct RowPass {
    /// Output tiles.
    pub(super) tiles: u64,
    /// k-steps of each output tile, in the order they are done; one number if all are as deep.
    pub(super) depths: Vec<u64>,
    /// The output tiles, if their activations are gathered; none of a systolic array.
    pub(super) gathered: Vec<GatheredTile>,
    /// Flits of the activations that one row slice takes.
    pub(super) activation_flits: u64,
    /// Flits of the weights that one column of PCUs takes.
    pub(super) weight_flits: u64,
    /// Most result columns that one PCU has, or elements of a result that is added up.
    pub(super) columns_of_pcu: u64,
}

impl RowPass {
    /// The pass of a group that does `tiles`, of so many k-steps each.
    pub(super) fn new(shape: &ArrayShape, mapping: &GemmMapping, tiles: &[OutputTile], depths: Vec<u64>) -> Self {
        Self {
            tiles: tiles.len() as u64,
            activation_flits: depths.iter().map(|&depth| shape.activations.flits(depth)).sum(),
            weight_flits: depths.iter().map(|&depth| shape.weights.flits(depth)).sum(),
            columns_of_pcu: tiles.iter().map(|tile| tile.columns).sum::<u64>().div_ceil(mapping.multicast_width),
            depths,
            gathered: Vec::new(),
        }
    }

    /// The pass of a group that gathers the activations of `tiles`.
    pub(super) fn of_gathered(
        shape: &ArrayShape,
        mapping: &GemmMapping,
        tiles: &[OutputTile],
        gathered: Vec<GatheredTile>,
    ) -> Self {
        let (activation_flits, weight_flits) = gathered.iter().fold((0, 0), |sum, tile| {
            let (activations, weights) = tile.all_flits();
            (sum.0 + activations, sum.1 + weights)
        });
        let depths = gathered.iter().map(GatheredTile::steps).collect();
        Self { gathered, activation_flits, weight_flits, ..Self::new(shape, mapping, tiles, depths) }
    }

    /// The pass over a row tile of a GEMM with heads whose last row sees `seen` of the causal axis: the output tiles of every
    /// head of B that the columns of a stream have, one after the other. Heads that share it are lines of the array.
    pub(super) fn of_heads(shape: &ArrayShape, mapping: &GemmMapping, form: &GemmForm, seen: u64) -> Self {
        let (columns, depth) = match form.causal {
            None => (form.n, form.k),
            Some(CausalAxis::Columns) => (form.n.min(seen), form.k),
            Some(CausalAxis::Depth) => (form.n, form.k.min(seen)),
        };
        // The first stream has the most.
        let heads = form.b_heads.div_ceil(mapping.streams);
        let columns_of_tile = shape.tile_columns * (mapping.pn / mapping.streams);
        let columns_of_pcu = (form.heads * form.n).div_ceil(mapping.multicast_width);
        Self::of_equal_tiles(shape, heads * columns.div_ceil(columns_of_tile), depth, columns_of_pcu)
    }

    /// A pass of `tiles` output tiles of the same depth.
    pub(super) fn of_equal_tiles(shape: &ArrayShape, tiles: u64, depth: u64, columns_of_pcu: u64) -> Self {
        let (activation_flits, weight_flits) = (shape.activations.flits(depth), shape.weights.flits(depth));
        Self {
            tiles,
            depths: vec![depth],
            gathered: Vec::new(),
            activation_flits: tiles * activation_flits,
            weight_flits: tiles * weight_flits,
            columns_of_pcu,
        }
    }
}
