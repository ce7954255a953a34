//! Looped sections: a whole block that is one section runs all its repetitions in one launch.

use rdusim::arch::{self, Chip};
use rdusim::compile::simulate_measured;
use rdusim::cost::bound_cycles;
use rdusim::input::Override;
use rdusim::mode::Mode;
use rdusim::outcome::{Fidelity, Outcome};
use rdusim::workload::{self, Workload};

use crate::legal::found_quickly;

fn chip(settings: &[&str]) -> Chip {
    let settings: Vec<_> = settings.iter().map(|set| Override::parse(set).expect("an override")).collect();
    arch::load("arch/sn40l.toml".as_ref(), &settings).expect("a chip")
}

fn decode() -> Workload {
    workload::load("workloads/llama2-7b-decode.toml".as_ref(), &[], 0).expect("a workload")
}

fn run(chip: &Chip, workload: &Workload, mode: Mode) -> Outcome {
    let compiled = found_quickly(chip, workload, &[mode]).expect("it fits");
    simulate_measured(chip, workload, &compiled[0], Fidelity::Event)
}

fn launches(outcome: &Outcome) -> u64 {
    outcome.sections.iter().map(|section| section.launches).sum()
}

#[test]
fn a_decoder_runs_all_its_layers_in_one_launch() {
    let (chip, workload) = (chip(&[]), decode());
    let [kbk, fused] = [Mode::Kbk, Mode::Fused].map(|mode| run(&chip, &workload, mode));
    assert!(kbk.sections.iter().all(|section| section.launches == section.repeat), "kernels are launched one by one");
    assert!(launches(&fused) <= 4, "{} launches", launches(&fused));
    let layer = fused.sections.iter().find(|section| section.repeat == 32).expect("the section of the layers");
    assert_eq!((layer.launches, layer.launch_cycles), (1, chip.launch_cycles()));
    // Every repetition takes the same cycles, and loads no program of its own.
    assert_eq!((layer.cycles - layer.launch_cycles) % 32, 0);
    let per_unit = chip.launch.program_bytes_per_unit;
    assert!(layer.traffic.program_bytes <= (layer.pcus + layer.pmus) * per_unit);
    let off_chip = |outcome: &Outcome| outcome.traffic().off_chip_bytes();
    assert!(off_chip(&fused) <= off_chip(&kbk));
    assert!(bound_cycles(&chip, &workload, Mode::Fused) <= fused.cycles);
}

/// Of each layer the cache is read, so that the bound counts it as often.
#[test]
fn the_bound_counts_the_cache_of_every_layer() {
    let (chip, workload) = (chip(&[]), decode());
    let bytes: u64 = workload
        .tensors
        .iter()
        .filter(|tensor| tensor.name.ends_with("_cache"))
        .map(|tensor| tensor.stored_bytes() * tensor.repeat)
        .sum();
    // Keys and values of 2,048 tokens, 4,096 wide, in bf16, 32 times.
    assert_eq!(bytes, 2 * 2048 * 4096 * 2 * 32);
    let weights = workload.parameters() * 2;
    let cycles = bound_cycles(&chip, &workload, Mode::Fused) as f64;
    // The token table is read for one row only.
    let least = (weights + bytes - 32_000 * 4096 * 2) as f64 / 1.8e12 * 1.6e9;
    assert!((0.99..1.05).contains(&(cycles / least)), "bound {cycles}, {least} cycles for the bytes alone");
}

#[test]
fn a_cheaper_launch_is_never_slower() {
    let workload = decode();
    let [software, hardware] = [chip(&[]), chip(&["arch.launch.orchestration=hardware"])];
    let [dear, cheap] = [&software, &hardware].map(|chip| run(chip, &workload, Mode::Fused));
    // Two searches: each is as near the best as its gap says.
    assert!(cheap.cycles as f64 <= 1.01 * dear.cycles as f64, "hardware {}, software {}", cheap.cycles, dear.cycles);
}

/// A part of a tensor that a block reads is needed in every repetition; the whole tensor, which another operator reads, once.
#[test]
fn the_bound_counts_parts_of_a_tensor_by_their_own_reader() {
    let text = "schema = 1\nname = \"parts\"\ndtype = \"bf16\"\n\
        [[blocks]]\nname = \"layer\"\nrepeat = 64\n\
        [[tensors]]\nname = \"x\"\nshape = [256, 4096]\nrole = \"ROLE\"\n\
        [[tensors]]\nname = \"part\"\nshape = [256, 64]\n\
        [[operators]]\nname = \"once\"\nkind = \"gelu\"\ninputs = [\"x\"]\noutput = \"g\"\n\
        [[operators]]\nname = \"cut\"\nkind = \"slice\"\nblock = \"layer\"\ninputs = [\"x\"]\noutput = \"part\"\n\
        [[operators]]\nname = \"act\"\nkind = \"gelu\"\nblock = \"layer\"\ninputs = [\"part\"]\noutput = \"y\"\n";
    let chip = chip(&[]);
    for role in ["input", "weight"] {
        let workload = workload::parse("parts.toml", &text.replace("ROLE", role), &[], 0).expect("a workload");
        let fused = run(&chip, &workload, Mode::Fused);
        let bound = bound_cycles(&chip, &workload, Mode::Fused);
        assert!(bound <= fused.cycles, "{role}: bound {bound}, event {}", fused.cycles);
    }
}

/// Adam's state is read and written in every layer: 12 bytes an element either way.
#[test]
fn the_bound_counts_both_ways_of_a_state_that_is_updated_in_place() {
    let text = "schema = 1\nname = \"step\"\ndtype = \"bf16\"\n\
        [training]\noptimizer = \"adam\"\n\
        [[blocks]]\nname = \"layer\"\nrepeat = 8\n\
        [[tensors]]\nname = \"x\"\nshape = [64, 2048]\nrole = \"input\"\n\
        [[tensors]]\nname = \"w\"\nshape = [2048, 2048]\nrole = \"weight\"\n\
        [[operators]]\nname = \"up\"\nkind = \"gemm\"\nblock = \"layer\"\ninputs = [\"x\", \"w\"]\noutput = \"y\"\n";
    let chip = chip(&[]);
    let workload = workload::parse("step.toml", text, &[], 0).expect("a workload");
    let fused = run(&chip, &workload, Mode::Fused);
    let bound = bound_cycles(&chip, &workload, Mode::Fused);
    assert!(bound <= fused.cycles, "bound {bound}, event {}", fused.cycles);
    // The weight's 2 bytes, and the state, in HBM; rows are as good as nothing beside them.
    let least = 8.0 * 2048.0 * 2048.0 * f64::from(2 + 12 + 12) / 1.8e12 * 1.6e9;
    let share = (bound - chip.launch_cycles()) as f64 / least;
    assert!((1.0..1.03).contains(&share), "bound {bound}, {least} cycles for the bytes alone");
}
