//! The default answer to runs of a workload: which is how much faster, the figures that decide, what bounds each chip's last run, and
//! the first thing to try.

use std::cmp::Reverse;

use rdusim_graph::workload::Workload;
use rdusim_outcome::{BoundBy, Outcome, StopReason};

use super::describe;
use super::document::Document;
use super::figures::quotient;
use super::human::{clean, percent, shorten};
use super::screen::Screen;
use super::side::{MOST_BESIDE, Side, labels, of_mode};
use super::summary::Compared;
use super::uncertainty::uncertainty_in_short;
use super::{comparable, text_table::WIDTH};

/// Columns of a section's name.
const NAME: usize = 40;

/// What everybody wants to know of the runs of a workload, on one chip or several side by side: a screen, with the ranges of their
/// document if it has some.
pub fn screen_of(workload: &Workload, sides: &[Side<'_>], document: &Document) -> String {
    let is_many = sides.len() > MOST_BESIDE;
    let last = sides.first().map_or(0, |side| side.outcomes.len().saturating_sub(1));
    let shown = if is_many { of_mode(sides, last) } else { sides.to_vec() };
    let compared = Compared::new(workload, &shown);
    let mut screen = Screen::default();
    for (side, label) in sides.iter().zip(labels()) {
        screen.line(&format!("{label}{}", describe::chip_at(side.chip, compared.work.dtype)));
    }
    screen.line(&format!("workload  {}", describe::workload_as(workload, &compared.work)));
    screen.gap();
    let verdicts = compared.verdicts();
    for (at, (verdict, range)) in verdicts.iter().enumerate() {
        // Of many chips the table has the ratios too.
        if is_many && at > 0 {
            screen.spare("", verdict);
        } else {
            screen.sentence(verdict);
        }
        if let Some(range) = range {
            screen.spare("  ", range);
        }
    }
    let ranges = uncertainty_in_short(document);
    for line in ranges.iter().flat_map(|(lines, _)| lines) {
        screen.sentence(line);
    }
    if !verdicts.is_empty() || ranges.is_some() {
        screen.gap();
    }
    screen.table(&compared.deciding());
    screen.gap();
    for side in sides {
        let of = if sides.len() > 1 { format!("{}: ", shorten(side.chip.name(), NAME)) } else { String::new() };
        if let Some(line) = side.outcomes.last().and_then(slowest) {
            let line = format!("{of}{line}");
            if is_many {
                screen.spare("", &line);
            } else {
                screen.sentence(&line);
            }
        }
    }
    if let Some(advice) = sides.first().and_then(|side| side.outcomes.last()).and_then(advice) {
        screen.spare("try: ", &advice);
    }
    let outcomes: Vec<&Outcome> = sides.iter().flat_map(|side| side.outcomes).collect();
    let stopped: Vec<String> = outcomes.iter().filter_map(|outcome| stop(outcome)).collect();
    let differences = comparable::differences_of(sides);
    let differences = differences.iter().map(|line| format!("not like for like: {line}"));
    let drawn = ranges.map(|(_, drawn)| drawn);
    // What the input says of itself comes before what compilers and models say.
    let is_of_input = |note: &Note<'_>| workload.notes.iter().any(|own| own == note.text);
    let (of_input, others): (Vec<Note<'_>>, Vec<Note<'_>>) = notes(&outcomes).into_iter().partition(is_of_input);
    let told = |notes: Vec<Note<'_>>| notes.into_iter().map(|note| note.told()).collect::<Vec<String>>();
    let remarks: Vec<String> =
        stopped.into_iter().chain(told(of_input)).chain(drawn).chain(differences).chain(told(others)).collect();
    screen.remarks(remarks.iter().map(String::as_str));
    screen.finish("the tables of all figures, sections, stages and tensors")
}

/// A remark, and the modes of the runs that it is of.
struct Note<'a> {
    text: &'a str,
    modes: Vec<&'static str>,
}

impl Note<'_> {
    fn told(&self) -> String {
        format!("{}: {}", self.modes.join(", "), clean(self.text))
    }
}

/// Remarks of runs, each once.
fn notes<'a>(outcomes: &[&'a Outcome]) -> Vec<Note<'a>> {
    let mut list: Vec<Note<'a>> = Vec::new();
    for outcome in outcomes {
        for text in &outcome.notes {
            let mode = outcome.mode.name();
            match list.iter_mut().find(|note| note.text == text) {
                Some(note) if note.modes.contains(&mode) => {}
                Some(note) => note.modes.push(mode),
                None => list.push(Note { text, modes: vec![mode] }),
            }
        }
    }
    list
}

/// Why a run has not come to its end.
fn stop(outcome: &Outcome) -> Option<String> {
    let mode = outcome.mode.name();
    match &outcome.stop {
        StopReason::Drained => None,
        StopReason::Deadlock(blocked) => {
            let first = blocked.first().map_or_else(String::new, |line| format!(": {}", clean(line)));
            Some(format!("{mode}: DEADLOCK, the figures above are of the part that ran{first}"))
        }
        StopReason::Limit(reached) => Some(format!("{mode}: {}", clean(reached))),
    }
}

/// Where a run spends most of its time, and what bounds it there.
fn slowest(outcome: &Outcome) -> Option<String> {
    let cycles = |at: &usize| outcome.sections[*at].cycles;
    let at = (0..outcome.sections.len()).min_by_key(|at| (Reverse(cycles(at)), *at))?;
    let section = &outcome.sections[at];
    let share = percent(quotient(cycles(&at) as f64, outcome.cycles as f64).min(1.0));
    let (mode, name) = (outcome.mode.name(), shorten(&section.name, NAME));
    let bound = shorten(&section.bound_by.to_string(), usize::from(WIDTH) / 4);
    Some(if outcome.sections.len() == 1 {
        format!("{mode} runs as one section, {name}, bound by {bound}")
    } else {
        let count = outcome.sections.len();
        format!("{mode} spends {share} of its time in {name}, one of {count} sections, bound by {bound}")
    })
}

/// What would change the time of a run first.
fn advice(outcome: &Outcome) -> Option<String> {
    let section = outcome.sections.iter().max_by_key(|section| section.cycles)?;
    let what = match &section.bound_by {
        BoundBy::Compute => "more or faster units, or sparser weights".to_owned(),
        BoundBy::Imbalance => "a mask whose work divides more evenly".to_owned(),
        BoundBy::Memory(tier) => {
            format!("more bandwidth of {}, or sparser or narrower weights", shorten(tier, 16))
        }
        BoundBy::Ag => "more address generators, or faster ones".to_owned(),
        BoundBy::Link => "wider or more links".to_owned(),
        BoundBy::PmuPort => "more ports of memory units, or wider ones".to_owned(),
        BoundBy::Launch => "shorter launches, or launches by hardware".to_owned(),
        BoundBy::Fill => "longer inputs, which keep the pipeline full".to_owned(),
    };
    Some(format!("{what}; `rdusim explain` tells what one more of each resource buys"))
}
