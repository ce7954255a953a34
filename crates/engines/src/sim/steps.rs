//! Where the actors of a run stand in the loop nest, by the process graph.

use rdusim_program::{BufferId, Iteration, ProcessKind};

use super::actors::Actor;
use super::engine::Engine;

impl Engine<'_> {
    /// Counts firings of an actor that have begun, from which its next one follows.
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

    /// Whether an actor's next firing continues the sums that the firing at `at` leaves: of its row tile, or of its column tile
    /// where it adds up over row tiles.
    pub(super) fn next_adds_to_these_sums(&self, actor: &Actor, at: Iteration) -> bool {
        let ProcessKind::Group { stage, .. } = actor.kind else { return false };
        let of_sums = |at| self.processes.schedule().ordinal(self.section.stages[stage].result_level(), at);
        actor.next < actor.count && of_sums(actor.at) == of_sums(at) && !self.produces(actor, at)
    }

    /// Whether an actor's next firing continues the sums of its latest, which has not left them yet.
    pub(super) fn waits_for_its_sums(&self, actor: &Actor) -> bool {
        actor.under_way.back().is_some_and(|latest| self.next_adds_to_these_sums(actor, latest.at))
    }

    /// Where a store stands in the nest: whole row tiles are complete in the last column tile, sums over row tiles with the last.
    pub(super) fn store_step(&self, index: usize, at: Iteration) -> Iteration {
        self.processes.complete_point(self.actors[index].level, at)
    }
}
