//! What a mask looks like in numbers: density, histograms, and how evenly its work can be spread.

use std::collections::BinaryHeap;

use super::mask::BlockMask;

/// Bins of a histogram.
const BINS: u64 = 10;

/// A bin of a histogram: how many lines or blocks keep `from` to `to` elements, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Bin {
    /// Least kept elements.
    pub from: u64,
    /// Most kept elements.
    pub to: u64,
    /// Lines or blocks in the bin.
    pub count: u64,
}

/// Work of the busiest of some PCUs over the mean, with one block column of the mask as the unit of work.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Balance {
    /// PCUs that the block columns are spread over.
    pub pcus: u64,
    /// Busiest over mean when every PCU takes neighbouring block columns, as many as the others.
    pub neighbours: f64,
    /// The same when the longest goes first to whoever has least: the compiler's way.
    pub longest_first: f64,
}

/// Numbers of a mask.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Statistics {
    /// Share of the elements that is stored.
    pub density: f64,
    /// Elements a row keeps (along K): least and most.
    pub row_range: (u64, u64),
    /// Rows by the elements they keep.
    pub rows: Vec<Bin>,
    /// Elements a column keeps: least and most.
    pub column_range: (u64, u64),
    /// Columns by the elements they keep.
    pub columns: Vec<Bin>,
    /// Rows and columns of the blocks below.
    pub block: (u64, u64),
    /// Blocks with something in them.
    pub occupied_blocks: u64,
    /// Blocks by the elements they keep; the first bin is those that are empty.
    pub blocks: Vec<Bin>,
    /// How evenly the work can be spread.
    pub balance: Balance,
}

impl Statistics {
    /// Looks a mask over, in blocks of `block` elements, and spreads its work over `pcus`.
    pub fn new(mask: &BlockMask, block: (u64, u64), pcus: u64) -> Self {
        let rows = per_row(mask);
        let columns = per_column(mask);
        let blocks = per_block(mask, block);
        let range = |counts: &[(u64, u64)]| {
            let all = || counts.iter().map(|c| c.0);
            (all().min().unwrap_or(0), all().max().unwrap_or(0))
        };
        let most = block.0.min(mask.rows()) * block.1.min(mask.columns());
        let empty = blocks.iter().filter(|b| b.0 == 0).map(|b| b.1).sum();
        let mut block_bins = vec![Bin { from: 0, to: 0, count: empty }];
        let occupied: Vec<(u64, u64)> = blocks.iter().copied().filter(|b| b.0 > 0).collect();
        block_bins.extend(histogram(&occupied, 1, most));
        let (row_range, column_range) = (range(&rows), range(&columns));
        Self {
            density: mask.stored_elements() as f64 / (mask.rows() as f64 * mask.columns() as f64),
            row_range,
            rows: histogram(&rows, row_range.0, row_range.1),
            column_range,
            columns: histogram(&columns, column_range.0, column_range.1),
            block,
            occupied_blocks: occupied.iter().map(|b| b.1).sum(),
            blocks: block_bins,
            balance: balance(mask, pcus),
        }
    }
}

/// Counts with how often each occurs, into bins of equal width from `least` to `most`.
fn histogram(counts: &[(u64, u64)], least: u64, most: u64) -> Vec<Bin> {
    let width = (most.saturating_sub(least) + 1).div_ceil(BINS).max(1);
    let bins = (most.saturating_sub(least) + 1).div_ceil(width);
    let mut list: Vec<Bin> = (0..bins)
        .map(|i| Bin { from: least + i * width, to: (least + (i + 1) * width - 1).min(most), count: 0 })
        .collect();
    for &(value, times) in counts {
        list[((value - least) / width) as usize].count += times;
    }
    list
}

/// Elements kept in each row of blocks, and the rows it stands for.
fn per_row(mask: &BlockMask) -> Vec<(u64, u64)> {
    let mut counts = vec![0u64; mask.words_per_column() * 64];
    for n in 0..mask.n_blocks() {
        let width = mask.width_of(n);
        for (w, &word) in mask.column_words(n).iter().enumerate() {
            let mut left = word;
            while left != 0 {
                counts[w * 64 + left.trailing_zeros() as usize] += width;
                left &= left - 1;
            }
        }
    }
    let height = |k: u64| mask.block_rows().min(mask.rows() - k * mask.block_rows());
    counts[..mask.k_blocks() as usize].iter().enumerate().map(|(k, &count)| (count, height(k as u64))).collect()
}

/// Elements kept in each column of a block column, and the columns it stands for.
fn per_column(mask: &BlockMask) -> Vec<(u64, u64)> {
    let all = 0..mask.k_blocks();
    (0..mask.n_blocks()).map(|n| (mask.rows_in(mask.column_words(n), 0, all.clone()), mask.width_of(n))).collect()
}

/// Elements kept in each block of `block` elements, with how often each number occurs in a row of such blocks.
fn per_block(mask: &BlockMask, block: (u64, u64)) -> Vec<(u64, u64)> {
    let (height, width) = block;
    let k_blocks = mask.rows().div_ceil(height);
    let mut list = Vec::new();
    let mut row = vec![0u64; k_blocks as usize];
    for first in (0..mask.columns()).step_by(usize::try_from(width).unwrap_or(usize::MAX)) {
        let end = (first + width).min(mask.columns());
        row.fill(0);
        for n in first / mask.block_columns()..=(end - 1) / mask.block_columns() {
            let start = n * mask.block_columns();
            let columns = end.min(start + mask.block_columns()) - first.max(start);
            add_heights(mask, n, columns, height, &mut row);
        }
        list.extend(row.iter().map(|&count| (count, 1)));
    }
    list
}

/// Adds the kept elements of `columns` columns of block column `n` to blocks of `height` rows.
fn add_heights(mask: &BlockMask, n: u64, columns: u64, height: u64, row: &mut [u64]) {
    for (w, &word) in mask.column_words(n).iter().enumerate() {
        let mut left = word;
        while left != 0 {
            let k = w as u64 * 64 + u64::from(left.trailing_zeros());
            let (mut at, end) = (k * mask.block_rows(), ((k + 1) * mask.block_rows()).min(mask.rows()));
            while at < end {
                let to = end.min((at / height + 1) * height);
                row[(at / height) as usize] += (to - at) * columns;
                at = to;
            }
            left &= left - 1;
        }
    }
}

fn balance(mask: &BlockMask, pcus: u64) -> Balance {
    let loads: Vec<u64> = per_column(mask).into_iter().map(|(rows, columns)| rows * columns).collect();
    let busy = pcus.clamp(1, loads.len() as u64) as usize;
    let mean = loads.iter().sum::<u64>() as f64 / busy as f64;
    let over = |most: u64| if mean > 0.0 { most as f64 / mean } else { 1.0 };
    let part = |i: usize| i * loads.len() / busy..(i + 1) * loads.len() / busy;
    let neighbours = (0..busy).map(|i| loads[part(i)].iter().sum()).max().unwrap_or(0);
    let mut sorted = loads.clone();
    sorted.sort_unstable_by_key(|&load| std::cmp::Reverse(load));
    let mut heap: BinaryHeap<std::cmp::Reverse<u64>> = (0..busy).map(|_| std::cmp::Reverse(0)).collect();
    for load in sorted {
        if let Some(std::cmp::Reverse(least)) = heap.pop() {
            heap.push(std::cmp::Reverse(least + load));
        }
    }
    let longest = heap.into_iter().map(|std::cmp::Reverse(load)| load).max().unwrap_or(0);
    Balance { pcus: busy as u64, neighbours: over(neighbours), longest_first: over(longest) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sparsity::Pattern;
    use proptest::prelude::*;

    #[test]
    fn histograms_of_a_block_mask() {
        let mask = Pattern::Random { density: 0.25 }.draw(64, 64, (16, 16), 1);
        let seen = Statistics::new(&mask, (16, 16), 4);
        assert_eq!((seen.occupied_blocks, seen.blocks[0].count), (4, 12));
        assert_eq!(seen.blocks.last(), Some(&Bin { from: 235, to: 256, count: 4 }));
        assert!((seen.density - 0.25).abs() < 1e-12);
        assert_eq!(seen.rows.iter().map(|b| b.count).sum::<u64>(), 64);
        assert!(seen.balance.longest_first <= seen.balance.neighbours);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn nothing_is_lost(
            rows in 1u64..100, columns in 1u64..100, bh in 1u64..9, bw in 1u64..9,
            h in 1u64..20, w in 1u64..20, density in 0.1f64..=1.0, pcus in 1u64..50,
        ) {
            let mask = Pattern::Random { density }.draw(rows, columns, (bh, bw), 1);
            let sum = |counts: Vec<(u64, u64)>| counts.iter().map(|c| c.0 * c.1).sum::<u64>();
            prop_assert_eq!(sum(per_row(&mask)), mask.stored_elements());
            prop_assert_eq!(sum(per_column(&mask)), mask.stored_elements());
            prop_assert_eq!(sum(per_block(&mask, (h, w))), mask.stored_elements());
            let seen = Statistics::new(&mask, (h, w), pcus);
            prop_assert_eq!(seen.rows.iter().map(|b| b.count).sum::<u64>(), rows);
            prop_assert_eq!(seen.columns.iter().map(|b| b.count).sum::<u64>(), columns);
            let blocks = rows.div_ceil(h) * columns.div_ceil(w);
            prop_assert_eq!(seen.blocks.iter().map(|b| b.count).sum::<u64>(), blocks);
            prop_assert!(seen.balance.longest_first >= 1.0 - 1e-9 || mask.stored_elements() == 0);
        }
    }
}
