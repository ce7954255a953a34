//! The search for a section's loop nest, tiles and unit allocation.
//!
//! Loop nests are walked over ([`super::walk`]); each that is met is given its best allocations of PCUs to stages and costed in
//! closed form, and the cheapest of each class that fit are kept.

use crate::compile::mapping::residency::Residency;
use crate::compile::params::{PARAMS, WalkLimits};
use rdusim_base::units::Dtype;
use rdusim_cost::cost::chain;

use super::context::Effort;
use super::space::{Choice, SectionSearch};
use super::walk::walk;

/// Why no plan was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoPlan {
    /// The chip cannot compute in a stage's data type.
    Dtype(Dtype),
    /// The smallest plan needs this many PMU bytes.
    Sram(u64),
    /// The smallest plan needs this many PCUs.
    Pcus(u64),
}

/// Finds the choices of a section that are worth evaluating, by score, best first: of every loop order and residency the best, and
/// the best if computing were dearer than thought.
pub(crate) fn plan(context: &SectionSearch<'_>, effort: Effort) -> Result<Vec<Choice>, NoPlan> {
    plan_within(context, WalkLimits::of(effort))
}

/// The same from few nests: of many possible sections of a large graph, those that may be chosen are planned again.
pub(super) fn outline(context: &SectionSearch<'_>) -> Result<Vec<Choice>, NoPlan> {
    plan_within(context, PARAMS.nests.outlined)
}

fn plan_within(context: &SectionSearch<'_>, limits: WalkLimits) -> Result<Vec<Choice>, NoPlan> {
    let SectionSearch { chip, graph, .. } = *context;
    for stage in graph.stages.ids() {
        let dtype = graph.stage_dtype(stage);
        if chip.macs_per_cycle(dtype).is_none() {
            return Err(NoPlan::Dtype(dtype));
        }
    }
    let walked = walk(context, limits);
    let least_banks = walked.least_banks();
    let mut choices: Vec<Choice> = Vec::new();
    for kept in walked.kept.into_values() {
        choices.extend(kept.best.into_values().flatten());
    }
    // Stable: of equals the first stays first, whatever the threads did.
    choices.sort_by_key(|choice| choice.estimate.score);
    keep_distinct(&mut choices);
    if let Some(first) = choices.first() {
        let most = (first.estimate.score as f64 * PARAMS.nests.near_best) as u64;
        choices.retain(|choice| choice.estimate.score <= most);
        return Ok(choices);
    }
    if least_banks == u64::MAX {
        let least = graph.stages.ids().map(|s| if graph.is_gemm(s) { 1 } else { chain(chip, graph.kind(s)) }).sum();
        return Err(NoPlan::Pcus(least));
    }
    Err(NoPlan::Sram(least_banks.saturating_mul(chip.pmu.bank_bytes())))
}

/// Of choices that differ in the room for the latency of memory alone, the first.
fn keep_distinct(choices: &mut Vec<Choice>) {
    let mut kept: Vec<Choice> = Vec::with_capacity(choices.len());
    for choice in choices.drain(..) {
        let is_same = |other: &Choice| {
            let with_its_room = Residency { latency_slots: choice.residency.latency_slots, ..other.residency };
            other.nest == choice.nest && with_its_room == choice.residency && other.has_array_of(&choice)
        };
        if !kept.iter().any(is_same) {
            kept.push(choice);
        }
    }
    *choices = kept;
}

impl WalkLimits {
    fn of(effort: Effort) -> Self {
        match effort {
            Effort::Low => PARAMS.nests.quick,
            Effort::Full => PARAMS.nests.normal,
            Effort::Thorough => PARAMS.nests.thorough,
        }
    }
}
