//! `rdusim pod --search`, zero-bubble and asynchronous schedules through the binary.

use std::process::{Command, Output};

use serde_json::Value;

fn rdusim(more: &[&str]) -> Output {
    let system = ["pod", "arch/systems/dgx-a100.toml", "--phase", "training", "--stack", "flash"];
    Command::new(env!("CARGO_BIN_EXE_rdusim")).args(system).args(more).output().expect("the binary runs")
}

fn object(more: &[&str]) -> Value {
    let output = rdusim(&[more, &["--format", "json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("an object")
}

fn refused(more: &[&str]) -> String {
    let output = rdusim(more);
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const SMALL: [&str; 4] = ["--model", "gpt2", "--batch", "16"];

#[test]
fn a_search_prints_the_best_step_and_its_candidates() {
    let arguments = [&SMALL[..], &["--search", "--chips", "8", "--parallel", "recompute=none"]].concat();
    let found = object(&arguments);
    let candidates = found["candidates"].as_array().expect("candidates");
    let first = &candidates[0];
    assert_eq!(first["step_s"], found["step_s"]);
    assert_eq!(first["parallel"], found["parallel"]);
    assert_eq!(found["system"]["chips"], 8);
    assert_eq!(found["parallel"]["recompute"], "none");
    let steps: Vec<f64> = candidates.iter().take(10).map(|of| of["step_s"].as_f64().expect("simulated")).collect();
    assert!(steps.is_sorted(), "{steps:?}");
    for of in candidates {
        let p = |key: &str| of["parallel"][key].as_u64().expect("a count");
        assert_eq!(p("tp") * p("pp") * p("dp"), 8);
        assert!(of["why"].as_str().is_some_and(|why| !why.is_empty()) && of["fits"].is_boolean());
        let (step, bound) = (of["step_s"].as_f64(), of["bound_s"].as_f64());
        assert!(step.zip(bound).is_none_or(|(step, bound)| bound <= step), "{of}");
    }
    // The best is what the same decomposition is without a search.
    let p = &found["parallel"];
    let parallel = format!(
        "tp={},pp={},dp={},sp={},schedule={},recompute=none,zero={}",
        p["tp"],
        p["pp"],
        p["dp"],
        p["sp"],
        p["schedule"].as_str().expect("a name"),
        p["zero"]
    );
    let micro = p["micro_batch"].to_string();
    let alone = object(&[&SMALL[..], &["--parallel", &parallel, "--micro-batch", &micro]].concat());
    assert_eq!(alone["time_s"], found["time_s"]);
    assert_eq!(rdusim(&arguments).stdout, rdusim(&arguments).stdout);
}

#[test]
fn a_search_for_few_chips_meets_its_target() {
    let all = |objective: &[&str]| {
        let arguments = [&SMALL[..], &["--search", "--chips", "16", "--parallel", "recompute=none,sp=0"], objective];
        object(&arguments.concat())
    };
    let fast = all(&["--objective", "time"])["step_s"].as_f64().expect("a time");
    let target = (4.0 * fast).to_string();
    let few = all(&["--objective", "chips", "--target-step-s", &target]);
    assert!(few["step_s"].as_f64().is_some_and(|seconds| seconds <= 4.0 * fast));
    assert!(few["system"]["chips"].as_u64().is_some_and(|chips| chips < 16), "{}", few["system"]);
    // What cannot be met is no error, and every candidate says so.
    let none = all(&["--objective", "chips", "--target-step-s", "1e-6"]);
    assert!(none["step_s"].is_null());
    assert!(none["candidates"].as_array().is_some_and(|list| !list.is_empty()));
}

#[test]
fn a_model_that_fits_nowhere_is_said_to_and_is_no_error() {
    let found = object(&["--model", "gpt-1t", "--batch", "8", "--search", "--chips", "8"]);
    assert!(found["step_s"].is_null() && found["parallel"].is_null());
    let candidates = found["candidates"].as_array().expect("candidates");
    assert!(!candidates.is_empty());
    for of in candidates {
        assert_eq!(of["fits"], false);
        assert!(of["why"].as_str().is_some_and(|why| why.contains("does not fit")), "{of}");
    }
}

#[test]
fn arguments_of_a_search_are_checked() {
    let with = |more: &[&str]| refused(&[&SMALL[..], more].concat());
    assert!(with(&["--search", "--chips", "0"]).contains("expected from 1 to"));
    assert!(with(&["--search", "--chips", "7", "--parallel", "tp=2"]).contains("no decomposition divides"));
    assert!(with(&["--search", "--objective", "chips"]).contains("--target-step-s"));
    assert!(with(&["--search", "--objective", "time", "--target-step-s", "3"]).contains("has no effect"));
    assert!(with(&["--search", "--parallel", "tq=2"]).contains("unknown key"));
    // Without a search a decomposition must be given.
    assert!(with(&[]).contains("--parallel"));
}

#[test]
fn failures_leave_a_share_of_the_tokens() {
    let step = [&SMALL[..], &["--parallel", "tp=2,dp=4"]].concat();
    let with = object(&[&step[..], &["--mtbf-h", "1000", "--checkpoint-s", "30", "--restart-s", "100"]].concat());
    let of = |key: &str| with["goodput"][key].as_f64().expect("a number");
    // 1,000 h over 8 chips.
    assert!((of("mtbf_s") - 450_000.0).abs() < 1.0);
    assert!((of("share") + of("checkpoint_share") + of("lost_share") - 1.0).abs() < 1e-9);
    let all = with["tokens_per_s"].as_f64().expect("a rate");
    assert!((of("tokens_per_s") / (all * of("share")) - 1.0).abs() < 1e-9);
    assert!(object(&step)["goodput"].is_null());
    assert!(refused(&[&step[..], &["--mtbf-h", "0", "--checkpoint-s", "30"]].concat()).contains("`--mtbf-h`"));
    assert!(refused(&[&step[..], &["--mtbf-h", "9"]].concat()).contains("--checkpoint-s"));
}

#[test]
fn a_backward_pass_in_two_fills_bubbles() {
    let llama = ["--model", "llama2-7b", "--batch", "16", "--seq", "1024"];
    let of = |parallel: &str| object(&[&llama[..], &["--parallel", parallel]].concat());
    let (plain, split) = (of("tp=2,pp=4,schedule=1f1b"), of("tp=2,pp=4,schedule=zb-h1"));
    let time = |of: &Value, key: &str| of["time_s"][key].as_f64().expect("a time");
    assert!(time(&split, "pipeline_bubble") < 0.6 * time(&plain, "pipeline_bubble"), "{split}");
    assert!(split["step_s"].as_f64() < plain["step_s"].as_f64());
    // The same work, but for the host's launches.
    let work = |of: &Value| time(of, "compute");
    assert!((work(&split) / work(&plain) - 1.0).abs() < 0.02, "{} {}", work(&split), work(&plain));
}

#[test]
fn a_pipeline_that_never_drains_has_no_bubble_and_keeps_weights() {
    let llama = ["--model", "llama2-7b", "--batch", "16", "--seq", "1024"];
    let of = |parallel: &str| object(&[&llama[..], &["--parallel", parallel]].concat());
    let (plain, never) = (of("tp=2,pp=4"), of("tp=2,pp=4,schedule=pipedream"));
    let time = |of: &Value, key: &str| of["time_s"][key].as_f64().expect("a time");
    let sum: f64 = never["time_s"].as_object().expect("times").values().filter_map(Value::as_f64).sum();
    assert!((sum / never["step_s"].as_f64().expect("a time") - 1.0).abs() < 1e-9);
    assert!(time(&never, "pipeline_bubble") < 0.01 * time(&plain, "pipeline_bubble"), "{never}");
    // 16 updates in place of one.
    assert!((time(&never, "optimizer") / time(&plain, "optimizer") - 16.0).abs() < 0.5);
    let weights = |of: &Value| of["memory_bytes"]["weights"].as_u64().expect("bytes");
    assert!(weights(&never) > 3 * weights(&plain));
    let table = rdusim(&[&llama[..], &["--parallel", "tp=2,pp=4,schedule=pipedream"]].concat());
    assert!(String::from_utf8_lossy(&table.stdout).contains("3 updates"), "staleness is said");
    let message = refused(&[&SMALL[..], &["--parallel", "pp=4,schedule=pipedream"]].concat());
    assert!(message.contains("share a table"), "{message}");
    let message = refused(&[&llama[..], &["--parallel", "pp=4,dp=2,schedule=pipedream"]].concat());
    assert!(message.contains("only 1 is modelled"), "{message}");
}
