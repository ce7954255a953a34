//! A model on one chip: `run` and `pod` time the same graph by the same kernels.

use serde_json::Value;

use crate::serving::rdusim;

/// A phase of a model: name, users, tokens of a prompt or a context.
type Case = (&'static str, u64, u64);

const PHASES: [Case; 3] = [("decode", 32, 1024), ("decode", 1, 1024), ("prefill", 2, 512)];

fn parsed(args: &[&str]) -> Value {
    let output = rdusim(args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Seconds of `run` in mode `fused`, and of the kernels that `pod` counts on one chip of a system with its usual stack.
fn both(chip: &str, system: &str, model: &str, (phase, users, tokens): Case, set: &[&str]) -> [f64; 2] {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("model.toml");
    let file = file.to_str().expect("UTF-8");
    let (users, tokens) = (users.to_string(), tokens.to_string());
    let length = if phase == "decode" { "--context" } else { "--sequence" };
    let written = rdusim(&["model", model, "--phase", phase, "--batch", &users, length, &tokens, "-o", file]);
    assert!(written.status.success(), "{model}: {}", String::from_utf8_lossy(&written.stderr));
    let run = [&["run", "--arch", chip, "--workload", file, "--mode", "fused", "--format", "json"], set].concat();
    let alone = parsed(&run)["runs"][0]["time_s"].as_f64().expect("seconds");
    let pod = ["pod", system, "--model", model, "--phase", phase, "--batch", &users, "--seq", &tokens];
    let served = parsed(&[&pod[..], &["--parallel", "tp=1", "--format", "json"]].concat());
    let time = &served["time_s"];
    // What a pod adds is the host, which is told apart.
    let of = |key: &str| time[key].as_f64().expect("seconds");
    let told: f64 = time.as_object().expect("parts").values().filter_map(Value::as_f64).sum();
    assert!((told - of("compute") - of("other")).abs() < 1e-12, "{model}: {time}");
    [alone, of("compute")]
}

fn check(chip: (&str, &str), models: &[&str], phases: &[Case], set: &[&str]) {
    for model in models {
        for &case in phases {
            let [alone, served] = both(chip.0, chip.1, model, case, set);
            assert!((alone / served - 1.0).abs() < 1e-6, "{model} on {}, {case:?}: {alone} s and {served} s", chip.0);
        }
    }
}

/// Full and grouped heads, biases, tied tables, norms of heads, a recurrence, experts and windows; matrices of 16, 8 and 4 bits.
#[test]
fn a_gpu_alone_takes_as_long_as_a_pod_of_one() {
    let models = ["gpt2", "gpt2-xl", "llama2-7b", "llama3-8b", "mistral-7b", "qwen3-8b", "mamba2-2.7b"];
    check(("h100", "dgx-h100"), &models, &PHASES, &[]);
    let others = ["llama-3.1-8b-fp8", "qwen3-30b-a3b", "qwen3-30b-a3b-fp8", "gpt-oss-20b"];
    check(("h100", "dgx-h100"), &others, &PHASES, &[]);
    check(("a100", "dgx-a100"), &["gpt2", "llama3-8b", "gpt-oss-20b"], &PHASES, &[]);
    check(("b200", "dgx-b200"), &["qwen3-32b-fp8", "gemma-4-31b"], &PHASES, &[]);
}

/// Programs of systolic arrays.
#[test]
fn a_chip_of_systolic_arrays_alone_takes_as_long_as_a_pod_of_one() {
    let phases = [("decode", 8, 512), ("prefill", 1, 512)];
    check(("tpu-v6e", "tpu-v6e-256"), &["gpt2", "gpt2-xl", "llama-3.2-1b", "mamba2-2.7b"], &phases, &[]);
    check(("gaudi3", "gaudi3-8"), &["llama3-8b", "qwen3-30b-a3b", "gpt-oss-20b"], &phases, &[]);
}

/// As a pod's stack launches, and with its effort. (Llama's heads are grouped: a pod also tries their queries as rows of one product.)
const AS_SERVED: [&str; 4] = ["--effort", "quick", "--set", "arch.launch.orchestration=\"hardware\""];

#[test]
fn an_rdu_alone_takes_as_long_as_a_pod_of_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("config.json");
    let text =
        r#"{ "model_type": "gpt2", "n_embd": 256, "n_layer": 4, "n_head": 4, "n_positions": 512, "vocab_size": 4096 }"#;
    std::fs::write(&file, text).expect("a file");
    let phases = [("decode", 8, 256), ("prefill", 1, 256)];
    check(("sn40l", "sn40l-16"), &[file.to_str().expect("UTF-8")], &phases, &AS_SERVED);
}

#[test]
#[ignore = "depth: whole models"]
fn whole_models_on_an_rdu_take_as_long_as_on_a_pod_of_one() {
    let phases = [("decode", 8, 512), ("decode", 1, 512), ("prefill", 1, 512)];
    check(("sn40l", "sn40l-16"), &["gpt2"], &[phases[0], phases[2]], &AS_SERVED);
    check(("sn40l", "sn40l-16"), &["gpt2-xl", "llama-3.2-1b"], &phases, &AS_SERVED);
    check(("sn40l", "sn40l-16"), &["llama3-8b"], &phases[1..2], &AS_SERVED);
}
