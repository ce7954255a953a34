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
        let run = answered(&format!(
            "run --mode fused --effort quick --arch {chip} --workload {workload} {set} --format json"
        ));
        run["runs"][0]["time_s"].as_f64().expect("a time")
    })
}

#[test]
fn the_verdict_turns_at_the_value_along_a_field_of_the_chip_or_of_the_workload() {
    for (chips, workload, axis, from, to) in [
        (["h100", "a100"], "gpt13b-mlp", "arch.memory.hbm.bandwidth_gb_per_s", 20.0, 4000.0),
        (["sn10", "plasticine"], "gpt2-small-mlp", "arch.memory.ddr.bandwidth_gb_per_s", 5.0, 400.0),
        (["tpu-v4", "a100"], "gpt13b-mlp", "workload.dims.tokens", 16.0, 8192.0),
    ] {
        turns(chips, workload, axis, [from, to]);
    }
}

#[test]
#[ignore = "depth: the sparse block of GPT-13B on an RDU against a GPU"]
fn the_verdict_turns_where_a_large_block_is_mapped() {
    for (axis, from, to) in
        [("arch.memory.ddr.bandwidth_gb_per_s", 20.0, 400.0), ("workload.dims.tokens", 64.0, 8192.0)]
    {
        turns(["sn10", "a100"], "gpt13b-mlp-sparse", axis, [from, to]);
    }
}

/// The verdict turns at the value that is found: on both sides of it runs apart say what it says.
fn turns(chips: [&str; 2], workload: &str, axis: &str, [from, to]: [f64; 2]) {
    let [first, second] = chips;
    let found = answered(&format!(
        "break-even --arch {first} --against {second} --workload {workload} --axis {axis} --from {from} --to {to} --effort quick \
         --format json"
    ));
    let value = found["value"].as_f64().expect("a value");
    let [least, most] = [0, 1].map(|at| found["range"][at].as_f64().expect("an end"));
    assert!(least <= value && value <= most && from <= least && most <= to, "{found}");
    // On both sides of it the verdicts are those of runs apart, and they differ.
    let wins = |at: f64| {
        let [first, second] = times(chips, workload, &format!("{axis}={:.0}", at.clamp(from, to)));
        first <= second
    };
    assert_ne!(wins(value * 0.7), wins(value * 1.4), "{found}");
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

/// Seconds a token of a batch on eight chips.
fn token_s(system: &str, batch: u64) -> f64 {
    let of = answered(&format!(
        "pod {system} --model llama3-8b --phase decode --parallel tp=2 --batch {batch} --seq 1024 --stack serving --format json"
    ));
    of["token_s"].as_f64().expect("a time")
}

#[test]
fn systems_break_even_at_the_price_that_makes_tokens_cost_as_much() {
    let of = "break-even --arch dgx-h100 --against dgx-a100 --model llama3-8b --parallel tp=2 --seq 1024 --stack serving \
              --against-stack serving";
    let found = answered(&format!(
        "{of} --batch 16 --axis price --from 0.5 --to 20 --against-usd-per-chip-hour 1.5 --format json"
    ));
    // By hand: as many chips on both sides, so that prices are as the times.
    let expected = 1.5 * token_s("dgx-a100", 16) / token_s("dgx-h100", 16);
    let value = found["value"].as_f64().expect("a price");
    assert!((value / expected - 1.0).abs() < 0.01, "{value}, expected {expected}");
    let first = &found["points"][0]["first"];
    let usd = first["time_s"].as_f64().unwrap() * 2.0 * 0.5 / 3600.0;
    assert!((first["usd"].as_f64().unwrap() / usd - 1.0).abs() < 1e-9, "{first}");
    // The H100 is the faster for any number of users.
    let found = answered(&format!("{of} --axis batch --from 1 --to 64 --format json"));
    assert!(found["value"].is_null() && found["why"].as_str().unwrap().contains("DGX-H100 is the faster"), "{found}");
    for point in found["points"].as_array().unwrap() {
        let at = point["value"].as_f64().unwrap() as u64;
        let expected = token_s("dgx-h100", at);
        assert!((point["first"]["time_s"].as_f64().unwrap() / expected - 1.0).abs() < 1e-9, "{point}");
    }
}

#[test]
fn what_is_no_axis_is_refused() {
    let of = "break-even --arch sn10 --against a100 --workload tiny-mlp";
    for (words, expected) in [
        (format!("{of} --axis arch.nothing --from 1 --to 2"), "nothing"),
        (format!("{of} --axis workload.dims.tokens --from many --to 2"), "expected a number"),
        (format!("{of} --axis workload.dims.tokens --from 64 --to 64"), "are both"),
        (format!("{of} --axis tokens --from 1 --to 2"), "no field of a chip or of a workload"),
        (format!("{of} --axis price --from 1 --to 2"), "--against-usd-per-chip-hour"),
        (format!("{of} --axis price --from 0 --to 2 --against-usd-per-chip-hour 1"), "expected above 0"),
        (
            format!("{of} --axis workload.dims.tokens --from 1 --to 2 --against-usd-per-chip-hour 1"),
            "--usd-per-chip-hour",
        ),
        (
            "break-even --arch dgx-h100 --against dgx-a100 --model llama3-8b --axis workload.x --from 1 --to 2"
                .to_owned(),
            "which no system has",
        ),
        (
            "break-even --arch dgx-h100 --against dgx-a100 --model llama3-8b --axis batch --from 1.5 --to 2".to_owned(),
            "whole numbers",
        ),
    ] {
        let (code, stdout, stderr) = command(&words);
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{words}: {stderr}");
        assert!(stderr.contains(expected), "{words}: {stderr}");
    }
}
