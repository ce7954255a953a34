//! Every uncertain field of the chip file at both ends of its range.

use crate::arch::{Assumption, Device, UncertainField, assumptions};
use crate::input::{Override, Root};
use crate::mode::Mode;
use crate::study::inputs::{Inputs, run_all};

use super::base::Base;
use super::entries::{Band, Effect, Uncertainty};

/// The chips to try.
#[derive(Debug, Default)]
pub(super) struct Variants {
    assumptions: Vec<Assumption>,
    /// Overrides of each assumption: doubled, halved; `None` where nothing changes.
    sets: Vec<[Option<Vec<Override>>; 2]>,
    fixed: Vec<String>,
}

impl Variants {
    /// Runs that they take.
    pub(super) fn runs(&self) -> usize {
        self.sets.iter().flatten().flatten().count()
    }
}

/// The variants of a chip file.
pub(super) fn variants(inputs: &Inputs) -> Variants {
    let found = assumptions(inputs.chip_text());
    let sets = found.varied.iter().map(|assumption| [scaled(assumption, true), scaled(assumption, false)]).collect();
    Variants { assumptions: found.varied, sets, fixed: found.fixed }
}

fn scaled(assumption: &Assumption, up: bool) -> Option<Vec<Override>> {
    let one = |field: &UncertainField| {
        let keys: Vec<&str> = field.path.iter().map(String::as_str).collect();
        Override::of(Root::Arch, &keys, &field.end(up)?).ok()
    };
    let sets: Vec<Override> = assumption.fields.iter().filter_map(one).collect();
    (!sets.is_empty()).then_some(sets)
}

/// Runs the variants; `count` is called after each.
pub(super) fn uncertainty(
    base: &Base<'_>,
    chip: &dyn Device,
    variants: Variants,
    count: &(dyn Fn() + Sync),
) -> Uncertainty {
    let own = base.own_seconds(chip);
    let times: Vec<[Option<Vec<f64>>; 2]> = run_all(&variants.sets, |pair| {
        let time = |sets: &Option<Vec<Override>>| {
            let sets = sets.as_ref()?;
            let seconds = base.seconds(sets).ok();
            count();
            seconds
        };
        [time(&pair[0]), time(&pair[1])]
    });
    let mut effects: Vec<Effect> = variants
        .assumptions
        .iter()
        .zip(&times)
        .map(|(assumption, [doubled, halved])| Effect {
            fields: assumption.fields.iter().map(UncertainField::name).collect(),
            doubled_time_s: doubled.clone(),
            halved_time_s: halved.clone(),
            largest_change: [doubled, halved].into_iter().flatten().map(|t| change(&own, t)).fold(0.0, f64::max),
        })
        .collect();
    effects.sort_by(|a, b| b.largest_change.total_cmp(&a.largest_change));
    let mut bands: Vec<Band> = base
        .outcomes
        .iter()
        .enumerate()
        .map(|(mode, outcome)| band(base, &variants, &times, outcome.mode.name(), &own, &|t: &[f64]| t[mode]))
        .collect();
    let at = |mode: Mode| base.outcomes.iter().position(|outcome| outcome.mode == mode);
    for (of, before) in [("speedup", Mode::Kbk), ("speedup_over_epilogue", Mode::Epilogue)] {
        if let (Some(before), Some(fused)) = (at(before), at(Mode::Fused)) {
            bands.push(band(base, &variants, &times, of, &own, &|t: &[f64]| t[before] / t[fused]));
        }
    }
    Uncertainty { bands, assumptions: effects, not_varied: variants.fixed }
}

/// The largest relative change of any mode.
fn change(own: &[f64], times: &[f64]) -> f64 {
    own.iter().zip(times).map(|(own, time)| ((time - own) / own).abs()).fold(0.0, f64::max)
}

fn band(
    base: &Base<'_>,
    variants: &Variants,
    times: &[[Option<Vec<f64>>; 2]],
    of: &'static str,
    own: &[f64],
    quantity: &dyn Fn(&[f64]) -> f64,
) -> Band {
    let value = quantity(own);
    let all: Vec<f64> = times.iter().flatten().flatten().map(|t| quantity(t)).chain([value]).collect();
    // Each assumption on the side that moves the quantity most in one direction.
    let together = |sign: f64| {
        let mut sets: Vec<Override> = Vec::new();
        for (pair, sides) in times.iter().zip(&variants.sets) {
            let gain = |side: usize| pair[side].as_ref().map_or(0.0, |t| sign * (quantity(t) - value));
            let side = usize::from(gain(1) > gain(0));
            if gain(side) > 0.0 {
                sets.extend(sides[side].iter().flatten().cloned());
            }
        }
        base.seconds(&sets).ok().map(|t| quantity(&t))
    };
    Band {
        of,
        value,
        least: all.iter().copied().fold(f64::INFINITY, f64::min),
        most: all.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        all_least: together(-1.0),
        all_most: together(1.0),
    }
}
