//! Runs that are stopped from outside, and surroundings that refuse: signals, kills, full disks, closed pipes, odd paths.

#![cfg(target_os = "linux")]
#![expect(clippy::disallowed_methods, reason = "an interrupt is answered within a second")]

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

const SIGINT: i32 = 2;
const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;

/// A run with a small chip and a small graph.
const RUN: [&str; 11] = [
    "run",
    "--mode",
    "kbk",
    "--arch",
    "arch/plasticine.toml",
    "--workload",
    "workloads/tiny-mlp.toml",
    "--set",
    "workload.dims.tokens=8",
    "--set",
    "workload.dims.d_ff=64",
];
/// A run that takes long: the grid is large.
const LONG: [&str; 15] = [
    "run",
    "--mode",
    "fused",
    "--arch",
    "arch/sn10.toml",
    "--workload",
    "workloads/gpt13b-mlp.toml",
    "--set",
    "arch.grid.columns=400",
    "--set",
    "arch.grid.rows=400",
    "--set",
    "arch.grid.tile_columns=400",
    "--set",
    "arch.grid.tile_rows=400",
];

fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rdusim"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn signal(child: &Child, signal: i32) {
    let kill = Command::new("kill").args([format!("-{signal}"), child.id().to_string()]).status();
    assert!(kill.expect("kill is there").success());
}

/// Waits until `holds`, for at most a minute.
#[track_caller]
fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_mins(1), "{what} does not come about");
        sleep(Duration::from_millis(2));
    }
}

/// Whether a process answers a signal itself.
fn answers(child: &Child, signal: i32) -> bool {
    is_in_mask(&child.id().to_string(), "SigCgt:", signal)
}

/// Whether a signal is in one of the masks of a process.
fn is_in_mask(process: &str, mask: &str, signal: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix(mask));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// SIGINT, or SIGTERM where these tests run in the background of a shell that has them ignore SIGINT, and so their children.
fn interrupt() -> i32 {
    if is_in_mask("self", "SigIgn:", SIGINT) { SIGTERM } else { SIGINT }
}

/// Names in a directory, in order.
fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("a directory");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// A study of two dozen points, each of which is run alone.
struct Study(tempfile::TempDir);

const POINTS: usize = 24;

impl Study {
    fn new() -> Self {
        let study = Self(tempfile::tempdir().expect("a temporary directory"));
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        fs::copy(root.join("arch/plasticine.toml"), study.path("chip.toml")).expect("a chip");
        fs::copy(root.join("workloads/tiny-mlp.toml"), study.path("work.toml")).expect("a workload");
        let text = format!(
            "schema = 1\nname = \"points\"\narch = \"chip.toml\"\nworkload = \"work.toml\"\nmodes = [\"fused\"]\n\
             metrics = [\"fused.cycles\"]\n[[axes]]\npath = \"workload.dims.tokens\"\nrange = {{ from = 1, to = {POINTS}, \
             step = 1 }}\n"
        );
        fs::write(study.path("study.toml"), text).expect("a study");
        study
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn sweep(&self, out: &str) -> Command {
        let mut command = command();
        command.arg("sweep").arg(self.path("study.toml")).arg("--out").arg(self.path(out)).args(["--threads", "1"]);
        command
    }

    /// Points in the journal of `out`.
    fn kept(&self, out: &str) -> usize {
        let journal = fs::read_to_string(self.path(out).join("journal.jsonl")).unwrap_or_default();
        journal.matches('\n').count().saturating_sub(1)
    }

    fn table(&self, out: &str) -> String {
        fs::read_to_string(self.path(out).join("results.csv")).expect("a table")
    }
}

#[test]
fn a_sweep_that_is_stopped_anywhere_loses_nothing() {
    let study = Study::new();
    let whole = study.sweep("whole").output().expect("it starts");
    assert_eq!(whole.status.code(), Some(0), "{}", stderr(&whole));
    // Killed when so many points are kept, or interrupted; then resumed by the next.
    for (kept, how) in [(0, SIGKILL), (3, interrupt()), (8, SIGKILL), (13, SIGTERM), (17, interrupt())] {
        let mut child = study.sweep("out").spawn().expect("it starts");
        let mut is_over = false;
        wait_until("a journal", || {
            is_over = child.try_wait().expect("it runs").is_some();
            is_over || (study.kept("out") >= kept && (how == SIGKILL || answers(&child, how)))
        });
        if is_over {
            let ended = child.wait_with_output().expect("it ends");
            panic!("ended before it was stopped at {kept} points, {:?}: {}", ended.status, stderr(&ended));
        }
        signal(&child, how);
        let start = Instant::now();
        let output = child.wait_with_output().expect("it ends");
        let took = start.elapsed();
        assert_eq!(output.status.signal(), Some(how), "{}", stderr(&output));
        assert!(output.stdout.is_empty());
        if how != SIGKILL {
            assert!(took < Duration::from_secs(1), "an interrupt is answered after {took:?}");
            let (message, kept) = (stderr(&output), study.kept("out"));
            let told =
                message.split("interrupted: ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap_or_default();
            let told: usize = told.parse().unwrap_or_else(|_| panic!("{message}"));
            // A point may be put into the journal between the message and the end.
            assert!(told <= kept && kept <= told + 1, "{message}: {kept} points are there");
            assert!(message.contains(&format!("of {POINTS} points are kept in `")) && message.contains("goes on"));
        }
    }
    let resumed = study.sweep("out").output().expect("it starts");
    assert_eq!(resumed.status.code(), Some(0), "{}", stderr(&resumed));
    assert_eq!(study.table("out"), study.table("whole"));
    assert_eq!(names(&study.path("out")), names(&study.path("whole")));
}

#[test]
fn two_sweeps_do_not_write_one_directory() {
    let study = Study::new();
    let mut first = study.sweep("out").spawn().expect("it starts");
    wait_until("a journal", || study.kept("out") >= 1);
    let second = study.sweep("out").output().expect("it starts");
    assert!(first.try_wait().expect("it runs").is_none(), "the study is too quick");
    assert_eq!(second.status.code(), Some(2), "{}", stderr(&second));
    assert!(stderr(&second).contains("is in use: another sweep writes it"), "{}", stderr(&second));
    first.kill().expect("it runs");
    first.wait().expect("it ends");
}

#[test]
fn an_interrupted_run_leaves_nothing() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let out = directory.path().join("out");
    let child = command().args(LONG).arg("--out").arg(&out).spawn().expect("it starts");
    wait_until("an answer to signals", || answers(&child, SIGTERM));
    sleep(Duration::from_millis(200));
    signal(&child, SIGTERM);
    let start = Instant::now();
    let output = child.wait_with_output().expect("it ends");
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    assert_eq!(output.status.signal(), Some(SIGTERM), "{}", stderr(&output));
    assert_eq!(stderr(&output), "interrupted: nothing is written\n");
    assert!(output.stdout.is_empty() && !out.exists());
}

/// A shell puts what runs in its background beyond Ctrl-C: so it stays.
#[test]
fn an_ignored_interrupt_stays_ignored() {
    let ignoring = format!("trap '' INT; exec {} \"$@\"", env!("CARGO_BIN_EXE_rdusim"));
    let mut child = Command::new("sh").args(["-c", &ignoring, "sh"]).args(LONG).spawn().expect("it starts");
    wait_until("an answer to signals", || answers(&child, SIGTERM));
    assert!(!answers(&child, SIGINT));
    child.kill().expect("it runs");
    child.wait().expect("it ends");
}

#[test]
fn a_file_size_limit_is_a_failure_that_leaves_nothing() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let out = directory.path().join("out");
    let limited = format!("ulimit -f 1; exec {} \"$@\"", env!("CARGO_BIN_EXE_rdusim"));
    let output = Command::new("sh").args(["-c", &limited, "sh"]).args(RUN).arg("--out").arg(&out).output();
    let output = output.expect("it starts");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(stderr(&output).contains("cannot write `") && stderr(&output).contains("File too large"), "{output:?}");
    assert!(output.stdout.is_empty());
    assert!(names(&out).is_empty(), "{:?}", names(&out));
}

#[test]
fn a_directory_that_cannot_be_written_is_named() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let out = directory.path().join("out");
    fs::create_dir(&out).expect("a directory");
    fs::set_permissions(&out, fs::Permissions::from_mode(0o555)).expect("its owner may");
    if fs::write(out.join("probe"), "").is_ok() {
        println!("skipped: root writes into every directory");
        return;
    }
    let output = command().args(RUN).arg("--out").arg(&out).output().expect("it starts");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(stderr(&output).contains("cannot write `"), "{output:?}");
}

#[test]
fn every_command_ends_quietly_when_its_reader_goes_away() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = |name: &str| directory.path().join(name).to_str().expect("a UTF-8 path").to_owned();
    let output = command().args(RUN).args(["--out", &path("out")]).output().expect("it starts");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let result = path("out/result.json");
    let study = Study::new();
    let study = study.path("study.toml").to_str().expect("a UTF-8 path").to_owned();
    let with = |command: &'static str| [&[command], &RUN[3..]].concat();
    let config = path("config.json");
    let text = r#"{"model_type":"gpt2","n_embd":64,"n_layer":1,"n_head":4,"n_positions":64,"vocab_size":128}"#;
    fs::write(&config, text).expect("a model");
    let measured = path("measured.csv");
    fs::write(&measured, "m,n,k,dtype,time_us\n128,128,128,bf16,10\n").expect("a table");
    let proof = path("proof.json");
    let prove = [&["prove", "--mode", "fused"], &RUN[3..], &["--out", &proof]].concat();
    let commands: Vec<Vec<&str>> = vec![
        RUN.to_vec(),
        with("compare"),
        with("map"),
        with("explain"),
        with("verify"),
        with("check"),
        prove,
        vec!["check-proof", &proof],
        vec!["diff", &result, &result],
        vec!["report", &result],
        vec!["sweep", &study, "--set", "workload.dims.d_ff=64"],
        vec!["model", "gpt2"],
        vec!["import", &config],
        vec!["sparsity", "block", "--shape", "64x64", "--block", "4x4", "--density", "0.5"],
        vec!["validate", "--arch", "arch/a100.toml", "--data", &measured],
        vec!["list"],
        vec!["completions", "bash"],
        vec![
            "pod",
            "arch/systems/dgx-a100.toml",
            "--model",
            "gpt2",
            "--phase",
            "training",
            "--parallel",
            "dp=8",
            "--batch",
            "8",
        ],
        vec!["--help"],
    ];
    for arguments in commands {
        let mut child = command().args(&arguments).spawn().expect("it starts");
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("it ends");
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {message}");
        assert!(!message.contains("error") && !message.contains("panicked"), "{arguments:?}: {message}");
    }
}

#[test]
fn paths_need_not_be_utf8() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let odd = |name: &[u8]| directory.path().join(OsStr::from_bytes(name));
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (chip, out) = (odd(b"chip\xff.toml"), odd(b"out\xfe"));
    fs::copy(root.join("arch/plasticine.toml"), &chip).expect("a chip");
    let run = |chip: &Path| {
        let mut command = command();
        command.args(["run", "--mode", "kbk", "--workload", "workloads/tiny-mlp.toml", "--arch"]).arg(chip);
        command.arg("--out").arg(&out).output().expect("it starts")
    };
    let output = run(&chip);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(out.join("result.json").is_file() && out.join("report.html").is_file());
    let output = run(&odd(b"none\xff.toml"));
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(stderr(&output).contains("cannot read `") && !stderr(&output).contains("panicked"), "{output:?}");
}

#[test]
fn no_color_is_no_color() {
    for arguments in [&["run", "--mod"][..], &["check", "none.toml"], &["--help"]] {
        let output = command().args(arguments).env("CLICOLOR_FORCE", "1").env("NO_COLOR", "1").output();
        let output = output.expect("it starts");
        assert!(!output.stderr.contains(&0x1b) && !output.stdout.contains(&0x1b), "{output:?}");
    }
}

#[test]
fn threads_change_no_byte() {
    let json = |threads: &str| {
        let mut command = command();
        command.args(["compare", "--format", "json"]).args(&RUN[3..]).env("RAYON_NUM_THREADS", threads);
        let output = command.output().expect("it starts");
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        output.stdout
    };
    assert!(json("1") == json("2"));
}

#[test]
fn whole_numbers_beyond_floating_point_are_exact() {
    // More FLOP than doubles count one by one: 2 x 268435399 x 8191 x 16381 of each of two GEMMs.
    let dims = ["tokens=268435399", "d_model=8191", "d_ff=16381"].map(|dim| format!("workload.dims.{dim}"));
    let flop: u128 = 2 * 2 * 268_435_399 * 8_191 * 16_381;
    assert!(flop > 1 << 53 && flop as f64 as u128 != flop);
    let mut command = command();
    command.args(["run", "--mode", "kbk", "--format", "json", "--arch", "arch/a100.toml"]);
    command.args(["--workload", "workloads/tiny-mlp.toml", "--set", "arch.memory.hbm.capacity_bytes=4503599627370496"]);
    for dim in &dims {
        command.args(["--set", dim]);
    }
    let output = command.output().expect("it starts");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains(&format!("\"dense_flops\": {flop}")), "{output:?}");
}

#[test]
fn numbers_in_messages_are_short() {
    let pod =
        ["pod", "arch/systems/sn40l-16.toml", "--model", "llama2-7b", "--phase", "requests", "--parallel", "tp=1"];
    let output = command().args(pod).args(["--batch", "8", "--arrivals", "1e308"]).output().expect("it starts");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(stderr(&output).contains("`--arrivals` is 1e308, expected"), "{output:?}");
}

#[test]
fn a_grid_beyond_memory_is_refused() {
    let arguments = ["run", "--mode", "fused", "--arch", "arch/sn10.toml", "--workload", "workloads/gpt13b-mlp.toml"];
    let mut command = command();
    command.args(arguments);
    for side in ["columns=2", "tile_columns=2", "rows=65536", "tile_rows=65536"] {
        command.args(["--set", &format!("arch.grid.{side}")]);
    }
    let output = command.output().expect("it starts");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    for word in ["the grid of SN10 is too large to be mapped", "2 columns and 65536 rows", "`grid.rows`"] {
        assert!(stderr(&output).contains(word), "{output:?}");
    }
}

#[test]
fn the_next_run_removes_what_a_killed_one_left() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let abandoned = directory.path().join(".rdusim-k1LLed");
    fs::write(&abandoned, "half a file").expect("a temporary file");
    let output = command().args(RUN).arg("--out").arg(directory.path()).output().expect("it starts");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(directory.path().join("result.json").is_file() && !abandoned.exists());
}

/// Commands that take long, each by another part of the program.
#[test]
fn whatever_takes_long_stops_at_once_and_says_so() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let rows = (0..50_000).map(|row| format!("{},512,1024,bf16,10\n", 64 + row)).collect::<Vec<String>>().concat();
    fs::write(directory.path().join("rows.csv"), format!("m,n,k,dtype,time_us\n{rows}")).expect("a table");
    let fused = "--arch sn10 --workload gpt13b-mlp";
    let commands = [
        "validate --data rows.csv".to_owned(),
        "pod sn30-8 --model gpt-13b --phase training --batch 64 --search".to_owned(),
        "prove --mode fused --arch sn40l --workload gpt2-xl-training".to_owned(),
        format!("explain {fused}"),
        format!("verify {fused} --max-flops 1000000000000"),
        format!("map --mode fused {fused} --set workload.dims.tokens=16384"),
    ];
    for words in commands {
        let mut command = command();
        command.args(words.split(' ')).current_dir(directory.path());
        let mut child = command.spawn().expect("it starts");
        wait_until("a handler", || answers(&child, interrupt()));
        sleep(Duration::from_millis(300));
        assert!(child.try_wait().expect("it runs").is_none(), "{words} is over already");
        signal(&child, interrupt());
        let start = Instant::now();
        let output = child.wait_with_output().expect("it ends");
        assert!(start.elapsed() < Duration::from_secs(1), "{words} goes on");
        assert_eq!(output.status.signal(), Some(interrupt()), "{words}: {}", stderr(&output));
        assert!(output.stdout.is_empty() && stderr(&output).contains("interrupted: "), "{words}: {}", stderr(&output));
    }
}
