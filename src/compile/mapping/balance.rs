//! How evenly the tiles of a weight can be dealt, from a few chunks: what the search asks before anything is dealt.

use crate::compile::params::PARAMS;
use crate::cost::{Tile, TileTable};

/// Tile costs of a few chunks, sorted, to estimate balance from.
#[derive(Debug)]
pub struct CostSample {
    chunks: Vec<ChunkCosts>,
    /// All chunks' cost over the sampled chunks' cost.
    scale: f64,
    /// Without a choice per chunk, imbalance adds up over the chunks.
    fixed_columns: bool,
}

/// Tile costs of one chunk.
#[derive(Debug)]
struct ChunkCosts {
    /// The costliest first.
    costs: Vec<u64>,
    sum: u64,
    /// Sum of the squares of what each differs from the mean.
    squares: f64,
}

impl ChunkCosts {
    fn new(mut costs: Vec<u64>) -> Self {
        costs.sort_unstable_by_key(|&c| std::cmp::Reverse(c));
        let sum = costs.iter().sum();
        let mean = sum as f64 / costs.len() as f64;
        let squares = costs.iter().map(|&c| (c as f64 - mean).powi(2)).sum();
        Self { costs, sum, squares }
    }

    /// The busiest of `bundles` when tiles are dealt back and forth.
    fn most(&self, bundles: usize, loads: &mut Vec<u64>) -> u64 {
        loads.clear();
        loads.resize(bundles, 0);
        for (round, row) in self.costs.chunks(bundles).enumerate() {
            if round.is_multiple_of(2) {
                loads.iter_mut().zip(row).for_each(|(load, cost)| *load += cost);
            } else {
                loads.iter_mut().rev().zip(row).for_each(|(load, cost)| *load += cost);
            }
        }
        loads.iter().copied().max().unwrap_or(0)
    }

    /// What the busiest bundle has at least.
    fn least(&self, bundles: usize) -> u64 {
        self.sum.div_ceil(bundles as u64).max(self.costs.first().copied().unwrap_or(0))
    }

    /// What columns kept for all chunks cost in one of them: about 1.2 standard deviations of a bundle's load (measured
    /// on block masks with the greedy of [`assign`]).
    fn fixed_column_spread(&self, bundles: usize) -> f64 {
        if self.costs.len() <= bundles {
            return 0.0;
        }
        1.2 * (self.squares / bundles as f64).sqrt()
    }
}

impl CostSample {
    /// Samples a table.
    pub fn new(table: &TileTable, cycles: impl Fn(&Tile) -> u64) -> Self {
        let count = table.chunks.len();
        let step = count.div_ceil(PARAMS.mapping.sampled_column_tiles).max(1);
        let total: u64 = table.chunks.iter().flatten().map(&cycles).sum();
        let chunks: Vec<ChunkCosts> = table
            .chunks
            .iter()
            .step_by(step)
            .map(|tiles| ChunkCosts::new(tiles.iter().map(&cycles).collect()))
            .collect();
        let sampled: u64 = chunks.iter().map(|chunk| chunk.sum).sum();
        Self { chunks, scale: total as f64 / sampled.max(1) as f64, fixed_columns: table.same_columns && count > 1 }
    }

    /// What [`assign`] may reach: busiest bundle of each chunk summed, and busiest over all chunks, when sorted tiles
    /// are dealt back and forth. The true assignment is at least as even over one chunk; over several with the same
    /// columns, part of the excess is what it was measured to leave.
    pub fn balance(&self, bundles: u64, loads: &mut Vec<u64>) -> (u64, u64) {
        let in_step = self.in_step(bundles, |chunk| chunk.most(bundles as usize, loads));
        let total: u64 = self.chunks.iter().map(|chunk| chunk.sum).sum();
        let free = (total as f64 / bundles as f64 * 1.005).min(in_step);
        ((in_step * self.scale) as u64, (free * self.scale) as u64)
    }

    /// What the first of [`Self::balance`] is at least, much sooner known.
    pub fn least_in_step(&self, bundles: u64) -> u64 {
        (self.in_step(bundles, |chunk| chunk.least(bundles as usize)) * self.scale) as u64
    }

    fn in_step(&self, bundles: u64, mut most: impl FnMut(&ChunkCosts) -> u64) -> f64 {
        let spread = |chunk: &ChunkCosts| {
            if self.fixed_columns { chunk.fixed_column_spread(bundles as usize) } else { 0.0 }
        };
        self.chunks.iter().map(|chunk| most(chunk) as f64 + spread(chunk)).sum()
    }
}
