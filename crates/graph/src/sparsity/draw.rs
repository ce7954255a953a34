//! Exact numbers of random bits, many at a time.
//!
//! A mask of 10^8 elements is drawn in words of 64: each bit is set with a probability close to the wanted share, then
//! bits chosen at random are set or cleared until the count is exact. Both steps treat all positions in the same way, so every
//! choice of that many positions is equally likely.

use std::ops::Range;

use rand::{Rng, RngExt};

/// Bits of a probability: how close the first step comes to the wanted share.
const PRECISION: u32 = 24;

/// A row of bit fields, each of `bits` bits in whole words.
pub(super) struct Fields<'a> {
    /// The words of all fields.
    pub(super) words: &'a mut [u64],
    /// Words of a field.
    pub(super) stride: usize,
    /// Bits of a field; the rest of its last word stays zero.
    pub(super) bits: u64,
}

impl Fields<'_> {
    /// Sets exactly `wanted` bits of the fields `range`, which must all be zero.
    pub(super) fn fill(&mut self, range: Range<usize>, wanted: u64, rng: &mut impl Rng) {
        let total = range.len() as u64 * self.bits;
        if wanted == 0 || total == 0 {
            return;
        }
        let share = ((wanted as f64 / total as f64) * f64::from(1u32 << PRECISION)).round() as u32;
        let last = match self.bits % 64 {
            0 => !0,
            used => !0 >> (64 - used),
        };
        let mut count = 0u64;
        for field in range.clone() {
            let words = &mut self.words[field * self.stride..(field + 1) * self.stride];
            for word in words.iter_mut() {
                *word = word_of(share, rng);
            }
            if let Some(word) = words.last_mut() {
                *word &= last;
            }
            count += words.iter().map(|word| u64::from(word.count_ones())).sum::<u64>();
        }
        let set = count < wanted;
        let mut missing = count.abs_diff(wanted);
        while missing > 0 {
            let at = rng.random_range(0..total);
            let (field, bit) = (range.start + (at / self.bits) as usize, at % self.bits);
            let word = &mut self.words[field * self.stride + (bit / 64) as usize];
            let mask = 1 << (bit % 64);
            if (*word & mask == 0) == set {
                *word ^= mask;
                missing -= 1;
            }
        }
    }
}

/// 64 bits, each set with probability `share / 2^PRECISION`: from the lowest digit of the share up, a one halves the
/// distance to always, a zero the distance to never.
fn word_of(share: u32, rng: &mut impl Rng) -> u64 {
    if share >> PRECISION != 0 {
        return !0;
    }
    if share == 0 {
        return 0;
    }
    let mut word = 0;
    for digit in share.trailing_zeros()..PRECISION {
        let random = rng.next_u64();
        word = if share >> digit & 1 == 1 { word | random } else { word & random };
    }
    word
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_pcg::Pcg64Mcg;

    #[test]
    fn counts_are_exact_and_padding_stays_clear() {
        let mut rng = Pcg64Mcg::seed_from_u64(1);
        for (bits, fields, wanted) in [(70, 3, 100), (64, 5, 320), (1, 9, 4), (100, 2, 0), (130, 4, 519), (1000, 1, 1)]
        {
            let stride = (bits as usize).div_ceil(64);
            let mut words = vec![0; stride * fields];
            Fields { words: &mut words, stride, bits }.fill(0..fields, wanted, &mut rng);
            assert_eq!(words.iter().map(|w| u64::from(w.count_ones())).sum::<u64>(), wanted);
            let beyond = |(at, word): (usize, &u64)| {
                let used = (bits - (at % stride) as u64 * 64).min(64);
                used < 64 && word >> used != 0
            };
            assert!(!words.iter().enumerate().any(beyond), "{bits} x {fields}");
        }
    }

    #[test]
    fn positions_are_equally_likely() {
        let mut counts = [0u32; 40];
        let mut rng = Pcg64Mcg::seed_from_u64(2);
        for _ in 0..4000 {
            let mut words = [0u64; 4];
            Fields { words: &mut words, stride: 1, bits: 10 }.fill(0..4, 6, &mut rng);
            for (at, count) in counts.iter_mut().enumerate() {
                *count += (words[at / 10] >> (at % 10) & 1) as u32;
            }
        }
        // 600 expected, standard deviation 23.
        assert!(counts.iter().all(|count| (500..700).contains(count)), "{counts:?}");
    }
}
