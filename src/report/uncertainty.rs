//! Ranges as a table and lines of text.

use super::document::Document;
use super::entries::RunEntry;
use super::human::{shorten, si};
use super::text_table::{new_table, wrapped};

/// The ranges of a document as lines of text; nothing if it has none.
pub fn uncertainty_table(document: &Document) -> String {
    let Some(uncertainty) = &document.uncertainty else { return String::new() };
    let mut table = new_table(["5 to 95 %", "time", "energy"].map(str::to_owned).to_vec());
    let mut add = |chip: &str, runs: &[RunEntry]| {
        for (run, ranges) in runs.iter().filter_map(|run| Some((run, run.ranges.as_ref()?))) {
            let of = |[low, high]: [f64; 2], unit| format!("{} to {}", si(low, unit), si(high, unit));
            let name = format!("{chip}{}", run.mode);
            table.add_row(vec![name, of(ranges.time_s, "s"), of(ranges.energy_j, "J")]);
        }
    };
    let name = |name: &str| format!("{} ", shorten(name, 24));
    match &document.against {
        None => add("", &document.runs),
        Some(against) => {
            add(&name(&document.arch.name), &document.runs);
            add(&name(&against.arch.name), &against.runs);
        }
    }
    let mut lines = Vec::new();
    let ratio = |[low, high]: [f64; 2]| format!("{low:.2} to {high:.2}");
    for (before, range) in [("kbk", uncertainty.speedup), ("epilogue", uncertainty.speedup_over_epilogue)] {
        lines.extend(range.map(|range| format!("fused is {} times as fast as {before}", ratio(range))));
    }
    for (versus, against) in uncertainty.against.iter().zip(&document.against) {
        let (own, other) = (name(&document.arch.name), name(&against.arch.name));
        for (mode, &range) in &versus.speedups {
            lines.push(format!("{own}{mode} is {} times as fast as {other}{mode}", ratio(range)));
        }
        for (mode, &range) in &versus.energy_ratios {
            let open =
                if range[0] < 1.0 && range[1] > 1.0 { ": the constants do not say which takes less" } else { "" };
            lines.push(format!("{other}{mode} takes {} times the energy of {own}{mode}{open}", ratio(range)));
        }
    }
    let mut drawn = uncertainty.fields.len();
    if let Some(versus) = &uncertainty.against {
        drawn += versus.fields.len();
    }
    let refused = match uncertainty.refused {
        0 => String::new(),
        count => format!(", {count} of them no chip on which everything runs"),
    };
    let kept = match uncertainty.kept_units {
        0 => String::new(),
        count => format!(" (units, ports and banks as in the file in {count} draws, where it has no place on others)"),
    };
    lines.push(format!(
        "Ranges are of {} draws of {drawn} uncertain fields (seed {}){refused}, with the mapping held{kept}. They do not contain the \
         model's own error, which `rdusim validate` measures.",
        uncertainty.samples, uncertainty.seed
    ));
    let lines: Vec<String> = lines.iter().map(|line| wrapped("", line)).collect();
    format!("{}\n\n{}\n", table.trim_fmt(), lines.join("\n"))
}
