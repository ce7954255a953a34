//! Which lockstep group does which column tiles: longest processing time first (Graham 1969).

use rdusim_base::units::{index, index_u32};
use std::collections::BinaryHeap;

use rdusim_program::PassWork;

use super::array::SystolicShape;
use super::tiles::Tile;

/// The tiles of a weight column tile by column tile: `column_tiles[c]` lists the tiles that exist in column tile `c`.
#[derive(Debug, Clone)]
pub struct TileTable {
    /// Tiles of each column tile.
    pub column_tiles: Vec<Vec<Tile>>,
    /// So many column tiles in a row have the same columns as tile `i`, and the same group keeps them: those of slices of K, and of
    /// all depths of a panel.
    pub same_columns: usize,
}

/// Which lockstep group does which tiles: `groups[column_tile][group]` lists tile indices.
pub type Assignment = Vec<Vec<Vec<u32>>>;

/// Spreads tiles over `groups` so that the busiest lockstep group has as little as possible: longest first, each to the
/// lockstep group where it adds least to the sum of squared loads (over column tiles, when the same lockstep group keeps a column in all).
pub fn assign(table: &TileTable, groups: u64, cycles: impl Fn(&Tile) -> u64) -> Assignment {
    let groups = index(groups);
    if groups == 1 {
        return table.column_tiles.iter().map(|tiles| vec![(0..index_u32(tiles.len())).collect()]).collect();
    }
    if table.same_columns > 1 && table.column_tiles.len() > 1 {
        let of_columns = |tiles: &[Vec<Tile>]| assign_over_groups(tiles, groups, &cycles);
        return table.column_tiles.chunks(table.same_columns).flat_map(of_columns).collect();
    }
    table
        .column_tiles
        .iter()
        .map(|tiles| {
            let costs: Vec<u64> = tiles.iter().map(&cycles).collect();
            let mut heap: BinaryHeap<std::cmp::Reverse<(u64, usize)>> =
                (0..groups).map(|b| std::cmp::Reverse((0, b))).collect();
            let mut lists = vec![Vec::new(); groups];
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
    let mut order: Vec<u32> = (0..index_u32(costs.len())).collect();
    order.sort_by_key(|&t| (std::cmp::Reverse(costs[t as usize]), t));
    order
}

fn assign_over_groups(tiles: &[Vec<Tile>], groups: usize, cycles: impl Fn(&Tile) -> u64) -> Assignment {
    let column_tiles = tiles.len();
    let count = tiles[0].len();
    let cost = |t: usize, c: usize| cycles(&tiles[c][t]);
    let totals: Vec<u64> = (0..count).map(|t| (0..column_tiles).map(|c| cost(t, c)).sum()).collect();
    let mut loads = vec![0u64; groups * column_tiles];
    let mut sums = vec![0u64; groups];
    let mut lists = vec![Vec::new(); groups];
    let most = count.div_ceil(groups);
    for tile in longest_first(&totals) {
        let t = tile as usize;
        let costs: Vec<u64> = (0..column_tiles).map(|c| cost(t, c)).collect();
        let best = (0..groups)
            .filter(|&b| lists[b].len() < most + 1)
            .min_by_key(|&b| {
                let dot: u128 =
                    (0..column_tiles).map(|c| u128::from(loads[b * column_tiles + c]) * u128::from(costs[c])).sum();
                (dot, sums[b], b)
            })
            .unwrap_or(0);
        for c in 0..column_tiles {
            loads[best * column_tiles + c] += costs[c];
        }
        sums[best] += totals[t];
        lists[best].push(tile);
    }
    vec![lists; column_tiles]
}

/// Work of each lockstep group in each column tile: `[column_tile][group]`.
pub fn pass_work(
    shape: &SystolicShape,
    table: &TileTable,
    assignment: &Assignment,
    multicast_width: u64,
) -> Vec<Vec<PassWork>> {
    table
        .column_tiles
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
                        work.w_flits += shape.weights(tile, multicast_width);
                        work.columns += tile.columns;
                        work.stored += tile.stored;
                        work.zeros += shape.zeros(tile);
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
    use rdusim_graph::sparsity::BlockMask;

    #[test]
    fn assignment_is_balanced_and_complete() {
        let mask = BlockMask::random(20480, 5120, (16, 16), 0.125, 3);
        let column_tiles: Vec<_> = (0..8)
            .map(|c| {
                tiles(
                    Some(&mask),
                    0..5120,
                    c * 2560..(c + 1) * 2560,
                    &Cut { width: 16, aligned: false, gather: None, one_in: 1 },
                )
            })
            .collect();
        let table = TileTable { same_columns: column_tiles.len(), column_tiles };
        let assignment = assign(&table, 27, |t| t.k);
        let mut seen: Vec<u32> = assignment[0].iter().flatten().copied().collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..320).collect::<Vec<_>>());
        let loads = |c: usize| -> Vec<u64> {
            assignment[c].iter().map(|l| l.iter().map(|&t| table.column_tiles[c][t as usize].k).sum()).collect()
        };
        let worst: u64 = (0..8).map(|c| loads(c).into_iter().max().unwrap()).sum();
        let mean: f64 = (0..8).map(|c| loads(c).into_iter().sum::<u64>() as f64 / 27.0).sum();
        assert!((worst as f64) < 1.12 * mean, "imbalance {}", worst as f64 / mean);
    }
}
