//! Whole sets left out: how often the errors of the other sets bracket those of a set that took no part (cross-validation by
//! groups). With a handful of sets it is a diagnostic, no confidence level.

use super::run::{SetReport, SetRow};

/// A set, held against the others.
#[derive(Debug, Clone, PartialEq)]
pub struct LeftOut {
    /// The set.
    pub name: String,
    /// `vendor` or `ideal`.
    pub mapping: &'static str,
    /// From the 5 to the 95 % quantile of the simulated speed over the measured one, of all other sets, each with the same weight.
    pub band: [f64; 2],
    /// Points of the set inside the band.
    pub inside: usize,
    /// Its points.
    pub points: usize,
}

/// Leaves out each measured set in turn, under both mapping qualities; nothing of fewer than three sets.
pub fn leave_one_set_out(sets: &[SetReport]) -> Vec<LeftOut> {
    let measured: Vec<&SetReport> =
        sets.iter().filter(|set| set.plotted && set.ideal_score.is_some() && !set.rows.is_empty()).collect();
    if measured.len() < 3 {
        return Vec::new();
    }
    let mut list = Vec::new();
    for (mapping, of) in
        [("ideal", (|row| row.ideal) as fn(&SetRow) -> Option<f64>), ("vendor", |row| Some(row.simulated))]
    {
        let speeds: Vec<Vec<f64>> = measured.iter().map(|set| speeds(set, of)).collect();
        for (left_out, set) in measured.iter().enumerate() {
            let others = speeds.iter().enumerate().filter(|(at, _)| *at != left_out);
            let weighted =
                others.flat_map(|(_, speeds)| speeds.iter().map(|&speed| (speed, 1.0 / speeds.len() as f64)));
            let band = band(weighted.collect());
            let inside = speeds[left_out].iter().filter(|speed| (band[0]..=band[1]).contains(*speed)).count();
            list.push(LeftOut { name: set.name.clone(), mapping, band, inside, points: speeds[left_out].len() });
        }
    }
    list
}

/// Simulated over measured speed of every point.
fn speeds(set: &SetReport, of: fn(&SetRow) -> Option<f64>) -> Vec<f64> {
    let is_rate = set.quantity.ends_with("/s");
    let speed = |row: &SetRow| {
        let ratio = of(row)? / row.published;
        Some(if is_rate { ratio } else { 1.0 / ratio })
    };
    set.rows.iter().filter_map(speed).collect()
}

/// The values at which 5 and 95 % of the weight are reached.
fn band(mut weighted: Vec<(f64, f64)>) -> [f64; 2] {
    weighted.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    let all: f64 = weighted.iter().map(|(_, weight)| weight).sum();
    [0.05, 0.95].map(|quantile| {
        let mut sum = 0.0;
        let reaches = |&&(_, weight): &&(f64, f64)| {
            sum += weight;
            sum >= quantile * all
        };
        weighted.iter().find(reaches).or(weighted.last()).map_or(0.0, |(value, _)| *value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_weigh_the_same_however_many_points_they_have() {
        // One point of weight 1 and twenty of weight 1/20: the lone one reaches 50 % alone.
        let many = (0..20).map(|at| (2.0 + f64::from(at), 0.05));
        let band = band(many.chain([(1.0, 1.0)]).collect());
        assert_eq!(band.map(f64::to_bits), [1.0, 19.0].map(f64::to_bits));
    }
}
