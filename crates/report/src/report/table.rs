//! The terminal table: the runs side by side, their sections, their traffic.

use std::cmp::Reverse;

use indexmap::IndexMap;

use rdusim_graph::arch::Device;
use rdusim_graph::workload::Workload;
use rdusim_outcome::{Outcome, StopReason, TensorTraffic};

use super::comparable;
use super::describe;
use super::entries::{PhaseEntry, phases};
use super::figures::{Figures, Work};
use super::human::{bytes, clean, shorten, si, whole};
use super::section_table::{sections, stages};
use super::side::{MOST_BESIDE, Side, labels, of_mode};
use super::summary::{Compared, NARROW, STATIC, STATIC_ASSUMED, summary};
use super::text_table::{new_table, wrapped};

/// Most rows that the tensors take: beyond, the smallest are added up in one.
const MOST_ROWS: usize = 40;

/// Everything a person wants to know of the runs of a workload, as lines of text.
pub fn table(chip: &dyn Device, workload: &Workload, outcomes: &[Outcome]) -> String {
    table_of(workload, &[Side { chip, outcomes }])
}

/// The same of runs on one chip or several, side by side.
pub fn table_of(workload: &Workload, sides: &[Side<'_>]) -> String {
    let compared = Compared::new(workload, sides);
    let mut summaries = if sides.len() > MOST_BESIDE {
        let modes = sides.iter().map(|side| side.outcomes.len()).max().unwrap_or_default();
        (0..modes).map(|at| summary(&Compared::new(workload, &of_mode(sides, at)))).collect()
    } else {
        vec![summary(&compared)]
    };
    if sides.iter().any(|side| comparable::is_assumed(side.chip, "energy.static_w")) {
        for block in &mut summaries {
            *block = block.replacen(STATIC, STATIC_ASSUMED, 1);
        }
    }
    let mut blocks = vec![heading(workload, &compared.work, sides)];
    blocks.extend(summaries);
    let mut lines = Vec::new();
    for (verdict, range) in compared.verdicts() {
        lines.push(wrapped("", &verdict));
        lines.extend(range.map(|sentence| wrapped("  ", &sentence)));
    }
    blocks.push(lines.join("\n"));
    let differences = comparable::differences_of(sides);
    blocks.push(differences.iter().map(|line| wrapped("not like for like  ", line)).collect::<Vec<_>>().join("\n"));
    let mut at = 0;
    for side in sides {
        let Side { chip, outcomes } = *side;
        let figures = &compared.figures[at..at + outcomes.len()];
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
    let chips = sides.iter().zip(labels());
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
    use crate::report::fixture;
    use rdusim_outcome::BoundBy;

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
