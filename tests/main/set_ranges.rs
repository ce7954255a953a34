//! `--set` of a range: a study in one line; suffixes of numbers; results as CSV.

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
    assert_eq!(printed(&[&["compare"], &TINY[..], &["--set", &range, "--format", "csv"]].concat()), table);
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
fn two_ranges_are_a_product_and_lists_keep_their_order() {
    let (list, steps) = (set("80,20"), "workload.dims.tokens=64..192+64");
    let csv = printed(
        &[
            &["run", "--mode", "kbk"],
            &TINY[..],
            &["--set", &list, "--set", steps, "--effort", "quick", "--format", "csv"],
        ]
        .concat(),
    );
    let points: Vec<String> =
        csv.lines().skip(1).map(|line| line.split(',').take(2).collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(points, ["80 64", "80 128", "80 192", "20 64", "20 128", "20 192"]);
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

#[test]
fn results_are_tables_too() {
    let lines = |words: &str| -> Vec<String> {
        let words: Vec<&str> = words.split_whitespace().chain(["--format", "csv"]).collect();
        let text = printed(&words);
        let mut reader = csv_cells(&text);
        let width = reader.first().map_or(0, Vec::len);
        assert!(reader.iter().all(|row| row.len() == width), "{text}");
        reader.iter_mut().map(|row| row.join("|")).collect()
    };
    let compared = lines("compare --arch plasticine --workload tiny-mlp --against sn10");
    assert_eq!(compared.len(), 7, "{compared:?}");
    assert!(compared[0].starts_with("arch|workload|mode|fidelity|cycles|time_s"), "{}", compared[0]);
    assert!(compared[1].starts_with("Plasticine|tiny-mlp|kbk|") && compared[6].starts_with("SN10|tiny-mlp|fused|"));
    let explained = lines("explain --mode kbk --arch plasticine --workload tiny-mlp");
    assert!(explained[0].starts_with("arch|workload|fidelity|mapping|modes.mode"), "{}", explained[0]);
    assert!(explained.len() > 4);
    let step = lines("pod dgx-a100 --model gpt-13b --phase training --parallel tp=8,pp=2 --batch 16 --seq 2048");
    assert_eq!(step.len(), 2);
    assert!(step[0].contains("|step_s|tokens_per_s|mfu|") && step[0].contains("memory_bytes.peak"), "{}", step[0]);
    let found =
        lines("pod dgx-a100 --model gpt-13b --phase training --chips 16 --batch 16 --search --parallel recompute=full");
    assert!(found.len() > 3 && found[0].starts_with("system|system.chips|model|phase|parallel.tp"), "{}", found[0]);
    for other in ["verify --arch plasticine --workload tiny-mlp", "map --arch plasticine --workload tiny-mlp", "list"] {
        assert!(lines(other).len() > 1, "{other}");
    }
    assert_eq!(lines("sparsity 2:4 --shape 64x64").len(), 2);
}

/// Cells of a table without line breaks in its cells.
fn csv_cells(text: &str) -> Vec<Vec<String>> {
    let cells = |line: &str| {
        let (mut list, mut is_quoted) = (vec![String::new()], false);
        for c in line.chars() {
            match c {
                '"' => is_quoted = !is_quoted,
                ',' if !is_quoted => list.push(String::new()),
                c => list.last_mut().expect("a cell").push(c),
            }
        }
        list
    };
    text.lines().map(cells).collect()
}
