//! How many mappings of a section are tried.

use crate::arch::Chip;
use crate::compile::params::PARAMS;
use crate::compile::physical::route::Negotiation;
use crate::program::{SectionGraph, StageId};

use super::context::Effort;

/// How many mappings are placed and measured, by the size of the chip: what placing, routing and measuring one takes
/// grows with it.
#[derive(Debug, Clone, Copy)]
pub(super) struct TrialBudget {
    /// Of those the plan search found.
    pub(super) found: usize,
    /// Of neighbours of the best.
    pub(super) steps: usize,
    /// How links of a trial are negotiated.
    pub(super) negotiation: Negotiation,
    /// That is less than all that helps.
    pub(super) is_low_effort: bool,
}

impl TrialBudget {
    /// For one of `at_once` classes of sections. A large mask makes the evaluation of every mapping longer.
    pub(super) fn new(chip: &Chip, graph: &SectionGraph<'_>, at_once: usize, effort: Effort) -> Self {
        let is_large = |stage: StageId| {
            graph
                .mask(stage)
                .is_some_and(|mask| mask.k_blocks() * mask.n_blocks() > PARAMS.evaluation.large_mask_blocks)
        };
        let budget = &PARAMS.evaluation;
        let most = match chip.pcus() {
            _ if graph.stages.ids().any(is_large) => budget.most_trials_of_a_large_mask,
            pcus if pcus <= budget.few_pcus => budget.most_trials_on_few_pcus,
            _ => budget.most_trials,
        };
        let all = (budget.trials_times_pcus / chip.pcus().max(1)).clamp(budget.least_trials, most) as usize;
        let full = budget.sections_at_full_budget;
        let is_thorough = effort == Effort::Thorough;
        let times = if is_thorough { budget.thorough_trials } else { 1 };
        let each = (all * full / at_once.max(full)).max(budget.least_trials_of_many) * times;
        let is_low_effort = chip.pcus() > budget.few_pcus && !is_thorough;
        let negotiation = if is_low_effort { Negotiation::TRIAL } else { Negotiation::WHOLE };
        Self { found: each.div_ceil(2), steps: each / 2, negotiation, is_low_effort }
    }
}
