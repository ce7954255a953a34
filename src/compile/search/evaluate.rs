//! The choice of a section's mapping: the best by estimate are placed, routed and measured, and the best is improved
//! step by step.

use std::sync::Arc;

use rayon::prelude::*;

use crate::arch::Chip;
use crate::compile::mapping::estimate::Estimate;
use crate::compile::mapping::plan::SectionPlan;
use crate::compile::params::PARAMS;
use crate::compile::physical::assemble::{Unplaced, assemble, assemble_along, assemble_annealed};
use crate::compile::physical::route::Negotiation;
use crate::cost::{SectionRun, least_cycles};
use crate::index::IndexVec;
use crate::program::{Mapping, Section, SectionGraph, StageId};
use crate::sim::Measurement;

use super::budget::TrialBudget;
use super::context::{Effort, SearchContext};
use super::neighbours::neighbours;
use super::order::{bring_axes_forward, ranked};
use super::plan::plan;
use super::space::{Choice, SectionSearch};

/// A section placed and routed.
#[derive(Debug)]
pub(crate) struct Routed {
    /// It.
    pub section: Arc<Section>,
    /// The plan it is made of.
    pub plan: SectionPlan,
    /// Cycles it was measured to take; else the estimate, with what its fullest link or port needs.
    pub cycles: u64,
    /// The run that measured it.
    pub run: Option<SectionRun>,
    /// The choice behind it.
    choice: Choice,
    /// Its links or ports are fuller than its estimate allows for.
    crowded: bool,
    /// How it was placed and routed.
    way: Way,
}

/// A way to place and route a mapping.
#[derive(Debug, Clone, Copy)]
struct Way {
    is_annealed: bool,
    negotiation: Negotiation,
}

/// A section that was evaluated in full, and whose choices are those of another: the two differ in functions that cost
/// nothing, such as those in the tail of a GEMM.
#[derive(Debug, Clone)]
pub(crate) struct Isomorphic {
    choice: Choice,
    way: Way,
    cycles: u64,
    section: Arc<Section>,
}

impl Routed {
    /// What sections are compared by: cycles, and the price of the bytes moved.
    pub(crate) fn score(&self) -> u64 {
        let Estimate { score, cycles, .. } = self.plan.estimate;
        self.cycles.saturating_add(score - cycles)
    }

    /// Whether it takes about what was expected of it, or less than is expected of another.
    fn is_good_beside(&self, other: &Choice) -> bool {
        let cycles = self.cycles as f64;
        cycles <= self.plan.estimate.cycles as f64 * PARAMS.evaluation.as_estimated
            || cycles <= other.estimate.cycles as f64
    }
}

/// How far a section's choices have been evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum EvaluationLevel {
    /// The best by estimate are measured: enough to tell what the section may take.
    Low,
    /// More of them, and steps from the best.
    Full,
}

/// What the evaluation of a section's choices has shown.
#[derive(Debug)]
pub(crate) struct Evaluated {
    /// How far that went.
    pub level: EvaluationLevel,
    /// The best of them; `None` if none can be placed.
    pub best: Option<Routed>,
    /// Why the last that could not be placed could not.
    pub unplaced: Option<Unplaced>,
    /// Choices that were placed and routed.
    seen: Vec<Choice>,
    /// Scores of those that were measured, on chips of few PCUs.
    near: Vec<(u64, Choice)>,
    /// Of the order in which they are evaluated, so many.
    tried: usize,
    /// Work of the runs that measured them.
    work: u64,
    /// Of every array of PCUs that was measured, the least ratio of cycles to those estimated.
    ratios: Vec<(IndexVec<StageId, Mapping>, f64)>,
}

impl Evaluated {
    /// What a section with the same choices begins with, after full effort.
    pub(crate) fn isomorphic(&self) -> Option<Isomorphic> {
        let best = self.best.as_ref().filter(|best| self.level == EvaluationLevel::Full && best.run.is_some())?;
        let (choice, section) = (best.choice.clone(), Arc::clone(&best.section));
        Some(Isomorphic { choice, way: best.way, cycles: best.cycles, section })
    }

    /// What sections are compared by. After low effort, what full effort may make of it.
    pub(crate) fn score(&self) -> Option<u64> {
        self.optimistic(Routed::score)
    }

    /// Cycles once, likewise.
    pub(crate) fn cycles(&self) -> Option<u64> {
        self.optimistic(|routed| routed.cycles)
    }

    fn optimistic(&self, of: impl Fn(&Routed) -> u64) -> Option<u64> {
        let found = of(self.best.as_ref()?);
        Some(if self.level == EvaluationLevel::Low { optimistic(found) } else { found })
    }
}

/// What full effort may make of cycles that are estimated, or that low effort has shown.
pub(crate) fn optimistic(cycles: u64) -> u64 {
    (cycles as f64 * PARAMS.evaluation.optimistic_factor) as u64
}

/// What cycles count as that are not measured to the end.
fn unmeasured(cycles: u64) -> u64 {
    (cycles as f64 * PARAMS.evaluation.unmeasured) as u64
}

/// Measures the best by estimate of a section's choices and, at full effort, steps from the best of them. Goes on from
/// an earlier evaluation, or begins with that of an isomorphic section, and ends with it if it is as fast here. `at_once`: kinds of
/// sections that are evaluated.
pub(crate) fn evaluate_choices(
    context: &SearchContext<'_>,
    graph: &SectionGraph<'_>,
    choices: &[Choice],
    (before, isomorphic): (Option<Evaluated>, Option<&Isomorphic>),
    level: EvaluationLevel,
    at_once: usize,
) -> Evaluated {
    let chip = &*context.chip.in_section(graph.largest_off_chip_bytes());
    let effort = TrialBudget::new(chip, graph, at_once, context.effort);
    let floor = least_cycles(chip, graph.workload, context.tiers, &graph.operators);
    let is_new = before.is_none();
    let evaluated = before.unwrap_or(Evaluated {
        level,
        best: None,
        unplaced: None,
        seen: Vec::new(),
        near: Vec::new(),
        tried: 0,
        work: 0,
        ratios: Vec::new(),
    });
    let mut trial = Trial { context, chip, graph, negotiation: effort.negotiation, floor, evaluated };
    let expected = choices.first().map_or(0, |choice| choice.estimate.cycles);
    if context.effort == Effort::Low || !context.measures {
        trial.negotiation = Negotiation::WHOLE;
        trial.look_at_low_effort(choices, expected);
        return Evaluated { level: EvaluationLevel::Full, ..trial.evaluated };
    }
    if let Some(isomorphic) = isomorphic.filter(|_| is_new)
        && trial.is_as_fast_as(isomorphic)
    {
        return Evaluated { level: EvaluationLevel::Full, ..trial.evaluated };
    }
    let mut order = ranked(choices);
    let found = effort.found + bring_axes_forward(choices, &mut order, 1 + effort.found);
    if is_new {
        trial.evaluate_at_low_effort(choices, &order, found, level);
    }
    if level == EvaluationLevel::Full {
        if trial.evaluated.tried == 1 && !trial.is_done() {
            // Low effort ended with the first.
            let batch = &order[1..order.len().min(1 + found)];
            trial.evaluated.tried += batch.len();
            trial.measure(of(choices, batch));
        }
        trial.look_further(choices, &order, expected, effort);
    }
    let level = if trial.is_done() { EvaluationLevel::Full } else { level };
    Evaluated { level, ..trial.evaluated }
}

/// The evaluation of a section's choices.
struct Trial<'t, 'g> {
    context: &'t SearchContext<'g>,
    chip: &'t Chip,
    graph: &'t SectionGraph<'t>,
    negotiation: Negotiation,
    /// Cycles that no mapping beats.
    floor: f64,
    evaluated: Evaluated,
}

impl Trial<'_, '_> {
    /// Measures few choices, and steps from the best if it takes longer than `expected`.
    fn look_at_low_effort(&mut self, choices: &[Choice], expected: u64) {
        for index in ranked(choices) {
            let next = &choices[index];
            let best = self.evaluated.best.as_ref();
            if best.is_some_and(|best| {
                self.evaluated.seen.len() >= PARAMS.evaluation.low_effort_trials || best.is_good_beside(next)
            }) {
                break;
            }
            self.measure(vec![next.clone()]);
        }
        if self.evaluated.best.is_none() && self.context.effort == Effort::Low {
            self.lay_any();
        }
        self.improve(PARAMS.evaluation.low_effort_neighbours, |best| {
            best.cycles as f64 <= expected as f64 * PARAMS.evaluation.far_from_estimate
        });
        if self.chip.pcus() <= PARAMS.evaluation.few_pcus {
            self.final_effort(1);
        }
    }

    /// Measures the first choice, alone if nothing speaks against it. If it takes longer than estimated, or with
    /// `level` full, also a batch of `found` others.
    fn evaluate_at_low_effort(&mut self, choices: &[Choice], order: &[usize], found: usize, level: EvaluationLevel) {
        let (first, others) = order.split_at(order.len().min(1));
        self.evaluated.tried = first.len();
        let mut layouts = self.lay_all(of(choices, first));
        if !layouts.iter().any(Layout::is_crowded) {
            self.run(std::mem::take(&mut layouts));
        }
        let is_as_estimated = |best: &Routed| {
            !best.crowded && best.cycles as f64 <= best.plan.estimate.cycles as f64 * PARAMS.evaluation.as_estimated
        };
        if level == EvaluationLevel::Low && self.evaluated.best.as_ref().is_some_and(is_as_estimated) {
            return;
        }
        for batch in others.chunks(found) {
            self.evaluated.tried += batch.len();
            if !self.is_done() {
                layouts.extend(self.lay_all(of(choices, batch)));
            }
            self.run(std::mem::take(&mut layouts));
            if self.evaluated.best.is_some() {
                break;
            }
        }
        self.run(layouts);
    }

    /// Takes steps from the best; further batches and steps where links and ports cost more than `expected`: others may
    /// fare better.
    fn look_further(&mut self, choices: &[Choice], order: &[usize], expected: u64, effort: TrialBudget) {
        self.improve(effort.steps, |_| false);
        let is_far = |best: &Routed| {
            let (cycles, estimated) = (best.cycles as f64, best.plan.estimate.cycles as f64);
            cycles > expected as f64 * PARAMS.evaluation.far_from_estimate
                || cycles * PARAMS.evaluation.below_estimate < estimated
        };
        for batch in order[self.evaluated.tried..].chunks(effort.found).take(PARAMS.evaluation.more_batches) {
            if self.is_done() || !self.evaluated.best.as_ref().is_some_and(is_far) {
                break;
            }
            self.evaluated.tried += batch.len();
            self.measure(of(choices, batch));
            self.improve(effort.steps, |best| !is_far(best));
        }
        if effort.is_low_effort
            && let Some(best) = self.evaluated.best.as_ref().filter(|best| best.crowded)
        {
            let choice = best.choice.clone();
            self.negotiation = Negotiation::WHOLE;
            self.measure(vec![choice]);
        }
        self.final_effort(PARAMS.evaluation.most_final);
    }

    /// Routes the best with more care; keeps what is not slower: its links are less full. On chips of few PCUs the best
    /// `most`, each in several ways, also with annealed places.
    fn final_effort(&mut self, most: usize) {
        let Some(best) = self.evaluated.best.as_ref().filter(|best| best.run.is_some() && !self.is_done()) else {
            return;
        };
        if self.chip.pcus() > PARAMS.evaluation.few_pcus {
            // What stages and memory alone take, no route shortens.
            if best.cycles as f64 <= best.plan.estimate.cycles as f64 * PARAMS.evaluation.slowed_by_routes {
                return;
            }
            self.lay_again(best.choice.clone(), Way { is_annealed: false, negotiation: Negotiation::WHOLE });
            return;
        }
        let good = (best.score() as f64 * PARAMS.evaluation.near_best) as u64;
        let mut near = std::mem::take(&mut self.evaluated.near);
        near.retain(|&(score, _)| score <= good);
        // Stable: of equals the first stays first.
        near.sort_by_key(|&(score, _)| score);
        near.dedup_by(|a, b| a.1 == b.1);
        for (_, choice) in near.into_iter().take(most) {
            for is_annealed in [false, true] {
                for negotiation in [Negotiation::WHOLE, Negotiation::FULLER] {
                    if !self.has_spent_its_work() {
                        self.lay_again(choice.clone(), Way { is_annealed, negotiation });
                    }
                }
            }
        }
    }

    /// Places, routes and measures a choice once more; it becomes the best if it is not slower.
    fn lay_again(&mut self, choice: Choice, way: Way) {
        let Some(best) = self.evaluated.best.as_ref().filter(|_| self.context.measures) else { return };
        let allowed = |cycles: u64| cycles.saturating_add((cycles as f64 * PARAMS.evaluation.as_fast) as u64);
        let (most_cycles, most, crowded) = (allowed(best.cycles), allowed(best.score()), best.crowded);
        if let Some(routed) = self.layout_in(choice, way, most_cycles).filter(|routed| routed.score() <= most) {
            self.evaluated.best = Some(Routed { crowded, ..routed });
        }
    }

    /// A choice placed and routed in a way of its own, and measured to take at most so many cycles.
    fn layout_in(&mut self, choice: Choice, way: Way, most_cycles: u64) -> Option<Routed> {
        self.context.stop.check();
        let (chip, graph, SearchContext { fabric, tiers, .. }) = (self.chip, self.graph, self.context);
        let plan = choice.plan(chip, graph);
        let (section, _) = if way.is_annealed {
            assemble_annealed(chip, fabric, graph, &plan, tiers, way.negotiation)?
        } else {
            assemble(chip, fabric, graph, &plan, tiers, way.negotiation, &[]).ok()?
        };
        self.measured_to_take(RoutedChoice { section, plan, choice, way }, most_cycles)
    }

    /// A section as the best so far may be, if it takes at most so many cycles.
    fn measured_to_take(&mut self, routed_choice: RoutedChoice, most_cycles: u64) -> Option<Routed> {
        let RoutedChoice { section, plan, choice, way } = routed_choice;
        let Measurement::Takes(cycles, run) = self.measured(&section, most_cycles) else { return None };
        Some(Routed { section: Arc::new(section), plan, cycles, run: Some(run), choice, crowded: false, way })
    }

    /// Begins with the best of an isomorphic section, on the same routes where its ports are the same. Whether it is as fast here:
    /// then no other will be faster either.
    fn is_as_fast_as(&mut self, isomorphic: &Isomorphic) -> bool {
        let (chip, graph, SearchContext { fabric, tiers, .. }) = (self.chip, self.graph, self.context);
        let most = isomorphic.cycles.saturating_add((isomorphic.cycles as f64 * PARAMS.evaluation.as_fast) as u64);
        let (choice, way) = (isomorphic.choice.clone(), isomorphic.way);
        let plan = choice.plan(chip, graph);
        let along = assemble_along(chip, fabric, graph, &plan, tiers, &isomorphic.section).filter(|_| !way.is_annealed);
        self.evaluated.best = match along {
            Some(section) => self.measured_to_take(RoutedChoice { section, plan, choice, way }, most),
            None => self.layout_in(choice, way, most),
        };
        self.evaluated.best.is_some()
    }

    /// Whether a choice could be faster than the best so far: by its lower bound, and by its estimate, as far as the same
    /// array of PCUs has been measured in other tiles. Links and ports slow an array down by about as much in all of them.
    fn may_win(&self, choice: &Choice) -> bool {
        let Some(best) = &self.evaluated.best else { return true };
        let wanted = best.cycles as f64 * (1.0 - PARAMS.evaluation.worth_a_step);
        // On few PCUs estimates are rougher, and measuring is cheap.
        let known = self.evaluated.ratios.iter().find(|(array, _)| is_array(array, choice));
        let known = known.filter(|_| self.chip.pcus() > PARAMS.evaluation.few_pcus);
        let may_take = choice.estimate.cycles as f64 * (1.0 - PARAMS.evaluation.array_noise);
        let predicted = known.map_or(0.0, |&(_, ratio)| may_take * ratio);
        self.least_cycles(choice).max(predicted) < wanted
    }

    /// Remembers how much slower than estimated an array of PCUs was measured, at least.
    fn learn(&mut self, choice: &Choice, cycles: u64) {
        let ratio = cycles as f64 / choice.estimate.cycles.max(1) as f64;
        match self.evaluated.ratios.iter_mut().find(|(array, _)| is_array(array, choice)) {
            Some((_, least)) => *least = least.min(ratio),
            None => self.evaluated.ratios.push((choice.picked.iter().map(|c| c.mapping).collect(), ratio)),
        }
    }

    /// Searches at full effort for a choice that can be placed, where low effort found none.
    fn lay_any(&mut self) {
        let SearchContext { tiers, bases, .. } = *self.context;
        let search = SectionSearch { chip: self.chip, graph: self.graph, tiers, cache: bases };
        for choice in plan(&search, Effort::Full).unwrap_or_default() {
            self.measure(vec![choice]);
            if self.evaluated.best.is_some() {
                break;
            }
        }
    }

    /// Measures neighbours of the best, step by step, until none is better, or the best is good enough.
    fn improve(&mut self, mut steps: usize, good: impl Fn(&Routed) -> bool) {
        let SearchContext { tiers, effort, bases, .. } = *self.context;
        let search = SectionSearch { chip: self.chip, graph: self.graph, tiers, cache: bases };
        while steps > 0 && !self.is_done() {
            let Some(best) = self.evaluated.best.as_ref().filter(|best| !good(best)) else { break };
            let mut near = neighbours(&search, &best.choice);
            near.retain(|choice| !self.evaluated.seen.contains(choice) && self.may_win(choice));
            if near.is_empty() {
                break;
            }
            near.truncate(
                if effort == Effort::Low { PARAMS.evaluation.low_effort_batch } else { PARAMS.evaluation.batch }
                    .min(steps),
            );
            steps -= near.len();
            let before = best.score();
            self.measure(near);
            let is_better = self.evaluated.best.as_ref().is_some_and(|best| best.score() < before);
            if effort == Effort::Low && !is_better {
                break;
            }
        }
    }

    /// Places, routes and measures choices.
    fn measure(&mut self, choices: Vec<Choice>) {
        let layouts = self.lay_all(choices);
        self.run(layouts);
    }

    /// Places and routes choices side by side, those that can be, and that could be measured then.
    fn lay_all(&mut self, choices: Vec<Choice>) -> Vec<Layout> {
        let worth = choices.par_iter().filter(|choice| self.may_be_measured(choice) && self.may_win(choice));
        let layouts: Vec<Result<Layout, Unplaced>> = worth.map(|choice| self.lay(choice)).collect();
        self.evaluated.seen.extend(choices);
        self.evaluated.unplaced =
            layouts.iter().filter_map(|layout| layout.as_ref().err()).next_back().copied().or(self.evaluated.unplaced);
        layouts.into_iter().filter_map(Result::ok).collect()
    }

    /// Measures choices from the best by estimate on; keeps the fastest, of equals the first.
    fn run(&mut self, mut layouts: Vec<Layout>) {
        // Stable: of equals the first stays first.
        layouts.sort_by_key(|layout| layout.expected);
        for layout in layouts {
            let fastest = self.evaluated.best.as_ref().map_or(u64::MAX, |best| best.cycles);
            if self.is_done() || self.is_hopeless(layout.expected) {
                break;
            }
            if !self.may_win(&layout.choice) {
                continue;
            }
            let crowded = layout.is_crowded();
            let Layout { plan, section, expected, choice } = layout;
            // One that moves fewer bytes may take a little longer.
            let price = |plan: &SectionPlan| plan.estimate.score - plan.estimate.cycles;
            let spared = self.evaluated.best.as_ref().map_or(0, |best| price(&best.plan).saturating_sub(price(&plan)));
            let most = fastest.saturating_add(spared);
            let (cycles, run) = match self.measured(&section, most) {
                Measurement::Takes(cycles, run) => (cycles, Some(run)),
                Measurement::TooLong(_) => (u64::MAX, None),
                // Where nothing is measured, estimates are believed.
                Measurement::Unknown { .. } if !self.context.measures => (expected, None),
                Measurement::Unknown { at_rate, .. } => (unmeasured(expected.max(at_rate)), None),
            };
            self.learn(&choice, if run.is_some() { cycles } else { cycles.min(most) });
            let way = Way { is_annealed: false, negotiation: self.negotiation };
            let routed = Routed { section: Arc::new(section), plan, cycles, run, choice, crowded, way };
            if routed.run.is_some() && self.chip.pcus() <= PARAMS.evaluation.few_pcus {
                self.evaluated.near.push((routed.score(), routed.choice.clone()));
            }
            if self.evaluated.best.as_ref().is_none_or(|best| routed.score() < best.score()) {
                self.evaluated.best = Some(routed);
            }
        }
    }

    /// Whether a choice is expected to take so much longer than the best that it is not measured.
    fn is_hopeless(&self, expected: u64) -> bool {
        let hopeless = if self.chip.pcus() <= PARAMS.evaluation.few_pcus {
            PARAMS.evaluation.hopeless_on_few_pcus
        } else {
            PARAMS.evaluation.hopeless
        };
        self.evaluated.best.as_ref().is_some_and(|best| expected as f64 > best.cycles as f64 * hopeless)
    }

    /// Whether a choice can be measured at all, and can beat the best by its lower bound: known before it has places.
    fn may_be_measured(&self, choice: &Choice) -> bool {
        let price = choice.estimate.score - choice.estimate.cycles;
        let least = self.least_cycles(choice) as u64;
        let may_beat = |best: &Routed| least.saturating_add(price) < best.score();
        !self.is_hopeless(choice.estimate.cycles) && self.evaluated.best.as_ref().is_none_or(may_beat)
    }

    /// Cycles that a choice takes at least, as far as its masks are known.
    fn least_cycles(&self, choice: &Choice) -> f64 {
        let sampled = self.graph.stages.ids().any(|s| self.graph.mask(s).or(self.graph.sampled(s)).is_some());
        choice.estimate.least_cycles as f64 * if sampled { PARAMS.evaluation.sampled_bound } else { 1.0 }
    }

    /// Runs a section, as far as the work goes that is left to measure with.
    fn measured(&mut self, section: &Section, most_cycles: u64) -> Measurement {
        let measured = self.context.measure(section, most_cycles, self.work_left() / 2);
        self.evaluated.work += match &measured {
            Measurement::Takes(_, run) => run.work,
            Measurement::TooLong(work) | Measurement::Unknown { work, .. } => *work,
        };
        measured
    }

    /// Work that the section's mappings may still be measured with.
    fn work_left(&self) -> u64 {
        let times = if self.context.effort == Effort::Thorough { PARAMS.evaluation.thorough_trials as u64 } else { 1 };
        (PARAMS.evaluation.work_of_a_section * times).saturating_sub(self.evaluated.work)
    }

    /// Whether too little work is left to measure another mapping with.
    fn has_spent_its_work(&self) -> bool {
        self.work_left() < PARAMS.evaluation.work_of_a_section / 8
    }

    /// Whether the best so far is as good as need be, or too long to be measured, or no work is left to measure with.
    fn is_done(&self) -> bool {
        let near = |best: &Routed| best.cycles as f64 <= self.floor * PARAMS.evaluation.near_lower_bound;
        let is_spent = || self.context.measures && self.has_spent_its_work();
        self.evaluated.best.as_ref().is_some_and(|best| near(best) || is_spent())
    }

    fn lay(&self, choice: &Choice) -> Result<Layout, Unplaced> {
        let (chip, graph, context) = (self.chip, self.graph, self.context);
        context.stop.check();
        let plan = choice.plan(chip, graph);
        let (section, fullest) = assemble(chip, context.fabric, graph, &plan, context.tiers, self.negotiation, &[])?;
        let crowded = (plan.estimate.link_cycles(chip) as f64 * fullest) as u64 + chip.launch_cycles();
        let expected = plan.estimate.cycles.max(crowded);
        Ok(Layout { plan, section, expected, choice: choice.clone() })
    }
}

/// Whether a choice's stages are mapped as those of an array.
fn is_array(array: &IndexVec<StageId, Mapping>, choice: &Choice) -> bool {
    array.iter().eq(choice.picked.iter().map(|candidate| &candidate.mapping))
}

/// Some choices.
fn of(choices: &[Choice], indices: &[usize]) -> Vec<Choice> {
    indices.iter().map(|&index| choices[index].clone()).collect()
}

/// A choice placed and routed in a way of its own.
struct RoutedChoice {
    section: Section,
    plan: SectionPlan,
    choice: Choice,
    way: Way,
}

/// A choice placed and routed, before it is measured.
struct Layout {
    plan: SectionPlan,
    section: Section,
    /// Cycles by the estimate, or what its fullest link or port needs if that is more.
    expected: u64,
    choice: Choice,
}

impl Layout {
    fn is_crowded(&self) -> bool {
        self.expected > self.plan.estimate.cycles
    }
}
