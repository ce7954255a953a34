//! How good the mappings are that the compiler finds, on random small chips and graphs.
//!
//! `cargo run --release --example search -- richer [PAIRS [SEED]]`: does more bandwidth, capacity or units ever make the
//! best found configuration slower? Pairs of chips and graphs as in the `fidelity` example.
//!
//! `... --example search -- exhaustive [PAIRS [SEED]]`: how far is what was found from the best of all mappings, where all
//! can be measured? `... -- show PAIR [SEED]` prints the files of such a pair.
//!
//! `... --example search -- proved [PAIRS [SEED]]`: certificates of pairs from wide ranges. Does every section take as long as its
//! class of nests is bounded to take, and every run as long as no mapping beats?

#![expect(clippy::print_stdout, reason = "a command")]

use std::error::Error;

use rayon::prelude::*;
use rdusim::compile::{compile_measured, exhaust, simulate_measured};
use rdusim::mode::Mode;
use rdusim::outcome::{Fidelity, StopReason};
use rdusim::proof::{Mapped, certify, check};

use rdusim_testing::random::wide::wide_pair;
use rdusim_testing::random::{ChipValues, GraphValues, pair, small_pair};

/// Slower by more than this is a fault.
const ALLOWED: f64 = 1.01;

/// Cycles of both modes; `None` if the compiler refuses the pair.
fn cycles(chip: &ChipValues, graph: &GraphValues) -> Option<[u64; 2]> {
    let (chip, workload) = (chip.chip(), graph.workload());
    let measured = compile_measured(&chip, &workload, &[Mode::Kbk, Mode::Fused]).ok()?;
    let of = |index: usize| simulate_measured(&chip, &workload, &measured[index], Fidelity::Event).cycles;
    Some([of(0), of(1)])
}

/// What a pair showed: number, resource, mode, and the richer chip's cycles over the poorer's.
type Shown = (usize, &'static str, &'static str, f64);

fn richer(seed: u64, number: usize) -> Vec<Shown> {
    let (_, chip, graph) = pair(seed, number);
    let Some(least) = cycles(&chip, &graph) else { return Vec::new() };
    chip.richer()
        .into_iter()
        .flat_map(|(what, values)| {
            let now = cycles(&values, &graph);
            [(0, "kbk"), (1, "fused")].map(|(mode, name)| {
                let ratio = now.map_or(f64::INFINITY, |now| now[mode] as f64 / least[mode] as f64);
                (number, what, name, ratio)
            })
        })
        .collect()
}

/// Mappings of the largest space that is enumerated.
const MOST_MAPPINGS: u64 = 400_000;

/// What an enumeration showed: number, mappings, those measured, cycles of the best and of the one that was found.
type Enumerated = (usize, u64, u64, u64, u64);

fn enumerate(seed: u64, number: usize) -> Option<Enumerated> {
    let (chip, graph) = small_pair(seed, number);
    let found = cycles(&chip, &graph)?[1];
    let best = exhaust(&chip.chip(), &graph.workload(), MOST_MAPPINGS)?;
    Some((number, best.mappings, best.measured, best.cycles, found))
}

fn exhaustive(pairs: usize, seed: u64) {
    let all: Vec<Enumerated> = (0..pairs).into_par_iter().filter_map(|number| enumerate(seed, number)).collect();
    let worse = |shown: &Enumerated| shown.4 as f64 / shown.3 as f64;
    for shown in all.iter().filter(|shown| worse(shown) > 1.03) {
        let (number, mappings, measured, best, found) = shown;
        let by = (worse(shown) - 1.0) * 100.0;
        println!(
            "pair {number}: found {found} cycles, best of {mappings} ({measured} measured) {best}: {by:.1} % worse"
        );
    }
    let near = all.iter().filter(|shown| worse(shown) <= 1.03).count();
    let mappings: u64 = all.iter().map(|shown| shown.1).sum();
    let worst = all.iter().map(worse).fold(0.0, f64::max);
    let mean = all.iter().map(worse).sum::<f64>() / all.len().max(1) as f64;
    println!(
        "{} of {pairs} pairs enumerated, {mappings} mappings: within 3 % of the best in {:.1} %, at worst {worst:.4} of \
         its cycles, mean {mean:.4}",
        all.len(),
        near as f64 / all.len().max(1) as f64 * 100.0,
    );
}

/// Pairs after which what they showed is printed, so that a campaign may be stopped.
const BATCH: usize = 8;

fn richest(pairs: usize, seed: u64) {
    let mut shown: Vec<Shown> = Vec::new();
    for first in (0..pairs).step_by(BATCH) {
        let batch = first..pairs.min(first + BATCH);
        let of_batch: Vec<Shown> = batch.clone().into_par_iter().flat_map_iter(|number| richer(seed, number)).collect();
        for (number, what, mode, ratio) in of_batch.iter().filter(|shown| shown.3 > ALLOWED) {
            println!("pair {number}: {mode} with more {what} takes {ratio:.4} of the cycles");
        }
        shown.extend(of_batch);
        let slower = shown.iter().filter(|shown| shown.3 > ALLOWED).count();
        let worst = shown.iter().map(|shown| shown.3).fold(0.0, f64::max);
        println!(
            "{} pairs: {} comparisons, {slower} slower by more than 1 %, at worst {worst:.4}",
            batch.end,
            shown.len()
        );
    }
}

/// The gap of each mode of a pair, or what is wrong with its certificate.
fn prove(seed: u64, number: usize) -> Vec<(usize, Result<f64, String>)> {
    let (_, chip, graph) = wide_pair(seed, number);
    let (chip, workload) = (chip.chip(), graph.workload());
    let Ok(compiled) = compile_measured(&chip, &workload, &Mode::ALL) else { return Vec::new() };
    let gap = |(mode, compiled): (Mode, &rdusim::compile::Compiled)| {
        let outcome = simulate_measured(&chip, &workload, compiled, Fidelity::Event);
        if outcome.stop != StopReason::Drained {
            return None;
        }
        let mapped = compiled.configuration.sections.iter().zip(&outcome.sections).map(|(section, ran)| Mapped {
            operators: section.operators.clone(),
            nest: section.schedule.nest(),
            cycles: ran.cycles,
        });
        let certificate = certify(&chip, &workload, mode, &mapped.collect::<Vec<_>>())?;
        let told = |what: &str| format!("{} of `{}`: {what}", mode.name(), workload.name);
        if let Err(refusal) = check(&chip, &workload, &certificate) {
            return Some((number, Err(told(&refusal.0))));
        }
        let (cycles, least) = (certificate.cycles, certificate.least_cycles);
        let gap =
            if cycles < least { Err(told(&format!("{cycles} cycles, least {least}"))) } else { Ok(certificate.gap) };
        Some((number, gap))
    };
    Mode::ALL.into_iter().zip(&compiled).filter_map(gap).collect()
}

fn proved(pairs: usize, seed: u64) {
    let shown: Vec<(usize, Result<f64, String>)> =
        (0..pairs).into_par_iter().flat_map_iter(|number| prove(seed, number)).collect();
    for (number, gap) in &shown {
        if let Err(why) = gap {
            println!("pair {number}: {why}");
        }
    }
    let mut gaps: Vec<f64> = shown.iter().filter_map(|(_, gap)| gap.as_ref().ok().copied()).collect();
    gaps.sort_by(f64::total_cmp);
    let percentile = |of: usize| gaps.get(gaps.len() * of / 100).copied().unwrap_or(0.0) * 100.0;
    println!(
        "{} certificates, {} wrong: gap median {:.2} %, 90th percentile {:.2} %",
        shown.len(),
        shown.len() - gaps.len(),
        percentile(50),
        percentile(90),
    );
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: u64| arguments.get(at).map_or(Ok(default), |text| text.parse());
    let (pairs, seed) = (number(1, 200)? as usize, number(2, 1)?);
    match arguments.first().map(String::as_str) {
        Some("richer") => richest(pairs, seed),
        Some("exhaustive") => exhaustive(pairs, seed),
        Some("proved") => proved(pairs, seed),
        Some("show") => {
            let (chip, graph) = small_pair(number(2, 1)?, number(1, 0)? as usize);
            println!("{chip:?}\n{graph:?}");
        }
        _ => println!("usage: search richer|exhaustive|proved|show [PAIRS [SEED]]"),
    }
    Ok(())
}
