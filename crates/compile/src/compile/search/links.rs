//! What is known of sections in a row: what prefetching gains of each two.

use std::collections::{BTreeMap, BTreeSet};

use crate::compile::prefetch::Prefetcher;
use rdusim_base::index::Id;
use rdusim_graph::arch::TierId;
use rdusim_graph::workload::TensorRole;

use super::context::SearchContext;

/// What is known of sections in a row.
#[derive(Debug, Default)]
pub(super) struct Sequences {
    /// Memory tiers that hold weights.
    pub(super) tiers: Vec<TierId>,
    /// Of two runs, the second behind the first every time: cycles that the second takes less in all than alone, less what the first
    /// loses to a smaller mapping and what the first repetition waits for.
    pub(super) gains: BTreeMap<(usize, usize), i128>,
    /// Partitions whose links are known, with their costs then.
    pub(super) evaluated: BTreeMap<Vec<usize>, i128>,
    pub(super) prefetcher: Prefetcher,
}

impl Sequences {
    /// Nothing is known.
    pub(super) fn new(context: &SearchContext<'_>) -> Self {
        let weights =
            context.workload.tensors.iter_enumerated().filter(|(_, tensor)| tensor.role == TensorRole::Weight);
        let tiers: BTreeSet<TierId> = weights.map(|(tensor, _)| context.tiers[tensor.index()]).collect();
        Self { tiers: tiers.into_iter().collect(), ..Self::default() }
    }
}

/// What prefetching gains of sections in a row.
pub(super) struct LinkGains<'s> {
    pub(super) known: &'s BTreeMap<(usize, usize), i128>,
    /// Of every run, cycles in all that prefetching saves at most.
    pub(super) saved: Vec<u64>,
    /// Of every run, cycles in all in which memory is idle: no more is loaded while it runs.
    pub(super) idle: Vec<u64>,
}

impl LinkGains<'_> {
    pub(super) fn gain(&self, before: usize, next: usize) -> i128 {
        let unknown = || i128::from(self.saved[next].min(self.idle[before]));
        self.known.get(&(before, next)).copied().unwrap_or_else(unknown)
    }
}
