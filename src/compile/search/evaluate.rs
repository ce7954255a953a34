//! The choice of a section's mapping: mappings are placed, routed and measured, the least expected first, until the best is near
//! the floor of the section, or nothing more is gained.
//!
//! What a mapping is expected to take is its estimate times the least ratio of measured to estimated cycles that its array of
//! PCUs has shown, or else its class: links and ports slow one array down by about as much in all its tilings. Ratios order the mappings; what
//! discards one is its lower bound alone.

use std::collections::BTreeMap;
use std::sync::Arc;

use rayon::prelude::*;

use crate::arch::Chip;
use crate::bound::section::SectionFloor;
use crate::compile::mapping::estimate::Estimate;
use crate::compile::mapping::plan::SectionPlan;
use crate::compile::params::{PARAMS, SectionLimits};
use crate::compile::physical::assemble::{Unplaced, assemble, assemble_along, assemble_annealed};
use crate::compile::physical::route::Negotiation;
use crate::cost::SectionRun;
use crate::index::IndexVec;
use crate::program::{Mapping, Section, SectionGraph, StageId};
use crate::sim::Measurement;

use super::context::{Effort, SearchContext};
use super::neighbours::neighbours;
use super::plan::plan;
use super::space::{Choice, Class, SectionSearch};

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
    layout: LayoutEffort,
}

/// How a mapping is placed and routed.
#[derive(Debug, Clone, Copy)]
struct LayoutEffort {
    is_annealed: bool,
    negotiation: Negotiation,
}

/// A section that was evaluated in full, and whose choices are those of another: the two differ in functions that cost
/// nothing, such as those in the tail of a GEMM.
#[derive(Debug, Clone)]
pub(crate) struct Isomorphic {
    choice: Choice,
    layout: LayoutEffort,
    cycles: u64,
    section: Arc<Section>,
}

impl Routed {
    /// What sections are compared by: cycles, and the price of the bytes moved.
    pub(crate) fn score(&self) -> u64 {
        let Estimate { score, cycles, .. } = self.plan.estimate;
        self.cycles.saturating_add(score - cycles)
    }

    /// Whether it takes about what was expected of it.
    fn is_as_estimated(&self) -> bool {
        self.cycles as f64 <= self.plan.estimate.cycles as f64 * PARAMS.evaluation.as_estimated
    }
}

/// How far a section's choices have been evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum EvaluationLevel {
    /// The best by estimate are measured: enough to tell what the section may take.
    Low,
    /// As far as the effort goes.
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
    /// Cycles that no mapping of the section beats, launch included.
    floor: u64,
    /// Choices that wait to be placed, routed and measured.
    open: Vec<Choice>,
    /// Choices that were.
    seen: Vec<Choice>,
    /// Scores of those that were measured, on chips of few PCUs.
    near: Vec<(u64, Choice)>,
    /// Work so far, in steps of the event engine.
    work: u64,
    /// Work when the last gain was made.
    work_at_gain: u64,
    /// Of every array of PCUs that was measured, the least ratio of cycles to those estimated.
    ratios: Vec<(IndexVec<StageId, Mapping>, f64)>,
    /// The same of every class.
    class_ratios: BTreeMap<Class, f64>,
}

impl Evaluated {
    fn new(choices: &[Choice], floor: u64) -> Self {
        Self {
            level: EvaluationLevel::Low,
            best: None,
            unplaced: None,
            floor,
            open: choices.to_vec(),
            seen: Vec::new(),
            near: Vec::new(),
            work: 0,
            work_at_gain: 0,
            ratios: Vec::new(),
            class_ratios: BTreeMap::new(),
        }
    }

    /// What a section with the same choices begins with, after full effort.
    pub(crate) fn isomorphic(&self) -> Option<Isomorphic> {
        let best = self.best.as_ref().filter(|best| self.level == EvaluationLevel::Full && best.run.is_some())?;
        let (choice, section) = (best.choice.clone(), Arc::clone(&best.section));
        Some(Isomorphic { choice, layout: best.layout, cycles: best.cycles, section })
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
        let best = self.best.as_ref()?;
        let found = of(best);
        // Near the floor little is left to gain.
        let is_near = best.cycles as f64 <= self.floor as f64 * PARAMS.evaluation.near_floor;
        let may_gain = self.level == EvaluationLevel::Low && !is_near;
        Some(if may_gain { optimistic(found).max(self.floor.min(found)) } else { found })
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

/// Measures a section's choices, and steps from the best of them. Goes on from an earlier evaluation, or begins with that of an
/// isomorphic section, and ends with it if it is as fast here. The section takes a `part` of the time of its partition.
pub(crate) fn evaluate_choices(
    context: &SearchContext<'_>,
    graph: &SectionGraph<'_>,
    choices: &[Choice],
    (before, isomorphic): (Option<Evaluated>, Option<&Isomorphic>),
    level: EvaluationLevel,
    part: f64,
) -> Evaluated {
    let chip = &*context.chip.in_section(graph.largest_off_chip_bytes());
    let evaluated = before.unwrap_or_else(|| Evaluated::new(choices, floor(context, graph)));
    let of_effort = match context.effort {
        Effort::Low => PARAMS.evaluation.quick,
        Effort::Full => PARAMS.evaluation.normal,
        Effort::Thorough => PARAMS.evaluation.thorough,
    };
    let limits = if level == EvaluationLevel::Low { PARAMS.evaluation.quick } else { of_effort };
    let is_rough = chip.pcus() > PARAMS.evaluation.few_pcus && context.effort == Effort::Full && context.measures;
    let negotiation = if is_rough { Negotiation::TRIAL } else { Negotiation::WHOLE };
    let mut trial = Trial { context, chip, graph, negotiation, limits, part, evaluated };
    let is_isomorphic = isomorphic.is_some_and(|isomorphic| trial.is_as_fast_as(isomorphic));
    if !is_isomorphic {
        trial.search(level);
    }
    trial.limits = of_effort;
    let is_last = is_isomorphic || trial.is_near_floor() || context.effort == Effort::Low || !context.measures;
    Evaluated { level: if is_last { EvaluationLevel::Full } else { level }, ..trial.evaluated }
}

/// Cycles that no mapping of a section beats, launch included.
fn floor(context: &SearchContext<'_>, graph: &SectionGraph<'_>) -> u64 {
    let SearchContext { chip, workload, tiers, bases, .. } = *context;
    let floors = bases.with_masks(|masks| SectionFloor::new(chip, workload, tiers, masks, &graph.operators));
    let least = floors.and_then(|floors| floors.least()).map_or(0, |floor| floor.alone);
    least.saturating_add(chip.launch_cycles())
}

/// The evaluation of a section's choices.
struct Trial<'t, 'g> {
    context: &'t SearchContext<'g>,
    chip: &'t Chip,
    graph: &'t SectionGraph<'t>,
    negotiation: Negotiation,
    limits: SectionLimits,
    /// Its part of the time of the partition.
    part: f64,
    evaluated: Evaluated,
}

impl Trial<'_, '_> {
    /// Measures choices, the least expected first, each step with those next to the best.
    fn search(&mut self, level: EvaluationLevel) {
        // Alone: if it takes what was expected of it, low effort needs no other.
        let mut most = 1;
        while !self.is_done() {
            let batch = self.next_batch(most);
            if batch.is_empty() && !self.lay_any() {
                break;
            }
            let before = self.evaluated.best.as_ref().map(Routed::score);
            self.measure(batch);
            let Some(best) = self.evaluated.best.as_ref() else { continue };
            if level == EvaluationLevel::Low && !best.crowded && best.is_as_estimated() {
                break;
            }
            let gains = |before: u64| (best.score() as f64) < before as f64 * (1.0 - PARAMS.evaluation.worth_a_step);
            if before.is_none_or(gains) {
                self.evaluated.work_at_gain = self.evaluated.work;
                self.open_neighbours();
            }
            most = PARAMS.evaluation.batch;
        }
        if level == EvaluationLevel::Full || self.context.effort == Effort::Low {
            self.final_effort(PARAMS.evaluation.most_final);
        }
    }

    /// The next choices to be measured: the least expected that may win, each of another array of PCUs.
    fn next_batch(&mut self, most: usize) -> Vec<Choice> {
        let open = std::mem::take(&mut self.evaluated.open);
        let mut ordered: Vec<(u64, Choice)> = open
            .into_iter()
            .filter(|choice| !self.evaluated.seen.contains(choice) && self.may_win(choice))
            .map(|choice| (self.expected(&choice), choice))
            .collect();
        // Of those within half of the gap of each other, the one with most to spare where it computes, then the one that is measured
        // soonest. Stable: of equals the first stays first.
        let step = self.limits.gap.ln_1p() / 2.0;
        let about = |cycles: u64| (cycles.max(1) as f64).ln().div_euclid(step) as u64;
        let key = |(expected, choice): &(u64, Choice)| {
            (about(*expected), about(choice.estimate.with_slow_computing()), choice.firings(), *expected)
        };
        ordered.sort_by_cached_key(key);
        let (mut batch, mut rest): (Vec<Choice>, Vec<Choice>) = (Vec::new(), Vec::new());
        for (_, choice) in ordered {
            if batch.len() < most && !batch.iter().any(|other| other.has_array_of(&choice)) {
                batch.push(choice);
            } else {
                rest.push(choice);
            }
        }
        self.evaluated.open = rest;
        batch
    }

    /// What a choice is expected to score: its estimate, as much longer as its array was measured to be, or its class.
    fn expected(&self, choice: &Choice) -> u64 {
        let Estimate { score, cycles, .. } = choice.estimate;
        let of_array = self.evaluated.ratios.iter().find(|(array, _)| is_array(array, choice)).map(|&(_, ratio)| ratio);
        let known = of_array.or_else(|| self.evaluated.class_ratios.get(&choice.class()).copied());
        (cycles as f64 * known.unwrap_or(1.0)) as u64 + (score - cycles)
    }

    /// Adds what lies next to the best.
    fn open_neighbours(&mut self) {
        let Some(best) = &self.evaluated.best else { return };
        let SearchContext { tiers, bases, .. } = *self.context;
        let search = SectionSearch { chip: self.chip, graph: self.graph, tiers, cache: bases };
        let mut near = neighbours(&search, &best.choice);
        near.retain(|choice| !self.evaluated.open.contains(choice));
        self.evaluated.open.append(&mut near);
    }

    /// Where no choice can be placed: more choices. Whether there are any.
    fn lay_any(&mut self) -> bool {
        if self.evaluated.best.is_some() || self.context.effort == Effort::Thorough {
            return false;
        }
        let SearchContext { tiers, bases, .. } = *self.context;
        let search = SectionSearch { chip: self.chip, graph: self.graph, tiers, cache: bases };
        let mut more = plan(&search, Effort::Thorough).unwrap_or_default();
        more.retain(|choice| !self.evaluated.seen.contains(choice));
        self.evaluated.open = more;
        !self.evaluated.open.is_empty()
    }

    /// Routes the best with more care; keeps what is not slower: its links are less full. On chips of few PCUs the best
    /// `most`, each in several ways, also with annealed places.
    fn final_effort(&mut self, most: usize) {
        let Some(best) = self.evaluated.best.as_ref().filter(|best| best.run.is_some() && !self.is_near_floor()) else {
            return;
        };
        if self.chip.pcus() > PARAMS.evaluation.few_pcus {
            // What stages and memory alone take, no route shortens.
            let is_slowed = best.cycles as f64 > best.plan.estimate.cycles as f64 * PARAMS.evaluation.slowed_by_routes;
            if is_slowed && self.context.effort > Effort::Low {
                let whole = LayoutEffort { is_annealed: false, negotiation: Negotiation::WHOLE };
                self.lay_again(best.choice.clone(), whole);
            }
            return;
        }
        let good = (best.score() as f64 * PARAMS.evaluation.near_best) as u64;
        let mut near = std::mem::take(&mut self.evaluated.near);
        near.retain(|&(score, _)| score <= good);
        // Stable: of equals the first stays first.
        near.sort_by_key(|&(score, _)| score);
        near.dedup_by(|a, b| a.1 == b.1);
        for (_, choice) in near.into_iter().take(if self.context.effort == Effort::Low { 1 } else { most }) {
            for is_annealed in [false, true] {
                for negotiation in [Negotiation::WHOLE, Negotiation::FULLER] {
                    if self.work_left() > 0 {
                        self.lay_again(choice.clone(), LayoutEffort { is_annealed, negotiation });
                    }
                }
            }
        }
    }

    /// Places, routes and measures a choice once more; it becomes the best if it is not slower.
    fn lay_again(&mut self, choice: Choice, layout: LayoutEffort) {
        let Some(best) = self.evaluated.best.as_ref().filter(|_| self.context.measures) else { return };
        let allowed = |cycles: u64| cycles.saturating_add((cycles as f64 * PARAMS.evaluation.as_fast) as u64);
        let (most_cycles, most, crowded) = (allowed(best.cycles), allowed(best.score()), best.crowded);
        if let Some(routed) = self.layout_in(choice, layout, most_cycles).filter(|routed| routed.score() <= most) {
            self.evaluated.best = Some(Routed { crowded, ..routed });
        }
    }

    /// A choice placed and routed with an effort of its own, and measured to take at most so many cycles.
    fn layout_in(&mut self, choice: Choice, layout: LayoutEffort, most_cycles: u64) -> Option<Routed> {
        self.context.stop.check();
        let (chip, graph, SearchContext { fabric, tiers, .. }) = (self.chip, self.graph, self.context);
        let plan = choice.plan(chip, graph);
        self.evaluated.work += layout_work(chip);
        let (section, _) = if layout.is_annealed {
            assemble_annealed(chip, fabric, graph, &plan, tiers, layout.negotiation)?
        } else {
            assemble(chip, fabric, graph, &plan, tiers, layout.negotiation, &[]).ok()?
        };
        self.measured_to_take(RoutedChoice { section, plan, choice, layout }, most_cycles)
    }

    /// A section as the best so far may be, if it takes at most so many cycles.
    fn measured_to_take(&mut self, routed_choice: RoutedChoice, most_cycles: u64) -> Option<Routed> {
        let RoutedChoice { section, plan, choice, layout } = routed_choice;
        let Measurement::Takes(cycles, run) = self.measured(&section, most_cycles) else { return None };
        Some(Routed { section: Arc::new(section), plan, cycles, run: Some(run), choice, crowded: false, layout })
    }

    /// Begins with the best of an isomorphic section, on the same routes where its ports are the same. Whether it is as fast here:
    /// then no other will be faster either.
    fn is_as_fast_as(&mut self, isomorphic: &Isomorphic) -> bool {
        let (chip, graph, SearchContext { fabric, tiers, .. }) = (self.chip, self.graph, self.context);
        let most = isomorphic.cycles.saturating_add((isomorphic.cycles as f64 * PARAMS.evaluation.as_fast) as u64);
        let (choice, layout) = (isomorphic.choice.clone(), isomorphic.layout);
        let plan = choice.plan(chip, graph);
        let along =
            assemble_along(chip, fabric, graph, &plan, tiers, &isomorphic.section).filter(|_| !layout.is_annealed);
        let found = match along {
            Some(section) => self.measured_to_take(RoutedChoice { section, plan, choice, layout }, most),
            None => self.layout_in(choice, layout, most),
        };
        let is_found = found.is_some();
        self.evaluated.best = found.or(self.evaluated.best.take());
        is_found
    }

    /// Whether a choice could be faster than the best so far, by its lower bound, known before it has places.
    fn may_win(&self, choice: &Choice) -> bool {
        let Some(best) = &self.evaluated.best else { return true };
        let price = choice.estimate.score - choice.estimate.cycles;
        let least = self.least_cycles(choice) as u64;
        least.saturating_add(price) < best.score()
    }

    /// Remembers how much slower than estimated an array of PCUs was measured, at least.
    fn learn(&mut self, choice: &Choice, cycles: u64) {
        let ratio = cycles as f64 / choice.estimate.cycles.max(1) as f64;
        self.evaluated
            .class_ratios
            .entry(choice.class())
            .and_modify(|least| *least = least.min(ratio))
            .or_insert(ratio);
        match self.evaluated.ratios.iter_mut().find(|(array, _)| is_array(array, choice)) {
            Some((_, least)) => *least = least.min(ratio),
            None => self.evaluated.ratios.push((choice.picked.iter().map(|c| c.mapping).collect(), ratio)),
        }
    }

    /// Places and routes choices side by side, and measures them from the least expected on; keeps the fastest, of equals the first.
    fn measure(&mut self, choices: Vec<Choice>) {
        let layouts: Vec<Result<Layout, Unplaced>> = choices.par_iter().map(|choice| self.lay(choice)).collect();
        self.evaluated.work += layout_work(self.chip) * choices.len() as u64;
        self.evaluated.seen.extend(choices);
        let refused = layouts.iter().filter_map(|layout| layout.as_ref().err()).next_back();
        self.evaluated.unplaced = refused.copied().or(self.evaluated.unplaced);
        let mut layouts: Vec<Layout> = layouts.into_iter().filter_map(Result::ok).collect();
        // Stable: of equals the first stays first.
        layouts.sort_by_key(|layout| layout.expected);
        for layout in layouts {
            if self.is_near_floor() || self.is_spent() {
                break;
            }
            if self.may_win(&layout.choice) {
                self.run(layout);
            }
        }
    }

    /// Measures a choice that has places and routes.
    fn run(&mut self, layout: Layout) {
        let crowded = layout.is_crowded();
        let Layout { plan, section, expected, choice } = layout;
        let fastest = self.evaluated.best.as_ref().map_or(u64::MAX, |best| best.cycles);
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
        let layout = LayoutEffort { is_annealed: false, negotiation: self.negotiation };
        let routed = Routed { section: Arc::new(section), plan, cycles, run, choice, crowded, layout };
        if routed.run.is_some() && self.chip.pcus() <= PARAMS.evaluation.few_pcus {
            self.evaluated.near.push((routed.score(), routed.choice.clone()));
        }
        if self.evaluated.best.as_ref().is_none_or(|best| routed.score() < best.score()) {
            self.evaluated.best = Some(routed);
        }
    }

    /// Cycles that a choice takes at least, as far as its masks are known.
    fn least_cycles(&self, choice: &Choice) -> f64 {
        let sampled = self.graph.stages.ids().any(|s| self.graph.mask(s).or(self.graph.sampled(s)).is_some());
        choice.estimate.least_cycles as f64 * if sampled { PARAMS.evaluation.sampled_bound } else { 1.0 }
    }

    /// Runs a section, as far as the work goes that is left to measure with.
    fn measured(&mut self, section: &Section, most_cycles: u64) -> Measurement {
        // The first is measured to the end: there is nothing to stop it for.
        let least = if self.evaluated.best.is_none() { PARAMS.evaluation.normal.work } else { 0 };
        let measured = self.context.measure(section, most_cycles, self.work_left().max(least));
        self.evaluated.work += match &measured {
            Measurement::Takes(_, run) => run.work,
            Measurement::TooLong(work) | Measurement::Unknown { work, .. } => *work,
        };
        measured
    }

    /// Work that the section's mappings may still be measured with.
    fn work_left(&self) -> u64 {
        self.limits.work.saturating_sub(self.evaluated.work)
    }

    /// Whether the work is spent, or has long gained nothing.
    fn is_spent(&self) -> bool {
        let Evaluated { work, work_at_gain, .. } = self.evaluated;
        self.context.measures && (self.work_left() == 0 || work - work_at_gain >= self.patience())
    }

    /// Work without a gain after which none is tried for: less where the partition has less to gain of this section.
    fn patience(&self) -> u64 {
        let best = self.evaluated.best.as_ref().map_or(f64::INFINITY, |best| best.cycles as f64);
        let may_gain = (best / self.evaluated.floor.max(1) as f64 - 1.0) * self.part.min(1.0);
        (self.limits.patience as f64 * (may_gain / PARAMS.evaluation.worth_all_patience).min(1.0)) as u64
    }

    /// Whether no mapping is faster than the best by more than the gap.
    fn is_near_floor(&self) -> bool {
        let near = |best: &Routed| best.cycles as f64 <= self.evaluated.floor as f64 * (1.0 + self.limits.gap);
        self.evaluated.best.as_ref().is_some_and(near)
    }

    /// Whether there is nothing more to do: the best is near the floor, or the work is spent.
    fn is_done(&self) -> bool {
        let has_enough = !self.context.measures || self.is_near_floor() || self.is_spent();
        self.evaluated.best.is_some() && has_enough
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

/// What placing and routing a mapping takes, in steps of the event engine.
fn layout_work(chip: &Chip) -> u64 {
    PARAMS.evaluation.layout_steps + chip.pcus() * PARAMS.evaluation.layout_steps_per_pcu
}

/// Whether a choice's stages are mapped as those of an array.
fn is_array(array: &IndexVec<StageId, Mapping>, choice: &Choice) -> bool {
    array.iter().eq(choice.picked.iter().map(|candidate| &candidate.mapping))
}

/// A choice placed and routed with an effort of its own.
struct RoutedChoice {
    section: Section,
    plan: SectionPlan,
    choice: Choice,
    layout: LayoutEffort,
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
