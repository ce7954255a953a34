//! Fusion: cutting the operator graph into sections.

use rayon::prelude::*;

use crate::arch::{Chip, TierId};
use crate::workload::{OperatorId, Workload};

use super::plan::{NoPlan, SectionPlan, plan};
use super::section_graph::SectionGraph;

/// Most operators of one section that the search considers.
pub const MOST_FUSED: usize = 12;

/// A section that was chosen, with its plan.
#[derive(Debug)]
pub struct Planned<'a> {
    /// Its operators.
    pub graph: SectionGraph<'a>,
    /// Its plan.
    pub plan: SectionPlan,
}

/// An operator that cannot be planned even alone.
#[derive(Debug, Clone, Copy)]
pub struct Unplannable {
    /// The operator.
    pub operator: OperatorId,
    /// Why.
    pub reason: NoPlan,
}

/// One operator a section.
pub fn kernel_by_kernel<'a>(
    chip: &Chip,
    workload: &'a Workload,
    tiers: &[TierId],
) -> Result<Vec<Planned<'a>>, Unplannable> {
    let operators: Vec<OperatorId> = workload.operators.ids().collect();
    operators
        .par_iter()
        .map(|&operator| {
            let fails = |reason| Unplannable { operator, reason };
            let graph = SectionGraph::new(workload, &[operator], false).ok_or_else(|| fails(NoPlan::Pcus(u64::MAX)))?;
            let plan = plan(chip, &graph, tiers).map_err(fails)?;
            Ok(Planned { graph, plan })
        })
        .collect()
}

/// The partition into runs of the topological order with the least estimated time: dynamic programming over the
/// places to cut, exact for runs of up to [`MOST_FUSED`] operators. Single operators are always candidates.
pub fn fused<'a>(chip: &Chip, workload: &'a Workload, tiers: &[TierId]) -> Result<Vec<Planned<'a>>, Unplannable> {
    let operators: Vec<OperatorId> = workload.operators.ids().collect();
    let n = operators.len();
    let spans: Vec<(usize, usize)> =
        (0..n).flat_map(|from| (from + 1..=n.min(from + MOST_FUSED)).map(move |to| (from, to))).collect();
    let planned: Vec<Result<Planned<'a>, Option<NoPlan>>> = spans
        .par_iter()
        .map(|&(from, to)| {
            let graph = SectionGraph::new(workload, &operators[from..to], to - from > 1).ok_or(None)?;
            let plan = plan(chip, &graph, tiers).map_err(Some)?;
            Ok(Planned { graph, plan })
        })
        .collect();
    for (&(from, to), result) in spans.iter().zip(&planned) {
        if let (1, Err(reason)) = (to - from, result) {
            return Err(Unplannable { operator: operators[from], reason: reason.unwrap_or(NoPlan::Pcus(u64::MAX)) });
        }
    }
    // least[i]: cycles of the first i operators, and the span that ends there.
    let mut least: Vec<(u64, usize)> = vec![(u64::MAX, 0); n + 1];
    least[0].0 = 0;
    for (index, &(from, to)) in spans.iter().enumerate() {
        if let Ok(section) = &planned[index] {
            let cycles = least[from].0.saturating_add(section.plan.estimate.cycles);
            if cycles < least[to].0 {
                least[to] = (cycles, index);
            }
        }
    }
    let mut chosen = Vec::new();
    let mut at = n;
    while at > 0 {
        chosen.push(least[at].1);
        at = spans[least[at].1].0;
    }
    chosen.sort_unstable();
    Ok(planned.into_iter().enumerate().filter(|(i, _)| chosen.contains(i)).filter_map(|(_, p)| p.ok()).collect())
}
