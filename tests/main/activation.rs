//! Activation sparsity through the program: active neurons of a feed-forward block, and 2:4 activations.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

fn rdusim(arguments: &str) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rdusim"));
    let output = command.current_dir(env!("CARGO_MANIFEST_DIR")).args(arguments.split_whitespace()).output();
    let output = output.expect("rdusim runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("is text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[track_caller]
fn json(arguments: &str) -> Value {
    let (code, stdout, stderr) = rdusim(&format!("{arguments} --format json"));
    assert_eq!(code, Some(0), "{arguments}: {stderr}");
    serde_json::from_str(&stdout).expect("is JSON")
}

fn run_of<'r>(document: &'r Value, mode: &str) -> &'r Value {
    document["runs"].as_array().and_then(|runs| runs.iter().find(|run| run["mode"] == mode)).expect("the mode ran")
}

fn count(of: &Value) -> u64 {
    of.as_u64().unwrap_or_else(|| panic!("a count, not {of}"))
}

fn read_bytes(run: &Value, tensor: &str) -> u64 {
    count(&run["traffic"]["by_tensor"][tensor]["off_chip_read_bytes"])
}

/// A token with 2,048 of 20,480 neurons active: `w_down` comes as 2,048 rows of 10,240 B and a bit for each neuron, `w_up` whole.
/// Nothing beats launch + bytes at 1.8 TB/s, and the run is within 4 % of it: a latency, the last rows' products, the result.
#[test]
fn a_token_reads_the_rows_of_its_active_neurons() {
    let (row, rows, index, whole) = (10_240u64, 2048, 2560, 20_480 * 10_240);
    let document = json("compare --arch sn40l --workload gpt13b-mlp-relu");
    for mode in ["kbk", "epilogue", "fused"] {
        let run = run_of(&document, mode);
        assert_eq!(read_bytes(run, "w_down"), rows * row + index, "{mode}");
        assert_eq!(read_bytes(run, "w_up"), whole, "{mode}");
        assert!(count(&run["cycles"]) >= count(&run["bound_cycles"]));
    }
    let fused = run_of(&document, "fused");
    let moved = row + whole + rows * row + index + row;
    assert_eq!(count(&fused["traffic"]["off_chip_read_bytes"]), moved - row);
    // 1.8 TB/s at 1.6 GHz are 1,125 B a cycle; a launch takes 24 us.
    let bound = 38_400 + moved.div_ceil(1125);
    let cycles = count(&fused["cycles"]);
    assert!(cycles >= bound && cycles as f64 <= bound as f64 * 1.04, "{cycles} over {bound}");
    // All of the weights lie in memory, and count as parameters.
    assert_eq!(count(&document["workload"]["parameters"]), 2 * 5120 * 20_480);
    let tier = "arch.memory.ddr.capacity_bytes=300000000";
    let (code, _, message) = rdusim(&format!("run --mode fused --arch sn10 --workload gpt13b-mlp-relu --set {tier}"));
    assert_eq!(code, Some(2));
    assert!(message.contains("`w_down` needs 200.00 MiB off chip"), "{message}");
    // The same on a GPU, whose kernel reads the rows.
    let on_gpu = json("run --mode fused --arch a100 --workload gpt13b-mlp-relu");
    assert_eq!(read_bytes(run_of(&on_gpu, "fused"), "w_down"), rows * row + index);
    assert!(on_gpu.to_string().contains("weights 400.00 MiB"), "{on_gpu}");
}

/// A predictor spares columns of the first weight too, the same neurons; with all neurons active for some token nothing is spared.
#[test]
fn a_predictor_spares_both_weights() {
    let small = "--arch sn40l --workload gpt13b-mlp-predicted --set workload.dims.rank=64 --set workload.dims.d_model=512 \
                 --set workload.dims.d_ff=2048";
    let document = json(&format!("run --mode fused {small}"));
    let fused = run_of(&document, "fused");
    // 205 of 2,048 neurons of 512 elements, and a bit for each of all.
    assert_eq!(read_bytes(fused, "w_up"), 205 * 1024 + 256);
    assert_eq!(read_bytes(fused, "w_down"), 205 * 1024 + 256);
    let all = "workload.tensors.w_up.sparsity.density=1 --set workload.tensors.w_down.sparsity.density=1";
    let document = json(&format!("run --mode fused {small} --set {all}"));
    assert_eq!(read_bytes(run_of(&document, "fused"), "w_down"), 2048 * 1024);
    let differ = "check --workload gpt13b-mlp-predicted --set workload.tensors.w_up.sparsity.density=0.2";
    let (code, _, message) = rdusim(differ);
    assert_eq!(code, Some(2));
    assert!(
        message.contains("\"w_up\" and \"w_down\" have the neurons \"ffn\", and draw them in two ways"),
        "{message}"
    );
}

const SMALL: &str = "--set workload.dims.d_model=256 --set workload.dims.d_ff=1024 --set workload.dims.tokens=4";

#[test]
fn numbers_are_right_and_the_engines_agree() {
    let small = format!("--arch sn40l --workload gpt13b-mlp-predicted --set workload.dims.rank=64 {SMALL}");
    let (code, stdout, stderr) = rdusim(&format!("verify {small}"));
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stdout.ends_with("verified\n"), "{stdout}");
    let cycles = |fidelity: &str| {
        let document = json(&format!("compare {small} --fidelity {fidelity}"));
        ["kbk", "epilogue", "fused"].map(|mode| count(&run_of(&document, mode)["cycles"]))
    };
    for (event, cycle) in cycles("event").into_iter().zip(cycles("cycle")) {
        assert!(event.abs_diff(cycle) as f64 <= 0.02 * cycle as f64, "{event}, {cycle}");
    }
}

#[test]
fn active_neurons_are_not_trained() {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads/gpt13b-mlp-relu.toml"));
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("trained.toml");
    std::fs::write(&file, text.expect("the file") + "\n[training]\noptimizer = \"sgd\"\n").expect("written");
    let (code, _, message) = rdusim(&format!("check --workload {}", file.display()));
    assert_eq!(code, Some(2));
    assert!(message.contains("active neurons are selected for inference alone"), "{message}");
}

/// 2:4 activations move 9/16 of their bf16 bytes and multiply at up to twice the rate on tensor cores with that mode; pruning takes four
/// operations an element on the vector lanes. Elsewhere nothing changes, and a note says so.
#[test]
fn gpus_multiply_two_of_four_activations_in_their_mode() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let dense = std::fs::read_to_string(root.join("workloads/gpt13b-mlp.toml")).expect("the file");
    let dense = dense.replace("kind = \"gelu\"", "kind = \"relu\"");
    let directory = tempfile::tempdir().expect("a directory");
    let run = |arch: &str, activation: &str| {
        let file = directory.path().join("mlp.toml");
        std::fs::write(&file, format!("{dense}{activation}")).expect("written");
        json(&format!("run --mode fused --arch {arch} --workload {} --set workload.dims.tokens=2048", file.display()))
    };
    let two_of_four = "\n[[tensors]]\nname = \"g\"\nactivation_sparsity = { n = 2, m = 4 }\n";
    let (plain, pruned) = (run("a100", ""), run("a100", two_of_four));
    let [plain, pruned] = [&plain, &pruned].map(|document| run_of(document, "fused"));
    let written = |run: &Value| count(&run["traffic"]["by_tensor"]["g"]["off_chip_write_bytes"]);
    assert_eq!((written(plain), written(pruned)), (2048 * 20_480 * 2, 2048 * 20_480 * 2 / 16 * 9));
    let section = |run: &Value, at: usize| count(&run["sections"][at]["cycles"]);
    let gain = section(plain, 1) as f64 / section(pruned, 1) as f64;
    assert!(gain > 1.2 && gain < 2.0, "{gain}");
    // The product before it prunes in its epilogue: 2048 x 20,480 x 4 operations on 108 x 64 lanes, less what it writes less.
    let pass = (2048.0 * 20_480.0 * 4.0 / (108.0 * 64.0)) as u64;
    let (longer, shorter) = (section(pruned, 0), section(plain, 0));
    assert!(longer > shorter && longer <= shorter + pass + 1, "{longer}, {shorter} and {pass}");
    assert!(count(&pruned["cycles"]) >= count(&pruned["bound_cycles"]));
    let (plain, pruned) = (run("sn40l", ""), run("sn40l", two_of_four));
    let told = "the activation sparsity of `g` is not used";
    assert_eq!(run_of(&plain, "fused")["cycles"], run_of(&pruned, "fused")["cycles"]);
    assert!(pruned.to_string().contains(told) && !plain.to_string().contains(told));
}

#[test]
fn the_mask_of_active_neurons_is_shown_as_it_is_stored() {
    let shown = json("sparsity workloads/gpt13b-mlp-predicted.toml --key w_up");
    assert_eq!((&shown["chosen"], shown["formats"].as_array().map(Vec::len)), (&"bitmap".into(), Some(1)));
    assert_eq!((count(&shown["formats"][0]["metadata_bytes"]), count(&shown["stored_elements"])), (2560, 2048 * 5120));
}
