//! What the page reads of a saved result: the keys that must be there, with their types.
//!
//! These are not the types that write results: those have more keys, which results of earlier versions lack.

#![expect(dead_code, reason = "read for their types alone: the page takes the values from the JSON itself")]

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::super::document::SCHEMA;
use super::super::waterfall::Waterfall;

/// A result as `--format json` prints it. Keys that the page does not use are let through.
#[derive(Debug, Deserialize)]
struct Needed {
    schema: u32,
    arch: NeededArch,
    workload: NeededWorkload,
    runs: Vec<NeededRun>,
    speedup: Option<f64>,
    speedup_over_epilogue: Option<f64>,
    off_chip_traffic_ratio: Option<f64>,
    waterfall: Option<Waterfall>,
    against: Option<NeededAgainst>,
}

#[derive(Debug, Deserialize)]
struct NeededAgainst {
    arch: NeededArch,
    runs: Vec<NeededRun>,
}

#[derive(Debug, Deserialize)]
struct NeededArch {
    name: String,
    pcus: u64,
    pmus: u64,
    peak_tflops: f64,
    sram_bytes: u64,
    off_chip_gb_per_s: f64,
}

#[derive(Debug, Deserialize)]
struct NeededWorkload {
    name: String,
    dense_flops: f64,
    executed_flops: f64,
}

#[derive(Debug, Deserialize)]
struct NeededRun {
    mode: String,
    fidelity: String,
    cycles: u64,
    time_s: f64,
    launches: u64,
    tflops_dense_equivalent: f64,
    tflops_executed: f64,
    utilization: f64,
    bound_cycles: u64,
    traffic: NeededTraffic,
    op_intensity_flop_per_byte: f64,
    energy_j: NeededEnergy,
    sections: Vec<NeededSection>,
    notes: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct NeededTraffic {
    off_chip_read_bytes: u64,
    off_chip_write_bytes: u64,
    network_bytes: u64,
    sram_read_bytes: u64,
    sram_write_bytes: u64,
    by_tensor: BTreeMap<String, NeededTensor>,
}

#[derive(Debug, Deserialize)]
struct NeededTensor {
    off_chip_read_bytes: u64,
    off_chip_write_bytes: u64,
}

#[derive(Debug, Deserialize)]
struct NeededEnergy {
    total: f64,
    compute: f64,
    sram: f64,
    network: f64,
    off_chip: f64,
    #[serde(rename = "static")]
    static_: f64,
}

#[derive(Debug, Deserialize)]
struct NeededSection {
    name: String,
    cycles: u64,
    launch_cycles: u64,
    bound_by: String,
    pcus: u64,
    pmus: u64,
    sram_peak_bytes: u64,
    traffic: NeededTraffic,
    energy_j: NeededEnergy,
    stages: Vec<NeededStage>,
}

#[derive(Debug, Deserialize)]
struct NeededStage {
    operators: Vec<String>,
    pcus: u64,
    busiest_cycles: u64,
    mean_cycles: f64,
    mapping: String,
}

/// Reads a saved result; of `--against` that of the second chip too.
///
/// # Errors
/// What is missing or of another type, with line and column; a schema of another version; no runs.
pub(super) fn read(text: &str) -> Result<(Value, Option<Value>), String> {
    let needed: Needed = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if needed.schema != SCHEMA {
        return Err(format!("schema {}, expected {SCHEMA}", needed.schema));
    }
    if needed.runs.is_empty() || needed.against.as_ref().is_some_and(|against| against.runs.is_empty()) {
        return Err("no runs, expected one or two".to_owned());
    }
    if let Some(waterfall) = &needed.waterfall {
        waterfall.check()?;
    }
    let first: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    Ok(sides(first))
}

/// The results of both chips of a document: the page shows each as it shows a result of its own.
pub(super) fn sides(mut first: Value) -> (Value, Option<Value>) {
    let Some(object) = first.as_object_mut() else { return (first, None) };
    // The page has the texts of the inputs, and is to be small.
    object.remove("inputs");
    for run in object.get_mut("runs").and_then(Value::as_array_mut).into_iter().flatten() {
        without_draws(run);
    }
    let second = object.get("against").and_then(Value::as_object).cloned().map(|mut second| {
        for run in second.get_mut("runs").and_then(Value::as_array_mut).into_iter().flatten() {
            without_draws(run);
        }
        // What compares both chips stands with the first.
        for key in ["speedups", "speedups_range", "speedup_notes", "not_like_for_like"] {
            second.remove(key);
        }
        for key in ["schema", "workload"] {
            second.insert(key.to_owned(), object[key].clone());
        }
        Value::Object(second)
    });
    if let Some(against) = object.get_mut("against").and_then(Value::as_object_mut) {
        against.remove("runs");
    }
    (first, second)
}

/// Ranges stay; the draws that they are of are many.
fn without_draws(run: &mut Value) {
    if let Some(ranges) = run.get_mut("ranges").and_then(Value::as_object_mut) {
        ranges.remove("draws");
    }
}

/// The name of a result's chip.
pub(super) fn chip(document: &Value) -> String {
    document["arch"]["name"].as_str().unwrap_or_default().to_owned()
}
