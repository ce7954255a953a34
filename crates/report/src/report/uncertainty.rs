//! Ranges as a table and lines of text.

use super::document::Document;
use super::entries::RunEntry;
use super::human::{shorten, si};
use super::ranges::{RunRanges, UncertaintyEntry};
use super::text_table::{new_table, wrapped};

/// The ranges of a document as lines of text; nothing if it has none.
pub fn uncertainty_table(document: &Document) -> String {
    let Some(uncertainty) = &document.uncertainty else { return String::new() };
    let mut table = new_table(["5 to 95 %", "time", "energy"].map(str::to_owned).to_vec());
    for Range { name, ranges } in ranges(document) {
        let of = |[low, high]: [f64; 2], unit| format!("{} to {}", si(low, unit), si(high, unit));
        table.add_row(vec![name, of(ranges.time_s, "s"), of(ranges.energy_j, "J")]);
    }
    let lines = speedups(document).into_iter().chain(energies(document)).chain([drawn(uncertainty)]);
    let lines: Vec<String> = lines.map(|line| wrapped("", &line)).collect();
    format!("{}\n\n{}\n", table.trim_fmt(), lines.join("\n"))
}

/// The ranges in a few lines, of times alone, and what they are ranges of; nothing if there are none.
pub fn uncertainty_in_short(document: &Document) -> Option<(Vec<String>, String)> {
    let uncertainty = document.uncertainty.as_ref()?;
    let of = |Range { name, ranges }: Range<'_>| {
        format!("{name} {} to {}", si(ranges.time_s[0], "s"), si(ranges.time_s[1], "s"))
    };
    let times: Vec<String> = ranges(document).into_iter().map(of).collect();
    let mut lines = vec![format!("5 to 95 %: {}", times.join(", "))];
    lines.extend(speedups(document).into_iter().take(MOST_SPEEDUPS).map(|line| format!("  {line}")));
    Some((lines, drawn(uncertainty)))
}

/// Ratios that a short answer has at most: one of every mode.
const MOST_SPEEDUPS: usize = 3;

/// A run and its ranges.
struct Range<'a> {
    name: String,
    ranges: &'a RunRanges,
}

fn ranges(document: &Document) -> Vec<Range<'_>> {
    let mut list = Vec::new();
    let others = &document.against.0;
    let first = if others.is_empty() { String::new() } else { named(&document.arch.name) };
    let mut sides: Vec<(String, &[RunEntry])> = vec![(first, &document.runs)];
    sides.extend(others.iter().map(|other| (named(&other.arch.name), &other.runs[..])));
    for (chip, runs) in sides {
        let of = |run| {
            let RunEntry { mode, ranges, .. }: &RunEntry = run;
            Some(Range { name: format!("{chip}{mode}"), ranges: ranges.as_ref()? })
        };
        list.extend(runs.iter().filter_map(of));
    }
    list
}

/// A chip's name before that of a run.
fn named(name: &str) -> String {
    format!("{} ", shorten(name, 24))
}

fn ratio([low, high]: [f64; 2]) -> String {
    format!("{low:.2} to {high:.2}")
}

/// Which run is how many times as fast as which.
fn speedups(document: &Document) -> Vec<String> {
    let Some(uncertainty) = &document.uncertainty else { return Vec::new() };
    let mut lines = Vec::new();
    for (before, range) in [("kbk", uncertainty.speedup), ("epilogue", uncertainty.speedup_over_epilogue)] {
        lines.extend(range.map(|range| format!("fused is {} times as fast as {before}", ratio(range))));
    }
    for (versus, against) in uncertainty.against.0.iter().zip(&document.against.0) {
        let (own, other) = (named(&document.arch.name), named(&against.arch.name));
        for (mode, &range) in &versus.speedups {
            lines.push(format!("{own}{mode} is {} times as fast as {other}{mode}", ratio(range)));
        }
    }
    lines
}

/// Which chip takes how many times the energy of the other.
fn energies(document: &Document) -> Vec<String> {
    let versus = document.uncertainty.iter().flat_map(|uncertainty| &uncertainty.against.0);
    let mut lines = Vec::new();
    for (versus, against) in versus.zip(&document.against.0) {
        let (own, other) = (named(&document.arch.name), named(&against.arch.name));
        for (mode, &range) in &versus.energy_ratios {
            let open =
                if range[0] < 1.0 && range[1] > 1.0 { ": the constants do not say which takes less" } else { "" };
            lines.push(format!("{other}{mode} takes {} times the energy of {own}{mode}{open}", ratio(range)));
        }
    }
    lines
}

/// What ranges are ranges of.
fn drawn(uncertainty: &UncertaintyEntry) -> String {
    let of_others: usize = uncertainty.against.0.iter().map(|versus| versus.fields.len()).sum();
    let drawn = uncertainty.fields.len() + of_others;
    let refused = match uncertainty.refused {
        0 => String::new(),
        count => format!(", {count} of them no chip on which everything runs"),
    };
    let kept = match uncertainty.kept_units {
        0 => String::new(),
        count => format!(" (in {count} draws some units, ports or banks are the file's, as it has no place on others)"),
    };
    format!(
        "Ranges are of {} draws of {drawn} uncertain fields (seed {}){refused}, with the mapping held{kept}. They do not contain the \
         model's own error, which `rdusim validate` measures.",
        uncertainty.samples, uncertainty.seed
    )
}
