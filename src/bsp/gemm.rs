//! Dense products over tiles: splits of M, N and K, and of time where a tile's memory is short.
//!
//! Every tile has a slice of each operand and makes partial sums of a slice of the result; slices of K are summed by an
//! all-to-all exchange. The search goes over all splits that differ in what a tile gets, and takes the fastest that fits. The
//! terms are those of poplibs' planner (`lib/poplin/ConvPlan.cpp`, `lib/popops/ExchangeEstimator.cpp`).

use super::amp::{self, Amp, CHANNELS};
use super::step::{Superstep, most_temporary, parts_of};
use crate::arch::Bsp;
use crate::units::Dtype;

/// `count` products of m x k by k x n.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Product {
    /// Products.
    pub count: u64,
    /// Rows of the result.
    pub m: u64,
    /// Columns of the result.
    pub n: u64,
    /// Depth.
    pub k: u64,
    /// Of the operands and the result.
    pub dtype: Dtype,
    /// The first operand lies as the plan wants it: the tiles that share a slice hold equal parts of it.
    pub a_home: bool,
    /// The same of the second.
    pub b_home: bool,
    /// Bytes of a tile that the product may take while it runs.
    pub available: f64,
}

/// How a product is split.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Grid {
    /// Over the products.
    pub count: u64,
    /// Over the rows that stream.
    pub rows: u64,
    /// Over the outputs of the stationary operand.
    pub outputs: u64,
    /// Over the depth.
    pub depth: u64,
    /// Passes over the outputs, one after the other.
    pub output_passes: u64,
    /// Passes over the depth, in each of those.
    pub depth_passes: u64,
    /// The first operand is stationary, and the second streams.
    pub swapped: bool,
}

impl Grid {
    /// Tiles at work.
    pub fn tiles(&self) -> u64 {
        self.count * self.rows * self.outputs * self.depth
    }
}

/// A product as supersteps.
#[derive(Debug, Clone)]
pub struct GemmPlan {
    /// The splits.
    pub grid: Grid,
    /// The supersteps.
    pub steps: Vec<Superstep>,
    /// Cycles of all of them.
    pub cycles: f64,
}

/// Most passes over one axis.
const MOST_PASSES: u64 = 64;

/// The fastest plan that fits; if none does, the one that needs the least memory.
pub fn plan(chip: &Bsp, product: &Product) -> Option<GemmPlan> {
    let wide = chip.planner.wide_partials || product.dtype == Dtype::Fp32;
    let amp = Amp::new(chip, product.dtype, wide)?;
    let swap = Product { m: product.n, n: product.m, a_home: product.b_home, b_home: product.a_home, ..*product };
    let mut best: Option<(bool, f64, GemmPlan)> = None;
    for (swapped, product) in [(false, product), (true, &swap)] {
        let planner = Planner { chip, amp, product, wide, swapped };
        planner.search(&mut |found: GemmPlan| {
            let temporary = most_temporary(&found.steps);
            let fits = temporary <= product.available;
            let rank = if fits { found.cycles } else { temporary };
            let is_better =
                best.as_ref().is_none_or(|(known, of, _)| (fits && !known) || (fits == *known && rank < *of));
            if is_better {
                best = Some((fits, rank, found));
            }
            fits
        });
    }
    best.map(|(_, _, plan)| plan)
}

struct Planner<'a> {
    chip: &'a Bsp,
    amp: Amp,
    product: &'a Product,
    wide: bool,
    swapped: bool,
}

/// What a tile has of a product.
struct Slice {
    products: f64,
    rows: u64,
    input_groups: u64,
    output_groups: u64,
    /// Bytes of the streaming operand, of the stationary one, and of the sums, of one pass.
    a_bytes: f64,
    b_bytes: f64,
    sums: f64,
    sum_bytes: f64,
}

impl Planner<'_> {
    fn search(&self, take: &mut dyn FnMut(GemmPlan) -> bool) {
        let tiles = self.chip.tile.count;
        let (inputs, outputs) = (self.product.k.div_ceil(CHANNELS), self.product.n.div_ceil(self.amp.units));
        for count in splits(self.product.count, tiles) {
            for depth in splits(inputs, tiles / count) {
                for outputs in splits(outputs, tiles / (count * depth)) {
                    let rows = (tiles / (count * depth * outputs)).min(self.product.m);
                    let rows = self.product.m.div_ceil(self.product.m.div_ceil(rows));
                    let grid =
                        Grid { count, rows, outputs, depth, output_passes: 1, depth_passes: 1, swapped: self.swapped };
                    self.passes(grid, take);
                }
            }
        }
    }

    /// The fewest passes with which a split fits: over the depth, over the outputs, or both.
    fn passes(&self, grid: Grid, take: &mut dyn FnMut(GemmPlan) -> bool) {
        let mut passes = 1;
        while passes <= MOST_PASSES {
            let mut fits = false;
            let mut outputs = 1;
            while outputs <= passes {
                let grid = Grid { output_passes: outputs, depth_passes: passes / outputs, ..grid };
                fits |= take(self.plan_of(grid));
                outputs *= 2;
            }
            if fits {
                return;
            }
            passes *= 2;
        }
    }

    fn slice(&self, grid: &Grid) -> Slice {
        let Product { count, m, n, k, dtype, .. } = *self.product;
        let products = count.div_ceil(grid.count) as f64;
        let rows = m.div_ceil(grid.rows);
        let input_groups = k.div_ceil(CHANNELS).div_ceil(grid.depth).div_ceil(grid.depth_passes);
        let output_groups = n.div_ceil(self.amp.units).div_ceil(grid.outputs).div_ceil(grid.output_passes);
        let (inputs, outputs) = ((input_groups * CHANNELS).min(k), (output_groups * self.amp.units).min(n));
        let bytes = dtype.bytes() as f64;
        let sums = products * (rows * outputs) as f64;
        Slice {
            products,
            rows,
            input_groups,
            output_groups,
            a_bytes: products * (rows * inputs) as f64 * bytes,
            b_bytes: products * (inputs * outputs) as f64 * bytes,
            sums,
            sum_bytes: sums * if self.wide { 4.0 } else { bytes },
        }
    }

    fn plan_of(&self, grid: Grid) -> GemmPlan {
        let (chip, slice) = (self.chip, self.slice(&grid));
        let tiles = grid.tiles();
        let narrow = self.product.dtype.bytes() < 4;
        let casts = self.wide && narrow;
        // What is summed or cast later is temporary; else the sums are the result.
        let kept = if grid.depth > 1 || casts { slice.sum_bytes * grid.output_passes as f64 } else { 0.0 };
        let a = received(slice.a_bytes, slice.rows, grid.outputs, self.product.a_home);
        let outputs = (slice.output_groups * self.amp.units).min(self.product.n);
        let b = received(slice.b_bytes, outputs, grid.rows, self.product.b_home);
        let held = |bytes: f64, received: f64| if received > 0.0 { bytes } else { 0.0 };
        let temporary = held(slice.a_bytes, a) + held(slice.b_bytes, b) + kept;
        let mut steps = Vec::with_capacity(4);
        for zero in [true, false] {
            let each = if zero { 1 } else { grid.depth_passes - 1 };
            if each == 0 {
                continue;
            }
            let of = |zero| slice.products * self.amp.cycles(slice.rows, slice.input_groups, slice.output_groups, zero);
            let cycles = of(false);
            // Rows that stay on their tile come once for all passes over the outputs.
            let again = if grid.depth_passes == 1 { grid.output_passes } else { 1 };
            let times = each * grid.output_passes;
            let (received, wire) = self.wire(&grid, a / again as f64, b);
            let mut step =
                Superstep::compute(chip, "multiply", cycles, tiles).receives(chip, received, received * tiles as f64);
            step.wire_cycles = wire;
            step.times = times;
            steps.push(step.holds(temporary));
            if zero {
                let mut step = Superstep::compute(chip, "zero", of(true) - cycles, tiles);
                step.times = times;
                steps.push(step);
            }
        }
        if grid.depth > 1 {
            let all = slice.sum_bytes * grid.output_passes as f64;
            let depth = grid.depth as f64;
            let results = (slice.sums * grid.output_passes as f64 / depth).ceil();
            let cycles = amp::reduce_cycles(chip, results, depth, self.wide);
            // More than two senders: no tile receives while it sends.
            let received = all * (depth - 1.0) / depth;
            let mut step =
                Superstep::compute(chip, "reduce", cycles, tiles).receives(chip, received, received * tiles as f64);
            if grid.depth > 2 {
                step.wire_cycles = all / chip.exchange.bytes_per_cycle;
            }
            steps.push(step.holds(kept + received));
        } else if casts {
            let results = slice.sums * grid.output_passes as f64;
            steps.push(Superstep::compute(chip, "cast", amp::cast_cycles(chip, results), tiles).holds(kept));
        }
        let cycles = parts_of(chip, &steps).total();
        GemmPlan { grid, steps, cycles }
    }

    /// Bytes a tile receives and their cycles. Neighbours share one of the operands, the one that is more, at the double rate.
    fn wire(&self, grid: &Grid, a: f64, b: f64) -> (f64, f64) {
        let bus = self.chip.exchange.shared_bus_tiles;
        let rate = |sharers: u64| if bus > 1 && sharers.is_multiple_of(bus) { bus as f64 } else { 1.0 };
        let (of_a, of_b) = (a / rate(grid.outputs) + b, a + b / rate(grid.rows));
        (a + b, of_a.min(of_b) / self.chip.exchange.bytes_per_cycle)
    }
}

/// Bytes that a tile receives of a slice of `lines` lines that `sharers` tiles use, each of which holds whole lines of it.
fn received(bytes: f64, lines: u64, sharers: u64, home: bool) -> f64 {
    let held = if home { lines / sharers } else { 0 };
    bytes * (lines - held) as f64 / lines.max(1) as f64
}

/// Numbers of parts, at most `most`, that leave parts of different sizes.
pub(super) fn splits(extent: u64, most: u64) -> Vec<u64> {
    let extent = extent.max(1);
    let mut list = Vec::new();
    let mut parts = 1;
    while parts <= most.min(extent) {
        list.push(parts);
        let size = extent.div_ceil(parts);
        if size == 1 {
            break;
        }
        // The fewest parts that are smaller.
        parts = extent.div_ceil(size - 1);
    }
    if list.is_empty() { vec![1] } else { list }
}
