//! Contextual sparsity: the rows or columns of a weight that the active neurons of some tokens need.
//!
//! Behind a `ReLU` most neurons of a feed-forward block are zero for a token (Mirzadeh et al. 2023, arXiv:2310.04564), and a
//! predictor may know beforehand which (Liu et al. 2023, arXiv:2310.17157). Tokens that run together need the union of their
//! neurons. The union of more tokens holds that of fewer with the same seed.

use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::format::{Format, Storage};
use super::mask::BlockMask;
use super::storage::simple_storage;

/// Most neurons of a block: each takes a number of four bytes while its tokens are drawn.
pub const MOST_NEURONS: u64 = 1 << 24;
/// Elements of a row (or column) that make a block of the mask: the whole is kept or dropped, but sections may cut it.
const BLOCK: u64 = 64;

/// Which lines of a weight belong to a neuron.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NeuronAxis {
    /// Its rows: the weight reads the neurons, as the second of a feed-forward block does.
    Rows,
    /// Its columns: the weight makes the neurons, as the first does.
    Columns,
}

impl NeuronAxis {
    /// Neurons of a weight of `rows` x `columns`, and elements of each.
    pub fn of(self, rows: u64, columns: u64) -> (u64, u64) {
        match self {
            Self::Rows => (rows, columns),
            Self::Columns => (columns, rows),
        }
    }

    /// Rows and columns of a block of the mask.
    pub fn block(self, shape: (u64, u64)) -> (u64, u64) {
        let (_, length) = self.of(shape.0, shape.1);
        match self {
            Self::Rows => (1, BLOCK.min(length)),
            Self::Columns => (BLOCK.min(length), 1),
        }
    }
}

/// How many neurons are active, for how many tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ActiveNeurons {
    /// Share of the neurons that is active for one token: exactly round(density x neurons).
    pub density: f64,
    /// Tokens that run together.
    pub tokens: u64,
    /// Share of a token's active neurons that are the same for all tokens; the others are drawn for each token alone.
    pub shared: f64,
}

impl ActiveNeurons {
    /// Active neurons of one token, of `neurons`.
    pub fn of_a_token(&self, neurons: u64) -> u64 {
        ((self.density * neurons as f64).round() as u64).min(neurons)
    }

    /// The mask of a weight, of whose neurons it keeps those that are active for some token. It is stored as its kept rows (or
    /// columns, which then lie one behind the other) and an index of the neurons: a bit for each, or a number for each that is
    /// active, whichever is smaller; none if all are.
    pub fn mask(&self, axis: NeuronAxis, shape: (u64, u64), seed: u64) -> BlockMask {
        let (neurons, length) = axis.of(shape.0, shape.1);
        let mut index = BlockMask::empty(neurons, 1, (1, 1));
        self.draw(&mut index, &mut Pcg64Mcg::seed_from_u64(seed));
        let mut mask = BlockMask::empty(shape.0, shape.1, axis.block(shape));
        let stride = mask.words_per_column();
        let k_blocks = mask.k_blocks();
        mask.write(|words| match axis {
            NeuronAxis::Rows => {
                words.chunks_exact_mut(stride).for_each(|column| column.copy_from_slice(index.column_words(0)));
            }
            NeuronAxis::Columns => {
                for (_, column) in (0..).zip(words.chunks_exact_mut(stride)).filter(|(n, _)| index.is_kept(*n, 0)) {
                    (0..k_blocks).for_each(|k| column[(k / 64) as usize] |= 1 << (k % 64));
                }
            }
        });
        let formats: &[Format] =
            if index.kept_blocks() == neurons { &[Format::Dense] } else { &[Format::Bitmap, Format::Bsr] };
        let of_index = formats.iter().map(|&format| simple_storage(&index, format)).min_by_key(|s| s.metadata_bytes);
        let storage = of_index.map(|of_index| Storage { values: index.kept_blocks() * length, ..of_index });
        mask.selection(storage)
    }

    /// Marks the active neurons of all tokens: of each the common ones, and a draw without replacement from the rest (the first
    /// steps of a Fisher-Yates shuffle). Ends when every neuron is active, which takes about n ln n draws of n neurons (coupon
    /// collector), however many tokens follow.
    fn draw(&self, index: &mut BlockMask, rng: &mut impl Rng) {
        let neurons = index.rows();
        let active = self.of_a_token(neurons);
        let common = ((self.shared * active as f64).round() as u64).min(active);
        let mut rest: Vec<u32> = (0..u32::try_from(neurons).unwrap_or(u32::MAX)).collect();
        let mut common_ones = rest.clone();
        choose(&mut common_ones, common, rng, |neuron| index.keep(u64::from(neuron), 0));
        rest.retain(|&neuron| !index.is_kept(u64::from(neuron), 0));
        for _ in 0..self.tokens {
            if active == common || index.kept_blocks() == neurons {
                break;
            }
            choose(&mut rest, active - common, rng, |neuron| index.keep(u64::from(neuron), 0));
        }
    }
}

/// Takes `count` of a list at random; they stand first in it afterwards.
fn choose(list: &mut [u32], count: u64, rng: &mut impl Rng, mut take: impl FnMut(u32)) {
    let length = u32::try_from(list.len()).unwrap_or(u32::MAX);
    for at in 0..u32::try_from(count).unwrap_or(u32::MAX).min(length) {
        list.swap(at as usize, rng.random_range(at..length) as usize);
        take(list[at as usize]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FFN: (u64, u64) = (20_480, 5120);

    fn rows(density: f64, tokens: u64, shared: f64) -> BlockMask {
        ActiveNeurons { density, tokens, shared }.mask(NeuronAxis::Rows, FFN, 1)
    }

    #[test]
    fn one_token_has_its_exact_share_and_many_their_union() {
        for (density, active) in [(0.02, 410), (0.1, 2048), (0.3, 6144)] {
            assert_eq!(rows(density, 1, 0.0).stored_rows(), Some(active));
            for tokens in [2, 4, 16, 64] {
                // K (1 - (1 - p)^T), whose standard deviation is below sqrt(K) / 2 = 72.
                let expected = 20_480.0 * (1.0 - (1.0 - active as f64 / 20_480.0).powf(tokens as f64));
                let stored = rows(density, tokens, 0.0).stored_rows().unwrap() as f64;
                assert!((stored - expected).abs() < 300.0, "{density} {tokens}: {stored}, not {expected}");
            }
        }
        // Every neuron is active for one of so many tokens; a number of them so large takes no longer.
        assert_eq!(rows(0.1, 2048, 0.0).stored_rows(), Some(20_480));
        assert_eq!(rows(0.02, 1 << 40, 0.0).stored_rows(), Some(20_480));
        // All neurons common: as one token. Half of them: half of 2,048, and the union of the others in the rest.
        assert_eq!(rows(0.1, 2048, 1.0).stored_rows(), Some(2048));
        let half = rows(0.1, 4, 0.5).stored_rows().unwrap() as f64;
        let expected = 1024.0 + 19_456.0 * (1.0 - (1.0f64 - 1024.0 / 19_456.0).powi(4));
        assert!((half - expected).abs() < 150.0, "{half}, not {expected}");
    }

    #[test]
    fn stored_bytes_are_those_of_whole_rows_and_an_index_of_neurons() {
        // 410 rows of 10,240 B; two bytes a row and two offsets of four bytes are fewer than 20,480 bits.
        let mask = rows(0.02, 1, 0.0);
        assert_eq!((mask.storage().format, mask.stored_bytes(2)), (Format::Bsr, 410 * 10_240 + 410 * 2 + 8));
        let mask = rows(0.1, 1, 0.0);
        assert_eq!((mask.storage().format, mask.stored_bytes(2)), (Format::Bitmap, 2048 * 10_240 + 2560));
        assert_eq!(rows(0.1, 2048, 0.0).stored_bytes(2), 20_480 * 10_240);
        assert!(mask.is_selection() && mask.transposed().is_selection());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        /// Both weights of a block keep the same neurons, whole lines of them, more with more tokens.
        #[test]
        fn the_two_weights_agree(
            neurons in 1u64..400, width in 1u64..150, density in 0.0f64..=1.0, shared in 0.0f64..=1.0, tokens in 1u64..20,
            seed: u64,
        ) {
            let active = ActiveNeurons { density, tokens, shared };
            let second = active.mask(NeuronAxis::Rows, (neurons, width), seed);
            let first = active.mask(NeuronAxis::Columns, (width, neurons), seed);
            for neuron in 0..neurons {
                let kept = second.is_kept(neuron, 0);
                prop_assert!((0..second.n_blocks()).all(|n| second.is_kept(neuron, n) == kept));
                prop_assert!((0..first.k_blocks()).all(|k| first.is_kept(k, neuron) == kept));
            }
            prop_assert_eq!(second.stored_bytes(2), first.stored_bytes(2));
            prop_assert_eq!(second.stored_rows(), first.stored_columns());
            let fewer = ActiveNeurons { tokens: 1, ..active }.mask(NeuronAxis::Rows, (neurons, width), seed);
            prop_assert_eq!(fewer.stored_rows(), Some(active.of_a_token(neurons)));
            prop_assert!((0..neurons).all(|neuron| !fewer.is_kept(neuron, 0) || second.is_kept(neuron, 0)));
        }
    }
}
