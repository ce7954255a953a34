//! The parts of a `result.json` that are compared.

use indexmap::IndexMap;
use serde::Deserialize;
use serde_json::Value;

use crate::diagnostics::{Diagnostic, Origin};
use crate::report::SCHEMA;

/// A result of `compare` or `run`.
#[derive(Debug, Deserialize)]
pub(super) struct ResultFile {
    schema: u32,
    pub(super) arch: IndexMap<String, Value>,
    pub(super) workload: IndexMap<String, Value>,
    pub(super) runs: Vec<Run>,
    /// What results of earlier versions lack.
    pub(super) inputs: Option<Inputs>,
    pub(super) speedup: Option<f64>,
    pub(super) speedup_over_epilogue: Option<f64>,
    /// Results of earlier versions, and of runs without a bound, lack both.
    pub(super) speedup_range: Option<[f64; 2]>,
    pub(super) speedup_over_epilogue_range: Option<[f64; 2]>,
}

/// Fields of the inputs by path.
#[derive(Debug, Deserialize)]
pub(super) struct Inputs {
    pub(super) arch: IndexMap<String, Value>,
    pub(super) workload: IndexMap<String, Value>,
    pub(super) options: IndexMap<String, Value>,
    /// Of the chip of `--against`.
    pub(super) against: Option<IndexMap<String, Value>>,
    /// Runs on the chips beyond the first other one, in their order.
    #[serde(default)]
    pub(super) against_further: Vec<IndexMap<String, Value>>,
}

/// One run.
#[derive(Debug, Deserialize)]
pub(super) struct Run {
    pub(super) mode: String,
    pub(super) fidelity: String,
    pub(super) cycles: u64,
    pub(super) time_s: f64,
    pub(super) launches: u64,
    pub(super) utilization: f64,
    pub(super) tflops_executed: f64,
    pub(super) bound_cycles: u64,
    pub(super) traffic: Traffic,
    pub(super) energy_j: IndexMap<String, f64>,
    pub(super) sections: Vec<Section>,
    /// All other keys.
    #[serde(flatten)]
    pub(super) others: IndexMap<String, Value>,
}

/// Bytes of a run.
#[derive(Debug, Deserialize)]
pub(super) struct Traffic {
    pub(super) off_chip_read_bytes: u64,
    pub(super) off_chip_write_bytes: u64,
    pub(super) network_bytes: u64,
    pub(super) sram_read_bytes: u64,
    pub(super) sram_write_bytes: u64,
    pub(super) by_tensor: IndexMap<String, TensorBytes>,
}

/// Bytes of a tensor.
#[derive(Debug, Deserialize)]
pub(super) struct TensorBytes {
    pub(super) off_chip_read_bytes: u64,
    pub(super) off_chip_write_bytes: u64,
}

/// A section.
#[derive(Debug, Deserialize)]
pub(super) struct Section {
    pub(super) operators: Vec<String>,
    pub(super) cycles: u64,
    pub(super) launch_cycles: u64,
    pub(super) bound_by: String,
}

/// Reads a result from its text.
pub(super) fn read(name: &str, text: &str) -> Result<ResultFile, Diagnostic> {
    let failed = |error: &serde_json::Error, what: &str| {
        let line_start = text.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum::<usize>();
        let at = (line_start + error.column().saturating_sub(1)).min(text.len());
        let message = error.to_string();
        let why = message.split(" at line ").next().unwrap_or(&message);
        let origin = Origin { path: name.to_owned(), text: text.into(), span: at..at + 1, label: String::new() };
        Diagnostic::new(format!("`{name}` is no {what}: {why}"))
            .with_origin(origin)
            .with_help("give the `result.json` of `rdusim compare` or `rdusim run`")
    };
    let any: Value = serde_json::from_str(text).map_err(|error| failed(&error, "JSON"))?;
    if let Some(schema) = any.get("schema").filter(|schema| **schema != SCHEMA) {
        let title = format!("`{name}`: `schema` is {schema}, expected {SCHEMA}");
        return Err(Diagnostic::new(title).with_help("it was written by another version"));
    }
    let file: ResultFile = serde_json::from_str(text).map_err(|error| failed(&error, "result"))?;
    debug_assert_eq!(file.schema, SCHEMA);
    Ok(file)
}
