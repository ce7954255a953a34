//! Sections planned only if they may be chosen: in short graphs, where all runs of operators are candidates.

use super::context::SearchContext;
use super::partition::{Bounds, PartitionRequest, Partitioner, Unplannable, least_score};

impl Partitioner<'_> {
    /// Plans what may be chosen: as long as the best partition holds sections that are not planned, and are as good as
    /// no plan of them beats, those.
    pub(super) fn plan_lazily(
        &mut self,
        context: &SearchContext<'_>,
        requested: PartitionRequest,
    ) -> Result<(), Unplannable> {
        // Runs of one class have one floor.
        let mut of_class: Vec<Option<u64>> = vec![None; self.planned.len()];
        let mut least = Vec::with_capacity(self.runs.len());
        for (run, saved) in self.runs.iter().zip(&self.saved_by_looping) {
            let of_all = of_class[run.class].get_or_insert_with(|| least_score(context, &run.operators, 0));
            least.push(of_all.saturating_sub(*saved));
        }
        self.bounds = Some(Bounds { least, refused: vec![false; self.planned.len()], unplannable: None });
        if requested.singles {
            let mut singles = self.singles();
            self.keep_unplanned(&mut singles);
            self.plan_runs(context, &singles)?;
        }
        let found = self.best_planned(context);
        match (found, self.bounds.as_ref().and_then(|bounds| bounds.unplannable)) {
            (Err(_), Some(unplannable)) => Err(unplannable),
            _ => Ok(()),
        }
    }

    /// Of some runs the first of every class that is not planned.
    pub(super) fn keep_unplanned(&self, runs: &mut Vec<usize>) {
        let mut seen = vec![false; self.planned.len()];
        runs.retain(|&run| {
            let class = self.runs[run].class;
            self.planned[class].is_none() && !std::mem::replace(&mut seen[class], true)
        });
    }

    /// The best partition, planned. Of what is not planned, sections are as good as none of them can be, and planned
    /// when that makes them part of the best.
    pub(super) fn best_planned(&mut self, context: &SearchContext<'_>) -> Result<Vec<usize>, usize> {
        loop {
            let best = self.best_sequence()?;
            let mut unplanned = best.clone();
            self.keep_unplanned(&mut unplanned);
            if unplanned.is_empty() {
                return Ok(best);
            }
            let refused = self.plan_runs(context, &unplanned).err();
            let Some(bounds) = &mut self.bounds else { return Ok(best) };
            bounds.unplannable = bounds.unplannable.or(refused);
            for run in unplanned {
                let class = self.runs[run].class;
                bounds.refused[class] = self.planned[class].is_none();
            }
        }
    }

    /// The best partition, or every operator alone where that takes less time: fewer bytes do not excuse being slower
    /// than kernel by kernel.
    pub(super) fn not_slower(&mut self, best: Vec<usize>, context: &SearchContext<'_>) -> Vec<usize> {
        let cycles = self.linked_cycles(&best);
        let mut singles = self.singles();
        if let Some(bounds) = &self.bounds {
            let least = singles.iter().map(|&run| bounds.least[run]).fold(0, u64::saturating_add);
            if cycles <= least {
                return best;
            }
            // What cannot run alone has been found to run with others.
            self.keep_unplanned(&mut singles);
            if self.plan_runs(context, &singles).is_err() {
                return best;
            }
        }
        // At their best, if they have not been evaluated.
        if self.are_planned(&singles) && cycles <= self.linked_cycles(&singles) {
            return best;
        }
        let Ok(singles) = self.kernel_by_kernel(context) else { return best };
        while self.link(context, &singles) {}
        if cycles <= self.linked_cycles(&singles) { best } else { singles }
    }

    /// Cycles of a partition with what is known of its sections in a row.
    fn linked_cycles(&self, partition: &[usize]) -> u64 {
        let linked = i128::from(self.cycles(partition)) + self.link_cost(partition);
        u64::try_from(linked.max(0)).unwrap_or(u64::MAX)
    }
}
