//! A possible section: the choices that were planned for it, and what measuring them has shown.

use std::sync::Arc;

use crate::compile::params::PARAMS;
use crate::compile::physical::assemble::Unplaced;
use rdusim_base::index::Id;
use rdusim_base::units::whole;
use rdusim_graph::arch::TierId;
use rdusim_program::SectionGraph;

use super::context::SearchContext;
use super::evaluate::evaluate_choices;
use super::evaluated::{Evaluated, EvaluationLevel, Isomorphic, Routed};
use super::plan::plan;
use super::space::{Choice, SectionSearch};

/// A possible section and its plans, best first.
#[derive(Debug)]
pub(super) struct Planned<'a> {
    pub(super) graph: SectionGraph<'a>,
    /// What is worth evaluating, best first.
    pub(super) choices: Arc<[Choice]>,
    /// The choices are those of the search at full effort, if that is asked for.
    is_refined: bool,
    pub(super) evaluated: Option<Evaluated>,
    /// Cycles of one repetition that prefetching has been measured to save of the best at most.
    pub(super) measured_saving: Option<u64>,
}

/// What sections are evaluated among.
pub(super) struct Among {
    /// What other sections that were evaluated had to choose from, and the best of it.
    pub(super) equivalents: Vec<(Arc<[Choice]>, Isomorphic)>,
}

/// What is asked of the evaluation of a section.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request {
    /// How far it counts as evaluated afterwards.
    level: EvaluationLevel,
    /// How far it is evaluated; `None` if that has been done already, or is not worth it.
    evaluate: Option<EvaluationLevel>,
    /// Its part of the time of the best partition so far.
    part: f64,
}

impl Request {
    /// Whether it is evaluated in full.
    pub(super) fn is_full(self) -> bool {
        self.evaluate == Some(EvaluationLevel::Full)
    }
}

impl<'a> Planned<'a> {
    /// A section with its choices, best first, none of them measured.
    pub(super) fn new(graph: SectionGraph<'a>, choices: Vec<Choice>, is_refined: bool) -> Self {
        Self { graph, choices: choices.into(), is_refined, evaluated: None, measured_saving: None }
    }

    /// Plans it at full effort if it has not been. What is to be done to evaluate it as far as `level`, among sections that take
    /// `cycles` together.
    pub(super) fn prepare(&mut self, context: &SearchContext<'_>, level: EvaluationLevel, cycles: u64) -> Request {
        let part = self.score() as f64 / cycles as f64;
        let is_near_floor = self.evaluated.as_ref().is_some_and(|evaluated| evaluated.is_near_floor(context.effort));
        if !self.is_refined && !is_near_floor {
            self.is_refined = true;
            let chip = context.chip.in_section(self.graph.largest_off_chip_bytes());
            let search = SectionSearch { chip: &chip, graph: &self.graph, tiers: context.tiers, cache: context.bases };
            if let Ok(choices) = plan(&search, context.effort) {
                self.choices = choices.into();
                if let Some(evaluated) = &mut self.evaluated {
                    evaluated.add(&self.choices);
                }
            }
        }
        let is_due = self.evaluated.as_ref().is_none_or(|evaluated| evaluated.level < level);
        Request { level, part, evaluate: is_due.then_some(level) }
    }

    /// Goes on at more effort.
    pub(super) fn go_on(&mut self) {
        self.is_refined = false;
        self.measured_saving = None;
        if let Some(evaluated) = &mut self.evaluated {
            evaluated.go_on();
        }
    }

    /// Places, routes and measures its choices as far as is asked, and keeps the fastest.
    pub(super) fn route(&mut self, context: &SearchContext<'_>, request: Request, among: &Among) {
        if let Some(level) = request.evaluate {
            let before = self.evaluated.take();
            let isomorphic = among
                .equivalents
                .iter()
                .find(|(choices, _)| *choices == self.choices)
                .map(|(_, isomorphic)| isomorphic);
            self.evaluated =
                Some(evaluate_choices(context, &self.graph, &self.choices, before, isomorphic, level, request.part));
        }
        if let Some(evaluated) = &mut self.evaluated {
            evaluated.level = evaluated.level.max(request.level);
        }
    }

    /// Whether it differs from `other` in functions alone that cost nothing, and is not evaluated in full.
    pub(super) fn is_isomorphic_to(&self, other: &Self) -> bool {
        !self.is_evaluated_in_full() && self.choices == other.choices
    }

    /// Its choices and the best of them, if it was evaluated in full.
    pub(super) fn equivalent(&self) -> Option<(Arc<[Choice]>, Isomorphic)> {
        Some((Arc::clone(&self.choices), self.evaluated.as_ref()?.isomorphic()?))
    }

    /// Times it runs.
    pub(super) fn repeat(&self) -> u64 {
        self.graph.workload.operators[self.graph.operators[0]].repeat
    }

    /// What partitions are compared by: cycles, and the price of the bytes moved.
    pub(super) fn score(&self) -> u64 {
        self.score_once().saturating_mul(self.repeat())
    }

    fn score_once(&self) -> u64 {
        match &self.evaluated {
            // What cannot be placed is no candidate.
            Some(evaluated) => evaluated.score().unwrap_or(u64::MAX),
            None if self.is_refined => self.choices.first().map_or(u64::MAX, |choice| choice.estimate.score),
            None => self
                .choices
                .first()
                .map_or(u64::MAX, |choice| (choice.estimate.score as f64 * PARAMS.partition.refined_score) as u64),
        }
    }

    fn is_evaluated_in_full(&self) -> bool {
        self.evaluated.as_ref().is_some_and(|evaluated| evaluated.level == EvaluationLevel::Full)
    }

    /// Cycles of one repetition that prefetching may save of what the score counts.
    pub(super) fn saved_by_prefetch(&self) -> u64 {
        if let Some(saved) = self.measured_saving {
            return saved;
        }
        if let Some(routed) = self.routed().filter(|_| self.is_evaluated_in_full()) {
            return routed.plan.estimate.prefetch_saves_cycles;
        }
        let least =
            self.choices.iter().map(|c| c.estimate.score.saturating_sub(c.estimate.prefetch_saves_cycles)).min();
        self.choices.first().zip(least).map_or(0, |(first, least)| first.estimate.score.saturating_sub(least))
    }

    /// Cycles of one repetition in which a memory tier has time to load weights of the section behind it: measured, or as
    /// estimated.
    pub(super) fn idle_memory_cycles(&self, tier: TierId) -> u64 {
        let run = self.routed().and_then(|routed| routed.run.as_ref());
        let measured = run.map(|run| run.cycles.saturating_sub(run.tier_busy_cycles[tier.index()]));
        let estimated = || self.choices.iter().map(|choice| choice.estimate.idle_memory_cycles).max();
        measured.or_else(estimated).unwrap_or(0)
    }

    /// What was decided of it, one line each.
    pub(super) fn decisions(&self) -> Vec<String> {
        if let Some(evaluated) = &self.evaluated {
            return evaluated.trace.lines().to_vec();
        }
        let estimated = self.choices.first().map_or(0, |choice| choice.estimate.cycles);
        let estimated = whole(estimated);
        vec![format!("not run: {estimated} cycles by estimate, and other partitions take less")]
    }

    /// It, placed and routed.
    pub(super) fn routed(&self) -> Option<&Routed> {
        self.evaluated.as_ref()?.best.as_ref()
    }

    /// Why the last plan that could not be placed could not.
    pub(super) fn unplaced(&self) -> Option<Unplaced> {
        self.evaluated.as_ref()?.unplaced
    }
}
