//! Gradients of weights, keys and values in the pipeline that passes their rows on.

use std::path::Path;
use std::process::Command;

use crate::legal::found_quickly;
use proptest::prelude::*;
use rdusim::arch;
use rdusim::compile::compile_measured;
use rdusim::mode::Mode;
use rdusim::outcome::{Fidelity, StopReason};
use rdusim::program::{Configuration, LoopLevel, LoopOrder, Sums};
use rdusim::sim::{check_size, simulate, simulate_unskipped};
use rdusim::verify::verify;
use rdusim::workload::{self, Workload};

fn tensor(name: &str, rows: &str, columns: &str, role: &str) -> String {
    format!("[[tensors]]\nname = \"{name}\"\nshape = [{rows:?}, {columns:?}]\nrole = \"{role}\"\n")
}

fn operator(name: &str, kind: &str, inputs: &[&str], output: &str, more: &str) -> String {
    format!("[[operators]]\nname = \"{name}\"\nkind = \"{kind}\"\ninputs = {inputs:?}\noutput = \"{output}\"\n{more}\n")
}

fn sections(list: &[&[&str]]) -> String {
    let lines: Vec<String> =
        list.iter().map(|operators| format!("[[sections]]\noperators = {operators:?}\n")).collect();
    lines.concat()
}

/// Two layers with a GELU, trained; `pinned`: the gradients in one section.
pub(crate) fn layers(tokens: u64, wide: u64, narrow: u64, pinned: bool) -> Workload {
    let mut text = format!(
        "schema = 1\nname = \"layers\"\n[dims]\ntokens = {tokens}\nwide = {wide}\nnarrow = {narrow}\n[training]\noptimizer = \"sgd\"\n"
    );
    text += &tensor("x", "tokens", "narrow", "input");
    text += &tensor("w0", "narrow", "narrow", "weight");
    text += &tensor("w1", "narrow", "wide", "weight");
    text += &tensor("w2", "wide", "narrow", "weight");
    text += &operator("pre", "gemm", &["x", "w0"], "a", "");
    text += &operator("up", "gemm", &["a", "w1"], "f", "");
    text += &operator("gelu", "gelu", &["f"], "g", "");
    text += &operator("down", "gemm", &["g", "w2"], "y", "");
    if pinned {
        let back = ["down.dx", "down.dw", "gelu.d", "up.dx", "up.dw", "pre.dw"];
        text += &sections(&[&["pre", "up", "gelu", "down"], &back, &["update_w0"], &["update_w1"], &["update_w2"]]);
    }
    workload::parse("layers", &text, &[], 0).expect("a graph")
}

/// Attention with `heads` heads on `kv_heads`, trained.
pub(crate) fn attention(
    batch: u64,
    length: u64,
    size: u64,
    heads: u64,
    kv_heads: u64,
    causal: bool,
    pinned: bool,
) -> Workload {
    let mut text = format!(
        "schema = 1\nname = \"attention\"\n[dims]\nrows = {}\nbatch = {batch}\nheads = {heads}\nkv = {kv_heads}\nwide = {}\nnarrow = {}\n[training]\noptimizer = \"sgd\"\n",
        batch * length,
        heads * size,
        kv_heads * size,
    );
    text += &tensor("x", "rows", "wide", "input");
    for (name, columns) in [("q", "wide"), ("k", "narrow"), ("v", "narrow")] {
        text += &tensor(&format!("w_{name}"), "wide", columns, "weight");
        text += &operator(name, "gemm", &["x", &format!("w_{name}")], &format!("x_{name}"), "");
    }
    text += &tensor("w_o", "wide", "wide", "weight");
    let more = format!("batch = \"batch\"\nheads = \"heads\"\nkv_heads = \"kv\"\ncausal = {causal}");
    text += &operator("scores", "gemm", &["x_q", "x_k"], "s", &format!("{more}\ntranspose_b = true"));
    text += &operator("mask", "causal_mask", &["s"], "m", "");
    text += &operator("softmax", "softmax", &["m"], "p", "heads = \"heads\"");
    text += &operator("mix", "gemm", &["p", "x_v"], "o", &more);
    text += &operator("out", "gemm", &["o", "w_o"], "y", "");
    if pinned {
        let back = ["out.dx", "out.dw", "mix.dx", "mix.dw", "softmax.d", "mask.d", "scores.dx", "scores.dw", "q.dw"];
        text += &sections(&[
            &["q", "k", "v"],
            &["scores", "mask", "softmax", "mix", "out"],
            &back,
            &["k.dw"],
            &["v.dw"],
            &["update_w_q"],
            &["update_w_k"],
            &["update_w_v"],
            &["update_w_o"],
        ]);
    }
    workload::parse("attention", &text, &[], 0).expect("a graph")
}

pub(crate) fn chip(sets: &[&str]) -> arch::Chip {
    let sets: Vec<_> = sets.iter().map(|set| rdusim::input::Override::parse(set).expect("a field")).collect();
    arch::load(Path::new("arch/plasticine.toml"), &sets).expect("a chip")
}

/// What stages of a configuration add up, and their sections' loop orders and blocks.
fn sums(configuration: &Configuration) -> Vec<(Sums, LoopLevel, LoopOrder, bool)> {
    let of = |section: &rdusim::program::Section| {
        let nest = section.schedule.nest();
        let stages = section.stages.iter();
        let found = stages.filter_map(|s| Some((s.spec.sums?, s.level, nest.order, nest.blocks() > 1)));
        found.collect::<Vec<_>>()
    };
    configuration.sections.iter().flat_map(of).collect()
}

/// Every law that holds of any configuration, of these: numbers, fidelities, skipping.
fn hold(chip: &arch::Chip, workload: &Workload, mode: Mode) -> Vec<(Sums, LoopLevel, LoopOrder, bool)> {
    let Ok(compiled) = found_quickly(chip, workload, &[mode]) else { return Vec::new() };
    let configuration = &compiled[0].configuration;
    for run in verify(chip, workload, [configuration], 5) {
        assert!(run.passed, "{:?} {:?} {:?}", run.fault, run.by_stage, run.end_to_end);
    }
    let [bound, event] = [Fidelity::Bound, Fidelity::Event].map(|f| simulate(chip, workload, configuration, f));
    assert_eq!(event.stop, StopReason::Drained);
    let every = simulate_unskipped(chip, workload, configuration, Fidelity::Event);
    assert_eq!(event, every, "skipping changes the result");
    for (bound, event) in bound.sections.iter().zip(&event.sections) {
        assert!(bound.cycles <= event.cycles, "{}: bound {} above {}", event.name, bound.cycles, event.cycles);
        assert_eq!(bound.traffic, event.traffic, "{}", event.name);
    }
    if check_size(chip, workload, configuration).is_ok() {
        let cycle = simulate(chip, workload, configuration, Fidelity::Cycle);
        assert_eq!(cycle.stop, StopReason::Drained);
        for (event, cycle) in event.sections.iter().zip(&cycle.sections) {
            assert_eq!(event.traffic, cycle.traffic, "{}", event.name);
            let [event_cycles, cycle_cycles] = [event, cycle].map(|s| (s.cycles - s.launch_cycles) as f64);
            let error = (event_cycles / cycle_cycles - 1.0).abs();
            assert!(cycle_cycles < 5000.0 || error <= 0.15, "{}: {event_cycles} for {cycle_cycles}", event.name);
        }
    }
    sums(configuration)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10, ..ProptestConfig::default() })]

    #[test]
    fn layers_add_up(tokens in 20u64..200, wide in 20u64..150, narrow in 10u64..70, small: bool, pinned: bool) {
        let sets: &[&str] = if small { &["arch.pmu.capacity_bytes=8192"] } else { &[] };
        let found = hold(&chip(sets), &layers(tokens, wide, narrow, pinned), Mode::Fused);
        prop_assert!(small || !pinned || found.len() == 3, "{found:?}");
    }

    #[test]
    fn attention_adds_up(
        batch in 1u64..4,
        length in 4u64..20,
        size in 3u64..9,
        kv in 1u64..3,
        group in 1u64..3,
        causal: bool,
        pinned: bool,
    ) {
        let workload = attention(batch, length, size, kv * group, kv, causal, pinned);
        let found = hold(&chip(&[]), &workload, Mode::Fused);
        prop_assert!(!pinned || found.len() == 4, "{found:?}");
        let of_blocks = found.iter().filter(|found| found.0 == Sums::Block).count();
        let wanted = if batch > 1 { 2 } else { 0 };
        prop_assert!(!pinned || of_blocks == wanted, "{found:?}");
    }
}

/// Mappings that are measured have the sums of a gradient done while other stages of the section go on: these still repeat
/// themselves, and what is done is asked for nothing.
#[test]
fn a_stage_that_ends_before_the_others_lets_them_repeat() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("arch/sn30-half.toml");
    let chip = arch::load(&path, &[]).unwrap_or_else(|error| panic!("{}", error.render(false)));
    let workload = layers(4096, 2048, 1024, false);
    let compiled = compile_measured(&chip, &workload, &[Mode::Fused]).expect("a mapping");
    let configuration = &compiled[0].configuration;
    let event = simulate(&chip, &workload, configuration, Fidelity::Event);
    assert_eq!(event.stop, StopReason::Drained);
    assert_eq!(event, simulate_unskipped(&chip, &workload, configuration, Fidelity::Event));
}

/// Off-chip bytes of a tensor, read and written, in the run of a result.
fn moved(result: &serde_json::Value, tensor: &str) -> (u64, u64) {
    let of = &result["runs"][0]["traffic"]["by_tensor"][tensor];
    let bytes = |key: &str| of[key].as_u64().unwrap_or(0);
    (bytes("off_chip_read_bytes"), bytes("off_chip_write_bytes"))
}

#[test]
fn a_layer_of_gpt2_has_the_gradients_of_its_weights_where_their_operands_pass() {
    let run = |mode: &str| {
        let sets = ["tokens=4096", "batch=4", "hidden=400", "heads=5", "ffn=1600", "vocabulary=503"];
        let mut command = Command::new(env!("CARGO_BIN_EXE_rdusim"));
        command.args(["run", "--mode", mode, "--arch", "arch/sn30-half.toml", "--mapping", "vendor"]);
        command.args(["--workload", "workloads/gpt2-xl-training.toml", "--format", "json"]);
        for set in sets {
            command.args(["--set", &format!("workload.dims.{set}")]);
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };
    let (kbk, fused) = (run("kbk"), run("fused"));
    let together = |a: &str, b: &str| {
        let has = |section: &serde_json::Value, name: &str| {
            section["operators"].as_array().unwrap().iter().any(|operator| operator == name)
        };
        fused["runs"][0]["sections"].as_array().unwrap().iter().any(|section| has(section, a) && has(section, b))
    };
    for operator in ["down", "up", "mix", "scores"] {
        assert!(together(&format!("{operator}.dx"), &format!("{operator}.dw")), "{operator}");
    }
    // Scores of 4096 x 5 x 1024 in bf16: their gradient never leaves the chip.
    assert_eq!(moved(&kbk, "d_s"), (2 * 41_943_040, 41_943_040));
    assert_eq!(moved(&fused, "d_s"), (0, 0));
    // Nor does that of the wide activation, and what the forward phase left behind comes once.
    assert_eq!(moved(&kbk, "d_f"), (2 * 13_107_200, 13_107_200));
    assert_eq!(moved(&fused, "d_f"), (0, 0));
    assert_eq!(moved(&fused, "g").0, 13_107_200);
}
