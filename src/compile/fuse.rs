//! Fusion: cutting the operator graph into sections.

use rayon::prelude::*;

use crate::arch::{Chip, TierId};
use crate::index::Id;
use crate::workload::{OperatorId, Workload};

use super::assemble::{Unplaced, assemble};
use super::candidates::BaseCache;
use super::configuration::Section;
use super::fabric::Fabric;
use super::plan::{NoPlan, SectionPlan, plan};
use super::section_graph::SectionGraph;

/// Most operators of one section that the search considers.
pub const MOST_FUSED: usize = 12;

/// A possible section and its plans, best first.
#[derive(Debug)]
struct Planned<'a, R> {
    graph: SectionGraph<'a>,
    plans: Vec<SectionPlan>,
    routed: Option<Routed<R>>,
    /// Why the last plan that could not be placed could not.
    unplaced: Option<Unplaced>,
}

/// A section placed and routed.
#[derive(Debug)]
struct Routed<R> {
    section: Section,
    /// Which of the plans it is.
    plan: usize,
    /// Cycles it was measured to take; else the estimate, with what its fullest link or port needs.
    cycles: u64,
    /// The run that measured it.
    run: Option<R>,
}

/// A section that was chosen.
#[derive(Debug, Clone, Copy)]
pub struct Chosen<'s, 'a, R> {
    /// Its operators.
    pub graph: &'s SectionGraph<'a>,
    /// Its plan.
    pub plan: &'s SectionPlan,
    /// It, placed and routed.
    pub section: &'s Section,
    /// The run that measured it, if one did.
    pub run: Option<&'s R>,
}

/// A plan that runs within this much of its estimate is taken without looking at the next.
const AS_EXPECTED: f64 = 1.05;

/// A judge's verdict on a section.
#[derive(Debug)]
pub enum Verdict<R> {
    /// It takes these cycles, launch included; the run that showed it.
    Takes(u64, R),
    /// It takes more cycles than was asked, or never ends.
    TooLong,
    /// It would take too long to find out.
    Unknown,
}

/// Runs a placed and routed section, and may stop when it takes more than so many cycles, launch included.
pub type Judge<'j, R> = dyn Fn(&Section, u64) -> Verdict<R> + Sync + 'j;

/// What placement and routing need to know beside a plan.
pub struct Ground<'g, R> {
    /// The chip.
    pub chip: &'g Chip,
    /// Its links and ports.
    pub fabric: &'g Fabric,
    /// Home of each tensor.
    pub tiers: &'g [TierId],
    /// Who measures sections; without one, estimates are believed.
    pub judge: Option<&'g Judge<'g, R>>,
}

/// A plan placed and routed, before it is measured.
struct Laid {
    plan: usize,
    section: Section,
    /// Cycles by the estimate, or what its fullest link or port needs if that is more.
    expected: u64,
}

impl<R: Send> Planned<'_, R> {
    /// Places and routes its plans, measures them from the most promising on until one runs as expected, and keeps the
    /// fastest.
    fn route(&mut self, ground: &Ground<'_, R>) {
        if self.routed.is_some() {
            return;
        }
        let graph = &self.graph;
        let lay = |(index, plan): (usize, &SectionPlan)| {
            let (section, fullest) = assemble(ground.chip, ground.fabric, graph, plan, ground.tiers)?;
            let crowded = (plan.estimate.busy_cycles as f64 * fullest) as u64 + ground.chip.launch_cycles();
            Ok(Laid { plan: index, section, expected: plan.estimate.cycles.max(crowded) })
        };
        let all: Vec<Result<Laid, Unplaced>> = self.plans.par_iter().enumerate().map(lay).collect();
        self.unplaced = all.iter().filter_map(|l| l.as_ref().err()).next_back().copied();
        let mut laid: Vec<Laid> = all.into_iter().filter_map(Result::ok).collect();
        laid.sort_by_key(|l| (l.expected, l.plan));
        for Laid { plan, section, expected } in laid {
            let fastest = self.routed.as_ref().map_or(u64::MAX, |best| best.cycles);
            let verdict = ground.judge.map_or(Verdict::Unknown, |judge| judge(&section, fastest));
            let (cycles, run) = match verdict {
                Verdict::Takes(cycles, run) => (cycles, Some(run)),
                Verdict::TooLong => (u64::MAX, None),
                Verdict::Unknown => (expected, None),
            };
            if self.routed.as_ref().is_none_or(|best| cycles < best.cycles) {
                self.routed = Some(Routed { section, plan, cycles, run });
            }
            if cycles as f64 <= self.plans[plan].estimate.cycles as f64 * AS_EXPECTED {
                break;
            }
        }
    }

    /// Times it runs.
    fn repeat(&self) -> u64 {
        self.graph.workload.operators[self.graph.operators[0]].repeat
    }

    /// What partitions are compared by: cycles, and the price of the bytes moved.
    fn score(&self) -> u64 {
        self.score_once().saturating_mul(self.repeat())
    }

    fn score_once(&self) -> u64 {
        let price = |plan: &SectionPlan| plan.estimate.score - plan.estimate.cycles;
        match (&self.routed, self.plans.first()) {
            (Some(routed), _) => routed.cycles.saturating_add(price(&self.plans[routed.plan])),
            (None, Some(plan)) => plan.estimate.score,
            (None, None) => u64::MAX,
        }
    }
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
pub struct Spans<'a, R> {
    operators: usize,
    /// First operator, and one past the last.
    runs: Vec<(usize, usize)>,
    planned: Vec<Option<Planned<'a, R>>>,
}

impl<'a, R: Send> Spans<'a, R> {
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
        let planned: Vec<Result<Planned<'a, R>, Option<NoPlan>>> = spans
            .par_iter()
            .map(|&(from, to)| {
                let graph = SectionGraph::new(workload, &operators[from..to], to - from > 1).ok_or(None)?;
                let plans = plan(chip, &graph, tiers, &cache).map_err(Some)?;
                Ok(Planned { graph, plans, routed: None, unplaced: None })
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

    /// One operator a section, placed and routed. An operator index, where placement finds no room.
    pub fn kernel_by_kernel(&mut self, ground: &Ground<'_, R>) -> Result<Vec<usize>, usize> {
        let singles = self.singles();
        self.route(&singles, ground);
        match singles.iter().find(|&&i| self.chosen(i).is_none()) {
            Some(&run) => Err(run),
            None => Ok(singles),
        }
    }

    /// Runs of one operator, in order.
    fn singles(&self) -> Vec<usize> {
        let mut singles: Vec<usize> = (0..self.runs.len()).filter(|&i| self.runs[i].1 - self.runs[i].0 == 1).collect();
        singles.sort_by_key(|&i| self.runs[i]);
        singles
    }

    /// The partition with the least time (and a little for every byte): dynamic programming over the places to cut, exact for sections of up to
    /// [`MOST_FUSED`] operators. Single operators are always candidates. Sections of the best partition are routed and
    /// measured, which may show them slower than estimated; then the search is repeated.
    pub fn fused(&mut self, ground: &Ground<'_, R>) -> Result<Vec<usize>, usize> {
        // What is wanted in any case, side by side.
        let mut first = self.best_partition()?;
        first.extend(self.singles());
        self.route(&first, ground);
        let singles = self.kernel_by_kernel(ground)?;
        loop {
            let best = self.best_partition()?;
            let unrouted: Vec<usize> = best
                .iter()
                .copied()
                .filter(|&i| self.planned[i].as_ref().is_some_and(|p| p.routed.is_none()))
                .collect();
            if unrouted.is_empty() {
                // Fewer bytes do not excuse being slower than kernel by kernel.
                return Ok(if self.cycles(&best) <= self.cycles(&singles) { best } else { singles });
            }
            self.route(&unrouted, ground);
            for run in unrouted {
                // What cannot be placed is no candidate.
                if self.chosen(run).is_none() {
                    self.planned[run] = None;
                }
            }
        }
    }

    /// Cycles of routed runs.
    fn cycles(&self, runs: &[usize]) -> u64 {
        let of_run = |&run: &usize| {
            let planned = self.planned[run].as_ref()?;
            planned.routed.as_ref().map(|routed| routed.cycles.saturating_mul(planned.repeat()))
        };
        runs.iter().filter_map(of_run).fold(0, u64::saturating_add)
    }

    fn route(&mut self, runs: &[usize], ground: &Ground<'_, R>) {
        self.planned
            .par_iter_mut()
            .enumerate()
            .filter(|(i, _)| runs.contains(i))
            .filter_map(|(_, planned)| planned.as_mut())
            .for_each(|planned| planned.route(ground));
    }

    /// Runs of the partition with the least cycles; the index of a run that nothing covers, if there is none.
    fn best_partition(&self) -> Result<Vec<usize>, usize> {
        let n = self.operators;
        // least[i]: score of the first i operators, and the run that ends there.
        let mut least: Vec<(u64, usize)> = vec![(u64::MAX, 0); n + 1];
        least[0].0 = 0;
        let mut order: Vec<usize> = (0..self.runs.len()).collect();
        order.sort_by_key(|&i| (self.runs[i].1, self.runs[i].0));
        for &index in &order {
            let (from, to) = self.runs[index];
            let Some(section) = &self.planned[index] else { continue };
            let score = least[from].0.saturating_add(section.score());
            if score < least[to].0 {
                least[to] = (score, index);
            }
        }
        let mut chosen = Vec::new();
        let mut at = n;
        while at > 0 {
            let (score, index) = least[at];
            if score == u64::MAX {
                return Err(order.into_iter().find(|&i| self.runs[i] == (at - 1, at)).unwrap_or(0));
            }
            chosen.push(index);
            at = self.runs[index].0;
        }
        chosen.reverse();
        Ok(chosen)
    }

    /// A routed run.
    pub fn chosen(&self, run: usize) -> Option<Chosen<'_, 'a, R>> {
        let planned = self.planned[run].as_ref()?;
        let routed = planned.routed.as_ref()?;
        Some(Chosen {
            graph: &planned.graph,
            plan: &planned.plans[routed.plan],
            section: &routed.section,
            run: routed.run.as_ref(),
        })
    }

    /// The whole graph as one section, with its best plan, if there is one.
    pub fn whole(&self) -> Option<(&SectionGraph<'a>, &SectionPlan)> {
        let run = self.runs.iter().position(|&run| run == (0, self.operators))?;
        let planned = self.planned[run].as_ref()?;
        Some((&planned.graph, planned.plans.first()?))
    }

    /// The first operator of a run that cannot be placed, and why.
    pub fn unplaced(&self, run: usize) -> (OperatorId, Option<Unplaced>) {
        (OperatorId::from_index(self.runs[run].0), self.planned[run].as_ref().and_then(|p| p.unplaced))
    }
}
