//! How far a simulated series is from a published one.

/// Errors of a set.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Score {
    /// Median of the absolute relative errors.
    pub median_error: f64,
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

/// Pearson's correlation of the ranks, equal values at the mean of their ranks; 0 where a series is constant.
fn spearman(a: &[f64], b: &[f64]) -> f64 {
    let (a, b) = (ranks(a), ranks(b));
    let mean = (a.len() as f64 + 1.0) / 2.0;
    let covariance = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(x, y)| (x - mean) * (y - mean)).sum::<f64>();
    let spread = (covariance(&a, &a) * covariance(&b, &b)).sqrt();
    if spread > 0.0 { covariance(&a, &b) / spread } else { 0.0 }
}

fn ranks(values: &[f64]) -> Vec<f64> {
    let rank = |v: &f64| {
        let below = values.iter().filter(|w| w.total_cmp(v).is_lt()).count();
        let equal = values.iter().filter(|w| w.total_cmp(v).is_eq()).count();
        below as f64 + (equal as f64 + 1.0) / 2.0
    };
    values.iter().map(rank).collect()
}

/// Beyond this modified z-score a residual is an outlier (Iglewicz and Hoaglin, 1993).
const MOST_Z: f64 = 3.5;
/// The median absolute deviation of a normal distribution, in standard deviations.
const MAD_OF_NORMAL: f64 = 0.6745;
/// Residuals nearer to the median than this are no outliers, however near the others are.
const LEAST_RESIDUAL: f64 = 0.10;

/// Which points are outliers: the logarithm of simulated over published lies more than 3.5 modified z-scores, and more
/// than 10 %, from the median of the set. Sets of fewer than five points have none.
pub fn outliers(published: &[f64], simulated: &[f64]) -> Vec<bool> {
    let residuals: Vec<f64> = published.iter().zip(simulated).map(|(p, s)| (s / p).ln()).collect();
    let center = median(&residuals);
    let apart: Vec<f64> = residuals.iter().map(|r| (r - center).abs()).collect();
    let mad = median(&apart);
    let is_outlier = |&r: &f64| r > LEAST_RESIDUAL && MAD_OF_NORMAL * r > MOST_Z * mad;
    apart.iter().map(|r| residuals.len() >= 5 && is_outlier(r)).collect()
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
    fn an_outlier_is_far_from_the_others_and_far_in_itself() {
        let published = [1.0; 6];
        assert_eq!(
            outliers(&published, &[1.0, 1.01, 0.99, 1.02, 0.98, 1.5]),
            [false, false, false, false, false, true]
        );
        // The others agree to 0.1 %: 5 % is still no outlier.
        assert_eq!(outliers(&published, &[1.0, 1.001, 1.0, 0.999, 1.0, 1.05]), [false; 6]);
        // A common offset is a bad calibration, not six outliers.
        assert_eq!(outliers(&published, &[2.0, 2.01, 1.99, 2.02, 1.98, 2.0]), [false; 6]);
        assert_eq!(outliers(&[1.0, 1.0], &[1.0, 9.0]), [false; 2]);
    }
}
