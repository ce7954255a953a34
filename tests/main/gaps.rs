//! Gaps of runs, and the ranges of speed-ups that they allow, as the command prints them.

use std::path::Path;
use std::process::Command;

use rdusim::mode::Mode;
use rdusim::proof::least_cycles;
use rdusim::{arch, workload};
use serde_json::Value;

const TINY: [&str; 4] = ["--arch", "arch/sn10.toml", "--workload", "workloads/tiny-mlp.toml"];

fn rdusim(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_rdusim")).args(arguments).output().expect("the command starts");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("results are UTF-8")
}

fn json(arguments: &[&str]) -> Value {
    let text = rdusim(&[arguments, &["--format", "json"]].concat());
    serde_json::from_str(&text).expect("a result")
}

fn real(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[track_caller]
fn near(found: &Value, expected: f64) {
    let found = real(found);
    assert!((found - expected).abs() <= 1e-12 * expected.abs(), "{found} is not {expected}");
}

#[test]
fn every_run_has_its_gap_and_every_speedup_its_range() {
    let result = json(&[&["compare"], &TINY[..]].concat());
    let chip = arch::load(Path::new(TINY[1]), &[]).expect("a chip");
    let graph = workload::load(Path::new(TINY[3]), &[], 0).expect("a workload");
    let least = least_cycles(&chip, &graph, &Mode::ALL).expect("bounds");
    for (run, least) in result["runs"].as_array().expect("runs").iter().zip(least) {
        near(&run["gap"], real(&run["cycles"]) / least as f64 - 1.0);
        assert!(real(&run["gap"]) > 0.0 && real(&run["bound_cycles"]) <= least as f64);
    }
    let [kbk, epilogue, fused] = [0, 1, 2].map(|at| &result["runs"][at]);
    for (before, key) in [(kbk, "speedup"), (epilogue, "speedup_over_epilogue")] {
        let range = &result[format!("{key}_range")];
        let times = [before, fused].map(|run| (real(&run["time_s"]), real(&run["gap"])));
        let [(slow, slow_gap), (fast, fast_gap)] = times;
        near(&result[key], slow / fast);
        // The one at its best over the other as it is, and the other way round.
        near(&range[0], slow / (1.0 + slow_gap) / fast);
        near(&range[1], slow / (fast / (1.0 + fast_gap)));
        assert!(range[0].as_f64() < result[key].as_f64() && result[key].as_f64() < range[1].as_f64());
    }
    assert_eq!(result.get("speedup_notes"), None, "gaps of 2 % leave nothing open");
}

#[test]
fn one_run_has_a_gap_and_no_range() {
    let result = json(&[&["run", "--mode", "epilogue"], &TINY[..]].concat());
    assert!(real(&result["runs"][0]["gap"]) > 0.0);
    assert!(result.get("speedup_range").is_none() && result.get("speedup_over_epilogue_range").is_none());
    let table = rdusim(&[&["run", "--mode", "epilogue"], &TINY[..]].concat());
    let line = table.lines().find(|line| line.trim_start().starts_with("gap ")).expect("a row");
    assert_eq!(line.split_whitespace().nth(1), Some(&*format!("{:.1}", real(&result["runs"][0]["gap"]) * 100.0)));
}

#[test]
fn the_table_has_the_range_behind_the_ratio() {
    let result = json(&[&["compare"], &TINY[..]].concat());
    let table = rdusim(&[&["compare"], &TINY[..]].concat());
    for (of, key) in [("kbk", "speedup"), ("epilogue", "speedup_over_epilogue")] {
        let [least, most] = [0, 1].map(|end| real(&result[format!("{key}_range")][end]));
        let words = format!("fused is {:.2}x ({least:.2}x to {most:.2}x) as fast as {of}, with", real(&result[key]));
        assert!(table.contains(&words), "{words}: {table}");
    }
}

/// The sentences of a comparison, which its table has too.
fn sentences(arch: &str, workload: &str) -> Vec<String> {
    let arguments = ["compare", "--arch", arch, "--workload", workload];
    let directory = tempfile::tempdir().expect("a directory");
    let out = directory.path().to_str().expect("a path");
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let table = words(&rdusim(&[&arguments[..], &["--full", "--out", out]].concat()));
    let text = std::fs::read_to_string(directory.path().join("result.json")).expect("the result");
    let result: Value = serde_json::from_str(&text).expect("a result");
    let list = result["speedup_notes"].as_array().cloned().unwrap_or_default();
    let list: Vec<String> = list.iter().map(|note| note.as_str().expect("a sentence").to_owned()).collect();
    assert!(list.iter().all(|sentence| table.contains(&words(sentence))), "{list:?}: {table}");
    list
}

#[test]
fn a_speedup_that_gaps_leave_open_says_so() {
    // Gaps of 6 to 8 %: more than two runs of the engine differ by themselves.
    let wide = sentences("arch/sn40l.toml", "workloads/gpt2-small-mlp.toml");
    assert_eq!(wide.len(), 2, "{wide:?}");
    assert!(wide[1].starts_with("the speed-up of fused over epilogue is between 1.5"), "{wide:?}");
    assert!(wide[1].contains("x: the mappings of epilogue and fused are proven within "), "{wide:?}");
    assert!(wide[1].ends_with(" % only"), "{wide:?}");
    // One product: as fast in every mode, as far as was found.
    let open = sentences("arch/sn40l.toml", "workloads/gemm-square.toml");
    assert!(
        open[0].starts_with("which of fused and kbk is faster is open: the speed-up of fused over kbk is"),
        "{open:?}"
    );
}

#[test]
fn a_study_records_what_gaps_allow_behind_every_speedup() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name).to_str().expect("a name").to_owned();
    let root = env!("CARGO_MANIFEST_DIR");
    let study = |fidelity: &str, metrics: &str| {
        let text = format!(
            "schema = 1\nname = \"gaps\"\narch = \"{root}/arch/sn10.toml\"\nworkload = \"{root}/workloads/tiny-mlp.toml\"\n\
             fidelity = \"{fidelity}\"\nmetrics = [{metrics}]\n[[axes]]\npath = \"workload.dims.tokens\"\nvalues = [64]\n"
        );
        std::fs::write(at("study.toml"), text).expect("the file is written");
        _ = std::fs::remove_dir_all(at("out"));
        rdusim(&["sweep", &at("study.toml"), "--out", &at("out")]);
        std::fs::read_to_string(at("out/results.csv")).expect("the table")
    };
    let table = study("event", "\"fused.gap\", \"speedup\", \"speedup_over_epilogue_most\", \"status\"");
    let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(
        lines[0][1..],
        ["fused.gap", "speedup", "speedup_least", "speedup_most", "speedup_over_epilogue_most", "status"]
    );
    let result = json(&[&["compare"], &TINY[..]].concat());
    for (cell, expected) in lines[1][1..].iter().zip([
        &result["runs"][2]["gap"],
        &result["speedup"],
        &result["speedup_range"][0],
        &result["speedup_range"][1],
        &result["speedup_over_epilogue_range"][1],
    ]) {
        near(expected, cell.parse().expect("a number"));
    }
    // The bound of the graph has no mapping.
    let bound = study("bound", "\"speedup\", \"status\"");
    assert!(bound.starts_with("workload.dims.tokens,speedup,status\n"), "{bound}");
}

#[test]
fn the_page_and_a_difference_have_the_range() {
    let directory = tempfile::tempdir().expect("a directory");
    let out = directory.path().join("out").to_str().expect("a name").to_owned();
    rdusim(&[&["compare", "--out", &out], &TINY[..]].concat());
    let page = std::fs::read_to_string(format!("{out}/report.html")).expect("the page");
    assert!(page.contains("\"speedup_range\":[") && page.contains("allowed(d.speedup_range)"));
    let result = format!("{out}/result.json");
    let other = format!("{out}/other.json");
    let set = ["--set", "workload.dims.tokens=128", "--format", "json"];
    std::fs::write(&other, rdusim(&[&["compare"], &TINY[..], &set[..]].concat())).expect("the file is written");
    let told = rdusim(&["diff", &result, &other]);
    let json: Value = serde_json::from_str(&std::fs::read_to_string(&result).expect("the result")).expect("JSON");
    let [least, most] = [0, 1].map(|end| real(&json["speedup_range"][end]));
    let words = format!("Speedup of fused over kbk: {:.3}x ({least:.3}x to {most:.3}x) in A", real(&json["speedup"]));
    assert!(told.contains(&words), "{words}: {told}");
}

#[test]
fn what_has_no_bound_has_no_gap() {
    let mut whole = vec![json(&["compare", "--arch", "a100", "--workload", TINY[3]])];
    for fidelity in ["bound", "cycle"] {
        let small = ["--arch", "tests/cases/small.toml", "--workload", TINY[3], "--fidelity", fidelity];
        whole.push(json(&[&["compare"], &small[..]].concat()));
    }
    for result in whole {
        for run in result["runs"].as_array().expect("runs") {
            assert_eq!(run.get("gap"), Some(&Value::Null), "{} {}", run["mode"], run["fidelity"]);
        }
        assert!(result.get("speedup").is_some() && result.get("speedup_range").is_none());
    }
}

#[test]
fn what_is_read_or_pinned_is_measured_against_all_mappings() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name).to_str().expect("a name").to_owned();
    let found = json(&[&["run", "--mode", "fused", "--save-config", &at("saved.toml")], &TINY[..]].concat());
    let read = json(&[&["run", "--mode", "fused", "--config", &at("saved.toml")], &TINY[..]].concat());
    assert_eq!(found["runs"][0]["gap"], read["runs"][0]["gap"]);
    std::fs::write(
        at("sections.toml"),
        "schema = 1\n\n[[sections]]\noperators = [\"up\", \"gelu\"]\n\n[[sections]]\noperators = [\"down\"]\n",
    )
    .expect("the file is written");
    let pinned = json(&[&["run", "--mode", "fused", "--sections", &at("sections.toml")], &TINY[..]].concat());
    let least = |result: &Value| real(&result["runs"][0]["cycles"]) / (1.0 + real(&result["runs"][0]["gap"]));
    assert_eq!(pinned["runs"][0]["sections"].as_array().map(Vec::len), Some(2));
    assert!((least(&pinned) / least(&found) - 1.0).abs() < 1e-12);
    assert!(real(&pinned["runs"][0]["gap"]) > 0.5, "two launches of which the best mapping has one");
}

#[test]
fn two_chips_have_ranges_of_each_mode_where_both_have_bounds() {
    let result = json(&[&["compare", "--against", "arch/sn40l.toml"], &TINY[..]].concat());
    let against = &result["against"];
    for (at, mode) in ["kbk", "epilogue", "fused"].into_iter().enumerate() {
        let (own, other) = (&result["runs"][at]["gap"], &against["runs"][at]["gap"]);
        near(&against["speedups_range"][mode][0], real(&against["speedups"][mode]) / (1.0 + real(other)));
        near(&against["speedups_range"][mode][1], real(&against["speedups"][mode]) * (1.0 + real(own)));
    }
    assert!(against["speedup_range"].is_array());
    let gpu = json(&[&["compare", "--against", "a100"], &TINY[..]].concat());
    assert!(gpu["against"].get("speedups_range").is_none() && gpu["against"].get("speedup_range").is_none());
    assert!(gpu["speedup_range"].is_array());
}
