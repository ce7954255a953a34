//! Grids by their counts of units.

use std::fs;
use std::path::Path;

use crate::first_steps::rdusim;

#[track_caller]
fn succeeds(directory: &Path, words: &str) -> String {
    let (code, stdout, stderr) = rdusim(directory, &words.split(' ').collect::<Vec<_>>());
    assert_eq!(code, Some(0), "{words}: {stderr}");
    stdout
}

#[track_caller]
fn refused(directory: &Path, words: &str) -> String {
    let (code, stdout, stderr) = rdusim(directory, &words.split(' ').collect::<Vec<_>>());
    assert_eq!((code, stdout.as_str()), (Some(2), ""), "{words}");
    stderr
}

#[test]
fn a_grid_is_set_by_its_pcus() {
    let room = tempfile::tempdir().expect("a temporary directory");
    let at = room.path();
    for (words, told) in [
        ("--arch sn40l --set arch.grid.pcus=800", "800 PCUs, 800 PMUs"),
        ("--arch sn40l --set arch.grid.pcus=1040", "1,040 PCUs, 1,040 PMUs"),
        ("--arch sn10 --set arch.grid.pcus=320", "320 PCUs, 320 PMUs"),
        ("--arch sn40l --set arch.grid.pcus_per_pmu=2 --set arch.grid.pcus=800", "800 PCUs, 400 PMUs"),
        ("--arch sn40l --set arch.grid.pcus_per_pmu=1", "1,040 PCUs, 1,040 PMUs"),
    ] {
        let text = succeeds(at, &format!("check {words}"));
        assert!(text.contains(told), "{words}: {text}");
    }
    let text = refused(at, "check --arch sn40l --set arch.grid.pcus=801");
    assert!(text.contains("has exactly 801 PCUs") && text.contains("--set arch.grid.pcus=801"), "{text}");
    assert!(text.contains("possible near it: 800 (50 x 32 sites), 806 (62 x 26 sites)"), "{text}");
    let text = refused(at, "check --arch sn40l --set arch.grid.pcus_per_pmu=1.93");
    assert!(text.contains("`grid.pcus_per_pmu` is 1.93, which is no ratio of few units"), "{text}");
    let text = refused(at, "check --arch sn40l --set arch.grid.pcus=0");
    assert!(text.contains("`grid.pcus` must be from 1 to 1000000, found 0"), "{text}");
    let text = refused(at, "check --arch sn10 --set arch.grid.pattern=['C.','MC'] --set arch.grid.pcus_per_pmu=2");
    assert!(text.contains("needs a pattern that has a unit at every site"), "{text}");
}

#[test]
fn the_count_of_the_file_is_the_grid_of_the_file() {
    let room = tempfile::tempdir().expect("a temporary directory");
    let run = |more: &str| {
        let words = format!("map --arch plasticine --workload tiny-mlp --mode fused --format json{more}");
        succeeds(room.path(), &words)
    };
    assert_eq!(run(""), run(" --set arch.grid.pcus=64"));
    assert_ne!(run(""), run(" --set arch.grid.pcus=72 --set arch.grid.agcus.top.first=0"));
}

#[test]
fn a_study_varies_the_count_and_explain_adds_to_it() {
    let room = tempfile::tempdir().expect("a temporary directory");
    let at = room.path();
    let text = "schema = 1\nname = \"sizes\"\narch = \"sn10\"\nworkload = \"tiny-mlp\"\neffort = \"quick\"\n\
                metrics = [\"pcus\", \"pmus\", \"fused.cycles\", \"status\"]\n\
                [[axes]]\npath = \"arch.grid.pcus\"\nvalues = [16, 17, 64]\n";
    fs::write(at.join("sizes.toml"), text).expect("a temporary file");
    succeeds(at, "sweep sizes.toml --out out");
    let table = fs::read_to_string(at.join("out/results.csv")).expect("a table");
    let rows: Vec<Vec<&str>> = table.lines().skip(1).map(|row| row.splitn(5, ',').collect()).collect();
    assert_eq!([rows[0][1], rows[0][2], rows[2][1], rows[2][2]], ["16", "16", "64", "64"]);
    assert!(rows[1][4].contains("has exactly 17 PCUs") && rows[1][3].is_empty(), "{table}");
    assert!(rows.iter().all(|row| row[4] == "ok" || row[0] == "17"), "{table}");
    let json = succeeds(
        at,
        "explain --mode fused --arch sn10 --workload tiny-mlp --set arch.grid.pcus=16 --format json --out ex",
    );
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let all = json["modes"][0]["derivatives"].as_array().expect("a list");
    let more = all.iter().find(|entry| entry["resource"] == "compute").expect("more PCUs");
    assert_eq!(more["set"][0], "arch.grid.pcus=18");
    assert!(more["time_s"].is_f64(), "{more}");
    let picture = fs::read_to_string(at.join("ex/sensitivity-fused.svg")).expect("a picture");
    assert!(picture.contains("What one more of each resource would save"), "{picture}");
    assert!(at.join("ex/sensitivity-fused.png").is_file() && !at.join("ex/uncertainty-fused.png").exists());
}
