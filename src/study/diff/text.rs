//! The same as a table.

use std::fmt::Write;

use serde_json::Value;

use crate::diagnostics::steers;
use crate::report::{METRICS, human};

use super::difference::{Change, Difference, Figure, RunChange, SectionChange};

/// Seconds for people.
pub(super) fn seconds(value: f64) -> String {
    human::si(value, "s")
}

/// Bytes for people.
pub(super) fn bytes(value: f64) -> String {
    human::bytes(value.max(0.0) as u64)
}

impl Difference {
    /// The difference as indented JSON, with a line break at the end.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("strings and numbers always serialise");
        text.push('\n');
        text
    }

    /// The difference for people.
    pub fn to_text(&self) -> String {
        let mut text = format!("A  {}\nB  {}\n", one_line(&self.a), one_line(&self.b));
        let silent = match self.inputs_recorded {
            [true, true] => None,
            [false, true] => Some("A does not record the fields of its inputs"),
            [true, false] => Some("B does not record the fields of its inputs"),
            [false, false] => Some("Neither records the fields of its inputs"),
        };
        if let Some(silent) = silent {
            let _ =
                writeln!(text, "\n{silent}: it is of an earlier version. Only what results show of them is compared.");
        }
        let nothing = self.inputs.is_empty()
            && self.only_in_a.is_empty()
            && self.only_in_b.is_empty()
            && self
                .runs
                .iter()
                .all(|run| run.figures.values().all(|change| change.is_none()) && run.reasons.is_empty());
        if nothing {
            text.push_str("\nNothing differs.\n");
            return text;
        }
        if !self.inputs.is_empty() {
            text.push_str("\nInputs\n");
            let plain = |value: &Value| match value {
                Value::Null => "-".to_owned(),
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            let rows = self.inputs.iter().map(|i| [i.field.clone(), plain(&i.a), plain(&i.b), String::new()]);
            table(&mut text, rows.collect());
        }
        for (modes, side) in [(&self.only_in_a, "A"), (&self.only_in_b, "B")] {
            if !modes.is_empty() {
                let _ = writeln!(text, "\nOnly {side} has {}.", one_line(&modes.join(" and ")));
            }
        }
        for run in &self.runs {
            tell_run(&mut text, run);
        }
        for (of, change, [in_a, in_b]) in [
            ("kbk", self.speedup, self.speedup_range),
            ("epilogue", self.speedup_over_epilogue, self.speedup_over_epilogue_range),
        ] {
            let allowed = |range: Option<[f64; 2]>| {
                range.map_or_else(String::new, |[least, most]| format!(" ({least:.3}x to {most:.3}x)"))
            };
            if let Some(change) = change {
                let (a, b) = (change.a.real(), change.b.real());
                let _ = writeln!(
                    text,
                    "\nSpeedup of fused over {of}: {a:.3}x{} in A, {b:.3}x{} in B.",
                    allowed(in_a),
                    allowed(in_b)
                );
            }
        }
        text
    }
}

fn tell_run(text: &mut String, run: &RunChange) {
    let _ = writeln!(text, "\n{}", one_line(&run.mode));
    let rows = run
        .figures
        .iter()
        .map(|(name, change)| [name.clone(), quantity(name, change.a), quantity(name, change.b), ratio(*change)]);
    let sections = run.sections.iter().map(|section| {
        let side = |time: Option<f64>, bound: &Option<String>| match (time, bound) {
            (Some(time), Some(bound)) => format!("{} {bound}", seconds(time)),
            _ => "-".to_owned(),
        };
        let SectionChange { operators, a_time_s, b_time_s, a_bound_by, b_bound_by } = section;
        let change = a_time_s.zip(*b_time_s).map_or(String::new(), |(a, b)| ratio(Change::new(a, b)));
        [format!("section {}", operators.join("+")), side(*a_time_s, a_bound_by), side(*b_time_s, b_bound_by), change]
    });
    table(text, rows.chain(sections).collect());
    if !run.reasons.is_empty() {
        text.push_str("  Why:\n");
        for reason in &run.reasons {
            let _ = writeln!(text, "    {}", one_line(reason));
        }
    }
}

fn quantity(name: &str, figure: Figure) -> String {
    let value = figure.real();
    if let Some(metric) = METRICS.iter().find(|metric| metric.key == name) {
        metric.shown(value)
    } else if name.ends_with("_s") {
        seconds(value)
    } else if name.ends_with("_bytes") {
        bytes(value)
    } else if name.ends_with("_j") {
        human::si(value, "J")
    } else if name == "utilization" {
        human::percent(value)
    } else if let Figure::Whole(count) = figure {
        human::whole(count)
    } else {
        format!("{value:.3}")
    }
}

fn ratio(change: Change) -> String {
    match change.ratio {
        Some(_) if change.is_none() => "same".to_owned(),
        Some(ratio) => format!("{ratio:.3}x"),
        None => String::new(),
    }
}

/// A text of a result on one line: whoever wrote the file could have put line breaks into its names.
fn one_line(text: &str) -> String {
    text.replace(steers, "\u{fffd}")
}

/// Rows of a name, two values and what came of them, in columns.
fn table(text: &mut String, rows: Vec<[String; 4]>) {
    let rows: Vec<[String; 4]> = rows.into_iter().map(|row| row.map(|cell| one_line(&cell))).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths = [width(0), width(1), width(2), width(3)];
    for [name, a, b, change] in rows {
        let line = format!(
            "  {name:<w0$}  {a:>w1$}  {b:>w2$}  {change:>w3$}",
            w0 = widths[0],
            w1 = widths[1],
            w2 = widths[2],
            w3 = widths[3]
        );
        text.push_str(line.trim_end());
        text.push('\n');
    }
}
