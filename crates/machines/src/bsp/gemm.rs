//! Dense products over tiles: splits of M, N and K, and of time where a tile's memory is short.
//!
//! Every tile has a slice of each operand and makes partial sums of a slice of the result; slices of K are summed by an
//! all-to-all exchange. An operand that is stored in another format than it is multiplied in is expanded pass by pass, by the tiles
//! that receive it or by those that hold it, whichever is faster. The search goes over all splits that differ in what a tile gets, and takes the fastest that fits. The
//! terms are those of poplibs' planner (`lib/poplin/ConvPlan.cpp`, `lib/popops/ExchangeEstimator.cpp`).

use super::amp::{self, Amp, CHANNELS};
use super::step::{Superstep, TileLoad, parts_of};
use super::vertex;
use rdusim_base::units::Dtype;
use rdusim_graph::arch::Bsp;
use rdusim_graph::workload::EXPANSION_STEPS;

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
    /// Where the first operand is the windows of images, and where the second is: the pixels.
    pub windows: [Option<Windows>; 2],
    /// Bytes of an element of the first and of the second operand as it is stored, where that is another format than it is multiplied in.
    pub packed: [Option<f64>; 2],
}

/// Pixels under windows: what a tile receives of an operand whose rows are windows of images. Windows that lie side by side share most
/// of their pixels, and the units read them where they lie (poplibs `lib/poplin`, vertices for kernels of several lines).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Windows {
    /// Elements under at least one window.
    pub elements: f64,
    /// Elements that a run of windows needs beside its share of them, at most.
    pub halo: f64,
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
    /// An operand in another format is expanded by the tiles that hold it, before the exchange; else by those that receive it.
    pub expands_first: bool,
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
    /// Times that each element of an operand in another format is expanded, over all tiles.
    pub expansions: [f64; 2],
}

/// Most passes over one axis.
const MOST_PASSES: u64 = 64;

/// The fastest plan that fits; if none does, the one that needs the least memory.
pub fn plan(chip: &Bsp, product: &Product) -> Option<GemmPlan> {
    let wide = chip.planner.wide_partials || product.dtype == Dtype::Fp32;
    let amp = Amp::new(chip, product.dtype, wide)?;
    let swap = swapped(product);
    let mut best = Best::default();
    for (swapped, product) in [(false, product), (true, &swap)] {
        Planner { chip, amp, product, wide, swapped }.search(&mut best);
    }
    best.plan
}

/// The same product with the other operand stationary.
fn swapped(product: &Product) -> Product {
    let ([a, b], [first, second]) = (product.windows, product.packed);
    let homes = (product.b_home, product.a_home);
    let (windows, packed) = ([b, a], [second, first]);
    Product { m: product.n, n: product.m, a_home: homes.0, b_home: homes.1, windows, packed, ..*product }
}

/// The plan so far: the fastest that fits, else the one that needs the least memory.
#[derive(Default)]
struct Best {
    fits: bool,
    rank: f64,
    plan: Option<GemmPlan>,
}

/// What every tile of a split has of one run of its product: cycles, and bytes beside what lives longer.
pub(super) fn loads(chip: &Bsp, product: &Product, grid: &Grid) -> Vec<TileLoad> {
    let wide = chip.planner.wide_partials || product.dtype == Dtype::Fp32;
    let Some(amp) = Amp::new(chip, product.dtype, wide) else { return Vec::new() };
    let swap = swapped(product);
    let own = if grid.swapped { &swap } else { product };
    let planner = Planner { chip, amp, product: own, wide, swapped: grid.swapped };
    (0..grid.tiles()).map(|tile| planner.load(grid, tile)).collect()
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

/// What a tile has to do with an operand.
struct Operand {
    /// Bytes that it receives.
    received: f64,
    /// Bytes of its memory while it multiplies, beside what lives longer.
    held: f64,
    /// Elements that it expands.
    expanded: f64,
}

/// Bytes of a tile: what it receives of both operands, sums that are kept, all of that beside the operands, sums it receives, and the
/// most at a time.
struct Memory {
    a: f64,
    b: f64,
    kept: f64,
    temporary: f64,
    sums: f64,
    most: f64,
}

impl Planner<'_> {
    fn search(&self, best: &mut Best) {
        let tiles = self.chip.tile.count;
        let (inputs, outputs) = (self.product.k.div_ceil(CHANNELS), self.product.n.div_ceil(self.amp.units));
        for count in splits(self.product.count, tiles) {
            for depth in splits(inputs, tiles / count) {
                for outputs in splits(outputs, tiles / (count * depth)) {
                    let rows = (tiles / (count * depth * outputs)).min(self.product.m);
                    let rows = self.product.m.div_ceil(self.product.m.div_ceil(rows));
                    let whole =
                        Grid { count, rows, outputs, depth, output_passes: 1, depth_passes: 1, ..Grid::default() };
                    for &expands_first in self.expansions() {
                        self.passes(Grid { swapped: self.swapped, expands_first, ..whole }, best);
                    }
                }
            }
        }
    }

    /// Whether operands are expanded before the exchange: both ways where one is.
    fn expansions(&self) -> &'static [bool] {
        if self.product.packed == [None; 2] { &[false] } else { &[false, true] }
    }

    /// The fewest passes with which a split fits: over the depth, over the outputs, or both.
    fn passes(&self, grid: Grid, best: &mut Best) {
        let mut passes = 1;
        while passes <= MOST_PASSES {
            let mut fits = false;
            let mut outputs = 1;
            while outputs <= passes {
                let grid = Grid { output_passes: outputs, depth_passes: passes / outputs, ..grid };
                fits |= self.evaluate(grid, best);
                outputs *= 2;
            }
            if fits {
                return;
            }
            passes *= 2;
        }
    }

    /// Takes a split if it is better than the best so far; whether it fits. A plan is made only of one that may be better.
    fn evaluate(&self, grid: Grid, best: &mut Best) -> bool {
        let slice = self.slice(&grid);
        let memory = self.memory(&grid, &slice);
        let fits = memory.most <= self.product.available;
        // No plan takes less than its products.
        let passes = (grid.output_passes * grid.depth_passes) as f64;
        let products = slice.products * self.amp.cycles(slice.rows, slice.input_groups, slice.output_groups, false);
        let least = if fits { products * passes } else { memory.most };
        let may_be_better = best.plan.is_none() || (fits && !best.fits) || (fits == best.fits && least < best.rank);
        if !may_be_better {
            return fits;
        }
        let plan = self.plan_of(grid, &slice, &memory);
        let rank = if fits { plan.cycles } else { memory.most };
        if best.plan.is_none() || (fits && !best.fits) || rank < best.rank {
            *best = Best { fits, rank, plan: Some(plan) };
        }
        fits
    }

    /// Bytes of a tile that a split needs.
    fn memory(&self, grid: &Grid, slice: &Slice) -> Memory {
        let casts = self.wide && self.product.dtype.bytes() < 4;
        // What is summed or cast later is temporary; else the sums are the result.
        let kept = if grid.depth > 1 || casts { slice.sum_bytes * grid.output_passes as f64 } else { 0.0 };
        let [a, b] = self.operands(grid, slice);
        let temporary = a.held + b.held + kept;
        // Sums of the other parts of the depth, which a tile receives.
        let depth = grid.depth as f64;
        let sums =
            if grid.depth > 1 { slice.sum_bytes * grid.output_passes as f64 * (depth - 1.0) / depth } else { 0.0 };
        let most = if grid.depth > 1 { temporary.max(kept + sums) } else { temporary };
        Memory { a: a.received, b: b.received, kept, temporary, sums, most }
    }

    /// Both operands of a pass.
    fn operands(&self, grid: &Grid, slice: &Slice) -> [Operand; 2] {
        let Product { n, a_home, b_home, packed, dtype, .. } = *self.product;
        let of = |bytes: f64, (lines, sharers, home): (u64, u64, bool), packed: Option<f64>| {
            let received = received(bytes, lines, sharers, home);
            let Some(packed) = packed else {
                return Operand { received, held: if received > 0.0 { bytes } else { 0.0 }, expanded: 0.0 };
            };
            let (element, elements) = (dtype.bytes() as f64, bytes / dtype.bytes() as f64);
            if grid.expands_first {
                // Its share for all tiles of the slice, which is in its own copy where it holds a part of that.
                let share = elements * lines.div_ceil(sharers) as f64 / lines.max(1) as f64;
                let apart = if home { 0.0 } else { share * element };
                return Operand { received, held: bytes + apart, expanded: share };
            }
            let arrives = if received > 0.0 { elements * packed } else { 0.0 };
            Operand { received: received / element * packed, held: arrives + bytes, expanded: elements }
        };
        let outputs = (slice.output_groups * self.amp.units).min(n);
        [
            of(slice.a_bytes, (slice.rows, grid.outputs, a_home), packed[0]),
            of(slice.b_bytes, (outputs, grid.rows, b_home), packed[1]),
        ]
    }

    /// Times that each element of an operand in another format is expanded.
    fn expansions_of(&self, grid: &Grid) -> [f64; 2] {
        let [a, b] = self.product.packed;
        let sharers = |sharers: u64| if grid.expands_first { 1 } else { sharers };
        // Rows that stay on their tile are expanded once for all passes over the outputs.
        let again = if grid.depth_passes == 1 { 1 } else { grid.output_passes };
        let of_a = a.map_or(0, |_| sharers(grid.outputs) * again) as f64;
        let of_b = b.map_or(0, |_| sharers(grid.rows)) as f64;
        if grid.swapped { [of_b, of_a] } else { [of_a, of_b] }
    }

    /// One tile: the last of an axis may have less than the others, or nothing.
    fn load(&self, grid: &Grid, tile: u64) -> TileLoad {
        let Product { count, m, n, k, .. } = *self.product;
        let (rest, depth) = (tile / grid.depth, tile % grid.depth);
        let (rest, output) = (rest / grid.outputs, rest % grid.outputs);
        let (product, row) = (rest / grid.rows, rest % grid.rows);
        let part = |all: u64, parts: u64, at: u64| {
            let each = all.div_ceil(parts);
            all.saturating_sub(at * each).min(each)
        };
        let products = part(count, grid.count, product);
        let rows = part(m, grid.rows, row);
        let inputs = part(k.div_ceil(CHANNELS), grid.depth, depth).div_ceil(grid.depth_passes);
        let outputs = part(n.div_ceil(self.amp.units), grid.outputs, output).div_ceil(grid.output_passes);
        if products * rows * inputs * outputs == 0 {
            return TileLoad::default();
        }
        let slice = self.slice_of(products as f64, rows, inputs, outputs);
        let bytes = self.memory(grid, &slice).temporary;
        TileLoad { cycles: slice.products * self.amp.cycles(rows, inputs, outputs, false), bytes }
    }

    fn slice(&self, grid: &Grid) -> Slice {
        let Product { count, m, n, k, .. } = *self.product;
        let products = count.div_ceil(grid.count) as f64;
        let rows = m.div_ceil(grid.rows);
        let input_groups = k.div_ceil(CHANNELS).div_ceil(grid.depth).div_ceil(grid.depth_passes);
        let output_groups = n.div_ceil(self.amp.units).div_ceil(grid.outputs).div_ceil(grid.output_passes);
        self.slice_of(products, rows, input_groups, output_groups)
    }

    fn slice_of(&self, products: f64, rows: u64, input_groups: u64, output_groups: u64) -> Slice {
        let Product { n, k, dtype, .. } = *self.product;
        let (inputs, outputs) = ((input_groups * CHANNELS).min(k), (output_groups * self.amp.units).min(n));
        let bytes = dtype.bytes() as f64;
        let sums = products * (rows * outputs) as f64;
        let operand = |at: usize, lines: u64, all: u64| {
            let elements = (lines * inputs) as f64;
            let pixels = self.product.windows[at].map_or(elements, |windows| {
                let depth = inputs as f64 / k.max(1) as f64 / self.product.count.max(1) as f64;
                (windows.elements * lines as f64 / all.max(1) as f64 + windows.halo) * depth
            });
            products * elements.min(pixels) * bytes
        };
        Slice {
            products,
            rows,
            input_groups,
            output_groups,
            a_bytes: operand(0, rows, self.product.m),
            b_bytes: operand(1, outputs, n),
            sums,
            sum_bytes: sums * if self.wide { 4.0 } else { bytes },
        }
    }

    fn plan_of(&self, grid: Grid, slice: &Slice, memory: &Memory) -> GemmPlan {
        let chip = self.chip;
        let tiles = grid.tiles();
        let casts = self.wide && self.product.dtype.bytes() < 4;
        let Memory { a, b, kept, temporary, sums, .. } = *memory;
        let mut steps = Vec::with_capacity(4);
        // Rows that stay on their tile come once for all passes over the outputs.
        let again = if grid.depth_passes == 1 { grid.output_passes } else { 1 };
        let (received, wire) = self.wire(&grid, a / again as f64, b);
        let receives = |step: Superstep| {
            let step = step.receives(chip, received, received * tiles as f64);
            Superstep { wire_cycles: wire, ..step }
        };
        let [of_a, of_b] = self.operands(&grid, slice).map(|operand| operand.expanded);
        let expanded = of_a / again as f64 + of_b;
        if expanded > 0.0 {
            let cycles = vertex::vertex_cycles(chip, expanded, self.product.dtype.bytes(), EXPANSION_STEPS);
            let step = Superstep::compute(chip, "expand", cycles, tiles).holds(temporary);
            let times = grid.output_passes * grid.depth_passes;
            steps.push(Superstep { times, ..if grid.expands_first { step } else { receives(step) } });
        }
        // What a tile expands has come before.
        let has_come = expanded > 0.0 && !grid.expands_first;
        for zero in [true, false] {
            let each = if zero { 1 } else { grid.depth_passes - 1 };
            if each == 0 {
                continue;
            }
            let of = |zero| slice.products * self.amp.cycles(slice.rows, slice.input_groups, slice.output_groups, zero);
            let cycles = of(false);
            let times = each * grid.output_passes;
            let step = Superstep::compute(chip, "multiply", cycles, tiles).holds(temporary);
            steps.push(Superstep { times, ..if has_come { step } else { receives(step) } });
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
            let mut step = Superstep::compute(chip, "reduce", cycles, tiles).receives(chip, sums, sums * tiles as f64);
            if grid.depth > 2 {
                step.wire_cycles = all / chip.exchange.bytes_per_cycle;
            }
            steps.push(step.holds(kept + sums));
        } else if casts {
            let results = slice.sums * grid.output_passes as f64;
            steps.push(Superstep::compute(chip, "cast", amp::cast_cycles(chip, results), tiles).holds(kept));
        }
        let cycles = parts_of(chip, &steps).total();
        GemmPlan { grid, steps, cycles, expansions: self.expansions_of(&grid) }
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
