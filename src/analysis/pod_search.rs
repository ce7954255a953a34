//! The best decomposition of a model over many chips.

use std::collections::BTreeSet;

use super::pod::{PodRequest, TrainedModel, job, stack};
use crate::diagnostics::Diagnostic;
use crate::pod::{self, Candidate, Counts, Detail, Failures, Job, Objective, Parallel, Search, TrainingStep};
use crate::report::SearchReport;

/// What is searched.
#[derive(Debug, Clone)]
pub struct SearchRequest<'a> {
    /// Model, system and batch; the keys in its `parallel`, which may be empty, are fixed.
    pub pod: PodRequest<'a>,
    /// Whether its micro-batch is fixed too.
    pub is_micro_batch_fixed: bool,
    /// Chips, or the most of them; all that the system can have if not given.
    pub chips: Option<u64>,
    /// What is looked for.
    pub objective: Objective,
    /// How chips fail, if what that leaves of a run is to be said.
    pub failures: Option<Failures>,
}

/// Searches, and hands the result to `then`; `noted` hears what was chosen for the caller, `heard` how far the search is.
///
/// # Errors
/// Inputs that cannot be read, and chips over which the model cannot be divided.
pub fn pod_search<T>(
    request: &SearchRequest<'_>,
    noted: &mut dyn FnMut(&str),
    heard: &mut dyn FnMut(&Counts, Option<&Job>),
    then: impl FnOnce(&SearchReport<'_>) -> T,
) -> Result<T, Diagnostic> {
    let mut system = pod::open(request.pod.system, request.pod.sets)?;
    let grown = system.grown(request.chips.unwrap_or(0));
    if let Some((grown, _)) = &grown {
        system = grown.clone();
    }
    let given = request.pod.parallel;
    let parallel = if given.is_empty() { Parallel::default() } else { Parallel::parse(given)? };
    let stack = stack(&system, request.pod.stack, noted)?;
    let TrainedModel { job: base, notes } = job(&request.pod, parallel)?;
    let mut fixed: BTreeSet<String> =
        given.split(',').filter_map(|item| item.split_once('=')).map(|(key, _)| key.trim().to_owned()).collect();
    if request.is_micro_batch_fixed {
        fixed.insert("micro_batch".to_owned());
    }
    let most = system.most_chips();
    let chips = request.chips.unwrap_or_else(|| {
        noted(&format!("no `--chips`: {most}, the most that {} can have", system.name));
        most
    });
    if chips == 0 || chips > most {
        let title = format!("`--chips` is {chips}, expected from 1 to {most}, the most that {} can have", system.name);
        return Err(Diagnostic::new(title));
    }
    let search = Search { system: &system, stack, base, fixed, chips, objective: request.objective };
    let found = pod::search(&search, heard)?;
    let best = match found.best.first() {
        None => None,
        Some(Candidate { job, .. }) => {
            let goodput = request.failures.map(|failures| failures.goodput(job.parallel.chips()));
            let mut step = TrainingStep { goodput, ..pod::step(&system, stack, job, Detail::Grouped)? };
            step.notes.extend(notes);
            step.notes.extend(grown.map(|(_, note)| note));
            Some((job, step))
        }
    };
    let best = best.as_ref().map(|(job, step)| (*job, step));
    Ok(then(&SearchReport { system: &system, stack, base: &search.base, chips, found: &found, best }))
}
