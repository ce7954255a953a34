//! Where two chips take as long: the command against runs of its own neighbours.

use std::path::Path;

use serde_json::Value;

use crate::first_steps::rdusim;

fn command(words: &str) -> (Option<i32>, String, String) {
    rdusim(Path::new(env!("CARGO_MANIFEST_DIR")), &words.split_whitespace().collect::<Vec<_>>())
}

fn answered(words: &str) -> Value {
    let (code, text, stderr) = command(words);
    assert_eq!(code, Some(0), "{words}: {stderr}");
    serde_json::from_str(&text).expect("JSON")
}

/// Times of two chips, run apart.
fn times(chips: [&str; 2], workload: &str, set: &str) -> [f64; 2] {
    chips.map(|chip| {
        let set = if chip == chips[0] || set.starts_with("workload.") { format!("--set {set}") } else { String::new() };
        let run = answered(&format!("run --mode fused --arch {chip} --workload {workload} {set} --format json"));
        run["runs"][0]["time_s"].as_f64().expect("a time")
    })
}

#[test]
fn the_verdict_turns_at_the_value_along_a_field_of_the_chip_or_of_the_workload() {
    for (chips, workload, axis, from, to) in [
        (["a100", "h100"], "gpt13b-mlp", "arch.memory.hbm.bandwidth_gb_per_s", 500.0, 8000.0),
        (["sn10", "a100"], "tiny-mlp", "workload.dims.tokens", 16.0, 65_536.0),
    ] {
        let [first, second] = chips;
        let found = answered(&format!(
            "break-even --arch {first} --against {second} --workload {workload} --axis {axis} --from {from} --to {to} --format json"
        ));
        let points = found["points"].as_array().expect("points");
        let turns = points
            .windows(2)
            .any(|pair| (pair[0]["speedup"].as_f64().unwrap() >= 1.0) != (pair[1]["speedup"].as_f64().unwrap() >= 1.0));
        let Some(value) = found["value"].as_f64() else {
            assert!(!turns && found["why"].as_str().unwrap().contains("is the faster at all"), "{found}");
            continue;
        };
        let [least, most] = [0, 1].map(|at| found["range"][at].as_f64().expect("an end"));
        assert!(least <= value && value <= most && from <= least && most <= to, "{found}");
        // Twice and half as much: the verdicts are those of runs apart, and they differ.
        let wins = |at: f64| {
            let [first, second] = times(chips, workload, &format!("{axis}={:.0}", at.clamp(from, to)));
            first <= second
        };
        assert_ne!(wins(value * 0.7), wins(value * 1.4), "{found}");
    }
}

#[test]
fn a_break_even_is_told_in_words_and_drawn() {
    let out = tempfile::tempdir().expect("a directory");
    let words = format!(
        "break-even --arch h100 --against a100 --workload gpt13b-mlp --axis arch.memory.hbm.bandwidth_gb_per_s --from 100 --to 4k \
         --out {}",
        out.path().display()
    );
    let (code, text, stderr) = command(&words);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(text.contains("break-even") && text.lines().count() <= 24, "{text}");
    for name in ["result.json", "break-even.png", "report.html"] {
        assert!(out.path().join(name).exists(), "{name}");
    }
}

#[test]
fn what_is_no_axis_is_refused() {
    let of = "break-even --arch sn10 --against a100 --workload tiny-mlp";
    for (words, expected) in [
        (format!("{of} --axis arch.nothing --from 1 --to 2"), "nothing"),
        (format!("{of} --axis workload.dims.tokens --from many --to 2"), "expected a number"),
        (format!("{of} --axis workload.dims.tokens --from 64 --to 64"), "are both"),
        (format!("{of} --axis tokens --from 1 --to 2"), "tokens"),
    ] {
        let (code, stdout, stderr) = command(&words);
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{words}: {stderr}");
        assert!(stderr.contains(expected), "{words}: {stderr}");
    }
}
