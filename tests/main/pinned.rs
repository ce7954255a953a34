//! What fixed pairs of a chip and a graph come to, to the cycle and byte: choices of the compiler and the event engine that no law or
//! worked case holds. After a change that is meant to change them: `INSTA_UPDATE=always cargo test --test main pinned`, and read the
//! diff: what changed, by how much, and whether that is what was meant.

use std::fmt::Write as _;
use std::process::Command;

use rayon::prelude::*;
use rdusim::arch::Chip;
use rdusim::compile::{BaseCache, Effort, compile_with, simulate_measured};
use rdusim::mode::Mode;
use rdusim::outcome::{Fidelity, Outcome};
use rdusim::report::Document;
use rdusim::workload::Workload;
use xxhash_rust::xxh3::xxh3_64;

use crate::random::{pair, small_pair};

/// A line for each mode: cycles, the bound, sections, bytes off chip, in memories and on links, and a hash of the whole result.
fn lines(name: &str, (chip, workload): (&Chip, &Workload), effort: Effort) -> String {
    let mut text = String::new();
    let Ok(compiled) = compile_with(chip, workload, &Mode::ALL, effort, &BaseCache::default()) else {
        return format!("{name} refused\n");
    };
    let of = |fidelity| -> Vec<Outcome> {
        compiled.iter().map(|compiled| simulate_measured(chip, workload, compiled, fidelity)).collect()
    };
    let (event, bound) = (of(Fidelity::Event), of(Fidelity::Bound));
    for (event, bound) in event.iter().zip(&bound) {
        let traffic = event.traffic();
        let hash = xxh3_64(Document::new(chip, workload, std::slice::from_ref(event)).to_json().as_bytes());
        let _ = writeln!(
            text,
            "{name} {}: {} cycles, {} bound, {} sections, off chip {} + {}, SRAM {} + {}, links {}, {hash:016x}",
            event.mode.name(),
            event.cycles,
            bound.cycles,
            event.sections.len(),
            traffic.off_chip_read_bytes,
            traffic.off_chip_write_bytes,
            traffic.sram_read_bytes,
            traffic.sram_write_bytes,
            traffic.network_bytes,
        );
    }
    text
}

fn all(of: &(impl Fn(usize) -> String + Sync), count: usize) -> String {
    (0..count).into_par_iter().map(of).collect::<Vec<_>>().concat()
}

#[test]
fn small_pairs() {
    let of = |number: usize| {
        let (chip, graph) = small_pair(20_261_126, number);
        lines(&format!("small {number}"), (&chip.chip(), &graph.workload()), Effort::Low)
    };
    insta::assert_snapshot!("small", all(&of, 48));
}

#[test]
fn families() {
    let of = |number: usize| {
        let (family, chip, graph) = pair(20_261_126, number);
        lines(&format!("{family} {number}"), (&chip.chip(), &graph.workload()), Effort::Low)
    };
    insta::assert_snapshot!("families", all(&of, 24));
}

/// Attention, decode over a cache, training and sparse weights, in few layers on shipped chips.
#[test]
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
        let output = Command::new(env!("CARGO_BIN_EXE_rdusim")).args(["model", model]).args(options).output();
        let text = String::from_utf8(output.expect("the command starts").stdout).expect("a workload is UTF-8");
        let workload = rdusim::workload::parse("the model", &text, &[], 0).expect("a workload");
        let chip = rdusim::arch::parse(
            "the chip",
            &std::fs::read_to_string(format!("arch/{chip}.toml")).expect("a chip"),
            &[],
        );
        lines(&format!("{model} {}", options.join(" ")), (&chip.expect("a chip"), &workload), Effort::Low)
    };
    insta::assert_snapshot!("models", all(&of, CASES.len()));
}
