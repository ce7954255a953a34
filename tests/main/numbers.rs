//! Every configuration of every random graph on every random chip computes what the graph says.
//!
//! The full run, of 300 pairs and more: `PROPTEST_CASES=400 cargo test --release --test main numbers`.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::laws::for_all;
use crate::legal::draws;
use crate::legal::found_quickly;
use crate::models::options;
use proptest::prelude::*;
use rayon::prelude::*;
use rdusim::arch;
use rdusim::input::Override;
use rdusim::mode::Mode;
use rdusim::model::{self, Architecture, Experts, Extras, Latent, Options, Phase, preset};
use rdusim::verify::{graph_flops, retargeted_from_full_size, scaled, verify};
use rdusim::workload::{self, OperatorKind, Workload};

/// Pairs where `PROPTEST_CASES` asks for no other number.
const CASES: u32 = 40;
/// Mappings of a graph that are drawn: as many as there are modes.
const DRAWS: usize = 3;
/// Operations of a graph that a test build does in no time.
const MAX_FLOPS: u64 = 10_000_000;
/// The same where every workload is verified on every chip, if it can be made so small.
const FEW_FLOPS: u64 = 2_500_000;

/// The TOML files of a directory of the repository, by name.
pub(crate) fn files(directory: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).expect("a directory of the repository");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("a file").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    paths.sort();
    assert!(paths.len() >= 4, "{directory} has {} files", paths.len());
    paths
}

/// Every workload that comes with rdusim, on a chip that does: a mapping that is drawn, and if it `finds`, those of every mode.
fn computes_what_it_says(chip: &Path, finds: bool) {
    let chip = arch::open(chip, &[]).expect("a chip").into_rdu().expect("an RDU");
    for path in files("workloads") {
        let name = path.display();
        let load = |sets: &[Override]| workload::load(&path, sets, 0);
        let is_model = load(&[]).expect("a workload").first_of_a_model().is_some();
        if is_model && chip.name != "Plasticine" && std::env::var_os("PROPTEST_CASES").is_none() {
            // A hundred sections each: on every chip in the full run.
            continue;
        }
        let few = scaled(&chip, FEW_FLOPS, load).or_else(|_| scaled(&chip, MAX_FLOPS, load));
        let (workload, _) = few.expect("a workload that can be made small");
        assert!(graph_flops(&workload) <= MAX_FLOPS);
        let mut configurations = draws(&chip, &workload, 1);
        if finds {
            let found = found_quickly(&chip, &workload, &Mode::ALL).expect("a pair that fits");
            configurations.extend(found.into_iter().map(|of| of.configuration));
        }
        assert!(!configurations.is_empty(), "{name} on {}: nothing is drawn", chip.name);
        for run in verify(&chip, &workload, &configurations, 0) {
            let of = format!("{name} on {}, {}", chip.name, run.mode);
            assert!(run.passed, "{of}: {:?} {:?} {:?}", run.fault, run.by_stage, run.end_to_end);
        }
    }
}

/// Chip files of RDUs: a GPU has no configurations.
fn rdus() -> Vec<PathBuf> {
    let is_rdu = |path: &PathBuf| arch::open(path, &[]).is_ok_and(|chip| chip.rdu().is_some());
    files("arch").into_iter().filter(is_rdu).collect()
}

#[test]
#[ignore = "depth: mappings of every mode on every chip"]
fn what_is_found_computes_what_it_says() {
    rdus().par_iter().for_each(|chip| computes_what_it_says(chip, true));
}

/// One test a chip, so that they run side by side, and one that none is left out.
macro_rules! what_comes_with_rdusim_computes_what_it_says {
    ($($name:ident: $file:literal),*) => {
        $(#[test]
        fn $name() {
            computes_what_it_says(&Path::new("arch").join($file), $file == "plasticine.toml");
        })*

        #[test]
        fn no_chip_is_left_out() {
            assert_eq!(rdus(), [$(Path::new("arch").join($file)),*]);
        }
    };
}

what_comes_with_rdusim_computes_what_it_says! {
    what_comes_computes_what_it_says_on_plasticine: "plasticine.toml",
    what_comes_computes_what_it_says_on_sn10: "sn10.toml",
    what_comes_computes_what_it_says_on_half_a_sn30: "sn30-half.toml",
    what_comes_computes_what_it_says_on_sn30: "sn30.toml",
    what_comes_computes_what_it_says_on_sn40l: "sn40l.toml",
    what_comes_computes_what_it_says_on_sn50: "sn50.toml"
}

#[test]
fn random_configurations_compute_what_their_graphs_say() {
    let (ran, numbers, strain) = (Cell::new(0u32), Cell::new(0u64), Cell::new(0.0f64));
    for_all(CASES, |chip, graph| {
        // About every fifth in integers.
        let whole = graph.text().len() % 5 == 0;
        let (chip, graph) = if whole { (chip.chip_of_integers(), graph.in_type("int8")) } else { (chip.chip(), graph) };
        let workload = graph.workload();
        let drawn = draws(&chip, &workload, DRAWS);
        if drawn.is_empty() {
            return Ok(());
        }
        for run in verify(&chip, &workload, &drawn, 1) {
            let fault = run.fault.as_ref().map_or(String::new(), ToString::to_string);
            prop_assert!(run.passed, "{}: {fault} {:?} {:?}\n{graph:?}", run.mode, run.by_stage, run.end_to_end);
            numbers.set(numbers.get() + run.compared);
            if let Some(worst) = run.by_stage.filter(|worst| worst.tolerance > 0.0) {
                strain.set(strain.get().max(worst.rel_error / worst.tolerance));
            }
        }
        ran.set(ran.get() + 1);
        Ok(())
    });
    println!("{} pairs, {} numbers, at worst {:.3} of the tolerance", ran.get(), numbers.get(), strain.get());
    assert!(2 * ran.get() > CASES && numbers.get() > 0);
}

/// A small model of two layers, with ragged sizes: 18 tokens in two sequences, heads of 6.
fn small(name: &str, phase: Phase) -> Options {
    let (architecture, _) = preset(name).expect("a preset");
    let sizes =
        Architecture { hidden: 24, layers: 2, heads: 4, kv_heads: 4, feed_forward: 40, vocabulary: 23, ..architecture };
    let kv_heads = if architecture.kv_heads < architecture.heads { 2 } else { 4 };
    let plain = options(&Architecture { kv_heads, ..sizes }, phase);
    Options { name: name.to_owned(), batch: 2, sequence: 9, context: 11, ..plain }
}

/// What DeepSeek-V3 has, made small: latent attention, a layer without experts, and experts that not all are met in decoding.
fn of_experts(phase: Phase) -> Options {
    let plain = small("llama2-7b", phase);
    let extras = Extras {
        latent: Some(Latent { query: Some(14), key: 10, plain: 6, rotated: 4, value: 6 }),
        experts: Some(Experts { count: 5, each: 2, width: 12, shared: 8, shared_gate: true, every: 1 }),
        dense_layers: 1,
        ..Extras::default()
    };
    Options { architecture: Architecture { extras, ..plain.architecture }, ..plain }
}

/// Mamba-2, made small: heads of 5, a state of 7 columns.
fn of_a_recurrence(phase: Phase, chunk: u32) -> Options {
    let plain = small("mamba2-130m", phase);
    let of = plain.architecture.extras.mamba.expect("a recurrence");
    let extras = Extras {
        mamba: Some(model::Mamba { layers: 2, heads: 4, head: 5, state: 7, span: chunk, ..of }),
        ..plain.architecture.extras
    };
    Options { architecture: Architecture { extras, ..plain.architecture }, ..plain }
}

fn model_of(options: &Options) -> Workload {
    let text = model::write(options).expect("a model");
    workload::parse(&options.name, &text, &[], 0).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Operators that no model here has, and gradients of all functions.
fn others() -> Vec<Workload> {
    let head = "schema = 1\nname = \"others\"\n";
    let tensor = |name: &str, rows: u64, columns: u64, role: &str| {
        format!("[[tensors]]\nname = \"{name}\"\nshape = [{rows}, {columns}]\nrole = \"{role}\"\n")
    };
    let op = |kind: &str, inputs: &str, output: &str, more: &str| {
        format!(
            "[[operators]]\nname = \"to_{output}\"\nkind = \"{kind}\"\ninputs = [{inputs}]\noutput = \"{output}\"\n{more}"
        )
    };
    let forward = [
        head.to_owned(),
        tensor("x", 21, 13, "input"),
        tensor("y", 21, 10, "input"),
        tensor("b", 1, 23, "weight"),
        op("concat", "\"x\", \"y\"", "both", ""),
        op("bias", "\"both\"", "moved", "vectors = [\"b\"]\n"),
        op("row_sum", "\"moved\"", "sums", ""),
        op("row_max", "\"moved\"", "most", ""),
        op("transpose", "\"moved\"", "turned", ""),
        op("scale", "\"turned\"", "scaled", ""),
        op("local_norm", "\"moved\"", "even", ""),
        op("sub", "\"moved\", \"even\"", "left", ""),
        op("sum_pool", "\"left\"", "sums_of_rows", "image = [1, 3]\nkernel = [1, 3]\nstride = [1, 3]\n"),
        tensor("pairs", 21, 21, "input"),
        tensor("fade", 21, 1, "input"),
        op("decay_before", "\"pairs\", \"fade\"", "before", "heads = 1\n"),
        tensor("sinks", 1, 23, "weight"),
        op("softmax", "\"moved\"", "shares", "heads = 23\nvectors = [\"sinks\"]\n"),
    ];
    let mut training =
        vec![head.to_owned(), "[training]\noptimizer = \"sgd\"\n".to_owned(), tensor("a0", 21, 13, "input")];
    let functions = ["tanh", "softplus", "sigmoid", "relu", "silu", "gelu", "rms_norm", "layer_norm", "softmax"];
    for (n, kind) in functions.into_iter().enumerate() {
        training.push(tensor(&format!("w{n}"), 13, 13, "weight"));
        training.push(op("gemm", &format!("\"a{n}\", \"w{n}\""), &format!("h{n}"), ""));
        training.push(op(kind, &format!("\"h{n}\""), &format!("a{}", n + 1), ""));
    }
    let parse =
        |text: String| workload::parse("others", &text, &[], 0).unwrap_or_else(|error| panic!("{error}\n{text}"));
    // Stored by rows, the weight is converted first.
    let dynamic = |regrow: &str, format: &str| {
        let layer = [
            head.to_owned(),
            "[training]\noptimizer = \"adam\"\n".to_owned(),
            format!("pattern = {{ every = 100, fraction = 0.3, regrow = \"{regrow}\", step = 50, steps = 200 }}\n"),
            tensor("a", 21, 16, "input"),
            tensor("w", 16, 24, "weight"),
            format!("sparsity = {{ pattern = \"block\", density = 0.5, block = [4, 4], format = \"{format}\" }}\n"),
            op("gemm", "\"a\", \"w\"", "y", ""),
        ];
        parse(layer.concat())
    };
    vec![parse(forward.concat()), parse(training.concat()), dynamic("random", "csr"), dynamic("gradient", "bsr")]
}

#[test]
fn models_compute_what_they_say_and_no_operator_is_left_out() {
    let chip = arch::load(Path::new("arch/plasticine.toml"), &[]).expect("a chip");
    let trained = Options {
        optimizer: "sgd".to_owned(),
        recompute: model::Recompute::Full,
        dropout: true,
        storage: rdusim::model::Storage::default(),
        activations: None,
        ..small("gpt2", Phase::Training)
    };
    let sparse = model::Sparsity { density: 0.4, block: 4 };
    let mut list = vec![
        model_of(&small("gpt2", Phase::Forward)),
        model_of(&small("vit-base", Phase::Forward)),
        model_of(&trained),
        model_of(&Options { recompute: model::Recompute::Selective, ..trained.clone() }),
        model_of(&small("llama2-70b", Phase::Training)),
        model_of(&small("llama2-70b", Phase::Decode)),
        model_of(&Options { sparsity: Some(sparse), ..small("llama2-7b", Phase::Training) }),
        model_of(&small("falcon-40b", Phase::Prefill)),
        model_of(&of_experts(Phase::Prefill)),
        model_of(&of_experts(Phase::Decode)),
        model_of(&of_a_recurrence(Phase::Prefill, 3)),
        model_of(&of_a_recurrence(Phase::Prefill, 1)),
        model_of(&of_a_recurrence(Phase::Decode, 3)),
        model_of(&Options { dtype: "fp32".to_owned(), ..small("bert-base", Phase::Forward) }),
        model_of(&Options { activations: "int8:token".parse().ok(), ..small("gpt2", Phase::Forward) }),
    ];
    list.extend(others());
    list.push(crate::numbers_of_images::everything("fp32").workload());
    let mut seen = BTreeSet::new();
    for workload in &list {
        let drawn = draws(&chip, workload, DRAWS);
        assert_eq!(drawn.len(), DRAWS, "{}", workload.name);
        seen.extend(workload.operators.iter().map(|op| op.kind));
        for run in verify(&chip, workload, &drawn, 2) {
            let of = format!("{} ({} operators), {}", workload.name, workload.operators.len(), run.mode);
            assert!(run.passed, "{of}: {:?} {:?} {:?}", run.fault, run.by_stage, run.end_to_end);
        }
    }
    // A convolution has become a product, and other shapes views.
    let is_resolved = |kind: OperatorKind| kind != OperatorKind::Conv && !kind.is_view();
    let missing: Vec<_> =
        OperatorKind::ALL.iter().copied().filter(|&kind| is_resolved(kind) && !seen.contains(&kind)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn smaller_graphs_are_mapped_as_at_full_size() {
    let chip = arch::load(Path::new("arch/sn10.toml"), &[]).expect("a chip");
    for name in ["gpt13b-mlp", "gpt13b-mlp-sparse"] {
        let path = PathBuf::from(format!("workloads/{name}.toml"));
        let load = |sets: &[Override]| workload::load(&path, sets, 0);
        let (small, _) = scaled(&chip, MAX_FLOPS, load).expect("a workload that can be made small");
        let full = load(&[]).expect("a workload");
        let like = retargeted_from_full_size(&chip, &full, &small, &Mode::ALL).expect("it compiles");
        for (configuration, retargeting) in &like {
            assert!(retargeting.kept, "{name}: {:?}", retargeting.why);
            let fused = configuration.mode == Mode::Fused;
            // The full size is cut, or not, in as many column tiles; and has row tiles that follow each other.
            assert!(
                retargeting.sections.iter().all(|s| (s.column_tiles[0] > 1) == (s.column_tiles[1] > 1)),
                "{retargeting:?}"
            );
            assert!(!fused || retargeting.sections[0].row_tiles[1] > 1, "{retargeting:?}");
        }
        for run in verify(&chip, &small, like.iter().map(|l| &l.0), 0) {
            assert!(run.passed, "{name} {}: {:?} {:?}", run.mode, run.fault, run.by_stage);
        }
    }
}
