//! Partitions compared with what prefetching saves: the time of a section depends on the one before it.
//!
//! What prefetching gains of two sections in a chain is measured only where they stand in the best partition so far, and then
//! corrects the search: a shortest path whose edges are evaluated lazily (Dellin and Srinivasa, ICAPS 2016). A pair that is not
//! measured is taken to gain what the second section would with the first slots of all its weights on chip, as far as the first
//! has memory time for that. Invariant: the partition that is taken costs no more than any other whose pairs were measured.

use std::collections::BTreeSet;

use rayon::prelude::*;
use rustc_hash::FxHashMap;

use crate::compile::params::PARAMS;
use crate::compile::prefetch::{LinkCycles, Prefetcher, most_saved_cycles};
use rdusim_graph::workload::{OperatorId, Phase};

use super::chosen::Chosen;
use super::context::SearchContext;
use super::links::{LinkGains, Sequences};
use super::partition::Partitioner;
use super::planned::Planned;

/// What decides whether one section runs behind another every time.
type Repetition = (Option<usize>, u64, Phase, u64);

/// What of a chain decides how it goes on: its first section where that matters, its last, and whether there are several.
type ChainKey = (Option<usize>, usize, bool);

/// The cheapest path so far to some position in the order.
#[derive(Debug, Clone, Copy)]
struct Reached {
    cost: i128,
    /// The run that ends here.
    run: usize,
    /// Position where that begins, and the path that it continues there (its index).
    before: Option<(usize, usize)>,
    chain: Chain,
}

/// Sections so far that run one behind the other every time.
#[derive(Debug, Clone, Copy)]
struct Chain {
    first: usize,
    last: usize,
    /// It has more than one section.
    is_linked: bool,
}

impl Partitioner<'_> {
    /// Runs of the best partition by what is known; the index of a run that nothing covers, if there is none.
    pub(super) fn best_sequence(&self) -> Result<Vec<usize>, usize> {
        let n = self.workload.operators.len();
        let Some(sequences) = &self.sequences else { return self.best_partition(0, n) };
        let mut starting: Vec<Vec<usize>> = vec![Vec::new(); n];
        for (run, of) in self.runs.iter().enumerate().filter(|(_, of)| of.span.0 < of.span.1) {
            starting[of.span.0].push(run);
        }
        let scores: Vec<Option<u64>> = (0..self.runs.len()).map(|run| self.score(run)).collect();
        let gains = self.link_gains(sequences);
        let known_firsts: BTreeSet<usize> = sequences.gains.keys().map(|&(_, next)| next).collect();
        let matters =
            |first: usize| self.repeat(first) > 1 && (gains.saved[first] > 0 || known_firsts.contains(&first));
        let mut reached: Vec<Vec<Reached>> = vec![Vec::new(); n + 1];
        // Of paths that differ only in what no longer matters the cheapest, by its index in `reached`.
        let mut indices: Vec<FxHashMap<ChainKey, usize>> = vec![FxHashMap::default(); n + 1];
        for at in 0..n {
            let paths: Vec<Option<(usize, Reached)>> = match at {
                0 => vec![None],
                _ => reached[at].iter().copied().enumerate().map(Some).collect(),
            };
            for &run in &starting[at] {
                let Some(score) = scores[run].filter(|&score| score < u64::MAX) else { continue };
                for path in &paths {
                    let to = self.runs[run].span.1;
                    let next = self.extended(&gains, *path, run, score, at);
                    let Chain { first, last, is_linked } = next.chain;
                    let first = (!is_linked || matters(first)).then_some(first);
                    let index = *indices[to].entry((first, last, is_linked)).or_insert(reached[to].len());
                    match reached[to].get_mut(index) {
                        Some(other) if next.is_better_than(other) => *other = next,
                        Some(_) => {}
                        None => reached[to].push(next),
                    }
                }
            }
        }
        let closed = |path: &Reached| (path.cost + self.closing_cost(&gains, path.chain), path.run, path.before);
        let Some(mut path) = reached[n].iter().min_by_key(|path| closed(path)) else {
            return self.best_partition(0, n).and(Err(0));
        };
        let mut chosen = Vec::new();
        loop {
            chosen.extend(self.runs[path.run].split_off.iter().rev());
            chosen.push(path.run);
            let Some((at, before)) = path.before else { break };
            path = &reached[at][before];
        }
        chosen.reverse();
        Ok(chosen)
    }

    /// A path to a position in the order, and a run behind it.
    fn extended(
        &self,
        gains: &LinkGains<'_>,
        path: Option<(usize, Reached)>,
        run: usize,
        score: u64,
        at: usize,
    ) -> Reached {
        let mut cost = path.map_or(0, |(_, path)| path.cost) + i128::from(score);
        let mut chain = path.map(|(_, path)| path.chain);
        for part in [run].into_iter().chain(self.runs[run].split_off.iter().copied()) {
            let (more, next) = self.step(gains, chain, part);
            cost += more;
            chain = Some(next);
        }
        let chain = chain.unwrap_or(Chain { first: run, last: run, is_linked: false });
        Reached { cost, run, before: path.map(|(before, _)| (at, before)), chain }
    }

    /// What the next section costs beside its score, and the chain that it is in.
    fn step(&self, gains: &LinkGains<'_>, chain: Option<Chain>, next: usize) -> (i128, Chain) {
        match chain {
            Some(chain) if self.repetition(chain.last) == self.repetition(next) => {
                (-gains.gain(chain.last, next), Chain { last: next, is_linked: true, ..chain })
            }
            _ => {
                let closing = chain.map_or(0, |chain| self.closing_cost(gains, chain));
                (closing, Chain { first: next, last: next, is_linked: false })
            }
        }
    }

    /// What the first section of a chain costs beside its score: the last of a repeated block loads for it, or nothing does.
    fn closing_cost(&self, gains: &LinkGains<'_>, Chain { first, last, is_linked }: Chain) -> i128 {
        if is_linked && self.repeat(first) > 1 { -gains.gain(last, first) } else { 0 }
    }

    fn link_gains<'s>(&self, sequences: &'s Sequences) -> LinkGains<'s> {
        // Of every class, cycles in all that prefetching saves at most, and in which memory is idle.
        let of_class = |planned: &Option<Planned<'_>>| {
            let Some(planned) = planned else { return (0, u64::MAX) };
            let idle = sequences.tiers.iter().map(|&tier| planned.idle_memory_cycles(tier)).max().unwrap_or(0);
            let all = |once: u64| once.saturating_mul(planned.repeat());
            (all(planned.saved_by_prefetch()), all(idle))
        };
        let of_classes: Vec<(u64, u64)> = self.planned.iter().map(of_class).collect();
        let (saved, idle) = self.runs.iter().map(|run| of_classes[run.class]).unzip();
        LinkGains { known: &sequences.gains, saved, idle }
    }

    fn repeat(&self, run: usize) -> u64 {
        self.workload.operators[self.runs[run].operators[0]].repeat
    }

    fn repetition(&self, run: usize) -> Repetition {
        let op: OperatorId = self.runs[run].operators[0];
        let op = &self.workload.operators[op];
        (op.block, op.repeat, op.phase, op.every)
    }

    /// What the sections of a partition cost beside their scores: as was found, or as far as is known.
    pub(super) fn link_cost(&self, partition: &[usize]) -> i128 {
        let Some(sequences) = &self.sequences else { return 0 };
        if let Some(cost) = sequences.evaluated.get(partition) {
            return cost - self.scores(partition);
        }
        let gains = self.link_gains(sequences);
        let (mut cost, mut chain) = (0, None);
        for &run in partition {
            let (more, next) = self.step(&gains, chain, run);
            cost += more;
            chain = Some(next);
        }
        cost + chain.map_or(0, |chain| self.closing_cost(&gains, chain))
    }

    fn scores(&self, partition: &[usize]) -> i128 {
        let score = |&run: &usize| self.score_alone(run).map_or(i128::from(u64::MAX), i128::from);
        partition.iter().map(score).sum()
    }

    /// What partitions are compared by.
    fn cost(&self, partition: &[usize]) -> i128 {
        self.scores(partition) + self.link_cost(partition)
    }

    /// The best partition whose links are known, if the best by what is known gains nothing beside it.
    pub(super) fn settled(&self, best: &[usize]) -> Option<Vec<usize>> {
        let sequences = self.sequences.as_ref()?;
        let (found, &cost) = sequences.evaluated.iter().min_by_key(|&(_, &cost)| cost)?;
        let is_settled = sequences.evaluated.len() >= PARAMS.partition.most_linked
            || sequences.evaluated.contains_key(best)
            || self.cost(best) >= cost;
        is_settled.then(|| found.clone())
    }

    /// Measures what prefetching saves of the sections of a partition, and what it makes of those in a chain. Whether anything
    /// was not known.
    pub(super) fn link(&mut self, context: &SearchContext<'_>, partition: &[usize]) -> bool {
        let Some(sequences) = &self.sequences else { return false };
        if sequences.evaluated.contains_key(partition) {
            return false;
        }
        let mut classes: Vec<usize> = partition.iter().map(|&run| self.runs[run].class).collect();
        classes.sort_unstable();
        classes.dedup();
        let unmeasured = |&class: &usize| self.planned[class].as_ref().is_some_and(|p| p.measured_saving.is_none());
        let unmeasured: Vec<usize> = classes.into_iter().filter(unmeasured).collect();
        if !unmeasured.is_empty() {
            let saved = |&class: &usize| {
                let planned = self.planned[class].as_ref()?;
                let routed = planned.routed()?;
                let run = routed.run.as_ref()?;
                Some(most_saved_cycles(context, &planned.graph, &routed.section, run))
            };
            let saved: Vec<Option<u64>> = unmeasured.par_iter().map(saved).collect();
            for (class, saved) in unmeasured.into_iter().zip(saved) {
                if let Some(planned) = &mut self.planned[class] {
                    planned.measured_saving = Some(saved.unwrap_or(0));
                }
            }
            return true;
        }
        let chosen: Vec<Chosen<'_>> = partition.iter().filter_map(|&run| self.chosen(run)).collect();
        let Some(sequences) = &mut self.sequences else { return false };
        let links = sequences.prefetcher.link_cycles(context, chosen);
        let gain = |LinkCycles { before, next, cycles }: LinkCycles| {
            let planned = self.of(next)?;
            let run = planned.routed()?.run.as_ref()?;
            Some(((before, next), i128::from(run.cycles) * i128::from(planned.repeat()) - cycles))
        };
        let gains: Vec<((usize, usize), i128)> = links.into_iter().filter_map(gain).collect();
        let cost = self.scores(partition) - gains.iter().map(|(_, gain)| gain).sum::<i128>();
        let Some(sequences) = &mut self.sequences else { return false };
        // What two sections gain depends on others in the chain as well: the most that was seen.
        for (pair, gain) in gains {
            sequences.gains.entry(pair).and_modify(|most| *most = gain.max(*most)).or_insert(gain);
        }
        sequences.evaluated.insert(partition.to_vec(), cost);
        true
    }

    /// What is known of the prefetching of sections, for the pass that does it.
    pub(crate) fn take_prefetcher(&mut self) -> Prefetcher {
        self.sequences.as_mut().map(|sequences| std::mem::take(&mut sequences.prefetcher)).unwrap_or_default()
    }
}

impl Reached {
    /// Of equals, whichever comes first in an order that does not depend on how they were found.
    fn is_better_than(&self, other: &Self) -> bool {
        (self.cost, self.run, self.before) < (other.cost, other.run, other.before)
    }
}
