//! Linear recurrences: scans, their factors, convolutions along rows, layers of Mamba-2 and hybrids of them.

use crate::first_steps::rdusim;
use crate::kinds::{hold, violations};
use crate::legal::found_quickly;
use crate::sums;
use proptest::prelude::*;
use rdusim::compile::compile;
use rdusim::mode::Mode;
use rdusim::model::{Architecture, MAMBA_PRESETS, Mamba, Options, Phase, preset, write};
use rdusim::outcome::Fidelity;
use rdusim::program::Mapping;
use rdusim::sim::simulate;
use rdusim::verify::verify;
use rdusim::workload::{self, OperatorKind, Workload};

/// Every operator of a recurrence, one behind the other.
#[derive(Debug, Clone, Copy)]
struct Chain {
    /// Sequences, rows of one.
    rows: (u64, u64),
    /// Groups, heads of one, columns of a head, columns of a state.
    sizes: (u64, u64, u64, u64),
    taps: u64,
    fp32: bool,
}

const PLAIN: Chain = Chain { rows: (3, 8), sizes: (2, 2, 3, 5), taps: 4, fp32: true };

impl Chain {
    fn text(self) -> String {
        let Self { rows: (sequences, length), sizes: (groups, each, width, state), taps, fp32 } = self;
        let (rows, heads) = (sequences * length, groups * each);
        let columns = heads * width;
        let tensor = |name: &str, shape: (u64, u64), role: &str| {
            format!("[[tensors]]\nname = \"{name}\"\nshape = [{}, {}]\nrole = \"{role}\"\n", shape.0, shape.1)
        };
        let operator = |kind: &str, inputs: &str, output: &str, more: &str| {
            format!(
                "[[operators]]\nname = \"{kind}\"\nkind = \"{kind}\"\ninputs = [{inputs}]\noutput = \"{output}\"\n{more}\n"
            )
        };
        let dtype = if fp32 { "fp32" } else { "bf16" };
        let (of_heads, of_groups) = (format!("heads = {heads}"), format!("heads = {heads}\nkv_heads = {groups}"));
        let batch = format!("batch = {sequences}");
        let conv = "vectors = [\"taps\", \"bias\"]";
        [
            format!("schema = 1\nname = \"recurrence\"\ndtype = \"{dtype}\"\n"),
            tensor("x", (rows, columns), "input"),
            tensor("dt", (rows, heads), "input"),
            tensor("log", (1, heads), "weight"),
            tensor("taps", (1, taps * columns), "weight"),
            tensor("bias", (1, columns), "weight"),
            tensor("keys", (rows, groups * state), "input"),
            tensor("scores", (rows, groups * length), "input"),
            tensor("before", (rows, (taps - 1) * columns), "input"),
            // Factors are fp32 beside operands of any type.
            format!("[[tensors]]\nname = \"a\"\nshape = [{rows}, {heads}]\ndtype = \"fp32\"\n"),
            operator("exp_decay", "\"dt\"", "a", "vectors = [\"log\"]"),
            operator("causal_conv", "\"x\"", "xc", &format!("{conv}\n{batch}")),
            operator("conv_step", "\"xc\", \"before\"", "xs", conv),
            operator("head_scale", "\"xs\", \"a\"", "xf", &of_heads),
            operator("outer", "\"xf\", \"keys\"", "u", &of_groups),
            operator("scan", "\"u\", \"a\"", "h", &format!("{of_heads}\n{batch}")),
            operator("contract", "\"h\", \"keys\"", "y", &of_groups),
            operator("scan_before", "\"y\", \"a\"", "hb", &format!("{of_heads}\n{batch}")),
            operator("running_product", "\"a\"", "p", &batch),
            operator("decay_mask", "\"scores\", \"a\"", "m", &format!("{of_groups}\n{batch}")),
            operator(
                "rest_product",
                "\"a\"",
                "e",
                &format!("image = [1, {length}]\nkernel = [1, {length}]\npadding = [0, 0, 0, {}]", length - 1),
            ),
        ]
        .concat()
    }

    fn workload(self) -> Workload {
        let text = self.text();
        workload::parse("recurrence", &text, &[], 0).unwrap_or_else(|error| panic!("{}\n{text}", error.render(false)))
    }
}

fn chain() -> impl Strategy<Value = Chain> {
    let rows = (1u64..4, 2u64..20);
    let sizes = (1u64..4, 1u64..5, 1u64..9, 1u64..9);
    (rows, sizes, 2u64..5, any::<bool>()).prop_map(|(rows, sizes, taps, fp32)| Chain { rows, sizes, taps, fp32 })
}

fn chips() -> [rdusim::arch::Chip; 2] {
    // The second has slots of few rows, so that states pass over many row tiles.
    [sums::chip(&[]), sums::chip(&["arch.pmu.capacity_bytes=16384"])]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    /// Numbers within their bounds, and the two engines near each other, kernel by kernel and fused.
    #[test]
    fn operators_of_recurrences_compute_what_they_say(of in chain()) {
        let workload = of.workload();
        for chip in chips() {
            let Ok(compiled) = found_quickly(&chip, &workload, &[Mode::Kbk, Mode::Fused]) else { continue };
            for run in verify(&chip, &workload, compiled.iter().map(|c| &c.configuration), 1) {
                prop_assert!(run.passed, "{of:?} {}: {:?} {:?} {:?}", run.mode, run.fault, run.by_stage, run.end_to_end);
            }
            for compiled in &compiled {
                // Short runs: a few cycles of a hop are a large part of them.
                hold(&chip, &workload, &compiled.configuration, &format!("{of:?}"), 0.15);
            }
        }
    }
}

/// Long recurrences, where fills and drains count little.
#[test]
fn the_engines_agree_on_long_recurrences() {
    let chip = sums::chip(&[]);
    for of in [
        Chain { rows: (2, 64), sizes: (1, 8, 16, 16), ..PLAIN },
        Chain { rows: (1, 96), sizes: (2, 3, 12, 20), fp32: false, ..PLAIN },
    ] {
        let workload = of.workload();
        for mode in [Mode::Kbk, Mode::Fused] {
            let configuration = compile(&chip, &workload, mode).expect("it fits");
            println!("{}", hold(&chip, &workload, &configuration, &format!("{of:?} {mode:?}"), 0.05));
        }
    }
}

/// Chunks of a layer whose heads share B and C in groups: states are read in pieces of a row of a state, in whole bursts.
#[test]
fn the_engines_agree_on_chunks_of_groups() {
    let chip = sums::chip(&[]);
    let sizes = |m: Mamba| Mamba { layers: 1, heads: 8, head: 16, state: 24, groups: 4, span: 16, ..m };
    let options = Options { sequence: 64, context: 64, ..small(Phase::Prefill, sizes) };
    let workload = graph(&options);
    let named = |name: &str| workload.tensors.iter_enumerated().find(|(_, t)| t.name == name).expect("a tensor");
    let (flat, states) = named("mamba_s_flat");
    assert_eq!((states.rows, states.columns), (2 * 4, 8 * 16 * 24));
    assert_eq!(workload.piece_elements(flat), Some(24));
    assert_eq!(workload.piece_elements(named("mamba_s_before").0), None);
    for mode in [Mode::Kbk, Mode::Fused] {
        let configuration = compile(&chip, &workload, mode).expect("it fits");
        println!("{}", hold(&chip, &workload, &configuration, &format!("groups {mode:?}"), 0.08));
    }
}

#[test]
fn rows_that_carry_a_state_are_not_split() {
    let chip = sums::chip(&[]);
    let workload = Chain { rows: (2, 64), ..PLAIN }.workload();
    let mut configuration = compile(&chip, &workload, Mode::Fused).expect("it fits");
    let mut seen = 0;
    for stage in configuration.sections.iter().flat_map(|section| &section.stages) {
        if workload.operators[stage.spec.main].kind.is_carried() {
            assert!(stage.mapping.pm() == 1 && !stage.recomputed);
            seen += 1;
        }
    }
    assert_eq!(seen, 5);
    let section = configuration.sections.iter_mut().next().expect("a section");
    let is_carried = |stage: &rdusim::program::Stage| workload.operators[stage.spec.main].kind.is_carried();
    let stage = section.stages.iter_mut().find(|stage| is_carried(stage)).expect("a scan");
    if let Mapping::Simd(mapping) = &mut stage.mapping {
        mapping.pm = 2;
    }
    let found = violations(&chip, &workload, &configuration);
    assert!(!found.is_empty(), "two row slices of a scan pass");
}

/// Bytes are those of inputs and outputs: a state that is carried leaves the chip for none of them.
#[test]
fn kernel_by_kernel_every_tensor_moves_once() {
    let chip = sums::chip(&[]);
    let workload = PLAIN.workload();
    let configuration = compile(&chip, &workload, Mode::Kbk).expect("it fits");
    let outcome = simulate(&chip, &workload, &configuration, Fidelity::Event);
    let bytes = |name: &str| {
        let tensor = workload.tensors.iter().find(|tensor| tensor.name == name).expect("a tensor");
        tensor.rows * tensor.columns * tensor.dtype.bytes()
    };
    let moved = outcome.traffic().by_tensor;
    for (name, reads) in [("u", 1), ("h", 1), ("keys", 2), ("scores", 1), ("a", 6), ("before", 1)] {
        assert_eq!(moved[name].off_chip_read_bytes, reads * bytes(name), "{name}");
    }
    for name in ["u", "h", "y", "m", "e", "p"] {
        assert_eq!(moved[name].off_chip_write_bytes, bytes(name), "{name}");
    }
}

#[test]
fn shapes_that_are_no_recurrence_are_refused() {
    let refused = |old: &str, new: &str| {
        let text = PLAIN.text();
        assert!(text.contains(old), "{old}");
        let error = workload::parse("r", &text.replacen(old, new, 1), &[], 0).expect_err("is refused");
        error.render(false)
    };
    for (old, new, words) in [
        ("name = \"dt\"\nshape = [24, 4]", "name = \"dt\"\nshape = [23, 4]", "expected [23, 4]"),
        ("name = \"keys\"\nshape = [24, 10]", "name = \"keys\"\nshape = [24, 11]", "expected two tensors"),
        ("name = \"taps\"\nshape = [1, 48]", "name = \"taps\"\nshape = [1, 47]", "whole taps: [1, 12 times"),
        ("name = \"before\"\nshape = [24, 36]", "name = \"before\"\nshape = [24, 24]", "[24, 36]"),
        ("name = \"scores\"\nshape = [24, 16]", "name = \"scores\"\nshape = [24, 15]", "2 groups of 8 scores"),
        ("inputs = [\"xf\", \"keys\"]", "inputs = [\"xf\", \"xf\"]", "expected two tensors"),
        ("output = \"h\"\nheads = 4\nbatch = 3", "output = \"h\"\nheads = 4\nbatch = 5", "5 sequences"),
        ("output = \"h\"\nheads = 4", "output = \"h\"\nheads = 3", "factors [24, 3]"),
        ("output = \"p\"\nbatch = 3", "output = \"p\"\nheads = 4", "has no `heads`"),
    ] {
        let found = refused(old, new);
        assert!(found.contains(words), "{new}: {found}");
    }
}

/// Mamba-2 on the kinds of chips that divide rows elsewhere, through the binary: prefill in chunks and row by row, decoding; on a wafer
/// as a pipeline too.
#[test]
fn tiles_wafers_and_arrays_run_recurrences() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let run = |words: &str| {
        let (code, stdout, stderr) = rdusim(directory.path(), &words.split_whitespace().collect::<Vec<_>>());
        assert_eq!(code, Some(0), "{words}: {stderr}");
        stdout
    };
    let size = "--layers 2 --hidden 128 --vocabulary 256 --sequence 256 --batch 2";
    for (phase, more) in [("prefill", "--chunk 64"), ("forward", "--chunk 1"), ("decode", "")] {
        run(&format!("model mamba2-130m --phase {phase} {size} {more} -o m.toml"));
        let pipeline = " --mode fused --set arch.program.execution=pipeline";
        for (arch, more) in [("gc200", ""), ("bow", ""), ("cs2", ""), ("cs2", pipeline), ("tpu-v4", "")] {
            let command = if more.is_empty() { "compare" } else { "run" };
            let found = run(&format!("{command} --arch {arch} --workload m.toml --format json{more}"));
            let document: serde_json::Value = serde_json::from_str(&found).expect("JSON");
            for run in document["runs"].as_array().expect("runs") {
                assert!(run["bound_cycles"].as_u64() <= run["cycles"].as_u64(), "{arch} {phase}");
            }
        }
    }
}

fn small(phase: Phase, mamba: impl Fn(Mamba) -> Mamba) -> Options {
    let (architecture, _) = preset("mamba2-130m").expect("a preset");
    let of = architecture.extras.mamba.expect("a recurrence");
    let base = Mamba { layers: 2, heads: 4, head: 6, state: 8, span: 4, ..of };
    let mut extras = architecture.extras;
    extras.mamba = Some(mamba(base));
    let sizes =
        Architecture { hidden: 12, layers: 2, heads: 2, kv_heads: 1, feed_forward: 20, vocabulary: 19, ..architecture };
    Options { dtype: "fp32".to_owned(), ..Options::new("small", Architecture { extras, ..sizes }, phase, 2, 12) }
}

fn graph(options: &Options) -> Workload {
    let text = write(options).unwrap_or_else(|error| panic!("{}", error.render(false)));
    workload::parse("model", &text, &[], 0).unwrap_or_else(|error| panic!("{}\n{text}", error.render(false)))
}

#[test]
fn mamba_and_hybrids_compute_what_they_say() {
    let chip = sums::chip(&[]);
    let hybrid = |m: Mamba| Mamba { layers: 3, attention: 1, feeds: 1, has_feed: true, ..m };
    let list = [
        small(Phase::Prefill, |m| m),
        small(Phase::Forward, |m| Mamba { span: 1, groups: 2, ..m }),
        small(Phase::Prefill, |m| Mamba { span: 1, ..m }),
        small(Phase::Prefill, |m| Mamba { groups: 2, ..m }),
        small(Phase::Forward, |m| Mamba { heads: 6, groups: 3, ..m }),
        small(Phase::Decode, |m| Mamba { groups: 2, ..m }),
        Options { dtype: "bf16".to_owned(), ..small(Phase::Forward, |m| m) },
        small(Phase::Prefill, hybrid),
        small(Phase::Decode, hybrid),
    ];
    for options in &list {
        let workload = graph(options);
        let compiled = found_quickly(&chip, &workload, &Mode::ALL).expect("it fits");
        for run in verify(&chip, &workload, compiled.iter().map(|c| &c.configuration), 2) {
            let of = format!("{:?} {:?}, {}", options.phase, options.architecture.extras.mamba, run.mode);
            assert!(run.passed, "{of}: {:?} {:?} {:?}", run.fault, run.by_stage, run.end_to_end);
        }
    }
}

#[test]
fn presets_of_mamba_have_their_parameters() {
    for preset in MAMBA_PRESETS {
        let options = Options::new("model", preset.architecture, Phase::Forward, 1, 512);
        let found = graph(&options).parameters() as f64;
        let error = (found / preset.parameters as f64 - 1.0).abs();
        assert!(error < 0.001, "{}: {found} parameters, published {}", preset.name, preset.parameters);
    }
}

/// A token reads and writes the state of every layer, whatever the context, and the inputs of three rows.
#[test]
fn decoding_moves_the_state_once_each_way() {
    let options = small(Phase::Decode, |m| m);
    let longer = Options { context: 4096, ..options.clone() };
    assert_eq!(write(&options).expect("a model"), write(&longer).expect("a model"));
    let workload = graph(&options);
    let state = |name: &str| workload.tensors.iter().find(|tensor| tensor.name == name).expect("a state");
    let (read, written) = (state("mamba_state_cache"), state("mamba_state"));
    assert_eq!((read.rows, read.columns), (2, 4 * 6 * 8));
    assert_eq!((written.rows, written.columns, written.repeat), (2, 4 * 6 * 8, 2));
    let step = workload.operators.iter().filter(|op| op.kind.is_carried()).count();
    assert_eq!(step, 0, "one token has no rows before it");
    assert!(workload.operators.iter().any(|op| op.kind == OperatorKind::ConvStep));
}

#[test]
fn what_cannot_be_written_says_why() {
    let refused = |options: Options| write(&options).expect_err("is refused").render(false);
    let odd = Options { sequence: 13, ..small(Phase::Forward, |m| m) };
    assert!(refused(odd).contains("a sequence of 13 tokens is no multiple of the chunk of 4 rows"));
    assert!(refused(small(Phase::Training, |m| m)).contains("scans have no gradient"));
    assert!(
        refused(small(Phase::Forward, |m| Mamba { groups: 3, ..m })).contains("3 groups do not divide the 4 heads")
    );
}
