//! Latin hypercube sampling (`McKay`, Beckman and Conover, 1979), axis by axis.

use rand::RngExt;
use rand_pcg::Pcg64Mcg;

/// Places on an axis from 0 to 1, in random order: one in each of `count` equal parts.
pub(super) fn places(rng: &mut Pcg64Mcg, count: u64) -> Vec<f64> {
    let mut parts: Vec<u64> = (0..count).collect();
    // Fisher and Yates' shuffle.
    for last in (1..parts.len()).rev() {
        parts.swap(last, rng.random_range(0..=last));
    }
    parts.into_iter().map(|part| (part as f64 + rng.random::<f64>()) / count as f64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn every_part_has_one_place() {
        let places = |seed| places(&mut Pcg64Mcg::seed_from_u64(seed), 20);
        let mut parts: Vec<usize> = places(7).iter().map(|place| (place * 20.0) as usize).collect();
        parts.sort_unstable();
        assert_eq!(parts, (0..20).collect::<Vec<_>>());
        assert_eq!(places(7), places(7));
    }
}
