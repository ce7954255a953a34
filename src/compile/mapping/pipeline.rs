//! The way of a row tile through the stages of a section: what it takes to fill the pipeline.

use crate::index::IndexVec;
use crate::program::{Nest, SectionGraph, StageId};

use super::roles::StageRoles;

/// Which stages wait for which, and how often each fires.
#[derive(Debug)]
pub struct Pipeline {
    /// The stages that each reads from; all come before it.
    before: IndexVec<StageId, Vec<StageId>>,
    /// Firings of each stage.
    firings: IndexVec<StageId, u64>,
}

impl Pipeline {
    /// That of a section in a nest.
    pub fn new(graph: &SectionGraph<'_>, nest: &Nest, roles: &StageRoles) -> Self {
        let producers = |stage: StageId| {
            let spec = &graph.stages[stage];
            let second = spec.weight.iter().filter(|_| spec.sequence.is_some());
            let made = spec.activations.iter().chain(second).filter_map(|&tensor| graph.producer(tensor));
            made.filter(|&from| from < stage).collect()
        };
        Self {
            before: graph.stages.ids().map(producers).collect(),
            firings: roles.level.iter().map(|&level| nest.count(level).max(1)).collect(),
        }
    }

    /// One stage behind the other, each with so many firings.
    #[cfg(test)]
    pub fn chain(firings: &[u64]) -> Self {
        use crate::index::Id;
        let before = |at: usize| if at == 0 { Vec::new() } else { vec![StageId::from_index(at - 1)] };
        Self { before: (0..firings.len()).map(before).collect(), firings: firings.iter().copied().collect() }
    }

    /// Cycles of one firing of a stage that works so many in all.
    pub fn firing_cycles(&self, stage: StageId, cycles: u64) -> f64 {
        cycles as f64 / self.firings[stage] as f64
    }

    /// The longest path through the stages, and the stages on it, last first; a stage takes `cycles`.
    pub fn longest_path(&self, cycles: impl Fn(StageId) -> f64) -> (f64, Vec<StageId>) {
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

    /// Cycles before the slowest stage has all it works on: one firing of every stage on the longest path, but its own. A stage
    /// works `cycles` in all, and its first results take `more`.
    pub fn fill_cycles(&self, cycles: impl Fn(StageId) -> u64, more: impl Fn(StageId) -> f64) -> f64 {
        let firing = |stage: StageId| self.firing_cycles(stage, cycles(stage));
        let slowest = self.firings.ids().max_by_key(|&stage| cycles(stage)).map_or(0.0, firing);
        (self.longest_path(|stage| firing(stage) + more(stage)).0 - slowest).max(0.0)
    }
}
