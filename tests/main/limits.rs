//! Inputs without an end or of absurd sizes: refused at once, before they take memory.

#![cfg(target_os = "linux")]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// Runs the program with so many megabytes of address space at most and 20 seconds of processor time.
fn limited(directory: &TempDir, megabytes: u64, arguments: &[&str]) -> Output {
    let script = format!("ulimit -v {}; ulimit -t 20; exec \"$0\" \"$@\"", megabytes << 10);
    let mut command = Command::new("sh");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_rdusim")]).args(arguments);
    command.current_dir(directory.path()).env("RAYON_NUM_THREADS", "2").output().expect("a shell is there")
}

#[track_caller]
fn refused(directory: &TempDir, megabytes: u64, arguments: &[&str], words: &[&str]) {
    let output = limited(directory, megabytes, arguments);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
    assert!(output.stdout.is_empty() && !message.contains("panicked"), "{arguments:?}: {message}");
    for word in words {
        assert!(message.contains(word), "{arguments:?}: no {word:?} in {message}");
    }
}

/// A file of zeros that takes no space.
fn zeros(directory: &TempDir, name: &str, bytes: u64) {
    let file = File::create(directory.path().join(name)).expect("a temporary file");
    file.set_len(bytes).expect("a sparse file");
}

fn shipped(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

#[test]
fn no_reader_reads_what_has_no_end() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for name in ["a.toml", "a.csv", "a.json", "a.onnx", "a.pt2"] {
        zeros(&directory, name, 3 << 30);
        zeros(&directory, &format!("short-{name}"), 1 << 30);
    }
    let chip = ["--mode", "kbk", "--arch", "sn10", "--workload"];
    let of = |command: &'static str, more: &[&'static str]| [&[command][..], more].concat();
    let commands = [
        (of("check", &["/dev/zero"]), "is no text: byte 0 is zero"),
        (of("check", &["a.toml"]), "bytes"),
        (of("check", &["a.onnx"]), "has more than 2147483648 bytes"),
        (of("check", &["short-a.onnx"]), "byte 0: 0 is no field number"),
        (of("check", &["a.pt2"]), "has more than 2147483648 bytes"),
        (of("check", &["a.json"]), ""),
        (of("import", &["short-a.onnx"]), "byte 0: 0 is no field number"),
        (of("run", &[&chip[..], &["/dev/zero"]].concat()), "is no text: byte 0 is zero"),
        (of("run", &[&chip[..], &["short-a.toml"]].concat()), "bytes"),
        (of("validate", &["--data", "/dev/zero"]), "is no text: byte 0 is zero"),
        (of("validate", &["--data", "a.csv"]), "has more than 268435456 bytes"),
        (of("sweep", &["/dev/zero"]), "is no text: byte 0 is zero"),
        (of("report", &["a.json"]), "has more than 268435456 bytes"),
        (of("diff", &["a.json", "a.json"]), "has more than 268435456 bytes"),
        (of("check-proof", &["a.json"]), "has more than 268435456 bytes"),
    ];
    for (arguments, words) in commands {
        refused(&directory, 400, &arguments, &["error: ", words]);
    }
    // A device that gives text without an end is read up to the limit.
    refused(&directory, 1200, &["validate", "--data", "/dev/full"], &["is no text"]);
}

#[test]
fn a_text_with_a_million_keys_is_refused_before_it_is_parsed() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let keys = (0..1_000_000).map(|key| format!("a{key} = {key}\n")).collect::<Vec<String>>().concat();
    for (shipped_file, table) in [("workloads/tiny-mlp.toml", "[dims]\n"), ("arch/plasticine.toml", "[pmu]\n")] {
        let text = fs::read_to_string(shipped(shipped_file)).expect("a shipped file");
        let text = text.replacen(table, &format!("{table}{keys}"), 1);
        assert!(text.len() > 10_000_000, "{shipped_file} has {table:?}");
        fs::write(directory.path().join("a.toml"), text).expect("a temporary file");
        refused(&directory, 300, &["check", "a.toml"], &["`a.toml` has about 100", "at most 500000 are read"]);
    }
}

#[test]
fn the_points_of_a_design_take_little_before_they_run() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for design in ["latin_hypercube", "random"] {
        let study = format!(
            "schema = 1\nname = \"many\"\narch = \"sn10\"\nworkload = \"tiny-mlp\"\nfidelity = \"bound\"\n\
             design = \"{design}\"\npoints = 1000000\nseed = 3\nmetrics = [\"kbk.bound_cycles\"]\n\
             [[axes]]\npath = \"arch.memory.ddr.bandwidth_gb_per_s\"\nrange = {{ from = 10.0, to = 100.0 }}\n\
             [[axes]]\npath = \"arch.memory.ddr.latency_ns\"\nrange = {{ from = 10, to = 1000 }}\n"
        );
        fs::write(directory.path().join("many.toml"), study).expect("a temporary file");
        let output = limited(&directory, 300, &["check", "many.toml"]);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("1,000,000 points, 2 axes"), "{design}: {output:?}");
    }
}

#[test]
fn a_product_of_a_billion_columns_is_refused_at_once() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for arch in ["sn10", "sn40l"] {
        let arguments = ["compare", "--arch", arch, "--workload", "tiny-mlp", "--set", "workload.dims.d_ff=1073741824"];
        refused(&directory, 400, &arguments, &["operator `up` has 1073741824 columns, at most 16777216 are mapped"]);
    }
}

#[test]
fn memory_that_cannot_be_had_is_a_failure() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let keys = (0..400_000).map(|key| format!("a{key} = {key}\n")).collect::<Vec<String>>().concat();
    fs::write(directory.path().join("a.toml"), format!("schema = 1\n{keys}")).expect("a temporary file");
    let output = limited(&directory, 200, &["check", "a.toml"]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(output.stdout.is_empty() && message.contains("memory allocation of"), "{message}");
}
