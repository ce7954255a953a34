//! The choice of a section's mapping: mappings are run on an ideal network, placed, routed and measured, the least expected first
//! ([`super::frontier`]), until the best is near the floor of the section, or nothing more is gained.

use std::sync::Arc;

use rayon::prelude::*;

use crate::compile::mapping::estimate::Estimate;
use crate::compile::mapping::plan::SectionPlan;
use crate::compile::params::{PARAMS, SectionLimits};
use crate::compile::physical::assemble::{Unplaced, assemble, assemble_along, assemble_annealed};
use crate::compile::physical::route::Negotiation;
use rdusim_base::units::whole;
use rdusim_cost::bound::section::SectionFloor;
use rdusim_engines::sim::Measurement;
use rdusim_graph::arch::Chip;
use rdusim_program::{Section, SectionGraph};

use super::context::{Effort, SearchContext};
use super::evaluated::{Evaluated, EvaluationLevel, Expected, Isomorphic, LayoutEffort, Routed};
use super::frontier::Open;
use super::ideal_network::{IdealRun, WorkedOut, run_on_ideal_network, work_out};
use super::neighbours::neighbours;
use super::plan::plan;
use super::space::{Choice, SectionSearch};
use super::trace::{self, Trace};

/// Measures a section's choices, and steps from the best of them. Goes on from an earlier evaluation, or begins with that of an
/// isomorphic section, and ends with it if it is as fast here. The section takes a `part` of the time of its partition.
pub(crate) fn evaluate_choices(
    context: &SearchContext<'_>,
    graph: &SectionGraph<'_>,
    choices: &[Choice],
    before: Option<Evaluated>,
    isomorphic: Option<&Isomorphic>,
    level: EvaluationLevel,
    part: f64,
) -> Evaluated {
    let chip = &*context.chip.in_section(graph.largest_off_chip_bytes());
    let evaluated = before.unwrap_or_else(|| {
        let floor = floor(context, graph);
        let mut lines = Trace::new(context.traces);
        lines.add(|| format!("{} mappings by estimate; none takes less than {} cycles", choices.len(), whole(floor)));
        Evaluated::new(choices, floor, lines)
    });
    let of_effort = SectionLimits::of(context.effort);
    let limits = if level < EvaluationLevel::Full { PARAMS.evaluation.quick } else { of_effort };
    // Where estimates are believed, nothing is run.
    let level = if context.measures { level } else { EvaluationLevel::Full };
    let is_rough = chip.pcus() > PARAMS.evaluation.few_pcus && context.effort == Effort::Full && context.measures;
    let negotiation = if is_rough { Negotiation::TRIAL } else { Negotiation::WHOLE };
    let mut trial = Trial { context, chip, graph, negotiation, limits, part, evaluated };
    trial.trace(|| format!("effort {}, {}", context.effort.name(), level.name()));
    if level == EvaluationLevel::Ideal {
        trial.run_first_on_ideal_network();
        return Evaluated { level, ..trial.evaluated };
    }
    if !isomorphic.is_some_and(|isomorphic| trial.is_as_fast_as(isomorphic)) {
        trial.search();
    }
    Evaluated { level: EvaluationLevel::Full, ..trial.evaluated }
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
    fn search(&mut self) {
        // The first alone: what it shows of mappings like it orders the others.
        let (mut most, mut has_ended) = (1, false);
        while !self.is_done() {
            let batch = self.next_batch(most);
            if batch.is_empty() && !self.lay_any() {
                self.trace(|| "ends: no mapping is left that is worth placing".to_owned());
                has_ended = true;
                break;
            }
            let before = self.evaluated.best.as_ref().map(Routed::score);
            self.measure(&batch);
            let Some(best) = self.evaluated.best.as_ref() else { continue };
            let gains = |before: u64| (best.score() as f64) < before as f64 * (1.0 - PARAMS.evaluation.worth_a_step);
            if before.is_none_or(gains) {
                self.evaluated.work_at_gain = self.evaluated.work;
                self.open_neighbours();
            }
            most = PARAMS.evaluation.batch;
        }
        if !has_ended {
            self.trace_end();
        }
        self.finish_cut_short();
        self.final_effort(PARAMS.evaluation.most_final);
    }

    /// The next to be measured: the least expected that may win, each of another array of PCUs. None if they are expected to take
    /// much longer than the best.
    fn next_batch(&mut self, most: usize) -> Vec<Open> {
        let mut picked = self.least_expected(most);
        if self.context.measures {
            picked.retain(|&at| self.is_near_best(self.evaluated.frontier.get(at)));
        }
        self.evaluated.frontier.take(&picked)
    }

    /// The places of the least expected, each of another array of PCUs. Where mappings are measured, they are run on an ideal
    /// network first, and with them those that were expected to be faster, in about the time in which they are placed.
    fn least_expected(&mut self, most: usize) -> Vec<usize> {
        let most_work = self.evaluated.work + layout_work(self.chip) * most as u64;
        loop {
            self.order();
            let is_late = self.evaluated.work >= most_work;
            let frontier = &self.evaluated.frontier;
            // One that waits is as near the floor as is asked for: others need not be run before it is placed.
            let is_enough = frontier.least_expected_of_run().is_some_and(|least| self.is_near_floor_with(least));
            let may_gain = |open: &Open| (open.ideal.is_some() || !is_enough) && self.may_gain(open);
            let picked = frontier.first_of_arrays(most, |open| (!is_late || open.ideal.is_some()) && may_gain(open));
            if !self.context.measures || picked.iter().all(|&at| frontier.get(at).ideal.is_some()) {
                return picked;
            }
            let next = frontier.first_unrun(PARAMS.evaluation.ideal_batch, may_gain);
            let (context, chip, graph) = (self.context, self.chip, self.graph);
            let all: Vec<WorkedOut> =
                next.par_iter().map(|&at| work_out(chip, graph, &frontier.get(at).choice)).collect();
            let mut others: Vec<(usize, WorkedOut)> = Vec::new();
            for (&at, worked_out) in next.iter().zip(all) {
                if !self.evaluated.frontier.is_repeated(at, worked_out.identity.clone()) {
                    others.push((at, worked_out));
                }
            }
            let most_work = self.most_ideal_work();
            let run_one = |(_, worked_out): &(usize, WorkedOut)| {
                run_on_ideal_network(context, chip, graph, worked_out, most_work)
            };
            let runs: Vec<IdealRun> = others.par_iter().map(run_one).collect();
            for ((at, _), run) in others.into_iter().zip(runs) {
                let choice = &self.evaluated.frontier.get(at).choice;
                let (estimated, name) = (whole(choice.estimate.cycles), trace::mapping(choice, self.graph));
                self.evaluated.trace.add(|| match run.cycles {
                    Some(ideal) => {
                        format!("on an ideal network {}, estimated {estimated}: {name}", whole(ideal))
                    }
                    None => format!("comes to no end on an ideal network: {name}"),
                });
                self.evaluated.frontier.add_ideal_run(at, run);
                self.evaluated.work += run.work + layout_work(self.chip) / PARAMS.evaluation.setups_per_layout;
            }
        }
    }

    /// Whether a mapping that was run on an ideal network is expected to be faster than the best by more than the gap, or to move fewer
    /// bytes in no more time; before that run, whether it is expected to be near. On chips of few PCUs, where placing takes no longer
    /// than such a run, any gain counts that the run leaves.
    fn may_gain(&self, open: &Open) -> bool {
        let Some(best) = self.evaluated.best.as_ref().filter(|best| self.context.measures && best.run.is_some()) else {
            return true;
        };
        if open.is_cut_short {
            return false;
        }
        let price = |of: &Estimate| of.score - of.cycles;
        let (own, of_best) = (price(&open.choice.estimate), price(&best.plan.estimate));
        let gap = if own < of_best { 0.0 } else { self.limits.gap };
        let is_small = self.chip.pcus() <= PARAMS.evaluation.few_pcus;
        match open.ideal {
            Some(ideal) if is_small => ideal.least.saturating_add(own) < best.score(),
            Some(_) => self.evaluated.frontier.expected(open) as f64 * (1.0 + gap) < best.score() as f64,
            None => self.is_near_best(open),
        }
    }

    /// Whether a mapping is not expected to take much longer than the best.
    fn is_near_best(&self, open: &Open) -> bool {
        let expected = self.evaluated.frontier.expected(open) as f64;
        self.evaluated
            .best
            .as_ref()
            .is_none_or(|best| expected <= best.score() as f64 * PARAMS.evaluation.most_expected)
    }

    /// Puts the mappings that wait in order of what they are expected to take; of those within half of the gap of each other, the one
    /// that moves fewer bytes comes first, then the one with most to spare where it computes, then the one that is measured soonest.
    fn order(&mut self) {
        let step = self.limits.gap.ln_1p() / 2.0;
        let about = |cycles: u64| (cycles.max(1) as f64).ln().div_euclid(step) as u64;
        let measures = self.context.measures;
        let key = |expected: u64, open: &Open| {
            let bucket = if measures { about(expected) } else { expected };
            let Estimate { score, cycles, .. } = open.choice.estimate;
            let slow = about(open.choice.estimate.with_slow_computing());
            (bucket, score - cycles, slow, open.choice.firings(), expected)
        };
        let mut frontier = std::mem::take(&mut self.evaluated.frontier);
        frontier.order(|choice| self.may_win(choice), key);
        self.evaluated.frontier = frontier;
    }

    /// Work on an ideal network from which on measuring takes more than all there is.
    fn most_ideal_work(&self) -> u64 {
        self.limits.work / PARAMS.evaluation.work_over_ideal
    }

    /// Runs the mapping on an ideal network that is expected to take least.
    fn run_first_on_ideal_network(&mut self) {
        let first = self.least_expected(1).first().copied();
        self.evaluated.least_expected = first.map(|at| {
            let open = self.evaluated.frontier.get(at);
            Expected { cycles: open.cycles(), score: self.evaluated.frontier.expected(open) }
        });
    }

    fn trace(&mut self, line: impl FnOnce() -> String) {
        self.evaluated.trace.add(line);
    }

    /// Adds what lies next to the best.
    fn open_neighbours(&mut self) {
        let Some(best) = &self.evaluated.best else { return };
        let SearchContext { tiers, bases, .. } = *self.context;
        let search = SectionSearch { chip: self.chip, graph: self.graph, tiers, cache: bases };
        let near = neighbours(&search, &best.choice);
        self.evaluated.frontier.add(near);
    }

    /// Where no choice can be placed: more choices. Whether there are any.
    fn lay_any(&mut self) -> bool {
        if self.evaluated.best.is_some() || self.evaluated.is_planned_again {
            return false;
        }
        self.evaluated.is_planned_again = true;
        let SearchContext { tiers, bases, .. } = *self.context;
        let search = SectionSearch { chip: self.chip, graph: self.graph, tiers, cache: bases };
        self.evaluated.frontier.add(plan(&search, Effort::Thorough).unwrap_or_default())
    }

    /// Routes the best with more care; keeps what is not slower: its links are less full. On chips of few PCUs the best
    /// `most`, each in several ways, also with annealed places.
    fn final_effort(&mut self, most: usize) {
        let Some(best) = self.evaluated.best.as_ref().filter(|best| best.run.is_some() && !self.is_near_floor()) else {
            return;
        };
        if self.chip.pcus() > PARAMS.evaluation.few_pcus {
            // What stages and memory alone take, no route shortens.
            let is_slowed = best.cycles as f64 > best.expected as f64 * PARAMS.evaluation.slowed_by_routes;
            if is_slowed && self.context.effort > Effort::Low {
                let whole = LayoutEffort { is_annealed: false, negotiation: Negotiation::WHOLE };
                self.lay_again(best.choice.clone(), best.expected, whole);
            }
            return;
        }
        let good = (best.score() as f64 * PARAMS.evaluation.near_best) as u64;
        let mut near = self.evaluated.near.clone();
        near.retain(|&(score, _)| score <= good);
        // Stable: of equals the first stays first.
        near.sort_by_key(|&(score, _)| score);
        near.dedup_by(|a, b| a.1 == b.1);
        for (_, choice) in near.into_iter().take(if self.context.effort == Effort::Low { 1 } else { most }) {
            for is_annealed in [false, true] {
                for negotiation in [Negotiation::WHOLE, Negotiation::FULLER] {
                    if self.work_left() > 0 {
                        let expected = choice.estimate.cycles;
                        self.lay_again(choice.clone(), expected, LayoutEffort { is_annealed, negotiation });
                    }
                }
            }
        }
    }

    /// Places, routes and measures a choice once more; it becomes the best if it is not slower.
    fn lay_again(&mut self, choice: Choice, expected: u64, layout: LayoutEffort) {
        let Some(best) = self.evaluated.best.as_ref().filter(|_| self.context.measures) else { return };
        let allowed = |cycles: u64| cycles.saturating_add((cycles as f64 * PARAMS.evaluation.as_fast) as u64);
        let (most_cycles, most, crowded) = (allowed(best.cycles), allowed(best.score()), best.crowded);
        if let Some(routed) =
            self.layout_in(choice, expected, layout, most_cycles).filter(|routed| routed.score() <= most)
        {
            self.evaluated.best = Some(Routed { crowded, ..routed });
        }
    }

    /// A choice placed and routed with an effort of its own, and measured to take at most so many cycles.
    fn layout_in(&mut self, choice: Choice, expected: u64, layout: LayoutEffort, most_cycles: u64) -> Option<Routed> {
        self.context.stop.check();
        let (chip, graph, SearchContext { fabric, tiers, .. }) = (self.chip, self.graph, self.context);
        let plan = choice.plan(chip, graph);
        self.evaluated.work += layout_work(chip);
        let (section, _) = if layout.is_annealed {
            assemble_annealed(chip, fabric, graph, &plan, tiers, layout.negotiation)?
        } else {
            assemble(chip, fabric, graph, &plan, tiers, layout.negotiation, &[]).ok()?
        };
        self.measured_to_take(RoutedChoice { section, plan, choice, expected, layout }, most_cycles)
    }

    /// A section as the best so far may be, if it takes at most so many cycles.
    fn measured_to_take(&mut self, routed_choice: RoutedChoice, most_cycles: u64) -> Option<Routed> {
        let RoutedChoice { section, plan, choice, expected, layout } = routed_choice;
        let Measurement::Takes(cycles, run) = self.measured(&section, most_cycles, false) else { return None };
        let section = Arc::new(section);
        Some(Routed { section, plan, cycles, run: Some(run), choice, expected, crowded: false, layout })
    }

    /// Begins with the best of an isomorphic section, on the same routes where its ports are the same. Whether it is as fast here:
    /// then no other will be faster either.
    fn is_as_fast_as(&mut self, isomorphic: &Isomorphic) -> bool {
        let (chip, graph, SearchContext { fabric, tiers, .. }) = (self.chip, self.graph, self.context);
        let most = isomorphic.cycles.saturating_add((isomorphic.cycles as f64 * PARAMS.evaluation.as_fast) as u64);
        let (choice, expected, layout) = (isomorphic.choice.clone(), isomorphic.expected, isomorphic.layout);
        let plan = choice.plan(chip, graph);
        let along =
            assemble_along(chip, fabric, graph, &plan, tiers, &isomorphic.section).filter(|_| !layout.is_annealed);
        let found = match along {
            Some(section) => self.measured_to_take(RoutedChoice { section, plan, choice, expected, layout }, most),
            None => self.layout_in(choice, expected, layout, most),
        };
        let is_found = found.is_some();
        let as_fast = if is_found { "ends: as fast" } else { "slower" };
        self.trace(|| format!("{as_fast} with the mapping of a section of the same choices"));
        self.evaluated.best = found.or(self.evaluated.best.take());
        is_found
    }

    /// Whether a choice could be faster than the best so far, by its lower bound, known before it has places.
    fn may_win(&self, choice: &Choice) -> bool {
        let Some(best) = &self.evaluated.best else { return true };
        let price = choice.estimate.score - choice.estimate.cycles;
        let least = choice.estimate.least_cycles;
        least.saturating_add(price) < best.score()
    }

    /// Places and routes choices side by side, and measures them from the least expected on; keeps the fastest, of equals the first.
    fn measure(&mut self, choices: &[Open]) {
        let layouts: Vec<Result<Layout, Unplaced>> = choices.par_iter().map(|open| self.lay(open)).collect();
        self.evaluated.work += layout_work(self.chip) * choices.len() as u64;
        let refused = layouts.iter().filter_map(|layout| layout.as_ref().err()).next_back();
        self.evaluated.unplaced = refused.copied().or(self.evaluated.unplaced);
        for unplaced in layouts.iter().filter_map(|layout| layout.as_ref().err()) {
            self.evaluated.trace.add(|| format!("cannot be placed: {unplaced}"));
        }
        let mut layouts: Vec<Layout> = layouts.into_iter().filter_map(Result::ok).collect();
        // Stable: of equals the first stays first.
        layouts.sort_by_key(|layout| layout.expected);
        for layout in layouts {
            if self.is_done() {
                break;
            }
            if !self.may_win(&layout.open.choice) {
                continue;
            }
            if self.is_behind_others(&layout) {
                self.put_back(layout);
            } else {
                self.run(layout);
            }
        }
    }

    /// Whether its links are so full that others are expected to be faster: they are tried before it is measured.
    fn is_behind_others(&self, layout: &Layout) -> bool {
        if !layout.is_crowded() || layout.open.at_least.is_some() || !self.context.measures {
            return false;
        }
        let Estimate { score, cycles, .. } = layout.open.choice.estimate;
        let expected = layout.expected.saturating_add(score - cycles);
        let is_beaten = self.evaluated.best.as_ref().is_some_and(|best| best.score() <= expected);
        let is_much_more = |least: u64| expected as f64 > least as f64 * PARAMS.evaluation.as_estimated;
        is_beaten || self.evaluated.frontier.least_expected().is_some_and(is_much_more)
    }

    /// Lets a mapping wait with what its fullest link shows.
    fn put_back(&mut self, layout: Layout) {
        let Layout { expected, mut open, .. } = layout;
        let graph = self.graph;
        self.trace(|| {
            let shown = whole(expected);
            format!("placed and routed: its fullest link takes {shown}: {}", trace::mapping(&open.choice, graph))
        });
        self.evaluated.frontier.learn(&open, expected);
        open.at_least = Some(expected);
        self.evaluated.frontier.put_back(open);
    }

    /// Measures a choice that has places and routes.
    fn run(&mut self, layout: Layout) {
        let (graph, crowded) = (self.graph, layout.is_crowded());
        let Layout { plan, section, expected, mut open } = layout;
        let fastest = self.evaluated.best.as_ref().map_or(u64::MAX, |best| best.cycles);
        // One that moves fewer bytes may take a little longer.
        let price = |plan: &SectionPlan| plan.estimate.score - plan.estimate.cycles;
        let spared = self.evaluated.best.as_ref().map_or(0, |best| price(&best.plan).saturating_sub(price(&plan)));
        let most = fastest.saturating_add(spared);
        let (cycles, run) = match self.measured(&section, most, open.is_cut_short) {
            Measurement::Takes(cycles, run) => (cycles, Some(run)),
            Measurement::TooLong(_) => (u64::MAX, None),
            // Where nothing is measured, estimates are believed.
            Measurement::Unknown { .. } if !self.context.measures => (expected, None),
            // It waits with the rate that it has had so far, and others are tried.
            Measurement::Unknown { at_rate, .. } => {
                let at_rate = expected.max(at_rate);
                self.trace(|| {
                    let shown = whole(at_rate);
                    format!("placed and routed: {shown} at the rate so far: {}", trace::mapping(&open.choice, graph))
                });
                (open.at_least, open.is_cut_short) = (Some(at_rate), true);
                self.evaluated.frontier.put_back(open);
                return;
            }
        };
        self.trace_measured(&open.choice, fastest, cycles);
        // A run that is stopped would have taken longer than it was allowed.
        self.evaluated.frontier.learn(&open, cycles.min(most));
        let layout = LayoutEffort { is_annealed: false, negotiation: self.negotiation };
        let (section, expected, choice) = (Arc::new(section), open.cycles(), open.choice);
        let routed = Routed { section, plan, cycles, run, choice, expected, crowded, layout };
        if routed.run.is_some() && self.chip.pcus() <= PARAMS.evaluation.few_pcus {
            self.evaluated.near.push((routed.score(), routed.choice.clone()));
        }
        let is_found = routed.run.is_some() || !self.context.measures;
        if is_found && self.evaluated.best.as_ref().is_none_or(|best| routed.score() < best.score()) {
            self.evaluated.best = Some(routed);
        }
    }

    /// Measures to the end, whatever work that takes, the mapping whose run was cut short that would be faster than the best by more
    /// than mappings take longer than expected, at the rate that its run has shown.
    fn finish_cut_short(&mut self) {
        let Some(best) = self.evaluated.best.as_ref().map(Routed::score) else { return };
        let Some(open) = self.evaluated.frontier.take_least_of_cut_short() else { return };
        let expected = self.evaluated.frontier.expected(&open);
        if (expected as f64) * PARAMS.evaluation.as_estimated >= best as f64 {
            self.evaluated.frontier.put_back(open);
            return;
        }
        if let Ok(layout) = self.lay(&open) {
            self.evaluated.work += layout_work(self.chip);
            self.run(layout);
        }
    }

    fn trace_measured(&mut self, choice: &Choice, fastest: u64, took: u64) {
        let graph = self.graph;
        self.trace(|| {
            let shown = match took {
                u64::MAX => format!("slower than {}", whole(fastest)),
                _ if took < fastest => format!("{}, the best so far", whole(took)),
                _ => format!("{}, fewer bytes", whole(took)),
            };
            format!("placed and routed: {shown}: {}", trace::mapping(choice, graph))
        });
    }

    /// Says why the search ends.
    fn trace_end(&mut self) {
        let (gap, floor, work) = (self.limits.gap, self.evaluated.floor, self.evaluated.work);
        let best = self.evaluated.best.as_ref().map_or(0, |best| best.cycles);
        let is_near = self.is_near_floor();
        let is_out_of_work = self.work_left() == 0;
        self.trace(|| match (is_near, is_out_of_work) {
            (true, _) => {
                let share = (best as f64 / floor.max(1) as f64 - 1.0) * 100.0;
                format!("ends: {} is within {:.1} % of the floor ({share:.2} %)", whole(best), gap * 100.0)
            }
            (_, true) => format!("ends: the work is spent ({} steps of the engine)", whole(work)),
            _ => "ends: nothing was gained for as long as is worth it".to_owned(),
        });
    }

    /// Runs a section, if the work that is left is enough: a part of it shows how much all of the run takes. The first may take that of
    /// normal effort; one that was cut short before is measured to the end, as it is tried again only where it must be.
    fn measured(&mut self, section: &Section, most_cycles: u64, was_cut_short: bool) -> Measurement {
        let left = match &self.evaluated.best {
            _ if was_cut_short => u64::MAX,
            None => self.work_left().max(PARAMS.evaluation.normal.work),
            Some(_) => self.work_left(),
        };
        let trial = if was_cut_short { left } else { left / PARAMS.evaluation.trial_part };
        let mut measured = self.context.measure(section, most_cycles, trial);
        if let Measurement::Unknown { work, all_work, .. } = measured {
            self.evaluated.work += work;
            // A run may take a little more than it was given.
            let rest = left.saturating_sub(work);
            if all_work > rest {
                return measured;
            }
            measured = self.context.measure(section, most_cycles, rest);
        }
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

    /// Whether the work is spent, or has long gained nothing and no gain is expected.
    fn is_spent(&self) -> bool {
        let Evaluated { work, work_at_gain, .. } = self.evaluated;
        let is_patient = || work - work_at_gain < self.patience() || self.is_gain_expected();
        self.context.measures && (self.work_left() == 0 || !is_patient())
    }

    /// Whether one that waits is expected to be faster than the best by more than mappings take longer than expected.
    fn is_gain_expected(&self) -> bool {
        let least = self.evaluated.frontier.least_expected_of_run().unwrap_or(u64::MAX);
        let best = self.evaluated.best.as_ref().map_or(u64::MAX, Routed::score);
        (least as f64) * PARAMS.evaluation.as_estimated < best as f64
    }

    /// Work without a gain after which none is tried for: less where the partition has less to gain of this section.
    fn patience(&self) -> u64 {
        let best = self.evaluated.best.as_ref().map_or(f64::INFINITY, |best| best.cycles as f64);
        let may_gain = (best / self.evaluated.floor.max(1) as f64 - 1.0) * self.part.min(1.0);
        (self.limits.patience as f64
            * (may_gain / PARAMS.evaluation.worth_patience).min(PARAMS.evaluation.most_patience)) as u64
    }

    /// Whether no mapping is faster than so many cycles by more than the gap.
    fn is_near_floor_with(&self, cycles: u64) -> bool {
        cycles as f64 <= self.evaluated.floor as f64 * (1.0 + self.limits.gap)
    }

    /// Whether no mapping is faster than the best by more than the gap.
    fn is_near_floor(&self) -> bool {
        self.evaluated.is_within(self.limits.gap)
    }

    /// Whether there is nothing more to do: the best is near the floor, or the work is spent.
    fn is_done(&self) -> bool {
        let has_enough = !self.context.measures || self.is_near_floor() || self.is_spent();
        self.evaluated.best.is_some() && has_enough
    }

    fn lay(&self, open: &Open) -> Result<Layout, Unplaced> {
        let (chip, graph, context) = (self.chip, self.graph, self.context);
        context.stop.check();
        let plan = open.choice.plan(chip, graph);
        let (section, fullest) = assemble(chip, context.fabric, graph, &plan, context.tiers, self.negotiation, &[])?;
        let crowded = (plan.estimate.link_cycles(chip) as f64 * fullest) as u64 + chip.launch_cycles();
        let expected = open.cycles().max(crowded);
        Ok(Layout { plan, section, expected, open: open.clone() })
    }
}

/// What placing and routing a mapping takes, in steps of the event engine.
fn layout_work(chip: &Chip) -> u64 {
    PARAMS.evaluation.layout_steps + chip.pcus() * PARAMS.evaluation.layout_steps_per_pcu
}

/// A choice placed and routed with an effort of its own.
struct RoutedChoice {
    section: Section,
    plan: SectionPlan,
    choice: Choice,
    expected: u64,
    layout: LayoutEffort,
}

/// A choice placed and routed, before it is measured.
struct Layout {
    plan: SectionPlan,
    section: Section,
    /// Cycles on an ideal network or as estimated, or what its fullest link or port needs if that is more.
    expected: u64,
    open: Open,
}

impl Layout {
    fn is_crowded(&self) -> bool {
        self.expected > self.open.cycles()
    }
}
