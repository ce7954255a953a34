//! What results record of their inputs, and what `diff` makes of it.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::first_steps::rdusim;

const RUN: &str = "run --arch plasticine --workload tiny-mlp --mode fused";

#[track_caller]
fn succeeds(directory: &Path, words: &str) -> String {
    let (code, stdout, stderr) = rdusim(directory, &words.split(' ').collect::<Vec<_>>());
    assert_eq!(code, Some(0), "{words}: {stderr}");
    stdout
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

#[test]
fn a_result_records_what_it_was_run_on() {
    let room = tempfile::tempdir().expect("a temporary directory");
    let at = room.path();
    let more = "--set workload.dims.tokens=64 --set arch.memory.ddr.bandwidth_gb_per_s=80 --seed 3 --out out";
    let printed = succeeds(at, &format!("{RUN} {more} --format json"));
    assert_eq!(printed, fs::read_to_string(at.join("out/result.json")).expect("a file"));
    let inputs = &json(&printed)["inputs"];
    assert_eq!(inputs["workload"]["dims.tokens"], 64);
    assert_eq!(inputs["arch"]["memory.ddr.bandwidth_gb_per_s"], 80);
    assert_eq!(inputs["options"], json(r#"{"effort": "normal", "fidelity": "event", "mapping": "ideal", "seed": 3}"#));
    // The page of a saved result is the page of the run, whose inputs are texts.
    succeeds(at, "report out/result.json --out page.html");
    let page = fs::read_to_string(at.join("page.html")).expect("a file");
    assert!(!page.contains("memory.ddr.bandwidth_gb_per_s\":80"));
}

#[test]
fn diff_names_every_field_that_differs() {
    let room = tempfile::tempdir().expect("a temporary directory");
    let at = room.path();
    let save = |name: &str, more: &str| {
        fs::write(at.join(name), succeeds(at, &format!("{RUN} --format json{more}"))).expect("a temporary file");
    };
    save("a.json", "");
    save("b.json", " --set workload.dims.tokens=48 --set arch.memory.ddr.latency_ns=99 --effort quick");
    let found = json(&succeeds(at, "diff a.json b.json --format json"));
    let fields: Vec<&str> =
        found["inputs"].as_array().expect("a list").iter().filter_map(|change| change["field"].as_str()).collect();
    assert_eq!(fields[..3], ["arch.memory.ddr.latency_ns", "workload.dims.tokens", "options.effort"]);
    assert!(fields[3..].iter().all(|field| field.ends_with("_flops")), "{fields:?}");
    assert_eq!(found["inputs_recorded"], json("[true, true]"));
    let text = succeeds(at, "diff a.json b.json");
    assert!(text.contains("arch.memory.ddr.latency_ns"), "{text}");
    assert!(succeeds(at, "diff a.json a.json").ends_with("\nNothing differs.\n"));

    // As a result of an earlier version is.
    let mut old = json(&fs::read_to_string(at.join("a.json")).expect("a file"));
    old.as_object_mut().expect("an object").remove("inputs");
    fs::write(at.join("old.json"), old.to_string()).expect("a temporary file");
    let text = succeeds(at, "diff old.json b.json");
    assert!(text.contains("A does not record the fields of its inputs"), "{text}");
    assert!(text.contains("workload.dense_flops") && !text.contains("arch.memory.ddr.latency_ns"), "{text}");
}
