//! A verification as text, and its file.

use super::human::{count, shorten, whole};
use super::text_table::wrapped;
use super::write::File;
use rdusim_verify::{Deviation, RetargetedSection, Retargeting, RunVerdict, Verdict};

/// Columns of a name.
const NAME: usize = 40;

/// What was verified, and the number of each run that is farthest off.
pub fn verify_table(verdict: &Verdict) -> String {
    let mut lines = vec![
        wrapped("chip      ", &shorten(&verdict.arch, NAME)),
        wrapped("workload  ", &format!("{}, {} FLOP", shorten(&verdict.workload, NAME), count(verdict.flops))),
    ];
    if let Some(scaling) = &verdict.scaled {
        let changed = scaling.dims.iter().filter(|dim| dim.from != dim.to);
        let dims: Vec<String> =
            changed.map(|d| format!("{} {} (of {})", shorten(&d.name, NAME), whole(d.to), whole(d.from))).collect();
        lines.push(wrapped("smaller   ", &format!("{}, below {} FLOP", dims.join(", "), count(scaling.max_flops))));
    }
    for run in &verdict.runs {
        lines.push(String::new());
        lines.extend(of_run(run));
    }
    if !verdict.notes.is_empty() {
        lines.push(String::new());
        lines.extend(verdict.notes.iter().map(|note| wrapped("note      ", note)));
    }
    lines.push(String::new());
    lines.push(if verdict.passed { "verified" } else { "NOT verified" }.to_owned());
    let mut text = lines.join("\n");
    text.push('\n');
    text
}

fn of_run(run: &RunVerdict) -> Vec<String> {
    let plural = if run.sections == 1 { "" } else { "s" };
    let state = if run.passed { "passed" } else { "FAILED" };
    let did = format!(
        "{} section{plural}, {} firings in two orders, {} numbers compared: {state}",
        run.sections,
        whole(run.firings),
        whole(run.compared)
    );
    let mut lines = vec![wrapped(&format!("{:<10}", run.mode), &did)];
    if let Some(retargeting) = &run.mapping {
        lines.push(wrapped("mapping   ", &of_retargeting(retargeting)));
    }
    if let Some(fault) = &run.fault {
        lines.push(wrapped("failed    ", &fault.to_string()));
    }
    for (name, deviation) in [("by stage  ", &run.by_stage), ("the graph ", &run.end_to_end)] {
        if let Some(deviation) = deviation {
            lines.push(wrapped(name, &of_deviation(deviation)));
        }
    }
    if run.fault.is_none() && run.end_to_end.is_none() {
        let why =
            "so many stages follow each other that a bound on its outputs would be above their size: see `by stage`";
        lines.push(wrapped("the graph ", why));
    }
    lines
}

fn of_retargeting(retargeting: &Retargeting) -> String {
    if let Some(why) = &retargeting.why {
        return format!("not that of the full size, which has no place here: {why}");
    }
    let all = |of: fn(&RetargetedSection) -> [u64; 2]| {
        let sum = |at: usize| retargeting.sections.iter().map(|section| of(section)[at]).sum::<u64>();
        (sum(0), sum(1))
    };
    let counts = [
        ("tokens", all(|s| s.row_tiles)),
        ("row blocks", all(|s| s.blocks)),
        ("chunks", all(|s| s.column_tiles)),
        ("PCUs", all(|s| s.pcus)),
    ];
    let told: Vec<String> = counts
        .iter()
        .map(|(name, (from, to))| {
            if from == to {
                format!("{name} {}", whole(*to))
            } else {
                format!("{name} {} (of {})", whole(*to), whole(*from))
            }
        })
        .collect();
    format!("sections, loop orders, cuts, residency and styles of the full size; over all sections {}", told.join(", "))
}

fn of_deviation(d: &Deviation) -> String {
    format!(
        "largest error {:.3e} of at most {:.3e}: `{}` row {}, column {}, from {} of stage `{}`: {:e}, the reference says {:e}",
        d.rel_error,
        d.tolerance,
        shorten(&d.tensor, NAME),
        d.index[0],
        d.index[1],
        d.unit,
        shorten(&d.stage, NAME),
        d.got,
        d.want
    )
}

/// `verify.json`.
pub fn verify_files(verdict: &Verdict) -> Vec<File> {
    vec![File { name: "verify.json".to_owned(), bytes: verdict.to_json().into_bytes() }]
}
