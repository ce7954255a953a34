//! What a search has found: the best, and why the others lose.

use std::collections::BTreeMap;

use super::super::parallel::Job;
use super::super::training::{StepTime, TrainingStep};
use super::space::{Key, Objective, Search};

/// How far a search has come.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Counts {
    /// Decompositions that divide model, batch and chips.
    pub all: usize,
    /// Of these, those that fit.
    pub fit: usize,
    /// Of these, those that were simulated.
    pub simulated: usize,
    /// Seconds of the best step so far.
    pub best_s: Option<f64>,
}

/// A candidate on its way through a search.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub job: Job,
    pub peak: u64,
    pub bound_s: f64,
    pub step: Option<TrainingStep>,
    pub refused: Option<String>,
}

/// A candidate and its fate.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// The decomposition and its micro-batch.
    pub job: Job,
    /// Seconds of a step, if it was simulated.
    pub step_s: Option<f64>,
    /// No step takes fewer seconds; 0 if it does not fit.
    pub bound_s: f64,
    /// Bytes of its fullest chip.
    pub peak: u64,
    /// Whether it fits the memory of the chips and of the hosts.
    pub fits: bool,
    /// Why it is where it is.
    pub why: String,
}

/// A finished search.
#[derive(Debug, Clone)]
pub struct Found {
    /// The best first, at most ten.
    pub best: Vec<Candidate>,
    /// Of every other division into tensor ranks, stages and replicas, the one that comes nearest.
    pub others: Vec<Candidate>,
    /// How many were considered.
    pub counts: Counts,
}

type Shape = (u64, u64, u64);

fn shape(job: &Job) -> Shape {
    (job.parallel.tp, job.parallel.pp, job.parallel.dp)
}

pub(super) fn found(
    search: &Search<'_>,
    entries: &[Entry],
    misfits: &[Entry],
    best: &[(Key, usize)],
    counts: Counts,
) -> Found {
    let steps: Vec<&TrainingStep> = best.iter().filter_map(|(_, at)| entries[*at].step.as_ref()).collect();
    let ranked = best.iter().enumerate().map(|(rank, (_, at))| {
        let entry = &entries[*at];
        let why = match (rank, steps.first(), entry.step.as_ref()) {
            (0, ..) => first(search.objective).to_owned(),
            (_, Some(first), Some(step)) if search.objective == Objective::Energy => costlier(step, first),
            (_, Some(first), Some(step)) => slower(step, first),
            _ => String::new(),
        };
        candidate(entry, true, why)
    });
    let best: Vec<Candidate> = ranked.collect();
    let shown: Vec<Shape> = best.iter().map(|candidate| shape(&candidate.job)).collect();
    // Of each shape, what comes nearest: simulated, then by bound, then by what is missing.
    let mut nearest: BTreeMap<Shape, (u8, f64, Candidate)> = BTreeMap::new();
    let mut consider = |rank: u8, value: f64, candidate: Candidate| {
        let at = shape(&candidate.job);
        if !shown.contains(&at) && nearest.get(&at).is_none_or(|(r, v, _)| (rank, value) < (*r, *v)) {
            nearest.insert(at, (rank, value, candidate));
        }
    };
    for entry in entries {
        match (&entry.step, &entry.refused) {
            (Some(step), _) => consider(0, step.step_s, candidate(entry, true, lost(search, step, steps.first()))),
            (None, Some(refused)) => consider(2, 0.0, candidate(entry, true, format!("not simulated: {refused}"))),
            _ => consider(1, entry.bound_s, candidate(entry, true, bounded(search, entry, steps.last()))),
        }
    }
    let capacity = search.system.chip_memory_bytes();
    for entry in misfits {
        let why = if entry.job.parallel.chips() > search.system.most_chips() {
            format!("{} has at most {} chips", search.system.name, search.system.most_chips())
        } else if entry.peak <= capacity {
            "what lies with the hosts does not fit their memory".to_owned()
        } else {
            let over = (entry.peak - capacity) as f64 / GIB;
            format!("does not fit: {:.1} GiB a chip, {over:.1} too many", entry.peak as f64 / GIB)
        };
        consider(3, entry.peak as f64, candidate(entry, false, why));
    }
    let mut others: Vec<(u8, f64, Candidate)> = nearest.into_values().collect();
    others.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    Found { best, others: others.into_iter().map(|(.., candidate)| candidate).collect(), counts }
}

const GIB: f64 = (1 << 30) as f64;

fn candidate(entry: &Entry, fits: bool, why: String) -> Candidate {
    let step_s = entry.step.as_ref().map(|step| step.step_s);
    Candidate { job: entry.job.clone(), step_s, bound_s: entry.bound_s, peak: entry.peak, fits, why }
}

fn first(objective: Objective) -> &'static str {
    match objective {
        Objective::Time => "the shortest step",
        Objective::TokensPerChip => "the most tokens a second and chip",
        Objective::Chips(_) => "the fewest chips",
        Objective::Energy => "the least energy of a step",
    }
}

/// A simulated candidate that is none of the best.
fn lost(search: &Search<'_>, step: &TrainingStep, best: Option<&&TrainingStep>) -> String {
    match (search.objective, best) {
        (Objective::Chips(target), _) if step.step_s > target => {
            format!("{:.4} s a step, above the {target} s that are wanted", step.step_s)
        }
        (Objective::Energy, Some(best)) => costlier(step, best),
        (_, Some(best)) => slower(step, best),
        _ => String::new(),
    }
}

/// How much more energy a step takes.
fn costlier(step: &TrainingStep, best: &TrainingStep) -> String {
    format!("{:+.1} % energy: {:.0} J", (step.energy_j / best.energy_j - 1.0) * 100.0, step.energy_j)
}

/// A candidate that was not simulated, as its bound was enough.
fn bounded(search: &Search<'_>, entry: &Entry, tenth: Option<&&TrainingStep>) -> String {
    let bound = entry.bound_s;
    match (search.objective, tenth) {
        (Objective::Chips(target), _) if bound > target => {
            format!("no step below {bound:.4} s, {target} s are wanted")
        }
        (Objective::Chips(_), Some(_)) => format!("{} chips: the best need no more", entry.job.parallel.chips()),
        (Objective::Time, Some(tenth)) => {
            format!("no step below {bound:.4} s, the last of the best takes {:.4} s", tenth.step_s)
        }
        _ => format!("no step below {bound:.4} s, which is no better than the last of the best"),
    }
}

/// How much longer a step is, and which of its parts has grown most.
fn slower(step: &TrainingStep, best: &TrainingStep) -> String {
    let parts = |time: &StepTime| {
        [
            ("computing", time.compute),
            ("computing again", time.recompute),
            ("tensor collectives", time.tensor_comm),
            ("exchanges within a sequence", time.context_comm),
            ("exchanges between experts", time.expert_comm),
            ("transfers between stages", time.pipeline_comm),
            ("bubbles", time.bubble),
            ("reducing gradients and gathering weights", time.data_comm),
            ("the optimiser", time.optimizer + time.offload),
            ("waiting for the host", time.other),
        ]
    };
    let grown =
        parts(&step.time).into_iter().zip(parts(&best.time)).map(|((name, own), (_, of_best))| (name, own - of_best));
    let (name, seconds) = grown.max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or(("", 0.0));
    let share = (step.step_s / best.step_s - 1.0) * 100.0;
    if seconds <= 0.0 {
        return format!("{share:+.1} %");
    }
    format!("{share:+.1} %: {seconds:.4} s more of {name}")
}
