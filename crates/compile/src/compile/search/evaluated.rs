//! What the evaluation of a section's mappings has shown so far.

use std::sync::Arc;

use crate::compile::mapping::estimate::Estimate;
use crate::compile::mapping::plan::SectionPlan;
use crate::compile::params::{PARAMS, SectionLimits};
use crate::compile::physical::assemble::Unplaced;
use crate::compile::physical::route::Negotiation;
use rdusim_cost::cost::SectionRun;
use rdusim_program::Section;

use super::context::Effort;
use super::frontier::Frontier;
use super::space::Choice;
use super::trace::Trace;

/// A section placed and routed.
#[derive(Debug)]
pub(crate) struct Routed {
    /// The section.
    pub section: Arc<Section>,
    /// The plan it is made of.
    pub plan: SectionPlan,
    /// Cycles it was measured to take; else those expected, with what its fullest link or port needs.
    pub cycles: u64,
    /// The run that measured it.
    pub run: Option<SectionRun>,
    /// The choice behind it.
    pub(super) choice: Choice,
    /// Cycles that were expected before it had routes.
    pub(super) expected: u64,
    /// Its links or ports are fuller than that allows for.
    pub(super) crowded: bool,
    /// How it was placed and routed.
    pub(super) layout: LayoutEffort,
}

/// How a mapping is placed and routed.
#[derive(Debug, Clone, Copy)]
pub(super) struct LayoutEffort {
    pub(super) is_annealed: bool,
    pub(super) negotiation: Negotiation,
}

/// A section that was evaluated in full, and whose choices are those of another: the two differ in functions that cost
/// nothing, such as those in the tail of a GEMM.
#[derive(Debug, Clone)]
pub(crate) struct Isomorphic {
    pub(super) choice: Choice,
    pub(super) layout: LayoutEffort,
    pub(super) cycles: u64,
    pub(super) expected: u64,
    pub(super) section: Arc<Section>,
}

impl Routed {
    /// What sections are compared by: cycles, and the price of the bytes moved.
    pub(crate) fn score(&self) -> u64 {
        let Estimate { score, cycles, .. } = self.plan.estimate;
        self.cycles.saturating_add(score - cycles)
    }
}

/// How far a section's choices have been evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum EvaluationLevel {
    /// The least expected are run on an ideal network: enough to compare partitions by.
    Ideal,
    /// As far as the effort goes.
    Full,
}

impl EvaluationLevel {
    /// As decisions call it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ideal => "on an ideal network",
            Self::Full => "measured in full",
        }
    }
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
    pub(super) floor: u64,
    /// What the mapping is expected to take that is expected to take least.
    pub(super) least_expected: Option<Expected>,
    /// Mappings that wait to be placed, routed and measured.
    pub(super) frontier: Frontier,
    /// Scores of those that were measured, on chips of few PCUs.
    pub(super) near: Vec<(u64, Choice)>,
    /// Work so far at this effort, in steps of the event engine.
    pub(super) work: u64,
    /// Work when the last gain was made.
    pub(super) work_at_gain: u64,
    /// No choice could be placed, and more were planned.
    pub(super) is_planned_again: bool,
    /// What was decided.
    pub(super) trace: Trace,
}

/// What a mapping is expected to take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expected {
    pub(super) cycles: u64,
    pub(super) score: u64,
}

impl Evaluated {
    pub(super) fn new(choices: &[Choice], floor: u64, trace: Trace) -> Self {
        Self {
            level: EvaluationLevel::Ideal,
            best: None,
            unplaced: None,
            floor,
            least_expected: None,
            frontier: Frontier::new(choices),
            near: Vec::new(),
            work: 0,
            work_at_gain: 0,
            is_planned_again: false,
            trace,
        }
    }

    /// Goes on at more effort, which has its own work.
    pub(crate) fn go_on(&mut self) {
        self.level = EvaluationLevel::Ideal;
        self.frontier.go_on();
        (self.work, self.work_at_gain) = (0, 0);
    }

    /// Adds choices to those that wait.
    pub(crate) fn add(&mut self, choices: &[Choice]) {
        self.frontier.add(choices.iter().cloned());
    }

    /// Whether the best is as near the floor of the section as an effort asks for.
    pub(crate) fn is_near_floor(&self, effort: Effort) -> bool {
        self.is_within(SectionLimits::of(effort).gap)
    }

    pub(super) fn is_within(&self, gap: f64) -> bool {
        self.best.as_ref().is_some_and(|best| best.cycles as f64 <= self.floor as f64 * (1.0 + gap))
    }

    /// What a section with the same choices begins with, after full effort.
    pub(crate) fn isomorphic(&self) -> Option<Isomorphic> {
        let best = self.best.as_ref().filter(|best| self.level == EvaluationLevel::Full && best.run.is_some())?;
        let (choice, section) = (best.choice.clone(), Arc::clone(&best.section));
        Some(Isomorphic { choice, layout: best.layout, cycles: best.cycles, expected: best.expected, section })
    }

    /// What sections are compared by; before full effort, what that may make of it. `None` if no mapping can be placed.
    pub(crate) fn score(&self) -> Option<u64> {
        self.optimistic(self.best.as_ref().map(Routed::score), self.least_expected.map(|of| of.score))
    }

    /// Cycles once, likewise.
    pub(crate) fn cycles(&self) -> Option<u64> {
        self.optimistic(self.best.as_ref().map(|best| best.cycles), self.least_expected.map(|of| of.cycles))
    }

    fn optimistic(&self, of_best: Option<u64>, of_expected: Option<u64>) -> Option<u64> {
        // Near the floor little is left to gain.
        let is_settled = self.level == EvaluationLevel::Full || self.is_within(PARAMS.evaluation.normal.gap);
        match (of_best, of_expected) {
            (Some(found), _) if is_settled => Some(found),
            (Some(found), _) => Some(optimistic(found).max(self.floor.min(found))),
            (None, Some(expected)) if self.level == EvaluationLevel::Ideal => {
                Some(optimistic(expected).max(self.floor.min(expected)))
            }
            (None, _) => None,
        }
    }
}

/// What full effort may make of cycles that are estimated, or that low effort has shown.
pub(crate) fn optimistic(cycles: u64) -> u64 {
    (cycles as f64 * PARAMS.evaluation.optimistic_factor) as u64
}

impl SectionLimits {
    pub(super) fn of(effort: Effort) -> Self {
        match effort {
            Effort::Low => PARAMS.evaluation.quick,
            Effort::Full => PARAMS.evaluation.normal,
            Effort::Thorough => PARAMS.evaluation.thorough,
        }
    }
}
