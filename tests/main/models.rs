//! Whole models: their sizes, their training graphs, attention without scores off chip.

use rdusim::arch::{self, Chip};
use rdusim::compile::compile;
use rdusim::mode::Mode;
use rdusim::model::{Architecture, Options, PRESETS, Phase, Recompute, Sparsity, describe, preset, write};
use rdusim::outcome::{Fidelity, Outcome, SectionOutcome};
use rdusim::sim::{check_size, simulate};
use rdusim::workload::{self, OperatorKind, Workload};

use crate::legal::found_quickly;

/// One sequence of 512 tokens, dense, in bf16.
pub(crate) fn options(architecture: &Architecture, phase: Phase) -> Options {
    Options {
        name: "model".to_owned(),
        architecture: *architecture,
        stack: None,
        phase,
        batch: 1,
        sequence: 512,
        context: 512,
        dtype: "bf16".to_owned(),
        sparsity: None,
        optimizer: "adam".to_owned(),
        recompute: Recompute::None,
        dropout: false,
        storage: rdusim::model::Storage::default(),
        activations: None,
        expert_load: rdusim::model::ExpertLoad::default(),
        weights: Vec::new(),
        notes: Vec::new(),
    }
}

fn small(layers: u64) -> Architecture {
    let (gpt2, _) = preset("gpt2").expect("a preset");
    Architecture { hidden: 64, layers, heads: 4, kv_heads: 4, feed_forward: 128, vocabulary: 256, ..gpt2 }
}

fn graph(options: &Options) -> Workload {
    let text = write(options).expect("a model");
    workload::parse("model", &text, &[], 0).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn chip() -> Chip {
    arch::load("arch/sn30.toml".as_ref(), &[]).expect("a chip")
}

fn run(workload: &Workload, mode: Mode) -> Outcome {
    let configuration = compile(&chip(), workload, mode).expect("it fits");
    simulate(&chip(), workload, &configuration, Fidelity::Bound)
}

fn macs(workload: &Workload) -> u64 {
    workload.operators.iter_enumerated().map(|(op, operator)| workload.dense_macs(op) * operator.repeat).sum()
}

/// A graph as it was built, and as its text reads: with the places of its values, which errors point at.
fn built_and_read(options: &Options) -> Option<(String, String)> {
    let graph = describe(options).ok()?;
    let shown = |workload: Result<Workload, _>| match workload {
        // Masks lie elsewhere in memory.
        Ok(workload) => format!("{workload:?}")
            .split("addr: 0x")
            .map(|part| part.trim_start_matches(|c: char| c.is_ascii_hexdigit()))
            .collect(),
        Err(error) => rdusim::diagnostics::Diagnostic::render(&error, false),
    };
    Some((shown(graph.workload("model", 0)), shown(workload::parse("model", graph.text(), &[], 0))))
}

#[test]
fn a_graph_is_the_workload_that_its_text_reads_as() {
    let phases = [Phase::Forward, Phase::Training, Phase::Prefill, Phase::Decode];
    let mut compared = 0;
    for (preset, phase) in PRESETS.iter().flat_map(|preset| phases.map(|phase| (preset, phase))) {
        let Some((built, read)) = built_and_read(&options(&preset.architecture, phase)) else { continue };
        assert!(built == read, "{} {phase:?}", preset.name);
        compared += 1;
    }
    assert!(compared > 2 * PRESETS.len(), "{compared}");
    let mut with_masks = options(&small(2), Phase::Training);
    with_masks.sparsity = Some(Sparsity { density: 0.5, block: 16 });
    let mut stored = options(&small(2), Phase::Decode);
    stored.storage.weights = Some("int4:32".parse().expect("a format"));
    stored.storage.cache = Some("fp8_e4m3".parse().expect("a format"));
    let quantised =
        Options { activations: Some("int8:token".parse().expect("a format")), ..options(&small(2), Phase::Prefill) };
    // What is refused is refused at the same line.
    let odd = Options { dtype: "bf17".to_owned(), ..options(&small(1), Phase::Forward) };
    for options in [with_masks, stored, quantised, odd] {
        let (built, read) = built_and_read(&options).expect("a graph");
        assert_eq!(built, read);
    }
}

#[test]
fn presets_have_their_published_parameters() {
    for preset in PRESETS {
        let found = graph(&options(&preset.architecture, Phase::Forward)).parameters() as f64;
        let error = (found / preset.parameters as f64 - 1.0).abs();
        assert!(error < 0.01, "{}: {found} parameters, published {}", preset.name, preset.parameters);
    }
}

/// FLOP of a training step without recomputation: 72 B s l h^2 (1 + s / 6h + V / 12lh), after Narayanan et al. 2021
/// (arXiv:2104.04473, equation 2 has 96 and 16 with every activation computed again).
#[test]
fn a_training_step_of_gpt_has_its_published_flop() {
    for name in ["gpt2-xl", "gpt-13b"] {
        let (architecture, _) = preset(name).expect("a preset");
        let step = options(&architecture, Phase::Training);
        let (s, l, h, v) = (
            step.sequence as f64,
            architecture.layers as f64,
            architecture.hidden as f64,
            architecture.vocabulary as f64,
        );
        let published = 72.0 * s * l * h * h * (1.0 + s / (6.0 * h) + v / (12.0 * l * h));
        let found = 2.0 * macs(&graph(&step)) as f64;
        assert!((found / published - 1.0).abs() < 0.01, "{name}: {found} FLOP, published {published}");
    }
}

#[test]
fn recomputing_adds_one_forward_pass_of_the_layers() {
    let saved = options(&small(3), Phase::Training);
    let again = Options { recompute: Recompute::Full, ..saved.clone() };
    let forward = graph(&options(&small(3), Phase::Forward));
    let in_layers: u64 = forward
        .operators
        .iter_enumerated()
        .filter(|(_, operator)| operator.block.is_some())
        .map(|(op, operator)| forward.dense_macs(op) * operator.repeat)
        .sum();
    assert_eq!(macs(&graph(&again)) - macs(&graph(&saved)), in_layers);
}

#[test]
fn selective_recomputation_adds_the_scores_of_attention() {
    let saved = options(&small(3), Phase::Training);
    let selective = graph(&Options { recompute: Recompute::Selective, ..saved.clone() });
    let saved = graph(&saved);
    let of_name = |name: &str| selective.operators.iter().find(|op| op.name == name);
    let scores = selective.operators.iter_enumerated().find(|(_, op)| op.name == "scores").map(|(op, _)| op);
    let scores = selective.dense_macs(scores.expect("scores")) * 3;
    assert_eq!(macs(&selective) - macs(&saved), scores);
    let again: Vec<&str> =
        selective.operators.iter().map(|op| op.name.as_str()).filter(|name| name.contains(".again")).collect();
    assert_eq!(again, ["scores.again", "mask.again", "softmax.again"]);
    // No gradient reads what the forward pass has made of the scores, so that it need not be saved.
    let probabilities = of_name("softmax").expect("a softmax").output;
    let readers = selective.operators.iter().filter(|op| op.inputs.iter().any(|&t| selective.base(t) == probabilities));
    assert_eq!(readers.map(|op| op.name.as_str()).collect::<Vec<_>>(), ["mix"]);
}

#[test]
fn every_matrix_is_updated_once_a_layer() {
    let step = graph(&options(&small(3), Phase::Training));
    let updates: Vec<_> = step.operators.iter().filter(|op| op.kind == OperatorKind::AdamUpdate).collect();
    // Six matrices a layer, and the tables of tokens and positions.
    assert_eq!(updates.len(), 8);
    assert_eq!(updates.iter().filter(|op| op.repeat == 3).count(), 6);
}

#[test]
fn repeated_layers_count_as_often_as_they_run() {
    let (one, three) = (graph(&options(&small(1), Phase::Forward)), graph(&options(&small(3), Phase::Forward)));
    for mode in Mode::ALL {
        let (one, three) = (run(&one, mode), run(&three, mode));
        let layer = |outcome: &Outcome, repeat| -> Vec<(String, u64, u64)> {
            let of_layer = outcome.sections.iter().filter(|s| s.operators.contains(&"mix".to_owned()));
            // A layer that is one section is launched once.
            let of_section = |s: &SectionOutcome| (s.cycles - s.launch_cycles) * repeat;
            of_layer.map(|s| (s.name.clone(), of_section(s), s.traffic.off_chip_bytes() * repeat)).collect()
        };
        assert_eq!(layer(&one, 3), layer(&three, 1));
        assert!(three.bound_cycles <= three.cycles);
    }
}

#[test]
fn fused_attention_keeps_its_scores_on_chip() {
    let workload = graph(&options(&small(2), Phase::Forward));
    let (kbk, fused) = (run(&workload, Mode::Kbk).traffic(), run(&workload, Mode::Fused).traffic());
    assert!(kbk.by_tensor["s"].off_chip_write_bytes > 0);
    assert!(!fused.by_tensor.contains_key("s") && !fused.by_tensor.contains_key("p"));
    assert!(fused.off_chip_bytes() < kbk.off_chip_bytes());
}

#[test]
fn a_grouped_query_reads_its_cache_once() {
    let grouped = Architecture { kv_heads: 2, ..small(1) };
    let decode = Options { batch: 3, ..options(&grouped, Phase::Decode) };
    let workload = graph(&decode);
    let traffic = run(&workload, Mode::Kbk).traffic();
    // 3 sequences of 512 tokens, 2 heads of 16, bf16.
    assert_eq!(traffic.by_tensor["k_cache"].off_chip_read_bytes, 3 * 512 * 2 * 16 * 2);
    assert_eq!(traffic.by_tensor["v_cache"].off_chip_read_bytes, 3 * 512 * 2 * 16 * 2);
}

#[test]
fn what_cannot_be_trained_is_named() {
    let text = "schema = 1\nname = \"w\"\n[training]\noptimizer = \"sgd\"\n[[tensors]]\nname = \"x\"\nshape = [8, 8]\n\
                role = \"input\"\n[[tensors]]\nname = \"w\"\nshape = [8, 8]\nrole = \"weight\"\n[[operators]]\nname = \"h\"\n\
                kind = \"gemm\"\ninputs = [\"x\", \"w\"]\noutput = \"h\"\n[[operators]]\nname = \"sum\"\nkind = \"row_sum\"\n\
                inputs = [\"h\"]\noutput = \"y\"\n";
    let error = workload::parse("w", text, &[], 0).expect_err("is refused").to_string();
    assert!(error.contains("operator `sum` cannot be trained: `row_sum` has no gradient here"), "{error}");
    let trained = text.replace("row_sum", "gelu");
    let workload = workload::parse("w", &trained, &[], 0).expect("has gradients");
    let kinds: Vec<&str> = workload.operators.iter().map(|op| op.kind.name()).collect();
    assert_eq!(kinds, ["gemm", "gelu", "gelu_grad", "gemm", "sgd_update"]);
}

#[test]
fn heads_that_do_not_divide_are_refused() {
    let odd = options(&Architecture { heads: 5, kv_heads: 5, ..small(1) }, Phase::Forward);
    assert_eq!(write(&odd).expect_err("is refused").title(), "5 heads do not divide the width 64");
    let odd = options(&Architecture { kv_heads: 3, ..small(1) }, Phase::Forward);
    assert_eq!(write(&odd).expect_err("is refused").title(), "3 key and value heads do not divide the 4 heads");
}

/// Forward by the mask, back by the mask turned, and of the weight's gradient what the mask stores.
#[test]
fn training_a_sparse_layer_does_the_stored_part_of_all_three_products() {
    let text = |sparsity: &str| {
        format!(
            "schema = 1\nname = \"layer\"\n[training]\noptimizer = \"sgd\"\n[[tensors]]\nname = \"x\"\nshape = [512, 512]\n\
             role = \"input\"\n[[tensors]]\nname = \"v\"\nshape = [512, 512]\nrole = \"weight\"\n[[tensors]]\nname = \"w\"\n\
             shape = [512, 1024]\nrole = \"weight\"\n{sparsity}\n[[operators]]\nname = \"in\"\nkind = \"gemm\"\n\
             inputs = [\"x\", \"v\"]\noutput = \"h\"\n[[operators]]\nname = \"out\"\nkind = \"gemm\"\ninputs = [\"h\", \"w\"]\n\
             output = \"y\"\n"
        )
    };
    let sparse = "sparsity = { pattern = \"block\", density = 0.125, block = [64, 64], seed = 1 }";
    let cycles = |text: &str| -> Vec<u64> {
        let workload = workload::parse("layer", text, &[], 0).expect("a layer");
        let outcome = run(&workload, Mode::Kbk);
        let of = |name: &str| {
            let is = |s: &&rdusim::outcome::SectionOutcome| s.operators == [name.to_owned()];
            let stage = &outcome.sections.iter().find(is).expect("a section").stages[0];
            (stage.mean_cycles * stage.pcus as f64) as u64
        };
        let macs = |name: &str| {
            let id = workload.operators.iter_enumerated().find(|(_, op)| op.name == name).expect("an operator").0;
            workload.stored_macs(id)
        };
        assert_eq!((macs("out"), macs("out")), (macs("out.dx"), macs("out.dw")));
        ["out", "out.dx", "out.dw"].map(of).to_vec()
    };
    let (dense, sparse) = (cycles(&text("")), cycles(&text(sparse)));
    // Columns on one stream do what any of them stores, and row slices in lockstep a pass if any of them must.
    for (dense, sparse) in dense.iter().zip(&sparse) {
        assert!(sparse * 8 >= *dense && sparse * 4 < dense * 3, "dense {dense} cycles of PCUs, sparse {sparse}");
    }
}

/// Pruning, growing and writing a new pattern costs something once, and a hundredth of it in each of a hundred steps.
#[test]
fn a_change_of_the_pattern_is_shared_by_the_steps_between() {
    let text = |pattern: &str| {
        format!(
            "schema = 1\nname = \"layer\"\n[training]\noptimizer = \"adam\"\n{pattern}\n[[tensors]]\nname = \"x\"\nshape = [128, 256]\n\
             role = \"input\"\n[[tensors]]\nname = \"w\"\nshape = [256, 512]\nrole = \"weight\"\n\
             sparsity = {{ pattern = \"block\", density = 0.25, block = [16, 16] }}\n[[operators]]\nname = \"out\"\n\
             kind = \"gemm\"\ninputs = [\"x\", \"w\"]\noutput = \"y\"\n"
        )
    };
    let load = |pattern: &str| workload::parse("layer", &text(pattern), &[], 0);
    let cycles = |pattern: &str| {
        let workload = load(pattern).expect("a layer");
        let outcome = run(&workload, Mode::Kbk);
        assert!(outcome.bound_cycles <= outcome.cycles);
        let of = |s: &&rdusim::outcome::SectionOutcome| s.phase == workload::Phase::Pattern;
        let pattern: u64 = outcome.sections.iter().filter(of).map(|s| s.cycles).sum();
        (outcome.cycles - pattern, pattern)
    };
    let with = |every: u64, regrow: &str, more: &str| {
        format!("pattern = {{ every = {every}, fraction = 0.3, regrow = \"{regrow}\"{more} }}")
    };
    let without = cycles("");
    let (once, shared) = (cycles(&with(1, "gradient", "")), cycles(&with(100, "gradient", "")));
    assert_eq!((without.1, once.0, shared.0), (0, without.0, without.0));
    assert!(once.1 > 0 && shared.1 >= once.1 / 100 && shared.1 <= once.1 / 100 + 4, "{once:?} {shared:?}");
    // Growing by the gradient needs that of the whole weight.
    assert!(cycles(&with(1, "random", "")).1 < once.1);
    // The cosine: at half the steps half the fraction is replaced.
    let kept = |more: &str| {
        let workload = load(&with(1, "random", more)).expect("a layer");
        workload.tensors.iter().find(|t| t.name == "w.kept").expect("what is kept").columns
    };
    assert_eq!((kept(""), kept(", step = 50, steps = 100"), kept(", step = 100, steps = 100")), (358, 435, 512));
    for (pattern, words) in [
        (with(0, "random", ""), "`training.pattern.every`"),
        (with(1, "anyhow", ""), "`training.pattern.regrow`"),
        (with(1, "random", ", step = 9, steps = 8"), "behind the last of 8 steps"),
        (with(1, "random", "").replace("0.3", "1.5"), "`training.pattern.fraction`"),
        (with(1, "random", ", often = 3"), "often"),
    ] {
        let error = load(&pattern).expect_err("is refused").to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn a_weight_that_is_stored_by_rows_is_converted_and_pays_for_it() {
    let traffic = |format: &str| {
        let text = format!(
            "schema = 1\nname = \"layer\"\n[[tensors]]\nname = \"x\"\nshape = [128, 256]\nrole = \"input\"\n[[tensors]]\n\
             name = \"w\"\nshape = [256, 512]\nrole = \"weight\"\n\
             sparsity = {{ pattern = \"unstructured\", density = 0.25, format = \"{format}\" }}\n[[operators]]\nname = \"out\"\n\
             kind = \"gemm\"\ninputs = [\"x\", \"w\"]\noutput = \"y\"\n"
        );
        let workload = workload::parse("layer", &text, &[], 0).expect("a layer");
        let outcome = run(&workload, Mode::Fused);
        assert!(outcome.bound_cycles <= outcome.cycles);
        (outcome.cycles, outcome.sections.len(), outcome.traffic())
    };
    let (rows, columns) = (traffic("csr"), traffic("bitmap"));
    assert_eq!((rows.1, columns.1), (2, 1));
    assert!(rows.0 > columns.0);
    // 32,768 stored values of 2 bytes; a column of 2 bytes for each and 257 offsets, or a bit for each element.
    let (by_rows, by_columns) = (32_768 * 4 + 257 * 4, 32_768 * 2 + 131_072 / 8);
    // Slots of whole bytes.
    let near = |found: u64, bytes: u64| assert!(found.abs_diff(bytes) < 100, "{found} B, expected {bytes}");
    near(rows.2.by_tensor["w"].off_chip_read_bytes, by_rows);
    near(rows.2.by_tensor["w.columns"].off_chip_write_bytes, by_columns);
    assert_eq!(rows.2.by_tensor["w.columns"].off_chip_read_bytes, by_columns);
    assert_eq!(columns.2.by_tensor["w"].off_chip_read_bytes, by_columns);
}

/// Every section of a decoder layer, forward, decoding and in a training step, runs in the reference model: it moves the same
/// bytes, and the event engine stays near it.
#[test]
fn decoder_layers_stay_near_the_reference_model() {
    let chip = arch::load("arch/plasticine.toml".as_ref(), &[]).expect("a chip");
    for (name, phase) in [
        ("gpt2", Phase::Forward),
        ("gpt2", Phase::Training),
        ("llama2-7b", Phase::Forward),
        ("llama2-7b", Phase::Decode),
        ("llama2-7b", Phase::Training),
    ] {
        let (of_model, _) = preset(name).expect("a preset");
        let (hidden, heads, kv_heads) = (128, 4, if name == "gpt2" { 4 } else { 2 });
        let layer = Architecture { hidden, layers: 1, heads, kv_heads, feed_forward: 256, vocabulary: 256, ..of_model };
        let optimizer = "sgd".to_owned();
        let workload = graph(&Options { batch: 2, sequence: 48, context: 200, optimizer, ..options(&layer, phase) });
        let found = found_quickly(&chip, &workload, &[Mode::Kbk, Mode::Fused]).expect("it fits");
        for (of, most) in found.into_iter().zip([0.04, 0.02]) {
            let configuration = of.configuration;
            let mode = configuration.mode;
            check_size(&chip, &workload, &configuration).expect("every operator is one that the reference model runs");
            let [event, cycle] =
                [Fidelity::Event, Fidelity::Cycle].map(|f| simulate(&chip, &workload, &configuration, f));
            let about = format!("{name}, {phase:?}, {mode:?}");
            let mut totals = [0, 0];
            for (event, cycle) in event.sections.iter().zip(&cycle.sections) {
                assert_eq!(event.traffic, cycle.traffic, "{} of {about}", event.name);
                totals[0] += event.cycles - event.launch_cycles;
                totals[1] += cycle.cycles - cycle.launch_cycles;
            }
            let error = totals[0] as f64 / totals[1] as f64 - 1.0;
            assert!(error.abs() <= most, "{about}: {totals:?}");
        }
    }
}
