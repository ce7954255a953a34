//! `--set` of a range: a study in one line; suffixes of numbers.

use std::path::Path;

use serde_json::Value;

use crate::first_steps::rdusim;

const TINY: [&str; 4] = ["--arch", "plasticine", "--workload", "tiny-mlp"];
const BANDWIDTH: &str = "arch.memory.ddr.bandwidth_gb_per_s";

/// Runs a command in the repository, which must succeed, and returns what it prints.
fn printed(words: &[&str]) -> String {
    let (code, stdout, stderr) = rdusim(Path::new(env!("CARGO_MANIFEST_DIR")), words);
    assert_eq!(code, Some(0), "{words:?}: {stderr}");
    stdout
}

fn refused(words: &[&str]) -> String {
    let (code, stdout, stderr) = rdusim(Path::new(env!("CARGO_MANIFEST_DIR")), words);
    assert_eq!((code, stdout.as_str()), (Some(2), ""), "{words:?}: {stderr}");
    stderr
}

fn set(range: &str) -> String {
    format!("{BANDWIDTH}={range}")
}

#[test]
fn a_range_is_a_study_with_a_table_a_plot_and_a_page() {
    let place = tempfile::tempdir().expect("a directory");
    let out = place.path().join("out").display().to_string();
    let range = set("20..80*2");
    let text = printed(&[&["compare"], &TINY[..], &["--set", &range, "--out", &out]].concat());
    assert!(text.lines().count() <= 24, "{text}");
    for value in ["20 GB/s", "40 GB/s", "80 GB/s", "DDR bandwidth", "fused time", "speedup", "bound by"] {
        assert!(text.contains(value), "{value}: {text}");
    }
    for name in ["results.csv", "summary.json", "plot-1-lines.svg", "plot-2-lines.png", "report.html"] {
        assert!(place.path().join("out").join(name).is_file(), "{name}");
    }
    let table = std::fs::read_to_string(place.path().join("out/results.csv")).expect("the table");
    assert_eq!(table.lines().count(), 4, "{table}");
    let json = printed(&[&["compare"], &TINY[..], &["--set", &range, "--format", "json"]].concat());
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["rows"].as_array().map(Vec::len), Some(3));
    assert_eq!(json["rows"][2][BANDWIDTH], 80);
    // A point is what the command with its value alone prints.
    let alone = printed(&[&["compare"], &TINY[..], &["--set", &set("80"), "--format", "json"]].concat());
    let alone: Value = serde_json::from_str(&alone).expect("JSON");
    assert_eq!(json["rows"][2]["kbk.time_s"], alone["runs"][0]["time_s"]);
}

#[test]
fn numbers_have_suffixes() {
    let inputs = |value: &str| -> Value {
        let set = format!("arch.pmu.capacity_bytes={value}");
        let json = printed(&[&["run", "--mode", "kbk"], &TINY[..], &["--set", &set, "--format", "json"]].concat());
        let json: Value = serde_json::from_str(&json).expect("JSON");
        json["inputs"]["arch"]["pmu.capacity_bytes"].clone()
    };
    assert_eq!((inputs("128Ki"), inputs("131072")), (131_072.into(), 131_072.into()));
}

#[test]
fn what_a_range_cannot_be_is_said() {
    let with = |set: &str, more: &[&str]| refused(&[&["compare"], &TINY[..], &["--set", set], more].concat());
    let range = set("20..80*2");
    assert!(with(&set("20..80"), &[]).contains("append `*2`"));
    assert!(with(&set("80..20*2"), &[]).contains("found 80 and 20"));
    assert!(with(&range, &["--against", "sn10"]).contains("leave `--against` out"));
    assert!(with(&range, &["--uncertainty"]).contains("leave `--uncertainty` out"));
    assert!(with("arch.memory.ddr.bandwidth=20..80*2", &[]).contains("bandwidth_gb_per_s"));
    assert!(with("chip.x=1..2*2", &[]).contains("starts with `arch.` or `workload.`"));
    let other = refused(&["check", "--arch", "plasticine", "--set", &range]);
    assert!(other.contains("where one value is expected") && other.contains("`rdusim compare`"), "{other}");
}
