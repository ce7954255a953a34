//! Chips and workloads before anything runs on them.

use pyo3::prelude::*;
use rdusim::analysis::{ModelRequest, model_text as text_of_model};
use rdusim::arch;
use rdusim::diagnostics::Diagnostic;
use rdusim::import::{self, PHASES};
use rdusim::input::{self, BUILTINS, FileKind, Given};
use rdusim::model::{Recompute, Storage, StorageFormat};
use rdusim::report::ArchEntry;
use serde::Deserialize;
use serde_json::{Value, json};

use super::failure::refused;
use super::request::{Input, Request, named, overrides, read};
use super::watch::watched;

/// What is built in: kind and name of each.
#[pyfunction]
pub(crate) fn builtins() -> Vec<(&'static str, &'static str)> {
    let kind = |kind: FileKind| match kind {
        FileKind::Chip => "chip",
        FileKind::System => "system",
        FileKind::Workload => "workload",
        FileKind::Study => "study",
        _ => "other",
    };
    BUILTINS.iter().map(|file| (kind(file.kind), file.name)).collect()
}

/// The text of a file or a built-in name.
#[pyfunction]
pub(crate) fn text_of(name: &str) -> Option<String> {
    input::text_of(name.as_ref())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChipRequest {
    arch: Input,
    sets: Vec<String>,
}

/// The `arch` object of results, for a chip with overrides.
#[pyfunction]
pub(crate) fn chip_json(py: Python<'_>, request: &str) -> PyResult<String> {
    let request: ChipRequest = read(request)?;
    let made = || -> Result<String, Diagnostic> {
        let chip = arch::take(&request.arch.given(), &overrides(&request.sets)?)?;
        serde_json::to_string(&ArchEntry::new(chip.device())).map_err(|error| Diagnostic::new(error.to_string()))
    };
    made().map_err(|error| refused(py, &error))
}

/// Name, dimensions, operators and tensors of a workload.
#[pyfunction]
pub(crate) fn workload_json(py: Python<'_>, request: &str) -> PyResult<String> {
    let request: Request = read(request)?;
    let made = || -> Result<Value, Diagnostic> {
        let workload = request.workload(&request.sets()?)?;
        let tensor = |id| &workload.tensors[id];
        let operators: Vec<Value> = workload
            .operators
            .iter()
            .map(|operator| json!({ "name": operator.name, "kind": operator.kind.name() }))
            .collect();
        let tensors: Vec<Value> = workload
            .tensors
            .ids()
            .map(tensor)
            .map(|t| json!({ "name": t.name, "rows": t.rows, "columns": t.columns, "dtype": t.dtype.name() }))
            .collect();
        Ok(json!({ "name": workload.name, "dims": workload.dims, "operators": operators, "tensors": tensors }))
    };
    Ok(made().map_err(|error| refused(py, &error))?.to_string())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelText {
    name: String,
    #[serde(default)]
    phase: Option<String>,
    #[serde(default)]
    hidden: Option<u64>,
    #[serde(default)]
    layers: Option<u64>,
    #[serde(default)]
    heads: Option<u64>,
    #[serde(default)]
    kv_heads: Option<u64>,
    #[serde(default)]
    ffn: Option<u64>,
    #[serde(default)]
    vocabulary: Option<u64>,
    #[serde(default)]
    batch: Option<u64>,
    #[serde(default)]
    seq: Option<u64>,
    #[serde(default)]
    context: Option<u64>,
    #[serde(default)]
    dtype: Option<String>,
    #[serde(default)]
    sparsity: Option<f64>,
    #[serde(default)]
    block: Option<u64>,
    #[serde(default)]
    optimizer: Option<String>,
    #[serde(default)]
    recompute: Option<String>,
    #[serde(default)]
    dropout: bool,
    #[serde(default)]
    weight_storage: Option<String>,
    #[serde(default)]
    cache_storage: Option<String>,
    #[serde(default)]
    activations: Option<String>,
    #[serde(default)]
    chunk: Option<u64>,
}

fn storage_format(name: &str, text: Option<&str>) -> Result<Option<StorageFormat>, Diagnostic> {
    text.map(str::parse).transpose().map_err(|found: String| Diagnostic::new(format!("`{name}`: {found}")))
}

/// The workload file of a model.
#[pyfunction]
pub(crate) fn model_text(py: Python<'_>, request: &str) -> PyResult<String> {
    let request: ModelText = read(request)?;
    let recomputes = [("none", Recompute::None), ("selective", Recompute::Selective), ("full", Recompute::Full)];
    let made = move || -> Result<String, Diagnostic> {
        text_of_model(&ModelRequest {
            phase: named("phase", request.phase.as_deref().unwrap_or("forward"), &PHASES)?,
            recompute: named("recompute", request.recompute.as_deref().unwrap_or("none"), &recomputes)?,
            hidden: request.hidden,
            layers: request.layers,
            heads: request.heads,
            kv_heads: request.kv_heads,
            ffn: request.ffn,
            vocabulary: request.vocabulary,
            batch: request.batch.unwrap_or(1),
            sequence: request.seq,
            context: request.context,
            chunk: request.chunk,
            dtype: request.dtype.unwrap_or_else(|| "bf16".to_owned()),
            sparsity: request.sparsity,
            block: request.block.unwrap_or(16),
            optimizer: request.optimizer.unwrap_or_else(|| "adam".to_owned()),
            dropout: request.dropout,
            storage: Storage {
                weights: storage_format("weight_storage", request.weight_storage.as_deref())?,
                others: Vec::new(),
                cache: storage_format("cache_storage", request.cache_storage.as_deref())?,
            },
            activations: match request.activations.as_deref().map(str::parse).transpose() {
                Ok(activations) => activations,
                Err(found) => return Err(Diagnostic::new(format!("`activations`: {found}"))),
            },
            name: request.name,
        })
    };
    made().map_err(|error| refused(py, &error))
}

/// The workload file of a model file.
#[pyfunction]
pub(crate) fn import_text(py: Python<'_>, request: &str) -> PyResult<String> {
    let request: Request = read(request)?;
    watched(py, None, move |_| match request.workload.given() {
        Given::File(path) => Ok(import::import(&path, &request.import()?)?.graph.into_text()),
        Given::Text { text, .. } => Ok(text),
    })
}

/// A JSON object as TOML.
#[pyfunction]
pub(crate) fn to_toml(json: &str) -> PyResult<String> {
    let table: toml::Table = read(json)?;
    toml::to_string(&table).map_err(|error| pyo3::exceptions::PyValueError::new_err(error.to_string()))
}
