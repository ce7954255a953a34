//! The dynamic kernel: a grid of parts of the matrix, each in buckets that are passed round, and sums of 32 bits.
//!
//! The order of its terms is that of poplibs `lib/popsparse/FullyConnectedPlan.cpp`: the dense matrix and the buckets are
//! exchanged, every tile multiplies what belongs to its part, buckets with blocks of other parts are propagated, partial sums
//! of the splits of the depth are exchanged all to all and summed.

use std::sync::Arc;

use super::super::amp;
use super::super::gemm::splits;
use super::super::step::{Superstep, TileLoad, most_temporary, parts_of};
use super::buckets::{Spread, parts, spread};
use super::on_tile::{BucketWork, dynamic_blocks, dynamic_elements, zeroing};
use super::{Kernel, SparsePlan, SparseProduct};
use rdusim_base::units::Dtype;
use rdusim_graph::arch::Bsp;

/// Bytes of an offset in a bucket.
const OFFSET: f64 = 2.0;

/// Splits of the matrix' rows, of its columns, and of the dense matrix' columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Grid {
    rows: u64,
    depth: u64,
    columns: u64,
}

/// What the parts of a grid hold.
#[derive(Debug, Clone, Copy)]
struct Load {
    /// Blocks and rows with blocks of the fullest part.
    blocks: f64,
    rows: f64,
    mean_blocks: f64,
    spread: Spread,
}

/// The fastest plan that fits, or the one that needs the least memory; `None` if nothing is stored.
pub fn dynamic_plan(chip: &Bsp, product: &SparseProduct<'_>) -> Option<SparsePlan> {
    let planner = Dynamic::new(chip, product);
    let grid = planner.chosen()?;
    let load = planner.real_load(&grid);
    let steps = planner.steps(&grid, &load);
    Some(SparsePlan {
        cycles: parts_of(chip, &steps).total(),
        tiles: grid.rows * grid.depth * grid.columns,
        shape: format!(
            "dynamic sparse, blocks of {0} x {0}: {1} x {2} parts x {3} splits of the dense columns, {4} propagation steps",
            product.blocks.side, grid.rows, grid.depth, grid.columns, load.spread.steps
        ),
        imbalance: load.blocks / load.mean_blocks.max(1e-9),
        propagation_steps: load.spread.steps,
        loads: planner.tile_loads(&grid, &load, &steps),
        loads_of: MULTIPLY,
        steps,
    })
}

/// The step that multiplies.
const MULTIPLY: &str = "distribute and multiply";

/// The plan part by part, as far as numbers need it.
#[derive(Debug, Clone, Copy)]
pub(super) struct DynamicLayout {
    /// Parts of the rows, of the columns of blocks, and splits of the dense columns.
    pub(super) grid: (u64, u64, u64),
    /// Dense columns of a split.
    pub(super) columns: u64,
    /// Blocks that the buckets of a part have room for together.
    pub(super) room: u64,
    /// Bytes of a bucket.
    pub(super) bucket_bytes: u64,
    /// Steps in which buckets are passed on.
    pub(super) steps: u64,
}

/// The layout of the plan that [`dynamic_plan`] finds.
pub(super) fn dynamic_layout(chip: &Bsp, product: &SparseProduct<'_>) -> Option<DynamicLayout> {
    let planner = Dynamic::new(chip, product);
    let grid = planner.chosen()?;
    let load = planner.real_load(&grid);
    Some(DynamicLayout {
        grid: (grid.rows, grid.depth, grid.columns),
        columns: planner.columns(&grid),
        room: (planner.room(&grid) * grid.columns as f64) as u64,
        bucket_bytes: planner.bucket_bytes(&grid, &load) as u64,
        steps: load.spread.steps,
    })
}

impl<'a> Dynamic<'a> {
    fn new(chip: &'a Bsp, product: &'a SparseProduct<'a>) -> Self {
        let single = product.dtype == Dtype::Fp32;
        Self {
            chip,
            product,
            kernel: Kernel { chip, block: product.blocks.side, single },
            wide: single || chip.planner.dynamic_wide_partials,
        }
    }
}

impl Dynamic<'_> {
    /// The fastest grid on an even pattern.
    fn chosen(&self) -> Option<Grid> {
        let (planner, product, chip) = (self, self.product, self.chip);
        if product.blocks.count == 0 {
            return None;
        }
        let (block_rows, block_columns) = product.blocks.shape();
        let grains = product.columns.div_ceil(chip.tile.vector_bytes / product.dtype.bytes().max(1));
        let tiles = chip.tile.count;
        let mut best: Option<(bool, f64, Grid)> = None;
        for columns in splits(grains, tiles) {
            for depth in splits(block_columns, tiles / columns) {
                for rows in splits(block_rows, tiles / (columns * depth)) {
                    let grid = Grid { rows, depth, columns };
                    if !planner.offsets_fit(&grid) {
                        continue;
                    }
                    let load = planner.even_load(&grid);
                    let steps = planner.steps(&grid, &load);
                    let (cycles, temporary) = (parts_of(chip, &steps).total(), most_temporary(&steps));
                    let fits = temporary <= product.available;
                    let rank = if fits { cycles } else { temporary };
                    if best.as_ref().is_none_or(|(known, of, _)| (fits && !known) || (fits == *known && rank < *of)) {
                        best = Some((fits, rank, grid));
                    }
                }
            }
        }
        best.map(|(_, _, grid)| grid)
    }
}

struct Dynamic<'a> {
    chip: &'a Bsp,
    product: &'a SparseProduct<'a>,
    kernel: Kernel<'a>,
    wide: bool,
}

impl Dynamic<'_> {
    /// Whether 16-bit offsets reach every row of a part's slice of the dense matrix; blocks count in eights of rows.
    fn offsets_fit(&self, grid: &Grid) -> bool {
        let (side, bytes) = (self.product.blocks.side, self.product.dtype.bytes());
        let width = self.product.blocks.columns.div_ceil(grid.depth) * side;
        let unit = if side == 1 { 1 } else { 8 * side };
        width * self.columns(grid) * bytes <= u64::from(u16::MAX) * unit
    }

    /// Dense columns of a part, whole vectors.
    fn columns(&self, grid: &Grid) -> u64 {
        let grain = self.chip.tile.vector_bytes / self.product.dtype.bytes().max(1);
        self.product.columns.div_ceil(grain).div_ceil(grid.columns) * grain
    }

    fn even_load(&self, grid: &Grid) -> Load {
        let (rows, columns) = self.product.blocks.shape();
        let (height, width) = (rows.div_ceil(grid.rows) as f64, columns.div_ceil(grid.depth) as f64);
        let density = self.product.blocks.density();
        let rows = (height * (1.0 - (1.0 - density).powf(width))).ceil();
        let blocks = (height * width * density).ceil();
        Load { blocks, rows, mean_blocks: blocks, spread: Spread { steps: 0, groups: 1, lost: 0 } }
    }

    fn real_load(&self, grid: &Grid) -> Load {
        let counted = parts(self.product.blocks, grid.rows, grid.depth);
        let room = (self.room(grid) * grid.columns as f64) as u64;
        let mean_blocks = counted.blocks.iter().sum::<u64>() as f64 / counted.blocks.len().max(1) as f64;
        Load {
            blocks: counted.blocks.iter().copied().max().unwrap_or(0) as f64,
            rows: counted.most_rows as f64,
            mean_blocks,
            spread: spread(&counted.blocks, room),
        }
    }

    /// Blocks that a bucket has room for.
    fn room(&self, grid: &Grid) -> f64 {
        let even = self.product.blocks.count as f64 / (grid.rows * grid.depth * grid.columns) as f64;
        (even * (1.0 + self.chip.planner.bucket_oversize)).ceil()
    }

    /// Bytes of a bucket: room for values, an offset a block, and two a row.
    fn bucket_bytes(&self, grid: &Grid, load: &Load) -> f64 {
        let block = (self.product.blocks.side * self.product.blocks.side * self.product.dtype.bytes()) as f64;
        let rows = (load.rows / grid.columns as f64).ceil();
        self.room(grid) * (block + OFFSET) + rows * 2.0 * OFFSET
    }

    fn steps(&self, grid: &Grid, load: &Load) -> Vec<Superstep> {
        let (chip, side) = (self.chip, self.product.blocks.side as f64);
        let bytes = self.product.dtype.bytes() as f64;
        let columns = self.columns(grid) as f64;
        let (block_rows, block_columns) = self.product.blocks.shape();
        let (height, width) =
            (block_rows.div_ceil(grid.rows) as f64 * side, block_columns.div_ceil(grid.depth) as f64 * side);
        let rate = chip.exchange.bytes_per_cycle;
        let tiles = grid.rows * grid.depth * grid.columns;
        let bucket = self.bucket_bytes(grid, load);
        let bus = |sharers: u64| {
            let shared = chip.exchange.shared_bus_tiles;
            if shared > 1 && sharers.is_multiple_of(shared) { shared as f64 } else { 1.0 }
        };

        // A slice that one tile uses lies there.
        let dense = width * columns * bytes;
        let dense_in = if grid.rows > 1 { dense } else { 0.0 };
        let buckets_in = if grid.columns > 1 { bucket * grid.columns as f64 } else { 0.0 };
        let of_buckets = if grid.rows > 1 { rate } else { rate * bus(grid.columns) };
        let sums = height * columns;
        let sum_bytes = sums * if self.wide { 4.0 } else { bytes };
        let work = BucketWork {
            buckets: grid.columns as f64,
            own_buckets: grid.columns as f64,
            groups: load.spread.groups as f64,
            rows: load.rows,
            blocks: load.blocks,
            columns: if side > 1.0 { (columns / self.kernel.threads()).ceil() } else { columns },
        };
        let vertex = self.vertex(&work);
        let received = dense_in + buckets_in;
        let mut multiply = Superstep::compute(chip, MULTIPLY, vertex, tiles);
        multiply.mean_cycles *= load.mean_blocks / load.blocks.max(1.0);
        let mut multiply = multiply.receives(chip, received, received * tiles as f64);
        multiply.wire_cycles = dense_in / (rate * bus(grid.rows)) + buckets_in / of_buckets;
        let zero = Superstep::compute(chip, "zero", zeroing(&self.kernel, sum_bytes), tiles);
        let mut steps = vec![multiply.holds(dense_in + buckets_in + 2.0 * bucket + sum_bytes), zero];
        if load.spread.steps > 0 {
            let foreign = BucketWork { own_buckets: 0.0, blocks: 0.0, rows: 0.0, ..work };
            let all = bucket * grid.columns as f64;
            let step = Superstep::compute(chip, "propagate", self.vertex(&foreign), tiles);
            let mut step = step.receives(chip, all, all * tiles as f64).holds(dense_in + 2.0 * all + sum_bytes);
            step.times = load.spread.steps;
            steps.push(step);
        }
        let depth = grid.depth as f64;
        if grid.depth > 1 {
            let results = (sums / depth).ceil();
            let cycles = amp::reduce_cycles(chip, results, depth, self.wide);
            let received = sum_bytes * (depth - 1.0) / depth;
            let mut step =
                Superstep::compute(chip, "reduce", cycles, tiles).receives(chip, received, received * tiles as f64);
            // More than two senders: no tile receives while it sends.
            if grid.depth > 2 {
                step.wire_cycles = sum_bytes / rate;
            }
            steps.push(step.holds(sum_bytes + received));
        } else if self.wide && bytes < 4.0 {
            steps.push(Superstep::compute(chip, "cast", amp::cast_cycles(chip, sums), tiles).holds(sum_bytes));
        }
        steps
    }

    /// What every tile does and holds while it multiplies: of a part with fewer blocks, less.
    fn tile_loads(&self, grid: &Grid, load: &Load, steps: &[Superstep]) -> Arc<[TileLoad]> {
        let Some(multiply) = steps.first() else { return Arc::default() };
        let counted = parts(self.product.blocks, grid.rows, grid.depth);
        let of = |&blocks: &u64| {
            let share = blocks as f64 / load.blocks.max(1.0);
            let tile = TileLoad { cycles: multiply.busiest_cycles * share, bytes: multiply.temporary_bytes };
            std::iter::repeat_n(tile, grid.columns as usize)
        };
        counted.blocks.iter().flat_map(of).collect()
    }

    fn vertex(&self, work: &BucketWork) -> f64 {
        if self.kernel.block > 1 {
            dynamic_blocks(&self.kernel, work, self.wide && !self.kernel.single)
        } else {
            dynamic_elements(&self.kernel, work)
        }
    }
}
