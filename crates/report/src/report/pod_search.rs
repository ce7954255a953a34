//! A search for the best decomposition: the ten best, why the others lose, and the step of the best.

use std::fmt::Write as _;

use serde::Serialize;

use super::describe::chips;
use super::human::{bytes, count, shorten, si};
use super::pod::{Document, ParallelEntry, PodReport, SCHEMA, SystemEntry};
use super::screen::Screen;
use super::text_table::{align_left, new_table};
use super::write::{File, WriteError};
use rdusim_pod::{Candidate, Found, Job, Stack, System, TrainingStep};

/// A search and its result.
#[derive(Debug, Clone, Copy)]
pub struct SearchReport<'a> {
    /// The system.
    pub system: &'a System,
    /// Its software.
    pub stack: &'a Stack,
    /// Model, batch and what was fixed.
    pub base: &'a Job,
    /// Chips, or the most of them.
    pub chips: u64,
    /// What was found.
    pub found: &'a Found,
    /// The best and its step; `None` if nothing fits.
    pub best: Option<(&'a Job, &'a TrainingStep)>,
}

#[derive(Serialize)]
struct FoundDocument<'a> {
    #[serde(flatten)]
    step: Document<'a>,
    searched: CountsEntry,
    candidates: Vec<CandidateEntry>,
}

#[derive(Serialize)]
struct NothingDocument<'a> {
    schema: u32,
    system: SystemEntry<'a>,
    model: &'a str,
    phase: &'static str,
    parallel: Option<u64>,
    step_s: Option<f64>,
    searched: CountsEntry,
    candidates: Vec<CandidateEntry>,
}

#[derive(Serialize)]
struct CountsEntry {
    candidates: usize,
    fit: usize,
    simulated: usize,
}

#[derive(Serialize)]
struct CandidateEntry {
    parallel: ParallelEntry,
    step_s: Option<f64>,
    fits: bool,
    why: String,
    bound_s: Option<f64>,
    peak_bytes: u64,
}

impl SearchReport<'_> {
    fn report(&self) -> Option<PodReport<'_>> {
        self.best.map(|(job, step)| PodReport { system: self.system, stack: self.stack, job, step })
    }

    fn all(&self) -> impl Iterator<Item = &Candidate> {
        self.found.best.iter().chain(&self.found.others)
    }

    /// The object of `--format json`: that of the best step, with `searched` and `candidates`.
    pub fn json(&self) -> String {
        let entry = |of: &Candidate| CandidateEntry {
            parallel: ParallelEntry::new(self.stack, &of.job),
            step_s: of.step_s,
            fits: of.fits,
            why: of.why.clone(),
            bound_s: of.fits.then_some(of.bound_s),
            peak_bytes: of.peak,
        };
        let candidates: Vec<CandidateEntry> = self.all().map(entry).collect();
        let counts = &self.found.counts;
        let searched = CountsEntry { candidates: counts.all, fit: counts.fit, simulated: counts.simulated };
        let text = if let Some(report) = self.report() {
            serde_json::to_string_pretty(&FoundDocument { step: report.document(), searched, candidates })
        } else {
            serde_json::to_string_pretty(&NothingDocument {
                schema: SCHEMA,
                system: SystemEntry { name: &self.system.name, chips: self.chips },
                model: &self.base.model,
                phase: "training",
                parallel: None,
                step_s: None,
                searched,
                candidates,
            })
        };
        // Plain data: nothing in it can fail to be written.
        text.map(|text| text + "\n").unwrap_or_default()
    }

    /// The tables for a terminal.
    pub fn table(&self) -> String {
        let mut text = self.searched();
        if self.found.best.is_empty() {
            text.push_str("None of them does what is wanted.\n\n");
        }
        for (title, list) in [("the best", &self.found.best), ("nearest of other shapes", &self.found.others)] {
            if list.is_empty() {
                continue;
            }
            let _ = write!(text, "{}\n\n", listed(title, list, None));
        }
        if let Some(report) = self.report() {
            text += &report.table();
        }
        text
    }

    /// The best decompositions on one screen.
    pub fn screen(&self) -> String {
        let mut screen = Screen::default();
        screen.sentence(self.searched().trim_end());
        screen.gap();
        if let Some(report) = self.report() {
            screen.sentence(&report.in_short());
            screen.gap();
        }
        if self.found.best.is_empty() {
            screen.line("None of them does what is wanted.");
        }
        let best = &self.found.best[..self.found.best.len().min(MOST_SHOWN)];
        let others = &self.found.others[..self.found.others.len().min(MOST_SHOWN - best.len().min(MOST_SHOWN - 1))];
        for (title, list) in [("the best", best), ("nearest of other shapes", others)] {
            if !list.is_empty() {
                screen.table(&listed(title, list, Some(NARROW)));
            }
        }
        screen.remarks(self.report().iter().flat_map(|report| &report.step.notes).map(String::as_str));
        screen.finish("all candidates, and the tables of the best")
    }

    /// How many there were.
    fn searched(&self) -> String {
        let counts = &self.found.counts;
        format!(
            "{} on up to {} of {}: {} decompositions, {} fit, {} were simulated\n\n",
            self.base.model,
            chips(self.chips),
            self.system.name,
            count(counts.all as u64),
            count(counts.fit as u64),
            count(counts.simulated as u64)
        )
    }

    /// The files of `--out`: those of the best step, and the search in `result.json`.
    ///
    /// # Errors
    /// A picture that cannot be drawn.
    pub fn files(&self) -> Result<Vec<File>, WriteError> {
        let mut files = self.report().map_or_else(|| Ok(Vec::new()), |report| report.files())?;
        files.retain(|file| file.name != "result.json");
        files.insert(0, File { name: "result.json".to_owned(), bytes: self.json().into_bytes() });
        Ok(files)
    }
}

/// Candidates that a screen shows, of the best and of those nearest to them.
const MOST_SHOWN: usize = 9;

/// Columns of a decomposition and of a reason on a screen.
const NARROW: [usize; 2] = [56, 40];

/// Candidates, one a line; in narrow columns their decompositions and reasons lose their middles.
fn listed(title: &str, list: &[Candidate], narrow: Option<[usize; 2]>) -> String {
    let mut table = new_table(["step", title, "memory", "why"].map(str::to_owned).to_vec());
    align_left(&mut table, 1);
    align_left(&mut table, 3);
    for of in list {
        let step = of.step_s.map_or_else(|| "-".to_owned(), |seconds| si(seconds, "s"));
        let (mut parallel, mut why) = (of.job.decomposition(), of.why.clone());
        if let Some([of_parallel, of_why]) = narrow {
            (parallel, why) = (shorten(&parallel, of_parallel), shorten(&why, of_why));
        }
        table.add_row(vec![step, parallel, bytes(of.peak), why]);
    }
    table.trim_fmt()
}
