//! Slots that come later than was known when they were filled, because other streams have slowed what they are made of.

use crate::compile::Step;

use super::actors::{Actor, ActorKind, Streamed};
use super::event::Engine;
use super::time::{Ticks, cycles};

impl Engine<'_> {
    /// When the slots that a store is about to write are there after all; 0 if nothing has changed. What other actors
    /// read late delays their next firing, and is heeded there.
    pub(super) fn late(&self, index: usize) -> Ticks {
        let actor = &self.actors[index];
        if !matches!(actor.kind, ActorKind::Store { .. }) {
            return 0;
        }
        let at = self.step(actor);
        actor.inputs.iter().map(|input| self.late_slot(input.buffer, at)).max().unwrap_or(0)
    }

    /// When the slot of a buffer at a step is there, of those that its producers have worked on last.
    fn late_slot(&self, buffer: usize, at: Step) -> Ticks {
        let slot = self.ordinal(buffer, at);
        let producers = self.producers[buffer].iter().map(|&p| &self.actors[p]);
        producers.map(|producer| self.late_results(producer, buffer, slot)).max().unwrap_or(0)
    }

    fn late_results(&self, actor: &Actor, buffer: usize, slot: u64) -> Ticks {
        let ActorKind::Bundle { stage, .. } = actor.kind else { return 0 };
        let latest = actor.next.checked_sub(1).filter(|_| actor.firing.is_none());
        let Some(at) = latest.map(|n| self.step_of(actor, n)) else { return 0 };
        if self.ordinal(buffer, at) != slot {
            return 0;
        }
        let fed = [actor.feed, actor.weights].map(|volley| self.network.slowed_until(volley));
        let streamed = actor.inputs.iter().filter(|input| matches!(input.streamed, Streamed::Vectors | Streamed::Rows));
        let filled = streamed.map(|input| self.late_slot(input.buffer, at)).max().unwrap_or(0);
        let worked = fed[0].max(fed[1]).max(filled);
        let left = self.network.slowed_until(actor.results) + actor.result_hops;
        if worked == 0 {
            return left;
        }
        left.max(worked + actor.feed_hops + cycles(self.work[stage].skew_cycles()) + actor.result_hops)
    }
}
