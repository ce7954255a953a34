//! Chips of tiles through the program: modes, refusals, explanations, studies and verified plans.

use std::process::{Command, Output};

use serde_json::Value;

fn rdusim(arguments: &str) -> Output {
    let program = env!("CARGO_BIN_EXE_rdusim");
    let arguments = arguments.split(' ');
    Command::new(program).args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).output().expect("the program runs")
}

fn json(arguments: &str) -> Value {
    let output = rdusim(&format!("{arguments} --format json"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Exit code 2, nothing on standard output, and the message.
fn refused(arguments: &str) -> String {
    let output = rdusim(arguments);
    assert_eq!(output.status.code(), Some(2), "{arguments}");
    assert!(output.stdout.is_empty());
    String::from_utf8(output.stderr).expect("text")
}

#[test]
fn every_mode_runs_and_tiles_stand_for_units() {
    let document = json("compare --arch bow --workload gpt13b-mlp-sparse");
    let arch = &document["arch"];
    assert_eq!(
        (arch["kind"].as_str(), arch["pcus"].as_u64(), arch["pmus"].as_u64()),
        (Some("bsp"), Some(1472), Some(1472))
    );
    let runs = document["runs"].as_array().expect("runs");
    assert_eq!(
        runs.iter().map(|run| run["mode"].as_str().unwrap_or("")).collect::<Vec<_>>(),
        ["kbk", "epilogue", "fused"]
    );
    for run in runs {
        assert!(run["bound_cycles"].as_u64() <= run["cycles"].as_u64());
        let parts: f64 = ["compute", "sram", "network", "off_chip", "static"]
            .iter()
            .filter_map(|key| run["energy_j"][key].as_f64())
            .sum();
        let total = run["energy_j"]["total"].as_f64().expect("joules");
        assert!((parts - total).abs() < 1e-9 * total);
        assert_eq!(run["traffic"]["off_chip_read_bytes"], 0);
    }
    // Where no mode moves a byte off chip, the ratio is 1.
    assert_eq!(document["off_chip_traffic_ratio"].as_f64(), Some(1.0));
    let starts: Vec<u64> = runs.iter().filter_map(|run| run["launches"].as_u64()).collect();
    assert_eq!(starts, [3, 2, 1]);
}

#[test]
fn a_sparse_weight_is_worth_something_and_the_dynamic_kernel_less() {
    let fused = |sets: &str| {
        let document = json(&format!("run --arch bow --workload gpt13b-mlp-sparse --mode fused{sets}"));
        document["runs"][0]["time_s"].as_f64().expect("seconds")
    };
    let (known, data, dense) =
        (fused(""), fused(" --set arch.planner.sparse=dynamic"), fused(" --set arch.planner.sparse=dense"));
    assert!(known < data && data < dense, "{known} {data} {dense}");
}

#[test]
fn what_has_no_meaning_is_refused_by_name() {
    for arguments in [
        "map --arch bow --workload relu",
        "run --arch bow --workload relu --mode fused --fidelity cycle",
        "explain --arch bow --workload relu --mapping vendor",
        "verify --arch bow --workload tiny-mlp --mapping vendor",
    ] {
        let message = refused(arguments);
        assert!(message.contains("kind \"bsp\""), "{arguments}: {message}");
    }
    let message = refused("run --arch bow --workload gpt13b-mlp --mode fused --set workload.dims.tokens=32768");
    assert!(message.contains("tile 0 needs") && message.contains("in step `"), "{message}");
    let message = refused("run --arch bow --workload relu --mode fused --set arch.planner.partials=fp8");
    assert!(message.contains("expected one of `fp16`, `fp32`"), "{message}");
}

#[test]
fn explanations_and_studies_take_tiles() {
    let explained = json("explain --arch bow --workload gpt13b-mlp-sparse --mode fused");
    let derivatives = explained["modes"][0]["derivatives"].as_array().expect("derivatives");
    let saved = |resource: &str| {
        let of = derivatives.iter().find(|entry| entry["resource"] == resource).expect("the resource");
        of["saved_s"].as_f64().expect("seconds")
    };
    assert!(saved("link") > 0.0 && saved("sram") > 0.0 && saved("launch") > 0.0);
    let study = json("sweep workloads/studies/tile-memory-exchange.toml");
    let text = study.to_string();
    assert!(study["counts"]["ran"] == 9 && study["counts"]["refused"] == 0, "{text}");
}

#[test]
fn plans_are_verified_on_numbers() {
    let verdict = json("verify --arch bow --workload tiny-mlp");
    assert_eq!(verdict["passed"], true);
    for product in verdict["products"].as_array().expect("products") {
        assert_eq!(product["received_bytes"], product["planned_bytes"]);
        assert!(product["received_bytes"].as_u64() > Some(0));
        assert_eq!(product["slots_with_two_senders"], 0);
    }
    assert!(refused("verify --arch bow --workload gpt13b-mlp").contains("multiply-accumulates"));
}
