//! Numbers and choices at random.

use rand::RngExt;
use rand_pcg::Pcg64Mcg;

/// A number from `least` to `most`, each power of two as likely as the next: small numbers come up as often as large ones.
pub(super) fn log_uniform(random: &mut Pcg64Mcg, least: u64, most: u64) -> u64 {
    if least >= most {
        return least;
    }
    let (low, high) = ((least as f64).ln(), (most as f64 + 1.0).ln());
    let drawn = (low + random.random::<f64>() * (high - low)).exp();
    (drawn as u64).clamp(least, most)
}

/// One of a list's values; `None` of an empty list.
pub(super) fn one_of<T: Copy>(random: &mut Pcg64Mcg, list: &[T]) -> Option<T> {
    (!list.is_empty()).then(|| list[random.random_range(0..list.len())])
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn numbers_are_within_their_range_and_reach_its_ends() {
        let mut random = Pcg64Mcg::seed_from_u64(1);
        let mut seen = [false; 9];
        for _ in 0..1_000 {
            let drawn = log_uniform(&mut random, 2, 8);
            assert!((2..=8).contains(&drawn));
            seen[drawn as usize] = true;
        }
        assert!(seen[2..].iter().all(|&seen| seen));
        assert_eq!(log_uniform(&mut random, 3, 3), 3);
    }
}
