//! Where the actors of a run stand in the loop nest, by the process graph.

use rdusim_program::{BufferId, Iteration, ProcessKind};

use super::actors::Actor;
use super::engine::Engine;

impl Engine<'_> {
    /// Counts firings of an actor that are done, from which its next one follows.
    #[inline]
    pub(super) fn go_on(&mut self, index: usize, firings: u64) {
        let actor = &mut self.actors[index];
        actor.next += firings;
        if actor.next < actor.count {
            actor.at = self.processes.point(index, actor.next);
        }
    }

    /// Where the `n`-th firing of an actor stands.
    #[inline]
    pub(super) fn step_of(&self, index: usize, n: u64) -> Iteration {
        self.processes.point(index, n)
    }

    pub(super) fn emits(&self, actor: &Actor, at: Iteration) -> bool {
        self.processes.emits(actor.kind, at)
    }

    /// Whether an actor fills its outputs in a firing: it emits, or forwards its sums to another slice of K.
    pub(super) fn produces(&self, actor: &Actor, at: Iteration) -> bool {
        self.processes.produces(actor.kind, at)
    }

    /// Whether an actor forwards its sums to another slice of K in a firing.
    pub(super) fn forwards_sums(&self, actor: &Actor, at: Iteration) -> bool {
        self.processes.forwards_sums(actor.kind, at)
    }

    pub(super) fn ordinal(&self, buffer: BufferId, at: Iteration) -> u64 {
        self.processes.slot(buffer, at)
    }

    /// Whether an actor's next firing (already counted) continues the sums of the firing at `at`: of its row tile, or of its
    /// column tile where it adds up over row tiles.
    pub(super) fn next_reads_these_sums(&self, index: usize, at: Iteration) -> bool {
        let actor = &self.actors[index];
        let ProcessKind::Group { stage, .. } = actor.kind else { return false };
        let of_sums = |at| self.processes.schedule().ordinal(self.section.stages[stage].result_level(), at);
        actor.next < actor.count && of_sums(actor.at) == of_sums(at)
    }

    /// Where a store stands in the nest: whole row tiles are complete in the last column tile, sums over row tiles with the last.
    pub(super) fn store_step(&self, index: usize, at: Iteration) -> Iteration {
        self.processes.complete_point(self.actors[index].level, at)
    }
}
