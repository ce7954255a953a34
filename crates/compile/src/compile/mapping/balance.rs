//! How evenly the tiles of a weight can be dealt, from a few column tiles: what the search asks before anything is dealt.

use crate::compile::params::PARAMS;
use rdusim_cost::cost::{Tile, TileTable};

/// Tile costs of a few column tiles, sorted, to estimate balance from.
#[derive(Debug)]
pub(crate) struct CostSample {
    column_tiles: Vec<ColumnTileCosts>,
    /// All column tiles' cost over the sampled column tiles' cost.
    scale: f64,
    /// Without a choice per column tile, imbalance adds up over the column tiles.
    fixed_columns: bool,
}

/// Tile costs of one column tile.
#[derive(Debug)]
struct ColumnTileCosts {
    /// The costliest first.
    costs: Vec<u64>,
    sum: u64,
    /// Sum of the squares of what each differs from the mean.
    squares: f64,
}

impl ColumnTileCosts {
    fn new(mut costs: Vec<u64>) -> Self {
        costs.sort_unstable_by_key(|&c| std::cmp::Reverse(c));
        let sum = costs.iter().sum();
        let mean = sum as f64 / costs.len() as f64;
        let squares = costs.iter().map(|&c| (c as f64 - mean).powi(2)).sum();
        Self { costs, sum, squares }
    }

    /// The busiest of `groups` when tiles are dealt back and forth.
    fn most(&self, groups: usize, loads: &mut Vec<u64>) -> u64 {
        loads.clear();
        loads.resize(groups, 0);
        for (round, row) in self.costs.chunks(groups).enumerate() {
            if round.is_multiple_of(2) {
                loads.iter_mut().zip(row).for_each(|(load, cost)| *load += cost);
            } else {
                loads.iter_mut().rev().zip(row).for_each(|(load, cost)| *load += cost);
            }
        }
        loads.iter().copied().max().unwrap_or(0)
    }

    /// What the busiest lockstep group has at least.
    fn least(&self, groups: usize) -> u64 {
        self.sum.div_ceil(groups as u64).max(self.costs.first().copied().unwrap_or(0))
    }

    /// What columns kept for all column tiles cost in one of them: about 1.2 standard deviations of a lockstep group's load (measured
    /// on block masks with the greedy of [`assign`]).
    fn fixed_column_spread(&self, groups: usize) -> f64 {
        if self.costs.len() <= groups {
            return 0.0;
        }
        1.2 * (self.squares / groups as f64).sqrt()
    }
}

impl CostSample {
    /// Samples a table.
    pub(crate) fn new(table: &TileTable, cycles: impl Fn(&Tile) -> u64) -> Self {
        let count = table.column_tiles.len();
        let step = count.div_ceil(PARAMS.mapping.sampled_column_tiles).max(1);
        let total: u64 = table.column_tiles.iter().flatten().map(&cycles).sum();
        let column_tiles: Vec<ColumnTileCosts> = table
            .column_tiles
            .iter()
            .step_by(step)
            .map(|tiles| ColumnTileCosts::new(tiles.iter().map(&cycles).collect()))
            .collect();
        let sampled: u64 = column_tiles.iter().map(|column_tile| column_tile.sum).sum();
        Self {
            column_tiles,
            scale: total as f64 / sampled.max(1) as f64,
            fixed_columns: table.same_columns > 1 && count > 1,
        }
    }

    /// What [`assign`] may reach: busiest lockstep group of each column tile summed, and busiest over all column tiles, when sorted tiles
    /// are dealt back and forth. The true assignment is at least as even over one column tile; over several with the same
    /// columns, part of the excess is what it was measured to leave.
    pub(crate) fn balance(&self, groups: u64, loads: &mut Vec<u64>) -> (u64, u64) {
        let in_step = self.in_step(groups, |column_tile| column_tile.most(groups as usize, loads));
        let total: u64 = self.column_tiles.iter().map(|column_tile| column_tile.sum).sum();
        let free = (total as f64 / groups as f64 * 1.005).min(in_step);
        ((in_step * self.scale) as u64, (free * self.scale) as u64)
    }

    /// What the first of [`Self::balance`] is at least, much sooner known.
    pub(crate) fn least_in_step(&self, groups: u64) -> u64 {
        (self.in_step(groups, |column_tile| column_tile.least(groups as usize)) * self.scale) as u64
    }

    fn in_step(&self, groups: u64, mut most: impl FnMut(&ColumnTileCosts) -> u64) -> f64 {
        let spread = |column_tile: &ColumnTileCosts| {
            if self.fixed_columns { column_tile.fixed_column_spread(groups as usize) } else { 0.0 }
        };
        self.column_tiles.iter().map(|column_tile| most(column_tile) as f64 + spread(column_tile)).sum()
    }
}
