//! Limits of time for points of a study, and its effort.

use std::fs;
use std::path::Path;

use crate::first_steps::rdusim;

/// A study of a small graph on a chip, and what else its file says.
fn study(directory: &Path, name: &str, more: &str) {
    let text = format!(
        "schema = 1\nname = \"{name}\"\narch = \"sn40l\"\nworkload = \"tiny-mlp\"\nmodes = [\"fused\"]\n\
         metrics = [\"fused.cycles\", \"fused.energy_j\", \"status\"]\n{more}"
    );
    fs::write(directory.join(format!("{name}.toml")), text).expect("a temporary file");
}

const TOKENS: &str = "[[axes]]\npath = \"workload.dims.tokens\"\nvalues = [16, 32, 48]\n";

fn workloads(values: &str) -> String {
    format!("effort = \"thorough\"\n[[axes]]\npath = \"workload\"\nvalues = {values}\n")
}

#[track_caller]
fn succeeds(directory: &Path, words: &[&str]) -> String {
    let (code, stdout, stderr) = rdusim(directory, words);
    assert_eq!(code, Some(0), "{words:?}: {stderr}");
    stdout
}

fn read(directory: &Path, name: &str) -> String {
    fs::read_to_string(directory.join(name)).expect("a file")
}

#[test]
fn points_that_time_out_are_run_again_and_then_as_if_there_had_been_no_limit() {
    let room = tempfile::tempdir().expect("a temporary directory");
    let at = room.path();
    study(at, "points", TOKENS);
    let text = succeeds(at, &["sweep", "points.toml", "--out", "out", "--timeout-per-point", "0.001"]);
    assert!(text.starts_with("points: 3 points, 0 ran, 3 timed out.\n"), "{text}");
    let table = read(at, "out/results.csv");
    assert!(table.contains("\n16,,,timed out after 0.001 s\n"), "{table}");
    let summary = read(at, "out/summary.json");
    assert!(summary.contains("\"timed_out\": 3"), "{summary}");

    let text = succeeds(at, &["sweep", "points.toml", "--out", "out", "--timeout-per-point", "600"]);
    assert!(text.starts_with("points: 3 points, 3 ran.\n"), "{text}");
    succeeds(at, &["sweep", "points.toml", "--out", "whole"]);
    for name in ["results.csv", "summary.json", "summary.txt"] {
        assert_eq!(read(at, &format!("out/{name}")), read(at, &format!("whole/{name}")), "{name}");
    }
    // What has a result is not touched by a shorter limit.
    let before = read(at, "out/journal.jsonl");
    succeeds(at, &["sweep", "points.toml", "--out", "out", "--timeout-per-point", "0.001"]);
    assert_eq!(read(at, "out/journal.jsonl"), before);
}

#[test]
fn a_point_that_times_out_changes_no_other() {
    let room = tempfile::tempdir().expect("a temporary directory");
    let at = room.path();
    study(at, "both", &workloads("[\"tiny-mlp\", \"gpt2-xl-training\"]"));
    study(at, "one", &workloads("[\"tiny-mlp\"]"));
    succeeds(at, &["sweep", "both.toml", "--out", "both", "--timeout-per-point", "6", "--threads", "1"]);
    succeeds(at, &["sweep", "one.toml", "--out", "one"]);
    let (both, one) = (read(at, "both/results.csv"), read(at, "one/results.csv"));
    let rest = both.strip_prefix(&one).unwrap_or_else(|| panic!("{both} does not begin with {one}"));
    assert_eq!(rest, "gpt2-xl-training,,,timed out after 6 s\n");
}

#[test]
fn a_limit_that_cannot_be_is_refused() {
    let room = tempfile::tempdir().expect("a temporary directory");
    let at = room.path();
    study(
        at,
        "pruned",
        &format!("{TOKENS}[pareto]\nminimize = [\"fused.cycles\", \"workload.dims.tokens\"]\nprune = true\n"),
    );
    study(at, "points", TOKENS);
    for (words, why) in [
        (["sweep", "pruned.toml", "--timeout-per-point", "1"], "a study that prunes cannot have a limit of time"),
        (["sweep", "points.toml", "--timeout-per-point", "0"], "expected seconds from 0.001"),
        (["sweep", "points.toml", "--timeout-per-point", "NaN"], "expected seconds from 0.001"),
        (["sweep", "points.toml", "--timeout-per-point", "soon"], "expected seconds from 0.001"),
    ] {
        let (code, stdout, stderr) = rdusim(at, &words);
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{words:?}");
        assert!(stderr.contains(why), "{words:?}: {stderr}");
    }
}

#[test]
fn the_effort_of_a_study_is_that_of_a_run() {
    let room = tempfile::tempdir().expect("a temporary directory");
    let at = room.path();
    for effort in ["quick", "normal", "thorough"] {
        let text = format!("effort = \"{effort}\"\n[[axes]]\npath = \"workload.dims.tokens\"\nvalues = [48]\n");
        study(at, effort, &text);
        succeeds(at, &["sweep", &format!("{effort}.toml"), "--out", effort]);
        let words = "run --arch sn40l --workload tiny-mlp --set workload.dims.tokens=48 --format json --mode fused";
        let words: Vec<&str> = words.split(' ').chain(["--effort", effort]).collect();
        let run: serde_json::Value = serde_json::from_str(&succeeds(at, &words)).expect("JSON");
        let wanted = format!("48,{},", run["runs"][0]["cycles"]);
        let table = read(at, &format!("{effort}/results.csv"));
        assert!(table.lines().nth(1).is_some_and(|row| row.starts_with(&wanted)), "{effort}: {wanted} {table}");
    }
    study(at, "older", &format!("compile = \"coarse\"\n{TOKENS}"));
    study(at, "newer", &format!("effort = \"quick\"\n{TOKENS}"));
    for name in ["older", "newer"] {
        succeeds(at, &["sweep", &format!("{name}.toml"), "--out", name]);
    }
    assert_eq!(read(at, "older/results.csv"), read(at, "newer/results.csv"));
    study(at, "both", &format!("compile = \"coarse\"\neffort = \"thorough\"\n{TOKENS}"));
    let (code, _, stderr) = rdusim(at, &["sweep", "both.toml"]);
    assert_eq!(code, Some(2));
    assert!(stderr.contains("`effort = \"thorough\"` contradicts `compile = \"coarse\"`"), "{stderr}");
}
