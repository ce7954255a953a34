//! Systems of chips of tiles: steps of training through the binary.

use std::process::{Command, Output};

use serde_json::Value;

fn rdusim(arguments: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_rdusim");
    Command::new(program).args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).output().expect("the program runs")
}

fn step(system: &str, model: &str, parallel: &str, further: &[&str]) -> Value {
    let mut arguments = vec!["pod", system, "--model", model, "--phase", "training", "--parallel", parallel];
    arguments.extend(["--format", "json"]);
    arguments.extend(further);
    let output = rdusim(&arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

const BERT: [&str; 6] = ["--seq", "512", "--predicted-tokens", "76", "--micro-batch", "3"];

#[test]
fn every_pod_is_read_and_has_so_many_chips() {
    for (name, chips) in [("ipu-pod16", 16), ("ipu-pod64", 64), ("ipu-pod128", 128), ("ipu-pod256", 65536)] {
        let output = rdusim(&["check", "--arch", &format!("arch/systems/{name}.toml")]);
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        let dp = format!("dp={}", chips * 2);
        let refused = rdusim(&["pod", name, "--model", "gpt2", "--phase", "training", "--parallel", &dp]);
        let message = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success(), "{name} has more than {chips} chips: {message}");
    }
}

#[test]
fn the_parts_of_a_step_add_up_and_nothing_beats_its_bound() {
    let run =
        step("ipu-pod16", "bert-large", "pp=8,dp=2,recompute=full,zero=1", &[&BERT[..], &["--batch", "48"]].concat());
    let time = run["time_s"].as_object().expect("parts");
    let sum: f64 = time.values().filter_map(Value::as_f64).sum();
    let all = run["step_s"].as_f64().expect("seconds");
    assert!((sum / all - 1.0).abs() < 1e-9, "{sum} of {all}");
    assert!(run["bound_s"].as_f64().expect("seconds") < all);
}

#[test]
fn a_step_takes_as_long_as_its_deepest_stage() {
    let run = |layers: &[&str]| {
        let further = [&BERT[..], &["--batch", "48"], layers].concat();
        step("ipu-pod16", "bert-large", "pp=8,recompute=full", &further)["step_s"].as_f64().expect("seconds")
    };
    let (equal, uneven) = (run(&[]), run(&["--stage-layers", "2.5,2.5,2.5,3,3,3,3,4.5"]));
    assert!(uneven > 1.2 * equal && uneven < 1.6 * equal, "{uneven} and {equal}");
    let message = rdusim(&[
        "pod",
        "ipu-pod16",
        "--model",
        "bert-large",
        "--phase",
        "training",
        "--parallel",
        "pp=2",
        "--stage-layers",
        "3,3",
    ]);
    assert!(String::from_utf8_lossy(&message.stderr).contains("6 layers together, bert-large has 24"));
}

#[test]
fn neighbouring_stages_wait_less_for_each_other() {
    let waits = |order: &str| {
        let further = [&BERT[..], &["--batch", "96"]].concat();
        let run = step("ipu-pod64", "bert-large", &format!("pp=8,dp=8,recompute=full,{order}"), &further);
        run["time_s"]["pipeline_comm_exposed"].as_f64().expect("seconds")
    };
    assert!(waits("order=tp-pp-dp") < 0.7 * waits("order=tp-dp-pp"));
}

#[test]
fn what_is_not_modelled_on_tiles_is_refused() {
    for (system, parallel, expected) in [
        ("ipu-pod16", "dp=2,zero=3", "not modelled on chips of tiles"),
        ("ipu-pod16", "pp=2,schedule=zb-h1", "not modelled on chips of tiles"),
        ("dgx-a100", "dp=2", "norms behind them"),
    ] {
        let arguments =
            ["pod", system, "--model", "bert-large", "--phase", "training", "--batch", "4", "--parallel", parallel];
        let output = rdusim(&arguments);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && message.contains(expected), "{parallel}: {message}");
    }
}

#[test]
fn measured_steps_are_met_as_the_report_says() {
    for (file, chip, most) in [("bert-gc200.csv", "gc200", 0.35), ("bert-bow.csv", "bow", 0.32)] {
        let set = format!("arch.chip=../{chip}.toml");
        let data = format!("reports/ipu/{file}");
        let output = rdusim(&[
            "validate",
            "--data",
            &data,
            "--arch",
            "arch/systems/ipu-pod64.toml",
            "--set",
            &set,
            "--format",
            "json",
        ]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let rows = report["sets"][0]["rows"].as_array().expect("rows");
        assert_eq!(rows.len(), 2);
        for row in rows {
            let (published, simulated) =
                (row["published"].as_f64().unwrap_or(0.0), row["simulated"].as_f64().unwrap_or(0.0));
            let error = simulated / published - 1.0;
            assert!(error.abs() < most, "{row}");
        }
    }
}
