//! `explain`, `sweep`, `merge` and `diff` as a user meets them.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

fn start(arguments: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rdusim"));
    command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command starts")
}

fn run(arguments: &[&str]) -> Output {
    start(arguments).wait_with_output().expect("the command ends")
}

#[track_caller]
fn succeeds(arguments: &[&str]) -> String {
    let output = run(arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {stderr}");
    // On a slow machine a line of progress every ten seconds.
    let is_counted =
        |line: &str| line.contains(" a second, ") && (line.ends_with(" left") || line.ends_with(", no rate yet"));
    let is_progress = |line: &str| line.is_ascii() && (is_counted(line) || line.ends_with(" s so far"));
    assert!(stderr.lines().all(is_progress), "no bar without a terminal: {stderr}");
    String::from_utf8(output.stdout).expect("results are UTF-8")
}

#[track_caller]
fn refused(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    assert!(output.stdout.is_empty());
    String::from_utf8(output.stderr).expect("messages are UTF-8")
}

/// A directory with a study of a thousand points on a small chip.
fn thousand(directory: &Path) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let study = format!(
        "schema = 1\nname = \"thousand\"\narch = \"{}\"\nworkload = \"{}\"\ncompile = \"once\"\n\
         set = [\"arch.grid.columns=8\", \"arch.grid.rows=8\", \"arch.grid.tile_columns=4\", \"arch.grid.tile_rows=4\"]\n\
         metrics = [\"fused.cycles\", \"fused.time_s\", \"fused.energy_j\", \"fused.bound_by\"]\n\
         [[axes]]\npath = \"arch.memory.ddr.bandwidth_gb_per_s\"\nlog_range = {{ from = 10.0, to = 400.0, count = 40 }}\n\
         [[axes]]\npath = \"arch.memory.ddr.latency_ns\"\nrange = {{ from = 50, to = 290, step = 10 }}\n",
        root.join("arch/sn10.toml").display(),
        root.join("workloads/tiny-mlp.toml").display(),
    );
    let path = directory.join("study.toml");
    std::fs::write(&path, study).expect("a temporary file");
    path
}

fn lines(path: &Path) -> usize {
    std::fs::read(path).map_or(0, |bytes| bytes.split(|&byte| byte == b'\n').count() - 1)
}

#[test]
fn a_sweep_killed_five_times_ends_with_the_same_bytes() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let study = thousand(directory.path());
    let (study, whole, torn) = (study.to_str().unwrap(), directory.path().join("whole"), directory.path().join("torn"));
    succeeds(&["sweep", study, "--threads", "1", "--out", whole.to_str().unwrap()]);

    let journal = torn.join("journal.jsonl");
    let mut rng = Pcg64Mcg::seed_from_u64(5);
    let mut killed = 0;
    for _ in 0..5 {
        let wanted = lines(&journal) + rng.random_range(1..150);
        let mut child = start(&["sweep", study, "--threads", "2", "--out", torn.to_str().unwrap()]);
        while lines(&journal) < wanted && child.try_wait().expect("the child is ours").is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        killed += usize::from(child.kill().is_ok() && child.wait().expect("the child is ours").code().is_none());
        assert!(!torn.join("results.csv").exists(), "results appear whole or not at all");
    }
    assert_eq!(killed, 5);
    assert!(lines(&journal) > 5);
    succeeds(&["sweep", study, "--threads", "2", "--out", torn.to_str().unwrap()]);

    let read = |directory: &Path, name: &str| std::fs::read(directory.join(name)).expect(name);
    for name in ["results.csv", "summary.json", "summary.txt"] {
        assert!(read(&whole, name) == read(&torn, name), "{name}");
    }
    assert_eq!(lines(&torn.join("results.csv")), 1001);
    assert_eq!(lines(&journal), 1001, "no point is recorded twice");
}

#[test]
fn shards_are_merged_only_when_all_are_there() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let text = "schema = 1\nname = \"s\"\narch = \"ARCH\"\nworkload = \"WORK\"\nfidelity = \"bound\"\nmetrics = [\"speedup\"]\n\
                [[axes]]\npath = \"arch.clock_ghz\"\nrange = { from = 1.0, to = 2.0, count = 101 }\n";
    let root = env!("CARGO_MANIFEST_DIR");
    let text = text.replace("ARCH", &format!("{root}/arch/sn10.toml"));
    let text = text.replace("WORK", &format!("{root}/workloads/tiny-mlp.toml"));
    let at = |name: &str| directory.path().join(name).to_str().expect("an ASCII path").to_owned();
    std::fs::write(at("s.toml"), text).expect("a temporary file");
    for shard in ["1", "2", "3"] {
        succeeds(&["sweep", &at("s.toml"), "--shard", &format!("{shard}/3"), "--out", &at(shard)]);
    }
    succeeds(&["sweep", &at("s.toml"), "--out", &at("whole")]);
    succeeds(&["merge", &at("s.toml"), &at("3"), &at("1"), &at("2"), "--out", &at("joined")]);
    let names = |of: &str| {
        let entries = std::fs::read_dir(at(of)).expect("a directory").map(|entry| entry.expect("a file").file_name());
        let mut names: Vec<_> = entries.filter(|name| name != "journal.jsonl").collect();
        names.sort();
        names
    };
    assert_eq!(names("whole"), names("joined"));
    assert!(names("whole").iter().any(|name| name == "report.html"));
    for name in names("whole") {
        let read = |of: &str| std::fs::read(Path::new(&at(of)).join(&name)).expect("a file");
        assert!(read("whole") == read("joined"), "{name:?}");
    }
    assert!(refused(&["merge", &at("s.toml"), &at("1"), &at("2")]).contains("is in none of the shards"));
    assert!(refused(&["merge", &at("s.toml"), &at("1"), &at("1")]).contains("give every shard once"));
    assert!(refused(&["merge", &at("s.toml"), &at("none")]).contains("cannot read"));
    assert!(refused(&["sweep", &at("s.toml"), "--shard", "1/2"]).contains("needs `--out`"));
    assert!(
        refused(&["sweep", &at("s.toml"), "--shard", "2/3", "--out", &at("1")]).contains("is the journal of shard 1/3")
    );
    assert!(refused(&["sweep", &at("none.toml")]).contains("none.toml"));
}

#[test]
fn the_shipped_studies_can_be_read() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads/studies");
    let mut names: Vec<PathBuf> =
        std::fs::read_dir(root).expect("the studies").map(|entry| entry.expect("a file").path()).collect();
    names.sort();
    assert!(names.len() >= 6);
    for path in names {
        let study = rdusim::study::sweep::Study::open(&path, &[], None)
            .unwrap_or_else(|error| panic!("{}", error.render(false)));
        assert_eq!(path.file_stem().and_then(|stem| stem.to_str()), Some(study.name()));
        assert!(study.points() > 5);
    }
}

const TINY: [&str; 4] = ["--arch", "arch/sn10.toml", "--workload", "workloads/tiny-mlp.toml"];
const SMALL: [&str; 8] = [
    "--set",
    "arch.grid.columns=8",
    "--set",
    "arch.grid.rows=8",
    "--set",
    "arch.grid.tile_columns=4",
    "--set",
    "arch.grid.tile_rows=4",
];

#[test]
fn explain_says_what_bounds_and_what_would_help() {
    let arguments = [&["explain"][..], &TINY, &SMALL].concat();
    let text = succeeds(&[&arguments[..], &["--full"]].concat());
    for wanted in ["Kernel by kernel: ", "Fused: ", "is bound by ", "One more of each resource", "mm2 (estimate)"] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    let json: serde_json::Value =
        serde_json::from_str(&succeeds(&[&arguments[..], &["--format", "json"]].concat())).expect("JSON");
    for mode in 0..2 {
        let mode = &json["modes"][mode];
        let sections = mode["sections"].as_array().expect("sections");
        let cycles: u64 = sections.iter().map(|section| section["cycles"].as_u64().expect("cycles")).sum();
        assert_eq!(Some(cycles), mode["cycles"].as_u64());
        for section in sections {
            for resource in section["resources"].as_array().expect("resources") {
                let share = resource["share"].as_f64().expect("share");
                assert!(share > 0.0 && share <= 1.0, "{resource}");
            }
        }
        let steps = mode["derivatives"].as_array().expect("derivatives");
        let saved: Vec<f64> = steps.iter().filter_map(|step| step["saved_s"].as_f64()).collect();
        assert!(saved.len() >= 8 && saved.is_sorted_by(|a, b| a >= b), "{steps:?}");
        // What it says is what a run with the same overrides gives: half the launch is half the launch, and a few cycles
        // where the search then chooses another mapping.
        let launch = steps.iter().find(|step| step["resource"] == "launch").expect("launch");
        let launches = sections.len() as f64;
        let saved = launch["saved_s"].as_f64().expect("saved");
        assert!((saved - launches * 12e-6).abs() < 2e-8, "{launch}");
    }
}

#[test]
fn uncertainty_varies_what_the_file_assumes() {
    let arguments =
        [&["explain", "--mode", "fused", "--uncertainty", "--effort", "quick", "--format", "json"][..], &TINY, &SMALL]
            .concat();
    let json: serde_json::Value = serde_json::from_str(&succeeds(&arguments)).expect("JSON");
    let band = &json["uncertainty"]["bands"][0];
    let number = |key: &str| band[key].as_f64().expect("a number");
    assert!(number("least") < number("value") && number("value") < number("most"), "{band}");
    assert!(number("all_most") >= number("most") * 0.999, "{band}");
    let effects = json["uncertainty"]["assumptions"].as_array().expect("assumptions");
    // A tiny block is all launch: nothing matters as much.
    assert_eq!(effects[0]["fields"][0], "launch.software.program_load_us");
    let names: String = effects.iter().map(|effect| effect["fields"].to_string()).collect();
    assert!(names.contains("ag.bytes_per_cycle") && !names.contains("bandwidth_gb_per_s"), "{names}");
}

#[test]
fn diff_tells_why_two_results_differ() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let at = |name: &str| directory.path().join(name).to_str().expect("an ASCII path").to_owned();
    let base = [&["compare"][..], &TINY, &SMALL].concat();
    succeeds(&[&base[..], &["--out", &at("a")]].concat());
    succeeds(&[&base[..], &["--out", &at("b"), "--set", "arch.launch.orchestration=hardware"]].concat());
    let (a, b) = (format!("{}/result.json", at("a")), format!("{}/result.json", at("b")));
    assert!(succeeds(&["diff", &a, &a]).contains("Nothing differs."));
    let text = succeeds(&["diff", &a, &b]);
    assert!(text.contains("Why:") && text.contains("shorter") && text.contains("bound by launch in both"), "{text}");
    let json: serde_json::Value = serde_json::from_str(&succeeds(&["diff", &a, &b, "--format", "json"])).expect("JSON");
    assert!(json["runs"][0]["figures"]["time_s"]["ratio"].as_f64().is_some_and(|ratio| ratio < 1.0));
    assert!(refused(&["diff", &a, "Cargo.toml"]).contains("Cargo.toml:1:"));
    assert!(refused(&["diff", &a, "none.json"]).contains("none.json"));
}
