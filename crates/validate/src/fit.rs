//! The fit of a chip's vendor limits to published sets.

use std::cell::Cell;

use super::published::PublishedSet;
use super::run::simulate_set;
use super::simplex::minimum;
use rdusim_base::diagnostics::Diagnostic;
use rdusim_graph::arch::{Chip, LargeTensors, Quality, Vendor};

/// Residuals (logarithms of simulated over published) count as squares below this and by their size above it, so that
/// an erratic point does not pull the rest.
const SOFT: f64 = 0.03;
/// Size of the first simplex, in logarithms of the parameters.
const FIRST_STEP: f64 = 0.2;
/// The fit ends when the costs of the simplex differ by less (standard deviation).
const TOLERANCE: f64 = 1e-4;

/// A fitted parameter.
#[derive(Debug, Clone, PartialEq)]
pub struct Fitted {
    /// Field of the chip file's `[vendor]` table.
    pub field: &'static str,
    /// What the search started from: the chip file's value.
    pub start: f64,
    /// What it found.
    pub value: f64,
}

/// What a fit found.
#[derive(Debug, Clone, PartialEq)]
pub struct FitReport {
    /// Names of the sets it was fitted to.
    pub sets: Vec<String>,
    /// The limits found.
    pub vendor: Vendor,
    /// Them by field.
    pub fitted: Vec<Fitted>,
    /// Mean softened residual at the start and at the end.
    pub cost: (f64, f64),
    /// Simulations of all sets.
    pub evaluations: u64,
}

/// Parameters as logarithms, in the order of [`Parameters::FIELDS`]; the last only where the chip has large tensors.
struct Parameters;

impl Parameters {
    const FIELDS: [&'static str; 4] = ["launch_us", "stream_gb_per_s", "pcus_per_operator", "large_tensor_gb_per_s"];

    fn of(vendor: &Vendor) -> Vec<f64> {
        let mut list = vec![vendor.launch_us, vendor.stream_bytes_per_s as f64 / 1e9, vendor.pcus_per_operator as f64];
        list.extend(vendor.large.map(|large| large.stream_bytes_per_s as f64 / 1e9));
        list
    }

    /// Limits of rounded parameters: whole PCUs, tenths of a microsecond and of a GB/s.
    fn vendor(parameters: &[f64], start: &Vendor) -> Vendor {
        let tenths = |value: f64| (value * 10.0).round().max(1.0) / 10.0;
        let rate = |value: f64| (tenths(value) * 1e9).round() as u64;
        let stream_bytes_per_s = rate(parameters[1]);
        Vendor {
            launch_us: tenths(parameters[0]),
            stream_bytes_per_s,
            large: start.large.zip(parameters.get(3)).map(|(large, &value)| LargeTensors {
                stream_bytes_per_s: rate(value).max(stream_bytes_per_s),
                ..large
            }),
            pcus_per_operator: (parameters[2].round() as u64).max(1),
            pcu_efficiency: start.pcu_efficiency,
        }
    }
}

struct Problem<'a> {
    sets: &'a [(PublishedSet, Chip)],
    evaluations: Cell<u64>,
}

impl Problem<'_> {
    /// The mean of the sets' mean softened residuals.
    fn cost_of(&self, vendor: &Vendor) -> Result<f64, Diagnostic> {
        self.evaluations.set(self.evaluations.get() + 1);
        let mut sum = 0.0;
        for (set, chip) in self.sets {
            let chip = Chip { vendor: Some(*vendor), ..chip.clone() }.under(Quality::Vendor)?;
            let simulated = simulate_set(set, &chip)?;
            let residuals = residuals(set, &simulated);
            sum += residuals.iter().map(|r| r.hypot(SOFT) - SOFT).sum::<f64>() / residuals.len() as f64;
        }
        Ok(sum / self.sets.len() as f64)
    }
}

/// Logarithms of simulated over published: of every point, or of a linear set of its slope alone, because what the fixed
/// part of those runs held is not known.
fn residuals(set: &PublishedSet, simulated: &[f64]) -> Vec<f64> {
    if let (true, [first, .., last], [from, .., to]) = (set.measured.is_linear(), &set.points[..], simulated) {
        return vec![((to - from) / (last.1 - first.1)).ln()];
    }
    set.points.iter().zip(simulated).map(|(&(_, published), simulated)| (simulated / published).ln()).collect()
}

/// Fits one set of limits to `sets`, each with its chip, from the limits of the first chip: a search by
/// [`minimum`] over the logarithms of the parameters. The same input gives the same limits.
///
/// # Errors
/// No set, a chip without limits to start from, or a point that cannot be run.
pub fn fit(sets: &[(PublishedSet, Chip)], most_iterations: u64) -> Result<FitReport, Diagnostic> {
    let Some((_, first)) = sets.first() else { return Err(Diagnostic::new("there is no set to fit to")) };
    let Some(start) = first.vendor else {
        let title = format!("{} has no table `vendor` to start from", first.name);
        return Err(Diagnostic::new(title).with_help("add one with a guess for every field (docs/arch-format.md)"));
    };
    let problem = Problem { sets, evaluations: Cell::new(0) };
    let before = problem.cost_of(&start)?;
    let center: Vec<f64> = Parameters::of(&start).iter().map(|value| value.ln()).collect();
    let corner = |axis: usize| {
        let mut corner = center.clone();
        corner[axis] += FIRST_STEP;
        corner
    };
    let simplex: Vec<Vec<f64>> = std::iter::once(center.clone()).chain((0..center.len()).map(corner)).collect();
    let limits = |logarithms: &[f64]| {
        let values: Vec<f64> = logarithms.iter().map(|l| l.exp()).collect();
        Parameters::vendor(&values, &start)
    };
    // Limits under which a point cannot be run are as bad as can be.
    let cost = |logarithms: &[f64]| problem.cost_of(&limits(logarithms)).unwrap_or(f64::INFINITY);
    let vendor = limits(&minimum(simplex, most_iterations, TOLERANCE, cost));
    let after = problem.cost_of(&vendor)?;
    let fitted = Parameters::FIELDS
        .into_iter()
        .zip(Parameters::of(&start).into_iter().zip(Parameters::of(&vendor)))
        .map(|(field, (start, value))| Fitted { field, start, value })
        .collect();
    let sets = sets.iter().map(|(set, _)| set.name.to_owned()).collect();
    Ok(FitReport { sets, vendor, fitted, cost: (before, after), evaluations: problem.evaluations.get() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CHIPS, published_sets};

    #[test]
    fn a_fit_finds_the_limits_that_made_the_figures() {
        let chip = CHIPS[0].load(&[]).unwrap();
        let truth = Vendor {
            launch_us: 50.0,
            stream_bytes_per_s: 20_000_000_000,
            large: None,
            pcus_per_operator: 64,
            pcu_efficiency: 1.0,
        };
        let limited = Chip { vendor: Some(truth), ..chip.clone() }.under(Quality::Vendor).unwrap();
        let mut set = published_sets().unwrap().swap_remove(0);
        set.points = vec![(64.0, 1.0), (128.0, 1.0), (768.0, 1.0), (1024.0, 1.0)];
        let made = simulate_set(&set, &limited).unwrap();
        for (point, made) in set.points.iter_mut().zip(made) {
            point.1 = made;
        }
        let start = Vendor { launch_us: 30.0, stream_bytes_per_s: 30_000_000_000, ..truth };
        let from = Chip { vendor: Some(start), ..chip };
        let found = fit(&[(set.clone(), from.clone())], 30).unwrap();
        assert!(found.cost.1 < found.cost.0 / 10.0, "{:?}", found.cost);
        assert!((found.vendor.launch_us / 50.0 - 1.0).abs() < 0.05, "{:?}", found.vendor);
        assert!((found.vendor.stream_bytes_per_s as f64 / 20e9 - 1.0).abs() < 0.05, "{:?}", found.vendor);
        assert_eq!(fit(&[(set, from)], 30).unwrap(), found, "the same input gives the same limits");
    }

    #[test]
    fn a_fit_needs_somewhere_to_start() {
        let chip = CHIPS[0].load(&[]).unwrap();
        let set = published_sets().unwrap().swap_remove(0);
        let error = fit(&[(set, Chip { vendor: None, ..chip })], 1).unwrap_err().to_string();
        assert!(error.contains("SN10 has no table `vendor`"), "{error}");
        assert!(fit(&[], 1).is_err());
    }

    #[test]
    fn of_a_line_the_slope_alone_counts() {
        let mut set = published_sets().unwrap().swap_remove(2);
        set.points = vec![(1.0, 10.0), (2.0, 20.0), (3.0, 30.0)];
        // Half the slope, another fixed part.
        let residuals = residuals(&set, &[105.0, 110.0, 115.0]);
        assert_eq!(residuals.len(), 1);
        assert!((residuals[0] - 0.5_f64.ln()).abs() < 1e-12);
    }
}
