//! Faults of the surroundings, through the command: devices, links, damaged journals, changed inputs, hostile names.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

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

fn rdusim(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rdusim")).args(arguments).output().expect("the command starts")
}

/// A small run with more arguments; returns exit code and standard error.
fn run_with(more: &[&str]) -> (Option<i32>, String) {
    let run = ["run", "--mode", "kbk", "--arch", "arch/sn10.toml", "--workload", "workloads/tiny-mlp.toml"];
    told(&rdusim(&[&run[..], &SMALL[..], more].concat()))
}

fn told(output: &Output) -> (Option<i32>, String) {
    if output.status.code() != Some(0) {
        assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
    }
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary paths are UTF-8")
}

#[cfg(target_os = "linux")]
#[test]
fn devices_stay_devices() {
    use std::os::unix::fs::FileTypeExt;
    for option in ["--trace", "--save-config"] {
        let (code, message) = run_with(&[option, "/dev/full"]);
        assert_eq!(code, Some(1), "{message}");
        assert!(message.contains("cannot write `/dev/full`"), "{message}");
        assert_eq!(run_with(&[option, "/dev/null"]).0, Some(0));
    }
    for device in ["/dev/full", "/dev/null"] {
        assert!(fs::metadata(device).expect("a device").file_type().is_char_device(), "{device}");
    }
}

#[test]
fn a_mistyped_directory_is_not_made() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let missing = directory.path().join("typo");
    let (code, message) = run_with(&["--save-config", text(&missing.join("map.toml"))]);
    assert_eq!(code, Some(1), "{message}");
    assert!(message.contains("there is no directory") && !missing.exists(), "{message}");
}

#[cfg(unix)]
#[test]
fn links_in_the_output_directory_are_not_followed() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (outside, out) = (directory.path().join("precious"), directory.path().join("out"));
    fs::write(&outside, "precious").expect("a file");
    fs::create_dir(&out).expect("a directory");
    std::os::unix::fs::symlink(&outside, out.join("result.json")).expect("a link");
    assert_eq!(run_with(&["--out", text(&out)]).0, Some(0));
    assert_eq!(fs::read_to_string(&outside).expect("a file"), "precious");
    assert!(!out.join("result.json").is_symlink());
}

#[cfg(target_os = "linux")]
#[test]
fn help_on_a_full_disk_is_a_failure() {
    for arguments in [&["--help"][..], &["--version"], &["compare", "--help"]] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("a device");
        let output =
            Command::new(env!("CARGO_BIN_EXE_rdusim")).args(arguments).stdout(full).output().expect("it starts");
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    }
}

#[test]
fn a_model_that_check_refuses_is_not_written() {
    let (code, message) = told(&rdusim(&["model", "gpt2", "--sparsity", "0.5", "--block", "0"]));
    assert_eq!(code, Some(2));
    assert!(message.contains("`--block` is 0"), "{message}");
}

#[test]
fn numbers_beyond_memory_are_refused() {
    let (code, message) = told(&rdusim(&[
        "verify",
        "--arch",
        "arch/sn40l.toml",
        "--workload",
        "workloads/gpt13b-mlp.toml",
        "--set",
        "workload.dims.tokens=1048576",
        "--max-flops",
        "18446744073709551615",
    ]));
    assert_eq!(code, Some(2), "{message}");
    assert!(message.contains("GiB") && message.contains("--max-flops"), "{message}");
}

#[test]
fn what_is_no_result_is_refused_early() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let huge = directory.path().join("huge.json");
    fs::File::create(&huge).and_then(|file| file.set_len(3 << 30)).expect("a sparse file");
    for arguments in
        [&["diff", text(&huge), text(&huge)][..], &["report", text(&huge)], &["diff", "/dev/zero", "/dev/zero"]]
    {
        let (code, message) = told(&rdusim(arguments));
        assert_eq!(code, Some(2), "{arguments:?}: {message}");
    }
}

/// What is written carries the number of its form, and a file of another form is refused by that number, whatever it is.
#[test]
fn files_of_another_form_are_refused_by_its_number() {
    let study = Study::new();
    let (out, saved) = (study.path("result"), study.path("saved.toml"));
    let result = out.join("result.json");
    assert_eq!(run_with(&["--out", text(&out), "--save-config", text(&saved)]).0, Some(0));
    let proof = study.path("proof.json");
    let prove = ["prove", "--arch", "plasticine", "--workload", "tiny-mlp", "--out", text(&proof)];
    assert_eq!(told(&rdusim(&prove)).0, Some(0));
    let [chip, work, plan] = ["chip.toml", "work.toml", "study.toml"].map(|name| study.path(name));
    let system = study.path("system.toml");
    fs::copy("arch/systems/dgx-a100.toml", &system).expect("a system");
    let again = ["run", "--mode", "kbk", "--arch", "arch/sn10.toml", "--workload", "workloads/tiny-mlp.toml"];
    let again = [&again[..], &SMALL[..], &["--config", text(&saved)]].concat();
    let readers: [(&Path, Vec<&str>); 8] = [
        (&chip, vec!["check", text(&chip)]),
        (&work, vec!["check", text(&work)]),
        (&system, vec!["check", text(&system)]),
        (&saved, again),
        (&result, vec!["report", text(&result), "--out", text(&out)]),
        (&result, vec!["diff", text(&result), text(&result)]),
        (&proof, vec!["check-proof", text(&proof)]),
        (&plan, vec!["check", text(&plan)]),
    ];
    for (path, arguments) in readers {
        let whole = fs::read_to_string(path).expect("a file");
        for number in [0, 2, 99] {
            let other =
                ["schema = 1", "\"schema\": 1", "\"schema\":1"].map(|now| (now, now.replace('1', &number.to_string())));
            let changed = other.iter().fold(whole.clone(), |text, (now, other)| text.replacen(now, other, 1));
            assert_ne!(changed, whole, "{} has a number", path.display());
            fs::write(path, &changed).expect("a file");
            let (code, message) = told(&rdusim(&arguments));
            assert_eq!(code, Some(2), "{arguments:?}: {message}");
            let says = [format!("found {number}"), format!("schema {number}"), format!("is {number}")];
            assert!(says.iter().any(|says| message.contains(says)), "{arguments:?}: {message}");
        }
        fs::write(path, whole).expect("a file");
    }
}

#[cfg(unix)]
#[test]
fn names_do_not_steer_the_terminal() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let out = directory.path().join("out");
    assert_eq!(run_with(&["--out", text(&out)]).0, Some(0));
    let result = fs::read_to_string(out.join("result.json")).expect("a result");
    let hostile = directory.path().join("b\u{1b}]0;owned\u{7}.json");
    // The name of a chip, as JSON has it.
    fs::write(&hostile, result.replace("\"SN10", "\"\\u001b]0;owned\\u0007SN10")).expect("a file");
    let output = rdusim(&["diff", text(&out.join("result.json")), text(&hostile)]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!output.stdout.contains(&0x1b), "{}", String::from_utf8_lossy(&output.stdout));
    fs::write(&hostile, "{").expect("a file");
    let (code, message) = told(&rdusim(&["diff", text(&hostile), text(&hostile)]));
    assert_eq!(code, Some(2));
    assert!(!message.contains('\u{1b}') && message.contains("owned"), "{message}");
}

/// A study of four points on a copy of a chip.
struct Study {
    directory: tempfile::TempDir,
}

impl Study {
    fn new() -> Self {
        let study = Self { directory: tempfile::tempdir().expect("a temporary directory") };
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        fs::copy(root.join("arch/plasticine.toml"), study.path("chip.toml")).expect("a chip");
        fs::copy(root.join("workloads/tiny-mlp.toml"), study.path("work.toml")).expect("a workload");
        let text = "schema = 1\nname = \"four\"\narch = \"chip.toml\"\nworkload = \"work.toml\"\nmodes = [\"kbk\"]\n\
                    metrics = [\"kbk.cycles\", \"kbk.bound_by\"]\n[[axes]]\npath = \"workload.dims.tokens\"\n\
                    values = [8, 16, 24, 32]\n";
        fs::write(study.path("study.toml"), text).expect("a study");
        study
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn sweep(&self) -> (Option<i32>, String) {
        told(&rdusim(&["sweep", text(&self.path("study.toml")), "--out", text(&self.path("out"))]))
    }

    fn journal(&self) -> PathBuf {
        self.path("out/journal.jsonl")
    }
}

#[test]
fn a_changed_chip_is_not_resumed() {
    let study = Study::new();
    assert_eq!(study.sweep(), (Some(0), String::new()));
    let table = fs::read(study.path("out/results.csv")).expect("a table");
    let chip = fs::read_to_string(study.path("chip.toml")).expect("a chip");
    fs::write(study.path("chip.toml"), format!("{chip}\n# changed\n")).expect("a chip");
    let (code, message) = study.sweep();
    assert_eq!(code, Some(2), "{message}");
    assert!(message.contains("chip.toml`") && message.contains("other contents"), "{message}");
    let merge = ["merge", text(&study.path("study.toml")), text(&study.path("out"))].map(str::to_owned);
    let (code, message) = told(&rdusim(&merge.iter().map(String::as_str).collect::<Vec<_>>()));
    assert_eq!(code, Some(2), "{message}");
    assert_eq!(fs::read(study.path("out/results.csv")).expect("a table"), table);
}

#[test]
fn damaged_lines_are_run_again() {
    let study = Study::new();
    assert_eq!(study.sweep(), (Some(0), String::new()));
    let table = fs::read_to_string(study.path("out/results.csv")).expect("a table");
    let journal = fs::read_to_string(study.journal()).expect("a journal");
    let lines: Vec<&str> = journal.lines().collect();
    // A result edited, a record with too few cells, and one that is not JSON any more.
    let mut damaged: Vec<String> = lines.iter().map(|&line| line.to_owned()).collect();
    damaged[1] = damaged[1].replacen("\"m\":[\"", "\"m\":[\"9", 1);
    damaged[2] = "{\"i\":1,\"s\":\"ok\",\"m\":[\"1\"]}".to_owned();
    damaged[3] = damaged[3][1..].to_owned();
    fs::write(study.journal(), damaged.join("\n") + "\n").expect("a journal");
    let (code, message) = study.sweep();
    assert_eq!(code, Some(0), "{message}");
    assert_eq!(message.matches("is damaged; its point is run again").count(), 3, "{message}");
    assert_eq!(fs::read_to_string(study.path("out/results.csv")).expect("a table"), table);
}

#[test]
fn pages_of_one_study_are_the_same_bytes() {
    let study = Study::new();
    let page = |out: &str, threads: &str| {
        let arguments =
            ["sweep", text(&study.path("study.toml")), "--out", text(&study.path(out)), "--threads", threads]
                .map(str::to_owned);
        let output = rdusim(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        fs::read(study.path(out).join("report.html")).expect("a page")
    };
    assert!(page("a", "1") == page("b", "2"));
}
