//! Stacks of equal blocks: each kind of block is compiled and measured once.

use std::fmt::Write;
use std::path::Path;

use rdusim::compile::{compile_measured, simulate_measured};
use rdusim::mode::Mode;
use rdusim::outcome::{Fidelity, StopReason};
use rdusim::sim::simulate;
use rdusim::verify::verify;
use rdusim::workload::{self, Workload};
use rdusim::{arch, saved};

/// A stack of feed-forward blocks with skip connections: `x + gelu(x w) v`, again and again.
fn stack(blocks: usize, tokens: u64, width: u64) -> Workload {
    let mut text = format!(
        "schema = 1\nname = \"stack\"\ndtype = \"bf16\"\n[dims]\nt = {tokens}\nd = {width}\nf = {}\n",
        4 * width
    );
    text.push_str("[[tensors]]\nname = \"x0\"\nshape = [\"t\", \"d\"]\nrole = \"input\"\n");
    for b in 0..blocks {
        for (name, shape) in [("up", "[\"d\", \"f\"]"), ("down", "[\"f\", \"d\"]")] {
            write!(text, "[[tensors]]\nname = \"w_{name}{b}\"\nshape = {shape}\nrole = \"weight\"\n")
                .expect("a string takes any text");
        }
    }
    for b in 0..blocks {
        for (name, kind, inputs, output) in [
            ("up", "gemm", format!("\"x{b}\", \"w_up{b}\""), format!("h{b}")),
            ("gelu", "gelu", format!("\"h{b}\""), format!("g{b}")),
            ("down", "gemm", format!("\"g{b}\", \"w_down{b}\""), format!("y{b}")),
            ("add", "add", format!("\"y{b}\", \"x{b}\""), format!("x{}", b + 1)),
        ] {
            write!(
                text,
                "[[operators]]\nname = \"{name}{b}\"\nkind = \"{kind}\"\ninputs = [{inputs}]\noutput = \"{output}\"\n"
            )
            .expect("a string takes any text");
        }
    }
    workload::parse("stack", &text, &[], 0).unwrap_or_else(|error| panic!("{}", error.render(false)))
}

#[test]
fn equal_blocks_are_equal_sections() {
    let chip = arch::load(Path::new("arch/sn10.toml"), &[]).expect("a chip that comes with rdusim");
    let workload = stack(24, 512, 2048);
    let compiled = compile_measured(&chip, &workload, &[Mode::Kbk, Mode::Fused]).expect("it fits");
    for measured in &compiled {
        let mode = measured.configuration.mode;
        assert!(measured.runs.iter().all(Option::is_some), "{mode:?}");
        // Each section's run is what the engine says of that very section.
        let (reused, recomputed) = (
            simulate_measured(&chip, &workload, measured, Fidelity::Event),
            simulate(&chip, &workload, &measured.configuration, Fidelity::Event),
        );
        assert_eq!(format!("{reused:?}"), format!("{recomputed:?}"));
        assert_eq!(reused.stop, StopReason::Drained);
        // From the second block to the last but one, cycles repeat.
        let each = reused.sections.len() / 24;
        assert_eq!(reused.sections.len(), 24 * each, "{mode:?}");
        let cycles: Vec<Vec<u64>> =
            reused.sections.chunks(each).map(|s| s.iter().map(|s| s.cycles).collect()).collect();
        assert!(cycles[1..23].iter().all(|block| *block == cycles[1]), "{mode:?}: {cycles:?}");
        let tensors = reused.traffic().by_tensor;
        assert_eq!(tensors["w_up0"], tensors["w_up23"]);
        let names: Vec<&str> = reused.sections.iter().map(|s| s.name.as_str()).collect();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
    }
    let fused = &compiled[1].configuration;
    let notes = fused.notes.join("\n");
    for words in ["not proved the best", "more than 12 operators", "kinds of longer sections"] {
        assert!(notes.contains(words), "{notes}");
    }
    let read = saved::parse("saved", &saved::to_toml(&chip, &workload, [fused]), &chip, &workload, &[Mode::Fused]);
    assert_eq!(format!("{:?}", read.expect("what was saved").first()), format!("{:?}", Some(fused)));
}

/// A narrow network of many layers is one section, as long as each stage finds a PCU: nothing is launched between layers. The
/// reference model agrees with the engine on it, and it computes what the graph says.
#[test]
fn a_deep_narrow_network_is_one_section() {
    let chip = arch::load(Path::new("arch/sn10.toml"), &[]).expect("a chip that comes with rdusim");
    let workload = stack(12, 64, 64);
    let compiled = compile_measured(&chip, &workload, &[Mode::Fused]).expect("it fits").remove(0);
    let [section] = &compiled.configuration.sections[..] else { panic!("{:?}", compiled.configuration.sections.len()) };
    assert_eq!(section.operators.len(), 48);
    let [event, cycle] = [Fidelity::Event, Fidelity::Cycle]
        .map(|fidelity| simulate(&chip, &workload, &compiled.configuration, fidelity).cycles as f64);
    assert!((event / cycle - 1.0).abs() < 0.02, "{event} {cycle}");
    assert!(verify(&chip, &workload, [&compiled.configuration], 1)[0].passed);
}

/// A stack that is twice as high takes at most twice as long.
#[test]
fn a_higher_stack_takes_as_long_a_block_as_a_lower_one() {
    let chip = arch::load(Path::new("arch/sn40l.toml"), &[]).expect("a chip that comes with rdusim");
    let sections = |blocks: usize| {
        let workload = stack(blocks, 256, 1024);
        let compiled = compile_measured(&chip, &workload, &[Mode::Fused]).expect("it fits").remove(0);
        simulate_measured(&chip, &workload, &compiled, Fidelity::Event)
    };
    let (low, high) = (sections(12), sections(24));
    assert!(high.cycles as f64 <= 2.01 * low.cycles as f64, "{} and {}", low.cycles, high.cycles);
}
