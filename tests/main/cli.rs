//! The command as a user meets it: output, messages, exit codes.

use std::path::Path;
use std::process::{Command, Output, Stdio};

fn rdusim(arguments: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rdusim")).args(arguments.split_whitespace()).output().expect("the command starts")
}

#[track_caller]
fn succeeds(arguments: &str) -> String {
    let output = rdusim(arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{arguments}: {stderr}");
    String::from_utf8(output.stdout).expect("results are UTF-8")
}

/// Runs a command that must be refused with nothing on standard output; returns its message.
#[track_caller]
fn refused(arguments: &str) -> String {
    let output = rdusim(arguments);
    assert_eq!(output.status.code(), Some(2), "{arguments}");
    assert!(output.stdout.is_empty(), "{arguments}: {}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr).expect("messages are UTF-8")
}

#[test]
fn check_tells_what_files_hold() {
    let text = succeeds("check --arch arch/sn10.toml --workload workloads/gpt13b-mlp.toml");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2);
    assert!(lines[0].starts_with("arch/sn10.toml: chip ") && lines[0].contains("640 PCUs"), "{text}");
    assert!(lines[1].starts_with("workloads/gpt13b-mlp.toml: workload ") && lines[1].contains("859.0 GFLOP"), "{text}");
}

#[test]
fn check_takes_either_file_alone() {
    let text = succeeds("check --arch arch/sn40l.toml");
    assert_eq!(text.lines().count(), 1);
    // Every value of a shipped file has a mark, and says which.
    assert!(text.contains(" published, ") && text.contains(" assumed"), "{text}");
    assert_eq!(succeeds("check --workload workloads/gpt13b-mlp-sparse.toml").lines().count(), 1);
    let message = refused("check");
    assert!(message.contains("--arch") && message.contains("--workload"), "{message}");
}

#[test]
fn set_changes_what_is_checked() {
    let text = succeeds("check --workload workloads/gpt13b-mlp.toml --set workload.dims.tokens=4096");
    assert!(text.contains("1.718 TFLOP dense"), "{text}");
}

#[test]
fn every_bad_input_of_a_check_is_told() {
    let message = refused("check --arch arch/none.toml --workload workloads/none.toml --set arch.pmu.banks");
    for word in ["arch/none.toml", "workloads/none.toml", "arch.pmu.banks"] {
        assert!(message.contains(word), "{message}");
    }
    let message = refused("check --arch arch/sn10.toml --set workload.dims.tokens=1");
    assert!(message.contains("has no file to change") && message.contains("--workload FILE"), "{message}");
}

#[test]
fn bad_arguments_are_refused() {
    let files = "--arch arch/sn10.toml --workload workloads/gpt13b-mlp.toml";
    for arguments in [
        "",
        "map",
        "compare",
        &format!("compare {files} --fidelity cycle"),
        &format!("compare {files} --seed -1"),
        &format!("compare {files} --format xml"),
        &format!("compare {files} --arch arch/sn40l.toml"),
        &format!("run {files}"),
        &format!("run {files} --mode both"),
    ] {
        refused(arguments);
    }
}

#[test]
fn bad_inputs_are_refused_and_leave_no_files() {
    let parent = tempfile::tempdir().expect("a temporary directory");
    let out = parent.path().join("out");
    for (arch, set, wanted) in [
        ("arch/none.toml", "workload.dims.tokens=1", "arch/none.toml"),
        ("arch/sn10.toml", "arch.pmu.banks=0", "--set arch.pmu.banks=0"),
        ("arch/sn10.toml", "arch.pmu.bank=1", "--set arch.pmu.bank=1"),
        ("arch/sn10.toml", "tokens=1", "--set tokens=1"),
    ] {
        let inputs = format!("--arch {arch} --workload workloads/gpt13b-mlp.toml --set {set}");
        let message = refused(&format!("compare {inputs} --out {}", out.display()));
        assert!(message.contains(wanted), "{message}");
    }
    assert!(!out.exists());
}

#[test]
fn help_teaches_by_example() {
    for (command, example) in [
        ("", "rdusim compare --arch arch/sn10.toml --workload workloads/gpt13b-mlp.toml"),
        ("compare", "--set arch.memory.ddr.bandwidth_gb_per_s=200"),
        ("run", "rdusim run --mode kbk"),
        ("map", "rdusim map --mode kbk"),
        ("check", "rdusim check --arch arch/sn10.toml"),
        ("completions", "rdusim completions bash"),
    ] {
        let text = succeeds(&format!("{command} --help"));
        assert!(text.contains("Examples:") && text.contains(example), "{text}");
    }
    assert!(succeeds("--version").starts_with("rdusim "));
}

#[test]
fn the_files_of_the_help_exist() {
    let text: String =
        ["", "compare", "run", "map", "check"].iter().map(|c| succeeds(&format!("{c} --help"))).collect();
    // What an example makes need not be there.
    let given = |word: &&str| word.contains(".toml") && !["mine.toml", "mychip.toml"].contains(word);
    let files: Vec<&str> = text.split_whitespace().filter(given).collect();
    assert!(files.len() > 20);
    for file in files {
        assert!(Path::new(file).is_file(), "{file}");
    }
}

#[test]
fn completions_know_the_commands() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(succeeds(&format!("completions {shell}")).contains("workload"), "{shell}");
    }
}

#[test]
fn verify_compares_numbers_and_says_what_it_made_smaller() {
    let pair = "--arch arch/sn10.toml --workload workloads/gpt2-small-mlp.toml";
    let output = rdusim(&format!("verify {pair} --max-flops 20000000 --format json"));
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("tokens 1024 -> ") && stderr.contains("--max-flops 20000000"), "{stderr}");
    let verdict: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&verdict["schema"], &verdict["passed"]), (&1.into(), &true.into()));
    let (error, tolerance) = (verdict["max_rel_error"].as_f64(), verdict["tolerance"].as_f64());
    assert!(error > Some(0.0) && error <= tolerance && tolerance < Some(0.1), "{error:?} {tolerance:?}");
    assert!(verdict["where"]["unit"].as_str().is_some_and(|unit| unit.starts_with("PCU (")), "{verdict}");
    assert_eq!(verdict["scaled"]["dims"].as_array().map(Vec::len), Some(3));
    assert!(verdict["flops"].as_u64() <= Some(20_000_000));
    assert_eq!(verdict["runs"].as_array().map(Vec::len), Some(3));
}

#[test]
fn verify_reads_every_data_type_and_one_mode() {
    let text = succeeds(
        "verify --arch arch/sn10.toml --workload workloads/tiny-mlp.toml --mode fused --set workload.dtype=fp32",
    );
    assert!(text.ends_with("\nverified\n") && !text.contains("\nkbk"), "{text}");
    let lanes = "--set arch.pcu.lanes.int8=64 --set arch.energy.mac_pj.int8=0.1";
    let text = succeeds(&format!(
        "verify --arch arch/sn10.toml --workload workloads/tiny-mlp.toml --set workload.dtype=int8 {lanes}"
    ));
    assert!(text.ends_with("\nverified\n"), "{text}");
    let message = refused("verify --arch arch/sn10.toml --workload workloads/tiny-mlp.toml --max-flops 1000");
    assert!(message.contains("--max-flops 1000") && message.contains("raise --max-flops"), "{message}");
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let compare = "compare --arch arch/sn10.toml --workload workloads/tiny-mlp.toml";
    for arguments in ["completions bash", compare, &format!("{compare} --format json"), "--help"] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_rdusim"))
            .args(arguments.split_whitespace())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command starts");
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("the command ends");
        assert_eq!(output.status.code(), Some(0), "{arguments}");
        assert!(output.stderr.is_empty(), "{arguments}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_a_failure() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
    let output = Command::new(env!("CARGO_BIN_EXE_rdusim"))
        .args(["completions", "bash"])
        .stdout(full)
        .output()
        .expect("the command starts");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot write to standard output"));
}

/// Only a debug build can be asked to panic.
#[cfg(debug_assertions)]
#[test]
fn a_panic_is_said_to_be_a_bug_and_leaves_no_result() {
    let command = "run --mode kbk --arch arch/sn10.toml --workload workloads/tiny-mlp.toml";
    let panics = |backtrace: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_rdusim"))
            .args(command.split(' '))
            .envs([("RDUSIM_TEST_PANIC", "a test asked for it"), ("RUST_BACKTRACE", backtrace)])
            .output()
            .expect("the command starts");
        let stderr = String::from_utf8(output.stderr).expect("messages are UTF-8");
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
        assert!(stderr.starts_with("error: this is a bug in rdusim"), "{stderr}");
        for word in [env!("CARGO_PKG_VERSION"), command, "a test asked for it", "location: "] {
            assert!(stderr.contains(word), "{stderr}");
        }
        stderr
    };
    let message = panics("0");
    assert!(message.contains("RUST_BACKTRACE=1") && message.lines().count() < 10, "{message}");
    let message = panics("1");
    assert!(message.contains("backtrace:\n") && message.lines().count() > 10, "{message}");
}

/// Tests of whole runs, on the smallest workload.
mod runs {
    use super::*;

    const MODES: [&str; 3] = ["kbk", "epilogue", "fused"];
    const TINY: &str = "--arch arch/sn10.toml --workload workloads/tiny-mlp.toml";

    #[test]
    fn compare_prints_a_table_with_the_fidelity() {
        for fidelity in ["bound", "event"] {
            let text = succeeds(&format!("compare {TINY} --fidelity {fidelity}"));
            assert!(text.contains(&format!("fidelity {fidelity}")) && text.contains("kbk / fused"), "{text}");
            assert!(text.contains("epilogue / fused") && text.contains("as fast as kbk"), "{text}");
            assert!(text.contains("as fast as epilogue"), "{text}");
        }
    }

    #[test]
    fn json_on_standard_output_is_the_file() {
        let parent = tempfile::tempdir().expect("a temporary directory");
        let out = parent.path().join("new/out");
        let text = succeeds(&format!("compare {TINY} --format json --out {}", out.display()));
        assert_eq!(std::fs::read_to_string(out.join("result.json")).expect("result.json"), text);
        assert_eq!(std::fs::read_dir(&out).expect("the directory").count(), 23);
        let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let runs: Vec<_> = json["runs"].as_array().expect("runs").iter().collect();
        assert_eq!(runs.iter().map(|run| run["mode"].as_str()).collect::<Vec<_>>(), MODES.map(Some));
        let [kbk, epilogue, fused] = [0, 1, 2].map(|run| runs[run]["time_s"].as_f64().expect("seconds"));
        for (key, factor) in [("speedup", kbk / fused), ("speedup_over_epilogue", epilogue / fused)] {
            assert!(json[key].as_f64().is_some_and(|found| (found - factor).abs() < 1e-12 * factor), "{key}");
        }
        let operators = |run: usize| {
            let sections = runs[run]["sections"].as_array().expect("sections").iter();
            sections.map(|section| section["operators"].to_string()).collect::<Vec<_>>()
        };
        assert_eq!(operators(1), [r#"["up","gelu"]"#, r#"["down"]"#]);
    }

    #[test]
    fn run_prints_one_run() {
        for mode in MODES {
            let text = succeeds(&format!("run {TINY} --mode {mode} --format json"));
            let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
            assert_eq!(json["runs"].as_array().map(Vec::len), Some(1));
            assert_eq!(json["runs"][0]["mode"], mode);
            for key in ["speedup", "speedup_over_epilogue", "off_chip_traffic_ratio"] {
                assert!(json.get(key).is_none(), "{key}");
            }
        }
    }

    #[test]
    fn map_shows_every_section_and_writes_its_pictures() {
        let parent = tempfile::tempdir().expect("a temporary directory");
        let out = parent.path().join("new/out");
        let text = succeeds(&format!("map {TINY} --mode kbk --out {}", out.display()));
        assert!(text.contains("section 1 of 3  up") && text.contains("fullest link"), "{text}");
        assert_eq!(std::fs::read_dir(&out).expect("the directory").count(), 15);
        for name in ["map-1-up", "map-2-gelu", "map-3-down", "map-1-up.run"] {
            assert!(std::fs::read(out.join(format!("{name}.png"))).expect(name).starts_with(b"\x89PNG"));
            assert!(std::fs::read_to_string(out.join(format!("{name}.svg"))).expect(name).starts_with("<svg "));
        }
        let json = succeeds(&format!("map {TINY} --mode kbk --format json"));
        assert_eq!(std::fs::read_to_string(out.join("map.json")).expect("map.json"), json);
        assert!(succeeds(&format!("map {TINY}")).contains("mode      fused, 1 section"));
        let text = succeeds(&format!("map {TINY} --mode epilogue"));
        assert!(text.contains("mode      epilogue, 2 sections") && text.contains("section 1 of 2  up+gelu"), "{text}");
    }

    #[test]
    fn a_map_that_is_refused_writes_nothing() {
        let parent = tempfile::tempdir().expect("a temporary directory");
        let out = parent.path().join("out");
        refused(&format!("map {TINY} --set arch.pmu.bank=1 --out {}", out.display()));
        refused(&format!("map {TINY} --mode other --out {}", out.display()));
        assert!(!out.exists());
        assert_eq!(rdusim(&format!("map {TINY} --out Cargo.toml/out")).status.code(), Some(1));
    }

    #[test]
    fn verbose_speaks_on_standard_error_only() {
        let plain = succeeds(&format!("compare {TINY}"));
        let output = rdusim(&format!("compare {TINY} -v"));
        assert_eq!(String::from_utf8_lossy(&output.stdout), plain);
        let stderr = String::from_utf8_lossy(&output.stderr);
        let lines: Vec<&str> = stderr.lines().collect();
        assert!(lines.len() == 6 && lines[0].starts_with("compile ") && lines[1].starts_with("bound "), "{stderr}");
        // How far each mode is from what no mapping beats.
        for (line, mode) in lines[2..5].iter().zip(["kbk: ", "epilogue: ", "fused: "]) {
            assert!(line.starts_with(mode) && line.contains("gap ") && line.ends_with(" %"), "{stderr}");
        }
    }

    #[test]
    fn the_log_tells_of_sections_on_standard_error_only() {
        let plain = succeeds(&format!("compare {TINY}"));
        let logged = |verbose: &str| {
            let output = rdusim(&format!("compare {TINY} {verbose}"));
            assert_eq!(String::from_utf8_lossy(&output.stdout), plain, "{verbose}");
            String::from_utf8_lossy(&output.stderr).into_owned()
        };
        let (once, twice, thrice) = (logged("-v"), logged("-vv"), logged("-vvv"));
        assert!(!once.contains("engine: ") && !once.contains("search: "), "{once}");
        for wanted in [
            "search: tiny-mlp on SN10, effort normal",
            "search: fused, sections: 1: up+gelu+down",
            "search: up, kbk: placed and routed: ",
            "engine: up+gelu+down, fused: drained after ",
            "engine: up, kbk: stage `up` works ",
        ] {
            assert!(twice.contains(wanted), "{wanted}: {twice}");
        }
        // Losers of the search are no result.
        assert_eq!(twice.matches("engine: up+gelu+down, fused: drained after ").count(), 1, "{twice}");
        assert!(!twice.contains("engine: down, fused: "), "{twice}");
        assert!(
            !twice.contains("measured by the search: ") && thrice.contains("measured by the search: drained after ")
        );
    }

    #[test]
    fn files_and_names_do_not_depend_on_what_is_told() {
        let folders = [tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder")];
        let [plain, told] = folders.each_ref().map(|of| of.path().display().to_string());
        succeeds(&format!("run --mode kbk {TINY} --out {plain}"));
        let output = rdusim(&format!("-vv run --mode kbk {TINY} --out {told}"));
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            stderr.lines().last().is_some_and(|line| line.starts_with("run ") && line.ends_with(" s in all")),
            "{stderr}"
        );
        for entry in std::fs::read_dir(&plain).expect("a folder") {
            let name = entry.expect("an entry").file_name();
            let of = |folder: &str| std::fs::read(std::path::Path::new(folder).join(&name)).expect("a file");
            assert!(of(&plain) == of(&told), "{} differs", name.display());
        }
        // Counts of `v` are no paths.
        let file = folders[0].path().join("0").display().to_string();
        assert!(
            rdusim(&format!("model gpt2 -o {file}")).status.success()
                && rdusim(&format!("model gpt2 -o {file}")).status.success()
        );
    }

    #[test]
    fn the_log_tells_what_importers_read_and_pods_leave_out() {
        let told = |line: &str| String::from_utf8_lossy(&rdusim(line).stderr).into_owned();
        let network = told("import tests/data/onnx/gated.onnx -vv");
        assert!(network.contains("import: ") && network.contains(" operators: "), "{network}");
        let model = told("model gpt-oss-20b -vv");
        assert!(model.contains("import: read as `gpt_oss`") && model.contains("import: 12 of 24 layers: "), "{model}");
        let pod = told("pod dgx-a100 --model gpt2-xl --phase training --search --chips 8 --batch 16 -vv");
        assert!(pod.contains("pod: best: tp=") && pod.contains("pod: left out: tp="), "{pod}");
    }

    #[test]
    fn a_directory_that_cannot_be_is_exit_1_and_no_result() {
        let output = rdusim(&format!("compare {TINY} --out Cargo.toml/out"));
        assert_eq!(output.status.code(), Some(1));
        assert!(output.stdout.is_empty());
        assert!(String::from_utf8_lossy(&output.stderr).contains("cannot create the directory `Cargo.toml/out`"));
    }
}

#[test]
fn effort_changes_how_long_the_compiler_searches() {
    let run = "run --mode fused --arch arch/plasticine.toml --workload workloads/tiny-mlp.toml --format json";
    let of = |effort: &str| succeeds(&format!("{run} --effort {effort}"));
    let cycles = |json: &str| {
        let json: serde_json::Value = serde_json::from_str(json).expect("the result is JSON");
        json["runs"][0]["cycles"].as_u64().expect("cycles")
    };
    let [quick, normal, thorough] = ["quick", "normal", "thorough"].map(of);
    assert_eq!(normal, succeeds(run), "`normal` is the default");
    assert_eq!(quick, of("quick"), "a result is a function of its inputs");
    // More trials find no slower mapping here; few find one that is near.
    assert!(cycles(&thorough) <= cycles(&normal), "{} and {}", cycles(&thorough), cycles(&normal));
    assert!(cycles(&quick) as f64 <= 1.2 * cycles(&normal) as f64, "{} and {}", cycles(&quick), cycles(&normal));
    let message = refused(&format!("{run} --effort much"));
    assert!(message.contains("--effort") && message.contains("thorough"), "{message}");
    let message = refused(&format!("{run} --effort quick --config x.toml"));
    assert!(message.contains("--effort") && message.contains("--config"), "{message}");
}
