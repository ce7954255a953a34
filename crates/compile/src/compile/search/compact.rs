//! A mapping of a section that leaves room beside it: the best in half of every PMU's banks.

use crate::compile::mapping::bases::BaseCache;
use crate::compile::mapping::plan::SectionPlan;
use rdusim_cost::cost::SectionRun;
use rdusim_engines::sim::Measurement;
use rdusim_program::{Section, SectionGraph};

use super::context::SearchContext;
use super::evaluated::EvaluationLevel;
use super::plan::plan;
use super::planned::{Among, Planned};
use super::space::SectionSearch;

/// The best mapping of a section in half of the banks of every PMU, placed and routed, and its run on the whole chip; `None`
/// if it does not fit them, or cannot be measured.
pub(crate) fn compact(
    context: &SearchContext<'_>,
    graph: &SectionGraph<'_>,
) -> Option<(SectionPlan, Section, SectionRun)> {
    let mut half = context.chip.clone();
    half.pmu.banks /= 2;
    half.pmu.capacity_bytes = half.pmu.banks * context.chip.pmu.bank_bytes();
    if half.pmu.banks == 0 {
        return None;
    }
    let bases = BaseCache::default();
    let on_half = SearchContext { chip: &half, bases: &bases, ..*context };
    let chip = half.in_section(graph.largest_off_chip_bytes());
    let search = SectionSearch { chip: &chip, graph, tiers: context.tiers, cache: &bases };
    let choices = plan(&search, context.effort).ok()?;
    let mut planned = Planned::new(graph.clone(), choices, true);
    let request = planned.prepare(&on_half, EvaluationLevel::Full, 0);
    planned.route(&on_half, request, &Among { equivalents: Vec::new() });
    let routed = planned.routed()?;
    let section = Section::clone(&routed.section);
    match context.measure(&section, u64::MAX, crate::compile::params::PARAMS.evaluation.normal.work) {
        Measurement::Takes(_, run) => Some((routed.plan.clone(), section, run)),
        _ => None,
    }
}
