//! Chips of systolic arrays and wafers, through the binary: training steps of sparse layers that are repeated.

use rdusim::input::{BUILTINS, FileKind};
use serde_json::Value;

use crate::first_steps::rdusim;

/// A training step of three layers, of whose weights an eighth is stored, in each mode.
fn trained(arch: &str) -> Vec<Value> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let size =
        "--layers 3 --hidden 256 --heads 4 --ffn 1024 --vocabulary 512 --sequence 64 --sparsity 0.875 --block 16";
    let words = format!("model gpt --phase training --optimizer adam {size} -o layers.toml");
    let (code, _, stderr) = rdusim(directory.path(), &words.split(' ').collect::<Vec<_>>());
    assert_eq!(code, Some(0), "{stderr}");
    let words = format!("compare --arch {arch} --workload layers.toml --format json");
    let (code, stdout, stderr) = rdusim(directory.path(), &words.split(' ').collect::<Vec<_>>());
    assert_eq!(code, Some(0), "{stderr}");
    let json: Value = serde_json::from_str(&stdout).expect("JSON");
    json["runs"].as_array().expect("runs").clone()
}

/// Bytes read and written of tensors whose names begin so.
fn moved(run: &Value, begins: &str) -> (u64, u64) {
    let tensors = run["traffic"]["by_tensor"].as_object().expect("tensors");
    let of = |key: &str| {
        let named = tensors.iter().filter(|(name, _)| name.starts_with(begins));
        named.map(|(_, bytes)| bytes[key].as_u64().expect("bytes")).sum()
    };
    (of("off_chip_read_bytes"), of("off_chip_write_bytes"))
}

fn holds_its_laws(run: &Value) {
    let number = |value: &Value| value.as_u64().expect("a number");
    assert!(number(&run["bound_cycles"]) <= number(&run["cycles"]), "{} of {}", run["bound_cycles"], run["cycles"]);
    let sections: u64 =
        run["sections"].as_array().expect("sections").iter().map(|section| number(&section["cycles"])).sum();
    assert_eq!(sections, number(&run["cycles"]));
}

#[test]
fn what_layers_keep_for_the_backward_phase_does_not_stay_in_a_buffer() {
    let runs = trained("tpu-v4");
    runs.iter().for_each(holds_its_laws);
    // Gradients of the three matrices go from the backward phase to the update, which takes the eighth that is stored.
    let (read, written) = moved(&runs[2], "d_w_down");
    assert!(written >= 3 * 256 * 1024 * 2 && read >= written / 8, "{read} read, {written} written");
}

#[test]
fn weights_stream_over_a_wafer_forward_and_backward_and_gradients_leave() {
    let runs = trained("cs2");
    runs.iter().for_each(holds_its_laws);
    // An eighth of 256 x 1,024 in three layers, two bytes of value and two of index.
    let stored = 3 * 256 * 1024 / 8 * 4;
    let (read, written) = moved(&runs[2], "w_down");
    assert_eq!((read, written), (2 * stored, 0));
    let (read, written) = moved(&runs[2], "d_w_down");
    assert_eq!((read, written), (0, stored));
}

/// A Llama of one small layer, as a `config.json`: RDUs search for the mapping of every stage.
const SMALL: &str = r#"{"model_type":"llama","hidden_size":256,"num_hidden_layers":1,"num_attention_heads":8,
    "num_key_value_heads":4,"intermediate_size":512,"max_position_embeddings":2048,"vocab_size":500}"#;

/// What a pod takes for a phase; `small.json` is [`SMALL`].
fn on_pod(words: &str, phase: &str) -> Value {
    let directory = tempfile::tempdir().expect("a temporary directory");
    std::fs::write(directory.path().join("small.json"), SMALL).expect("a file");
    let words = format!("pod {words} --phase {phase} --format json");
    let (code, stdout, stderr) = rdusim(directory.path(), &words.split(' ').collect::<Vec<_>>());
    assert_eq!(code, Some(0), "{stderr}");
    serde_json::from_str(&stdout).expect("JSON")
}

/// A step of training on many chips.
fn step(words: &str) -> Value {
    on_pod(words, "training")
}

fn seconds(step: &Value, part: &str) -> f64 {
    if part == "step" { &step["step_s"] } else { &step["time_s"][part] }.as_f64().expect("seconds")
}

#[test]
fn a_cube_of_systolic_arrays_reduces_gradients_on_its_torus() {
    let run = |parallel: &str, batch: u64| {
        step(&format!("tpu-v4-64 --model gpt2 --seq 256 --stack xla --batch {batch} --parallel {parallel}"))
    };
    let (one, all) = (run("dp=1", 1), run("dp=64", 64));
    assert!((seconds(&one, "compute") / seconds(&all, "compute") - 1.0).abs() < 1e-9);
    // 2 (n - 1) / n of 2 bytes a parameter over six links of 45 GB/s, of which 0.9 are sustained, at least.
    let least = 2.0 * 63.0 / 64.0 * 2.0 * 124.4e6 / (6.0 * 45e9 * 0.9);
    assert!((least..4.0 * least).contains(&seconds(&all, "data_comm_exposed")), "{least} {}", all["time_s"]);
    // Tensor ranks exchange sums, and the parts of time add up.
    let tensor = run("tp=4,dp=16", 64);
    assert!(seconds(&tensor, "tensor_comm_exposed") > 0.0);
    for step in [&one, &all, &tensor] {
        let parts: f64 = step["time_s"].as_object().expect("parts").values().filter_map(Value::as_f64).sum();
        assert!((parts / seconds(step, "step") - 1.0).abs() < 1e-6, "{parts}");
        assert!(seconds(step, "step") >= step["bound_s"].as_f64().expect("a bound"));
    }
}

#[test]
fn wafers_take_their_share_of_a_batch_and_wait_a_little_longer_for_weights() {
    let run = |dp: u64| {
        step(&format!("cs2-cluster --model gpt2 --seq 512 --batch {} --micro-batch 8 --parallel dp={dp}", 8 * dp))
    };
    let (one, sixteen) = (run(1), run(16));
    let ratio = seconds(&sixteen, "step") / seconds(&one, "step");
    assert!(ratio > 1.0 && ratio < 1.2, "{ratio}");
    assert!(seconds(&sixteen, "data_comm_exposed").abs() < 1e-12);
    // Every pass streams all weights in, and the gradients out behind them: 124 M of 2 bytes three times over 150 GB/s.
    assert!(seconds(&one, "step") > 3.0 * 2.0 * 124.4e6 / 150e9);
    // Of the layers that are computed again only their inputs are kept, so that so large a batch fits.
    let large = step("cs2-cluster --model gpt-13b --batch 12 --micro-batch 12 --seq 2048 --parallel recompute=full");
    assert!(large["mfu"].as_f64().expect("a share") > 0.02);
    for step in [&one, &sixteen, &large] {
        let parts: f64 = step["time_s"].as_object().expect("parts").values().filter_map(Value::as_f64).sum();
        assert!((parts / seconds(step, "step") - 1.0).abs() < 1e-6, "{parts}");
        assert!(seconds(step, "step") >= step["bound_s"].as_f64().expect("a bound"));
    }
}

#[test]
fn every_shipped_chip_runs_a_small_block() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for file in BUILTINS.iter().filter(|file| file.kind == FileKind::Chip) {
        let words = format!("run --mode fused --arch {} --workload tiny-mlp --format json", file.name);
        let (code, stdout, stderr) = rdusim(directory.path(), &words.split(' ').collect::<Vec<_>>());
        assert_eq!(code, Some(0), "{}: {stderr}", file.name);
        let json: Value = serde_json::from_str(&stdout).expect("JSON");
        holds_its_laws(&json["runs"][0]);
    }
}

#[test]
fn newer_systems_train_or_serve_as_their_kinds_do() {
    let trained = [
        ("tpu-v5e-256", "xla", "tp=4,dp=64", 64),
        ("tpu-v5p-64", "xla", "tp=4,dp=16", 16),
        ("tpu-v6e-256", "xla", "dp=256", 256),
        ("tpu-v7-64", "xla", "tp=4,dp=16", 16),
        ("gaudi3-8", "xla", "tp=4,dp=4", 16),
        ("cs3-cluster", "weight-streaming", "dp=4", 32),
        ("gb200-nvl72", "flash", "tp=4,dp=18", 72),
        ("dgx-b300", "flash", "tp=4,dp=2", 8),
        ("mi300x-8", "flash", "tp=4,dp=2", 8),
    ];
    for (system, stack, parallel, batch) in trained {
        trains(&format!("{system} --model gpt2 --seq 256 --stack {stack} --batch {batch} --parallel {parallel}"));
    }
    trains("sn50-16 --model small.json --seq 64 --stack rdu --batch 1 --parallel tp=4");
    for system in ["gb200-nvl72", "dgx-b300", "mi300x-8"] {
        serves(&format!("{system} --model llama3-8b --batch 4 --seq 1024 --parallel tp=4"), 7.5e9);
    }
    // Four products of 256 x 256 and three of 256 x 512, keys and values of half the heads; and the head.
    let weights = 256.0 * (3.0 * 256.0 + 3.0 * 512.0 + 500.0);
    serves("sn50-16 --model small.json --batch 4 --seq 64 --parallel tp=4", weights);
}

#[test]
#[ignore = "depth: models of full size on RDUs"]
fn a_newer_system_of_rdus_trains_and_serves_full_sizes() {
    trains("sn50-16 --model gpt2 --seq 256 --stack rdu --batch 8 --parallel tp=4");
    serves("sn50-16 --model llama3-8b --batch 4 --seq 1024 --parallel tp=4", 7.5e9);
}

/// The parts of a step add up, and it is above its bound.
fn trains(words: &str) {
    let step = step(words);
    let parts: f64 = step["time_s"].as_object().expect("parts").values().filter_map(Value::as_f64).sum();
    assert!((parts / seconds(&step, "step") - 1.0).abs() < 1e-6, "{words}: {parts}");
    assert!(seconds(&step, "step") >= step["bound_s"].as_f64().expect("a bound"), "{words}");
}

/// A token reads a quarter of the weights on each of four chips, at no more than the pins of the fastest of the shipped memories.
fn serves(words: &str, weights: f64) {
    let served = on_pod(words, "decode");
    let least = weights * 2.0 / 4.0 / 8e12;
    assert!(served["token_s"].as_f64().expect("seconds") > least, "{words}: {}", served["token_s"]);
}

#[test]
fn what_other_chips_do_is_refused_by_name() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let wafers = ["tp=2", "pp=2", "dp=2,zero=1", "offload=optimizer", "recompute=full,schedule=phased:2"];
    let arrays = [
        "schedule=zb-h1,pp=2",
        "recompute=selective",
        "recompute=full,schedule=phased:2",
        "tp2=2,tp=2",
        "seq_chunks=2",
    ];
    let cases = wafers.map(|keys| ("cs2-cluster", keys)).into_iter().chain(arrays.map(|keys| ("tpu-v4-64", keys)));
    for (system, keys) in cases {
        let words = format!("pod {system} --model gpt2 --phase training --batch 8 --parallel {keys}");
        let (code, stdout, stderr) = rdusim(directory.path(), &words.split(' ').collect::<Vec<_>>());
        assert!(code == Some(2) && stdout.is_empty() && stderr.contains("error: "), "{system} {keys}: {stderr}");
    }
    // A search offers nothing that is refused.
    let found = step("cs2-cluster --model gpt2 --batch 8 --seq 128 --chips 4 --search");
    for candidate in found["candidates"].as_array().expect("candidates") {
        assert_eq!(candidate["parallel"]["zero"], 0, "{candidate}");
        assert_eq!(candidate["parallel"]["tp"], 1, "{candidate}");
    }
}
