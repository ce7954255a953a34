//! The event engine against the cycle engine on random small cases: a table, a plot and statistics.
//!
//! `cargo run --release --example fidelity -- [CASES [SEED [DIRECTORY]]]` prints the statistics (500 cases of at least
//! 5,000 cycles, seed 1); with a directory it also writes the table, the plot and the statistics there. A case is a
//! section of a compiled graph, its launch excluded; equal sections count once. Pairs of chips and graphs come from six
//! families in turn (`tests/shared/src/random.rs`), numbered from the seed, so that a pair can be
//! made again: `... fidelity -- show SEED PAIR` prints its files and its sections. `... fidelity -- whole CHIP WORKLOAD`
//! holds the fused sections of files against each other, however large: 640 PCUs for a million cycles take 20 minutes.
//!
//! `wide` before the arguments draws from wider ranges (`tests/shared/src/random/wide.rs`): `... fidelity -- wide 500 SEED`,
//! `... fidelity -- wide show SEED PAIR`. `... fidelity -- wide bounds PAIRS SEED` runs no reference model; it lists runs
//! that are faster than their lower bound.

#![expect(clippy::print_stdout, reason = "a command")]

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use plotters::prelude::*;
use rayon::prelude::*;
use rdusim::compile::compile_measured;
use rdusim::mode::Mode;
use rdusim::outcome::{Fidelity, StopReason};
use rdusim::sim::{check_size, simulate};
use rdusim::{arch, workload};

use rdusim_testing::random::wide::{wide_families, wide_pair};
use rdusim_testing::random::{ChipValues, GraphValues, families, pair};

/// Shorter cases are listed apart: a few cycles of a hop or a flit are a large part of them.
const LONG: u64 = 5_000;
/// Shorter than this, latencies are most of a case.
const MEDIUM: u64 = 1_000;
/// Pairs that are run before the number of cases is looked at again.
const BATCH: usize = 48;

/// Where pairs are drawn from.
#[derive(Clone, Copy)]
struct Campaign {
    pair: fn(u64, usize) -> (&'static str, ChipValues, GraphValues),
    families: fn() -> Vec<&'static str>,
    /// Before the other arguments.
    word: &'static str,
}

const NARROW: Campaign = Campaign { pair, families: || families().iter().map(|family| family.0).collect(), word: "" };
const WIDE: Campaign =
    Campaign { pair: wide_pair, families: || wide_families().iter().map(|family| family.0).collect(), word: "wide " };

/// A section of a pair at both fidelities.
#[derive(Debug, Clone, serde::Serialize)]
struct Case {
    pair: usize,
    family: &'static str,
    mode: &'static str,
    section: String,
    pcus: u64,
    /// The most slices that the K of a GEMM is split into.
    k_slices: u64,
    /// Whether FIFOs hold less than a credit round trip, so that a flow alone cannot use a whole link.
    credit_limited: bool,
    bound_by: String,
    event_cycles: u64,
    cycle_cycles: u64,
    error: f64,
}

/// What is known of a pair.
#[derive(Debug, Default)]
struct Pair {
    cases: Vec<Case>,
    /// Error of the ratio of kernel by kernel to fused, launches excluded.
    ratio_error: Option<f64>,
    /// Configurations that the reference model refuses.
    refused: usize,
}

/// The sections of a pair; none if the compiler refuses it.
fn run(campaign: Campaign, seed: u64, number: usize) -> Pair {
    let (family, chip, graph) = (campaign.pair)(seed, number);
    let (chip, workload) = (chip.chip(), graph.workload());
    let Ok(configurations) = compile_measured(&chip, &workload, &[Mode::Kbk, Mode::Fused]) else {
        return Pair::default();
    };
    let mut seen = BTreeSet::new();
    let mut of_pair = Pair::default();
    let mut totals = Vec::new();
    for configuration in &configurations {
        if check_size(&chip, &workload, &configuration.configuration).is_err() {
            of_pair.refused += 1;
            continue;
        }
        let [event, cycle] = [Fidelity::Event, Fidelity::Cycle]
            .map(|fidelity| simulate(&chip, &workload, &configuration.configuration, fidelity));
        assert_eq!(event.stop, StopReason::Drained, "pair {number} of seed {seed}");
        // Where latencies of many accesses follow one on the other, a run may outlast what its size allows.
        if let StopReason::Limit(_) = cycle.stop {
            of_pair.refused += 1;
            continue;
        }
        assert_eq!(cycle.stop, StopReason::Drained, "pair {number} of seed {seed}");
        let sections = event.sections.iter().zip(&cycle.sections).zip(&configuration.configuration.sections);
        let mut total = (0, 0);
        for ((e, c), section) in sections {
            assert_eq!(e.traffic, c.traffic, "{} in pair {number} of seed {seed}", e.name);
            let (event_cycles, cycle_cycles) = (e.cycles - e.launch_cycles, c.cycles - c.launch_cycles);
            total = (total.0 + event_cycles, total.1 + cycle_cycles);
            if seen.insert((event_cycles, cycle_cycles)) {
                of_pair.cases.push(Case {
                    pair: number,
                    family,
                    mode: configuration.configuration.mode.name(),
                    section: e.name.clone(),
                    pcus: e.pcus,
                    k_slices: section.stages.iter().map(|stage| stage.mapping.pk()).max().unwrap_or(1),
                    credit_limited: chip.network.fifo_depth_flits < 2 * chip.network.hop_cycles,
                    bound_by: e.bound_by.to_string(),
                    event_cycles,
                    cycle_cycles,
                    error: event_cycles as f64 / cycle_cycles.max(1) as f64 - 1.0,
                });
            }
        }
        totals.push(total);
    }
    if let [kbk, fused] = totals[..]
        && fused.1 >= MEDIUM
    {
        let [event, cycle] = [kbk.0 as f64 / fused.0.max(1) as f64, kbk.1 as f64 / fused.1 as f64];
        of_pair.ratio_error = Some(event / cycle - 1.0);
    }
    of_pair
}

/// Runs of pairs that end before their lower bound, and memory that moves more than its rate, as lines.
fn below_bound(campaign: Campaign, seed: u64, number: usize) -> (usize, Vec<String>) {
    let (family, values, graph) = (campaign.pair)(seed, number);
    let (chip, workload) = (values.chip(), graph.workload());
    let Ok(configurations) = compile_measured(&chip, &workload, &[Mode::Kbk, Mode::Fused]) else {
        return (0, Vec::new());
    };
    let mut lines = Vec::new();
    let mut sections = 0;
    for configuration in &configurations {
        let [bound, event] = [Fidelity::Bound, Fidelity::Event]
            .map(|fidelity| simulate(&chip, &workload, &configuration.configuration, fidelity));
        let mode = configuration.configuration.mode.name();
        let mut tell = |what: &str, least: u64, cycles: u64| {
            if least > cycles {
                lines.push(format!("pair {number}, {family}, {mode} {what}: {least} > {cycles}"));
            }
        };
        tell("bound of the graph", event.bound_cycles, event.cycles);
        for (b, e) in bound.sections.iter().zip(&event.sections) {
            sections += 1;
            tell(&e.name, b.cycles, e.cycles);
            for (tier, busy) in &e.busy.tiers {
                tell(&format!("{} at {tier}", e.name), *busy, e.cycles - e.launch_cycles);
            }
        }
    }
    (sections, lines)
}

/// One row of statistics: of a name's signed errors, how many, then median, 95th and 99.5th percentile and worst of their
/// absolute values, and their mean.
fn row(name: &str, signed: &[f64]) -> String {
    let mut errors: Vec<f64> = signed.iter().map(|error| error.abs()).collect();
    errors.sort_by(f64::total_cmp);
    let Some(worst) = errors.last() else { return format!("| {name} | 0 | | | | | |\n") };
    let at = |share: f64| errors[((errors.len() as f64 * share).ceil() as usize).clamp(1, errors.len()) - 1];
    let mean = signed.iter().sum::<f64>() / signed.len() as f64;
    format!(
        "| {name} | {} | {:.2} % | {:.2} % | {:.2} % | {:.2} % | {:+.2} % |\n",
        errors.len(),
        at(0.5) * 100.0,
        at(0.95) * 100.0,
        at(0.995) * 100.0,
        worst * 100.0,
        mean * 100.0
    )
}

fn errors(cases: &[&Case]) -> Vec<f64> {
    cases.iter().map(|case| case.error).collect()
}

/// The statistics as Markdown; `arguments` are those that make them again.
fn statistics(campaign: Campaign, arguments: &str, pairs: usize, list: &[Pair]) -> String {
    let cases: Vec<&Case> = list.iter().flat_map(|pair| &pair.cases).collect();
    let ratios: Vec<f64> = list.iter().filter_map(|pair| pair.ratio_error).collect();
    let refused: usize = list.iter().map(|pair| pair.refused).sum();
    let (long, rest): (Vec<&Case>, Vec<&Case>) = cases.iter().partition(|case| case.cycle_cycles >= LONG);
    let (medium, short): (Vec<&Case>, Vec<&Case>) = rest.into_iter().partition(|case| case.cycle_cycles >= MEDIUM);
    let mut text = format!(
        "# Event against cycle, {} cases\n\nMade by `cargo run --release --example fidelity -- {}{arguments}`: {pairs} \
         random pairs of chips and graphs; the reference model refuses {refused} of their configurations. Error: (event - \
         cycle) / cycle, launch excluded; absolute but for the mean.\n\n\
         | cases | number | median | 95th percentile | 99.5th | worst | mean, signed |\n|---|---|---|---|---|---|---|\n",
        cases.len(),
        campaign.word
    );
    text += &row("**at least 5,000 cycles**", &errors(&long));
    text += &row("**1,000 to 5,000 cycles**", &errors(&medium));
    text += &row("below 1,000 cycles", &errors(&short));
    text += &row("**kbk / fused, 1,000 cycles fused**", &ratios);
    for (name, cases) in [("at least 5,000", &long), ("1,000 to 5,000", &medium)] {
        let (limited, whole): (Vec<&Case>, Vec<&Case>) = cases.iter().partition(|case| case.credit_limited);
        text += &row(&format!("{name}, FIFOs of a credit round trip"), &errors(&whole));
        text += &row(&format!("{name}, shallower FIFOs"), &errors(&limited));
    }
    for family in (campaign.families)() {
        let of: Vec<&Case> = long.iter().copied().filter(|case| case.family == family).collect();
        text += &row(family, &errors(&of));
    }
    let bounds: BTreeSet<&str> =
        long.iter().map(|case| case.bound_by.split(':').next().unwrap_or(&case.bound_by)).collect();
    for bound in bounds {
        let of: Vec<&Case> = long.iter().copied().filter(|case| case.bound_by.starts_with(bound)).collect();
        text += &row(&format!("bound by {bound}"), &errors(&of));
    }
    let split: Vec<&Case> = long.iter().copied().filter(|case| case.k_slices > 1).collect();
    text += &row("K split over PCUs", &errors(&split));
    for (title, mut worst) in [("at least 5,000 cycles", long), ("1,000 to 5,000 cycles", medium)] {
        worst.sort_by(|a, b| b.error.abs().total_cmp(&a.error.abs()));
        let _ = write!(
            text,
            "\nThe worst of {title}:\n\n| pair | family | section | bound by | event | cycle | error |\n\
             |---|---|---|---|---|---|---|\n"
        );
        for case in worst.iter().take(20) {
            let Case { pair, family, mode, section, bound_by, event_cycles, cycle_cycles, error, .. } = case;
            let _ = writeln!(
                text,
                "| {pair} | {family} | {mode} {section} | {bound_by} | {event_cycles} | {cycle_cycles} | {:+.2} % |",
                error * 100.0
            );
        }
    }
    text
}

/// Errors over cycles, each case a point.
fn plot(path: &Path, families: &[&str], cases: &[&Case]) -> Result<(), Box<dyn Error>> {
    let root = SVGBackend::new(path, (900, 520)).into_drawing_area();
    root.fill(&WHITE)?;
    let longest = cases.iter().map(|case| case.cycle_cycles).max().unwrap_or(1) as f64;
    let mut chart = ChartBuilder::on(&root)
        .caption("event against cycle, launch excluded", ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(60)
        .build_cartesian_2d((100.0..longest * 1.2).log_scale(), -20.0..20.0)?;
    chart.configure_mesh().x_desc("cycles (cycle fidelity)").y_desc("error, % (clipped at 20)").draw()?;
    chart.draw_series(
        [-10.0, 10.0].map(|y| PathElement::new(vec![(LONG as f64, y), (longest * 1.2, y)], RED.mix(0.6)).into_dyn()),
    )?;
    chart.draw_series(std::iter::once(
        PathElement::new(vec![(LONG as f64, -20.0), (LONG as f64, 20.0)], BLACK.mix(0.3)).into_dyn(),
    ))?;
    for (index, &family) in families.iter().enumerate() {
        let colour = Palette99::pick(index).to_rgba();
        let of = cases.iter().filter(|case| case.family == family && case.cycle_cycles >= 100);
        let points = of.map(|case| (case.cycle_cycles as f64, (case.error * 100.0).clamp(-20.0, 20.0)));
        chart
            .draw_series(points.map(|point| Circle::new(point, 2, colour.mix(0.7).filled())))?
            .label(family)
            .legend(move |(x, y)| Circle::new((x + 6, y), 4, colour.filled()));
    }
    chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(BLACK.mix(0.2)).draw()?;
    root.present()?;
    Ok(())
}

/// The fused sections of files in both fidelities, and how far they are apart.
fn hold(chip: &Path, graph: &Path) -> Result<(), Box<dyn Error>> {
    let chip = arch::load(chip, &[]).map_err(|e| e.render(false))?;
    let workload = workload::load(graph, &[], 0).map_err(|e| e.render(false))?;
    for configuration in compile_measured(&chip, &workload, &[Mode::Fused]).map_err(|e| e.render(false))? {
        let outcome = |fidelity| simulate(&chip, &workload, &configuration.configuration, fidelity);
        let (event, cycle) = rayon::join(|| outcome(Fidelity::Event), || outcome(Fidelity::Cycle));
        for (e, c) in event.sections.iter().zip(&cycle.sections) {
            let [event, cycle] = [e, c].map(|section| section.cycles - section.launch_cycles);
            let error = (event as f64 / cycle as f64 - 1.0) * 100.0;
            println!("{}: event {event}, cycle {cycle}, {error:+.2} %", e.name);
        }
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let is_wide = arguments.first().is_some_and(|word| word == "wide");
    arguments.drain(..usize::from(is_wide));
    let campaign = if is_wide { WIDE } else { NARROW };
    match &arguments[..] {
        [show, seed, number] if show == "show" => {
            let (seed, number) = (seed.parse()?, number.parse()?);
            let (family, chip, graph) = (campaign.pair)(seed, number);
            println!("# {family}{chip:?}{graph:?}");
            for case in run(campaign, seed, number).cases {
                println!("{case:?}");
            }
            Ok(())
        }
        [whole, chip, graph] if whole == "whole" => hold(Path::new(chip), Path::new(graph)),
        [bounds, pairs, seed] if bounds == "bounds" => {
            let (pairs, seed): (usize, u64) = (pairs.parse()?, seed.parse()?);
            let list: Vec<_> = (0..pairs).into_par_iter().map(|number| below_bound(campaign, seed, number)).collect();
            let (sections, below) =
                list.iter().fold((0, 0), |sum, (sections, lines)| (sum.0 + sections, sum.1 + lines.len()));
            list.iter().flat_map(|(_, lines)| lines).for_each(|line| println!("{line}"));
            println!("{pairs} pairs of seed {seed}, {sections} sections: {below} below a bound");
            Ok(())
        }
        _ => measure(campaign, &arguments),
    }
}

/// Runs pairs until there are as many long cases as the arguments ask for.
fn measure(campaign: Campaign, arguments: &[String]) -> Result<(), Box<dyn Error>> {
    let wanted: usize = arguments.first().map_or(Ok(500), |text| text.parse())?;
    let seed: u64 = arguments.get(1).map_or(Ok(1), |text| text.parse())?;
    let directory = arguments.get(2).map(Path::new);
    let mut list: Vec<Pair> = Vec::new();
    let mut pairs = 0;
    while list.iter().flat_map(|pair| &pair.cases).filter(|case| case.cycle_cycles >= LONG).count() < wanted {
        list.par_extend((pairs..pairs + BATCH).into_par_iter().map(|number| run(campaign, seed, number)));
        pairs += BATCH;
    }
    let made_by = match directory {
        Some(directory) => format!("{wanted} {seed} {}", directory.display()),
        None => format!("{wanted} {seed}"),
    };
    let text = statistics(campaign, &made_by, pairs, &list);
    if let Some(directory) = directory {
        fs::create_dir_all(directory)?;
        let cases: Vec<&Case> = list.iter().flat_map(|pair| &pair.cases).collect();
        let mut table = csv::Writer::from_path(directory.join("cases.csv"))?;
        for case in &cases {
            table.serialize(case)?;
        }
        table.flush()?;
        plot(&directory.join("error.svg"), &(campaign.families)(), &cases)?;
        fs::write(directory.join("statistics.md"), &text)?;
    }
    println!("{text}");
    Ok(())
}
