//! What fixed pairs of a chip and a graph come to, to the cycle and byte, and how many events and how much work that takes the engine:
//! choices of the compiler and the engine, and periods that it skips, that no law or worked case holds. After a change that is meant to
//! change them: `INSTA_UPDATE=always cargo test --test main pinned`, and read the diff: what changed, by how much, and whether that is
//! what was meant.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::Command;

use rayon::prelude::*;
use rdusim::arch::Chip;
use rdusim::compile::{BaseCache, Compiled, Effort, compile_with, exhaust, recompiled, retargeted, simulate_measured};
use rdusim::cost::Stop;
use rdusim::input::Override;
use rdusim::mode::Mode;
use rdusim::outcome::{Fidelity, Outcome};
use rdusim::program::{Configuration, divided_over_tiers, tensor_tiers};
use rdusim::report::Document;
use rdusim::sim::{check_size, run_section, simulate, trace};
use rdusim::workload::Workload;
use xxhash_rust::xxh3::xxh3_64;

use crate::random::{pair, small_pair};

/// Most spans of a timeline that is made for its hash.
const MOST_EVENTS: u64 = 20_000;

/// A line for each mode: cycles, the bound, sections, bytes off chip, in memories and on links, and a hash of the whole result.
fn lines(name: &str, chip: &Chip, workload: &Workload, effort: Effort) -> String {
    let mut text = String::new();
    let Ok(compiled) = compile_with(chip, workload, &Mode::ALL, effort, &BaseCache::default()) else {
        return format!("{name} refused\n");
    };
    let of = |fidelity| -> Vec<Outcome> {
        compiled.iter().map(|compiled| simulate_measured(chip, workload, compiled, fidelity)).collect()
    };
    let (event, bound) = (of(Fidelity::Event), of(Fidelity::Bound));
    for ((event, bound), compiled) in event.iter().zip(&bound).zip(&compiled) {
        let traffic = event.traffic();
        let hashes = [event, bound].map(|outcome| hash_of(chip, workload, outcome));
        let _ = write!(
            text,
            "{name} {}: {} cycles, {} bound, {} sections, off chip {} + {}, SRAM {} + {}, links {}, {:016x} {:016x}; ",
            event.mode.name(),
            event.cycles,
            bound.cycles,
            event.sections.len(),
            traffic.off_chip_read_bytes,
            traffic.off_chip_write_bytes,
            traffic.sram_read_bytes,
            traffic.sram_write_bytes,
            traffic.network_bytes,
            hashes[0],
            hashes[1],
        );
        text.push_str(&engine(chip, workload, compiled));
        text.push('\n');
    }
    text
}

fn hash_of(chip: &Chip, workload: &Workload, outcome: &Outcome) -> u64 {
    xxh3_64(Document::new(chip, workload, std::slice::from_ref(outcome)).to_json().as_bytes())
}

/// Events and work of the engine, with the periods that it skips, and a hash of its timeline where that is short.
fn engine(chip: &Chip, workload: &Workload, compiled: &Compiled) -> String {
    let sections = &compiled.configuration.sections;
    let runs =
        sections.iter().filter_map(|section| run_section(&section.chip(chip, workload), workload, section, true));
    let (events, work) = runs.fold((0, 0), |(events, work), run| (events + run.events, work + run.work));
    let mut text = format!("{events} events, {work} work");
    if events <= MOST_EVENTS {
        let timeline = format!("{:?}", trace(chip, workload, &compiled.configuration));
        let _ = write!(text, ", timeline {:016x}", xxh3_64(timeline.as_bytes()));
    }
    text
}

/// Compares `text` with the snapshot of this name, and says by how much cycles have changed from it: what a reader of a large diff
/// wants to know first, and is shown where the comparison fails.
#[track_caller]
#[expect(clippy::print_stdout, reason = "shown where a test fails")]
fn pinned(name: &str, text: &str) {
    let path = format!("{SNAPSHOTS}/main__pinned__{name}.snap");
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    println!("{name}: {}", change(&cycles_by_name(&committed), &cycles_by_name(text)));
    insta::assert_snapshot!(name, text);
}

const SNAPSHOTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/main/snapshots");

/// Cycles of each line of a snapshot that has any: `NAME: 123 cycles, ...`.
fn cycles_by_name(text: &str) -> BTreeMap<&str, u64> {
    text.lines()
        .filter_map(|line| {
            let (name, rest) = line.split_once(": ")?;
            let (cycles, _) = rest.split_once(" cycles")?;
            Some((name, cycles.parse().ok()?))
        })
        .collect()
}

/// The sum of cycles of all lines that both texts have, before and now, and the line that has become slowest.
fn change(before: &BTreeMap<&str, u64>, now: &BTreeMap<&str, u64>) -> String {
    let mut sums = [0u64; 2];
    let (mut worst, mut slowest) = (0.0, "none");
    for (name, &cycles) in now {
        let Some(&was) = before.get(name) else { continue };
        sums[0] += was;
        sums[1] += cycles;
        let ratio = cycles as f64 / was.max(1) as f64;
        if ratio > worst {
            (worst, slowest) = (ratio, name);
        }
    }
    let percent = |ratio: f64| 100.0 * (ratio - 1.0);
    let sum = percent(sums[1] as f64 / sums[0].max(1) as f64);
    format!("{} cycles, {} are committed: {sum:+.3} %; at worst {:+.3} %, {slowest}", sums[1], sums[0], percent(worst))
}

/// The sum of cycles of each snapshot, of the lines that have any. After a change of the others, once more:
/// `INSTA_UPDATE=always cargo test --test main pinned::sums`. One line of a diff says what a change of the compiler came to.
#[test]
fn sums() {
    let mut text = String::new();
    let mut total = 0;
    for name in ["small", "families", "small_models", "models", "full", "cycle", "retargeted"] {
        let path = format!("{SNAPSHOTS}/main__pinned__{name}.snap");
        let committed = std::fs::read_to_string(path).expect("a snapshot");
        let cycles = cycles_by_name(&committed);
        assert!(cycles.len() > 10, "{name} has {} lines with cycles", cycles.len());
        let sum: u64 = cycles.values().sum();
        total += sum;
        let _ = writeln!(text, "{name}: {sum} cycles in {} lines", cycles.len());
    }
    let _ = writeln!(text, "all: {total} cycles");
    insta::assert_snapshot!("sums", text);
}

#[test]
fn a_change_is_of_the_lines_that_both_have() {
    let [before, now] =
        ["a: 100 cycles, x\nb: 50 cycles, y\nc refused\n", "a: 90 cycles, x\nb: 51 cycles, y\nd: 7 cycles\n"];
    let change = change(&cycles_by_name(before), &cycles_by_name(now));
    assert_eq!(change, "141 cycles, 150 are committed: -6.000 %; at worst +2.000 %, b");
}

fn all(of: &(impl Fn(usize) -> String + Sync), count: usize) -> String {
    (0..count).into_par_iter().map(of).collect::<Vec<_>>().concat()
}

#[test]
fn small_pairs() {
    let of = |number: usize| {
        let (chip, graph) = small_pair(20_261_126, number);
        lines(&format!("small {number}"), &chip.chip(), &graph.workload(), Effort::Low)
    };
    pinned("small", &all(&of, 48));
}

#[test]
fn families() {
    let of = |number: usize| {
        let (family, chip, graph) = pair(20_261_126, number);
        lines(&format!("{family} {number}"), &chip.chip(), &graph.workload(), Effort::Low)
    };
    pinned("families", &all(&of, 24));
}

/// A model of few small layers.
fn model(options: &str) -> Workload {
    let output = Command::new(env!("CARGO_BIN_EXE_rdusim")).arg("model").args(options.split_whitespace()).output();
    let text = String::from_utf8(output.expect("the command starts").stdout).expect("a workload is UTF-8");
    rdusim::workload::parse("the model", &text, &[], 0).expect("a workload")
}

/// Whole models, small enough for the whole search: sections in a row and what they prefetch, blocks that repeat, gradients, epilogues,
/// experts, cached keys.
#[test]
#[ignore = "depth: whole models, half of them searched in full"]
fn small_models() {
    const SIZE: &str = "--layers 2 --hidden 128 --heads 4 --ffn 384 --vocabulary 512";
    const CASES: [(&str, &str); 9] = [
        ("sn10", "llama --phase forward --sequence 64"),
        ("sn40l", "llama --phase forward --sequence 256 --batch 2"),
        ("sn10", "llama --phase decode --context 128 --batch 4"),
        ("sn40l", "llama --phase decode --context 512 --batch 8 --kv-heads 2"),
        ("sn10", "gpt --phase training --sequence 32 --batch 2"),
        ("sn40l", "llama --phase training --sequence 64 --optimizer sgd"),
        ("sn30", "gpt --phase forward --sequence 64 --sparsity 0.75 --block 16"),
        ("plasticine", "gpt --phase forward --sequence 32"),
        ("sn40l", "gpt --phase forward --sequence 48 --batch 3"),
    ];
    let of = |at: usize| {
        let (chip, options) = CASES[at];
        let effort = if at.is_multiple_of(2) { Effort::Low } else { Effort::Full };
        lines(&format!("{chip} {options}"), &loaded(chip, ""), &model(&format!("{options} {SIZE}")), effort)
    };
    pinned("small_models", &all(&of, CASES.len()));
}

/// Attention, decode over a cache, training and sparse weights, in few layers on shipped chips.
#[test]
#[ignore = "depth: layers of full size"]
fn models() {
    const CASES: [(&str, &str, &[&str]); 6] = [
        ("sn10", "gpt2", &["--phase", "forward", "--sequence", "128", "--layers", "2"]),
        ("sn40l", "gpt2", &["--phase", "forward", "--sequence", "512", "--layers", "4"]),
        ("sn40l", "gpt2", &["--phase", "decode", "--context", "256", "--layers", "2", "--batch", "4"]),
        ("sn40l", "llama3-8b", &["--phase", "decode", "--context", "512", "--layers", "2"]),
        ("sn10", "gpt2", &["--phase", "training", "--sequence", "64", "--layers", "1", "--batch", "2"]),
        (
            "sn30",
            "gpt2",
            &["--phase", "forward", "--sequence", "128", "--layers", "1", "--sparsity", "0.75", "--block", "16"],
        ),
    ];
    let of = |at: usize| {
        let (chip, model, options) = CASES[at];
        let workload = self::model(&format!("{model} {}", options.join(" ")));
        lines(&format!("{model} {}", options.join(" ")), &loaded(chip, ""), &workload, Effort::Low)
    };
    pinned("models", &all(&of, CASES.len()));
}

fn loaded(chip: &str, set: &str) -> Chip {
    let sets: Vec<Override> = set.split_whitespace().map(|set| Override::parse(set).expect("an override")).collect();
    rdusim::arch::load(format!("arch/{chip}.toml").as_ref(), &sets).expect("a chip")
}

/// The whole search: every cut, allotment and measurement of its budget, and more of them.
#[test]
fn searched_in_full() {
    let of = |number: usize| {
        let (chip, graph) = small_pair(20_261_127, number);
        let effort = if number.is_multiple_of(4) { Effort::Thorough } else { Effort::Full };
        lines(&format!("full {number}"), &chip.chip(), &graph.workload(), effort)
    };
    pinned("full", &all(&of, 24));
}

/// Every mapping of small graphs: how many there are, how many are measured, and the best.
#[test]
fn enumerated() {
    let of = |number: usize| {
        let (chip, graph) = small_pair(20_261_128, number);
        format!("{number}: {:?}\n", exhaust(&chip.chip(), &graph.workload(), 2_000))
    };
    insta::assert_snapshot!("enumerated", all(&of, 40));
}

/// The reference model, whose details no tolerance holds.
#[test]
fn cycle_by_cycle() {
    let of = |number: usize| {
        let (chip, graph) = small_pair(20_261_129, number);
        let (chip, workload) = (chip.chip(), graph.workload());
        let Ok(compiled) = compile_with(&chip, &workload, &Mode::ALL, Effort::Low, &BaseCache::default()) else {
            return format!("{number} refused\n");
        };
        let mut text = String::new();
        for Compiled { configuration, .. } in &compiled {
            let event = simulate(&chip, &workload, configuration, Fidelity::Event);
            if event.cycles > 60_000 || check_size(&chip, &workload, configuration).is_err() {
                continue;
            }
            let cycle = simulate(&chip, &workload, configuration, Fidelity::Cycle);
            let hash = hash_of(&chip, &workload, &cycle);
            let _ = writeln!(text, "{number} {}: {} cycles, {hash:016x}", configuration.mode.name(), cycle.cycles);
        }
        text
    };
    pinned("cycle", &all(&of, 32));
}

/// Mappings that are kept on a chip with more of something, and those that are applied to another size.
#[test]
fn kept_and_retargeted() {
    const WORKLOADS: [&str; 2] = ["gpt2-small-mlp", "tiny-mlp"];
    const CHIPS: [&str; 4] = [
        "arch.pmu.read_ports=3",
        "arch.pmu.capacity_bytes=1048576",
        "arch.network.links_per_direction=3",
        "arch.memory.ddr.bandwidth_gb_per_s=150",
    ];
    let workload = |name: &str, tokens: u64| {
        let set = Override::parse(&format!("workload.dims.tokens={tokens}")).expect("an override");
        rdusim::workload::load(format!("workloads/{name}.toml").as_ref(), &[set], 0).expect("a workload")
    };
    let of = |number: usize| {
        let name = WORKLOADS[number / 3];
        let mode = Mode::ALL[number % 3];
        let (chip, small) = (loaded("sn10", ""), workload(name, 192));
        let compiled = compile_with(&chip, &small, &[mode], Effort::Low, &BaseCache::default()).expect("it fits");
        let of = &compiled[0].configuration;
        let mut text = String::new();
        let mut add = |what: &str, chip: &Chip, workload: &Workload, configuration: Result<Configuration, String>| {
            let result = configuration.map(|configuration| {
                let outcome = simulate(chip, workload, &configuration, Fidelity::Event);
                format!("{} cycles, {:016x}", outcome.cycles, hash_of(chip, workload, &outcome))
            });
            let _ = writeln!(text, "{name} {} {what}: {}", mode.name(), result.unwrap_or_else(|why| why));
        };
        for set in CHIPS {
            let more = loaded("sn10", set);
            let kept = recompiled(&more, &small, of, Stop::NEVER).expect("there is more room");
            add(set, &more, &small, Ok(kept.configuration));
        }
        for tokens in [24, 100, 1000, 2048] {
            let other = workload(name, tokens);
            add(&format!("{tokens} tokens"), &chip, &other, retargeted(&chip, &other, of));
        }
        text
    };
    pinned("retargeted", &all(&of, 6));
}

/// A model of layers in two tiers: which repetitions of what lie where, as the faster one shrinks.
#[test]
fn divided_between_tiers() {
    let options = "llama --layers 16 --hidden 512 --heads 8 --ffn 1536 --vocabulary 8000 --phase decode --batch 8 --sequence 2048";
    let workload = model(options);
    let of = |number: usize| {
        let hbm = 8_000_000 * (number as u64 + 1);
        let chip = loaded("sn40l", &format!("arch.memory.hbm.capacity_bytes={hbm}"));
        let divided = divided_over_tiers(&chip, &workload);
        let graph = divided.as_ref().unwrap_or(&workload);
        let repeats: Vec<u64> = graph.operators.iter().map(|operator| operator.repeat).collect();
        let tiers = tensor_tiers(&chip, graph).map(|tiers| format!("{tiers:?}")).unwrap_or_default();
        let names: Vec<&str> = graph.tensors.iter().map(|tensor| tensor.name.as_str()).collect();
        let hash = xxh3_64(format!("{repeats:?} {tiers} {names:?}").as_bytes());
        let (least, most) = (repeats.iter().min().copied(), repeats.iter().max().copied());
        format!("{hbm}: {} operators, repeated {least:?} to {most:?} times, {hash:016x}\n", repeats.len())
    };
    insta::assert_snapshot!("tiers", all(&of, 60));
}
