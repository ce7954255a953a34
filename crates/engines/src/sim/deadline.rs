//! A run that can no longer end within a limit of cycles is stopped: branch and bound over the candidates of a section.
//!
//! An actor works its firings one after the other, so that none of them ends before now and all the work that is left to
//! it. This bound is exact: a run that is stopped by it would have passed the limit.
//!
//! A run whose work is limited and that costs the host much is also stopped when its rate shows that it will pass the limit by
//! far: the work that all groups did since the rate was last examined, over the time that passed. The times in between double, so
//! that filling the pipeline counts for little.

use rdusim_base::index::IndexVec;
use rdusim_base::units::index;
use rdusim_cost::cost::{StageWork, Ticks, busy_cycles, cycles};
use rdusim_program::{ProcessKind, Section, StageId};

use super::actors::Actor;

/// The limit of a run, and what its actors work in all.
#[derive(Debug)]
pub(super) struct Deadline {
    most_ticks: Ticks,
    /// Cycles of every lockstep group; empty without a limit.
    busy_cycles: IndexVec<StageId, Vec<u64>>,
    /// Work of the engine at which the rate is examined next.
    next_check: u64,
    /// The time, and the cycles that all groups had worked, when it was examined before.
    before: Option<(Ticks, u64)>,
}

/// Work of the engine from which the rate of a run is examined: some 15 ms of the host.
const FIRST_CHECK: u64 = 1_000_000;
/// Percent of the limit beyond which a run's rate must lead it for the run to be stopped.
const OUTPACED_PERCENT: u128 = 103;
/// One in so many of a run's cycles of work must be done before its rate counts.
const LEAST_DONE: u64 = 32;

impl Deadline {
    /// A limit of `most_ticks`, which may be [`Ticks::MAX`]: a run is stopped only when it must pass it (`is_exact`), or also when its
    /// rate shows that it will.
    pub(super) fn new(
        section: &Section,
        work: &IndexVec<StageId, StageWork>,
        most_ticks: Ticks,
        is_exact: bool,
    ) -> Self {
        let busy_cycles = if most_ticks == Ticks::MAX { IndexVec::new() } else { busy_cycles(section, work) };
        Self { most_ticks, busy_cycles, next_check: if is_exact { u64::MAX } else { FIRST_CHECK }, before: None }
    }

    /// Whether the limit has passed by `now`.
    pub(super) fn has_passed(&self, now: Ticks) -> bool {
        now > self.most_ticks
    }

    /// Whether a run that has cost so much work will pass the limit by far at the rate of its latest half.
    pub(super) fn is_outpaced(&mut self, work: u64, actors: &[Actor], now: Ticks) -> bool {
        if work < self.next_check || self.busy_cycles.is_empty() {
            return false;
        }
        self.next_check = work.saturating_mul(2);
        let all: u64 = self.busy_cycles.iter().flatten().sum();
        let done: u64 = actors.iter().map(|actor| actor.busy_cycles).sum();
        let Some((from, did)) = self.before.replace((now, done)) else { return false };
        if done <= did || done < all / LEAST_DONE {
            return false;
        }
        let left = u128::from(all.saturating_sub(done)) * u128::from(now.saturating_sub(from)) / u128::from(done - did);
        (u128::from(now) + left) * 100 > u128::from(self.most_ticks) * OUTPACED_PERCENT
    }

    /// Whether an actor cannot end its work in time, if its next firing begins at `now`, or when it is free.
    pub(super) fn will_pass(&self, actor: &Actor, now: Ticks) -> bool {
        let ProcessKind::Group { stage, group } = actor.kind else { return false };
        let all = self.busy_cycles.get(stage).and_then(|groups| groups.get(index(group))).copied().unwrap_or(0);
        now.max(actor.free_at).saturating_add(cycles(all.saturating_sub(actor.busy_cycles))) > self.most_ticks
    }
}
