//! Sets of published measurements, simulated.

use rayon::prelude::*;

use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::mode::Mode;
use rdusim_compile::compile::{compile_measured, simulate_measured};
use rdusim_graph::arch::{Chip, Quality};
use rdusim_graph::workload::Workload;
use rdusim_outcome::{Fidelity, Outcome, SectionOutcome, StopReason};

use super::published::{CHIPS, PublishedSet};
use super::score::{Score, outliers, relative_error};

/// One point of a set.
#[derive(Debug, Clone, PartialEq)]
pub struct SetRow {
    /// What was measured, for people.
    pub label: String,
    /// Where it stands on a plot's axis.
    pub at: f64,
    /// The published figure, or the analytic truth.
    pub published: f64,
    /// The simulated one, under the set's mapping quality.
    pub simulated: f64,
    /// The same with an ideal mapping, where that is another.
    pub ideal: Option<f64>,
    /// The quantity under the set's mapping quality if nothing loads while it computes.
    pub serial: Option<f64>,
    /// Far from the rest of its set, by [`outliers`].
    pub outlier: bool,
}

impl SetRow {
    /// Simulated over published, less one.
    pub fn error(&self) -> f64 {
        relative_error(self.published, self.simulated)
    }

    /// Whether the published figure lies between loads under computing and loads before it, and the error of the nearer
    /// end: 0 inside.
    pub fn range_error(&self) -> Option<f64> {
        let serial = self.serial?;
        let (low, high) = (self.simulated.min(serial), self.simulated.max(serial));
        Some(relative_error(self.published, self.published.clamp(low, high)))
    }

    /// The error of the end of the range that is nearer to the published figure, inside or not.
    pub fn nearer_end_error(&self) -> Option<f64> {
        let errors = [self.error(), relative_error(self.published, self.serial?)];
        errors.into_iter().min_by(|a, b| a.abs().total_cmp(&b.abs()))
    }

    /// The same of the ideal mapping.
    pub fn ideal_error(&self) -> Option<f64> {
        self.ideal.map(|ideal| relative_error(self.published, ideal))
    }
}

/// A measured point that cannot be simulated.
#[derive(Debug, Clone, PartialEq)]
pub struct RefusedRow {
    /// What was measured, for people.
    pub label: String,
    /// The published figure.
    pub published: f64,
    /// Why it cannot be simulated.
    pub reason: String,
}

/// A set with its errors.
#[derive(Debug, Clone, PartialEq)]
pub struct SetReport {
    /// Name.
    pub name: String,
    /// Chip.
    pub chip: String,
    /// The mapping quality of `simulated`.
    pub quality: Quality,
    /// What a point is.
    pub point: String,
    /// What is compared, with its unit.
    pub quantity: String,
    /// Where the published figures come from.
    pub source: String,
    /// Whether points are numbers that a plot can show.
    pub plotted: bool,
    /// Points.
    pub rows: Vec<SetRow>,
    /// Points that cannot be simulated, which have no error.
    pub refused: Vec<RefusedRow>,
    /// Errors.
    pub score: Score,
    /// Errors of the ideal mapping, where that is another.
    pub ideal_score: Option<Score>,
    /// Errors of named parts of the points, so that what a fit saw and what it did not stand apart.
    pub parts: Vec<SetPart>,
}

/// Some points of a set.
#[derive(Debug, Clone, PartialEq)]
pub struct SetPart {
    /// Which points.
    pub name: String,
    /// How many.
    pub points: usize,
    /// Their errors.
    pub score: Score,
    /// Of points that are choices: the published figure of the one that is simulated as least, over the least published, less
    /// one.
    pub over_fastest: Option<f64>,
}

impl SetPart {
    /// The points for which `belongs` holds; `None` if there are none.
    pub(super) fn new(name: &str, rows: &[SetRow], belongs: impl Fn(usize, &SetRow) -> bool) -> Option<Self> {
        let rows: Vec<&SetRow> =
            rows.iter().enumerate().filter(|(i, row)| belongs(*i, row)).map(|(_, row)| row).collect();
        let column = |value: fn(&SetRow) -> f64| rows.iter().map(|row| value(row)).collect::<Vec<f64>>();
        let score = Score::new(&column(|row| row.published), &column(|row| row.simulated));
        (!rows.is_empty()).then(|| Self { name: name.to_owned(), points: rows.len(), score, over_fastest: None })
    }

    /// The same of points of which one is chosen by its time.
    pub(super) fn choices(name: &str, rows: &[SetRow], belongs: impl Fn(usize, &SetRow) -> bool) -> Option<Self> {
        let part = Self::new(name, rows, &belongs)?;
        let list: Vec<&SetRow> =
            rows.iter().enumerate().filter(|(i, row)| belongs(*i, row)).map(|(_, row)| row).collect();
        let chosen = list.iter().min_by(|a, b| a.simulated.total_cmp(&b.simulated))?;
        let least = list.iter().map(|row| row.published).fold(f64::INFINITY, f64::min);
        Some(Self { over_fastest: Some(relative_error(least, chosen.published)), ..part })
    }

    /// The points up to the median of `at`, and those above it.
    pub(super) fn by_size(rows: &[SetRow]) -> Vec<Self> {
        let mut at: Vec<f64> = rows.iter().map(|row| row.at).collect();
        at.sort_by(f64::total_cmp);
        let Some(&median) = at.get(at.len().saturating_sub(1) / 2) else { return Vec::new() };
        let small = Self::new("small half", rows, |_, row| row.at <= median);
        small.into_iter().chain(Self::new("large half", rows, |_, row| row.at > median)).collect()
    }
}

/// The chip that a set was measured on: the one given, or else a shipped one.
pub(super) fn chip_of<'c>(set: &PublishedSet, chips: &'c [Chip]) -> Result<&'c Chip, Diagnostic> {
    chips.iter().find(|chip| chip.name == set.chip).ok_or_else(|| {
        let names: Vec<&str> = CHIPS.iter().map(|chip| chip.name).collect();
        Diagnostic::new(format!("the set `{}` was measured on {}, which is not at hand", set.name, set.chip))
            .with_help(format!("chips are found by the `name` of their file: {}", names.join(", ")))
    })
}

/// Simulates a set within the vendor's limits and with an ideal mapping.
///
/// # Errors
/// A chip without vendor limits, or a point that cannot be run on it.
pub fn validate(set: &PublishedSet, chips: &[Chip]) -> Result<SetReport, Diagnostic> {
    let chip = chip_of(set, chips)?;
    let (simulated, serial) = simulate_range(set, &chip.under(Quality::Vendor)?)?;
    let ideal = simulate_set(set, &chip.under(Quality::Ideal)?)?;
    let published: Vec<f64> = set.points.iter().map(|&(_, value)| value).collect();
    let at: Vec<f64> = set.points.iter().map(|&(at, _)| at).collect();
    // The rule looks for breaks of a power law; a line with a constant part is none.
    let line = set.measured.is_linear();
    let out = if line { vec![false; at.len()] } else { outliers(&at, &published, &simulated) };
    let rows: Vec<SetRow> = set
        .points
        .iter()
        .enumerate()
        .map(|(i, &(at, published))| SetRow {
            label: format!("{at}"),
            at,
            published,
            simulated: simulated[i],
            ideal: Some(ideal[i]),
            serial: Some(serial[i]),
            outlier: out[i],
        })
        .collect();
    Ok(SetReport {
        name: set.name.to_owned(),
        chip: set.chip.to_owned(),
        quality: Quality::Vendor,
        point: set.point.to_owned(),
        quantity: set.quantity.to_owned(),
        source: set.source.to_owned(),
        plotted: true,
        parts: if line { Vec::new() } else { SetPart::by_size(&rows) },
        rows,
        refused: Vec::new(),
        score: Score::new(&published, &simulated),
        ideal_score: Some(Score::new(&published, &ideal)),
    })
}

/// The quantity of every point of a set, in order.
pub(super) fn simulate_set(set: &PublishedSet, chip: &Chip) -> Result<Vec<f64>, Diagnostic> {
    simulate_range(set, chip).map(|(overlapped, _)| overlapped)
}

/// The quantity of every point with loads under computing, and with loads before it.
fn simulate_range(set: &PublishedSet, chip: &Chip) -> Result<(Vec<f64>, Vec<f64>), Diagnostic> {
    if let (true, Some(&(last, _))) = (set.measured.is_linear(), set.points.last()) {
        let [overlapped, serial] = line(set, last, chip)?;
        let on = |(fixed, slope): (f64, f64)| set.points.iter().map(|&(at, _)| fixed + at * slope).collect();
        return Ok((on(overlapped), on(serial)));
    }
    let quantity = |&(point, _): &(f64, f64)| -> Result<(f64, f64), Diagnostic> {
        let workload = set.measured.workload(point)?;
        let outcome = outcome(chip, &workload, set.measured.mode())?;
        let of = |cycles: u64| set.measured.quantity(point, chip.seconds(cycles));
        Ok((of(outcome.cycles), of(outcome.serial_cycles())))
    };
    let both: Vec<(f64, f64)> = set.points.par_iter().map(quantity).collect::<Result<_, _>>()?;
    Ok(both.into_iter().unzip())
}

/// Of a set that is linear in its points: the part that no point has a share in, and the part of each. Repeated
/// sections are simulated once, so one run at `point` gives both; with loads under computing, and before it.
fn line(set: &PublishedSet, point: f64, chip: &Chip) -> Result<[(f64, f64); 2], Diagnostic> {
    let outcome = outcome(chip, &set.measured.workload(point)?, set.measured.mode())?;
    let split = |cycles: fn(&SectionOutcome) -> u64| {
        let repeated = outcome.sections.iter().filter(|section| section.repeat > 1);
        let of_one: u64 = repeated.map(|section| cycles(section) / section.repeat).sum();
        let all: u64 = outcome.sections.iter().map(cycles).sum();
        let (all, of_one) = (chip.seconds(all), chip.seconds(of_one));
        (all - of_one * point, of_one)
    };
    Ok([split(|section| section.cycles), split(SectionOutcome::serial_cycles)])
}

/// What the training sets say of a layer: its marginal time kernel by kernel and fused, their ratio, and steps of one
/// layer. `None` without both sets.
pub fn layer_report(reports: &[SetReport]) -> Option<SetReport> {
    let find = |name: &str| reports.iter().find(|report| report.name == name);
    let (kbk, fused) = (find("sn30-gpt2-kbk")?, find("sn30-gpt2-fused")?);
    let figures = |value: &dyn Fn(&SetRow) -> Option<f64>| -> Option<Vec<f64>> {
        let series = |set: &SetReport| {
            let (first, last) = (set.rows.first()?, set.rows.last()?);
            let one = value(first)?;
            Some(((value(last)? - one) / (last.at - first.at) * 1e3, one * 1e3))
        };
        let ((of_kbk, one_kbk), (of_fused, one_fused)) = (series(kbk)?, series(fused)?);
        Some(vec![of_kbk, of_fused, of_kbk / of_fused, one_kbk, one_fused])
    };
    let published = figures(&|row| Some(row.published))?;
    let simulated = figures(&|row| Some(row.simulated))?;
    let ideal = figures(&|row| row.ideal)?;
    let labels = [
        "marginal layer, kbk, ms",
        "marginal layer, fused, ms",
        "marginal layer, kbk / fused",
        "step of one layer, kbk, ms",
        "step of one layer, fused, ms",
    ];
    let rows = labels.iter().enumerate().map(|(i, label)| SetRow {
        label: (*label).to_owned(),
        at: 0.0,
        published: published[i],
        simulated: simulated[i],
        ideal: Some(ideal[i]),
        serial: None,
        outlier: false,
    });
    Some(SetReport {
        name: "sn30-gpt2-layer".to_owned(),
        point: "figure".to_owned(),
        quantity: "milliseconds, and a ratio".to_owned(),
        plotted: false,
        parts: Vec::new(),
        rows: rows.collect(),
        score: Score::new(&published, &simulated),
        ideal_score: Some(Score::new(&published, &ideal)),
        ..kbk.clone()
    })
}

/// A workload compiled and simulated in one mode, to the end.
pub(super) fn outcome(chip: &Chip, workload: &Workload, mode: Mode) -> Result<Outcome, Diagnostic> {
    let measured = compile_measured(chip, workload, &[mode])?;
    let outcome = simulate_measured(chip, workload, &measured[0], Fidelity::Event);
    match &outcome.stop {
        StopReason::Drained => Ok(outcome),
        StopReason::Deadlock(_) | StopReason::Limit(_) => {
            Err(Diagnostic::new(format!("the {} run of `{}` on {} did not end", mode.name(), workload.name, chip.name)))
        }
    }
}
