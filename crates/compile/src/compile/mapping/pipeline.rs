//! The way of a row tile through the stages of a section: what it takes to fill the pipeline.

use rdusim_base::index::IndexVec;
use rdusim_graph::workload::CausalAxis;
use rdusim_program::{LoopOrder, Nest, SectionGraph, StageId};

use super::roles::StageRoles;

/// Which stages wait for which, and how often each fires.
#[derive(Debug)]
pub(crate) struct Pipeline {
    /// The stages that each reads from; all come before it.
    before: IndexVec<StageId, Vec<StageId>>,
    /// Firings of each stage.
    firings: IndexVec<StageId, u64>,
    /// With column tiles outermost, stages that begin when another has added up all of them.
    late: IndexVec<StageId, bool>,
    /// How the work of causal attention grows along a sequence, where there is any.
    growth: Option<Growth>,
}

/// The work of causal attention on the first row of a sequence and on the last, in parts of the mean.
#[derive(Debug)]
struct Growth {
    first: f64,
    last: f64,
    /// Stages that it is the work of.
    stages: IndexVec<StageId, bool>,
}

impl Growth {
    fn new(graph: &SectionGraph<'_>) -> Option<Self> {
        let form = |stage: StageId| graph.form(stage).filter(|form| form.causal.is_some());
        let of = graph.stages.ids().find_map(form)?;
        let keys = if of.causal == Some(CausalAxis::Columns) { of.n } else { of.k };
        let before = keys.saturating_sub(of.m) as f64;
        let mean = f64::midpoint(before, keys as f64);
        let stages = graph.stages.ids().map(|stage| form(stage).is_some()).collect();
        Some(Self { first: before / mean.max(1.0), last: keys as f64 / mean.max(1.0), stages })
    }

    /// Cycles of a sequence whose row tiles take `even` cycles, or those of a stage that grows with a mean of `growing`, if
    /// that is more: every row tile waits for the slowest of its stages.
    fn cycles(&self, even: f64, growing: f64) -> f64 {
        let Self { first, last, .. } = *self;
        let slope = (last - first).max(f64::MIN_POSITIVE);
        let until = ((even / growing.max(f64::MIN_POSITIVE) - first) / slope).clamp(0.0, 1.0);
        even * until + growing * (first * (1.0 - until) + slope * (1.0 - until * until) / 2.0)
    }
}

impl Pipeline {
    /// That of a section in a nest.
    pub(crate) fn new(graph: &SectionGraph<'_>, nest: &Nest, roles: &StageRoles) -> Self {
        let producers = |stage: StageId| {
            let spec = &graph.stages[stage];
            let second = spec.weight.iter().filter(|_| spec.sequence.is_some());
            let made = spec.activations.iter().chain(second).filter_map(|&tensor| graph.producer(tensor));
            made.filter(|&from| from < stage).collect()
        };
        let is_outside = nest.order == LoopOrder::ColumnTileOuter && nest.column_tiles() > 1;
        Self {
            before: graph.stages.ids().map(producers).collect(),
            firings: roles.level.iter().map(|&level| nest.count(level).max(1)).collect(),
            late: graph.stages.ids().map(|s| is_outside && roles.is_late(s)).collect(),
            growth: Growth::new(graph),
        }
    }

    /// One stage behind the other, each with so many firings.
    #[cfg(test)]
    pub(crate) fn chain(firings: &[u64]) -> Self {
        use rdusim_base::index::Id;
        let before = |at: usize| if at == 0 { Vec::new() } else { vec![StageId::from_index(at - 1)] };
        Self {
            before: (0..firings.len()).map(before).collect(),
            firings: firings.iter().copied().collect(),
            late: firings.iter().map(|_| false).collect(),
            growth: None,
        }
    }

    /// Whether a stage takes more and more cycles along a sequence, while others do not.
    pub(crate) fn grows(&self, stage: StageId) -> bool {
        self.growth.as_ref().is_some_and(|growth| growth.stages[stage])
    }

    /// Whether any does.
    pub(crate) fn is_uneven(&self) -> bool {
        self.growth.is_some()
    }

    /// Cycles of the slowest stage, or of the slowest of each row tile, where a stage works so many in all.
    pub(crate) fn slowest(&self, cycles: impl Fn(StageId) -> u64) -> f64 {
        let most = |grows: bool| {
            let stages = self.firings.ids().filter(|&stage| self.grows(stage) == grows);
            stages.map(&cycles).max().unwrap_or(0) as f64
        };
        match &self.growth {
            Some(growth) => growth.cycles(most(false), most(true)),
            None => most(false),
        }
    }

    /// Cycles of one firing of a stage that works so many in all.
    pub(crate) fn firing_cycles(&self, stage: StageId, cycles: u64) -> f64 {
        cycles as f64 / self.firings[stage] as f64
    }

    /// The longest path through the stages, and the stages on it, last first; a stage takes `cycles`.
    pub(crate) fn longest_path(&self, cycles: impl Fn(StageId) -> f64) -> (f64, Vec<StageId>) {
        let mut passed: IndexVec<StageId, (f64, Option<StageId>)> = IndexVec::new();
        for (stage, before) in self.before.iter_enumerated() {
            let (mut most, mut from) = (0.0, None);
            for &other in before {
                if passed[other].0 > most {
                    (most, from) = (passed[other].0, Some(other));
                }
            }
            passed.push((most + cycles(stage), from));
        }
        let mut longest = (0.0, None);
        for (stage, &(cycles, _)) in passed.iter_enumerated() {
            if cycles > longest.0 {
                longest = (cycles, Some(stage));
            }
        }
        let path = std::iter::successors(longest.1, |&stage| passed[stage].1).collect();
        (longest.0, path)
    }

    /// Cycles that the last row tile takes behind the stages that add up over column tiles. A stage works `cycles` in all, and its
    /// first results take `more`.
    pub(crate) fn late_cycles(&self, cycles: impl Fn(StageId) -> u64, more: impl Fn(StageId) -> f64) -> f64 {
        let of = |stage: StageId| self.firing_cycles(stage, cycles(stage)) + more(stage);
        self.longest_path(|stage| if self.late[stage] { of(stage) } else { 0.0 }).0
    }

    /// Cycles before the slowest stage has all it works on: one firing of every stage on the longest path, but its own. A stage
    /// works `cycles` in all, and its first results take `more`.
    pub(crate) fn fill_cycles(&self, cycles: impl Fn(StageId) -> u64, more: impl Fn(StageId) -> f64) -> f64 {
        let firing = |stage: StageId| self.firing_cycles(stage, cycles(stage));
        let slowest = self.firings.ids().max_by_key(|&stage| cycles(stage)).map_or(0.0, firing);
        (self.longest_path(|stage| firing(stage) + more(stage)).0 - slowest).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The closed form is the sum, over many row tiles, of the slower of the stages.
    #[test]
    fn every_row_tile_waits_for_its_slowest_stage() {
        for (first, even, growing) in
            [(0.0, 1.0, 1.0), (0.0, 3.0, 1.0), (0.0, 1.0, 3.0), (0.5, 1.2, 1.0), (0.9, 0.1, 2.0)]
        {
            let last = 2.0 - first;
            let growth = Growth { first, last, stages: IndexVec::new() };
            let row_tiles = 10_000;
            let of_row_tile = |n: i32| {
                let along = (f64::from(n) + 0.5) / f64::from(row_tiles);
                f64::max(even, growing * (first + (last - first) * along))
            };
            let sum = (0..row_tiles).map(of_row_tile).sum::<f64>() / f64::from(row_tiles);
            let found = growth.cycles(even, growing);
            assert!((found / sum - 1.0).abs() < 1e-6, "{first}, {even}, {growing}: {found}, {sum}");
        }
        let growth = Growth { first: 0.0, last: 2.0, stages: IndexVec::new() };
        assert!((growth.cycles(1.0, 1.0) - 1.25).abs() < 1e-9);
    }
}
