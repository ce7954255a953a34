//! Kinds of results that have a sheet, told apart by their keys.

use indexmap::IndexMap;
use serde_json::Value;

use super::sheet::Sheet;
use super::{checks, crossings, fleets, maps, masks, pods, traffic_curve};

/// The sheet of a result; nothing of runs of a workload, and of what is no JSON object.
pub(super) fn read(text: &str) -> Option<Result<Sheet, String>> {
    // What is no object, and what is no JSON, is refused as a result of runs would be.
    let keys: IndexMap<String, Value> = serde_json::from_str(text).ok()?;
    let has = |key: &str| keys.contains_key(key);
    let phase = keys.get("phase").and_then(Value::as_str);
    Some(match phase {
        Some("training") if has("candidates") => pods::search(text),
        Some("training") => pods::training(text),
        Some("prefill" | "decode") => pods::serving(text),
        Some("requests") if has("divisions") => fleets::fleet(text),
        Some("requests") => pods::requests(text),
        _ if has("points") && has("sram_bytes") => traffic_curve::traffic_curve(text),
        _ if has("modes") && has("fidelity") => checks::explanation(text),
        _ if has("axis") && has("points") && has("why") => crossings::crossing(text),
        _ if has("certificate") => checks::certificate(text),
        _ if has("passed") && has("max_rel_error") => checks::verification(text),
        _ if has("passed") && has("products") => checks::verification_of_tiles(text),
        _ if has("sets") && !has("arch") => checks::validation(text),
        _ if has("mode") && has("sections") => maps::of_grid(text),
        _ if has("mode") && has("operators") => maps::of_tiles(text),
        _ if has("mask_block") && has("statistics") => masks::mask(text),
        _ => return None,
    })
}
