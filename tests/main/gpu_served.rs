//! Kernels of graphs that serve: products side by side, experts as a library's call.

use std::path::Path;

use rdusim::arch;
use rdusim::gpu;
use rdusim::mode::Mode;
use rdusim::model::{Experts, Options, Phase, describe, preset};
use rdusim::outcome::{Outcome, SectionOutcome};
use rdusim::workload::{OperatorKind, Workload};

/// Four users' graph of a model, with experts or without.
fn graph(model: &str, phase: Phase, experts: Option<Experts>) -> Workload {
    let (mut architecture, _) = preset(model).expect("a preset");
    architecture.extras.experts = experts;
    let mut options = Options::new(model, architecture, phase, 4, 256);
    options.architecture.layers = 2;
    options.sequence = 256;
    describe(&options).expect("a graph").workload(model, 0).expect("a workload")
}

/// As Mixtral has them.
const EXPERTS: Experts = Experts { count: 8, each: 2, width: 14336, shared: 0, shared_gate: false, every: 1 };

fn fused(workload: &Workload) -> Outcome {
    let h100 = arch::open(Path::new("h100"), &[]).expect("a chip").gpu().cloned().expect("h100 is a GPU");
    gpu::run(&h100, workload, &[Mode::Fused]).expect("an outcome").remove(0)
}

fn section<'o>(outcome: &'o Outcome, operator: &str) -> &'o SectionOutcome {
    let has = |section: &&SectionOutcome| section.operators.iter().any(|name| name == operator);
    outcome.sections.iter().find(has).expect("a section")
}

#[test]
fn matrices_that_multiply_the_same_rows_are_one_product() {
    let workload = graph("llama3-8b", Phase::Decode, None);
    let outcome = fused(&workload);
    assert_eq!(section(&outcome, "query").operators, ["key", "value", "query"]);
    assert_eq!(section(&outcome, "up").operators, ["gate", "up"]);
    assert_eq!(section(&outcome, "silu").operators, ["silu", "gated"]);
    assert_eq!(section(&outcome, "rotate_query").operators, ["rotate_key", "rotate_query"]);
    // 4,096 x (1,024 + 1,024 + 4,096) elements of two bytes, in two layers.
    let traffic = &section(&outcome, "query").traffic.by_tensor;
    let read = |name: &str| traffic[name].off_chip_read_bytes;
    assert_eq!([read("w_key"), read("w_value"), read("w_query")], [1024, 1024, 4096].map(|wide| 2 * 2 * 4096 * wide));
    assert!(outcome.cycles >= outcome.bound_cycles);
}

#[test]
fn biases_go_with_their_columns() {
    let outcome = fused(&graph("gpt2", Phase::Decode, None));
    let packed = &section(&outcome, "query").operators;
    assert!(["key", "value", "query"].iter().all(|name| packed.iter().any(|of| of == name)), "{packed:?}");
}

#[test]
fn who_trains_has_products_of_each_matrix() {
    let workload = graph("llama3-8b", Phase::Training, None);
    let products = |names: &[String]| {
        let is_product =
            |name: &&String| workload.operators.iter().any(|of| of.name == **name && of.kind == OperatorKind::Gemm);
        names.iter().filter(is_product).count()
    };
    let outcome = fused(&workload);
    let plain = outcome.sections.iter().filter(|section| !section.name.starts_with("flash attention"));
    for section in plain {
        assert!(products(&section.operators) <= 1, "{:?}", section.operators);
    }
}

#[test]
fn experts_are_one_call_and_their_router_stays_alone() {
    let workload = graph("mistral-7b", Phase::Decode, Some(EXPERTS));
    let outcome = fused(&workload);
    let experts = section(&outcome, "expert_up");
    assert_eq!(experts.name, "experts");
    for operator in
        ["dispatch", "expert_gate", "expert_down", "collect", "choose_experts", "weigh", "combine", "add_feed"]
    {
        assert_eq!(section(&outcome, operator).name, "experts", "{operator}");
    }
    assert_eq!(section(&outcome, "router").operators, ["router"]);
    assert!(outcome.cycles >= outcome.bound_cycles);
    // Three matrices of 4,096 x 14,336 for each expert that a row meets, in two layers: at least two, at most eight.
    let one = 2 * 2 * 3 * 4096 * 14336_u64;
    let read = experts.traffic.off_chip_read_bytes;
    assert!((2 * one..=9 * one).contains(&read), "{read} of {one}");
    // Four users' tokens, two experts each.
    assert_eq!(experts.stages[0].mapping, "8 experts, 8 rows");
}
