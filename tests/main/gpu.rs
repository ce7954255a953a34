//! GPUs through the program and the library: two chips side by side, training in the published band, refusals.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rdusim::arch::{self, Gpu};
use rdusim::input::Override;
use rdusim::mode::Mode;
use rdusim::outcome::Outcome;
use rdusim::{gpu, model, workload};
use serde_json::Value;

use crate::models::options;

fn rdusim(arguments: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_rdusim");
    Command::new(program).args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).output().expect("the program runs")
}

fn stdout(arguments: &[&str]) -> String {
    let output = rdusim(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// Exit code 2, nothing on standard output, and the message.
fn refused(arguments: &[&str]) -> String {
    let output = rdusim(arguments);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    assert!(output.stdout.is_empty());
    String::from_utf8(output.stderr).expect("text")
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&stdout(arguments)).expect("JSON")
}

const A100: &str = "arch/a100.toml";
const MLP: &str = "workloads/gpt13b-mlp.toml";
const TINY: &str = "workloads/tiny-mlp.toml";

/// The same kernels on the next GPU: faster by no more than the rate of its tensor cores.
#[test]
fn an_h100_is_compared_by_name() {
    let both = json(&["compare", "--arch", "h100", "--against", "a100", "--workload", MLP, "--format", "json"]);
    assert_eq!(both["arch"]["name"], "H100-80GB");
    for mode in Mode::ALL.map(Mode::name) {
        let factor = both["against"]["speedups"][mode].as_f64().expect("a factor");
        assert!((1.5..989.4 / 311.9).contains(&factor), "{mode}: {factor}");
    }
    for run in both["runs"].as_array().expect("runs") {
        assert!(run["cycles"].as_u64() >= run["bound_cycles"].as_u64(), "{run}");
    }
}

#[test]
fn two_chips_stand_side_by_side() {
    let alone = json(&["compare", "--arch", A100, "--workload", TINY, "--format", "json"]);
    let first = json(&["compare", "--arch", "arch/sn10.toml", "--workload", TINY, "--format", "json"]);
    let both =
        json(&["compare", "--arch", "arch/sn10.toml", "--against", A100, "--workload", TINY, "--format", "json"]);
    // The object is what each chip has alone, and the factor between them.
    for key in ["arch", "workload", "runs", "speedup", "speedup_over_epilogue", "off_chip_traffic_ratio"] {
        assert_eq!(both[key], first[key], "{key}");
    }
    for key in ["arch", "runs", "speedup", "speedup_over_epilogue", "off_chip_traffic_ratio"] {
        assert_eq!(both["against"][key], alone[key], "{key}");
    }
    let time = |document: &Value, run: usize| document["runs"][run]["time_s"].as_f64().expect("seconds");
    for (run, mode) in Mode::ALL.map(Mode::name).into_iter().enumerate() {
        let factor = both["against"]["speedups"][mode].as_f64().expect("a factor");
        assert!((factor - time(&alone, run) / time(&first, run)).abs() < 1e-9 * factor);
    }
    assert_eq!(alone["arch"]["kind"], "gpu");
    assert_eq!(alone["runs"][0]["fidelity"], "kernel");

    let directory = tempfile::tempdir().expect("a directory");
    let out = directory.path().to_str().expect("a path");
    let words = ["compare", "--arch", "arch/sn10.toml", "--against", A100, "--workload", TINY, "--out", out, "--full"];
    let table = stdout(&words);
    for expected in
        ["against   A100-80GB: 108 SMs", "SN10 kbk", "SN10 epilogue is", "A100-80GB fused", "on SN10", "on A100-80GB"]
    {
        assert!(table.contains(expected), "{expected} in\n{table}");
    }
    let read = |name: &str| std::fs::read_to_string(directory.path().join(name)).expect("a file");
    for csv in ["sections.csv", "traffic.csv"] {
        let text = read(csv);
        assert!(text.starts_with("chip,run,") && text.contains("\nSN10,kbk,") && text.contains("\nA100-80GB,fused,"));
    }
    for picture in ["time.svg", "traffic.svg", "roofline.svg"] {
        let text = read(picture);
        assert!(text.contains("SN10 and A100-80GB") && text.contains("A100-80GB fused"), "{picture}");
    }
    let page = read("report.html");
    assert!(page.contains("A100-80GB") && page.contains("SN10"));
}

/// Of three chips each pair with the first is what it is alone, in JSON, table, CSV and page.
#[test]
fn several_chips_stand_side_by_side() {
    let with = |others: &[&str]| {
        let words: Vec<&str> = others.iter().flat_map(|other| ["--against", other]).collect();
        json(&[&["compare", "--effort", "quick", "--arch", "arch/sn10.toml", "--workload", TINY, "--format", "json"][..], &words].concat())
    };
    let three = with(&["a100", "h100"]);
    assert_eq!(three, with(&["a100,h100"]));
    let (one, other) = (with(&["a100"]), with(&["h100"]));
    assert!(one.get("against_further").is_none() && one["inputs"].get("against_further").is_none());
    assert_eq!((&three["runs"], &three["against"]), (&one["runs"], &one["against"]));
    assert_eq!(three["against_further"], serde_json::json!([other["against"]]));
    assert_eq!(three["inputs"]["against_further"], serde_json::json!([other["inputs"]["against"]]));
}

#[test]
fn several_chips_are_told_on_one_screen_and_one_page() {
    let directory = tempfile::tempdir().expect("a directory");
    let out = directory.path().to_str().expect("a path");
    let words = "compare --effort quick --arch sn10 --against a100 --against h100 --uncertainty --samples 2 --workload";
    let mut words: Vec<&str> = words.split(' ').chain([TINY, "--out", out]).collect();
    let screen = stdout(&words);
    assert!(screen.lines().count() <= 24 && screen.contains("time / SN10"), "{screen}");
    for chip in ["SN10 fused", "A100-80GB fused", "H100-80GB fused"] {
        assert_eq!(screen.lines().filter(|line| line.starts_with(chip) && line.ends_with('x')).count(), 1, "{screen}");
    }
    let page = std::fs::read_to_string(directory.path().join("report.html")).expect("the page");
    assert!(["SN10", "A100-80GB", "H100-80GB"].iter().all(|chip| page.contains(&format!("\"title\":\"{chip}\""))));
    let written = std::fs::read_to_string(directory.path().join("result.json")).expect("the result");
    let written: Value = serde_json::from_str(&written).expect("JSON");
    assert!(written["uncertainty"]["against_further"][0]["speedups"]["fused"].is_array(), "{}", written["uncertainty"]);
    let result = directory.path().join("result.json").display().to_string();
    let again = stdout(&["report", &result]);
    assert!(again.contains("H100-80GB"));
    words.push("--full");
    let full = stdout(&words);
    assert!(full.contains("H100-80GB\n") && full.contains("on H100-80GB"), "{full}");
    let csv = stdout(&["compare", "--arch", "sn10", "--against", "a100,h100", "--workload", TINY, "--format", "csv"]);
    assert_eq!(csv.lines().filter(|line| line.starts_with("H100-80GB,tiny-mlp,")).count(), 3, "{csv}");
    let message =
        refused(&["compare", "--arch", "sn10", "--workload", TINY, "--against", "a100,a100,a100,a100,a100,a100"]);
    assert!(message.contains("at most 5"), "{message}");
}

#[test]
fn the_feed_forward_block_moves_what_it_must() {
    let document = json(&["compare", "--arch", A100, "--workload", MLP, "--format", "json"]);
    let tensor = |run: usize, name: &str, way: &str| document["runs"][run]["traffic"]["by_tensor"][name][way].as_u64();
    let mib = |n: u64| Some(n << 20);
    // Every result once; h never leaves the SM behind the epilogue.
    assert_eq!(tensor(0, "h", "off_chip_write_bytes"), mib(80));
    assert_eq!(tensor(1, "h", "off_chip_write_bytes"), None);
    for run in [0, 1] {
        assert_eq!(tensor(run, "y", "off_chip_write_bytes"), mib(20));
        assert!(tensor(run, "w_up", "off_chip_read_bytes") >= mib(200));
    }
}

#[test]
fn explain_and_sweeps_take_a_gpu() {
    let text = stdout(&["explain", "--arch", A100, "--workload", MLP, "--mode", "kbk"]);
    let wanted = ["Kernel by kernel: ", "is bound by ", "twice the tensor cores of every SM", "twice the rate of hbm"];
    for wanted in wanted {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    // Twice of anything is no slower.
    let json = json(&["explain", "--arch", A100, "--workload", MLP, "--mode", "fused", "--format", "json"]);
    let more = json["modes"][0]["derivatives"].as_array().expect("derivatives");
    assert!(more.len() > 6 && more.iter().all(|one| one["saved_s"].as_f64().expect("seconds") >= -1e-12), "{json}");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let study = directory.path().join("study.toml");
    let root = env!("CARGO_MANIFEST_DIR");
    let text = format!(
        "schema = 1\nname = \"sms\"\narch = \"{root}/{A100}\"\nworkload = \"{root}/{MLP}\"\n\
         metrics = [\"fused.cycles\"]\n[[axes]]\npath = \"arch.sm.count\"\nvalues = [54, 108]\n"
    );
    std::fs::write(&study, text).expect("a file");
    let out = directory.path().join("out");
    stdout(&["sweep", study.to_str().expect("a path"), "--out", out.to_str().expect("a path")]);
    let table = std::fs::read_to_string(out.join("results.csv")).expect("a table");
    let cycles = |line: usize| -> u64 {
        let line = table.lines().nth(line).expect("a line");
        line.rsplit(',').next().expect("a cell").parse().expect("cycles")
    };
    assert!(cycles(1) > cycles(2), "{table}");
}

#[test]
fn what_needs_a_grid_refuses_a_gpu() {
    for command in ["map", "verify"] {
        let message = refused(&[command, "--arch", A100, "--workload", TINY]);
        assert!(
            message.contains("needs a chip of kind rdu or bsp") && message.contains("arch/a100.toml:"),
            "{message}"
        );
        assert!(message.contains("kind = \"gpu\""), "{message}");
    }
    for flags in [
        ["--save-config", "x.toml"],
        ["--config", "x.toml"],
        ["--sections", "x.toml"],
        ["--trace", "x.json"],
        ["--fidelity", "cycle"],
        ["--mapping", "vendor"],
    ] {
        let message = refused(&["run", "--mode", "fused", "--arch", A100, "--workload", TINY, flags[0], flags[1]]);
        assert!(message.contains(flags[0]) && message.contains("is a GPU"), "{message}");
    }
    assert!(stdout(&["check", "--arch", A100]).contains("108 SMs"));
}

#[test]
fn values_of_an_expert_format_that_no_kernel_has_are_refused() {
    for (set, range) in [
        ("local_expert_ns=-1", "from 0 to 1000000"),
        ("local_expert_ns=1e7", "from 0 to 1000000"),
        ("row_factor=-1", "from 0 to 100"),
        ("row_factor=1000", "from 0 to 100"),
    ] {
        let path = format!("serving.formats.fp8_block.{set}");
        let message = refused(&["check", "--arch", "h100", "--set", &format!("arch.{path}")]);
        let field = path.split('=').next().expect("a path");
        assert!(message.contains(&format!("`{field}` must be {range}")), "{set}: {message}");
    }
}

#[test]
fn fields_of_the_other_kind_are_refused_by_name() {
    let message = refused(&["check", "--arch", A100, "--set", "arch.kind=rdu"]);
    assert!(message.contains("`sm` belongs to a file with kind = \"gpu\""), "{message}");
    let message = refused(&["check", "--arch", "arch/sn10.toml", "--set", "arch.kind=tpu"]);
    assert!(message.contains("expected one of `rdu`, `gpu`"), "{message}");
    let directory = tempfile::tempdir().expect("a directory");
    let write = |name: &str, text: String| -> PathBuf {
        let path = directory.path().join(name);
        std::fs::write(&path, text).expect("a file");
        path
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = |name: &str| std::fs::read_to_string(root.join(name)).expect("a chip");
    let mixed = write("rdu.toml", text("arch/sn10.toml") + "\n[l2]\ncapacity_bytes = 1\n");
    let message = refused(&["check", "--arch", mixed.to_str().expect("a path")]);
    assert!(
        message.contains("`l2` belongs to a file with kind = \"gpu\"") && message.contains("rdu.toml:"),
        "{message}"
    );
    let mixed = write("gpu.toml", text(A100) + "\n[pmu]\nbanks = 1\n");
    let message = refused(&["check", "--arch", mixed.to_str().expect("a path")]);
    assert!(message.contains("`pmu` belongs to a file with kind = \"rdu\""), "{message}");
    for (set, expected) in [
        ("arch.sm.count=0", "`sm.count` must be from 1 to 4096"),
        ("arch.gemm.tiles=[]", "`gemm.tiles` has 0 tiles"),
        ("arch.gemm.tiles=[[128]]", "expected 2"),
        ("arch.gemm.tiles=[[4, 128]]", "must be from 8 to 1024"),
        ("arch.gemm.sustained_share=0", "must be from 0.01 to 1"),
        ("arch.fusion.attention=flush", "did you mean"),
        ("arch.cluster.sharding=half", "`optimizer`"),
        ("arch.sm.tensor_macs={}", "names no data type"),
        ("arch.memory.hbm.capacity_bytes=0", "capacity_bytes` must be"),
        ("arch.sm.lanes=3", "unknown field"),
        ("arch.serving.block_gb_per_s=-1", "`serving.block_gb_per_s` must be from 0.001 to 1000000"),
        ("arch.serving.parts_per_sm=0", "`serving.parts_per_sm` must be from 1 to 1024"),
        ("arch.serving.parts_per_sm=1025", "`serving.parts_per_sm` must be from 1 to 1024"),
        ("arch.serving.group_least_keys=0", "`serving.group_least_keys` must be from 1 to 1024"),
        ("arch.serving.prefill.tensor_share=-0.5", "`serving.prefill.tensor_share` must be from 0.01 to 1"),
        ("arch.serving.prefill.tensor_share=2", "`serving.prefill.tensor_share` must be from 0.01 to 1"),
    ] {
        let message = refused(&["check", "--arch", A100, "--set", set]);
        assert!(message.contains(expected), "{set}: {message}");
    }
    let message = refused(&[
        "run",
        "--mode",
        "fused",
        "--arch",
        A100,
        "--workload",
        TINY,
        "--set",
        "arch.sm.tensor_macs={fp16 = 1024}",
    ]);
    assert!(message.contains("multiplies bf16") && message.contains("fp16"), "{message}");
}

fn a100(sets: &[&str]) -> Gpu {
    let sets: Vec<Override> = sets.iter().map(|set| Override::parse(set).expect("an override")).collect();
    let chip = arch::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join(A100), &sets).expect("a chip");
    chip.gpu().cloned().expect("the A100 is a GPU")
}

fn training(recompute: model::Recompute) -> workload::Workload {
    let (architecture, sequence) = model::preset("gpt-13b").expect("a preset");
    let of_a_preset = options(&architecture, model::Phase::Training);
    let text = model::write(&model::Options {
        name: "gpt-13b".to_owned(),
        batch: 2,
        sequence,
        context: sequence,
        recompute,
        ..of_a_preset
    })
    .expect("a workload");
    workload::parse("gpt-13b.toml", &text, &[], 0).expect("a workload")
}

const OF_EIGHT: [&str; 2] = ["arch.cluster.devices=8", "arch.cluster.sharding=optimizer"];

fn seconds(gpu: &Gpu, outcome: &Outcome) -> f64 {
    outcome.cycles as f64 / gpu.clock_hz as f64
}

#[test]
fn training_gpt_13b_lands_in_the_published_band() {
    let gpu = a100(&OF_EIGHT);
    let again = training(model::Recompute::Full);
    // Work of the model, recomputation not counted: of the graph that saves its activations.
    let saved = training(model::Recompute::None);
    let macs: u64 = saved.operators.ids().map(|op| saved.dense_macs(op) * saved.operators[op].repeat).sum();
    let peak = gpu.macs_per_cycle(rdusim::units::Dtype::Bf16).expect("bf16") as f64 * gpu.clock_hz as f64;
    let outcomes = gpu::run(&gpu, &again, &Mode::ALL).expect("it fits");
    let mfu: Vec<f64> = outcomes.iter().map(|outcome| macs as f64 / (seconds(&gpu, outcome) * peak)).collect();
    // Eager with recomputation, data parallel taken as ideal: 41-60 % is published.
    assert!((0.41..=0.60).contains(&mfu[0]), "{mfu:?}");
    // Epilogues save time, fused kernels more; they stay below what recomputation leaves of the GEMMs' own rate.
    assert!(mfu[0] < mfu[1] && mfu[1] < mfu[2], "{mfu:?}");
    assert!(mfu[2] > 1.1 * mfu[0] && mfu[2] < 0.75 * 0.92, "{mfu:?}");
    for outcome in &outcomes {
        assert!(outcome.bound_cycles <= outcome.cycles);
    }
    // Saved activations do not fit beside unshared weights and gradients.
    let error = gpu::run(&gpu, &saved, &[Mode::Fused]).expect_err("it does not fit").to_string();
    assert!(error.contains("does not fit") && error.contains("saved activations"), "{error}");
}

/// `FlashAttention` makes the probabilities anew in its backward kernel, whether the graph says so or not.
#[test]
fn a_fused_attention_kernel_recomputes_by_itself() {
    let gpu = a100(&["arch.cluster.devices=8", "arch.cluster.sharding=full"]);
    let run =
        |recompute: model::Recompute| gpu::run(&gpu, &training(recompute), &[Mode::Kbk, Mode::Fused]).expect("it fits");
    let (saved, selective) = (run(model::Recompute::None), run(model::Recompute::Selective));
    assert_eq!(saved[1].cycles, selective[1].cycles);
    assert!(saved[0].cycles < selective[0].cycles, "one by one, three more kernels a layer run");
}

#[test]
fn every_step_of_fusion_is_at_least_as_fast() {
    let again = training(model::Recompute::Full);
    let off = ["epilogue", "elementwise", "graphs"].map(|key| format!("arch.fusion.{key}=false"));
    let none = "arch.fusion.attention=none".to_owned();
    let steps: Vec<Vec<&str>> = vec![
        vec![&off[0], &off[1], &off[2], &none],
        vec![&off[0], &off[1], &off[2]],
        vec![&off[1], &off[2]],
        vec![&off[2]],
        vec![],
    ];
    let times: Vec<f64> = steps
        .iter()
        .map(|sets| {
            let gpu = a100(&[&OF_EIGHT[..], &sets[..]].concat());
            let outcome = gpu::run(&gpu, &again, &[Mode::Fused]).expect("it fits").remove(0);
            seconds(&gpu, &outcome)
        })
        .collect();
    assert!(times.windows(2).all(|pair| pair[1] <= pair[0]), "{times:?}");
    // With everything off it is the eager run, but for nothing.
    let gpu = a100(&OF_EIGHT);
    let eager = gpu::run(&gpu, &again, &[Mode::Kbk]).expect("it fits").remove(0);
    assert!((times[0] / seconds(&gpu, &eager) - 1.0).abs() < 1e-6, "{times:?}");
}

#[test]
fn mode_epilogue_is_fused_with_epilogues_alone() {
    let again = training(model::Recompute::Full);
    let time = |sets: &[&str], mode: Mode| {
        let gpu = a100(&[&OF_EIGHT[..], sets].concat());
        seconds(&gpu, &gpu::run(&gpu, &again, &[mode]).expect("it fits").remove(0))
    };
    let alone = ["arch.fusion.elementwise=false", "arch.fusion.graphs=false", "arch.fusion.attention=none"];
    let epilogue = time(&[], Mode::Epilogue);
    assert!((time(&alone, Mode::Fused) / epilogue - 1.0).abs() < 1e-9);
    // What the chip file fuses is of mode `fused` alone.
    assert!((time(&["arch.fusion.epilogue=false"], Mode::Epilogue) / epilogue - 1.0).abs() < 1e-9);
}

#[test]
fn the_committed_waterfalls_multiply_to_their_ends() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("reports/gpt13b/gpt13b.json");
    let report: Value = serde_json::from_str(&std::fs::read_to_string(path).expect("the report")).expect("JSON");
    let number = |value: &Value| value.as_f64().expect("a number");
    let runs = report["runs"].as_array().expect("runs");
    // A step is its micro-batches and a share of the update.
    for run in runs {
        let share =
            if run["chip"].as_str().expect("a name").starts_with("A100") { 1.0 } else { number(&report["devices"]) };
        let micro = number(&run["micro_batches"]) * (number(&run["forward_s"]) + number(&run["backward_s"]));
        let step = micro + number(&run["update_s"]) / share;
        assert!((step - number(&run["step_s"])).abs() <= 1e-9 * step);
    }
    // Levels are sums of a run's phases: equal but for rounding.
    let is_run = |time_s: f64, mode: &str| {
        runs.iter().any(|run| run["mode"] == mode && (number(&run["step_s"]) / time_s - 1.0).abs() < 1e-12)
    };
    let waterfalls = report["waterfalls"].as_array().expect("waterfalls");
    assert_eq!(waterfalls.len(), 3);
    for waterfall in waterfalls {
        let steps = waterfall["steps"].as_array().expect("steps");
        let (start, end) = (number(&steps[0]["start_s"]), number(&steps[steps.len() - 1]["end_s"]));
        let factors = waterfall["factors"].as_array().expect("factors");
        let product: f64 = factors.iter().map(number).product();
        assert!((product / (start / end) - 1.0).abs() < 1e-9, "{product}");
        assert!((number(&waterfall["speedup"]) / product - 1.0).abs() < 1e-9);
        // Levels are runs' own numbers, but for those between the dense and the sparse run, whose phases change one by one.
        assert!(is_run(start, "fused") && is_run(end, "fused") && steps.len() == 6);
        for (step, mode) in steps.iter().zip(["kbk", "epilogue", "fused"]) {
            assert!(is_run(number(&step["end_s"]), mode));
        }
        assert!(steps.windows(2).all(|pair| pair[0]["end_s"] == pair[1]["start_s"]));
    }
}

/// Writes a file of cases and returns its path.
fn cases(directory: &Path, name: &str, text: &str) -> String {
    let path = directory.join(name);
    std::fs::write(&path, text).expect("a file");
    path.to_str().expect("a path").to_owned()
}

#[test]
fn measurements_of_a_user_stand_beside_the_simulation() {
    let directory = tempfile::tempdir().expect("a directory");
    let text = "# source: nowhere\ndtype,m,n,k,time_us\nbfloat16,4096,4096,4096,600\nbf16,16,8192,8192,90\n";
    let file = cases(directory.path(), "gemm.csv", text);
    let found = json(&["validate", "--data", &file, "--format", "json"]);
    let set = &found["sets"][0];
    assert_eq!((&set["name"], &set["source"], &set["chip"]), (&"gemm".into(), &"nowhere".into(), &"A100-80GB".into()));
    // The same kernel as in a graph with this product alone, captured.
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let square = root.join("workloads/gemm-square.toml");
    let run = json(&[
        "run",
        "--mode",
        "fused",
        "--arch",
        A100,
        "--workload",
        square.to_str().expect("a path"),
        "--set",
        "workload.dims.n=4096",
        "--format",
        "json",
    ]);
    let (time, simulated) = (run["runs"][0]["time_s"].as_f64(), set["rows"][0]["simulated"].as_f64());
    let (time, simulated) = (time.expect("seconds") * 1e6, simulated.expect("microseconds"));
    assert!((time - simulated).abs() < 0.01, "{time} and {simulated}");
    let parts: Vec<&str> = set["parts"].as_array().expect("parts").iter().filter_map(|p| p["name"].as_str()).collect();
    let halves = ["first half by hash of the inputs", "second half by hash of the inputs"];
    assert_eq!(parts, [&["odd lines", "even lines", "small half", "large half"][..], &halves[..]].concat());
    for (header, line, expected) in [
        ("m,n,time_us", "1,1,1", "no kind of case"),
        ("m,n,k,speed", "1,1,1,1", "unknown column \"speed\""),
        ("m,n,k", "1,1,1", "no column of measured times"),
        ("m,n,k,time_us", "1,0,1,1", "gemm.csv:2: `n` is \"0\""),
        ("m,n,k,time_us", "1,1,1,-1", "a number above 0"),
        ("batch,isl,heads,kv_heads,head_dim,latency_ms", "1,128,8,3,128,1", "a divisor of the 8 heads"),
    ] {
        let file = cases(directory.path(), "gemm.csv", &format!("{header}\n{line}\n"));
        let message = refused(&["validate", "--data", &file]);
        assert!(message.contains(expected), "{expected} in\n{message}");
    }
}

#[test]
fn attention_and_experts_follow_their_mechanisms() {
    let directory = tempfile::tempdir().expect("a directory");
    let times = |name: &str, header: &str, lines: &[&str]| -> Vec<f64> {
        let file = cases(directory.path(), name, &format!("{header},time_us\n{},1\n", lines.join(",1\n")));
        let found = json(&["validate", "--data", &file, "--format", "json"]);
        let rows = found["sets"][0]["rows"].as_array().expect("rows").clone();
        rows.iter().map(|row| row["simulated"].as_f64().expect("a time")).collect()
    };
    // Twice the tokens are four times the scores.
    let prompt = times("p.csv", "batch,isl,heads,kv_heads,head_dim", &["4,8192,32,8,128", "4,16384,32,8,128"]);
    assert!((3.4..4.0).contains(&(prompt[1] / prompt[0])), "{prompt:?}");
    // A large cache is read once, at no more than the memory's rate, however many queries share it.
    let cache = times("d.csv", "batch,cached,heads,kv_heads,head_dim", &["64,4096,8,8,128", "64,4096,64,8,128"]);
    let bytes = 2.0 * 64.0 * 4096.0 * 8.0 * 128.0 * 2.0;
    assert!(cache.iter().all(|time| time * 1e-6 > bytes / 1.8e12), "{cache:?}");
    assert!(cache[1] < 1.1 * cache[0], "{cache:?}");
    // Skewed tokens take longer than even ones where devices share the experts out, and as long where one has them all.
    let header = "num_tokens,hidden_size,inter_size,topk,num_experts,moe_tp_size,moe_ep_size,distribution";
    let experts = times(
        "e.csv",
        header,
        &[
            "8192,4096,1536,8,128,1,8,uniform",
            "8192,4096,1536,8,128,1,8,power_law_1.2",
            "2,4096,1536,8,128,1,1,uniform",
            "16384,4096,1536,8,128,1,1,uniform",
            "16384,4096,1536,8,128,1,1,power_law_1.2",
        ],
    );
    assert!(experts[1] > 1.3 * experts[0], "{experts:?}");
    assert!(experts[4] < 1.1 * experts[3], "{experts:?}");
    // Two tokens touch at most 16 experts of 128, and their weights come from memory.
    let weights = 3.0 * 4096.0 * 1536.0 * 2.0 / 1.8e12 * 1e6;
    assert!(experts[2] > 14.0 * weights && experts[2] < 20.0 * weights, "{experts:?} and {weights}");
}

#[test]
fn a_stack_names_its_attention() {
    let text = |attention: &str| {
        let set = format!("arch.fusion.attention={attention}");
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("m.toml");
        let file = path.to_str().expect("a path");
        stdout(&[
            "model",
            "gpt",
            "--hidden",
            "1024",
            "--layers",
            "2",
            "--heads",
            "8",
            "--sequence",
            "8192",
            "-o",
            file,
        ]);
        json(&["run", "--mode", "fused", "--arch", A100, "--workload", file, "--set", &set, "--format", "json"])
    };
    let of = |attention: &str| {
        let run = text(attention)["runs"][0].clone();
        (run["time_s"].as_f64().expect("seconds"), run["notes"].to_string())
    };
    let [unfused, first, second] = ["unfused", "flash-1", "flash-2"].map(of);
    // Eight heads leave a hundred SMs idle where a thread block has a head.
    assert!(second.0 < first.0 && second.0 < unfused.0, "{unfused:?} {first:?} {second:?}");
    assert!(first.1.contains("FlashAttention 1") && second.1.contains("FlashAttention 2"));
    assert!(!unfused.1.contains("FlashAttention"));
    assert_eq!(of("none").0.to_bits(), unfused.0.to_bits());
}
