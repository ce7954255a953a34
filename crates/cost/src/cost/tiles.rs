//! Column tiles of a weight, and what its mask leaves of each.

use rdusim_base::units::{index, saturating_u64};
use std::ops::Range;

use rdusim_graph::sparsity::BlockMask;
use rdusim_program::OutputTile;

use super::gather::{self, GatherPorts};

/// One column tile of a weight, as wide as a lockstep group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tile {
    /// First weight column.
    pub start: u64,
    /// Columns in it.
    pub columns: u64,
    /// k-steps executed: rows of the union of the blocks under it.
    pub k: u64,
    /// Cycles of its operands: one a k-step, or what gathering them takes; of a gradient that is sampled ([`sample`]) the
    /// mean over row passes.
    pub steps: u64,
    /// Weight elements stored under it.
    pub stored: u64,
}

impl Tile {
    /// Its columns alone.
    pub fn output(&self) -> OutputTile {
        OutputTile { start: self.start, columns: self.columns }
    }
}

/// How the columns of a weight are cut into tiles.
#[derive(Debug, Clone, Copy)]
pub struct Cut {
    /// Columns of a tile at most.
    pub width: u64,
    /// Tiles begin and end at block borders, or lie within a block.
    pub aligned: bool,
    /// The ports that K rows are gathered through; `None` to skip.
    pub gather: Option<GatherPorts>,
    /// Tiles of which only one is counted, for an estimate; the others are taken to be like it.
    pub one_in: usize,
}

/// Tiles of columns `columns` over K rows `k`.
pub fn tiles(mask: Option<&BlockMask>, columns: Range<u64>, k: Range<u64>, cut: &Cut) -> Vec<Tile> {
    let Cut { width, aligned, .. } = *cut;
    let most = (columns.end - columns.start) / width.max(1);
    let mut tiles: Vec<Tile> = Vec::with_capacity(index(most) + 1);
    let mut at = columns.start;
    let Some(mask) = mask else {
        let k = k.end - k.start;
        while at < columns.end {
            let end = columns.end.min(at + width);
            tiles.push(Tile { start: at, columns: end - at, k, steps: k, stored: (end - at) * k });
            at = end;
        }
        return tiles;
    };
    let block = mask.block_columns();
    let whole = (width / block).max(1) * block;
    let k_blocks = k.start / mask.block_rows()..k.end.div_ceil(mask.block_rows());
    // Only the words of this K range are counted.
    let counter = mask.counter(k_blocks.clone());
    let words = |n: u64| &mask.column_words(n)[counter.words.clone()];
    let rows_of = |n: u64| {
        let words = words(n);
        counter.rows(|w| words[w])
    };
    let mut union = Vec::new();
    // The block column at hand and rows stored in it: the next tile often begins in the same.
    let mut n = at / block;
    let mut rows = rows_of(n.min(mask.n_blocks() - 1));
    while at < columns.end {
        if at == (n + 1) * block {
            n += 1;
            rows = rows_of(n);
        }
        let mut end = columns.end.min(at + width);
        if aligned {
            end = end.min(n * block + whole);
        }
        if cut.one_in > 1
            && !tiles.len().is_multiple_of(cut.one_in)
            && let Some(&like) = tiles.last().filter(|tile| tile.columns == end - at)
        {
            tiles.push(Tile { start: at, ..like });
            if end < columns.end && end >= (n + 1) * block {
                n = end / block;
                rows = rows_of(n);
            }
            at = end;
            continue;
        }
        let mut stored = rows * (end.min((n + 1) * block) - at);
        let mut k = rows;
        if end > (n + 1) * block {
            union.clear();
            union.extend_from_slice(words(n));
            while end > (n + 1) * block {
                n += 1;
                rows = rows_of(n);
                stored += rows * (end.min((n + 1) * block) - n * block);
                union.iter_mut().zip(words(n)).for_each(|(sum, word)| *sum |= word);
            }
            k = counter.rows(|w| union[w]);
        }
        let steps = cut.gather.as_ref().map_or(k, |ports| gather::cycles(ports, mask, &(at..end), &k_blocks));
        tiles.push(Tile { start: at, columns: end - at, k, steps, stored });
        at = end;
    }
    tiles
}

/// Of the tiles of the gradient of a sparse weight, only those row passes are executed under which `mask` stores anything:
/// `rows` rows a pass, of all row slices in lockstep, taken as neighbours.
pub fn sample(tiles: &mut [Tile], mask: &BlockMask, rows: u64) {
    let groups = mask.rows().div_ceil(rows);
    // First and last pass of each block row.
    let passes_of: Vec<(u64, u64)> = (0..mask.rows().div_ceil(mask.block_rows()))
        .map(|block| {
            let start = block * mask.block_rows();
            (start / rows, ((start + mask.block_rows()).min(mask.rows()) - 1) / rows)
        })
        .collect();
    let mut stored = Vec::new();
    for tile in tiles.iter_mut().filter(|tile| tile.columns > 0) {
        let last = (tile.start + tile.columns - 1).min(mask.columns() - 1);
        stored.clear();
        for n in tile.start / mask.block_columns()..=last / mask.block_columns() {
            let words = mask.column_words(n);
            stored.resize(words.len(), 0);
            stored.iter_mut().zip(words).for_each(|(union, &word)| *union |= word);
        }
        let (mut passes, mut next) = (0, 0);
        for (word, &bits) in stored.iter().enumerate() {
            let mut left: u64 = bits;
            while left != 0 {
                let (first, last) = passes_of[word * 64 + left.trailing_zeros() as usize];
                // Blocks come in order, and so do their passes.
                passes += (last + 1).saturating_sub(first.max(next));
                next = next.max(last + 1);
                left &= left - 1;
            }
        }
        tile.steps = saturating_u64((u128::from(tile.k) * u128::from(passes)).div_ceil(u128::from(groups)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(width: u64, aligned: bool) -> Cut {
        Cut { width, aligned, gather: None, one_in: 1 }
    }

    #[test]
    fn tiles_that_straddle_blocks_execute_the_union_of_them() {
        // Block 16 on 12 columns: half of the packed tiles lie under one block and half under two, which at
        // density 1/8 store (1 + 1.875) / 2 = 1.4375 times the rows of one.
        let mask = BlockMask::random(5120, 4800, (16, 16), 0.125, 3);
        let work: u64 = tiles(Some(&mask), 0..4800, 0..5120, &cut(12, false)).iter().map(|t| t.k * 12).sum();
        let ratio = work as f64 / mask.stored_elements() as f64;
        assert!((ratio - 1.4375).abs() < 0.02, "{ratio}");
        let aligned: u64 = tiles(Some(&mask), 0..4800, 0..5120, &cut(12, true)).iter().map(|t| t.k * 12).sum();
        assert!((aligned as f64 / mask.stored_elements() as f64 - 1.5).abs() < 1e-9);
    }

    #[test]
    fn union_over_shared_columns() {
        // 1 - (1 - 1/8)^4 = 0.414, and 0.882 for 16 columns.
        let mask = BlockMask::random(5120, 5120, (16, 16), 0.125, 3);
        for (columns, expected) in [(4, 0.414), (16, 0.882)] {
            let list = tiles(Some(&mask), 0..5120, 0..5120, &cut(16 * columns, false));
            let k: u64 = list.iter().map(|t| t.k).sum();
            let density = k as f64 / (list.len() as f64 * 5120.0);
            assert!((density - expected).abs() < 0.01, "{density}");
        }
    }

    #[test]
    fn a_sampled_gradient_executes_what_it_stores() {
        // One block of 16 x 16 in four by four: a column tile within it, one pass of four.
        let mut mask = BlockMask::empty(64, 64, (16, 16));
        mask.keep(2, 1);
        let steps = |width, rows| {
            let mut list = tiles(None, 0..64, 0..100, &cut(width, false));
            sample(&mut list, &mask, rows);
            list.iter().map(|t| (t.k, t.steps)).collect::<Vec<_>>()
        };
        assert_eq!(steps(16, 16), [(100, 0), (100, 25), (100, 0), (100, 0)]);
        // Wider or higher tiles do more than is stored.
        assert_eq!(steps(32, 16), [(100, 25), (100, 0)]);
        assert_eq!(steps(32, 64), [(100, 100), (100, 0)]);
        assert_eq!(steps(12, 24)[1], (100, 34));
    }

    /// Those that are counted are counted as they are, wherever they come in the list; the others lie where they would.
    #[test]
    fn a_sample_counts_some_tiles_and_places_all() {
        let mask = BlockMask::random(256, 1024, (16, 16), 0.3, 5);
        for (width, aligned) in [(4, true), (6, true), (12, true), (12, false), (16, true), (24, false), (32, true)] {
            let all = tiles(Some(&mask), 8..1000, 0..256, &cut(width, aligned));
            let some = tiles(Some(&mask), 8..1000, 0..256, &Cut { one_in: 4, ..cut(width, aligned) });
            let places = |list: &[Tile]| list.iter().map(|tile| (tile.start, tile.columns)).collect::<Vec<_>>();
            assert_eq!(places(&all), places(&some), "tiles of {width}");
            let counted = |list: &[Tile]| list.iter().step_by(4).map(|tile| (tile.k, tile.stored)).collect::<Vec<_>>();
            assert_eq!(counted(&all), counted(&some), "tiles of {width}");
            // Tiles of 12 and 4 columns in turn are never like the one before.
            let differ = all.iter().zip(&some).any(|(all, some)| all.k != some.k);
            assert!(differ || 16 % width != 0, "tiles of {width} were all counted");
        }
    }

    #[test]
    fn tiles_keep_every_stored_element() {
        let mask = BlockMask::random(300, 200, (16, 8), 0.3, 9);
        for (width, aligned) in [(6, true), (6, false), (32, false)] {
            let stored: u64 = tiles(Some(&mask), 0..200, 0..300, &cut(width, aligned)).iter().map(|t| t.stored).sum();
            assert_eq!(stored, mask.stored_elements());
        }
    }
}
