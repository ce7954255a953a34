//! Laws that hold for every graph on every chip, on as many random pairs as there is time for.
//!
//! `cargo run --release --example laws -- PAIRS [SEED]`: every pair in every mode, by the event engine. One pair in 64 comes from
//! wide ranges of every field, the others are small; one in 24 is compiled in full, the others with low effort, as the laws hold for
//! whatever mapping is found and a campaign of ten thousand pairs is to end within the hour.
//!
//! - bounds: the bound of the graph <= that of the configuration <= the event engine, section by section;
//! - rates: no tier, link, port, generator or unit works for longer than its section runs;
//! - scaling: clock and rates twice as high, latencies half as long: the same cycles;
//! - mirrored: columns in reverse order: the same bound of the graph; how far what is found differs is reported;
//! - determinism: the same bytes on one thread and on two;
//! - monotone: how often the richer chip is slower by more than 1 % is reported, as a search cannot promise that it never is.
//!
//! Exits with 1 if a law is broken; `... -- show NUMBER [SEED]` prints the files of a pair.

#![expect(clippy::print_stdout, reason = "a command")]

use std::collections::BTreeMap;
use std::error::Error;

use rayon::prelude::*;
use rdusim::arch::{self, Chip};
use rdusim::compile::{BaseCache, Compiled, Effort, compile_with, simulate_measured};
use rdusim::cost::bound_cycles;
use rdusim::mode::Mode;
use rdusim::outcome::{Fidelity, Outcome, SectionOutcome, StopReason};
use rdusim::report::Document;
use rdusim::sim::simulate;
use rdusim::workload::Workload;

use rdusim_testing::random::wide::wide_pair;
use rdusim_testing::random::{ChipValues, GraphValues, small_pair};

/// What a comparison showed: its law, by how much the two differ (0: not at all), whether that breaks the law, and what it is.
struct Shown {
    law: &'static str,
    differs: f64,
    broken: Option<String>,
}

/// A comparison of a law without exceptions.
fn law(law: &'static str, holds: bool, what: impl FnOnce() -> String) -> Shown {
    Shown { law, differs: f64::from(u8::from(!holds)), broken: (!holds).then(what) }
}

/// Slower by more than this is counted as slower.
const ALLOWED: f64 = 0.01;

fn files(seed: u64, number: usize) -> (ChipValues, GraphValues) {
    if number.is_multiple_of(64) {
        let (_, chip, graph) = wide_pair(seed, number);
        (chip, graph)
    } else {
        small_pair(seed, number)
    }
}

fn effort(number: usize) -> Effort {
    if number.is_multiple_of(24) { Effort::Full } else { Effort::Low }
}

fn compiled(chip: &Chip, workload: &Workload, effort: Effort) -> Option<Vec<Compiled>> {
    compile_with(chip, workload, &Mode::ALL, effort, &BaseCache::default()).ok()
}

fn outcomes(chip: &Chip, workload: &Workload, effort: Effort) -> Option<Vec<Outcome>> {
    let of = |compiled: &Compiled| simulate_measured(chip, workload, compiled, Fidelity::Event);
    Some(compiled(chip, workload, effort)?.iter().map(of).collect())
}

/// The longest that a resource of a section works.
fn busiest(section: &SectionOutcome) -> u64 {
    let busy = &section.busy;
    let tiers = busy.tiers.iter().map(|(_, cycles)| *cycles);
    let stages = section.stages.iter().map(|stage| stage.busiest_cycles);
    tiers.chain(stages).chain([busy.ag, busy.link, busy.pcu_port, busy.pmu_port]).max().unwrap_or(0)
}

/// Bounds and rates of a configuration.
fn in_order(chip: &Chip, workload: &Workload, compiled: &Compiled, event: &Outcome) -> Vec<Shown> {
    let bound = simulate(chip, workload, &compiled.configuration, Fidelity::Bound);
    let mode = event.mode.name();
    let mut shown = vec![
        law("drained", event.stop == StopReason::Drained, || format!("{mode}: {:?}", event.stop)),
        law("bounds", event.bound_cycles <= bound.cycles, || {
            format!("{mode}: bound of the graph {}, of the configuration {}", event.bound_cycles, bound.cycles)
        }),
    ];
    for (bound, event) in bound.sections.iter().zip(&event.sections) {
        let (name, cycles) = (&event.name, event.cycles);
        shown.push(law("bounds", bound.cycles <= cycles, || {
            format!("{mode} {name}: bound {}, event {cycles}", bound.cycles)
        }));
        let (busiest, runs) = (busiest(event), cycles.saturating_sub(event.launch_cycles));
        shown.push(law("rates", busiest <= runs, || format!("{mode} {name}: busy for {busiest} of {runs} cycles")));
    }
    shown
}

/// The chip with clock and rates twice as high and times half as long.
fn twice_as_fast(text: &str) -> Result<Chip, Box<dyn Error>> {
    let mut table: toml::Table = text.parse()?;
    let scale = |table: &mut toml::Table, key: &str, factor: f64| {
        if let Some(value) = table.get_mut(key) {
            let number = value.as_float().or_else(|| value.as_integer().map(|whole| whole as f64));
            *value = toml::Value::Float(number.unwrap_or(f64::NAN) * factor);
        }
    };
    scale(&mut table, "clock_ghz", 2.0);
    for tier in table.get_mut("memory").and_then(toml::Value::as_array_mut).into_iter().flatten() {
        let tier = tier.as_table_mut().ok_or("a tier is a table")?;
        scale(tier, "bandwidth_gb_per_s", 2.0);
        for key in ["latency_ns", "turnaround_ns", "non_sequential_ns"] {
            scale(tier, key, 0.5);
        }
    }
    let launch = table.get_mut("launch").and_then(toml::Value::as_table_mut).ok_or("a launch is a table")?;
    for kind in ["software", "hardware"] {
        let times = launch.get_mut(kind).and_then(toml::Value::as_table_mut).ok_or("times are a table")?;
        for key in ["program_load_us", "argument_load_us", "execute_us"] {
            scale(times, key, 0.5);
        }
    }
    Ok(arch::parse("chip", &table.to_string(), &[])?)
}

/// The chip with its columns in reverse order.
fn mirrored(text: &str) -> Result<Chip, Box<dyn Error>> {
    let mut table: toml::Table = text.parse()?;
    let grid = table.get_mut("grid").and_then(toml::Value::as_table_mut).ok_or("a grid is a table")?;
    let side =
        |name: &str| grid.get(name).and_then(toml::Value::as_integer).and_then(|side| usize::try_from(side).ok());
    let (columns, rows) = side("columns").zip(side("rows")).ok_or("a grid has sides")?;
    let pattern = grid.get("pattern").and_then(toml::Value::as_array).ok_or("a grid has a pattern")?;
    let lines: Vec<Vec<char>> = pattern.iter().filter_map(|line| Some(line.as_str()?.chars().collect())).collect();
    let line = |row: usize| {
        let line = &lines[row % lines.len()];
        toml::Value::from((0..columns).rev().map(|column| line[column % line.len()]).collect::<String>())
    };
    let pattern = (0..rows).map(line).collect();
    grid.insert("pattern".to_owned(), toml::Value::Array(pattern));
    let agcus = grid.get_mut("agcus").and_then(toml::Value::as_table_mut).ok_or("agcus are a table")?;
    let (left, right) = (agcus.remove("left"), agcus.remove("right"));
    agcus.extend(left.map(|left| ("right".to_owned(), left)));
    agcus.extend(right.map(|right| ("left".to_owned(), right)));
    Ok(arch::parse("chip", &table.to_string(), &[])?)
}

/// A pair's comparisons; none if the compiler refuses it.
fn examine(seed: u64, number: usize) -> Vec<Shown> {
    let (values, graph) = files(seed, number);
    let (chip, workload, effort) = (values.chip(), graph.workload(), effort(number));
    let Some(compiled) = compiled(&chip, &workload, effort) else { return Vec::new() };
    let event: Vec<Outcome> =
        compiled.iter().map(|compiled| simulate_measured(&chip, &workload, compiled, Fidelity::Event)).collect();
    let mut shown: Vec<Shown> =
        compiled.iter().zip(&event).flat_map(|(compiled, event)| in_order(&chip, &workload, compiled, event)).collect();
    let text = values.text();
    let ratio = |now: &Outcome, before: &Outcome| now.cycles as f64 / before.cycles as f64 - 1.0;
    match twice_as_fast(&text).map(|fast| outcomes(&fast, &workload, effort)) {
        Ok(Some(fast)) => shown.extend(fast.iter().zip(&event).map(|(fast, slow)| {
            let same = fast.cycles == slow.cycles && fast.traffic() == slow.traffic();
            law("scaling", same, || format!("{}: {} and {} cycles", slow.mode.name(), slow.cycles, fast.cycles))
        })),
        Ok(None) => shown.push(law("scaling", false, || "refused".to_owned())),
        Err(error) => shown.push(law("scaling", false, || error.to_string())),
    }
    match mirrored(&text) {
        Ok(other) => {
            for mode in Mode::ALL {
                let bounds = [&chip, &other].map(|chip| bound_cycles(chip, &workload, mode));
                shown.push(law("mirrored, bound", bounds[0] == bounds[1], || format!("{}: {bounds:?}", mode.name())));
            }
            let found = outcomes(&other, &workload, effort).unwrap_or_default();
            let differs = found.iter().zip(&event).map(|(now, before)| ratio(now, before).abs());
            shown.extend(differs.map(|differs| Shown { law: "mirrored, found", differs, broken: None }));
        }
        Err(error) => shown.push(law("mirrored, bound", false, || error.to_string())),
    }
    if number.is_multiple_of(2) {
        let bytes = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().ok()?;
            pool.install(|| Some(Document::new(&chip, &workload, &outcomes(&chip, &workload, effort)?).to_json()))
        };
        shown.push(law("determinism", bytes(1) == bytes(2), || "one thread and two give other bytes".to_owned()));
    }
    let richer = values.richer();
    let (_, richer) = &richer[number % richer.len()];
    let found = outcomes(&richer.chip(), &workload, effort).unwrap_or_default();
    let differs = found.iter().zip(&event).map(|(now, before)| ratio(now, before).max(0.0));
    shown.extend(differs.map(|differs| Shown { law: "monotone, found", differs, broken: None }));
    shown
}

/// Comparisons of a law: how many, how many differ by more than [`ALLOWED`], the worst, and how many break it.
#[derive(Default)]
struct Count {
    all: u64,
    beyond: u64,
    worst: f64,
    broken: u64,
}

fn campaign(pairs: usize, seed: u64) -> u64 {
    let mut counts: BTreeMap<&'static str, Count> = BTreeMap::new();
    let mut ran = 0;
    for first in (0..pairs).step_by(BATCH) {
        let batch = first..pairs.min(first + BATCH);
        let of_batch: Vec<(usize, Vec<Shown>)> =
            batch.clone().into_par_iter().map(|number| (number, examine(seed, number))).collect();
        for (number, shown) in of_batch {
            ran += u64::from(!shown.is_empty());
            for Shown { law, differs, broken } in shown {
                let count = counts.entry(law).or_default();
                count.all += 1;
                count.beyond += u64::from(differs > ALLOWED);
                count.worst = count.worst.max(differs);
                if let Some(what) = broken {
                    count.broken += 1;
                    println!("BROKEN {law}: pair {number} seed {seed}: {what}");
                }
            }
        }
        println!("{} pairs of seed {seed}, {ran} ran", batch.end);
        println!("law                comparisons   broken  beyond 1 %   worst");
        for (law, Count { all, beyond, worst, broken }) in &counts {
            println!("{law:<18} {all:>11} {broken:>8} {beyond:>11} {worst:>7.4}");
        }
    }
    counts.values().map(|count| count.broken).sum()
}

/// Pairs after which the table is printed, so that a campaign may be stopped.
const BATCH: usize = 50;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: u64| arguments.get(at).map_or(Ok(default), |text| text.parse());
    if arguments.first().is_some_and(|word| word == "show") {
        let (chip, graph) = files(number(2, 1)?, number(1, 0)? as usize);
        println!("{chip:?}\n{graph:?}");
        return Ok(());
    }
    match campaign(number(0, 500)? as usize, number(1, 1)?) {
        0 => Ok(()),
        broken => Err(format!("{broken} comparisons break a law").into()),
    }
}
