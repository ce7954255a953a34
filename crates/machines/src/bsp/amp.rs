//! The multiply units of a tile: cycles of a dense product on one tile.
//!
//! Sixteen input channels of a row are multiplied into as many output channels as there are units, in a fixed number of cycles
//! of a worker; the coefficients of such a block are loaded before its rows stream through, the rows shared out to the
//! workers. Constants: poplibs `lib/poplin/PerformanceEstimation.hpp`, the vertex for 1 x 1 kernels.

use rdusim_base::units::Dtype;
use rdusim_graph::arch::Bsp;

/// Input channels of a block of coefficients.
pub(super) const CHANNELS: u64 = 16;

/// The units as one kind of product uses them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Amp {
    /// Output channels of a block.
    pub(super) units: u64,
    /// Cycles of a worker for a row of a block.
    row_cycles: f64,
    /// Cycles of a worker beside its rows.
    worker_cycles: f64,
    /// Cycles of a worker for a row of sums that begins at zero.
    zero_cycles: f64,
    /// Cycles in which the coefficients of a block are loaded.
    load_cycles: f64,
    threads: u64,
}

/// Cycles to the first block, to the next 16 inputs, to the next outputs, and to the load of a block.
const SUPERVISOR: f64 = 50.0 + 12.0;
const INPUT_GROUP: f64 = 15.0;
const OUTPUT_GROUP: f64 = 19.0 + 6.0;
/// Rows whose time the constant part of a worker has in it.
const ROWS_IN_FLIGHT: f64 = 3.0;

impl Amp {
    /// Of a data type, with partial sums of 32 bits (`wide`) or of 16; `None` if the tiles lack the type.
    pub(super) fn new(chip: &Bsp, dtype: Dtype, wide: bool) -> Option<Self> {
        let macs = *chip.tile.macs.get(&dtype)?;
        let single = dtype == Dtype::Fp32;
        // A 32-bit operand takes two loads of the data path.
        let row_cycles = if single { 8.0 } else { 4.0 };
        let peak_is_wide = chip.planner.wide_partials || single;
        let rate = if wide && !peak_is_wide { macs as f64 / 2.0 } else { macs as f64 };
        let units = ((rate * row_cycles / CHANNELS as f64) as u64).max(1);
        let bytes = CHANNELS * units * dtype.bytes();
        Some(Self {
            units,
            row_cycles,
            worker_cycles: if single { 50.0 } else { 45.0 },
            zero_cycles: match (single, wide) {
                (true, _) => 8.0,
                (false, true) => 0.0,
                (false, false) => 2.0,
            },
            load_cycles: bytes as f64 / chip.tile.weight_load_bytes as f64,
            threads: chip.tile.threads,
        })
    }

    /// Cycles of a product of `rows` by so many groups of inputs and of outputs; `zero`: its sums begin at zero.
    pub(super) fn cycles(&self, rows: u64, input_groups: u64, output_groups: u64, zero: bool) -> f64 {
        let each = rows.div_ceil(self.threads) as f64;
        let worker = |zero: bool| {
            let zeroing = if zero { 2.0 + self.zero_cycles * each } else { 0.0 };
            self.threads as f64 * (self.worker_cycles + zeroing + (each - ROWS_IN_FLIGHT).max(0.0) * self.row_cycles)
        };
        let group = |zero: bool| INPUT_GROUP + output_groups as f64 * (OUTPUT_GROUP + self.load_cycles + worker(zero));
        let first = if zero { group(true) } else { group(false) };
        SUPERVISOR + first + (input_groups.max(1) - 1) as f64 * group(false)
    }
}

/// Cycles in which the workers of a tile sum `terms` partial sums of so many results each.
///
/// poplibs `lib/popsparse/StaticMatMulPartitioner.cpp`, its estimate of a strided reduction.
pub(super) fn reduce_cycles(chip: &Bsp, results: f64, terms: f64, wide: bool) -> f64 {
    let threads = chip.tile.threads as f64;
    let (lanes, around) = if wide { (4.0, 5.0) } else { (8.0, 8.0) };
    let vectors = ((results / threads).ceil() / lanes).ceil();
    (16.0 + vectors * (around + 6.0 + (terms - 1.0).max(0.0))) * threads
}

/// Cycles in which a tile makes results of 16 bits of sums of 32.
///
/// poplibs `lib/popsparse/PerformanceEstimation.hpp`, its estimate of a cast.
pub(super) fn cast_cycles(chip: &Bsp, results: f64) -> f64 {
    let threads = chip.tile.threads as f64;
    let vectors = ((results / threads).ceil() / 2.0).ceil();
    (vectors + 26.0) * threads
}
