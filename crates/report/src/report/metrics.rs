//! Figures of a run that are defined once and shown everywhere: as keys of `result.json`, rows of the table, columns of
//! studies and lines of `diff`.
//!
//! A line of [`METRICS`] is all that a new figure takes. Keys are never renamed. Figures with a place of their own in the
//! JSON object are fields of [`super::RunEntry`].

use indexmap::IndexMap;
use serde::Serialize;

use rdusim_outcome::Outcome;

use super::figures::{Figures, quotient};
use super::human::{bytes, si};

/// A value of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(untagged)]
pub enum MetricValue {
    /// A count.
    Whole(u64),
    /// A measure.
    Real(f64),
}

impl MetricValue {
    /// As a number, to be compared.
    pub fn number(self) -> f64 {
        match self {
            Self::Whole(count) => count as f64,
            Self::Real(measure) => measure,
        }
    }
}

/// What a figure is worked out from.
pub(super) struct RunView<'a> {
    /// Figures of the run.
    pub(super) figures: &'a Figures,
    /// The run.
    pub(super) outcome: &'a Outcome,
    /// Tokens that it has processed, of a language model.
    pub(super) tokens: Option<u64>,
}

/// A figure of a run.
#[derive(Debug)]
pub struct Metric {
    /// Its key in JSON, and the name of its column: with a unit.
    pub key: &'static str,
    /// Its row in the table.
    pub(super) label: &'static str,
    /// How the table shows it.
    show: fn(f64) -> String,
    /// Its value; `None` where the run has none.
    of: fn(&RunView<'_>) -> Option<MetricValue>,
}

impl Metric {
    /// A value with its unit, as tables show it.
    pub fn shown(&self, value: f64) -> String {
        (self.show)(value)
    }
}

use MetricValue::{Real, Whole};

/// Label of the energy of a token, which tables show before everything else.
pub(super) const ENERGY_OF_A_TOKEN: &str = "energy / token";

/// All of them, in the order in which they are shown.
pub const METRICS: [Metric; 3] = [
    Metric { key: "power_w", label: "average power", show: |w| si(w, "W"), of: |run| Some(Real(average_power_w(run))) },
    Metric {
        key: "j_per_token",
        label: ENERGY_OF_A_TOKEN,
        show: |j| si(j, "J"),
        of: |run| energy_per_token_j(run).map(Real),
    },
    Metric {
        key: "sram_peak_bytes",
        label: "SRAM peak",
        show: |b| bytes(b as u64),
        of: |run| Some(Whole(sram_peak_bytes(run))),
    },
];

/// Energy over time.
fn average_power_w(run: &RunView<'_>) -> f64 {
    quotient(run.figures.energy.total(), run.figures.time_s)
}

/// Energy over the tokens of all sequences.
fn energy_per_token_j(run: &RunView<'_>) -> Option<f64> {
    run.tokens.map(|tokens| quotient(run.figures.energy.total(), tokens as f64))
}

/// Of the section that takes most.
fn sram_peak_bytes(run: &RunView<'_>) -> u64 {
    run.outcome.sections.iter().map(|section| section.sram_peak_bytes).max().unwrap_or(0)
}

/// The figures that a run has, by key.
pub(super) fn metrics_of(run: &RunView<'_>) -> IndexMap<&'static str, MetricValue> {
    METRICS.iter().filter_map(|metric| Some((metric.key, (metric.of)(run)?))).collect()
}
