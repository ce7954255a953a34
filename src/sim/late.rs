//! What comes later than was known when it was sent, because other streams have slowed it: the slots it fills, and whoever
//! works on them already.

use crate::cost::{Ticks, cycles};
use crate::program::{BufferId, Input, ProcessKind, StageId, Streamed};

use super::actors::Left;
use super::engine::Engine;

impl Engine<'_> {
    /// Passes on what has been slowed since it was last called.
    pub(super) fn heed_slowed(&mut self) {
        while let Some(volley) = self.network.next_slowed() {
            self.slow(volley);
        }
    }

    fn slow(&mut self, volley: usize) {
        let index = self.volley_actor[volley];
        let until = self.network.slowed_until(volley);
        let actor = &mut self.actors[index];
        let ProcessKind::Group { stage, group } = actor.kind else { return };
        let forwards_sums = self.section.stages[stage].mapping.forwards_sums(group);
        if volley == actor.results || (forwards_sums && volley == actor.partial_writes) {
            let last = until + actor.result_hops;
            // The unit stops for what the output FIFO does not hold.
            let Left { from, flits } = actor.left;
            let held = self.chip.network.fifo_depth_flits;
            if flits > held && until > from {
                let inside = actor.feed_hops + cycles(self.work[stage].skew_cycles());
                let stopped = until - (until - from) * held / flits - inside;
                let free_at = match &mut actor.firing {
                    None => stopped,
                    Some(firing) => {
                        firing.ends_at = firing.ends_at.max(stopped + actor.latest.occupied);
                        stopped + actor.latest.occupied
                    }
                };
                actor.stalled += free_at.saturating_sub(actor.free_at);
                actor.free_at = actor.free_at.max(free_at);
            }
            self.put_off_results(index, last);
        } else if volley == actor.feed || volley == actor.weights {
            // What follows is delayed by as much when it begins.
            let kind = usize::from(volley == actor.weights);
            let kept = actor.fed_at[kind] + until.saturating_sub(actor.fed_by[kind]);
            self.put_off_work(index, stage, until);
            self.keep_inputs(index, kind, kept);
        }
    }

    /// The slots that an actor's operands, or its weights, come from are read until a time.
    fn keep_inputs(&mut self, index: usize, kind: usize, until: Ticks) {
        let actor = &self.actors[index];
        let at = match actor.firing {
            Some(firing) => Some(firing.at),
            None => actor.next.checked_sub(1).map(|n| self.step_of(index, n)),
        };
        let Some(at) = at else { return };
        for i in 0..self.actors[index].inputs.len() {
            let Input { buffer, streamed, .. } = self.actors[index].inputs[i];
            let of_kind = match streamed {
                Streamed::Weights => kind == 1,
                Streamed::Sums => false,
                _ => kind == 0,
            };
            if of_kind && self.processes.is_last_use(buffer, at) {
                self.buffers[buffer].keep(self.processes.slot(buffer, at), until);
            }
        }
    }

    /// An actor's operands have all come at a time only.
    fn put_off_work(&mut self, index: usize, stage: StageId, until: Ticks) {
        let actor = &mut self.actors[index];
        if let Some(firing) = &mut actor.firing {
            firing.ends_at = firing.ends_at.max(until);
            return;
        }
        let last = until + actor.feed_hops + cycles(self.work[stage].skew_cycles()) + actor.result_hops;
        self.put_off_results(index, last);
    }

    /// What an actor has emitted last is there at a time only.
    fn put_off_results(&mut self, index: usize, last: Ticks) {
        let actor = &self.actors[index];
        let Some(at) = actor.next.checked_sub(1).map(|n| self.step_of(index, n)) else { return };
        if !self.produces(actor, at) {
            return;
        }
        for o in 0..self.actors[index].outputs.len() {
            let buffer = self.actors[index].outputs[o];
            let slot = self.ordinal(buffer, at);
            if !self.buffers[buffer].put_off(slot, last) {
                continue;
            }
            self.end = self.end.max(last);
            for c in 0..self.consumers[buffer].len() {
                self.put_off_reader(self.consumers[buffer][c], buffer, slot, last);
            }
        }
    }

    /// Whoever works on a slot as it comes, or has just done so, is through later.
    fn put_off_reader(&mut self, index: usize, buffer: BufferId, slot: u64, last: Ticks) {
        let actor = &self.actors[index];
        let ProcessKind::Group { stage, .. } = actor.kind else { return };
        let streams = |streamed| matches!(streamed, Streamed::Vectors | Streamed::Rows | Streamed::Sums);
        if !actor.inputs.iter().any(|input| input.buffer == buffer && streams(input.streamed)) {
            return;
        }
        let at = match actor.firing {
            Some(firing) => Some(firing.at),
            None => actor.next.checked_sub(1).map(|n| self.step_of(index, n)),
        };
        if at.is_some_and(|at| self.ordinal(buffer, at) == slot) {
            self.put_off_work(index, stage, last);
        }
    }
}
