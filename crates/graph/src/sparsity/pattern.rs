//! Synthetic masks: how blocks are chosen, from a seed.

use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::draw::Fields;
use super::mask::BlockMask;

/// Blocks up to which masks are drawn one block at a time.
///
/// The two ways give different masks for a seed; the first is how masks of this size have always been drawn.
const ONE_BY_ONE: u64 = 1 << 22;

/// The longest group of an N:M pattern.
pub const MOST_GROUP: u64 = 64;

/// Which blocks of a matrix are kept. Densities are shares of the blocks: exactly `round(density x blocks)` are kept.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pattern {
    /// Any blocks, every choice equally likely.
    Random {
        /// Share of the blocks that is kept.
        density: f64,
    },
    /// Of every `m` neighbours along K in a column, `n` at random (of a shorter last group, all up to `n`).
    Nm {
        /// Kept in a group.
        n: u64,
        /// Length of a group, at most [`MOST_GROUP`].
        m: u64,
    },
    /// The blocks nearest to the diagonal, about the same number in every block column.
    Banded {
        /// Share of the blocks that is kept.
        density: f64,
    },
    /// Rows of blocks (along K) whose share follows a power law; which rows are full and which blocks of a row are kept
    /// is random.
    RowSkewed {
        /// Share of the blocks that is kept.
        density: f64,
        /// The r-th fullest row keeps in proportion to `r^-exponent`.
        exponent: f64,
    },
    /// As [`Pattern::RowSkewed`], by columns (along N).
    ColumnSkewed {
        /// Share of the blocks that is kept.
        density: f64,
        /// The r-th fullest column keeps in proportion to `r^-exponent`.
        exponent: f64,
    },
}

impl Pattern {
    /// The mask of a `rows` x `columns` matrix in blocks of `block` (rows, columns).
    pub fn draw(self, rows: u64, columns: u64, block: (u64, u64), seed: u64) -> BlockMask {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let mut mask = BlockMask::empty(rows, columns, block);
        let (k_blocks, n_blocks) = (mask.k_blocks(), mask.n_blocks());
        let stride = mask.words_per_column();
        let wanted = |density: f64| (density * (k_blocks * n_blocks) as f64).round() as u64;
        match self {
            Self::Random { density } if k_blocks * n_blocks <= ONE_BY_ONE => {
                one_by_one(&mut mask, wanted(density), &mut rng);
            }
            Self::Random { density } => mask.write(|words| {
                let mut fields = Fields { words, stride, bits: k_blocks };
                fields.fill(0..n_blocks as usize, wanted(density), &mut rng);
            }),
            Self::Nm { n, m } => {
                let groups = Groups::new(n, m);
                mask.write(|words| {
                    words.chunks_exact_mut(stride).for_each(|column| groups.fill(column, k_blocks, &mut rng));
                });
            }
            Self::Banded { density } => banded(&mut mask, wanted(density)),
            Self::ColumnSkewed { density, exponent } => {
                let counts = power_law(n_blocks, k_blocks, wanted(density), exponent, &mut rng);
                mask.write(|words| {
                    let mut fields = Fields { words, stride, bits: k_blocks };
                    for (n, &count) in counts.iter().enumerate() {
                        fields.fill(n..n + 1, count, &mut rng);
                    }
                });
            }
            Self::RowSkewed { density, exponent } => {
                let counts = power_law(k_blocks, n_blocks, wanted(density), exponent, &mut rng);
                mask.write(|words| by_rows(words, stride, n_blocks, &counts, &mut rng));
            }
        }
        mask
    }
}

impl BlockMask {
    /// Keeps exactly `round(density x blocks)` blocks, every such choice equally likely for a seed.
    pub fn random(rows: u64, columns: u64, block: (u64, u64), density: f64, seed: u64) -> Self {
        Pattern::Random { density }.draw(rows, columns, block, seed)
    }
}

/// Selection sampling (Knuth, TAOCP vol. 2, 3.4.2 S): exact count in one pass.
fn one_by_one(mask: &mut BlockMask, mut wanted: u64, rng: &mut impl Rng) {
    let (k_blocks, n_blocks) = (mask.k_blocks(), mask.n_blocks());
    let mut remaining = k_blocks * n_blocks;
    for n in 0..n_blocks {
        for k in 0..k_blocks {
            if rng.random_range(0..remaining) < wanted {
                mask.keep(k, n);
                wanted -= 1;
            }
            remaining -= 1;
        }
    }
}

/// Groups of an N:M pattern: all choices of a whole group, where they are few enough to be listed.
struct Groups {
    n: u64,
    m: u64,
    choices: Vec<u64>,
}

impl Groups {
    const MOST_CHOICES: usize = 1 << 13;

    fn new(n: u64, m: u64) -> Self {
        let mut choices = Vec::new();
        if m <= 16 {
            choices.extend((0..1u64 << m).filter(|choice| u64::from(choice.count_ones()) == n));
        }
        if choices.len() > Self::MOST_CHOICES {
            choices.clear();
        }
        Self { n, m, choices }
    }

    fn fill(&self, column: &mut [u64], bits: u64, rng: &mut impl Rng) {
        let mut at = 0;
        while at < bits {
            let length = self.m.min(bits - at);
            let choice = if length == self.m && !self.choices.is_empty() {
                // The high half of a product: even to one part in 2^32 over the number of choices.
                let index = (u64::from(rng.next_u32()) * self.choices.len() as u64) >> 32;
                self.choices[index as usize]
            } else {
                self.select(length, rng)
            };
            let (word, shift) = ((at / 64) as usize, at % 64);
            column[word] |= choice << shift;
            if shift + length > 64 {
                column[word + 1] |= choice >> (64 - shift);
            }
            at += length;
        }
    }

    fn select(&self, length: u64, rng: &mut impl Rng) -> u64 {
        let mut wanted = self.n.min(length);
        let mut choice = 0;
        for bit in 0..length {
            if rng.random_range(0..length - bit) < wanted {
                choice |= 1 << bit;
                wanted -= 1;
            }
        }
        choice
    }
}

/// A run of kept blocks in every block column, around the diagonal.
fn banded(mask: &mut BlockMask, wanted: u64) {
    let (k_blocks, n_blocks) = (mask.k_blocks(), mask.n_blocks());
    let before = |n: u64| (u128::from(wanted) * u128::from(n) / u128::from(n_blocks)) as u64;
    for n in 0..n_blocks {
        let count = before(n + 1) - before(n);
        // Twice the middle of the column's place on the diagonal, less half the run.
        let middle = (2 * n + 1) * k_blocks / (2 * n_blocks);
        let start = middle.saturating_sub(count / 2).min(k_blocks - count);
        for k in start..start + count {
            mask.keep(k, n);
        }
    }
}

/// How many of `wanted` blocks each of `lines` gets, at most `length` each, as a power law of a random rank.
fn power_law(lines: u64, length: u64, wanted: u64, exponent: f64, rng: &mut impl Rng) -> Vec<u64> {
    // In whole parts of 2^-30, so that the last digit of a power cannot matter.
    let weight = |rank: u64| ((rank as f64).powf(-exponent) * f64::from(1u32 << 30)).round().max(1.0);
    let weights: Vec<f64> = (1..=lines).map(weight).collect();
    let taken = |scale: f64| weights.iter().map(|w| (w * scale).min(length as f64)).sum::<f64>();
    let (mut low, mut high) = (0.0, length as f64);
    for _ in 0..64 {
        let middle = f64::midpoint(low, high);
        if taken(middle) < wanted as f64 {
            low = middle;
        } else {
            high = middle;
        }
    }
    let mut counts: Vec<u64> = weights.iter().map(|w| ((w * low) as u64).min(length)).collect();
    let mut missing = wanted - counts.iter().sum::<u64>().min(wanted);
    // What rounding left over goes to the fullest lines with room: one each, and again if need be.
    while missing > 0 {
        for count in counts.iter_mut().filter(|count| **count < length) {
            if missing == 0 {
                break;
            }
            *count += 1;
            missing -= 1;
        }
    }
    // Ranks fall on lines at random (Fisher-Yates).
    for last in (1..counts.len()).rev() {
        counts.swap(last, rng.random_range(0..=last));
    }
    counts
}

/// Writes exact counts by rows into words that lie by columns: 64 rows at a time, so that each word is met once.
fn by_rows(words: &mut [u64], stride: usize, columns: u64, counts: &[u64], rng: &mut impl Rng) {
    let row_stride = (columns as usize).div_ceil(64);
    let mut row = vec![0u64; row_stride];
    for (strip, counts) in counts.chunks(64).enumerate() {
        for (bit, &count) in counts.iter().enumerate() {
            row.fill(0);
            Fields { words: &mut row, stride: row_stride, bits: columns }.fill(0..1, count, rng);
            for (at, &word) in row.iter().enumerate() {
                let mut left = word;
                while left != 0 {
                    let column = at * 64 + left.trailing_zeros() as usize;
                    words[column * stride + strip] |= 1 << bit;
                    left &= left - 1;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SHAPE: (u64, u64) = (300, 210);

    fn drawn(pattern: Pattern, block: (u64, u64)) -> BlockMask {
        let mask = pattern.draw(SHAPE.0, SHAPE.1, block, 11);
        assert_eq!(mask, pattern.draw(SHAPE.0, SHAPE.1, block, 11));
        mask
    }

    #[test]
    fn a_large_mask_keeps_the_exact_count() {
        let mask = Pattern::Random { density: 0.3 }.draw(4099, 1100, (1, 1), 5);
        assert_eq!(mask.kept_blocks(), (0.3f64 * 4_508_900.0).round() as u64);
        assert_eq!(mask.stored_elements(), mask.kept_blocks());
    }

    #[test]
    fn groups_keep_n_of_m() {
        for (n, m) in [(2, 4), (1, 4), (4, 8), (3, 5), (20, 40), (7, 7)] {
            let mask = drawn(Pattern::Nm { n, m }, (1, 1));
            for column in 0..SHAPE.1 {
                for group in 0..SHAPE.0.div_ceil(m) {
                    let range = group * m..((group + 1) * m).min(SHAPE.0);
                    let length = range.end - range.start;
                    let kept = mask.rows_in(mask.column_words(column), 0, range);
                    assert_eq!(kept, n.min(length), "{n}:{m} in column {column}, group {group}");
                }
            }
        }
    }

    #[test]
    fn a_band_lies_on_the_diagonal() {
        let mask = drawn(Pattern::Banded { density: 0.1 }, (1, 1));
        assert_eq!(mask.kept_blocks(), 6300);
        assert!(mask.is_kept(0, 0) && mask.is_kept(150, 105) && mask.is_kept(299, 209));
        assert!(!mask.is_kept(299, 0) && !mask.is_kept(0, 209));
    }

    #[test]
    fn skew_concentrates_rows_or_columns() {
        let per_column = |mask: &BlockMask| -> Vec<u64> {
            (0..mask.n_blocks()).map(|n| mask.rows_in(mask.column_words(n), 0, 0..mask.k_blocks())).collect()
        };
        let rows = drawn(Pattern::RowSkewed { density: 0.1, exponent: 1.0 }, (1, 1));
        let columns = drawn(Pattern::ColumnSkewed { density: 0.1, exponent: 1.0 }, (1, 1));
        let flat = drawn(Pattern::ColumnSkewed { density: 0.1, exponent: 0.0 }, (1, 1));
        let most = |mask: &BlockMask| per_column(mask).into_iter().max().unwrap_or(0);
        assert_eq!((most(&flat), most(&columns)), (30, 300), "the first of a power law fills its column");
        assert!(most(&rows) < 60, "rows are skewed, columns are not");
        assert_eq!(rows.kept_blocks(), 6300);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn every_pattern_keeps_what_it_promises(
            rows in 1u64..200, columns in 1u64..200, bh in 1u64..20, bw in 1u64..20,
            density in 0.01f64..=1.0, exponent in 0.0f64..3.0, seed: u64,
        ) {
            let blocks = rows.div_ceil(bh) * columns.div_ceil(bw);
            let wanted = (density * blocks as f64).round() as u64;
            for pattern in [
                Pattern::Random { density },
                Pattern::Banded { density },
                Pattern::RowSkewed { density, exponent },
                Pattern::ColumnSkewed { density, exponent },
            ] {
                let mask = pattern.draw(rows, columns, (bh, bw), seed);
                prop_assert_eq!(mask.kept_blocks(), wanted, "{:?}", pattern);
                let counted: u64 = (0..mask.n_blocks())
                    .map(|n| mask.rows_in(mask.column_words(n), 0, 0..mask.k_blocks()) * mask.width_of(n))
                    .sum();
                prop_assert_eq!(mask.stored_elements(), counted);
            }
        }
    }
}
