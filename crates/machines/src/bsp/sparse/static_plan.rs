//! The static kernel: bands of columns with equal numbers of blocks, and runs of a band's blocks on each of its tiles.
//!
//! The dense matrix is split by its columns (`splits`), the sparse one by bands of its own; in each of both, tiles take
//! consecutive blocks, row by row, so that every tile of a band has as many. The search counts on an even pattern, as the
//! library's does; the plan that it finds is then counted block by block on the real one.

use std::sync::Arc;

use super::super::amp;
use super::super::step::{Superstep, TileLoad, most_temporary, parts_of};
use super::on_tile::{STATIC_ELEMENTS, static_blocks, static_elements_row, zeroing};
use super::{Kernel, SparsePlan, SparseProduct};
use rdusim_base::units::Dtype;
use rdusim_graph::arch::Bsp;

/// Bounds of the library's search.
const MOST_SPLITS: u64 = 32;
const MOST_BANDS: u64 = 128;

/// One choice of splits.
#[derive(Debug, Clone)]
struct Choice {
    splits: u64,
    /// First column of each band, and the end.
    bounds: Vec<usize>,
    /// Blocks of each band.
    blocks: Vec<u64>,
}

/// What the busiest tile has to do, exactly or on average.
#[derive(Debug, Clone, Default)]
struct Load {
    rows: f64,
    blocks: f64,
    /// Columns of the dense matrix that it needs, and those that pass by on the way to its band.
    needed: f64,
    passing: f64,
    /// Tiles with a sum for the same row.
    sources: f64,
    /// Cycles of the vertex.
    vertex: f64,
    mean_vertex: f64,
    tiles: u64,
    mean_blocks: f64,
    /// Every tile of one split: cycles of its vertex, its blocks, rows and needed columns.
    of_tiles: Vec<[f64; 4]>,
}

/// The fastest plan that fits, or the one that needs the least memory; `None` if nothing is stored.
pub fn static_plan(chip: &Bsp, product: &SparseProduct<'_>) -> Option<SparsePlan> {
    let planner = Static::new(chip, product);
    let choice = planner.chosen()?;
    let load = planner.real_load(&choice)?;
    let steps = planner.steps(&choice, &load);
    let bands = choice.blocks.len();
    Some(SparsePlan {
        cycles: parts_of(chip, &steps).total(),
        steps,
        tiles: load.tiles,
        shape: format!(
            "static sparse, blocks of {0} x {0}: {bands} bands x {1} splits of the dense columns, {2} blocks on the busiest tile",
            product.blocks.side, choice.splits, load.blocks
        ),
        imbalance: load.blocks / load.mean_blocks.max(1e-9),
        propagation_steps: 0,
        loads: planner.tile_loads(&choice, &load),
        loads_of: "multiply",
    })
}

/// A block by its row and its column.
pub(super) type Block = (u32, u32);

/// A band: its first column of blocks and the end, and the blocks of each of its tiles.
pub(super) type Band = (std::ops::Range<usize>, Vec<Vec<Block>>);

/// The plan tile by tile, as far as numbers need it.
#[derive(Debug, Clone)]
pub(super) struct StaticLayout {
    /// Splits of the dense columns.
    pub(super) splits: u64,
    /// Dense columns of a split.
    pub(super) columns: u64,
    /// The bands in order.
    pub(super) bands: Vec<Band>,
}

/// The layout of the plan that [`static_plan`] finds.
pub(super) fn static_layout(chip: &Bsp, product: &SparseProduct<'_>) -> Option<StaticLayout> {
    let planner = Static::new(chip, product);
    let choice = planner.chosen()?;
    let tiles = planner.tiles_of(&choice)?;
    let band = |(at, &of_band): (usize, &u64)| {
        let range = choice.bounds[at]..choice.bounds[at + 1];
        let within = |row: &'_ Vec<u32>| -> Vec<u32> {
            row.iter().copied().filter(|&column| range.contains(&(column as usize))).collect()
        };
        let rows = (0_u32..).zip(&product.blocks.rows);
        let blocks: Vec<(u32, u32)> =
            rows.flat_map(|(row, columns)| within(columns).into_iter().map(move |column| (row, column))).collect();
        let each = choice.blocks[at].div_ceil(of_band).max(1) as usize;
        (range.clone(), blocks.chunks(each).map(<[_]>::to_vec).collect())
    };
    let bands = tiles.iter().enumerate().map(band).collect();
    Some(StaticLayout { splits: choice.splits, columns: planner.columns(&choice), bands })
}

impl<'a> Static<'a> {
    fn new(chip: &'a Bsp, product: &'a SparseProduct<'a>) -> Self {
        Self {
            chip,
            product,
            kernel: Kernel { chip, block: product.blocks.side, single: product.dtype == Dtype::Fp32 },
            grain: chip.tile.vector_bytes / product.dtype.bytes().max(1),
        }
    }
}

impl Static<'_> {
    /// The fastest choice on an even pattern.
    fn chosen(&self) -> Option<Choice> {
        let (planner, product, chip) = (self, self.product, self.chip);
        if product.blocks.count == 0 {
            return None;
        }
        let mut best: Option<(bool, f64, Choice)> = None;
        let grains = product.columns.div_ceil(planner.grain);
        for bands in 1..=MOST_BANDS.min(product.blocks.columns) {
            let Some((bounds, blocks)) = planner.bands(bands) else { continue };
            for splits in 1..=MOST_SPLITS.min(grains) {
                let choice = Choice { splits, bounds: bounds.clone(), blocks: blocks.clone() };
                let Some(load) = planner.even_load(&choice) else { continue };
                let steps = planner.steps(&choice, &load);
                let (cycles, temporary) = (parts_of(chip, &steps).total(), most_temporary(&steps));
                let fits = temporary <= product.available;
                let rank = if fits { cycles } else { temporary };
                if best.as_ref().is_none_or(|(known, of, _)| (fits && !known) || (fits == *known && rank < *of)) {
                    best = Some((fits, rank, choice));
                }
            }
        }
        best.map(|(_, _, choice)| choice)
    }
}

struct Static<'a> {
    chip: &'a Bsp,
    product: &'a SparseProduct<'a>,
    kernel: Kernel<'a>,
    grain: u64,
}

impl Static<'_> {
    /// Bands of columns with about as many blocks each.
    fn bands(&self, bands: u64) -> Option<(Vec<usize>, Vec<u64>)> {
        let each = self.product.blocks.count.div_ceil(bands);
        let (mut bounds, mut blocks) = (vec![0], Vec::new());
        let mut in_band = 0;
        for (column, &stored) in self.product.blocks.of_column.iter().enumerate() {
            in_band += u64::from(stored);
            if in_band >= each {
                bounds.push(column + 1);
                blocks.push(std::mem::take(&mut in_band));
            }
        }
        if in_band > 0 {
            bounds.push(self.product.blocks.of_column.len());
            blocks.push(in_band);
        }
        (!blocks.is_empty()).then_some((bounds, blocks))
    }

    /// Tiles of each band in one split.
    fn tiles_of(&self, choice: &Choice) -> Option<Vec<u64>> {
        let tiles = self.chip.tile.count / choice.splits;
        if tiles < choice.blocks.len() as u64 {
            return None;
        }
        let all: u64 = choice.blocks.iter().sum();
        Some(choice.blocks.iter().map(|blocks| (blocks * tiles / all.max(1)).max(1).min(*blocks)).collect())
    }

    /// Dense columns of a split.
    fn columns(&self, choice: &Choice) -> u64 {
        self.product.columns.div_ceil(self.grain).div_ceil(choice.splits) * self.grain
    }

    /// Whether 16-bit offsets reach every row of a band's part of the dense matrix; blocks count in eights of rows.
    fn offsets_fit(&self, choice: &Choice) -> bool {
        let widest = choice.bounds.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0) as u64;
        let bytes = widest * self.product.blocks.side * self.columns(choice) * self.product.dtype.bytes();
        let unit = if self.product.blocks.side == 1 { 1 } else { 8 * self.product.blocks.side };
        bytes <= u64::from(u16::MAX) * unit
    }

    /// The busiest tile of an even pattern.
    fn even_load(&self, choice: &Choice) -> Option<Load> {
        let tiles = self.tiles_of(choice)?;
        let busiest = (0..tiles.len()).max_by_key(|&band| choice.blocks[band].div_ceil(tiles[band]))?;
        let blocks = choice.blocks[busiest].div_ceil(tiles[busiest]) as f64;
        let width = (choice.bounds[busiest + 1] - choice.bounds[busiest]) as f64;
        if !self.offsets_fit(choice) {
            return None;
        }
        let density = self.product.blocks.density();
        let some = |of: f64| 1.0 - (1.0 - density).powf(of);
        let rows = (self.product.blocks.rows.len() as f64 / tiles[busiest] as f64).ceil();
        let of_rows = some(width);
        let rows_stored = (of_rows * rows + (of_rows * (1.0 - of_rows) * rows).sqrt().ceil()).ceil().clamp(1.0, rows);
        let of_columns = some(rows);
        let needed = (of_columns * width + (of_columns * (1.0 - of_columns) * width).sqrt().ceil()).ceil().min(width);
        let bands = choice.blocks.len() as f64;
        let sources = (of_rows * bands + (of_rows * (1.0 - of_rows) * bands).sqrt().ceil()).ceil().max(1.0);
        let vertex = self.vertex_of_even(choice, rows_stored, blocks);
        Some(Load { rows: rows_stored, blocks, needed, passing: width, sources, vertex, ..Load::default() })
    }

    fn vertex_of_even(&self, choice: &Choice, rows: f64, blocks: f64) -> f64 {
        let (columns, threads) = (self.columns(choice) as f64, self.kernel.threads());
        if self.kernel.block > 1 {
            return static_blocks(&self.kernel, rows, blocks, (columns / threads).ceil());
        }
        let of_worker = (rows / threads).ceil();
        let row = static_elements_row(&self.kernel, (blocks / rows).ceil(), columns);
        (STATIC_ELEMENTS + of_worker * row) * threads
    }

    /// The busiest tile of the real pattern: every tile's rows, blocks and columns counted.
    fn real_load(&self, choice: &Choice) -> Option<Load> {
        let tiles = self.tiles_of(choice)?;
        let source = self.product.blocks;
        let mut load = Load::default();
        let mut sums_of_row = vec![0_u32; source.rows.len()];
        let mut seen = vec![0_u32; source.columns as usize];
        let (mut all_blocks, mut all_vertices, mut stamp) = (0_u64, 0.0, 0_u32);
        for (band, &of_band) in tiles.iter().enumerate() {
            let range = choice.bounds[band]..choice.bounds[band + 1];
            let each = choice.blocks[band].div_ceil(of_band).max(1);
            let mut tile = TileBlocks::default();
            stamp += 1;
            let mut close = |tile: &mut TileBlocks, stamp: &mut u32| {
                let vertex = self.vertex_of(choice, tile);
                load.tiles += 1;
                load.of_tiles.push([vertex, tile.blocks as f64, tile.rows.len() as f64, tile.columns as f64]);
                all_blocks += tile.blocks;
                all_vertices += vertex;
                load.vertex = load.vertex.max(vertex);
                load.rows = load.rows.max(tile.rows.len() as f64);
                load.blocks = load.blocks.max(tile.blocks as f64);
                load.needed = load.needed.max(tile.columns as f64);
                load.passing = load.passing.max(range.len() as f64);
                *tile = TileBlocks::default();
                *stamp += 1;
            };
            for (row, columns) in source.rows.iter().enumerate() {
                let first = columns.partition_point(|&column| (column as usize) < range.start);
                let mut is_open = false;
                for &column in columns[first..].iter().take_while(|&&column| (column as usize) < range.end) {
                    if !is_open {
                        tile.rows.push(0);
                        sums_of_row[row] += 1;
                        is_open = true;
                    }
                    tile.blocks += 1;
                    if let Some(last) = tile.rows.last_mut() {
                        *last += 1;
                    }
                    if std::mem::replace(&mut seen[column as usize], stamp) != stamp {
                        tile.columns += 1;
                    }
                    if tile.blocks == each {
                        close(&mut tile, &mut stamp);
                        is_open = false;
                    }
                }
            }
            if tile.blocks > 0 {
                close(&mut tile, &mut stamp);
            }
        }
        let stored = sums_of_row.iter().filter(|&&sums| sums > 0).count().max(1);
        load.sources = sums_of_row.iter().map(|&sums| f64::from(sums)).sum::<f64>() / stored as f64;
        load.mean_vertex = all_vertices / load.tiles.max(1) as f64;
        load.mean_blocks = all_blocks as f64 / load.tiles.max(1) as f64;
        load.tiles *= choice.splits;
        Some(load)
    }

    /// The vertex of one tile: blocks share the dense columns out to the workers, elements the rows.
    fn vertex_of(&self, choice: &Choice, tile: &TileBlocks) -> f64 {
        let (columns, threads) = (self.columns(choice) as f64, self.kernel.threads());
        if self.kernel.block > 1 {
            let of_worker = (columns / threads).ceil();
            return static_blocks(&self.kernel, tile.rows.len() as f64, tile.blocks as f64, of_worker);
        }
        let (mut slowest, mut worker, mut taken) = (0.0_f64, STATIC_ELEMENTS, 0_u64);
        for &elements in &tile.rows {
            worker += static_elements_row(&self.kernel, f64::from(elements), columns);
            taken += u64::from(elements);
            if taken * self.chip.tile.threads >= tile.blocks {
                slowest = slowest.max(std::mem::replace(&mut worker, STATIC_ELEMENTS));
                taken = 0;
            }
        }
        slowest.max(worker) * threads
    }

    /// What every tile does and holds while it multiplies, split by split.
    fn tile_loads(&self, choice: &Choice, load: &Load) -> Arc<[TileLoad]> {
        let (block, columns) = (self.product.blocks.side as f64, self.columns(choice) as f64);
        let bytes = self.product.dtype.bytes() as f64;
        let of = |[cycles, blocks, rows, needed]: [f64; 4]| TileLoad {
            cycles,
            bytes: (needed * block * columns + blocks * block * block + rows * block * columns) * bytes,
        };
        (0..choice.splits).flat_map(|_| load.of_tiles.iter().copied().map(of)).collect()
    }

    fn steps(&self, choice: &Choice, load: &Load) -> Vec<Superstep> {
        let (chip, block) = (self.chip, self.product.blocks.side as f64);
        let bytes = self.product.dtype.bytes() as f64;
        let columns = self.columns(choice) as f64;
        let rate = chip.exchange.bytes_per_cycle;
        let tiles = if load.tiles > 0 { load.tiles } else { chip.tile.count };
        let dense = load.needed * block * columns * bytes;
        let stored = load.blocks * block * block * bytes;
        let shared = if choice.splits > 1 { stored } else { 0.0 };
        let sums = load.rows * block * columns;
        let mut multiply = Superstep::compute(chip, "multiply", load.vertex, tiles);
        multiply.mean_cycles = load.mean_vertex * tiles as f64 / chip.tile.count as f64;
        let mut multiply = multiply.receives(chip, dense + shared, (dense + shared) * tiles as f64);
        // Rows of the dense matrix go to a whole band at once: a tile waits for those that it does not need, too.
        let passing = load.passing.max(load.needed) * block * columns * bytes;
        multiply.wire_cycles = passing / (rate * chip.exchange.shared_bus_tiles as f64) + shared / rate;
        let mut steps = vec![multiply.holds(dense + stored + sums * bytes)];
        if self.kernel.single && self.kernel.block > 4 {
            steps.push(Superstep::compute(chip, "zero", zeroing(&self.kernel, sums * 4.0), tiles));
        }
        if load.sources > 1.0 {
            let received = sums * bytes * (load.sources - 1.0) / load.sources;
            let cycles =
                amp::reduce_cycles(chip, (sums / load.sources).ceil(), load.sources.ceil(), self.kernel.single);
            let step =
                Superstep::compute(chip, "reduce", cycles, tiles).receives(chip, received, received * tiles as f64);
            steps.push(step.holds(sums * bytes + received));
        }
        // The library counts a cycle a byte to bring the result where it is wanted; the exchange is a part of it.
        let result = (self.product.blocks.rows.len() as f64 * block * self.product.columns as f64 * bytes
            / chip.tile.count as f64)
            .ceil();
        let inside = (result - result / rate).max(0.0);
        let step = Superstep::compute(chip, "arrange result", inside, chip.tile.count);
        steps.push(step.receives(chip, result, result * chip.tile.count as f64).holds(result));
        steps
    }
}

/// Blocks of one tile.
#[derive(Debug, Default)]
struct TileBlocks {
    /// Blocks of each of its rows.
    rows: Vec<u32>,
    blocks: u64,
    columns: u64,
}
