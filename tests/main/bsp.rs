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
        "map --arch bow --workload relu --fidelity cycle",
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

/// A layer of GPT-13B with embedding and logits, forward.
fn layer(directory: &std::path::Path) -> String {
    let output = rdusim("model gpt-13b --dtype fp16 --sequence 2048 --layers 1");
    let path = directory.join("layer.toml");
    std::fs::write(&path, output.stdout).expect("a file");
    path.display().to_string()
}

#[test]
fn a_layer_that_is_larger_than_the_tiles_streams_every_weight_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let workload = layer(directory.path());
    let mut before: Option<f64> = None;
    for io_tiles in [0, 64, 256] {
        let run =
            json(&format!("run --arch gc200 --workload {workload} --mode fused --set arch.tile.io_tiles={io_tiles}"));
        let run = &run["runs"][0];
        let (read, time) = (run["traffic"]["off_chip_read_bytes"].as_f64(), run["time_s"].as_f64());
        // The layer's matrices, the table for the logits, and the rows that are looked up of both tables.
        let (hidden, tokens, rows) = (5120.0, 2048.0, 50257.0);
        let expected = 2.0 * (12.0 * hidden * hidden + 2.0 * tokens * hidden + rows * hidden);
        let read = read.expect("bytes");
        assert!((read / expected - 1.0).abs() < 0.02, "{read} read, {expected} expected");
        let time = time.expect("seconds");
        // The link alone takes so long, and what is hidden behind computation shortens the rest.
        assert!(time >= read / 16e9);
        if let Some(before) = before {
            assert!(time < before, "{io_tiles} I/O tiles: {time}, {before} before");
        }
        before = Some(time);
    }
}

#[test]
fn weights_of_a_subgraph_come_together_and_once() {
    let run = |operators: u64, more: &str| {
        let sets = "--set workload.dims.tokens=1024 --set workload.dims.batch=1 --set workload.dims.layers=48 \
                    --set workload.training.activations=recomputed --set arch.tile.io_tiles=32";
        let run = json(&format!(
            "run --arch bow --workload gpt2-xl-training --mode fused {sets} --set arch.planner.subgraph_operators={operators}{more}"
        ));
        let run = &run["runs"][0];
        let most = run["sections"].as_array().expect("sections").iter().filter_map(|of| of["sram_peak_bytes"].as_u64());
        (run["traffic"]["off_chip_read_bytes"].as_u64().expect("bytes"), most.max().expect("sections"))
    };
    let ((alone, least), (together, most)) = (run(1, ""), run(32, ""));
    // The backward pass computes a layer again and then its gradients: many of its weights come once in place of twice.
    assert!((together as f64) < 0.98 * alone as f64, "{together} and {alone}");
    // All of them take memory together.
    assert!(most > least, "{most} and {least}");
}

#[test]
fn maps_show_all_tiles_of_a_step() {
    let directory = tempfile::tempdir().expect("a directory");
    let out = directory.path().display().to_string();
    let map = json(&format!("map --arch bow --workload gpt13b-mlp-sparse --out {out}"));
    assert_eq!(map["arch"]["tiles"], 1472);
    for operator in map["operators"].as_array().expect("operators") {
        for step in operator["steps"].as_array().expect("steps") {
            for of in ["cycles_by_tile", "bytes_by_tile"] {
                let tiles: u64 = step[of].as_array().expect("runs").iter().filter_map(|run| run[1].as_u64()).sum();
                assert_eq!(tiles, 1472, "{}", step["name"]);
            }
            let busiest =
                step["cycles_by_tile"].as_array().expect("runs").iter().filter_map(|run| run[0].as_u64()).max();
            assert!(busiest <= step["cycles"].as_u64(), "{step}");
        }
    }
    // Tiles differ as the mask does.
    let multiply = &map["operators"][0]["steps"][0];
    assert!(multiply["cycles_by_tile"].as_array().expect("runs").len() > 10);
    assert!(multiply["balance"].as_f64() < Some(1.0) && multiply["balance"].as_f64() > Some(0.5));
    let mut files: Vec<String> = std::fs::read_dir(directory.path())
        .expect("files")
        .map(|file| file.expect("a file").file_name().to_string_lossy().into_owned())
        .collect();
    files.sort();
    let pictures = files.iter().filter(|name| name.contains(".png")).count();
    assert!(files.contains(&"map.json".to_owned()) && pictures == 2, "{files:?}");
    let text = rdusim("map --arch bow --workload tiny-mlp --mode kbk");
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("take layout") && text.contains("tile memory"), "{text}");
    assert!(refused("map --arch bow --workload tiny-mlp --step nothing").contains("no operator or step"));
    assert!(refused("map --arch sn10 --workload tiny-mlp --step up").contains("`--step` is for chips of tiles"));
    assert!(refused("map --arch bow --workload tiny-mlp --save-config x.toml").contains("is for RDUs"));
}

#[test]
fn a_softmax_larger_than_memory_runs_in_parts() {
    let directory = tempfile::tempdir().expect("a directory");
    let workload = layer(directory.path());
    let run = json(&format!("run --arch gc200 --workload {workload} --mode fused"));
    let stages = run["runs"][0]["sections"].as_array().expect("sections").iter();
    let stages: Vec<&Value> = stages.filter_map(|section| section["stages"].as_array()).flatten().collect();
    let of = |name: &str| {
        let stage = stages.iter().find(|stage| stage["operators"][0] == name).expect("the stage");
        stage["mapping"].as_str().expect("words").to_owned()
    };
    assert!(of("softmax").contains("parts"), "{}", of("softmax"));
    let room = json(&format!("run --arch gc200 --workload {workload} --mode fused --set arch.tile.sram_bytes=4000000"));
    assert_eq!(room["runs"][0]["traffic"]["off_chip_read_bytes"], 0);
    assert!(room["runs"][0]["cycles"].as_u64() < run["runs"][0]["cycles"].as_u64());
}

#[test]
fn tables_of_exchanges_are_compared_in_their_own_units() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("exchanges.csv");
    let text = "# source: by hand\ntable,metric,case,tiles_or_transfers,value,unit\n\
                1,\"p2p latency, idle\",on-chip,1,0.133,us\n1,\"bandwidth of p2p under load, per transfer\",on-chip,1216,6.4,GB/s\n\
                2,gather of one word latency,on-chip,1216,0.925,us\n2,\"all to all, latency\",on-chip,608,0.544,us\n\
                3,reduction latency,\"across boards, no direct IPU link\",1216,1.6,us\n4,GEMM FP32 best,square 512,512,8,TFLOP/s\n";
    std::fs::write(&file, text).expect("a file");
    let path = file.to_str().expect("a path");
    let run = json(&format!("validate --data {path} --arch gc2"));
    let rows = run["sets"][0]["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 6);
    for row in &rows[..4] {
        assert!(row["error"].as_f64().expect("an error").abs() < 0.01, "{row}");
    }
    for arch in ["bow", "sn10"] {
        let output = rdusim(&format!("validate --data {path} --arch {arch}"));
        assert_eq!(output.status.code(), Some(2), "{arch} has no such paths");
    }
}
