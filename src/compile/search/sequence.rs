//! Partitions compared with what prefetching saves: the time of a section depends on the one before it.
//!
//! What prefetching gains of two sections in a row is measured only where they stand in the best partition so far, and then
//! corrects the search: a shortest path whose edges are evaluated lazily (Dellin and Srinivasa, ICAPS 2016). Invariant: a link
//! that is not known gains what the second section would with the first slots of all its weights on chip, as far as the first
//! has memory time for that, so that no partition is passed over that could be better than the one found.

use std::collections::BTreeSet;

use rayon::prelude::*;
use rustc_hash::FxHashMap;

use crate::compile::params::PARAMS;
use crate::compile::prefetch::{LinkCycles, Prefetcher, most_saved_cycles};
use crate::workload::{OperatorId, Phase};

use super::chosen::Chosen;
use super::context::SearchContext;
use super::links::{LinkGains, Sequences};
use super::partition::Partitioner;
use super::planned::Planned;
use super::runs::Run;

/// What decides whether one section runs behind another every time.
type Place = (Option<usize>, u64, Phase, u64);

/// What of a row decides how it goes on: its first section where that matters, its last, and whether there are several.
type RowKey = (Option<usize>, usize, bool);

/// The best way so far to some place in the order.
#[derive(Debug, Clone, Copy)]
struct Reached {
    cost: i128,
    /// The run that ends here.
    run: usize,
    /// Place in the order where that begins, and the way that it continues there.
    before: Option<(usize, usize)>,
    row: Row,
}

/// Sections so far that run one behind the other every time.
#[derive(Debug, Clone, Copy)]
struct Row {
    first: usize,
    last: usize,
    /// It has more than one section.
    is_linked: bool,
}

impl Partitioner<'_> {
    /// Runs of the best partition by what is known; the index of a run that nothing covers, if there is none.
    pub(super) fn best_sequence(&self) -> Result<Vec<usize>, usize> {
        let n = self.workload.operators.len();
        let Some(sequences) = &self.sequences else { return self.best_partition((0, n)) };
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
        // Ways that only differ in what no longer matters, by their place in `reached`.
        let mut places: Vec<FxHashMap<RowKey, usize>> = vec![FxHashMap::default(); n + 1];
        for at in 0..n {
            let ways: Vec<Option<(usize, Reached)>> = match at {
                0 => vec![None],
                _ => reached[at].iter().copied().enumerate().map(Some).collect(),
            };
            for &run in &starting[at] {
                let Some(score) = scores[run].filter(|&score| score < u64::MAX) else { continue };
                for way in &ways {
                    let to = self.runs[run].span.1;
                    let next = self.extended(&gains, *way, (run, score, at));
                    let Row { first, last, is_linked } = next.row;
                    let first = (!is_linked || matters(first)).then_some(first);
                    let place = *places[to].entry((first, last, is_linked)).or_insert(reached[to].len());
                    match reached[to].get_mut(place) {
                        Some(other) if next.is_better_than(other) => *other = next,
                        Some(_) => {}
                        None => reached[to].push(next),
                    }
                }
            }
        }
        let closed = |way: &Reached| (way.cost + self.closing_cost(&gains, way.row), way.run, way.before);
        let Some(mut way) = reached[n].iter().min_by_key(|way| closed(way)) else {
            return self.best_partition((0, n)).and(Err(0));
        };
        let mut chosen = Vec::new();
        loop {
            chosen.extend(self.runs[way.run].split_off.iter().rev());
            chosen.push(way.run);
            let Some((at, before)) = way.before else { break };
            way = &reached[at][before];
        }
        chosen.reverse();
        Ok(chosen)
    }

    /// A way to a place in the order, and a run behind it.
    fn extended(
        &self,
        gains: &LinkGains<'_>,
        way: Option<(usize, Reached)>,
        (run, score, at): (usize, u64, usize),
    ) -> Reached {
        let mut cost = way.map_or(0, |(_, way)| way.cost) + i128::from(score);
        let mut row = way.map(|(_, way)| way.row);
        for part in [run].into_iter().chain(self.runs[run].split_off.iter().copied()) {
            let (more, next) = self.step(gains, row, part);
            cost += more;
            row = Some(next);
        }
        let row = row.unwrap_or(Row { first: run, last: run, is_linked: false });
        Reached { cost, run, before: way.map(|(before, _)| (at, before)), row }
    }

    /// What the next section costs beside its score, and the row that it is in.
    fn step(&self, gains: &LinkGains<'_>, row: Option<Row>, next: usize) -> (i128, Row) {
        match row {
            Some(row) if self.place(row.last) == self.place(next) => {
                (-gains.gain(row.last, next), Row { last: next, is_linked: true, ..row })
            }
            _ => {
                let closing = row.map_or(0, |row| self.closing_cost(gains, row));
                (closing, Row { first: next, last: next, is_linked: false })
            }
        }
    }

    /// What the first section of a row costs beside its score: the last of a repeated block loads for it, or nothing does.
    fn closing_cost(&self, gains: &LinkGains<'_>, Row { first, last, is_linked }: Row) -> i128 {
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
        let of_run = |(run, &looped): (&Run, &u64)| {
            let (saved, idle) = of_classes[run.class];
            // A looped section has none before it.
            (if looped > 0 { 0 } else { saved }, idle)
        };
        let (saved, idle) = self.runs.iter().zip(&self.saved_by_looping).map(of_run).unzip();
        LinkGains { known: &sequences.gains, saved, idle }
    }

    fn repeat(&self, run: usize) -> u64 {
        self.workload.operators[self.runs[run].operators[0]].repeat
    }

    fn place(&self, run: usize) -> Place {
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
        let (mut cost, mut row) = (0, None);
        for &run in partition {
            let (more, next) = self.step(&gains, row, run);
            cost += more;
            row = Some(next);
        }
        cost + row.map_or(0, |row| self.closing_cost(&gains, row))
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
        let least = cost as f64 * (1.0 - PARAMS.partition.worth_another_partition);
        let is_settled = sequences.evaluated.len() >= PARAMS.partition.most_linked
            || sequences.evaluated.contains_key(best)
            || self.cost(best) as f64 >= least;
        is_settled.then(|| found.clone())
    }

    /// Measures what prefetching saves of the sections of a partition, and what it makes of those in a row. Whether anything
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
        // What two sections gain depends on others in the row as well: the most that was seen.
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
