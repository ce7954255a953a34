//! Which points of a study are compiled for the others, where points that differ in rates alone share their mappings.
//!
//! The choice follows from the whole study, never from the order in which its points run, so that a point has the same result on
//! any number of threads, in any shard, and after an interruption.

use crate::arch::AnyChip;

/// Points compiled for all that differ from them in rates alone, at most: beyond, the points between them gained nothing on the
/// shipped feed-forward blocks.
pub(super) const MOST_COMPILED: usize = 4;

/// How fast everything of a chip is that a configuration does not hold: logarithms of clock, launch, bandwidths and latencies.
/// Chips that are no grid have no configurations, and need none.
pub(super) fn rates(chip: &AnyChip) -> Vec<f64> {
    let Some(chip) = chip.rdu() else { return Vec::new() };
    let of_tiers = chip.memory.ids().flat_map(|tier| {
        let rate = chip.tier_rate(tier);
        [rate.bytes_per_cycle(), chip.tier_latency_cycles(tier) as f64]
    });
    let all = [chip.clock_hz as f64, chip.launch_cycles() as f64].into_iter().chain(of_tiers);
    all.map(|rate| rate.max(1e-9).ln()).collect()
}

/// The indices of at most `most` points that lie far apart: the first, and then always the one farthest from those there are
/// (the greedy 2-approximation of k-centre, Gonzalez 1985); of equals the first. Points at the same place count once.
pub(super) fn spread(points: &[Vec<f64>], most: usize) -> Vec<usize> {
    let apart = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum::<f64>();
    let mut nearest = vec![f64::INFINITY; points.len()];
    let mut chosen: Vec<usize> = Vec::new();
    let mut next = (!points.is_empty()).then_some(0);
    while let Some(at) = next.filter(|_| chosen.len() < most) {
        chosen.push(at);
        let mut farthest = 0.0;
        next = None;
        for (index, (nearest, point)) in nearest.iter_mut().zip(points).enumerate() {
            *nearest = nearest.min(apart(point, &points[at]));
            if *nearest > farthest {
                (farthest, next) = (*nearest, Some(index));
            }
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::spread;

    #[test]
    fn chosen_points_lie_far_apart() {
        let line: Vec<Vec<f64>> = (0..9).map(|at| vec![f64::from(at)]).collect();
        assert_eq!(spread(&line, 4), [0, 8, 4, 2]);
        assert_eq!(spread(&[vec![1.0], vec![1.0]], 4), [0]);
        assert_eq!(spread(&[], 4), [0usize; 0]);
    }
}
