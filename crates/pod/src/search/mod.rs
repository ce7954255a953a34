//! The best decomposition of a model over chips, by branch and bound.
//!
//! A candidate's bound never exceeds its simulated step (`bound`), so a search that takes candidates in the order of their
//! bounds may stop at the first bound above the tenth best step. Bounds are made sharper in two levels before a candidate
//! is simulated: without communication, then with tensor collectives, reductions and gathers. Candidates that have the same
//! layers on the same shapes share the simulation of the chip. Batches are of a fixed size, so the result does not depend
//! on the number of threads.

mod bound;
mod outcome;
mod space;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt::Write as _;

use rayon::prelude::*;

use super::memory;
use super::parallel::Job;
use super::training::{Detail, TrainingStep, step_of};
use bound::Bounds;
use outcome::Entry;
pub use outcome::{Candidate, Counts, Found};
use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::interrupt;
use space::{BEST, Key};
pub use space::{Objective, Search};

/// Candidates that are taken from the heap together: enough for the threads of a desktop, and few enough that little is
/// simulated that the best of the same batch would have ruled out.
const BATCH: usize = 16;

/// The target of what is logged.
const TARGET: &str = "pod";

/// How far a candidate has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    /// Bound without communication.
    Compute,
    /// Bound with the collectives that are exposed whatever the schedule.
    Exposed,
}

/// Searches; `heard` is told how far it has come and what is best so far after every batch.
///
/// # Errors
/// More candidates than a search takes, or none at all.
pub fn search(search: &Search<'_>, heard: &mut dyn FnMut(&Counts, Option<&Job>)) -> Result<Found, Diagnostic> {
    let capacity = search.system.chip_memory_bytes();
    let most_chips = search.system.most_chips();
    let all = search.candidates()?;
    if all.is_empty() {
        let title = format!("no decomposition divides {} over {} chips", search.base.model, search.chips);
        let help = "tp divides heads, pp layers, dp `--batch`; fix fewer keys, or change `--chips` or `--batch`";
        return Err(Diagnostic::new(title).with_help(help));
    }
    let mut counts = Counts { all: all.len(), ..Counts::default() };
    let (mut entries, mut misfits) = (Vec::new(), Vec::new());
    for job in all {
        let peak = memory::of_job(&job, search.stack.kind).peak();
        let on_host = memory::of_host(search.system, &job, search.stack.kind);
        let is_possible = job.parallel.chips() <= most_chips && on_host <= search.system.host.memory_bytes;
        let entry = Entry { job, peak, bound_s: 0.0, step: None, refused: None };
        if is_possible && peak <= capacity { entries.push(entry) } else { misfits.push(entry) }
    }
    counts.fit = entries.len();
    let mut walk =
        Walk { search, bounds: Bounds::new(search), entries, heap: BinaryHeap::new(), best: Vec::new(), counts };
    walk.run(heard)?;
    let found = outcome::found(search, &walk.entries, &misfits, &walk.best, walk.counts);
    logged(&found);
    Ok(found)
}

/// Logs what was found and what was left out, and why, at level debug.
fn logged(found: &Found) {
    if !log::log_enabled!(target: TARGET, log::Level::Debug) {
        return;
    }
    let Counts { all, fit, simulated, .. } = found.counts;
    let mut text = format!("{all} decompositions, of which {fit} fit and {simulated} were simulated");
    for (title, list) in [("best", &found.best), ("left out", &found.others)] {
        for Candidate { job, why, .. } in list {
            let _ = write!(text, "\n{title}: {}: {why}", job.decomposition());
        }
    }
    log::debug!(target: TARGET, "{text}");
}

struct Walk<'s, 'w> {
    search: &'w Search<'s>,
    bounds: Bounds<'s>,
    entries: Vec<Entry>,
    /// Candidates by their bounds, the least first.
    heap: BinaryHeap<Reverse<(Key, Level, usize)>>,
    /// The best that are simulated.
    best: Vec<(Key, usize)>,
    counts: Counts,
}

impl Walk<'_, '_> {
    fn key(&self, at: usize, seconds: f64, joules: f64) -> Key {
        self.search.objective.key(self.entries[at].job.parallel.chips(), seconds, joules)
    }

    fn run(&mut self, heard: &mut dyn FnMut(&Counts, Option<&Job>)) -> Result<(), Diagnostic> {
        let everyone: Vec<usize> = (0..self.entries.len()).collect();
        for chunk in everyone.chunks(1 << 10) {
            self.bounded(chunk, Level::Compute);
            heard(&self.counts, self.best_job());
        }
        loop {
            let tenth = self.best.get(BEST - 1).map(|(key, _)| *key);
            let mut batch: Vec<(Level, usize)> = Vec::new();
            while let Some(Reverse((key, level, at))) = self.heap.peek().copied() {
                if batch.len() == BATCH || tenth.is_some_and(|tenth| key > tenth) {
                    break;
                }
                self.heap.pop();
                batch.push((level, at));
            }
            if batch.is_empty() {
                return Ok(());
            }
            let of = |wanted| batch.iter().filter(move |(level, _)| *level == wanted).map(|(_, at)| *at);
            let (first, second): (Vec<usize>, Vec<usize>) =
                (of(Level::Compute).collect(), of(Level::Exposed).collect());
            self.bounded(&first, Level::Exposed);
            self.simulated(&second);
            heard(&self.counts, self.best_job());
        }
    }

    /// The best that was simulated so far.
    fn best_job(&self) -> Option<&Job> {
        self.best.first().map(|(_, at)| &self.entries[*at].job)
    }

    /// Gives candidates the bound of a level, and puts those that can still count on the heap.
    fn bounded(&mut self, list: &[usize], level: Level) {
        let jobs: Vec<&Job> = list.iter().map(|&at| &self.entries[at].job).collect();
        let exposed = level == Level::Exposed;
        self.bounds.prepare(&jobs, exposed);
        for &at in list {
            interrupt::check();
            match self.bounds.seconds(&self.entries[at].job, exposed) {
                Ok(seconds) => {
                    let entry = &mut self.entries[at];
                    entry.bound_s = entry.bound_s.max(seconds);
                    let seconds = entry.bound_s;
                    if self.search.objective.allows(seconds) {
                        let is_wanted = self.search.objective == Objective::Energy;
                        let joules =
                            if is_wanted { self.bounds.joules(&self.entries[at].job, seconds, exposed) } else { 0.0 };
                        self.heap.push(Reverse((self.key(at, seconds, joules), level, at)));
                    }
                }
                Err(refused) => self.entries[at].refused = Some(refused),
            }
        }
    }

    fn simulated(&mut self, list: &[usize]) {
        let (search, bounds, entries) = (self.search, &self.bounds, &self.entries);
        let run = |at: usize| -> Result<TrainingStep, String> {
            let job = &entries[at].job;
            let (comm, pieces) = bounds.exact(job)?;
            step_of(search.system, search.stack, job, Detail::Grouped, comm, &pieces)
                .map_err(|error| error.title().to_owned())
        };
        let steps: Vec<(usize, Result<TrainingStep, String>)> = list.par_iter().map(|&at| (at, run(at))).collect();
        for (at, step) in steps {
            self.counts.simulated += 1;
            match step {
                Ok(mut step) => {
                    // Pictures are of the best alone.
                    step.simulated.spans = Vec::new();
                    if search.objective.allows(step.step_s) {
                        self.best.push((self.key(at, step.step_s, step.energy_j), at));
                    }
                    self.entries[at].step = Some(step);
                }
                Err(refused) => self.entries[at].refused = Some(refused),
            }
        }
        self.best.sort_unstable();
        self.best.truncate(BEST);
        self.counts.best_s =
            self.best.first().and_then(|(_, at)| self.entries[*at].step.as_ref()).map(|step| step.step_s);
    }
}

#[cfg(test)]
mod tests;
