//! From draws to ranges.

use super::draws::Draws;
use super::held::point_of;
use crate::arch::AnyChip;
use crate::diagnostics::Diagnostic;
use crate::input::Override;
use crate::mode::Mode;
use crate::report::{Against, AgainstEntry, Document, DrawEntry, RunRanges, UncertaintyEntry, VersusRanges};
use crate::study::inputs::{run_all, run_plain};
use crate::workload::Workload;

/// What the runs of a chip come to under every draw; `None` where a draw is no chip, or nothing runs on it.
#[derive(Debug, Clone)]
pub struct Sampled {
    pub(super) draws: Draws,
    /// Draws some of whose units, ports and banks are the file's, because the mappings have no place on those that were drawn.
    pub(super) kept_units: usize,
    pub(super) modes: Vec<Mode>,
    pub(super) points: Vec<Option<Vec<DrawEntry>>>,
}

/// Runs a chip without configurations, a GPU or one of tiles, on every draw.
pub fn of_plain(
    draws: Draws,
    workload: &Workload,
    modes: &[Mode],
    chip: &(dyn Fn(&[Override]) -> Result<AnyChip, Diagnostic> + Sync),
) -> Sampled {
    let points = run_all(&draws.sets, |sets| {
        let chip = chip(sets).ok()?;
        let outcomes = run_plain(&chip, workload, modes).ok()?;
        let clock_hz = chip.device().clock_hz();
        Some(outcomes.iter().map(|outcome| point_of(outcome, clock_hz, 1.0)).collect())
    });
    Sampled { draws, kept_units: 0, modes: modes.to_vec(), points }
}

/// Puts the ranges of a chip's runs into their document.
pub fn ranges(document: &mut Document, sampled: &Sampled, seed: u64) {
    let at = |mode: Mode| sampled.modes.iter().position(|&of| of == mode);
    for (position, mode) in sampled.modes.iter().enumerate() {
        if let Some(run) = document.runs.iter_mut().find(|run| run.mode == mode.name()) {
            run.ranges = sampled.run_ranges(position);
        }
    }
    let over_fused = |before: Mode| {
        let (before, fused) = (at(before)?, at(Mode::Fused)?);
        sampled.range(|points| points[before].time_s / points[fused].time_s)
    };
    document.uncertainty = Some(UncertaintyEntry {
        samples: sampled.points.len() as u64,
        refused: sampled.points.iter().filter(|points| points.is_none()).count() as u64,
        kept_units: sampled.kept_units as u64,
        seed,
        quantiles: QUANTILES,
        fields: sampled.draws.fields.clone(),
        not_varied: sampled.draws.fixed.clone(),
        speedup: over_fused(Mode::Kbk),
        speedup_over_epilogue: over_fused(Mode::Epilogue),
        against: Against::default(),
    });
}

/// Adds those of the other chips, in their order, and of their times and energies over the first's.
pub fn versus(document: &mut Document, first: &Sampled, others: &[Sampled]) {
    let Some(uncertainty) = &mut document.uncertainty else { return };
    let pairs = document.against.0.iter_mut().zip(others);
    uncertainty.against = Against(pairs.map(|(entry, other)| versus_one(entry, first, other)).collect());
}

fn versus_one(against: &mut AgainstEntry, first: &Sampled, second: &Sampled) -> VersusRanges {
    let mut versus = VersusRanges { fields: second.draws.fields.clone(), ..VersusRanges::default() };
    for (position, mode) in second.modes.iter().enumerate() {
        if let Some(run) = against.runs.iter_mut().find(|run| run.mode == mode.name()) {
            run.ranges = second.run_ranges(position);
        }
        let Some(own) = first.modes.iter().position(|of| of == mode) else { continue };
        let ratio = |of: fn(&DrawEntry) -> f64| {
            let pairs = first.points.iter().zip(&second.points).filter_map(|(a, b)| a.as_ref().zip(b.as_ref()));
            quantiles(pairs.map(|(a, b)| of(&b[position]) / of(&a[own])).collect())
        };
        versus.speedups.extend(ratio(|point| point.time_s).map(|range| (mode.name(), range)));
        versus.energy_ratios.extend(ratio(|point| point.energy_j).map(|range| (mode.name(), range)));
    }
    versus
}

impl Sampled {
    fn range(&self, of: impl Fn(&[DrawEntry]) -> f64) -> Option<[f64; 2]> {
        quantiles(self.points.iter().flatten().map(|points| of(points)).collect())
    }

    fn run_ranges(&self, position: usize) -> Option<RunRanges> {
        Some(RunRanges {
            time_s: self.range(|points| points[position].time_s)?,
            energy_j: self.range(|points| points[position].energy_j)?,
            draws: self.points.iter().map(|points| points.as_ref().map(|points| points[position].clone())).collect(),
        })
    }
}

/// The ends of a range.
const QUANTILES: [f64; 2] = [0.05, 0.95];

/// The 5 and the 95 % quantile, by linear interpolation between order statistics (Hyndman and Fan's type 7); `None` of no finite value.
pub fn quantiles(mut values: Vec<f64>) -> Option<[f64; 2]> {
    values.retain(|value| value.is_finite());
    values.sort_by(f64::total_cmp);
    let last = values.len().checked_sub(1)?;
    Some(QUANTILES.map(|quantile| {
        let place = quantile * last as f64;
        let (low, part) = (place.floor(), place.fract());
        let high = values[(low as usize + 1).min(last)];
        values[low as usize] + (high - values[low as usize]) * part
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_between_order_statistics() {
        assert_eq!(quantiles((0..=20).map(f64::from).collect()), Some([1.0, 19.0]));
        assert_eq!(quantiles(vec![3.0, f64::NAN]), Some([3.0, 3.0]));
        assert_eq!(quantiles(Vec::new()), None);
    }
}
