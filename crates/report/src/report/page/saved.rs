//! What the page reads of a saved result: the keys that must be there, with their types.
//!
//! These are not the types that write results: those have more keys, which results of earlier versions lack. The page takes the values
//! from the JSON itself, and lets keys through that it does not use.

use serde_json::Value;

use super::super::document::SCHEMA;
use super::super::waterfall::Waterfall;

/// What a value must be.
#[derive(Debug, Clone, Copy)]
enum Needs {
    Text,
    /// A number from 0 on without a fraction.
    Whole,
    Number,
    /// A list of such values.
    List(&'static Needs),
    /// A table with these keys, and any others.
    Table(&'static [Key]),
    /// A table of such values, by names that are the result's own.
    Named(&'static Needs),
    /// Such a value where the key is there and not null.
    Optional(&'static Needs),
}

/// A key of a table, and what stands there.
#[derive(Debug, Clone, Copy)]
struct Key(&'static str, Needs);

const RESULT: Needs = Needs::Table(&[
    Key("schema", Needs::Whole),
    Key("arch", CHIP),
    Key(
        "workload",
        Needs::Table(&[
            Key("name", Needs::Text),
            Key("dense_flops", Needs::Number),
            Key("executed_flops", Needs::Number),
        ]),
    ),
    Key("runs", Needs::List(&RUN)),
    Key("speedup", Needs::Optional(&Needs::Number)),
    Key("speedup_over_epilogue", Needs::Optional(&Needs::Number)),
    Key("off_chip_traffic_ratio", Needs::Optional(&Needs::Number)),
    Key("against", Needs::Optional(&AGAINST)),
    Key("against_further", Needs::Optional(&Needs::List(&AGAINST))),
]);

const AGAINST: Needs = Needs::Table(&[Key("arch", CHIP), Key("runs", Needs::List(&RUN))]);

const CHIP: Needs = Needs::Table(&[
    Key("name", Needs::Text),
    Key("pcus", Needs::Whole),
    Key("pmus", Needs::Whole),
    Key("peak_tflops", Needs::Number),
    Key("sram_bytes", Needs::Whole),
    Key("off_chip_gb_per_s", Needs::Number),
]);

const RUN: Needs = Needs::Table(&[
    Key("mode", Needs::Text),
    Key("fidelity", Needs::Text),
    Key("cycles", Needs::Whole),
    Key("time_s", Needs::Number),
    Key("launches", Needs::Whole),
    Key("tflops_dense_equivalent", Needs::Number),
    Key("tflops_executed", Needs::Number),
    Key("utilization", Needs::Number),
    Key("bound_cycles", Needs::Whole),
    Key("traffic", TRAFFIC),
    Key("op_intensity_flop_per_byte", Needs::Number),
    Key("energy_j", ENERGY),
    Key("sections", Needs::List(&SECTION)),
    Key("notes", Needs::List(&Needs::Text)),
]);

const SECTION: Needs = Needs::Table(&[
    Key("name", Needs::Text),
    Key("cycles", Needs::Whole),
    Key("launch_cycles", Needs::Whole),
    Key("bound_by", Needs::Text),
    Key("pcus", Needs::Whole),
    Key("pmus", Needs::Whole),
    Key("sram_peak_bytes", Needs::Whole),
    Key("traffic", TRAFFIC),
    Key("energy_j", ENERGY),
    Key("stages", Needs::List(&STAGE)),
]);

const STAGE: Needs = Needs::Table(&[
    Key("operators", Needs::List(&Needs::Text)),
    Key("pcus", Needs::Whole),
    Key("busiest_cycles", Needs::Whole),
    Key("mean_cycles", Needs::Number),
    Key("mapping", Needs::Text),
]);

const TRAFFIC: Needs = Needs::Table(&[
    Key("off_chip_read_bytes", Needs::Whole),
    Key("off_chip_write_bytes", Needs::Whole),
    Key("network_bytes", Needs::Whole),
    Key("sram_read_bytes", Needs::Whole),
    Key("sram_write_bytes", Needs::Whole),
    Key(
        "by_tensor",
        Needs::Named(&Needs::Table(&[
            Key("off_chip_read_bytes", Needs::Whole),
            Key("off_chip_write_bytes", Needs::Whole),
        ])),
    ),
]);

const ENERGY: Needs = Needs::Table(&[
    Key("total", Needs::Number),
    Key("compute", Needs::Number),
    Key("sram", Needs::Number),
    Key("network", Needs::Number),
    Key("off_chip", Needs::Number),
    Key("static", Needs::Number),
]);

impl Needs {
    fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Whole => "a whole number from 0 on",
            Self::Number => "a number",
            Self::List(_) => "a list",
            Self::Table(_) | Self::Named(_) => "a table",
            Self::Optional(of) => of.name(),
        }
    }

    /// Checks a value; `at` is its place from the root, with dots and brackets.
    fn check(self, value: &Value, at: &str) -> Result<(), String> {
        let inside = |key: &str| if at.is_empty() { key.to_owned() } else { format!("{at}.{key}") };
        let is_such = match (self, value) {
            (Self::Optional(of), _) => return if value.is_null() { Ok(()) } else { of.check(value, at) },
            (Self::List(of), Value::Array(list)) => {
                return list.iter().enumerate().try_for_each(|(index, one)| of.check(one, &format!("{at}[{index}]")));
            }
            (Self::Named(of), Value::Object(table)) => {
                return table.iter().try_for_each(|(name, one)| of.check(one, &inside(name)));
            }
            (Self::Table(keys), Value::Object(table)) => {
                return keys.iter().try_for_each(|&Key(key, needs)| match (table.get(key), needs) {
                    (Some(one), _) => needs.check(one, &inside(key)),
                    (None, Self::Optional(_)) => Ok(()),
                    (None, _) => Err(format!("missing field `{}`", inside(key))),
                });
            }
            (Self::Text, _) => value.is_string(),
            (Self::Whole, _) => value.is_u64(),
            (Self::Number, _) => value.is_number(),
            (Self::List(_) | Self::Named(_) | Self::Table(_), _) => false,
        };
        let place = if at.is_empty() { "the result".to_owned() } else { format!("`{at}`") };
        if is_such { Ok(()) } else { Err(format!("{place}: expected {}, found {}", self.name(), found(value))) }
    }
}

/// What a value is, in words.
fn found(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "another number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a table",
    }
}

/// Reads a saved result; of `--against` those of the other chips too.
///
/// # Errors
/// What is no JSON, with line and column; what is missing or of another type, with its place; a schema of another version; no runs.
pub(super) fn read(text: &str) -> Result<Vec<Value>, String> {
    let result: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    RESULT.check(&result, "")?;
    if result["schema"] != SCHEMA {
        return Err(format!("schema {}, expected {SCHEMA}", result["schema"]));
    }
    let is_empty = |side: &Value| side["runs"].as_array().is_some_and(Vec::is_empty);
    let further = result["against_further"].as_array().is_some_and(|further| further.iter().any(is_empty));
    if is_empty(&result) || is_empty(&result["against"]) || further {
        return Err("no runs, expected one of every mode".to_owned());
    }
    if let Some(waterfall) = result.get("waterfall").filter(|waterfall| !waterfall.is_null()) {
        let waterfall: Waterfall =
            serde_json::from_value(waterfall.clone()).map_err(|error| format!("`waterfall`: {error}"))?;
        waterfall.check()?;
    }
    Ok(sides(result))
}

/// The results of every chip of a document, the first one first: the page shows each as it shows a result of its own.
pub(super) fn sides(mut first: Value) -> Vec<Value> {
    let Some(object) = first.as_object_mut() else { return vec![first] };
    // The page has the texts of the inputs, and is to be small.
    object.remove("inputs");
    for run in object.get_mut("runs").and_then(Value::as_array_mut).into_iter().flatten() {
        without_draws(run);
    }
    let further = object.get("against_further").and_then(Value::as_array).into_iter().flatten();
    let others: Vec<Value> = object.get("against").into_iter().chain(further).cloned().collect();
    let own: Vec<(&str, Value)> = ["schema", "workload"].map(|key| (key, object[key].clone())).into();
    let further = object.get_mut("against_further").and_then(Value::as_array_mut).into_iter().flatten();
    further.for_each(without_runs);
    object.get_mut("against").into_iter().for_each(without_runs);
    let mut sides = vec![first];
    for mut other in others {
        let Some(side) = other.as_object_mut() else { continue };
        for run in side.get_mut("runs").and_then(Value::as_array_mut).into_iter().flatten() {
            without_draws(run);
        }
        // What compares it with the first stands there.
        for key in ["speedups", "speedups_range", "speedup_notes", "not_like_for_like"] {
            side.remove(key);
        }
        side.extend(own.iter().map(|(key, value)| ((*key).to_owned(), value.clone())));
        sides.push(other);
    }
    sides
}

/// The runs of another chip stand with its own result.
fn without_runs(against: &mut Value) {
    if let Some(against) = against.as_object_mut() {
        against.remove("runs");
    }
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
