//! The systolic array: cycles and flits of an output tile, for one data type and orientation.

use rdusim_base::units::Dtype;
use rdusim_graph::arch::Chip;
use rdusim_program::Style;

use super::gather::GatherPorts;
use super::tiles::Tile;

/// The part of the chip that GEMM work depends on, for one data type and orientation.
#[derive(Debug, Clone, Copy)]
pub struct SystolicShape {
    /// Lines of an output tile.
    pub row_grain: u64,
    /// Lines that a row takes ([`rdusim_program::SectionGraph::lines_of_row`]).
    lines_of_row: u64,
    /// Weight columns of an output tile.
    pub column_grain: u64,
    stages: u64,
    accumulator_sets: u64,
    /// Least cycles of a tile: its drain through the tail, and its partial sums through a port.
    least_cycles: u64,
    /// k-steps of the activations one flit carries, or flits a k-step takes.
    a_packing: Packing,
    w_packing: Packing,
    gather: Option<Gather>,
    /// Flits of one tile of fp32 partial sums.
    pub partial_flits: u64,
    /// Cycles from a tile's last operand to the last cell.
    pub skew_cycles: u64,
    /// Cycles that the results of a tile take through the tail.
    tail_cycles: u64,
}

/// What gathered operands take.
#[derive(Debug, Clone, Copy)]
struct Gather {
    vectors: u64,
    /// Flits of a vector of activations: it comes alone, from wherever it lies.
    flits_per_vector: u64,
    /// Bytes of a stored weight and of the stage it is for.
    bytes_per_weight: u64,
    flit_bytes: u64,
}

#[derive(Debug, Clone, Copy)]
struct Packing {
    steps_per_flit: u64,
    flits_per_step: u64,
}

impl Packing {
    /// A k-step of an operand is `width_bytes`; flits hold whole k-steps: of 12 B, a flit of 64 B holds 5.
    fn new(width_bytes: u64, flit_bytes: u64) -> Self {
        Self { steps_per_flit: (flit_bytes / width_bytes).max(1), flits_per_step: width_bytes.div_ceil(flit_bytes) }
    }

    fn flits(self, k_steps: u64) -> u64 {
        k_steps.div_ceil(self.steps_per_flit) * self.flits_per_step
    }
}

impl SystolicShape {
    /// Shape for operands of `dtype`; `tail_functions` elementwise functions run in the tail, and
    /// for each tile `sums` tiles of fp32 partial sums come through a port, or leave through one. `None` if the chip lacks the data
    /// type.
    pub fn new(chip: &Chip, dtype: Dtype, rows_on_lanes: bool, tail_functions: u64, sums: u64) -> Option<Self> {
        let lanes = *chip.pcu.lanes.get(&dtype)?;
        let stages = chip.pcu.stages;
        let (row_grain, column_grain) = if rows_on_lanes { (lanes, stages) } else { (stages, lanes) };
        let flit = chip.network.flit_bytes;
        // The drain passes the tail once, `lanes` results a stage; further functions take further passes.
        let tail_cycles = stages * lanes.div_ceil(chip.pcu.tail_elements) * tail_functions;
        let partial_flits = (row_grain * column_grain * 4).div_ceil(flit);
        let least_cycles = stages.max(tail_cycles).max(sums * partial_flits);
        Some(Self {
            row_grain,
            lines_of_row: 1,
            column_grain,
            stages,
            accumulator_sets: chip.pcu.accumulator_sets,
            least_cycles,
            a_packing: Packing::new(row_grain * dtype.bytes(), flit),
            w_packing: Packing::new(column_grain * dtype.bytes(), flit),
            gather: None,
            partial_flits,
            skew_cycles: lanes + stages - 2,
            tail_cycles,
        })
    }

    /// The same where a row takes so many lines.
    #[must_use]
    pub fn with_lines(self, lines_of_row: u64) -> Self {
        Self { lines_of_row, ..self }
    }

    /// The same for a style of working through a sparse weight.
    #[must_use]
    pub fn in_style(mut self, chip: &Chip, dtype: Dtype, style: Style) -> Self {
        let flit_bytes = chip.network.flit_bytes;
        self.gather = (style == Style::Gather).then(|| Gather {
            vectors: GatherPorts::new(chip).vectors,
            flits_per_vector: (self.row_grain * dtype.bytes()).div_ceil(flit_bytes),
            bytes_per_weight: dtype.bytes() + if chip.pcu.stages <= 256 { 1 } else { 2 },
            flit_bytes,
        });
        self
    }

    /// Cycles a PCU is occupied by a tile.
    pub fn cycles(&self, tile: &Tile) -> u64 {
        self.tile_cycles(tile.steps)
    }

    /// Flits of the activations of a tile.
    pub fn activations(&self, tile: &Tile) -> u64 {
        self.gather.map_or_else(|| self.a_flits(tile.steps), |gather| tile.k * gather.flits_per_vector)
    }

    /// Elements of a tile that are multiplied though they are not stored; gathered are stored ones alone.
    pub fn zeros(&self, tile: &Tile) -> u64 {
        self.gather.map_or_else(|| (tile.columns * tile.k).saturating_sub(tile.stored), |_| 0)
    }

    /// Flits of the weights of one PCU's part of a tile that `multicast_width` PCUs have together.
    pub fn weights(&self, tile: &Tile, multicast_width: u64) -> u64 {
        self.gather.map_or_else(
            || self.w_flits(tile.steps),
            |gather| (tile.stored.div_ceil(multicast_width) * gather.bytes_per_weight).div_ceil(gather.flit_bytes),
        )
    }

    /// Cycles a PCU is occupied by one output tile over `k` steps, back to back with others: skew is not charged, as the next tile's first steps
    /// overlap it.
    pub fn tile_cycles(&self, k: u64) -> u64 {
        if self.accumulator_sets >= 2 { k.max(self.least_cycles) } else { k + self.least_cycles }
    }

    /// Cycles of a tile in which its results drain and it takes no operand: with one set of accumulators.
    pub fn idle_cycles(&self) -> u64 {
        if self.accumulator_sets >= 2 { 0 } else { self.least_cycles }
    }

    /// Cycles that a tile's vectors leave the array in: results, or else partial sums; `merged` tiles of other sums are added.
    pub fn drain_cycles(&self, results: bool, merged: u64) -> u64 {
        let out = if results { self.tail_cycles } else { self.partial_flits };
        self.stages.max(out).max(merged * self.partial_flits)
    }

    /// Rows of the first of `pm` slices of a row tile of `rows`.
    #[inline]
    pub fn slice_rows(&self, rows: u64, pm: u64) -> u64 {
        (rows.div_ceil(self.row_grain).div_ceil(pm) * self.row_grain).min(rows)
    }

    /// Row passes of a PCU over a row tile of `rows` cut in `pm` slices: each takes as many lines as the array has.
    #[inline]
    pub fn passes(&self, rows: u64, pm: u64) -> u64 {
        (self.slice_rows(rows, pm) * self.lines_of_row).div_ceil(self.row_grain)
    }

    /// Flits of the activations of a tile over `k` steps.
    pub fn a_flits(&self, k: u64) -> u64 {
        self.a_packing.flits(k)
    }

    /// Flits a cycle of one stream of activations and one of weights while tiles run back to back.
    pub fn stream_rates(&self) -> (f64, f64) {
        let rate = |p: Packing| p.flits_per_step as f64 / p.steps_per_flit as f64;
        if let Some(gather) = self.gather {
            let weights = (self.stages * gather.bytes_per_weight).div_ceil(gather.flit_bytes);
            return ((gather.vectors * gather.flits_per_vector) as f64, weights as f64);
        }
        (rate(self.a_packing), rate(self.w_packing))
    }

    /// Flits of the weights of a tile over `k` steps.
    pub fn w_flits(&self, k: u64) -> u64 {
        self.w_packing.flits(k)
    }
}
