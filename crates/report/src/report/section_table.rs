//! Tables of the sections of runs and of their stages: all of a few, of many the costliest and, by the kinds of their
//! operators, where the rest is.

use std::cmp::Reverse;

use indexmap::IndexMap;

use rdusim_graph::arch::Device;
use rdusim_graph::workload::Workload;
use rdusim_outcome::{Outcome, SectionOutcome};

use super::figures::quotient;
use super::human::{bytes, clean, percent, shorten, whole};
use super::text_table::{WIDTH, align_left, new_table};

/// Columns of a section's name with its run's before it, or of a stage's.
const NAME: usize = 32;

/// A run of more sections than this shows the [`COSTLIEST`] of them.
const MOST_SECTIONS: usize = 20;

/// Sections of a run that are shown of many.
const COSTLIEST: usize = 10;

/// Most kinds of sections that the rest is divided into.
const MOST_KINDS: usize = 5;

/// The sections of a run that are shown, and the shorter ones that are not: in order, or of many the costliest first.
fn longest(outcome: &Outcome) -> (Vec<&SectionOutcome>, Vec<&SectionOutcome>) {
    let all = &outcome.sections;
    if all.len() <= MOST_SECTIONS {
        return (all.iter().collect(), Vec::new());
    }
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by_key(|&at| (Reverse(all[at].cycles), at));
    let (shown, others) = order.split_at(COSTLIEST);
    (shown.iter().map(|&at| &all[at]).collect(), others.iter().map(|&at| &all[at]).collect())
}

/// Sections that are not shown, by the kinds of their operators, the costliest first; the last few are one.
fn rest<'a>(workload: &Workload, others: &[&'a SectionOutcome]) -> Vec<(String, Vec<&'a SectionOutcome>)> {
    let kind_of: IndexMap<&str, &str> =
        workload.operators.iter().map(|operator| (operator.name.as_str(), operator.kind.name())).collect();
    let mut groups: IndexMap<String, Vec<&SectionOutcome>> = IndexMap::new();
    for &section in others {
        let mut kinds: Vec<&str> = Vec::new();
        for kind in section.operators.iter().filter_map(|name| kind_of.get(name.as_str())) {
            if !kinds.contains(kind) {
                kinds.push(kind);
            }
        }
        groups.entry(if kinds.is_empty() { "other".to_owned() } else { kinds.join("+") }).or_default().push(section);
    }
    let cycles = |sections: &[&SectionOutcome]| sections.iter().map(|section| section.cycles).sum::<u64>();
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(_, sections)| Reverse(cycles(sections)));
    if groups.len() > MOST_KINDS {
        let last: Vec<_> = groups.drain(MOST_KINDS - 1..).flat_map(|(_, sections)| sections).collect();
        groups.push(("other kinds".to_owned(), last));
    }
    groups
}

/// The sections of every run.
pub(super) fn sections(chip: &dyn Device, workload: &Workload, outcomes: &[Outcome]) -> String {
    let units = chip.unit_names();
    let memory = units.memory.unwrap_or("PMUs");
    let header =
        ["section", "cycles", "launch", "bound by", units.compute, memory, "SRAM peak", "bank loss", "off chip"];
    // A GPU has no scratchpads that a section fills.
    let of_memory = |text: String| if units.memory.is_some() { text } else { "-".to_owned() };
    let mut table = new_table(header.map(str::to_owned).to_vec());
    align_left(&mut table, 3);
    for outcome in outcomes {
        let (shown, others) = longest(outcome);
        for section in shown {
            table.add_row(vec![
                section_name(outcome, section),
                whole(section.cycles),
                whole(section.launch_cycles),
                shorten(&section.bound_by.to_string(), 12),
                whole(section.pcus),
                of_memory(whole(section.pmus)),
                of_memory(bytes(section.sram_peak_bytes)),
                of_memory(bytes(section.sram_bank_loss_bytes)),
                bytes(section.traffic.off_chip_bytes()),
            ]);
        }
        for (kinds, sections) in rest(workload, &others) {
            let sum = |of: fn(&SectionOutcome) -> u64| sections.iter().map(|section| of(section)).sum();
            let label = format!("{} ({} more: {kinds})", outcome.mode.name(), whole(sections.len() as u64));
            let mut cells = vec![shorten(&label, NAME), whole(sum(|s| s.cycles)), whole(sum(|s| s.launch_cycles))];
            cells.extend(std::iter::repeat_n(String::new(), 5));
            cells.push(bytes(sum(|s| s.traffic.off_chip_bytes())));
            table.add_row(cells);
        }
    }
    if table.is_empty() { String::new() } else { table.trim_fmt() }
}

/// The stages of the sections that are shown.
pub(super) fn stages(chip: &dyn Device, outcomes: &[Outcome]) -> String {
    let header = ["stage", chip.unit_names().compute, "busy", "balance", "mapping"];
    let mut table = new_table(header.map(str::to_owned).to_vec());
    align_left(&mut table, 4);
    if let Some(mapping) = table.column_mut(4) {
        mapping.remove_constraint();
    }
    for outcome in outcomes {
        for section in longest(outcome).0 {
            // A section of one stage is that stage; of several, they stand below it.
            let name = section_name(outcome, section);
            if section.stages.len() > 1 {
                table.add_row(vec![name.clone()]);
            }
            for stage in &section.stages {
                table.add_row(vec![
                    if section.stages.len() > 1 {
                        format!("  {}", shorten(&stage.operators.join("+"), NAME - 2))
                    } else {
                        name.clone()
                    },
                    whole(stage.pcus),
                    percent(quotient(stage.busiest_cycles as f64, section.cycles as f64)),
                    percent(quotient(stage.mean_cycles, stage.busiest_cycles as f64)),
                    phrases(&stage.mapping),
                ]);
            }
        }
    }
    if table.is_empty() {
        return String::new();
    }
    format!(
        "{}\nbusy: cycles of the stage's busiest unit over the section's; balance: its mean unit over its busiest",
        table.trim_fmt()
    )
}

/// A mapping's text, broken between phrases where one line could be too long.
fn phrases(mapping: &str) -> String {
    // Beside the longest name and the numbers.
    const ROOM: usize = WIDTH as usize - NAME - 32;
    let text = clean(mapping);
    if text.chars().count() > ROOM { text.replace("; ", ";\n") } else { text.into_owned() }
}

/// A section's name behind its run's, and how often it runs.
fn section_name(outcome: &Outcome, section: &SectionOutcome) -> String {
    let mode = outcome.mode.name();
    let times = if section.repeat > 1 { format!(" x{}", section.repeat) } else { String::new() };
    format!("{mode} {}{times}", shorten(&section.name, NAME.saturating_sub(mode.len() + 1 + times.len())))
}
