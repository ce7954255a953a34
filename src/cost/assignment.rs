//! Which lockstep group does which column tiles: longest processing time first (Graham 1969).

use std::collections::BinaryHeap;

use crate::program::PassWork;

use super::array::SystolicShape;
use super::tiles::Tile;

/// The tiles of a weight chunk by chunk: `chunks[c]` lists the tiles that exist in chunk `c`.
#[derive(Debug, Clone)]
pub struct TileTable {
    /// Tiles of each chunk.
    pub chunks: Vec<Vec<Tile>>,
    /// Whether tile `i` is the same columns in every chunk (the K axis is cut, not the columns).
    pub same_columns: bool,
}

/// Which bundle does which tiles: `bundles[chunk][bundle]` lists tile indices.
pub type Assignment = Vec<Vec<Vec<u32>>>;

/// Spreads tiles over `bundles` so that the busiest bundle has as little as possible: longest first, each to the
/// bundle where it adds least to the sum of squared loads (over chunks, when the same bundle keeps a column in all).
pub fn assign(table: &TileTable, bundles: u64, cycles: impl Fn(&Tile) -> u64) -> Assignment {
    let bundles = bundles as usize;
    if bundles == 1 {
        return table.chunks.iter().map(|tiles| vec![(0..tiles.len() as u32).collect()]).collect();
    }
    if table.same_columns && table.chunks.len() > 1 {
        return assign_over_chunks(table, bundles, cycles);
    }
    table
        .chunks
        .iter()
        .map(|tiles| {
            let costs: Vec<u64> = tiles.iter().map(&cycles).collect();
            let mut heap: BinaryHeap<std::cmp::Reverse<(u64, usize)>> =
                (0..bundles).map(|b| std::cmp::Reverse((0, b))).collect();
            let mut lists = vec![Vec::new(); bundles];
            for tile in longest_first(&costs) {
                if let Some(std::cmp::Reverse((load, b))) = heap.pop() {
                    lists[b].push(tile);
                    heap.push(std::cmp::Reverse((load + costs[tile as usize], b)));
                }
            }
            lists
        })
        .collect()
}

fn longest_first(costs: &[u64]) -> Vec<u32> {
    let mut order: Vec<u32> = (0..costs.len() as u32).collect();
    order.sort_by_key(|&t| (std::cmp::Reverse(costs[t as usize]), t));
    order
}

fn assign_over_chunks(table: &TileTable, bundles: usize, cycles: impl Fn(&Tile) -> u64) -> Assignment {
    let chunks = table.chunks.len();
    let count = table.chunks[0].len();
    let cost = |t: usize, c: usize| cycles(&table.chunks[c][t]);
    let totals: Vec<u64> = (0..count).map(|t| (0..chunks).map(|c| cost(t, c)).sum()).collect();
    let mut loads = vec![0u64; bundles * chunks];
    let mut sums = vec![0u64; bundles];
    let mut lists = vec![Vec::new(); bundles];
    let most = count.div_ceil(bundles);
    for tile in longest_first(&totals) {
        let t = tile as usize;
        let costs: Vec<u64> = (0..chunks).map(|c| cost(t, c)).collect();
        let best = (0..bundles)
            .filter(|&b| lists[b].len() < most + 1)
            .min_by_key(|&b| {
                let dot: u128 = (0..chunks).map(|c| u128::from(loads[b * chunks + c]) * u128::from(costs[c])).sum();
                (dot, sums[b], b)
            })
            .unwrap_or(0);
        for c in 0..chunks {
            loads[best * chunks + c] += costs[c];
        }
        sums[best] += totals[t];
        lists[best].push(tile);
    }
    vec![lists; chunks]
}

/// Work of each bundle in each chunk: `[chunk][bundle]`.
pub fn pass_work(shape: &SystolicShape, table: &TileTable, assignment: &Assignment, share: u64) -> Vec<Vec<PassWork>> {
    table
        .chunks
        .iter()
        .zip(assignment)
        .map(|(tiles, lists)| {
            lists
                .iter()
                .map(|list| {
                    let mut work = PassWork::default();
                    for tile in list.iter().map(|&t| &tiles[t as usize]) {
                        work.cycles += shape.cycles(tile);
                        work.tiles += 1;
                        work.a_flits += shape.activations(tile);
                        work.w_flits += shape.weights(tile, share);
                        work.columns += tile.columns;
                        work.stored += tile.stored;
                    }
                    work
                })
                .collect()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::tiles::{Cut, tiles};
    use super::*;
    use crate::sparsity::BlockMask;

    #[test]
    fn assignment_is_balanced_and_complete() {
        let mask = BlockMask::random(20480, 5120, (16, 16), 0.125, 3);
        let chunks: Vec<_> = (0..8)
            .map(|c| {
                tiles(
                    Some(&mask),
                    0..5120,
                    c * 2560..(c + 1) * 2560,
                    &Cut { width: 16, aligned: false, gather: None, looked_at_of: 1 },
                )
            })
            .collect();
        let table = TileTable { chunks, same_columns: true };
        let assignment = assign(&table, 27, |t| t.k);
        let mut seen: Vec<u32> = assignment[0].iter().flatten().copied().collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..320).collect::<Vec<_>>());
        let loads = |c: usize| -> Vec<u64> {
            assignment[c].iter().map(|l| l.iter().map(|&t| table.chunks[c][t as usize].k).sum()).collect()
        };
        let worst: u64 = (0..8).map(|c| loads(c).into_iter().max().unwrap()).sum();
        let mean: f64 = (0..8).map(|c| loads(c).into_iter().sum::<u64>() as f64 / 27.0).sum();
        assert!((worst as f64) < 1.12 * mean, "imbalance {}", worst as f64 / mean);
    }
}
