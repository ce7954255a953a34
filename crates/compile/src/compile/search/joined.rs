//! Sections of more operators than are listed: neighbours of the best partition, joined (agglomerative clustering).
//!
//! All runs of up to `PARAMS.partition.most_listed` operators are candidates from the start. There are too many longer ones: of
//! these the candidates are pairs of neighbours in the best partition, planned and measured as any other. Those that pay are
//! neighbours in the next round, so that sections grow until no pair pays.

use rdusim_graph::workload::OperatorId;

use super::canonical::CanonicalForms;
use super::context::SearchContext;
use super::partition::Partitioner;
use super::runs::{Run, may_share_a_section};

impl Partitioner<'_> {
    /// Plans the pairs of neighbours of a partition that were no candidates yet and may save time. Whether there are any.
    pub(super) fn join_neighbours(&mut self, context: &SearchContext<'_>, partition: &[usize]) -> bool {
        let canonical = CanonicalForms::new(self.workload, context.tiers);
        let pairs = self.neighbours(partition);
        let joined: Vec<Run> = pairs.into_iter().filter_map(|(first, second)| self.joined(first, second)).collect();
        let mut added: Vec<usize> = joined.into_iter().map(|run| self.add(context, &canonical, run)).collect();
        self.keep_unplanned(&mut added);
        let worth = self.worth_planning(context, &added);
        // What cannot be planned is no candidate.
        _ = self.plan_runs(context, &worth);
        self.is_any_planned(&worth)
    }

    /// Pairs of runs of a partition of which the second begins where the first ends.
    fn neighbours(&self, partition: &[usize]) -> Vec<(usize, usize)> {
        let is_split_off = |run: usize| partition.iter().any(|&of| self.runs[of].split_off.contains(&run));
        let runs: Vec<usize> = partition.iter().copied().filter(|&run| !is_split_off(run)).collect();
        runs.windows(2).map(|pair| (pair[0], pair[1])).collect()
    }

    /// Two neighbours as one run; `None` if it is one already, may not be one, or needs what has a section of its own behind it.
    fn joined(&self, first: usize, second: usize) -> Option<Run> {
        let (a, b) = (&self.runs[first], &self.runs[second]);
        let place = |op: OperatorId| (self.workload.operators[op].block, self.workload.operators[op].phase);
        let made = |&run: &usize| self.workload.operators[self.runs[run].operators[0]].output;
        let split_off: Vec<_> = a.split_off.iter().map(made).collect();
        let reads = |op: &OperatorId| {
            self.workload.operators[*op].inputs.iter().any(|&input| split_off.contains(&self.workload.base(input)))
        };
        if place(a.operators[0]) != place(b.operators[0]) || b.operators.iter().any(reads) {
            return None;
        }
        let operators = [&a.operators[..], &b.operators].concat();
        let is_new = self.runs.iter().all(|run| run.operators != operators);
        if !is_new || !may_share_a_section(self.workload, &operators) {
            return None;
        }
        let split_off = [&a.split_off[..], &b.split_off].concat();
        Some(Run { span: (a.span.0, b.span.1), operators, split_off, class: 0, is_block: false })
    }
}
