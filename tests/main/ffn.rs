//! The feed-forward blocks that come with rdusim, on the chips that come with it: figures that follow by hand
//! (`tests/cases/gpt13b-feed-forward.md`).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{LazyLock, OnceLock};

use rdusim::arch::{self, Chip};
use rdusim::compile::{BaseCache, Compiled, Effort, compile_with, simulate_measured};
use rdusim::cost::bound_cycles;
use rdusim::input::Override;
use rdusim::mode::Mode;
use rdusim::outcome::{Fidelity, Outcome, StopReason};
use rdusim::workload::{self, Workload};

const CHIPS: [&str; 4] = ["sn10", "sn30", "sn40l", "plasticine"];
const WORKLOADS: [&str; 4] = ["gpt13b-mlp", "gpt13b-mlp-sparse", "gpt2-small-mlp", "tiny-mlp"];
const MODES: [Mode; 3] = Mode::ALL;
/// Metadata of the two sparse weights: a bit for each of 2 x 320 x 1280 blocks.
const METADATA: u64 = 2 * 320 * 1280 / 8;
/// Share of `bound_cycles` that a fused run of the large block reaches at least.
const LEAST_SHARE: f64 = 0.80;

fn chip(name: &str) -> Chip {
    arch::load(Path::new(&format!("arch/{name}.toml")), &[]).expect("a chip that comes with rdusim")
}

fn workload(name: &str, sets: &[&str]) -> Workload {
    let sets: Vec<Override> = sets.iter().map(|set| Override::parse(set).expect("an override")).collect();
    workload::load(Path::new(&format!("workloads/{name}.toml")), &sets, 0).expect("a workload that comes with rdusim")
}

/// The modes, each at both fidelities: `[mode][fidelity]`.
fn runs(chip: &Chip, workload: &Workload, modes: &[Mode], effort: Effort) -> Vec<[Outcome; 2]> {
    let configurations = compile_with(chip, workload, modes, effort, &BaseCache::default()).expect("a pair that fits");
    let run = |c: &Compiled| {
        [Fidelity::Bound, Fidelity::Event].map(|fidelity| simulate_measured(chip, workload, c, fidelity))
    };
    configurations.iter().map(run).collect()
}

/// A chip and a workload, by name.
type Pair = (&'static str, &'static str);

type Runs = Vec<[Outcome; 2]>;

/// What pairs did, each run once for all tests that ask for it.
static RAN: LazyLock<BTreeMap<Pair, OnceLock<Runs>>> = LazyLock::new(|| {
    let pairs = CHIPS.iter().flat_map(|&chip| WORKLOADS.iter().map(move |&workload| (chip, workload)));
    pairs.map(|pair| (pair, OnceLock::new())).collect()
});

/// The pairs of figures that are known are searched as a command does; what holds of any mapping is held of others at low effort.
fn effort((chip, workload): Pair) -> Effort {
    let is_known = ["sn10", "sn40l"].contains(&chip) && workload == "gpt13b-mlp-sparse";
    if is_known { Effort::Full } else { Effort::Low }
}

fn ran(pair: Pair) -> &'static Runs {
    RAN[&pair].get_or_init(|| runs(&chip(pair.0), &workload(pair.1, &[]), &MODES, effort(pair)))
}

/// The event outcome of a pair in a mode.
fn event(chip: &'static str, workload: &'static str, mode: Mode) -> &'static Outcome {
    let index = MODES.iter().position(|&m| m == mode).expect("a mode");
    &ran((chip, workload))[index][1]
}

/// The pairs that take long, or the others: the large block on the smallest chip and on two sockets, and its sparse form on an SN40L.
fn pairs(long: bool) -> impl Iterator<Item = Pair> {
    let is_long = |(chip, workload): Pair| {
        let is_large = workload.starts_with("gpt13b");
        (is_large && ["plasticine", "sn30"].contains(&chip)) || (chip, workload) == ("sn40l", "gpt13b-mlp-sparse")
    };
    RAN.keys().copied().filter(move |&pair| is_long(pair) == long)
}

fn drain_and_keep_their_bounds(pairs: impl Iterator<Item = Pair>) {
    for (chip, workload) in pairs {
        for [bound, event] in ran((chip, workload)) {
            let of = format!("{workload} on {chip}, {}", event.mode.name());
            assert_eq!(event.stop, StopReason::Drained, "{of}");
            assert!(event.bound_cycles <= bound.cycles, "{of}: {} > {}", event.bound_cycles, bound.cycles);
            assert!(bound.cycles <= event.cycles, "{of}: {} > {}", bound.cycles, event.cycles);
            assert_eq!(bound.traffic(), event.traffic(), "{of}");
        }
    }
}

#[test]
fn every_pair_drains_and_keeps_its_bounds() {
    drain_and_keep_their_bounds(pairs(false));
}

fn are_faster_fused(pairs: impl Iterator<Item = Pair>) {
    for (chip, workload) in pairs {
        let [kbk, epilogue, fused] = MODES.map(|mode| event(chip, workload, mode).cycles);
        assert!(fused < kbk, "{workload} on {chip}: fused {fused}, kbk {kbk}");
        assert!(epilogue < kbk, "{workload} on {chip}: epilogue {epilogue}, kbk {kbk}");
        // Where the whole block does not fit, fused is what epilogues are.
        assert!(fused <= epilogue, "{workload} on {chip}: fused {fused}, epilogue {epilogue}");
    }
}

#[test]
fn fused_is_faster_on_every_pair() {
    are_faster_fused(pairs(false));
}

#[test]
#[ignore = "depth: large blocks on a small chip and on two sockets"]
fn every_long_pair_keeps_its_bounds_and_is_faster_fused() {
    drain_and_keep_their_bounds(pairs(true));
    are_faster_fused(pairs(true));
    off_chip_bytes_are_exact("sn30");
}

#[test]
fn the_large_block_reaches_its_bound() {
    for chip in ["sn10", "sn40l"] {
        for workload in ["gpt13b-mlp", "gpt13b-mlp-sparse"] {
            let fused = event(chip, workload, Mode::Fused);
            let share = fused.bound_cycles as f64 / fused.cycles as f64;
            println!("{workload} on {chip}: {:.1} % of the bound", 100.0 * share);
            assert!(share >= LEAST_SHARE, "{workload} on {chip}: {:.1} % of the bound", 100.0 * share);
        }
    }
}

/// Kernel by kernel, as papers measure, flatters fusion: against kernels with epilogues, less remains.
#[test]
fn what_fusion_gains_depends_on_what_it_is_compared_with() {
    for (chip, over_kbk, over_epilogue) in [("sn40l", 1.74, 1.17), ("sn10", 4.51, 2.76)] {
        let [kbk, epilogue, fused] = MODES.map(|mode| event(chip, "gpt13b-mlp-sparse", mode).cycles as f64);
        println!("{chip}: fused is {:.3}x as fast as kbk, {:.3}x as epilogue", kbk / fused, epilogue / fused);
        for (found, expected) in [(kbk / fused, over_kbk), (epilogue / fused, over_epilogue)] {
            assert!((found / expected - 1.0_f64).abs() < 0.02, "{chip}: {found} instead of {expected}");
        }
    }
}

#[test]
fn off_chip_bytes_of_the_large_block_are_exact() {
    ["sn10", "sn40l"].into_iter().for_each(off_chip_bytes_are_exact);
}

fn off_chip_bytes_are_exact(chip: &'static str) {
    // X = T d 2 B, H = T f 2 B, W = d f 2 B; kbk: up reads X and W, writes H; GELU reads and writes H; down reads H
    // and W, writes X. With an epilogue, up writes what GELU makes of H, and down reads it. Fused, H stays on chip.
    const X: u64 = 2048 * 5120 * 2;
    const H: u64 = 2048 * 20480 * 2;
    const W: u64 = 5120 * 20480 * 2;
    let of = |weights: u64| [2 * X + 4 * H + weights, 2 * X + 2 * H + weights, 2 * X + weights];
    assert_eq!(of(2 * W), [796_917_760, 629_145_600, 461_373_440]);
    assert_eq!(of(2 * W / 8), [429_916_160, 262_144_000, 94_371_840]);
    for (workload, bytes) in [("gpt13b-mlp", of(2 * W)), ("gpt13b-mlp-sparse", of(2 * W / 8 + METADATA))] {
        let moved = MODES.map(|mode| event(chip, workload, mode).traffic().off_chip_bytes());
        assert_eq!(moved, bytes, "{workload} on {chip}");
        let notes: Vec<_> = MODES.iter().flat_map(|&mode| &event(chip, workload, mode).notes).collect();
        assert!(notes.is_empty(), "{workload} on {chip}: {notes:?}");
    }
}

#[test]
fn bounds_of_the_large_block_are_the_known_answers() {
    for (name, workload_name, cycles) in [
        // SN10: 640 x 192 MACs a cycle, 80 B a cycle. SN40L: 1040 x 192 MACs, 1125 B.
        ("sn10", "gpt13b-mlp", [3_495_254, 5_767_168]),
        ("sn40l", "gpt13b-mlp", [2_150_926, 410_110]),
        ("sn10", "gpt13b-mlp-sparse", [436_907, (94_371_840u64 + METADATA).div_ceil(80)]),
        ("sn40l", "gpt13b-mlp-sparse", [268_866, (94_371_840u64 + METADATA).div_ceil(1125)]),
    ] {
        let (mut chip, workload) = (chip(name), workload(workload_name, &[]));
        let launch = chip.launch_cycles();
        let bound = bound_cycles(&chip, &workload, Mode::Fused) - launch;
        assert_eq!(bound, cycles[0].max(cycles[1]), "{workload_name} on {name}");
        // With memory a thousand times as fast, only the arithmetic counts.
        for tier in chip.memory.ids().collect::<Vec<_>>() {
            chip.memory[tier].bandwidth_bytes_per_s *= 1000;
        }
        chip.ag_bytes_per_cycle = chip.network.flit_bytes;
        let compute = bound_cycles(&chip, &workload, Mode::Fused) - launch;
        assert_eq!(compute, cycles[0], "{workload_name} on {name}, compute");
    }
}

/// The dense block on SN10, fused, with this many tokens.
fn fused_dense(tokens: u64) -> Outcome {
    let workload = workload("gpt13b-mlp", &[&format!("workload.dims.tokens={tokens}")]);
    let [_, event] = runs(&chip("sn10"), &workload, &[Mode::Fused], Effort::Low).remove(0);
    event
}

#[test]
fn dense_weights_are_read_once_while_the_tokens_fit() {
    for tokens in [4096, 8192] {
        let outcome = fused_dense(tokens);
        let traffic = outcome.traffic();
        let x = tokens * 5120 * 2;
        assert_eq!((traffic.off_chip_read_bytes, traffic.off_chip_write_bytes), (x + 2 * (200 << 20), x), "{tokens}");
        assert!(outcome.notes.is_empty(), "{tokens}: {:?}", outcome.notes);
    }
}

#[test]
fn dense_weights_that_are_read_again_are_told_with_the_reason() {
    for tokens in [16_384, 32_768] {
        let outcome = fused_dense(tokens);
        let least = 2 * tokens * 5120 * 2 + 2 * (200 << 20);
        assert!(outcome.traffic().off_chip_bytes() > least, "{tokens}");
        let notes = outcome.notes.join("\n");
        for word in ["`w_up` (200.0 MiB)", "`w_down` (200.0 MiB)", &format!("all {tokens} rows"), "320.0 MiB"] {
            assert!(notes.contains(word), "{tokens}: {notes}");
        }
    }
}
