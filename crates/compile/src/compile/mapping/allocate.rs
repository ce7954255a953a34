//! Splitting PCUs over the stages of a section so that the slowest stage is as fast as possible.

use crate::compile::params::PARAMS;
use rdusim_base::index::IndexVec;
use rdusim_program::StageId;

use super::front::{Candidate, StageCandidates};
use super::pipeline::Pipeline;

/// Cycles below which a split of K is worth its partial sums, where `cycles` can be had without.
pub(crate) fn worth_a_split(cycles: u64) -> u64 {
    (cycles as f64 / (1.0 + PARAMS.mapping.worth_splitting_k)) as u64
}

/// The allocation with the least slowest stage that takes at most `pcus`; exact over the candidates. No stage is made
/// faster than `floor_cycles`. `None` when even the smallest candidates do not fit.
fn allocate(
    stages: &IndexVec<StageId, StageCandidates>,
    pcus: u64,
    floor_cycles: u64,
) -> Option<IndexVec<StageId, Candidate>> {
    allocate_in_parts(stages, pcus, floor_cycles, |_| 1.0)
}

/// The same where a stage must do with its part of the slowest stage's cycles.
fn allocate_in_parts(
    stages: &IndexVec<StageId, StageCandidates>,
    pcus: u64,
    floor_cycles: u64,
    part: impl Fn(StageId) -> f64 + Copy,
) -> Option<IndexVec<StageId, Candidate>> {
    if stages.iter().any(|stage| stage.len() == 0) {
        return None;
    }
    let needs = |stage: StageId, cycles: u64| {
        if part(stage) < 1.0 { (cycles as f64 / part(stage)).ceil() as u64 + 1 } else { cycles }
    };
    // No stage is faster than its last candidate; with their first, they take as few PCUs as can be.
    let last = |(s, stage): (StageId, &StageCandidates)| needs(s, stage.cycles(stage.len() - 1));
    let first = |(s, stage): (StageId, &StageCandidates)| needs(s, stage.cycles(0));
    let fastest = stages.iter_enumerated().map(last).max()?.max(floor_cycles);
    let slowest = stages.iter_enumerated().map(first).max()?.max(fastest);
    let (mut exceeds, mut target) = (fastest, slowest);
    let mut windows: Windows = stages.iter().map(|stage| Window { low: 0, high: stage.len() - 1, at: 0 }).collect();
    if Cheapest::of(stages, fastest, part, &mut windows).pcus <= pcus {
        target = fastest;
    } else {
        windows.iter_mut().for_each(|window| window.high = window.at);
        if Cheapest::of(stages, slowest, part, &mut windows).pcus > pcus {
            return None;
        }
        windows.iter_mut().for_each(|window| window.low = window.at);
    }
    // Bisection over the cycles of the candidates: between two of them nothing changes.
    while target - exceeds > 1 {
        let middle = exceeds + (target - exceeds) / 2;
        let cheapest = Cheapest::of(stages, middle, part, &mut windows);
        if cheapest.pcus <= pcus {
            target = middle;
            windows.iter_mut().for_each(|window| window.low = window.at);
        } else {
            exceeds = cheapest.next_slower.saturating_sub(1).clamp(middle, target - 1);
            windows.iter_mut().for_each(|window| window.high = window.at);
        }
    }
    stages.iter_enumerated().map(|(s, stage)| stage.get(stage.cheapest(in_part(target, part(s))))).collect()
}

/// Of each stage, the candidates that a bisection has left, and the one it has come to.
type Windows = IndexVec<StageId, Window>;

/// See [`Windows`].
#[derive(Debug, Clone, Copy)]
struct Window {
    low: usize,
    high: usize,
    at: usize,
}

/// A stage's part of the slowest stage's cycles.
fn in_part(cycles: u64, part: f64) -> u64 {
    if part < 1.0 { (cycles as f64 * part) as u64 } else { cycles }
}

/// The cheapest candidates that need at most so many cycles, one of each stage.
struct Cheapest {
    /// PCUs of all.
    pcus: u64,
    /// Cycles, beyond those allowed, up to which all of them stay the cheapest.
    next_slower: u64,
}

impl Cheapest {
    /// Of stages that each have a candidate, in its window, that needs at most its part of `cycles`.
    fn of(
        stages: &IndexVec<StageId, StageCandidates>,
        cycles: u64,
        part: impl Fn(StageId) -> f64,
        windows: &mut Windows,
    ) -> Self {
        let mut all = Self { pcus: 0, next_slower: u64::MAX };
        for ((s, stage), window) in stages.iter_enumerated().zip(windows) {
            let allowed = in_part(cycles, part(s));
            let at = stage.cheapest_of(window.low..window.high, allowed);
            window.at = at;
            all.pcus += stage.pcus(at);
            if let Some(slower) = at.checked_sub(1) {
                let next = stage.cycles(slower);
                let next = if part(s) < 1.0 { (next as f64 / part(s)) as u64 } else { next };
                all.next_slower = all.next_slower.min(next);
            }
        }
        all
    }
}

/// Least cycles in which memory moves the tensors of a section.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct MemoryCycles {
    /// All of them.
    pub all: u64,
    /// Those of stages that do not wait for all column tiles.
    pub early: u64,
}

/// Of allocations that keep some PCUs from balancing the stages ([`allocate`]) and give them to the filling of the pipeline
/// ([`shorten_fill`]), the one with the least sum of the slowest stage's cycles and those of filling; of equals the first.
/// Nothing is kept where moving the section's tensors takes longer than both, and no less when stages that wait for all column tiles
/// begin behind what the others take from memory.
pub(crate) fn allocate_and_fill(
    stages: &IndexVec<StageId, StageCandidates>,
    pipeline: &Pipeline,
    pcus: u64,
    floor_cycles: u64,
    memory: MemoryCycles,
) -> Option<IndexVec<StageId, Candidate>> {
    let slowest = |picked: &IndexVec<StageId, Candidate>| pipeline.slowest(|s| picked[s].cycles);
    let mut best = allocate(stages, pcus, floor_cycles)?;
    // Fewer PCUs, or more asked of a stage, make the slowest no faster: what follows begins there.
    let least = best.iter().map(|candidate| candidate.cycles).fold(floor_cycles, u64::max);
    // Stages whose work grows along a sequence are faster than the others at its beginning, and should be so longer.
    let mut growing = 1.0;
    let part = PARAMS.mapping.growing_part;
    let of_growing = |stage| if pipeline.grows(stage) { part } else { 1.0 };
    if pipeline.is_uneven()
        && let Some(picked) = allocate_in_parts(stages, pcus, least, of_growing)
        && slowest(&picked) < slowest(&best)
    {
        (best, growing) = (picked, part);
    }
    let in_parts = |stage| if pipeline.grows(stage) { growing } else { 1.0 };
    let (balanced, mut fill) = (slowest(&best), pipeline.fill_cycles(|s| best[s].worked_cycles(), |_| 0.0));
    let behind = |picked: &IndexVec<StageId, Candidate>| pipeline.late_cycles(|s| picked[s].worked_cycles(), |_| 0.0);
    let worth_filling = PARAMS.mapping.worth_filling;
    let is_hidden = |fill: f64, late: f64| {
        let most = memory.all as f64 * (1.0 + worth_filling);
        balanced + fill <= memory.all as f64 && memory.early as f64 + late <= most
    };
    let is_worth = |fill: f64, late: f64| fill > balanced * worth_filling && !is_hidden(fill, late);
    let mut late = behind(&best);
    let (mut shortest, balanced_picks) = (f64::INFINITY, best.clone());
    for kept in PARAMS.mapping.kept_for_filling {
        if !is_worth(fill, late) {
            break;
        }
        let balancing = pcus - (pcus as f64 * kept) as u64;
        let picked = if balancing == pcus {
            Some(balanced_picks.clone())
        } else {
            allocate_in_parts(stages, balancing, least, in_parts)
        };
        let Some(mut picked) = picked else { break };
        shorten_fill(stages, pipeline, &mut picked, pcus);
        let now = pipeline.fill_cycles(|s| picked[s].worked_cycles(), |_| 0.0);
        let cycles = slowest(&picked) + now;
        if cycles < shortest {
            late = behind(&picked);
            (best, shortest, fill) = (picked, cycles, now);
        }
    }
    Some(best)
}

/// Gives PCUs that an allocation leaves to the stages that delay the first row tile: those on the longest path through the
/// pipeline, but the slowest, which gains nothing by it. Each gets a part as the square root of its work in a firing is to
/// all of theirs, which makes their sum least where cycles fall as PCUs rise (Kleinrock's capacity assignment, 1964).
fn shorten_fill(
    stages: &IndexVec<StageId, StageCandidates>,
    pipeline: &Pipeline,
    picked: &mut IndexVec<StageId, Candidate>,
    pcus: u64,
) {
    let mut free = pcus.saturating_sub(picked.iter().map(|candidate| candidate.pcus).sum());
    let slowest = picked.ids().max_by_key(|&stage| picked[stage].cycles);
    let (_, mut path) = pipeline.longest_path(|stage| pipeline.firing_cycles(stage, picked[stage].worked_cycles()));
    path.retain(|&stage| Some(stage) != slowest);
    let root =
        |stage: StageId, of: &Candidate| (pipeline.firing_cycles(stage, of.worked_cycles()) * of.pcus as f64).sqrt();
    let mut roots: f64 = path.iter().map(|&stage| root(stage, &picked[stage])).sum();
    let mut budget: u64 = free + path.iter().map(|&stage| picked[stage].pcus).sum::<u64>();
    // Those with the least work first: what they cannot use is left to the others.
    path.sort_by(|&a, &b| root(a, &picked[a]).total_cmp(&root(b, &picked[b])));
    for stage in path {
        let now = picked[stage];
        let part = root(stage, &now);
        let most = ((budget as f64 * part / roots) as u64).clamp(now.pcus, now.pcus + free);
        if let Some(next) = stages[stage].fastest(most).filter(|next| next.cycles < now.cycles) {
            picked[stage] = next;
        }
        free -= picked[stage].pcus.saturating_sub(now.pcus).min(free);
        budget = budget.saturating_sub(picked[stage].pcus);
        roots = (roots - part).max(f64::MIN_POSITIVE);
    }
}

/// The distinct values of `ceil(total / q)`, at most `most`, largest first: splits that waste no unit.
pub(crate) fn useful_splits(total: u64, most: u64) -> Vec<u64> {
    let mut splits = Vec::new();
    let mut q = total.div_ceil(most.max(1)).max(1);
    while q <= total {
        let split = total.div_ceil(q);
        splits.push(split);
        if split == 1 {
            break;
        }
        // The least q with a smaller ceiling.
        q = total.div_ceil(split - 1);
    }
    splits
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::mapping::front::{CandidateIndex, Cycles, Front, Offers, Source};
    use proptest::prelude::*;
    use rdusim_cost::cost::StageFootprint;
    use rdusim_program::{Mapping, SimdMapping};

    /// Candidates on so many PCUs each, that take so many cycles with K in so many slices.
    fn candidates(list: impl Iterator<Item = (u64, u64, u64)>) -> StageCandidates {
        let mut front = Front::default();
        for (pcus, cycles, pk) in list {
            front.offer(pcus, Cycles::worked(cycles), pk, CandidateIndex { row_slices: pcus as u32, of: 0 });
        }
        let mapping = Mapping::Simd(SimdMapping { pm: 1, pn: 1, chain: 1, passes: 1 });
        front.finish(Source::Own([(mapping, StageFootprint::default())].into()), 1)
    }

    #[test]
    fn splits_are_the_distinct_ceilings() {
        assert_eq!(useful_splits(10, 100), [10, 5, 4, 3, 2, 1]);
        assert_eq!(useful_splits(10, 4), [4, 3, 2, 1]);
        assert_eq!(useful_splits(1, 1), [1]);
    }

    /// A normalisation in front of three GEMMs' worth of work: two PCUs suffice for the rate, but the first row tile waits.
    #[test]
    fn pcus_that_are_left_shorten_the_filling() {
        let of_work = |work: u64, most: u64| candidates((1..=most).map(|pcus| (pcus, work.div_ceil(pcus), 1)));
        let stages: IndexVec<StageId, _> = [of_work(1_600, 20), of_work(80_000, 100)].into_iter().collect();
        let pipeline = Pipeline::chain(&[8, 8]);
        let balanced = allocate(&stages, 110, 0).unwrap();
        assert_eq!(balanced.iter().map(|c| (c.pcus, c.cycles)).collect::<Vec<_>>(), [(2, 800), (100, 800)]);
        let filled = allocate_and_fill(&stages, &pipeline, 110, 0, MemoryCycles::default()).unwrap();
        assert_eq!(filled.iter().map(|c| (c.pcus, c.cycles)).collect::<Vec<_>>(), [(10, 160), (100, 800)]);
        // Nothing is gained where memory takes longer.
        assert_eq!(
            allocate_and_fill(&stages, &pipeline, 110, 0, MemoryCycles { all: 1_000, early: 0 }).unwrap(),
            balanced
        );
    }

    proptest! {
        #[test]
        fn cycles_fall_as_pcus_rise(list in prop::collection::vec((1u64..20, 90u64..120, 1u64..3), 1..30)) {
            let front = candidates(list.into_iter());
            for (fewer, more) in (0..front.len()).zip(1..front.len()) {
                prop_assert!(front.pcus(fewer) < front.pcus(more));
                prop_assert!(front.cycles(fewer) > front.cycles(more), "{:?}", front);
            }
        }

        #[test]
        fn filling_takes_no_more_pcus_and_no_longer(
            stages in prop::collection::vec((prop::collection::vec((1u64..9, 90u64..120, 1u64..3), 1..9), 1u64..9), 1..5),
            pcus in 1u64..40,
        ) {
            let front = |stage: &Vec<(u64, u64, u64)>| candidates(stage.iter().copied());
            let sets: IndexVec<StageId, _> = stages.iter().map(|(stage, _)| front(stage)).collect();
            let firings: Vec<u64> = stages.iter().map(|&(_, firings)| firings).collect();
            let pipeline = Pipeline::chain(&firings);
            let balanced = allocate(&sets, pcus, 0);
            let filled = allocate_and_fill(&sets, &pipeline, pcus, 0, MemoryCycles::default());
            prop_assert_eq!(balanced.is_some(), filled.is_some());
            if let (Some(balanced), Some(filled)) = (balanced, filled) {
                let cycles = |picked: &IndexVec<StageId, Candidate>| {
                    picked.iter().map(|c| c.cycles).max().unwrap_or(0) as f64 + pipeline.fill_cycles(|s| picked[s].cycles, |_| 0.0)
                };
                prop_assert!(filled.iter().map(|c| c.pcus).sum::<u64>() <= pcus);
                prop_assert!(cycles(&filled) <= cycles(&balanced) + 1e-6, "{:?} {:?}", filled, balanced);
            }
        }

        #[test]
        fn allocation_is_the_best_of_all(
            stages in prop::collection::vec(prop::collection::vec((1u64..9, 1u64..50), 1..6), 1..4),
            pcus in 1u64..20,
        ) {
            let front = |stage: &Vec<(u64, u64)>| candidates(stage.iter().map(|&(pcus, cycles)| (pcus, cycles, 1)));
            let sets: IndexVec<StageId, _> = stages.iter().map(front).collect();
            let found = allocate(&sets, pcus, 0).map(|list| list.iter().map(|c| c.cycles).max().unwrap());
            let mut best = None;
            let mut index = vec![0; stages.len()];
            'all: loop {
                let picked: Vec<_> = index.iter().zip(&stages).map(|(&i, s)| s[i]).collect();
                if picked.iter().map(|p| p.0).sum::<u64>() <= pcus {
                    let slowest = picked.iter().map(|p| p.1).max().unwrap();
                    best = Some(best.map_or(slowest, |b: u64| b.min(slowest)));
                }
                for digit in 0..stages.len() {
                    index[digit] += 1;
                    if index[digit] < stages[digit].len() {
                        continue 'all;
                    }
                    index[digit] = 0;
                }
                break;
            }
            prop_assert_eq!(found, best);
        }
    }
}
