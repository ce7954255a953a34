//! A mask over blocks of a weight matrix.

use bitvec::prelude::{BitVec, Lsb0};

use super::format::Storage;

/// Which blocks of a `rows` x `columns` matrix are stored. Edge blocks may be ragged.
///
/// Bits lie column by column of blocks, each column padded to whole words, because a compute unit works through
/// the K blocks of a block column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockMask {
    rows: u64,
    columns: u64,
    block_rows: u64,
    block_columns: u64,
    words_per_column: usize,
    bits: BitVec<u64, Lsb0>,
    kept_blocks: u64,
    stored_elements: u64,
    /// The format that was fixed for the matrix, if one was, and what it takes.
    pub(super) storage: Option<Storage>,
    /// All of the matrix lies in memory, and a run reads what is kept; otherwise only that is stored.
    is_selection: bool,
}

impl BlockMask {
    /// Counts what is kept, after the words have been written.
    fn count(&mut self) {
        (self.kept_blocks, self.stored_elements) = (0, 0);
        for n in 0..self.n_blocks() {
            let words = self.column_words(n);
            let kept: u64 = words.iter().map(|word| u64::from(word.count_ones())).sum();
            let stored = self.rows_in(words, 0, 0..self.k_blocks()) * self.width_of(n);
            self.kept_blocks += kept;
            self.stored_elements += stored;
        }
    }

    /// The words of all block columns, one after the other, to be written by a pattern; [`Self::count`] follows.
    pub(super) fn write(&mut self, write: impl FnOnce(&mut [u64])) {
        write(self.bits.as_raw_mut_slice());
        self.count();
    }

    /// 64-bit words of a block column.
    pub fn words_per_column(&self) -> usize {
        self.words_per_column
    }

    /// Matrix columns of block column `n`.
    #[inline]
    pub fn width_of(&self, n: u64) -> u64 {
        self.block_columns.min(self.columns - n * self.block_columns)
    }

    /// A mask that keeps nothing.
    pub fn empty(rows: u64, columns: u64, block: (u64, u64)) -> Self {
        let (block_rows, block_columns) = block;
        let words_per_column = rows.div_ceil(block_rows).div_ceil(64) as usize;
        let words = words_per_column * columns.div_ceil(block_columns) as usize;
        let bits = BitVec::repeat(false, words * 64);
        Self {
            rows,
            columns,
            block_rows,
            block_columns,
            words_per_column,
            bits,
            kept_blocks: 0,
            stored_elements: 0,
            storage: None,
            is_selection: false,
        }
    }

    /// The mask as that of a selection, which takes `storage` to read.
    #[must_use]
    pub(super) fn selection(self, storage: Option<Storage>) -> Self {
        Self { storage, is_selection: true, ..self }
    }

    /// Whether the mask selects what a run reads of a matrix that is stored as a whole.
    pub fn is_selection(&self) -> bool {
        self.is_selection
    }

    /// Rows that are stored, if every column stores the same rows.
    pub fn stored_rows(&self) -> Option<u64> {
        let first = self.column_words(0);
        let is_same = (1..self.n_blocks()).all(|n| self.column_words(n) == first);
        is_same.then(|| self.rows_in(first, 0, 0..self.k_blocks()))
    }

    /// Columns that are stored, if each is stored whole or not at all.
    pub fn stored_columns(&self) -> Option<u64> {
        let mut columns = 0;
        for n in 0..self.n_blocks() {
            match self.column_words(n).iter().map(|word| u64::from(word.count_ones())).sum::<u64>() {
                0 => {}
                kept if kept == self.k_blocks() => columns += self.width_of(n),
                _ => return None,
            }
        }
        Some(columns)
    }

    /// The mask of the transposed matrix.
    #[must_use]
    pub fn transposed(&self) -> Self {
        let mut mask = Self::empty(self.columns, self.rows, (self.block_columns, self.block_rows));
        for n in 0..self.n_blocks() {
            for k in (0..self.k_blocks()).filter(|&k| self.is_kept(k, n)) {
                mask.keep(n, k);
            }
        }
        mask.is_selection = self.is_selection;
        mask
    }

    /// Marks block (`k`, `n`) as stored.
    pub fn keep(&mut self, k: u64, n: u64) {
        let at = n as usize * self.words_per_column * 64 + k as usize;
        if !self.bits.replace(at, true) {
            self.kept_blocks += 1;
            let height = self.block_rows.min(self.rows - k * self.block_rows);
            self.stored_elements += height * self.width_of(n);
        }
    }

    /// Matrix rows (K of the GEMM).
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Matrix columns (N of the GEMM).
    pub fn columns(&self) -> u64 {
        self.columns
    }

    /// Rows of a block.
    pub fn block_rows(&self) -> u64 {
        self.block_rows
    }

    /// Columns of a block.
    pub fn block_columns(&self) -> u64 {
        self.block_columns
    }

    /// Blocks along K.
    #[inline]
    pub fn k_blocks(&self) -> u64 {
        self.rows.div_ceil(self.block_rows)
    }

    /// Blocks along N.
    #[inline]
    pub fn n_blocks(&self) -> u64 {
        self.columns.div_ceil(self.block_columns)
    }

    /// The bits of block column `n`: bit k of word k/64 is block (k, n).
    #[inline]
    pub fn column_words(&self, n: u64) -> &[u64] {
        let start = n as usize * self.words_per_column;
        &self.bits.as_raw_slice()[start..start + self.words_per_column]
    }

    /// Whether block (`k`, `n`) is stored.
    #[inline]
    pub fn is_kept(&self, k: u64, n: u64) -> bool {
        self.column_words(n)[(k / 64) as usize] >> (k % 64) & 1 == 1
    }

    /// Matrix rows covered by the kept blocks among K blocks `range` of a bit column, of which `words` holds the
    /// words from `first_word` on.
    pub fn rows_in(&self, words: &[u64], first_word: u64, range: std::ops::Range<u64>) -> u64 {
        let counter = self.counter(range);
        let skipped = counter.words.start.saturating_sub(first_word as usize);
        counter.rows(|w| words[skipped + w])
    }

    /// Counts rows covered by the kept blocks among K blocks `range`.
    pub fn counter(&self, range: std::ops::Range<u64>) -> RowCounter {
        let ragged = self.k_blocks() * self.block_rows - self.rows;
        let is_last = range.contains(&(self.k_blocks() - 1));
        let words = (range.start / 64) as usize..range.end.div_ceil(64) as usize;
        RowCounter {
            words: if range.is_empty() { 0..0 } else { words },
            low: !0 << (range.start % 64),
            high: !0 >> (63 - range.end.saturating_sub(1) % 64),
            last: 1 << (range.end.saturating_sub(1) % 64),
            block_rows: self.block_rows,
            ragged: if is_last { ragged } else { 0 },
        }
    }

    /// Stored elements in columns `columns` and rows `rows`, which begins and ends at blocks.
    pub fn stored_in(&self, columns: std::ops::Range<u64>, rows: std::ops::Range<u64>) -> u64 {
        let blocks = rows.start / self.block_rows..rows.end.div_ceil(self.block_rows);
        if columns.is_empty() || blocks.is_empty() {
            return 0;
        }
        let in_block = |n: u64| {
            let width = columns.end.min((n + 1) * self.block_columns) - columns.start.max(n * self.block_columns);
            self.rows_in(self.column_words(n), 0, blocks.clone()) * width
        };
        (columns.start / self.block_columns..=(columns.end - 1) / self.block_columns).map(in_block).sum()
    }

    /// Kept blocks.
    pub fn kept_blocks(&self) -> u64 {
        self.kept_blocks
    }

    /// Elements in kept blocks (ragged edges counted as they are).
    pub fn stored_elements(&self) -> u64 {
        self.stored_elements
    }
}

/// Counts the matrix rows that kept blocks cover among a range of K blocks.
#[derive(Debug, Clone)]
pub struct RowCounter {
    /// Words of a bit column that hold the range.
    pub words: std::ops::Range<usize>,
    /// What the first and the last of them hold of it.
    low: u64,
    high: u64,
    /// The last block, ...
    last: u64,
    block_rows: u64,
    /// ... and the rows it lacks.
    ragged: u64,
}

impl RowCounter {
    /// Rows under a bit column of which `word` tells the words of [`Self::words`], from 0 on.
    pub fn rows(&self, word: impl Fn(usize) -> u64) -> u64 {
        let ones = |word: u64| u64::from(word.count_ones());
        let Some(end) = self.words.len().checked_sub(1) else { return 0 };
        let last = word(end) & self.high;
        let blocks = if end == 0 {
            ones(last & self.low)
        } else {
            ones(word(0) & self.low) + (1..end).map(|w| ones(word(w))).sum::<u64>() + ones(last)
        };
        blocks * self.block_rows - if last & self.last != 0 { self.ragged } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_mask_keeps_the_exact_count() {
        let mask = BlockMask::random(5120, 20480, (16, 16), 0.125, 7);
        assert_eq!(mask.kept_blocks(), 51_200);
        assert_eq!(mask.stored_elements(), 51_200 * 256);
        assert_eq!(mask.metadata_bytes(), 51_200);
    }

    #[test]
    fn ragged_edges_count_as_they_are() {
        let mask = BlockMask::random(20, 10, (16, 4), 1.0, 1);
        assert_eq!(mask.stored_elements(), 200);
        assert_eq!(mask.rows_in(mask.column_words(0), 0, 1..2), 4);
    }

    #[test]
    fn transposing_twice_is_nothing() {
        let mask = BlockMask::random(70, 30, (16, 4), 0.4, 3);
        let transposed = mask.transposed();
        assert_eq!((transposed.rows(), transposed.block_rows()), (30, 4));
        assert_eq!(transposed.stored_elements(), mask.stored_elements());
        assert!((0..5).all(|k| (0..8).all(|n| mask.is_kept(k, n) == transposed.is_kept(n, k))));
        assert_eq!(transposed.transposed(), mask);
    }

    #[test]
    fn rows_in_a_window() {
        // 68 blocks of two rows, of which the last has one.
        let mut mask = BlockMask::empty(135, 1, (2, 1));
        mask.write(|words| words.copy_from_slice(&[!0, 0b1011]));
        let rows = |range| mask.rows_in(mask.column_words(0), 0, range);
        assert_eq!([rows(60..66), rows(64..64), rows(66..68), rows(66..67), rows(0..68)], [12, 0, 1, 0, 133]);
        assert_eq!(mask.rows_in(&mask.column_words(0)[1..], 1, 64..68), 5);
    }

    #[test]
    fn same_seed_same_mask() {
        let a = BlockMask::random(256, 256, (16, 16), 0.3, 5);
        assert_eq!(a, BlockMask::random(256, 256, (16, 16), 0.3, 5));
        assert_ne!(a, BlockMask::random(256, 256, (16, 16), 0.3, 6));
    }
}
