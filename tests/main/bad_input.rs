//! Inputs that cannot be used: one clear message each, exit code 2, no result, no file. Never a panic.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

/// A directory with a chip file and a workload file, of which tests spoil one.
struct Place {
    directory: TempDir,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        for (from, to) in [("arch/sn10.toml", "chip.toml"), ("workloads/tiny-mlp.toml", "graph.toml")] {
            fs::copy(root.join(from), directory.path().join(to)).expect("a file that comes with rdusim");
        }
        Self { directory }
    }

    /// This place with `new` where `file` first had `old`.
    #[track_caller]
    fn with(self, file: &str, old: &str, new: &str) -> Self {
        let path = self.directory.path().join(file);
        let text = fs::read_to_string(&path).expect("the file");
        assert!(text.contains(old), "{file} has no {old:?}");
        fs::write(path, text.replacen(old, new, 1)).expect("the file is written");
        self
    }

    fn compare(&self, more: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_rdusim"))
            .args(["compare", "--arch", "chip.toml", "--workload", "graph.toml", "--out", "out"])
            .args(more)
            .current_dir(self.directory.path())
            .output()
            .expect("the command starts")
    }

    /// Runs `compare`, which must be refused with a message that has all of `words`.
    #[track_caller]
    fn refuses(&self, more: &[&str], words: &[&str]) {
        let output = self.compare(more);
        let message = String::from_utf8(output.stderr).expect("messages are UTF-8");
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(output.stdout.is_empty(), "{message}");
        for word in words {
            assert!(message.contains(word), "no {word:?} in:\n{message}");
        }
        assert_eq!(message.matches("error: ").count(), 1, "{message}");
        assert!(!message.contains("panicked"), "{message}");
        assert!(!self.directory.path().join("out").exists(), "{message}");
    }
}

/// Spoils a file, and gives the message's words.
#[track_caller]
fn refused(file: &str, old: &str, new: &str, words: &[&str]) {
    Place::new().with(file, old, new).refuses(&[], words);
}

#[test]
fn the_unspoilt_files_are_used() {
    let output = Place::new().compare(&[]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn unknown_fields_are_shown_with_the_known_ones() {
    let words = ["unknown field `pmu.bankz`", "chip.toml:", "bankz = 16", "expected one of", "did you mean `banks`?"];
    refused("chip.toml", "banks = 16", "bankz = 16", &words);
    let words = ["unknown field", "graph.toml:", "shapes = [\"tokens\", \"d_model\"]", "did you mean `shape`?"];
    refused("graph.toml", "shape = ", "shapes = ", &words);
    refused("graph.toml", "[dims]", "[sizes]\n[dims]", &["unknown field `sizes`", "graph.toml:"]);
}

#[test]
fn missing_files_and_fields_are_named() {
    let place = Place::new();
    fs::remove_file(place.directory.path().join("chip.toml")).expect("the file goes");
    place.refuses(&[], &["cannot read `chip.toml`"]);
    refused("chip.toml", "stages = 6", "", &["`pcu.stages` is missing", "chip.toml:", "[pcu]"]);
    refused("graph.toml", "output = \"y\"", "", &["output", "is missing", "graph.toml:"]);
}

#[test]
fn files_that_are_no_toml_are_shown_where_they_break() {
    refused("chip.toml", "clock_ghz = 1.25", "clock_ghz = ", &["chip.toml:", "clock_ghz = "]);
    refused("graph.toml", "schema = 1", "schema = 1\nschema = 1", &["graph.toml:", "schema"]);
    let place = Place::new();
    fs::write(place.directory.path().join("chip.toml"), [0xff, 0xfe]).expect("the file is written");
    place.refuses(&[], &["chip.toml", "not UTF-8"]);
    fs::write(place.directory.path().join("chip.toml"), "").expect("the file is written");
    place.refuses(&[], &["`schema` is missing", "chip.toml:1:1"]);
}

#[test]
fn counts_of_units_are_positive() {
    refused("chip.toml", "columns = 40", "columns = 0", &["`grid.columns`", "chip.toml:", "found 0", "from 1 to"]);
    refused("chip.toml", "rows = 32", "rows = -32", &["`grid.rows`", "chip.toml:", "found -32", "from 1 to"]);
    refused("chip.toml", "stages = 6", "stages = -6", &["`pcu.stages`", "found -6", "from 1 to"]);
    refused("chip.toml", "banks = 16", "banks = 0", &["`pmu.banks`", "found 0", "from 1 to"]);
    refused("chip.toml", "bf16 = 32", "bf16 = 0", &["`pcu.lanes.bf16`", "found 0", "from 1 to"]);
    refused("chip.toml", r#"["CM", "MC"]"#, r#"["MM", "MM"]"#, &["the grid has no PCU", "chip.toml:", "pattern ="]);
    refused("graph.toml", "tokens = 64", "tokens = 0", &["`dims.tokens`", "graph.toml:", "found 0", "from 1 to"]);
}

#[test]
fn numbers_are_finite_and_in_range() {
    for (value, found) in [("nan", "NaN"), ("inf", "inf"), ("-1.25", "-1.25"), ("0", "0"), ("1e300", "found 1")] {
        let words = ["`clock_ghz`", "chip.toml:", found, "from 0.001 to 1000"];
        refused("chip.toml", "clock_ghz = 1.25", &format!("clock_ghz = {value}"), &words);
    }
    refused("chip.toml", "latency_ns = 100", "latency_ns = nan", &["latency_ns", "found NaN"]);
    refused("graph.toml", "tokens = 64", "tokens = 64.5", &["`dims.tokens`", "graph.toml:", "whole number"]);
    refused("graph.toml", "tokens = 64", "tokens = \"64\"", &["`dims.tokens`", "graph.toml:", "whole number"]);
}

#[test]
fn overflow_is_told() {
    refused("graph.toml", "tokens = 64", "tokens = 99999999999999999999", &["graph.toml:", "99999999999999999999"]);
    let huge = "tokens = 1099511627776";
    refused("graph.toml", "tokens = 64", &format!("{huge}0"), &["`dims.tokens`", "from 1 to 1099511627776"]);
    Place::new()
        .with("graph.toml", "tokens = 64", huge)
        .refuses(&["--set", "workload.dims.d_ff=1099511627776"], &["2^62", "graph.toml:"]);
    refused("chip.toml", "capacity_bytes = 524288", "capacity_bytes = 9223372036854775807", &["`pmu.capacity_bytes`"]);
}

#[test]
fn shapes_that_do_not_meet_are_shown() {
    let words = ["graph.toml:", "\"down\"", "\"g\" is [64, 128]", "\"w_down\" is [64, 128]", "128 and 64"];
    refused("graph.toml", r#"["d_ff", "d_model"]"#, r#"["d_model", "d_ff"]"#, &words);
    let words = ["graph.toml:", "[64, 128]", "[64, 64]"];
    let add = "kind = \"add\"\ninputs = [\"h\", \"x\"]";
    refused("graph.toml", "kind = \"gelu\"\ninputs = [\"h\"]", add, &words);
    refused("graph.toml", r#"inputs = ["x", "w_up"]"#, r#"inputs = ["x"]"#, &["graph.toml:", "gemm", "2"]);
    refused("graph.toml", r#"inputs = ["h"]"#, r#"inputs = ["hh"]"#, &["graph.toml:", "\"hh\""]);
    refused("graph.toml", r#"["tokens", "d_model"]"#, r#"["tokens", "d_modle"]"#, &["\"d_modle\"", "`d_model`"]);
}

#[test]
fn a_cycle_is_named() {
    // gelu reads h2, which relu makes of g, which gelu makes.
    let relu = "inputs = [\"h2\"]\noutput = \"g\"\n\n[[operators]]\nname = \"relu\"\nkind = \"relu\"\ninputs = [\"g\"]\n\
                output = \"h2\"";
    let graph = Place::new().with("graph.toml", "inputs = [\"h\"]\noutput = \"g\"", relu);
    graph.refuses(&[], &["cycle", "\"gelu\"", "\"relu\"", "graph.toml:"]);
}

#[test]
fn unknown_operators_and_patterns_are_shown_with_the_known_ones() {
    let words = ["`operators.gelu.kind`", "graph.toml:", "\"gellu\"", "`softmax`", "did you mean `gelu`?"];
    refused("graph.toml", "kind = \"gelu\"", "kind = \"gellu\"", &words);
    let sparse = "role = \"weight\"\nsparsity = { pattern = \"n_m\", density = 0.5, block = [1, 1] }";
    refused("graph.toml", "role = \"weight\"", sparse, &["graph.toml:", "\"n_m\"", "`block`"]);
}

#[test]
fn an_operator_that_fits_in_no_way_says_by_how_much() {
    // Panels of a few columns fit nearly anywhere: four scratchpads of 16 bytes hold none.
    let words = ["operator `up`", "needs", "SN10 has 64 bytes", "short by", "graph.toml:", "help: make", "or raise"];
    Place::new()
        .with("chip.toml", "columns = 40\nrows = 32", "columns = 4\nrows = 2")
        .with("chip.toml", "tile_columns = 20\ntile_rows = 16\n", "")
        .with("chip.toml", "capacity_bytes = 524288", "capacity_bytes = 16")
        .refuses(&[], &words);
    let words = ["operator `gelu`", "needs 7 PCUs", "has 4", "help:"];
    Place::new()
        .with("chip.toml", "columns = 40\nrows = 32", "columns = 4\nrows = 2")
        .with("chip.toml", "tile_columns = 20\ntile_rows = 16\n", "")
        .with("chip.toml", "gelu = 6", "gelu = 42")
        .refuses(&[], &words);
    let words = ["needs", "off chip", "short by", "help: make", "`capacity_bytes`"];
    refused("chip.toml", "capacity_bytes = 1649267441664", "capacity_bytes = 4096", &words);
    refused("chip.toml", "capacity_bytes = 1649267441664", "capacity_bytes = 4096", &["graph.toml:", "4.00 KiB left"]);
    refused("graph.toml", "dtype = \"bf16\"", "dtype = \"fp16\"", &["fp16", "bf16", "`pcu.lanes`"]);
}

#[test]
fn bad_overrides_are_shown_as_typed() {
    for (set, words) in [
        ("arch.pmu.bank=1", &["--set arch.pmu.bank=1", "unknown field", "did you mean `banks`?"][..]),
        ("arch.pmu.banks", &["--set arch.pmu.banks", "PATH=VALUE"]),
        ("arch.pmu.banks=x", &["--set arch.pmu.banks=x", "whole number"]),
        ("arch.pmu.banks=-1", &["--set arch.pmu.banks=-1", "`pmu.banks`", "found -1"]),
        ("arch.clock_ghz=nan", &["--set arch.clock_ghz=nan", "found NaN"]),
        ("chip.pmu.banks=1", &["--set chip.pmu.banks=1", "arch"]),
        ("workload.operators.gleu.kind=relu", &["--set workload.operators.gleu.kind=relu", "gelu"]),
        ("workload.dims.tokens=0", &["--set workload.dims.tokens=0", "`dims.tokens`", "found 0"]),
        ("=", &["--set ="]),
    ] {
        Place::new().refuses(&["--set", set], words);
    }
}

/// Runs a command in a directory; it must be refused with these words.
#[track_caller]
fn command_refused(directory: &Path, arguments: &[&str], words: &str) {
    let output = Command::new(env!("CARGO_BIN_EXE_rdusim"))
        .args(arguments)
        .current_dir(directory)
        .output()
        .expect("the command starts");
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
    assert!(output.stdout.is_empty() && message.contains(words), "{arguments:?}: {message}");
}

#[test]
fn what_is_given_twice_is_refused() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).expect("a temporary file");
    let at = directory.path();
    write("trace.csv", "arrival_s,arrival_s,prompt_tokens,output_tokens\n0,1,10,10\n");
    let pod = ["pod", "dgx-a100", "--model", "gpt2", "--phase", "requests", "--parallel", "tp=1", "--batch", "8"];
    command_refused(at, &[&pod[..], &["--trace", "trace.csv"]].concat(), "two columns are named \"arrival_s\"");
    write("cases.csv", "m,n,k,m,dtype,time_us\n64,64,64,128,bf16,10\n");
    command_refused(at, &["validate", "--data", "cases.csv"], "two columns are named \"m\"");
    write("config.json", "{\"model_type\": \"llama\", \"hidden_size\": 64, \"hidden_size\": 128}");
    command_refused(at, &["check", "config.json"], "\"hidden_size\" is given twice");
}

#[test]
fn a_field_of_a_stack_that_nothing_reads_is_refused() {
    let arguments =
        "pod ipu-pod16 --model gpt2 --phase training --parallel pp=4 --batch 8 --set arch.stack.popart.step_us=5";
    let arguments: Vec<&str> = arguments.split(' ').collect();
    command_refused(Path::new("."), &arguments, "`stack.popart.step_us` has no effect");
}

/// What a refusal says is the least scratchpad is the least: with it the operator fits, with a bank's step less it does not.
#[test]
fn the_least_scratchpad_that_is_told_is_the_least() {
    let run = |capacity: u64| {
        let set = format!("arch.pmu.capacity_bytes={capacity}");
        let args = ["run", "--mode", "kbk", "--arch", "sn10", "--workload", "llama2-7b-decode", "--set", &set];
        crate::page::rdusim(&args).1
    };
    let told = run(512);
    assert!(told.contains("operator `scores` needs 550.00 KiB") && told.contains("short by 230.00 KiB"), "{told}");
    let parts = ["it has room for", "the second operand `k_cache`", "results `s`", "row tiles of `q`"];
    assert!(parts.iter().all(|part| told.contains(part)), "{told}");
    let (_, behind) = told.split_once("from ").expect("the least");
    let least: u64 = behind.split_once(' ').and_then(|(number, _)| number.parse().ok()).expect("a number");
    assert!(run(least - 16).contains("operator `scores` needs"), "{least}");
    assert!(!run(least).contains("operator `scores` needs"), "{least}");
}

/// A time of each step of training is for stacks that train.
#[test]
fn a_time_of_training_steps_is_refused_by_a_stack_that_serves() {
    let arguments = "pod dgx-a100 --model gpt2 --phase decode --stack serving --batch 8 --seq 64 \
                     --parallel tp=1 --set arch.stack.serving.training_step_us=5";
    let arguments: Vec<&str> = arguments.split_whitespace().collect();
    command_refused(Path::new("."), &arguments, "`stack.serving.training_step_us` has no effect");
}
