//! Fusion: cutting the operator graph into sections.

use rayon::prelude::*;
use rustc_hash::FxHashMap;

use crate::compile::params::PARAMS;
use crate::compile::physical::assemble::Unplaced;
use rdusim_cost::bound::section::SectionFloor;
use rdusim_cost::cost::least_cycles;
use rdusim_graph::arch::Chip;
use rdusim_graph::workload::{OperatorId, Workload};
use rdusim_program::{SectionGraph, is_whole_block};

use super::canonical::{CanonicalForm, CanonicalForms, Renaming};
use super::chosen::Chosen;
use super::context::{Effort, SearchContext};
use super::evaluated::{Evaluated, EvaluationLevel, optimistic};
use super::links::Sequences;
use super::plan::{NoPlan, outline, plan};
use super::planned::{Among, Planned, Request};
use super::runs::{Run, Runs};
use super::space::{Choice, SectionSearch};

/// An operator that cannot be planned even alone.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unplannable {
    /// The operator.
    pub operator: OperatorId,
    /// Why.
    pub reason: NoPlan,
}

/// Why operators cannot share a section.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Unpinnable {
    /// They are no pipeline over the same rows.
    NoPipeline,
    /// No plan fits.
    NoPlan(NoPlan),
    /// No plan can be placed.
    Unplaced(Option<Unplaced>),
}

/// Every run of operators that may become a section, and a plan for each class of them.
#[derive(Debug)]
pub(crate) struct Partitioner<'a> {
    pub(super) workload: &'a Workload,
    pub(super) runs: Vec<Run>,
    pub(super) planned: Vec<Option<Planned<'a>>>,
    /// Kinds by the canonical form of their runs.
    pub(super) classes: FxHashMap<CanonicalForm, usize>,
    /// Of every run, cycles that a loop over the repetitions of its block saves.
    pub(super) saved_by_looping: Vec<u64>,
    /// Classes of sections that were not planned, as they could gain too little.
    left_out_classes: usize,
    requested: PartitionRequest,
    /// What is not planned yet, planned only if nothing sooner found beats it at its best.
    pub(super) bounds: Option<Bounds>,
    /// What prefetching makes of sections in a row; `None` if nothing is prefetched.
    pub(super) sequences: Option<Sequences>,
}

/// Cycles of launches that a section saves if it loops over the repetitions of its block; 0 if it does not.
fn saved_by_looping(chip: &Chip, workload: &Workload, operators: &[OperatorId]) -> u64 {
    if !is_whole_block(workload, operators) {
        return 0;
    }
    chip.launch_cycles().saturating_mul(workload.operators[operators[0]].repeat - 1)
}

/// A score that no plan of some operators as a section beats, of which `saved` cycles are saved by a loop: by the floor of its
/// nests, with weights on chip where a section before may have loaded them.
pub(super) fn least_score(context: &SearchContext<'_>, operators: &[OperatorId], saved: u64) -> u64 {
    let &SearchContext { chip, workload, tiers, bases, prefetches, .. } = context;
    let floors = bases.with_masks(|masks| SectionFloor::new(chip, workload, tiers, masks, operators));
    let least = floors.and_then(|floors| floors.least());
    let of_nests =
        least.map_or(0, |floor| if prefetches { floor.prefetched } else { floor.alone } + chip.launch_cycles());
    let cycles = of_nests.max(if prefetches { 0 } else { least_cycles(chip, workload, tiers, operators) as u64 });
    cycles.saturating_mul(workload.operators[operators[0]].repeat).saturating_sub(saved)
}

/// What is asked of a search.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PartitionRequest {
    /// Every operator alone.
    pub singles: bool,
    /// Sections of several.
    pub fused: bool,
    /// How much effort the search spends in the end.
    pub effort: Effort,
}

/// A graph as one section.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WholeGraph<'s, 'a> {
    /// With its best choice.
    Planned(&'s SectionGraph<'a>, &'s Choice),
    /// No plan of it is as fast as what was found, so that none was made.
    Slower,
    /// It cannot be.
    Impossible,
}

/// What is known of sections that are not planned.
#[derive(Debug)]
pub(super) struct Bounds {
    /// Of every run, a score that no plan of it beats.
    pub(super) least: Vec<u64>,
    /// Of every class, whether planning or placing it failed.
    pub(super) refused: Vec<bool>,
    /// The first single operator that failed, and why.
    pub(super) unplannable: Option<Unplannable>,
}

impl<'a> Partitioner<'a> {
    /// Plans single operators and, with `fused`, the runs of [`Runs`]: up to `PARAMS.partition.most_listed` and whole blocks; of short
    /// graphs only those that may be chosen.
    pub(crate) fn new(
        context: &SearchContext<'_>,
        workload: &'a Workload,
        requested: PartitionRequest,
    ) -> Result<Self, Unplannable> {
        let (SearchContext { chip, tiers, .. }, fused) = (context, requested.fused);
        let n = workload.operators.len();
        let Runs { list: runs, mut firsts, classes } = Runs::new(workload, tiers, fused);
        let planned = firsts.iter().map(|_| None).collect();
        let saved = |run: &Run| if fused { saved_by_looping(chip, workload, &run.operators) } else { 0 };
        let saved_by_looping = runs.iter().map(saved).collect();
        let mut partitioner = Self {
            workload,
            runs,
            planned,
            classes,
            saved_by_looping,
            left_out_classes: 0,
            requested,
            bounds: None,
            sequences: None,
        };
        if fused && context.prefetches {
            partitioner.sequences = Some(Sequences::new(context));
        }
        if !requested.singles && !fused {
            return Ok(partitioner);
        }
        let is_small = context.measures
            && requested.effort >= Effort::Full
            && context.chip.pcus() * partitioner.planned.len() as u64 <= PARAMS.partition.all_measured_pcus;
        if fused && !is_small && n <= PARAMS.partition.most_listed {
            partitioner.plan_lazily(context, requested)?;
            return Ok(partitioner);
        }
        let length = |run: usize| partitioner.runs[run].operators.len();
        // Long runs first: they take longest.
        firsts.sort_by_key(|&run| (std::cmp::Reverse(length(run)), run));
        let (singles, longer): (Vec<usize>, Vec<usize>) = firsts.iter().partition(|&&run| length(run) == 1);
        // What does not fit alone may fit with others.
        let mut refused = None;
        let mut refuse = |planned: Result<(), Unplannable>| match planned {
            Err(why) if requested.singles => Err(why),
            other => {
                refused = refused.or(other.err());
                Ok(())
            }
        };
        if n <= PARAMS.partition.most_listed {
            refuse(partitioner.plan_runs(context, &firsts))?;
            return partitioner.unless(refused);
        }
        refuse(partitioner.plan_runs(context, &singles))?;
        let most = longer.iter().map(|&run| partitioner.runs[run].operators.len()).max().unwrap_or(0);
        for length in 2..=most {
            let is_of_length = |run: &Run| run.operators.len() == length && !run.is_block;
            let of_length: Vec<usize> =
                longer.iter().copied().filter(|&run| is_of_length(&partitioner.runs[run])).collect();
            let worth = partitioner.worth_planning(context, &of_length);
            partitioner.plan_runs(context, &worth)?;
        }
        let blocks: Vec<usize> = longer.iter().copied().filter(|&run| partitioner.runs[run].is_block).collect();
        partitioner.plan_runs(context, &blocks)?;
        partitioner.unless(refused)
    }

    /// What is planned, if there is a partition of it; else why an operator has no plan.
    fn unless(self, refused: Option<Unplannable>) -> Result<Self, Unplannable> {
        let whole = (0, self.workload.operators.len());
        refused.filter(|_| self.best_partition(whole.0, whole.1).is_err()).map_or(Ok(self), Err)
    }

    /// Plans the classes of some runs, side by side.
    pub(super) fn plan_runs(&mut self, context: &SearchContext<'_>, runs: &[usize]) -> Result<(), Unplannable> {
        let workload = self.workload;
        let has_many = workload.operators.len() > PARAMS.partition.most_listed;
        let plan_run = |&run: &usize| {
            context.stop.check();
            let operators = &self.runs[run].operators;
            let graph = SectionGraph::new(workload, operators, operators.len() > 1).ok_or(None)?;
            let chip = context.chip.in_section(graph.largest_off_chip_bytes());
            let search = SectionSearch { chip: &chip, graph: &graph, tiers: context.tiers, cache: context.bases };
            // Of many sections few are chosen: those are planned again at the effort that is asked for. Joined runs take longest,
            // and measured steps from an outline find most of what a plan would.
            let is_joined = graph.stages.len() > PARAMS.partition.most_listed && !self.runs[run].is_block;
            let is_refined = operators.len() == 1 || !has_many;
            let choices = if is_refined && !is_joined { plan(&search, context.effort) } else { outline(&search) };
            let choices = choices.map_err(Some)?;
            let is_refined = is_refined || is_joined;
            Ok(Planned::new(graph, choices, is_refined))
        };
        let planned: Vec<Result<Planned<'a>, Option<NoPlan>>> = runs.par_iter().map(plan_run).collect();
        // Of several that cannot run alone, the first is told.
        let mut refused = None;
        for (&run, planned) in runs.iter().zip(planned) {
            let Run { operators, class, .. } = &self.runs[run];
            match planned {
                Ok(planned) => self.planned[*class] = Some(planned),
                Err(reason) if operators.len() == 1 => {
                    let reason = reason.unwrap_or(NoPlan::Pcus(u64::MAX));
                    let this = Unplannable { operator: operators[0], reason };
                    refused = refused.filter(|other: &Unplannable| other.operator < this.operator).or(Some(this));
                }
                Err(_) => {}
            }
        }
        refused.map_or(Ok(()), Err)
    }

    /// Of the first runs of some classes those whose class may save time somewhere in the best partition so far: a section takes what the best shorter ones take for it, less what no section can be
    /// faster than, for them and for it.
    pub(super) fn worth_planning(&mut self, context: &SearchContext<'_>, firsts: &[usize]) -> Vec<usize> {
        let SearchContext { chip, tiers, .. } = *context;
        let n = self.workload.operators.len();
        let (before, behind) = self.least_scores();
        let least_alone = |run: usize| {
            let operators = &self.runs[run].operators;
            least_cycles(chip, self.workload, tiers, operators) * self.workload.operators[operators[0]].repeat as f64
                - self.saved_by_looping[run] as f64
        };
        let optimistic = |&first: &usize| {
            let (start, end) = self.runs[first].span;
            let parts = self.best_partition(start, end).ok()?;
            let now: u64 =
                parts.iter().filter(|&&part| self.of(part).is_some()).filter_map(|&part| self.score_alone(part)).sum();
            let least = |runs: &[usize]| runs.iter().map(|&run| least_alone(run)).sum::<f64>();
            let saved = least(&parts) - least_alone(first) - least(&self.runs[first].split_off);
            Some(now as f64 - saved)
        };
        let is_worth = |&first: &usize| {
            let Some(optimistic) = optimistic(&first) else { return true };
            let equal = self.runs.iter().filter(|run| run.class == self.runs[first].class);
            let saves = |run: &Run| {
                let (from, to) = run.span;
                before[n] as f64 > before[from] as f64 + optimistic + behind[to] as f64
            };
            equal.into_iter().any(saves)
        };
        let worth: Vec<usize> = firsts.iter().copied().filter(is_worth).collect();
        self.left_out_classes += firsts.len() - worth.len();
        worth
    }

    /// Adds a run. Its class is planned if another of it is.
    pub(super) fn add(&mut self, context: &SearchContext<'_>, canonical: &CanonicalForms<'_>, run: Run) -> usize {
        let next = self.planned.len();
        let class = *self.classes.entry(canonical.canonical_form(&run.operators)).or_insert(next);
        if class == next {
            self.planned.push(None);
        }
        let saved = saved_by_looping(context.chip, self.workload, &run.operators);
        if let Some(bounds) = &mut self.bounds {
            bounds.least.push(least_score(context, &run.operators, saved));
            bounds.refused.resize(self.planned.len(), false);
        }
        self.saved_by_looping.push(saved);
        self.runs.push(Run { class, ..run });
        self.runs.len() - 1
    }

    /// Least scores of the first i operators, and of those from the i-th on.
    fn least_scores(&self) -> (Vec<u64>, Vec<u64>) {
        let n = self.workload.operators.len();
        let (mut before, mut behind) = (vec![u64::MAX; n + 1], vec![u64::MAX; n + 1]);
        (before[0], behind[n]) = (0, 0);
        let scored = |run: usize| Some((self.runs[run].span, self.score(run)?));
        let mut scores: Vec<((usize, usize), u64)> = (0..self.runs.len()).filter_map(scored).collect();
        scores.sort_unstable_by_key(|&((from, to), _)| (to, from));
        for &((from, to), score) in &scores {
            before[to] = before[to].min(before[from].saturating_add(score));
        }
        scores.sort_unstable_by_key(|&((from, to), _)| std::cmp::Reverse((from, to)));
        for &((from, to), score) in &scores {
            behind[from] = behind[from].min(behind[to].saturating_add(score));
        }
        (before, behind)
    }

    /// What a run counts for in a partition, with what it leaves to sections behind it; `None` if it can be no part of one.
    pub(super) fn score(&self, run: usize) -> Option<u64> {
        let parts = [run].into_iter().chain(self.runs[run].split_off.iter().copied());
        parts.map(|part| self.score_alone(part)).try_fold(0u64, |sum, score| Some(sum.saturating_add(score?)))
    }

    /// The same of a run without those; if it is not planned yet, what no plan of it beats.
    pub(super) fn score_alone(&self, run: usize) -> Option<u64> {
        if let Some(planned) = self.of(run) {
            let score = planned.score().saturating_sub(self.saved_by_looping[run]);
            return Some(match &self.bounds {
                // What an estimate may leave of itself, but no less than the floor.
                Some(bounds) if planned.evaluated.is_none() => {
                    bounds.least[run].max((score as f64 * PARAMS.partition.optimistic_estimate) as u64)
                }
                _ => score,
            });
        }
        let bounds = self.bounds.as_ref()?;
        (!bounds.refused[self.runs[run].class]).then(|| bounds.least[run])
    }

    /// What a run's class was planned as.
    pub(super) fn of(&self, run: usize) -> Option<&Planned<'a>> {
        self.planned[self.runs[run].class].as_ref()
    }

    /// Classes of sections that were not planned, as by their lower bounds they could gain too little.
    pub(crate) fn left_out_classes(&self) -> usize {
        self.left_out_classes
    }

    /// The sections of a pinned partition, placed and routed; the index of one that cannot be, and why.
    pub(crate) fn pinned(workload: &'a Workload, context: &SearchContext<'_>) -> Result<Self, (usize, Unpinnable)> {
        let canonical = CanonicalForms::new(workload, context.tiers);
        let mut pinned = Runs::default();
        for section in &workload.sections {
            pinned.add(&canonical, (0, 0), section.operators.clone(), Vec::new(), false);
        }
        let Runs { list: runs, firsts, classes } = pinned;
        let pin = |&index: &usize| {
            let operators = &runs[index].operators;
            let graph = SectionGraph::new(workload, operators, operators.len() > 1);
            let graph = graph.ok_or((index, Unpinnable::NoPipeline))?;
            let chip = context.chip.in_section(graph.largest_off_chip_bytes());
            let search = SectionSearch { chip: &chip, graph: &graph, tiers: context.tiers, cache: context.bases };
            let choices = plan(&search, context.effort);
            let choices = choices.map_err(|reason| (index, Unpinnable::NoPlan(reason)))?;
            let mut planned = Planned::new(graph, choices, true);
            let request = planned.prepare(context, EvaluationLevel::Full, 0);
            planned.route(context, request, &Among { equivalents: Vec::new() });
            if planned.routed().is_none() {
                return Err((index, Unpinnable::Unplaced(planned.unplaced())));
            }
            Ok(Some(planned))
        };
        let planned: Vec<Result<_, _>> = firsts.par_iter().map(pin).collect();
        let planned = planned.into_iter().collect::<Result<_, _>>()?;
        let requested = PartitionRequest { singles: false, fused: true, effort: context.effort };
        Ok(Self {
            workload,
            saved_by_looping: vec![0; runs.len()],
            runs,
            planned,
            classes,
            left_out_classes: 0,
            requested,
            bounds: None,
            sequences: None,
        })
    }

    /// Goes on at more effort: what was evaluated is evaluated further, and what prefetching makes of new mappings is not known.
    pub(crate) fn go_on(&mut self, context: &SearchContext<'_>) {
        self.planned.iter_mut().flatten().for_each(Planned::go_on);
        if self.sequences.is_some() {
            self.sequences = Some(Sequences::new(context));
        }
    }

    /// Every run of a pinned partition.
    pub(crate) fn all(&self) -> Vec<usize> {
        (0..self.runs.len()).collect()
    }

    /// One operator a section, placed and routed. An operator index, where placement finds no room.
    pub(crate) fn kernel_by_kernel(&mut self, context: &SearchContext<'_>) -> Result<Vec<usize>, usize> {
        let singles = self.singles();
        self.route(&singles, EvaluationLevel::Full, context);
        match singles.iter().find(|&&run| !self.is_routed(run)) {
            Some(&run) => Err(run),
            None => Ok(singles),
        }
    }

    pub(super) fn is_routed(&self, run: usize) -> bool {
        self.of(run).is_some_and(|planned| planned.routed().is_some())
    }

    /// Whether any of some runs is planned.
    pub(super) fn is_any_planned(&self, runs: &[usize]) -> bool {
        runs.iter().any(|&run| self.of(run).is_some())
    }

    /// Whether all of some runs are planned.
    pub(super) fn are_planned(&self, runs: &[usize]) -> bool {
        runs.iter().all(|&run| self.of(run).is_some())
    }

    /// Runs of one operator, in order.
    pub(super) fn singles(&self) -> Vec<usize> {
        let mut singles: Vec<usize> = (0..self.runs.len()).filter(|&run| self.runs[run].operators.len() == 1).collect();
        singles.sort_by_key(|&run| self.runs[run].operators[0]);
        singles
    }

    /// The partition with the least time (and a little for every byte): dynamic programming over the places to cut,
    /// exact over the runs that are planned ([`Self::left_out_classes`] tells of others). Single operators are always
    /// candidates. Sections of the best partition are routed and measured, which may show them slower than estimated;
    /// then the search is repeated. Only those that it settles on are measured at length.
    pub(crate) fn fused(&mut self, context: &SearchContext<'_>) -> Result<Vec<usize>, usize> {
        let whole = (0, self.workload.operators.len());
        // What is requested in any case, side by side.
        let first = self.best_partition(whole.0, whole.1)?;
        if context.effort >= Effort::Full
            && context.measures
            && context.chip.pcus() * self.planned.len() as u64 <= PARAMS.partition.all_measured_pcus
        {
            let all: Vec<usize> = (0..self.runs.len()).filter(|&run| self.of(run).is_some()).collect();
            self.route(&all, EvaluationLevel::Full, context);
        }
        let mut requested: Vec<(usize, EvaluationLevel)> = Vec::new();
        if self.bounds.is_none() {
            requested.extend(first.iter().map(|&run| (run, EvaluationLevel::Ideal)));
            // A loop over a whole block is one candidate beside many partitions of it: searched in full, whatever its estimate and
            // what its first mapping shows.
            let is_loop =
                |&run: &usize| self.of(run).is_some() && is_whole_block(self.workload, &self.runs[run].operators);
            requested.extend((0..self.runs.len()).filter(is_loop).map(|run| (run, EvaluationLevel::Full)));
            // Of short graphs also what may be faster than estimated.
            let is_short = self.workload.operators.len() <= PARAMS.partition.most_listed;
            let of_singles = if self.requested.singles {
                Some(EvaluationLevel::Full)
            } else {
                is_short.then_some(EvaluationLevel::Ideal)
            };
            if let Some(level) = of_singles {
                requested.extend(self.singles().into_iter().map(|run| (run, level)));
            }
        }
        self.route_each(requested.into_iter(), context);
        loop {
            let best = self.best_planned(context)?;
            if let Some(settled) = self.settled(&best) {
                return Ok(self.not_slower(settled, context));
            }
            let is_at = |run: usize, level: EvaluationLevel| {
                self.of(run).and_then(|p| p.evaluated.as_ref()).is_some_and(|evaluated| evaluated.level >= level)
            };
            let below =
                |level: EvaluationLevel| best.iter().copied().filter(|&run| !is_at(run, level)).collect::<Vec<usize>>();
            let (unseen, shallow) = (below(EvaluationLevel::Ideal), below(EvaluationLevel::Full));
            // Joined before any is evaluated in full.
            if unseen.is_empty() && self.join_neighbours(context, &best) {
                continue;
            }
            if shallow.is_empty() {
                if self.link(context, &best) {
                    continue;
                }
                return Ok(self.not_slower(best, context));
            }
            let (unrouted, level) =
                if unseen.is_empty() { (shallow, EvaluationLevel::Full) } else { (unseen, EvaluationLevel::Ideal) };
            self.route(&unrouted, level, context);
        }
    }

    /// Cycles of planned runs; of those that were not evaluated in full, what evaluation may make of them.
    pub(super) fn cycles(&self, runs: &[usize]) -> u64 {
        let of_run = |&run: &usize| {
            let planned = self.of(run)?;
            let evaluated = planned.evaluated.as_ref().and_then(Evaluated::cycles);
            let cycles =
                evaluated.or_else(|| planned.choices.first().map(|choice| optimistic(choice.estimate.cycles)))?;
            Some(cycles.saturating_mul(planned.repeat()).saturating_sub(self.saved_by_looping[run]))
        };
        runs.iter().filter_map(of_run).fold(0, u64::saturating_add)
    }

    pub(crate) fn route(&mut self, runs: &[usize], level: EvaluationLevel, context: &SearchContext<'_>) {
        self.route_each(runs.iter().map(|&run| (run, level)), context);
    }

    /// Evaluates runs, each as far as is asked.
    fn route_each(&mut self, runs: impl Iterator<Item = (usize, EvaluationLevel)>, context: &SearchContext<'_>) {
        let mut requested: Vec<Option<EvaluationLevel>> = vec![None; self.planned.len()];
        for (run, level) in runs {
            let requested = &mut requested[self.runs[run].class];
            *requested = (*requested).max(Some(level));
        }
        let is_part = |run: &usize| self.of(*run).is_some();
        let best = self.best_partition(0, self.workload.operators.len()).unwrap_or_default();
        let parts: Vec<usize> = best.into_iter().filter(is_part).collect();
        let cycles = self.cycles(&parts);
        let of_kinds = self.planned.par_iter_mut().zip(requested);
        let prepare = |(planned, level): (&mut Option<Planned<'_>>, Option<EvaluationLevel>)| {
            Some(planned.as_mut()?.prepare(context, level?, cycles))
        };
        let requests: Vec<Option<Request>> = of_kinds.map(prepare).collect();
        let waits = self.isomorphic(&requests);
        for turn in [false, true] {
            let equivalents = self.planned.iter().flatten().filter_map(Planned::equivalent).collect();
            let among = Among { equivalents };
            let of_turn = self.planned.par_iter_mut().zip(&requests).zip(&waits).filter(|(_, waits)| **waits == turn);
            let of_turn = of_turn.filter_map(|((planned, request), _)| Some((planned.as_mut()?, (*request)?)));
            of_turn.for_each(|(planned, request)| planned.route(context, request, &among));
        }
    }

    /// Of every class, whether it is isomorphic to another that is evaluated in full: evaluated behind that, it begins with what was
    /// found there.
    fn isomorphic(&self, requests: &[Option<Request>]) -> Vec<bool> {
        let asked = |class: usize| Some((self.planned[class].as_ref()?, requests[class]?));
        let whole: Vec<(usize, &Planned<'_>)> = (0..requests.len())
            .filter_map(|class| {
                asked(class).filter(|(_, request)| request.is_full()).map(|(planned, _)| (class, planned))
            })
            .collect();
        let waits = |class: usize| {
            asked(class).is_some_and(|(planned, request)| {
                // Of several the first is evaluated first.
                let mut before = whole.iter().take_while(|&&(other, _)| other < class || !request.is_full());
                before.any(|&(other, before)| other != class && planned.is_isomorphic_to(before))
            })
        };
        (0..requests.len()).map(waits).collect()
    }

    /// Runs of the partition of a part of the order with the least score; the index of a run that nothing covers, if
    /// there is none.
    pub(super) fn best_partition(&self, start: usize, end: usize) -> Result<Vec<usize>, usize> {
        // least[i]: score of the first i operators, and the run that ends there.
        let mut least: Vec<(u64, usize)> = vec![(u64::MAX, 0); end - start + 1];
        least[0].0 = 0;
        let mut order: Vec<usize> = (0..self.runs.len())
            .filter(|&run| start <= self.runs[run].span.0 && self.runs[run].span.1 <= end)
            .collect();
        order.sort_by_key(|&run| (self.runs[run].span.1, self.runs[run].span.0));
        for &run in &order {
            let (from, to) = self.runs[run].span;
            let Some(score) = self.score(run) else { continue };
            let score = least[from - start].0.saturating_add(score);
            if score < least[to - start].0 {
                least[to - start] = (score, run);
            }
        }
        let mut chosen = Vec::new();
        let mut at = end;
        while at > start {
            let (score, run) = least[at - start];
            if score == u64::MAX {
                return Err(order.into_iter().find(|&run| self.runs[run].span == (at - 1, at)).unwrap_or(0));
            }
            chosen.extend(self.runs[run].split_off.iter().rev());
            chosen.push(run);
            at = self.runs[run].span.0;
        }
        chosen.reverse();
        Ok(chosen)
    }

    /// A routed run, under its own names.
    pub(crate) fn chosen(&self, run: usize) -> Option<Chosen<'a>> {
        let planned = self.of(run)?;
        let routed = planned.routed()?;
        let operators = &self.runs[run].operators;
        let graph = SectionGraph::new(self.workload, operators, operators.len() > 1)?;
        let renaming = Renaming::new(&planned.graph, &graph);
        let (plan, section) = (renaming.plan(&routed.plan), renaming.section(&routed.section));
        Some(Chosen { index: run, graph, plan, section, run: routed.run.clone() })
    }

    /// The whole graph as one section.
    pub(crate) fn whole(&self) -> WholeGraph<'_, 'a> {
        let span = (0, self.workload.operators.len());
        let is_whole = |run: &Run| run.span == span && run.split_off.is_empty();
        let Some(run) = self.runs.iter().position(is_whole) else { return WholeGraph::Impossible };
        match (self.of(run), self.score(run)) {
            (Some(planned), _) => match planned.choices.first() {
                Some(choice) if planned.score() < u64::MAX => WholeGraph::Planned(&planned.graph, choice),
                _ => WholeGraph::Impossible,
            },
            (None, Some(_)) => WholeGraph::Slower,
            (None, None) => WholeGraph::Impossible,
        }
    }

    /// The first operator of a run that cannot be placed, and why.
    pub(crate) fn unplaced(&self, run: usize) -> (OperatorId, Option<Unplaced>) {
        (self.runs[run].operators[0], self.of(run).and_then(Planned::unplaced))
    }
}
