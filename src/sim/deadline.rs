//! A run that can no longer end within a limit of cycles is stopped: branch and bound over the candidates of a section.
//!
//! An actor works its firings one after the other, so that none of them ends before now and all the work that is left to
//! it. This bound is exact: a run that is stopped by it would have passed the limit.

use crate::cost::{StageWork, Ticks, busy_cycles, cycles};
use crate::index::IndexVec;
use crate::program::{ProcessKind, Section, StageId};

use super::actors::Actor;

/// The limit of a run, and what its actors work in all.
#[derive(Debug)]
pub(super) struct Deadline {
    most_ticks: Ticks,
    /// Cycles of every lockstep group; empty without a limit.
    busy_cycles: IndexVec<StageId, Vec<u64>>,
}

impl Deadline {
    /// A limit of `most_ticks`, which may be [`Ticks::MAX`].
    pub(super) fn new(section: &Section, work: &IndexVec<StageId, StageWork>, most_ticks: Ticks) -> Self {
        let busy_cycles = if most_ticks == Ticks::MAX { IndexVec::new() } else { busy_cycles(section, work) };
        Self { most_ticks, busy_cycles }
    }

    /// Whether the limit has passed by `now`.
    pub(super) fn has_passed(&self, now: Ticks) -> bool {
        now > self.most_ticks
    }

    /// Whether an actor cannot end its work in time, if its next firing begins at `now`.
    pub(super) fn will_pass(&self, actor: &Actor, now: Ticks) -> bool {
        let ProcessKind::Group { stage, group } = actor.kind else { return false };
        let all = self.busy_cycles.get(stage).and_then(|groups| groups.get(group as usize)).copied().unwrap_or(0);
        now.saturating_add(cycles(all.saturating_sub(actor.busy_cycles))) > self.most_ticks
    }
}
