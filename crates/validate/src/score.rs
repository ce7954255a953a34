//! How far a simulated series is from a published one.

/// Errors of a set.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Score {
    /// Median of the absolute relative errors.
    pub median_error: f64,
    /// Nine tenths of them are no larger.
    pub ninetieth_error: f64,
    /// The largest of them.
    pub worst_error: f64,
    /// Spearman's rank correlation of the two series; `None` below three points.
    pub rank_correlation: Option<f64>,
}

impl Score {
    /// Compares two series of one length; empty ones have no error.
    pub fn new(published: &[f64], simulated: &[f64]) -> Self {
        let errors: Vec<f64> = published.iter().zip(simulated).map(|(&p, &s)| relative_error(p, s).abs()).collect();
        Self {
            median_error: median(&errors),
            ninetieth_error: ninetieth(&errors),
            worst_error: errors.iter().copied().fold(0.0, f64::max),
            rank_correlation: (published.len() >= 3).then(|| spearman(published, simulated)),
        }
    }
}

/// Simulated over published, less one.
pub(super) fn relative_error(published: f64, simulated: f64) -> f64 {
    simulated / published - 1.0
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
    }
}

/// The smallest value that at least nine tenths do not exceed (nearest rank).
fn ninetieth(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get((sorted.len() * 9).div_ceil(10).saturating_sub(1)).copied().unwrap_or(0.0)
}

/// Pearson's correlation of the ranks, equal values at the mean of their ranks; 0 where a series is constant.
fn spearman(a: &[f64], b: &[f64]) -> f64 {
    let (a, b) = (ranks(a), ranks(b));
    let mean = f64::midpoint(a.len() as f64, 1.0);
    let covariance = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(x, y)| (x - mean) * (y - mean)).sum::<f64>();
    let spread = (covariance(&a, &a) * covariance(&b, &b)).sqrt();
    if spread > 0.0 { covariance(&a, &b) / spread } else { 0.0 }
}

fn ranks(values: &[f64]) -> Vec<f64> {
    let rank = |v: &f64| {
        let below = values.iter().filter(|w| w.total_cmp(v).is_lt()).count();
        let equal = values.iter().filter(|w| w.total_cmp(v).is_eq()).count();
        below as f64 + f64::midpoint(equal as f64, 1.0)
    };
    values.iter().map(rank).collect()
}

/// A point is erratic when both the simulation and its neighbours miss it by more than this, the same way.
const ERRATIC: f64 = 0.15;

/// Which points of a series, in order of `at`, are outliers: the published figure lies more than 15 % to one side of the
/// line between its two neighbours (both axes logarithmic), and more than 15 % to the same side of the simulated one.
/// The first and the last point have one neighbour and are never outliers.
pub fn outliers(at: &[f64], published: &[f64], simulated: &[f64]) -> Vec<bool> {
    let is_outlier = |i: usize| {
        if i == 0 || i + 1 >= published.len() {
            return false;
        }
        let part = (at[i] / at[i - 1]).ln() / (at[i + 1] / at[i - 1]).ln();
        let between = published[i - 1].ln() * (1.0 - part) + published[i + 1].ln() * part;
        let off_line = relative_error(published[i], between.exp());
        let off_simulated = relative_error(published[i], simulated[i]);
        off_line.abs() > ERRATIC && off_simulated.abs() > ERRATIC && off_line.signum() == off_simulated.signum()
    };
    (0..published.len()).map(is_outlier).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn near(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-12, "found {found}, expected {expected}");
    }

    #[test]
    fn errors_are_relative_and_absolute() {
        let score = Score::new(&[1.0, 2.0, 4.0, 10.0], &[1.1, 1.0, 4.0, 12.0]);
        // 0.1, 0.5, 0, 0.2
        near(score.median_error, 0.15);
        near(score.worst_error, 0.5);
        near(score.ninetieth_error, 0.5);
        let tenths: Vec<f64> = (1..=10).map(f64::from).collect();
        near(ninetieth(&tenths), 9.0);
        // Ranks 1 2 3 4 and 2 1 3 4: 1 - 6 * 2 / (4 * 15).
        near(score.rank_correlation.unwrap(), 0.8);
        assert_eq!(Score::new(&[1.0], &[2.0]).rank_correlation, None);
    }

    #[test]
    fn equal_values_share_a_rank() {
        assert_eq!(ranks(&[3.0, 1.0, 3.0]), [2.5, 1.0, 2.5]);
        near(spearman(&[1.0, 1.0, 1.0], &[1.0, 2.0, 3.0]), 0.0);
        near(spearman(&[1.0, 2.0, 3.0], &[9.0, 4.0, 1.0]), -1.0);
    }

    #[test]
    fn an_outlier_contradicts_its_neighbours_and_the_simulation() {
        let at = [1.0, 2.0, 4.0, 8.0];
        // The second point lies at 3 where its neighbours and the simulation say 2.
        let found = |published: &[f64], simulated: &[f64]| outliers(&at, published, simulated);
        assert_eq!(found(&[1.0, 3.0, 4.0, 8.0], &[1.0, 2.0, 4.0, 8.0]), [false, true, false, false]);
        // The simulation agrees with it: a step, not an error of the measurement.
        assert_eq!(found(&[1.0, 3.0, 4.0, 8.0], &[1.0, 3.0, 4.0, 8.0]), [false; 4]);
        // The neighbours agree with it: the simulation is wrong.
        assert_eq!(found(&[1.0, 2.0, 4.0, 8.0], &[1.0, 3.0, 4.0, 8.0]), [false; 4]);
        // The ends have one neighbour.
        assert_eq!(found(&[9.0, 2.0, 4.0, 8.0], &[1.0, 2.0, 4.0, 8.0]), [false; 4]);
        assert_eq!(outliers(&[1.0], &[1.0], &[2.0]), [false]);
    }
}
