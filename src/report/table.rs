//! The terminal table: the runs side by side, their sections, their traffic.

use std::cmp::Reverse;

use indexmap::IndexMap;

use crate::arch::Device;
use crate::outcome::{BoundBy, Outcome, StopReason, TensorTraffic};
use crate::workload::Workload;

use super::comparable;
use super::describe;
use super::document::tokens;
use super::entries::{PhaseEntry, phases};
use super::figures::{Figures, Work, quotient};
use super::gaps::{Speedup, Timed};
use super::human::{bytes, clean, intensity, percent, ratio, shorten, si, whole};
use super::metrics::{ENERGY_OF_A_TOKEN, METRICS, MetricValue, RunView, metrics_of};
use super::section_table::{sections, stages};
use super::side::{Side, named};
use super::text_table::{new_table, wrapped};

/// More runs side by side have two lines for what bounds them: one would be too wide.
const MOST_WIDE_RUNS: usize = 2;

/// Columns of the name of a chip or of a bound over or among the figures of a run.
const NARROW: usize = 15;

/// Most rows that the tensors take: beyond, the smallest are added up in one.
const MOST_ROWS: usize = 40;

/// Everything a person wants to know of the runs of a workload, as lines of text.
pub fn table(chip: &dyn Device, workload: &Workload, outcomes: &[Outcome]) -> String {
    table_of(workload, &[Side { chip, outcomes }])
}

/// The same of runs on one chip or several, side by side.
pub fn table_of(workload: &Workload, sides: &[Side<'_>]) -> String {
    let work = Work::of(workload);
    let runs = named(sides);
    let figures: Vec<Figures> = runs.iter().map(|(_, chip, outcome)| Figures::new(*chip, &work, outcome)).collect();
    let view = |(of, figures)| {
        let (_, _, outcome): &(String, &dyn Device, &Outcome) = of;
        metrics_of(&RunView { figures, outcome, tokens: tokens(workload) })
    };
    let metrics: Vec<_> = runs.iter().zip(&figures).map(view).collect();
    let names: Vec<&str> = runs.iter().map(|(name, ..)| name.as_str()).collect();
    let headers: Vec<String> = if sides.len() > 1 {
        runs.iter().map(|(_, chip, run)| format!("{}\n{}", shorten(chip.name(), NARROW), run.mode.name())).collect()
    } else {
        names.iter().map(|&name| name.to_owned()).collect()
    };
    // The last run against each before it; of two chips, each mode on the first against the same mode on the second.
    let is_compared = sides.len() == 1 || runs.len() == 2;
    let mut blocks = vec![
        heading(workload, &work, sides),
        summary(&work, (&headers, tokens(workload)), &figures, &metrics, is_compared),
    ];
    if sides.iter().any(|side| comparable::is_assumed(side.chip, "energy.static_w")) {
        blocks[1] = blocks[1].replacen(STATIC, STATIC_ASSUMED, 1);
    }
    let pairs: Vec<(usize, usize)> = if is_compared {
        (1..runs.len()).map(|before| (before - 1, runs.len() - 1)).collect()
    } else {
        let split = sides.first().map_or(0, |side| side.outcomes.len());
        let same = |at: usize| (split..runs.len()).find(|&other| runs[other].2.mode == runs[at].2.mode);
        (0..split).filter_map(|at| Some((same(at)?, at))).collect()
    };
    let mut lines = Vec::new();
    for &(old, new) in &pairs {
        let [before, after] = [old, new].map(|run| Timed::new(names[run], &figures[run]));
        let speedup = Speedup { before, after };
        lines.push(wrapped("", &verdict(&speedup, &figures[old], &figures[new])));
        lines.extend(speedup.sentence().map(|sentence| wrapped("  ", &sentence)));
    }
    blocks.push(lines.join("\n"));
    let differences = comparable::differences_of(sides);
    blocks.push(differences.iter().map(|line| wrapped("not like for like  ", line)).collect::<Vec<_>>().join("\n"));
    let mut at = 0;
    for side in sides {
        let Side { chip, outcomes } = *side;
        let figures = &figures[at..at + outcomes.len()];
        at += outcomes.len();
        if sides.len() > 1 {
            blocks.push(format!("on {}", shorten(chip.name(), 60)));
        }
        blocks.push(steps(chip, outcomes));
        blocks.push(sections(chip, workload, outcomes));
        blocks.push(stages(chip, outcomes));
        blocks.push(traffic(outcomes, figures));
        blocks.push(remarks(outcomes));
    }
    blocks.retain(|block| !block.is_empty());
    let mut text = blocks.join("\n\n");
    text.push('\n');
    text
}

/// The parts of a training step; nothing for other workloads.
fn steps(chip: &dyn Device, outcomes: &[Outcome]) -> String {
    let mut rows: Vec<Vec<String>> = Vec::new();
    let parts: Vec<_> = outcomes.iter().filter_map(|outcome| phases(chip, outcome)).collect();
    for name in parts.first().into_iter().flat_map(|first| first.keys().copied()) {
        let time = |part: &IndexMap<&'static str, _>| {
            part.get(name)
                .map_or(String::new(), |p: &PhaseEntry| format!("{}, {}", si(p.time_s, "s"), bytes(p.off_chip_bytes)))
        };
        rows.push(std::iter::once(name.to_owned()).chain(parts.iter().map(time)).collect());
    }
    if rows.is_empty() {
        return String::new();
    }
    let mut header = vec![String::new()];
    header.extend(outcomes.iter().map(|outcome| outcome.mode.name().to_owned()));
    let mut table = new_table(header);
    for row in rows {
        table.add_row(row);
    }
    table.trim_fmt()
}

fn heading(workload: &Workload, work: &Work, sides: &[Side<'_>]) -> String {
    let chips = sides.iter().zip(["chip      ", "against   "]);
    let mut lines: Vec<String> =
        chips.map(|(side, label)| wrapped(label, &describe::chip_at(side.chip, work.dtype))).collect();
    lines.push(wrapped("workload  ", &describe::workload_as(workload, work)));
    let outcomes = sides.iter().flat_map(|side| side.outcomes);
    let mut fidelities: Vec<&str> = outcomes.map(|outcome| outcome.fidelity.name()).collect();
    fidelities.dedup();
    for side in sides {
        if let Some(area) = comparable::area(side.chip) {
            let of = if sides.len() > 1 { format!("{}: ", shorten(side.chip.name(), NARROW)) } else { String::new() };
            lines.push(wrapped("area      ", &format!("{of}{area}")));
        }
    }
    if !fidelities.is_empty() {
        lines.push(format!("fidelity  {}", fidelities.join(", ")));
    }
    for vendor in sides.iter().filter_map(|side| side.chip.limits()) {
        lines.push(wrapped("mapping   ", &describe::limits(vendor)));
    }
    lines.join("\n")
}

/// A row of the summary: its label, how a run shows it, and what of it the runs are compared by.
struct Row(&'static str, fn(&Figures) -> String, Option<fn(&Figures) -> f64>);

/// In lines below each other where there are many runs.
const BOUND_BY: &str = "bound by";

/// Shown for sparse workloads only.
const DENSE_EQUIVALENT: &str = "  dense equivalent";

/// Shown under vendor limits only.
const SERIAL: &str = "  if loads are serial";

/// Multiply-accumulates on elements that are not stored; shown where there are any.
const ZEROS: &str = "    on zeros";

/// Parts of the energy off chip; shown where the chip files tell them.
const ITEMS: [&str; 3] = ["    devices", "    PHYs", "    controllers"];

const STATIC: &str = "  static         ";
const STATIC_ASSUMED: &str = "  static, assumed";

/// How far the mapping may be from the best; shown where it is known.
const GAP: &str = "  gap";

const SUMMARY: [Row; 28] = [
    Row("time", |f| si(f.time_s, "s"), Some(|f| f.time_s)),
    Row(SERIAL, |f| f.serial_s.map_or_else(String::new, |serial| si(serial, "s")), None),
    Row("cycles", |f| whole(f.cycles), None),
    Row("  lower bound", |f| whole(f.bound_cycles), None),
    Row("  bound / cycles", |f| percent(f.bound_share), None),
    Row(GAP, |f| f.gap.map_or_else(String::new, percent), None),
    Row(BOUND_BY, |f| bound_by(f).join(", "), None),
    Row("launches", |f| whole(f.launches), Some(|f| f.launches as f64)),
    Row("executed", |f| si(f.tflops_executed * 1e12, "FLOP/s"), None),
    Row("  of peak", |f| percent(f.utilization), None),
    Row(DENSE_EQUIVALENT, |f| si(f.tflops_dense_equivalent * 1e12, "FLOP/s"), None),
    Row("op intensity", |f| intensity(f.op_intensity), None),
    Row("off-chip traffic", |f| bytes(f.traffic.off_chip_bytes()), Some(|f| f.traffic.off_chip_bytes() as f64)),
    Row("  read", |f| bytes(f.traffic.off_chip_read_bytes), Some(|f| f.traffic.off_chip_read_bytes as f64)),
    Row("  written", |f| bytes(f.traffic.off_chip_write_bytes), Some(|f| f.traffic.off_chip_write_bytes as f64)),
    Row("network traffic", |f| bytes(f.traffic.network_bytes), Some(|f| f.traffic.network_bytes as f64)),
    Row("SRAM read", |f| bytes(f.traffic.sram_read_bytes), Some(|f| f.traffic.sram_read_bytes as f64)),
    Row("SRAM written", |f| bytes(f.traffic.sram_write_bytes), Some(|f| f.traffic.sram_write_bytes as f64)),
    Row("energy", |f| si(f.energy.total(), "J"), Some(|f| f.energy.total())),
    Row("  compute", |f| si(f.energy.compute, "J"), Some(|f| f.energy.compute)),
    Row(ZEROS, |f| si(f.energy.zeros, "J"), Some(|f| f.energy.zeros)),
    Row("  SRAM", |f| si(f.energy.sram, "J"), Some(|f| f.energy.sram)),
    Row("  network", |f| si(f.energy.network, "J"), Some(|f| f.energy.network)),
    Row("  off chip", |f| si(f.energy.off_chip, "J"), Some(|f| f.energy.off_chip)),
    Row(ITEMS[0], |f| si(f.energy.off_chip_items[0], "J"), Some(|f| f.energy.off_chip_items[0])),
    Row(ITEMS[1], |f| si(f.energy.off_chip_items[1], "J"), Some(|f| f.energy.off_chip_items[1])),
    Row(ITEMS[2], |f| si(f.energy.off_chip_items[2], "J"), Some(|f| f.energy.off_chip_items[2])),
    Row("  static", |f| si(f.energy.static_, "J"), Some(|f| f.energy.static_)),
];

/// What users of a language model look at first: tokens a second, and the energy of one.
fn token_rows(tokens: u64, figures: &[Figures], is_compared: bool) -> [Vec<String>; 2] {
    let row = |label: &str, of: &dyn Fn(&Figures) -> f64, show: &dyn Fn(f64) -> String| {
        let values: Vec<f64> = figures.iter().map(of).collect();
        let mut cells = vec![label.to_owned()];
        cells.extend(values.iter().map(|&value| show(value)));
        if let Some((&last, others)) = values.split_last().filter(|_| is_compared) {
            cells.extend(others.iter().map(|&value| ratio(value, last)));
        }
        cells
    };
    let rate = |value: f64| if value < 100.0 { si(value, "").trim_end().to_owned() } else { whole(value as u64) };
    [
        row("tokens / s", &|f| quotient(tokens as f64, f.time_s), &rate),
        row(ENERGY_OF_A_TOKEN, &|f| quotient(f.energy.total(), tokens as f64), &|j| si(j, "J")),
    ]
}

/// Figures of the runs side by side; if they are compared, also those of each run over those of the last.
fn summary(
    work: &Work,
    (names, tokens): (&[String], Option<u64>),
    figures: &[Figures],
    metrics: &[IndexMap<&'static str, MetricValue>],
    is_compared: bool,
) -> String {
    let mut header = vec![String::new()];
    header.extend(names.iter().cloned());
    let last = names.iter().zip(figures).next_back().filter(|_| is_compared);
    let others = || names.iter().zip(figures).take(names.len().saturating_sub(1));
    if let Some((last, _)) = last {
        let over = if last.contains('\n') { "\n/ " } else { " / " };
        header.extend(others().map(|(name, _)| format!("{name}{over}{last}")));
    }
    let mut table = new_table(header);
    if let Some(tokens) = tokens {
        for cells in token_rows(tokens, figures, is_compared) {
            table.add_row(cells);
        }
    }
    let sparse = work.executed_flops != work.dense_flops;
    let limited = figures.iter().any(|run| run.serial_s.is_some());
    let multiplies_zeros = figures.iter().any(|run| run.energy.zeros > 0.0);
    let itemised = figures.iter().any(|run| run.energy.off_chip_items.iter().any(|&joules| joules > 0.0));
    let has_gaps = figures.iter().any(|run| run.gap.is_some());
    let shown = |row: &Row| {
        (sparse || row.0 != DENSE_EQUIVALENT)
            && (limited || row.0 != SERIAL)
            && (multiplies_zeros || row.0 != ZEROS)
            && (itemised || !ITEMS.contains(&row.0))
            && (has_gaps || row.0 != GAP)
    };
    for Row(label, show, measure) in SUMMARY.into_iter().filter(shown) {
        let mut cells = vec![label.to_owned()];
        if label == BOUND_BY && figures.len() > MOST_WIDE_RUNS {
            cells.extend(figures.iter().map(|run| bound_by(run).join("\n")));
        } else {
            cells.extend(figures.iter().map(show));
        }
        if let (Some((_, last)), Some(measure)) = (last, measure) {
            cells.extend(others().map(|(_, run)| ratio(measure(run), measure(last))));
        }
        table.add_row(cells);
    }
    for metric in METRICS.iter().filter(|metric| metric.label != ENERGY_OF_A_TOKEN) {
        let values: Vec<Option<f64>> =
            metrics.iter().map(|run| run.get(metric.key).map(|value| value.number())).collect();
        if values.iter().all(Option::is_none) {
            continue;
        }
        let mut cells = vec![metric.label.to_owned()];
        cells.extend(values.iter().map(|value| value.map_or_else(String::new, |value| metric.shown(value))));
        if let Some((last, others)) = values.split_last().filter(|_| is_compared) {
            cells.extend(others.iter().map(|value| value.zip(*last).map_or_else(String::new, |(a, b)| ratio(a, b))));
        }
        table.add_row(cells);
    }
    table.trim_fmt()
}

/// The one or two resources that bound most of a run's cycles.
fn bound_by(figures: &Figures) -> Vec<String> {
    match figures.bound_by.as_slice() {
        [] => vec!["-".to_owned()],
        [(only, _)] => vec![shorten(&only.to_string(), NARROW)],
        several => {
            let share = |part: u64| 100.0 * quotient(part as f64, figures.cycles as f64);
            let named =
                |(bound, part): &(BoundBy, u64)| format!("{} {:.0} %", shorten(&bound.to_string(), 10), share(*part));
            // The largest has at least a sixteenth of all; a second that rounds to nothing says nothing.
            several.iter().take(2).filter(|(_, part)| share(*part) >= 0.5).map(named).collect()
        }
    }
}

/// The second run against the first in one sentence, with the range that the gaps of both allow.
fn verdict(speedup: &Speedup<'_>, old: &Figures, new: &Figures) -> String {
    let (first, second) = (speedup.before.name, speedup.after.name);
    let (before, after) = (old.traffic.off_chip_bytes() as f64, new.traffic.off_chip_bytes() as f64);
    let traffic = if before <= 0.0 && after <= 0.0 {
        "no off-chip traffic in either".to_owned()
    } else if after <= 0.0 {
        "no off-chip traffic any more".to_owned()
    } else if before <= 0.0 {
        format!("off-chip traffic, of which {first} has none")
    } else if before >= after {
        format!("{} less off-chip traffic", ratio(before, after))
    } else {
        format!("{} more off-chip traffic", ratio(after, before))
    };
    let range = speedup.words().map_or_else(String::new, |range| format!(" ({range})"));
    format!("{second} is {}{range} as fast as {first}, with {traffic}", ratio(old.time_s, new.time_s))
}

fn traffic(outcomes: &[Outcome], figures: &[Figures]) -> String {
    let mut header = vec!["off-chip traffic".to_owned()];
    let mut tensors: IndexMap<&str, Vec<TensorTraffic>> = IndexMap::new();
    for (run, (outcome, figures)) in outcomes.iter().zip(figures).enumerate() {
        header.push(format!("{} read", outcome.mode.name()));
        header.push("written".to_owned());
        for (tensor, bytes) in &figures.traffic.by_tensor {
            tensors.entry(tensor).or_insert_with(|| vec![TensorTraffic::default(); outcomes.len()])[run] = *bytes;
        }
    }
    let mut table = new_table(header);
    let shown = |count: u64| if count == 0 { "-".to_owned() } else { bytes(count) };
    let others = smallest(&mut tensors, outcomes.len());
    let named = tensors.into_iter().map(|(tensor, runs)| (shorten(tensor, 48), runs));
    for (name, runs) in named.chain(others) {
        let mut cells = vec![name];
        cells.extend(runs.iter().flat_map(|t| [shown(t.off_chip_read_bytes), shown(t.off_chip_write_bytes)]));
        table.add_row(cells);
    }
    for (label, of) in [
        ("beyond the payload", (|f| f.traffic.waste_bytes) as fn(&Figures) -> u64),
        ("programs", |f| f.traffic.program_bytes),
    ] {
        if figures.iter().any(|f| of(f) > 0) {
            let mut cells = vec![format!("({label})")];
            cells.extend(figures.iter().flat_map(|f| [shown(of(f)), String::new()]));
            table.add_row(cells);
        }
    }
    if table.is_empty() { String::new() } else { table.trim_fmt() }
}

/// Takes the smallest tensors out of more than [`MOST_ROWS`], and adds them up.
fn smallest(tensors: &mut IndexMap<&str, Vec<TensorTraffic>>, runs: usize) -> Option<(String, Vec<TensorTraffic>)> {
    if tensors.len() <= MOST_ROWS {
        return None;
    }
    let bytes = |runs: &[TensorTraffic]| runs.iter().map(|t| t.off_chip_read_bytes + t.off_chip_write_bytes).sum();
    let mut order: Vec<(u64, usize)> = tensors.values().map(|runs| bytes(runs)).zip(0..).collect();
    order.sort_by_key(|&(bytes, at)| (Reverse(bytes), at));
    let shown: Vec<usize> = order[..MOST_ROWS - 1].iter().map(|&(_, at)| at).collect();
    let mut sums = vec![TensorTraffic::default(); runs];
    let count = tensors.len() - shown.len();
    let mut at = 0;
    tensors.retain(|_, runs| {
        let keeps = shown.contains(&at);
        at += 1;
        if !keeps {
            for (sum, run) in sums.iter_mut().zip(runs) {
                sum.off_chip_read_bytes += run.off_chip_read_bytes;
                sum.off_chip_write_bytes += run.off_chip_write_bytes;
            }
        }
        keeps
    });
    Some((format!("({} smaller ones)", whole(count as u64)), sums))
}

fn remarks(outcomes: &[Outcome]) -> String {
    let mut lines = Vec::new();
    for outcome in outcomes {
        match &outcome.stop {
            StopReason::Drained => {}
            StopReason::Deadlock(blocked) => {
                lines.push(format!("{}: DEADLOCK, the figures above are of the part that ran", outcome.mode.name()));
                lines.extend(blocked.iter().map(|line| format!("  {}", clean(line))));
            }
            StopReason::Limit(reached) => lines.push(format!("{}: {}", outcome.mode.name(), clean(reached))),
        }
        lines.extend(outcome.notes.iter().map(|note| format!("{}: {}", outcome.mode.name(), clean(note))));
    }
    lines.iter().map(|line| wrapped("note  ", line)).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::super::text_table::WIDTH;
    use super::*;
    use crate::outcome::BoundBy;
    use crate::report::fixture;

    #[test]
    fn compare_reads_as_agreed() {
        insta::assert_snapshot!(table(&fixture::sn10(), &fixture::ffn(Some(0.125)), &fixture::outcomes()));
    }

    #[test]
    fn one_run_reads_as_agreed() {
        insta::assert_snapshot!(table(&fixture::sn10(), &fixture::ffn(None), &fixture::outcomes()[2..]));
    }

    #[test]
    fn no_line_is_too_wide_and_none_ends_in_blanks() {
        let long = |i: u64| format!("decoder.layers.{i}.self_attention.output_projection");
        let endless = |i: u64| long(i).repeat(9);
        let (mut chip, mut workload) = (fixture::sn10(), fixture::ffn(None));
        chip.name = endless(1);
        workload.name = "a name of many words ".repeat(20);
        let mut noted = fixture::outcomes();
        noted[0].notes = vec![endless(2), workload.name.clone()];
        for section in &mut noted[0].sections {
            section.cycles = u64::MAX / 9;
            section.bound_by = BoundBy::Memory(endless(4));
            section.stages[0].mapping = endless(3);
        }
        for outcomes in [
            fixture::outcomes(),
            fixture::many_sections(30, &long),
            fixture::many_sections(100, &endless),
            vec![fixture::empty_outcome()],
            noted,
        ] {
            // Two chips, in whose figures numbers have the digits that numbers have.
            let beside = [Side { chip: &chip, outcomes: &outcomes }; 2];
            let is_usual = outcomes.iter().flat_map(|run| &run.sections).all(|section| section.cycles < 1 << 40);
            let sides = if is_usual { &beside[..] } else { &beside[..1] };
            let texts = [table(&chip, &workload, &outcomes), table_of(&workload, sides)];
            for line in texts.iter().flat_map(|text| text.lines()) {
                assert!(line.chars().count() <= usize::from(WIDTH), "{line}");
                assert_eq!(line, line.trim_end());
            }
        }
    }

    #[test]
    fn names_are_elided_and_never_wrapped() {
        let name = |i: u64| format!("decoder.layers.{i}.self_attention.output_projection");
        let text = table(&fixture::sn10(), &fixture::ffn(None), &fixture::many_sections(9, &name));
        assert!(text.contains("kbk decoder.layers…ut_projection"), "{text}");
        assert!(text.lines().all(|line| line.is_empty() || !line.trim().chars().all(char::is_alphabetic)), "{text}");
    }

    #[test]
    fn of_many_sections_the_costliest_are_shown_and_the_others_added_up() {
        let outcomes = fixture::many_sections(100, &|i| format!("op{i}"));
        let text = table(&fixture::sn10(), &fixture::ffn(None), &outcomes);
        let kbk = &outcomes[0];
        let others: u64 = kbk.sections[..90].iter().map(|section| section.cycles).sum();
        let rest = text.lines().find(|line| line.starts_with("kbk (90 more: other) "));
        assert!(rest.is_some_and(|line| line.contains(&format!(" {} ", whole(others)))), "{text}");
        assert!(!text.contains("kbk op89 ") && text.contains("kbk op90 ") && text.contains("kbk op99 "), "{text}");
        assert!(text.contains("(62 smaller ones)"), "{text}");
        assert!(text.lines().count() < 140, "{}", text.lines().count());
    }

    #[test]
    fn the_rest_of_many_sections_is_told_by_kind_and_repetitions_by_their_number() {
        let names = ["up", "gelu", "down"];
        let mut outcomes = fixture::many_sections(24, &|i| names[i as usize % 3].to_owned());
        outcomes.truncate(1);
        outcomes[0].sections[23].repeat = 32;
        let text = table(&fixture::sn10(), &fixture::ffn(None), &outcomes);
        assert!(text.contains("kbk (9 more: gemm) ") && text.contains("kbk (5 more: gelu) "), "{text}");
        assert!(text.contains("kbk down x32 "), "{text}");
    }

    #[test]
    fn several_bounds_are_shared_out() {
        let section = |cycles, bound| fixture::section("s", &["s"], cycles, bound, &[]);
        let sections =
            vec![section(970_000, BoundBy::Compute), section(2_970_000, BoundBy::Fill), section(0, BoundBy::Launch)];
        let outcome = fixture::outcome(crate::mode::Mode::Kbk, 0, sections);
        let figures = Figures::new(&fixture::sn10(), &Work::of(&fixture::ffn(None)), &outcome);
        assert_eq!(bound_by(&figures), ["fill 74 %", "compute 25 %"]);
    }

    #[test]
    fn more_traffic_is_not_called_less() {
        let mut outcomes = fixture::outcomes();
        outcomes.swap(0, 2);
        let text = table(&fixture::sn10(), &fixture::ffn(None), &outcomes);
        assert!(
            text.contains("is 0.58x (0.57x to 0.58x) as fast as fused, with 1.73x more off-chip traffic"),
            "{text}"
        );
    }

    #[test]
    fn escape_codes_in_names_do_not_reach_the_terminal() {
        let name = |i: u64| format!("\u{1b}[2J{i}\n");
        let text = table(&fixture::sn10(), &fixture::ffn(None), &fixture::many_sections(3, &name));
        assert!(!text.contains('\u{1b}'));
    }

    #[test]
    fn a_deadlock_is_told() {
        let stop = StopReason::Deadlock(vec!["up waits for a credit of h (4 of 4 tokens)".into()]);
        let outcomes = [Outcome { stop, ..fixture::outcomes().remove(0) }];
        let text = table(&fixture::sn10(), &fixture::ffn(None), &outcomes);
        assert!(text.contains("kbk: DEADLOCK") && text.contains("up waits for a credit of h"), "{text}");
    }
}
