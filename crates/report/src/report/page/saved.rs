//! What the page reads of a saved result: the keys that must be there, with their types.
//!
//! These are not the types that write results: those have more keys, which results of earlier versions lack.

#![expect(dead_code, reason = "read for their types alone: the page takes the values from the JSON itself")]

use std::collections::BTreeMap;

use serde::Deserialize;

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

/// Reads a saved result.
///
/// # Errors
/// What is missing or of another type, with line and column; a schema of another version; no runs.
pub(super) fn read(text: &str) -> Result<serde_json::Value, String> {
    let needed: Needed = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if needed.schema != SCHEMA {
        return Err(format!("schema {}, expected {SCHEMA}", needed.schema));
    }
    if needed.runs.is_empty() {
        return Err("no runs, expected one or two".to_owned());
    }
    if let Some(waterfall) = &needed.waterfall {
        waterfall.check()?;
    }
    let mut result: serde_json::Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    // The page has the texts of the inputs, and is to be small.
    if let Some(object) = result.as_object_mut() {
        object.remove("inputs");
    }
    Ok(result)
}
