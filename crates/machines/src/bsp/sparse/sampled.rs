//! Products of which only some blocks are wanted, such as the gradient of a sparse weight: a dense product for every stored block.
//!
//! Tiles take runs of the stored blocks, row by row, and splits of the depth; each receives the slices of both operands that its
//! blocks need, which runs of one row share. The units work on a block as on a small dense product; the library's own vertex for
//! it is not followed (assumed). A search on an even pattern finds the splits; the plan is counted on the real one.

use std::sync::Arc;

use super::super::amp::{self, Amp, CHANNELS};
use super::super::gemm::splits;
use super::super::step::{Superstep, most_temporary, parts_of};
use super::{SparsePlan, SparseProduct};
use rdusim_base::units::Dtype;
use rdusim_graph::arch::Bsp;

/// Most parts of the depth that follow one another.
const MOST_PASSES: u64 = 64;

/// What the busiest tile has: blocks, and the rows and columns of blocks that they lie in.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Load {
    blocks: f64,
    lines: f64,
    mean_blocks: f64,
}

/// The fastest plan that fits, or the one that needs the least memory; `columns` of the product are the depth of the sums. `None`
/// if nothing is stored or the tiles lack the data type.
pub fn sampled_plan(chip: &Bsp, product: &SparseProduct<'_>) -> Option<SparsePlan> {
    let wide = chip.planner.wide_partials || product.dtype == Dtype::Fp32;
    let sampled = Sampled { chip, product, amp: Amp::new(chip, product.dtype, wide)?, wide };
    if product.blocks.count == 0 {
        return None;
    }
    let mut best: Option<(bool, f64, (u64, u64))> = None;
    for depth in splits(product.columns.div_ceil(CHANNELS), chip.tile.count) {
        let load = sampled.even(depth);
        let mut passes = 1;
        while passes <= MOST_PASSES {
            let steps = sampled.steps(depth, passes, &load);
            let (cycles, temporary) = (parts_of(chip, &steps).total(), most_temporary(&steps));
            let fits = temporary <= product.available;
            let rank = if fits { cycles } else { temporary };
            if best.as_ref().is_none_or(|(known, of, _)| (fits && !known) || (fits == *known && rank < *of)) {
                best = Some((fits, rank, (depth, passes)));
            }
            if fits {
                break;
            }
            passes *= 2;
        }
    }
    let (_, _, (depth, mut passes)) = best?;
    let load = sampled.real(depth);
    let mut steps = sampled.steps(depth, passes, &load);
    // The real pattern may need more at one time than an even one.
    while most_temporary(&steps) > product.available && passes < MOST_PASSES {
        passes *= 2;
        steps = sampled.steps(depth, passes, &load);
    }
    let groups = product.blocks.count.div_ceil(load.blocks as u64);
    Some(SparsePlan {
        cycles: parts_of(chip, &steps).total(),
        steps,
        tiles: groups * depth,
        shape: format!(
            "sampled, blocks of {0} x {0}: {groups} runs of blocks x {depth} depth, {passes} passes over the depth",
            product.blocks.side
        ),
        imbalance: load.blocks / load.mean_blocks.max(1e-9),
        propagation_steps: 0,
        loads: Arc::default(),
        loads_of: "",
    })
}

struct Sampled<'a> {
    chip: &'a Bsp,
    product: &'a SparseProduct<'a>,
    amp: Amp,
    wide: bool,
}

impl Sampled<'_> {
    /// Blocks of a tile, if the depth is split so.
    fn each(&self, depth: u64) -> u64 {
        self.product.blocks.count.div_ceil((self.chip.tile.count / depth).max(1))
    }

    fn even(&self, depth: u64) -> Load {
        let (rows, columns) = self.product.blocks.shape();
        let each = self.each(depth) as f64;
        let of_row = (self.product.blocks.count as f64 / rows as f64).max(1.0);
        let lines = (each / of_row).ceil() + each.min(columns as f64);
        Load { blocks: each, lines, mean_blocks: each }
    }

    fn real(&self, depth: u64) -> Load {
        let each = self.each(depth);
        let blocks = self.product.blocks;
        let mut seen = vec![u64::MAX; blocks.columns as usize];
        let (mut at, mut lines, mut most) = (0_u64, 0_u64, 0_u64);
        for columns in &blocks.rows {
            let mut last = u64::MAX;
            for &column in columns {
                let tile = at / each;
                if at.is_multiple_of(each) {
                    lines = 0;
                }
                lines += u64::from(std::mem::replace(&mut last, tile) != tile);
                if let Some(seen) = seen.get_mut(column as usize) {
                    lines += u64::from(std::mem::replace(seen, tile) != tile);
                }
                most = most.max(lines);
                at += 1;
            }
        }
        let tiles = blocks.count.div_ceil(each);
        Load { blocks: each as f64, lines: most as f64, mean_blocks: blocks.count as f64 / tiles as f64 }
    }

    fn steps(&self, depth: u64, passes: u64, load: &Load) -> Vec<Superstep> {
        let (chip, side) = (self.chip, self.product.blocks.side);
        let bytes = self.product.dtype.bytes() as f64;
        let groups = self.product.columns.div_ceil(CHANNELS).div_ceil(depth).div_ceil(passes);
        let outputs = side.div_ceil(self.amp.units);
        let tiles = self.product.blocks.count.div_ceil(load.blocks as u64) * depth;
        let received = load.lines * (side * groups * CHANNELS) as f64 * bytes;
        let sums = load.blocks * (side * side) as f64;
        let sum_bytes = sums * if self.wide { 4.0 } else { bytes };
        let mut steps = Vec::with_capacity(3);
        for zero in [true, false] {
            let times = if zero { 1 } else { passes - 1 };
            if times == 0 {
                continue;
            }
            let cycles = load.blocks * self.amp.cycles(side, groups, outputs, zero);
            let step = Superstep::compute(chip, "multiply blocks", cycles, tiles);
            let mut step = step.receives(chip, received, received * tiles as f64).holds(received + sum_bytes);
            step.mean_cycles *= load.mean_blocks / load.blocks.max(1.0);
            step.times = times;
            steps.push(step);
        }
        if depth > 1 {
            let parts = depth as f64;
            let cycles = amp::reduce_cycles(chip, (sums / parts).ceil(), parts, self.wide);
            let received = sum_bytes * (parts - 1.0) / parts;
            let step = Superstep::compute(chip, "reduce", cycles, tiles);
            let mut step = step.receives(chip, received, received * tiles as f64).holds(sum_bytes + received);
            // More than two senders: no tile receives while it sends.
            if depth > 2 {
                step.wire_cycles = sum_bytes / chip.exchange.bytes_per_cycle;
            }
            steps.push(step);
        } else if self.wide && bytes < 4.0 {
            steps.push(Superstep::compute(chip, "cast", amp::cast_cycles(chip, sums), tiles).holds(sum_bytes));
        }
        steps
    }
}

#[cfg(test)]
mod tests {
    use super::super::Blocks;
    use super::*;
    use crate::bsp::tests::chip;
    use rdusim_graph::sparsity::BlockMask;

    fn plan(density: f64, available: f64) -> SparsePlan {
        let bow = chip("bow", &[]);
        let blocks = Blocks::of(&BlockMask::random(1024, 4096, (16, 16), density, 3));
        let product = SparseProduct { blocks: &blocks, columns: 1024, dtype: Dtype::Fp16, available };
        sampled_plan(&bow, &product).expect("stored blocks")
    }

    #[test]
    fn fewer_blocks_take_less_time() {
        let cycles: Vec<f64> = [0.5, 0.25, 0.125, 0.0625].map(|density| plan(density, 350e3).cycles).to_vec();
        assert!(cycles.windows(2).all(|pair| pair[1] < pair[0]), "{cycles:?}");
    }

    #[test]
    fn short_memory_means_passes_over_the_depth() {
        let (all, short) = (plan(0.25, 350e3), plan(0.25, 60e3));
        assert!(most_temporary(&short.steps) <= 60e3, "{}: {}", short.shape, most_temporary(&short.steps));
        assert!(short.cycles > all.cycles, "{}: {}; {}: {}", short.shape, short.cycles, all.shape, all.cycles);
    }

    #[test]
    fn a_tile_receives_the_lines_of_its_blocks() {
        // Two rows of two blocks in the same columns on one tile: two rows and two columns of 16 x 32 elements.
        let one = chip("bow", &["arch.tile.count=1"]);
        let mut mask = BlockMask::empty(64, 64, (16, 16));
        for (k, n) in [(0, 1), (2, 1), (0, 3), (2, 3)] {
            mask.keep(k, n);
        }
        let blocks = Blocks::of(&mask);
        let product = SparseProduct { blocks: &blocks, columns: 32, dtype: Dtype::Fp16, available: 1e6 };
        let plan = sampled_plan(&one, &product).expect("stored blocks");
        assert!((plan.steps[0].received_bytes - 4.0 * 16.0 * 32.0 * 2.0).abs() < 1e-9);
    }
}
