//! Where the actors of a run stand in the loop nest.

use crate::program::{Cadence, Step, emits};

use super::actors::{Actor, ActorKind};
use super::engine::Engine;

impl Engine<'_> {
    /// Where an actor's next firing stands in the nest. Stages that run once a token stand in the last chunk.
    pub(super) fn step(&self, actor: &Actor) -> Step {
        self.step_of(actor, actor.next)
    }

    /// Where the `n`-th firing of an actor stands.
    pub(super) fn step_of(&self, actor: &Actor, n: u64) -> Step {
        let step = self.nest.step(actor.cadence, n);
        match actor.kind {
            ActorKind::Bundle { .. } if actor.cadence == Cadence::Token => {
                Step { chunk: self.nest.chunks() - 1, ..step }
            }
            _ => step,
        }
    }

    pub(super) fn emits(&self, actor: &Actor, at: Step) -> bool {
        match actor.kind {
            ActorKind::Bundle { stage, bundle } => emits(&self.section.stages[stage], bundle, &self.nest, at),
            _ => true,
        }
    }

    /// Whether an actor fills its outputs in a firing: it emits, or hands its sums on to the next slice of K.
    pub(super) fn gives(&self, actor: &Actor, at: Step) -> bool {
        self.emits(actor, at) || self.hands_on(actor)
    }

    /// Whether an actor hands its sums on to the next slice of K.
    pub(super) fn hands_on(&self, actor: &Actor) -> bool {
        matches!(actor.kind, ActorKind::Bundle { stage, bundle } if self.section.stages[stage].mapping.hands_on(bundle))
    }

    pub(super) fn ordinal(&self, buffer: usize, at: Step) -> u64 {
        self.nest.ordinal(self.section.buffers[buffer].spec.cadence, at)
    }

    /// Whether an actor's next firing (already counted) continues the sums of the firing at `at`: of its token, or of its
    /// chunk where it adds up over tokens.
    pub(super) fn next_reads_these_sums(&self, index: usize, at: Step) -> bool {
        let actor = &self.actors[index];
        let ActorKind::Bundle { stage, .. } = actor.kind else { return false };
        let is_sum = self.section.stages[stage].spec.sums.is_some();
        actor.next < actor.count && {
            let next = self.step(actor);
            if is_sum { next.chunk == at.chunk } else { next.token == at.token }
        }
    }

    /// Where a store stands in the nest: whole tokens are complete in the last chunk, sums over tokens with the last.
    pub(super) fn store_step(&self, index: usize, at: Step) -> Step {
        let nest = &self.nest;
        let (last, end) = (nest.chunks() - 1, nest.tokens() - 1);
        match self.actors[index].cadence {
            Cadence::Firing => at,
            Cadence::Token => Step { chunk: last, ..at },
            Cadence::BlockChunk => Step { token: nest.block_range(at.block).end - 1, ..at },
            Cadence::Chunk => Step { block: nest.blocks() - 1, token: end, ..at },
            Cadence::Once => Step { block: nest.blocks() - 1, chunk: last, token: end },
        }
    }
}
