//! The state of a run as data: all that the rest of it depends on, written down relative to now, and how far it has
//! come, so that it can be carried on from a later time.

use std::cmp::Reverse;

use rdusim_base::index::{Id, IndexVec};
use rdusim_cost::cost::{StreamBytes, Ticks};
use rdusim_program::{BufferId, StageId, StreamId};

use super::clock::Clock;
use super::engine::{Engine, Event};
use super::memory::Done;

/// How far a run has come: positions and counters, which the rest does not depend on.
#[derive(Debug, Clone)]
pub(super) struct Progress {
    /// Now.
    pub(super) now: Ticks,
    /// Firings begun by each actor.
    pub(super) next: Vec<u64>,
    /// Slots filled and released of each buffer.
    pub(super) passed: IndexVec<BufferId, (u64, u64)>,
    /// The firing of the nest that the reference actor stands at.
    pub(super) urgency: u64,
    /// When each actor is free for its next firing.
    pub(super) free_at: Vec<Ticks>,
    busy_cycles: Vec<u64>,
    waited: Vec<(Ticks, Ticks)>,
    macs: u64,
    executed_macs: u64,
    expanded_elements: u64,
    simd_elements: IndexVec<StageId, u64>,
    streams: IndexVec<StreamId, StreamBytes>,
    tiers_done: Vec<Done>,
    sent: Vec<Vec<(u64, u64)>>,
}

/// Adds what came since `before` `times` again.
fn repeat(value: &mut u64, before: u64, times: u64) {
    *value += times * (*value - before);
}

impl Engine<'_> {
    /// The firing of the nest an actor stands at.
    pub(super) fn urgency(&self, actor: usize) -> u64 {
        self.processes.rank(self.actors[actor].at)
    }

    /// How far the run has come.
    pub(super) fn progress(&self, now: Ticks, reference: usize) -> Progress {
        Progress {
            now,
            next: self.actors.iter().map(|actor| actor.next).collect(),
            passed: self.buffers.iter().map(super::buffer::BufferState::passed).collect(),
            urgency: self.urgency(reference),
            free_at: self.actors.iter().map(|actor| actor.free_at).collect(),
            waited: self.actors.iter().map(|actor| (actor.starved, actor.stalled)).collect(),
            busy_cycles: self.actors.iter().map(|actor| actor.busy_cycles).collect(),
            macs: self.macs,
            executed_macs: self.executed_macs,
            expanded_elements: self.expanded_elements,
            simd_elements: self.simd_elements.clone(),
            streams: self.streams.clone(),
            tiers_done: self.tiers.iter().map(|tier| tier.done).collect(),
            sent: self.network.sent().to_vec(),
        }
    }

    /// Writes down what actors are doing.
    pub(super) fn write_actors(&self, clock: Clock, words: &mut Vec<u64>) {
        for actor in &self.actors {
            words.push(clock.relative(actor.free_at));
            words.extend(actor.fed_at.map(|at| clock.relative(at)));
            actor.taken.write_state(clock, words);
            words.push(actor.waits_for_credit);
            words.push(actor.scheduled.map_or(0, |at| clock.relative(at) + 1));
            words.push(u64::from(actor.next >= actor.count));
            words.push(actor.under_way.len() as u64);
            for firing in &actor.under_way {
                words.extend([clock.relative(firing.emits_at), clock.relative(firing.ends_at), firing.tile]);
            }
        }
    }

    /// Writes down all that the rest of the run depends on but for where in the nest each actor stands.
    pub(super) fn write_state(&self, clock: Clock, reference: usize, words: &mut Vec<u64>) {
        self.write_actors(clock, words);
        words.push(clock.relative(self.end));
        for buffer in &self.buffers {
            buffer.write_state(clock, words);
        }
        let next = |stream: StreamId| self.actors[self.stream_actor[stream]].next;
        for (stream, filling) in self.filling.iter_enumerated() {
            words.push(filling.len() as u64);
            for &(slot, first, through) in filling {
                let slot = slot.wrapping_sub(next(stream));
                words.extend([slot, clock.relative(first), clock.relative(through)]);
            }
        }
        let urgency = self.urgency(reference);
        for tier in &self.tiers {
            tier.write_state(clock, urgency, &next, words);
        }
        let mut arrivals: Vec<[u64; 4]> = Vec::new();
        for Reverse((at, event)) in &self.queue {
            // All others are written with their actor or tier.
            let (stream, slot, what) = match *event {
                Event::Arrive(stream, slot, first) => (stream, slot, u64::from(first)),
                Event::Issue(stream, slot) if self.section.streams[stream].stream.writes => (stream, slot, 2),
                _ => continue,
            };
            let slot = slot.wrapping_sub(next(stream));
            arrivals.push([clock.relative(*at), stream.index() as u64, slot, what]);
        }
        arrivals.sort_unstable();
        words.extend(arrivals.iter().flatten());
        self.network.write_state(clock, words);
    }

    /// Carries on as if what happened since `before`, when the state was the same, had happened `times` times more.
    /// Returns the new now.
    pub(super) fn shift(&mut self, before: &Progress, now: Ticks, reference: usize, times: u64) -> Ticks {
        let time = times * (now - before.now);
        let urgency = times * (self.urgency(reference) - before.urgency);
        let steps: Vec<u64> =
            self.actors.iter().zip(&before.next).map(|(actor, before)| times * (actor.next - before)).collect();
        let slots = |stream: StreamId| steps[self.stream_actor[stream]];
        for tier in &mut self.tiers {
            tier.shift(time, urgency, &slots);
        }
        for (tier, before) in self.tiers.iter_mut().zip(&before.tiers_done) {
            repeat(&mut tier.done.bytes, before.bytes, times);
            repeat(&mut tier.done.lost, before.lost, times);
        }
        for (stream, filling) in self.filling.ids().zip(self.filling.iter_mut()) {
            for (slot, first, through) in filling {
                *slot += slots(stream);
                *first += time;
                *through += time;
            }
        }
        let later = |Reverse((at, event)): Reverse<(Ticks, Event)>| {
            let event = match event {
                Event::Arrive(stream, slot, first) => Event::Arrive(stream, slot + slots(stream), first),
                Event::Issue(stream, slot) => Event::Issue(stream, slot + slots(stream)),
                Event::Emit(_) | Event::Serve(..) | Event::Start(_) => event,
            };
            Reverse((at + time, event))
        };
        self.queue = std::mem::take(&mut self.queue).into_iter().map(later).collect();
        for (index, &step) in steps.iter().enumerate() {
            self.go_on(index, step);
            let actor = &mut self.actors[index];
            // One that stands still all the while has waited for its inputs since it was free.
            if step == 0 && actor.under_way.is_empty() && actor.next < actor.count {
                actor.starved += time;
            }
            actor.free_at += time;
            actor.fed_at = actor.fed_at.map(|at| at + time);
            actor.taken.shift(time);
            actor.scheduled = actor.scheduled.map(|at| at + time);
            repeat(&mut actor.busy_cycles, before.busy_cycles[index], times);
            if step > 0 {
                repeat(&mut actor.starved, before.waited[index].0, times);
                repeat(&mut actor.stalled, before.waited[index].1, times);
            }
            let oldest = actor.next - actor.under_way.len() as u64;
            for (number, firing) in (oldest..).zip(&mut actor.under_way) {
                firing.at = self.processes.point(index, number);
                firing.emits_at += time;
                firing.ends_at += time;
            }
        }
        for (buffer, &(filled, _)) in self.buffers.iter_mut().zip(&before.passed) {
            let slots = times * (buffer.passed().0 - filled);
            buffer.shift(slots, time);
        }
        self.network.shift(&before.sent, times, time);
        repeat(&mut self.macs, before.macs, times);
        repeat(&mut self.executed_macs, before.executed_macs, times);
        repeat(&mut self.expanded_elements, before.expanded_elements, times);
        for (elements, &before) in self.simd_elements.iter_mut().zip(&before.simd_elements) {
            repeat(elements, before, times);
        }
        for (bytes, before) in self.streams.iter_mut().zip(&before.streams) {
            repeat(&mut bytes.payload, before.payload, times);
            repeat(&mut bytes.waste, before.waste, times);
        }
        self.end += time;
        now + time
    }
}
