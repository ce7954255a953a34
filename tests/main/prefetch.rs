//! Weights that are loaded while the section before runs.

use std::path::Path;

use rdusim::arch::{self, Chip};
use rdusim::compile::{compile_measured, simulate_measured};
use rdusim::input::Override;
use rdusim::mode::Mode;
use rdusim::model;
use rdusim::outcome::{Fidelity, Outcome, StopReason};
use rdusim::program::Configuration;
use rdusim::sim::{check_size, simulate, simulate_unskipped};
use rdusim::workload::{self, Workload};

use crate::legal::found_quickly;
use crate::models::options;

fn chip(name: &str) -> Chip {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("arch/{name}.toml"));
    arch::parse(name, &std::fs::read_to_string(path).expect("a chip file"), &[]).expect("a chip")
}

/// Layers of two GEMMs and a GELU, in two sections each.
fn layers(tokens: u64, repeat: u64) -> Workload {
    let text = format!(
        "schema = 1\nname = \"layers\"\ndtype = \"bf16\"\n\
         [dims]\ntokens = {tokens}\nnarrow = 1024\nwide = 4096\n\
         [[blocks]]\nname = \"layer\"\nrepeat = {repeat}\n\
         [[tensors]]\nname = \"x\"\nshape = [\"tokens\", \"narrow\"]\nrole = \"input\"\n\
         [[tensors]]\nname = \"w_up\"\nshape = [\"narrow\", \"wide\"]\nrole = \"weight\"\n\
         [[tensors]]\nname = \"w_down\"\nshape = [\"wide\", \"narrow\"]\nrole = \"weight\"\n\
         [[operators]]\nname = \"up\"\nkind = \"gemm\"\nblock = \"layer\"\ninputs = [\"x\", \"w_up\"]\noutput = \"h\"\n\
         [[operators]]\nname = \"act\"\nkind = \"gelu\"\nblock = \"layer\"\ninputs = [\"h\"]\noutput = \"a\"\n\
         [[operators]]\nname = \"down\"\nkind = \"gemm\"\nblock = \"layer\"\ninputs = [\"a\", \"w_down\"]\noutput = \"y\"\n\
         [[sections]]\noperators = [\"up\"]\n[[sections]]\noperators = [\"act\", \"down\"]\n"
    );
    workload::parse("layers", &text, &[], 0).expect("a graph")
}

/// Two layers of GPT-13B, forward.
fn two_layers() -> Workload {
    let (mut architecture, sequence) = model::preset("gpt-13b").expect("a preset");
    architecture.layers = 2;
    architecture.vocabulary = 512;
    let phase = model::Phase::Forward;
    let text = model::write(&model::Options { sequence, context: sequence, ..options(&architecture, phase) });
    workload::parse("two layers", &text.expect("a workload"), &[], 0).expect("a graph")
}

/// The fused configuration of two layers, and its cycles.
fn fused(chip: &Chip) -> (u64, Configuration) {
    let workload = two_layers();
    let measured = compile_measured(chip, &workload, &[Mode::Fused]).expect("it fits").remove(0);
    (simulate_measured(chip, &workload, &measured, Fidelity::Event).cycles, measured.configuration)
}

/// A partition that is a little faster where each section runs alone, and leaves nothing to prefetch, is not taken for more ports or
/// banks; and under the feed-forward section weights of the next layer's attention are loaded.
#[test]
#[ignore = "depth: two layers of GPT-13B, searched four times"]
fn layers_keep_what_prefetching_saves_and_make_room_for_the_weights_of_the_next() {
    let of = fused(&chip("sn40l"));
    keep_what_prefetching_saves(of.0);
    makes_room(&of);
}

fn keep_what_prefetching_saves(least: u64) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("arch/sn40l.toml");
    for more in ["arch.pmu.read_ports=3", "arch.pmu.capacity_bytes=1048576"] {
        let set = Override::parse(more).expect("an override");
        let now = fused(&arch::load(&path, &[set]).expect("a chip")).0;
        assert!(now as f64 <= least as f64 * 1.01, "{more}: {least} and {now}");
    }
}

fn read_bytes(outcome: &Outcome, tensor: &str) -> Vec<u64> {
    let of = |traffic: &rdusim::outcome::Traffic| traffic.by_tensor.get(tensor).map_or(0, |t| t.off_chip_read_bytes);
    outcome.sections.iter().map(|section| of(&section.traffic)).collect()
}

#[test]
fn a_section_begins_sooner_by_what_was_loaded_before_it_and_the_bytes_count_there() {
    let chip = chip("sn40l");
    // Which sizes leave memory idle under the first section is for the search to say.
    let loads_ahead = |tokens: u64| {
        let workload = layers(tokens, 4);
        let measured = found_quickly(&chip, &workload, &[Mode::Fused]).expect("it fits").remove(0);
        let sections = &measured.configuration.sections;
        let loads = !sections[0].prefetches.is_empty() && !sections[1].prefetched.is_empty();
        loads.then_some((workload, measured))
    };
    let (workload, measured) =
        [1024, 512, 2048, 256, 3072].into_iter().find_map(loads_ahead).expect("one of the sizes");
    let with = &measured.configuration;
    let outcome = simulate_measured(&chip, &workload, &measured, Fidelity::Event);
    assert_eq!(outcome.stop, StopReason::Drained);

    // As it is compiled, as it is run again, and event by event.
    assert_eq!(outcome, simulate(&chip, &workload, with, Fidelity::Event));
    assert_eq!(outcome, simulate_unskipped(&chip, &workload, with, Fidelity::Event));

    // Without: later, with the same bytes over the same wires.
    let mut without = with.clone();
    without.sections[0].prefetches.clear();
    without.sections[1].prefetched.clear();
    let plain = simulate(&chip, &workload, &without, Fidelity::Event);
    assert!(outcome.sections[1].cycles <= plain.sections[1].cycles);
    assert_eq!(outcome.sections[0].cycles, plain.sections[0].cycles);
    let sum = |outcome: &Outcome| {
        let of = |section: &rdusim::outcome::SectionOutcome| {
            let t = &section.traffic;
            [t.off_chip_read_bytes, t.waste_bytes, t.network_bytes, t.network_byte_hops, t.sram_write_bytes]
        };
        outcome.sections.iter().map(of).fold([0; 5], |sum, each| std::array::from_fn(|i| sum[i] + each[i]))
    };
    assert_eq!(sum(&outcome), sum(&plain));
    let (moved, stayed) = (read_bytes(&outcome, "w_down"), read_bytes(&plain, "w_down"));
    assert!(moved[0] > 0 && stayed[0] == 0 && moved.iter().sum::<u64>() == stayed.iter().sum::<u64>());

    // The closed form counts them there, too, and stays below.
    let bound = simulate(&chip, &workload, with, Fidelity::Bound);
    assert_eq!(read_bytes(&bound, "w_down"), moved);
    for (bound, event) in bound.sections.iter().zip(&outcome.sections) {
        assert!(bound.cycles <= event.cycles);
        assert_eq!(bound.traffic.network_byte_hops, event.traffic.network_byte_hops);
    }
    assert!(outcome.bound_cycles <= outcome.cycles);
}

/// The last section of a block loads for the first of the next repetition. What the first repetition begins with is loaded
/// before it, and nothing hides that.
#[test]
fn the_last_section_of_a_block_loads_for_the_next_repetition() {
    let chip = chip("sn40l");
    let of = |repeat: u64| {
        let workload = layers(256, repeat);
        let measured = found_quickly(&chip, &workload, &[Mode::Fused]).expect("it fits").remove(0);
        let outcome = simulate_measured(&chip, &workload, &measured, Fidelity::Event);
        assert_eq!(outcome, simulate(&chip, &workload, &measured.configuration, Fidelity::Event));
        (measured, outcome)
    };
    let (measured, outcome) = of(40);
    let [first, last] = &measured.configuration.sections[..] else { panic!("two sections") };
    let loads = &last.prefetches;
    assert!(!first.prefetched.is_empty() && loads.len() == first.prefetched.len());
    let run = measured.runs[0].as_ref().expect("measured").cycles + chip.launch_cycles();
    let exposed = outcome.sections[0].cycles - 40 * run;
    let (tier, bytes) = (loads[0].tier, loads.iter().map(|load| load.moved_bytes).sum());
    let (rate, latency) = (chip.tier_rate(tier).cycles_for(bytes), chip.tier_latency_cycles(tier));
    assert!(exposed >= rate + latency && exposed < 2 * (rate + latency), "{exposed} cycles, memory alone {rate}");
    // Once, however many repetitions follow.
    assert_eq!(of(80).1.sections[0].cycles - outcome.sections[0].cycles, 40 * run);
    // A graph that runs once has nothing behind its last section.
    let (once, _) = of(1);
    assert!(once.configuration.sections[1].prefetches.is_empty());
    assert!(once.configuration.sections[0].prefetched.is_empty());
}

fn makes_room((of_full, configuration): &(u64, Configuration)) {
    let workload = two_layers();
    let full = chip("sn40l");
    let attention = configuration.sections.iter().position(|section| section.stages.len() > 4).expect("attention");
    let section = &configuration.sections[attention];
    assert!(section.prefetched.len() >= 2, "{} streams are loaded ahead", section.prefetched.len());
    let before = configuration.section_before(attention, &workload).expect("a section before");
    assert!(!configuration.sections[before].prefetches.is_empty());
    // Half of the banks are not faster, by what the laws allow.
    let mut half = full.clone();
    half.pmu.banks /= 2;
    half.pmu.capacity_bytes /= 2;
    let of_half = fused(&half).0;
    assert!(*of_full as f64 <= 1.01 * of_half as f64, "{of_full} cycles, with half of the banks {of_half}");
}

#[test]
fn kernels_load_nothing_ahead_and_neither_does_a_section_whose_memory_is_busy() {
    let chip = chip("sn40l");
    let measured = found_quickly(&chip, &layers(2048, 4), &[Mode::Kbk]).expect("it fits").remove(0);
    assert!(measured.configuration.sections.iter().all(|section| section.prefetches.is_empty()));
    // One token: memory has no time to spare.
    let measured = found_quickly(&chip, &layers(1, 4), &[Mode::Fused]).expect("it fits").remove(0);
    for (section, run) in measured.configuration.sections.iter().zip(&measured.runs) {
        let (run, rate) = (run.as_ref().expect("measured"), chip.memory.ids().map(|tier| chip.tier_rate(tier)));
        for (busy, _) in run.tier_busy_cycles.iter().zip(rate) {
            assert!(*busy <= run.cycles, "{}: {} of {}", section.name, busy, run.cycles);
        }
    }
}

/// A norm with gains before the two GEMMs, in layers that repeat: the reference model runs them, and begins behind what
/// the section before has loaded.
#[test]
fn the_reference_model_begins_behind_what_was_loaded_before() {
    let text = "schema = 1\nname = \"layers\"\ndtype = \"bf16\"\n\
         [[blocks]]\nname = \"layer\"\nrepeat = 4\n\
         [[tensors]]\nname = \"x\"\nshape = [32, 128]\nrole = \"input\"\n\
         [[tensors]]\nname = \"gain\"\nshape = [1, 128]\nrole = \"weight\"\n\
         [[tensors]]\nname = \"w_up\"\nshape = [128, 512]\nrole = \"weight\"\n\
         [[tensors]]\nname = \"w_down\"\nshape = [512, 128]\nrole = \"weight\"\n\
         [[operators]]\nname = \"norm\"\nkind = \"rms_norm\"\nblock = \"layer\"\ninputs = [\"x\"]\n\
         vectors = [\"gain\"]\noutput = \"n\"\n\
         [[operators]]\nname = \"up\"\nkind = \"gemm\"\nblock = \"layer\"\ninputs = [\"n\", \"w_up\"]\noutput = \"h\"\n\
         [[operators]]\nname = \"act\"\nkind = \"gelu\"\nblock = \"layer\"\ninputs = [\"h\"]\noutput = \"a\"\n\
         [[operators]]\nname = \"down\"\nkind = \"gemm\"\nblock = \"layer\"\ninputs = [\"a\", \"w_down\"]\noutput = \"y\"\n\
         [[sections]]\noperators = [\"norm\", \"up\"]\n[[sections]]\noperators = [\"act\", \"down\"]\n";
    let (chip, workload) = (chip("plasticine"), workload::parse("layers", text, &[], 0).expect("a graph"));
    let measured = compile_measured(&chip, &workload, &[Mode::Fused]).expect("it fits").remove(0);
    let configuration = &measured.configuration;
    assert!(!configuration.sections[1].prefetched.is_empty(), "nothing is loaded before");
    check_size(&chip, &workload, configuration).expect("the reference model runs it");
    let [event, cycle] =
        [Fidelity::Event, Fidelity::Cycle].map(|fidelity| simulate(&chip, &workload, configuration, fidelity));
    assert_eq!(cycle.stop, StopReason::Drained);
    assert_eq!(event.traffic(), cycle.traffic());
    for (event, cycle) in event.sections.iter().zip(&cycle.sections) {
        let error = event.cycles as f64 / cycle.cycles as f64 - 1.0;
        assert!(error.abs() < 0.02, "{}: {} against {}", event.name, event.cycles, cycle.cycles);
    }
}
