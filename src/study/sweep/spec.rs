//! A study file as it is read: one field a key, nothing checked yet.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use crate::input::{Count, Real, Table};

type Words = Spanned<Vec<Spanned<String>>>;

/// The file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StudySpec {
    pub(super) schema: Spanned<Count>,
    pub(super) name: Spanned<String>,
    pub(super) arch: Spanned<String>,
    pub(super) workload: Spanned<String>,
    pub(super) model: Option<Spanned<Table<ModelSpec>>>,
    pub(super) fidelity: Option<Spanned<String>>,
    pub(super) modes: Option<Words>,
    pub(super) seed: Option<Spanned<Count>>,
    pub(super) compile: Option<Spanned<String>>,
    pub(super) effort: Option<Spanned<String>>,
    pub(super) mapping: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) set: Vec<Spanned<String>>,
    pub(super) design: Option<Spanned<String>>,
    pub(super) points: Option<Spanned<Count>>,
    pub(super) axes: Spanned<Vec<Spanned<Table<AxisSpec>>>>,
    #[serde(default)]
    pub(super) constraints: Vec<Spanned<String>>,
    pub(super) metrics: Words,
    pub(super) pareto: Option<Spanned<Table<ParetoSpec>>>,
    #[serde(default)]
    pub(super) best: Vec<Spanned<Table<BestSpec>>>,
    #[serde(default)]
    pub(super) plots: Vec<Table<PlotSpec>>,
}

/// `[model]`: how a `config.json` becomes a workload, as the flags of these names say.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ModelSpec {
    pub(super) phase: Option<Spanned<String>>,
    pub(super) batch: Option<Spanned<Count>>,
    pub(super) seq: Option<Spanned<Count>>,
    pub(super) context: Option<Spanned<Count>>,
    pub(super) dtype: Option<Spanned<String>>,
    pub(super) expert_load: Option<Spanned<String>>,
}

/// `[[axes]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AxisSpec {
    pub(super) path: Spanned<PathSpec>,
    pub(super) values: Option<Spanned<Vec<Spanned<toml::Value>>>>,
    pub(super) range: Option<Spanned<Table<RangeSpec>>>,
    pub(super) log_range: Option<Spanned<Table<RangeSpec>>>,
}

/// One field, or several that take the same value.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected a path or a list of paths")]
pub(super) enum PathSpec {
    One(String),
    Several(Vec<String>),
}

/// `range` and `log_range`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RangeSpec {
    pub(super) from: Spanned<toml::Value>,
    pub(super) to: Spanned<toml::Value>,
    pub(super) step: Option<Spanned<Real>>,
    pub(super) factor: Option<Spanned<Real>>,
    pub(super) count: Option<Spanned<Count>>,
}

/// `[pareto]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ParetoSpec {
    #[serde(default)]
    pub(super) minimize: Vec<Spanned<String>>,
    #[serde(default)]
    pub(super) maximize: Vec<Spanned<String>>,
    pub(super) prune: Option<Spanned<bool>>,
    pub(super) per: Option<Spanned<String>>,
}

/// `[[best]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BestSpec {
    pub(super) minimize: Option<Spanned<String>>,
    pub(super) maximize: Option<Spanned<String>>,
    pub(super) subject_to: Option<Spanned<String>>,
    pub(super) per: Option<Spanned<String>>,
    pub(super) over: Option<Spanned<String>>,
    pub(super) mean: Option<Spanned<String>>,
    pub(super) weights: Option<Spanned<BTreeMap<String, Spanned<Real>>>>,
}

/// `[[plots]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PlotSpec {
    pub(super) kind: Spanned<String>,
    pub(super) title: Option<Spanned<String>>,
    pub(super) x: Spanned<String>,
    pub(super) y: Spanned<String>,
    pub(super) series: Option<Spanned<String>>,
    pub(super) value: Option<Spanned<String>>,
}
