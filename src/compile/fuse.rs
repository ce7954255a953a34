//! Fusion: cutting the operator graph into sections.

use rayon::prelude::*;

use crate::arch::{Chip, TierId};
use crate::workload::{OperatorId, Workload};

use super::candidates::BaseCache;
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

/// Every run of operators that may become a section, planned.
#[derive(Debug)]
pub struct Spans<'a> {
    operators: usize,
    /// First operator, and one past the last.
    runs: Vec<(usize, usize)>,
    planned: Vec<Option<Planned<'a>>>,
}

impl<'a> Spans<'a> {
    /// Plans single operators and, with `fused`, runs of the topological order of up to [`MOST_FUSED`].
    pub fn new(chip: &Chip, workload: &'a Workload, tiers: &[TierId], fused: bool) -> Result<Self, Unplannable> {
        let operators: Vec<OperatorId> = workload.operators.ids().collect();
        let n = operators.len();
        let longest = if fused { MOST_FUSED } else { 1 };
        // Long runs first: they take longest.
        let mut spans: Vec<(usize, usize)> =
            (0..n).flat_map(|from| (from + 1..=n.min(from + longest)).map(move |to| (from, to))).collect();
        spans.sort_by_key(|&(from, to)| (std::cmp::Reverse(to - from), from));
        let cache = BaseCache::default();
        let planned: Vec<Result<Planned<'a>, Option<NoPlan>>> = spans
            .par_iter()
            .map(|&(from, to)| {
                let graph = SectionGraph::new(workload, &operators[from..to], to - from > 1).ok_or(None)?;
                let plan = plan(chip, &graph, tiers, &cache).map_err(Some)?;
                Ok(Planned { graph, plan })
            })
            .collect();
        for (&(from, to), result) in spans.iter().zip(&planned) {
            if let (1, Err(reason)) = (to - from, result) {
                let reason = reason.unwrap_or(NoPlan::Pcus(u64::MAX));
                return Err(Unplannable { operator: operators[from], reason });
            }
        }
        Ok(Self { operators: n, runs: spans, planned: planned.into_iter().map(Result::ok).collect() })
    }

    /// One operator a section.
    pub fn kernel_by_kernel(&self) -> Vec<&Planned<'a>> {
        let mut singles: Vec<usize> = (0..self.runs.len()).filter(|&i| self.runs[i].1 - self.runs[i].0 == 1).collect();
        singles.sort_by_key(|&i| self.runs[i]);
        singles.into_iter().filter_map(|i| self.planned[i].as_ref()).collect()
    }

    /// The partition with the least estimated time: dynamic programming over the places to cut, exact for sections
    /// of up to [`MOST_FUSED`] operators. Single operators are always candidates.
    pub fn fused(&self) -> Vec<&Planned<'a>> {
        let n = self.operators;
        // least[i]: cycles of the first i operators, and the span that ends there.
        let mut least: Vec<(u64, usize)> = vec![(u64::MAX, 0); n + 1];
        least[0].0 = 0;
        let mut order: Vec<usize> = (0..self.runs.len()).collect();
        order.sort_by_key(|&i| (self.runs[i].1, self.runs[i].0));
        for index in order {
            let (from, to) = self.runs[index];
            if let Some(section) = &self.planned[index] {
                let cycles = least[from].0.saturating_add(section.plan.estimate.cycles);
                if cycles < least[to].0 {
                    least[to] = (cycles, index);
                }
            }
        }
        let mut chosen = Vec::new();
        let mut at = n;
        while at > 0 {
            let index = least[at].1;
            chosen.push(index);
            at = self.runs[index].0;
        }
        chosen.reverse();
        chosen.into_iter().filter_map(|i| self.planned[i].as_ref()).collect()
    }
}
