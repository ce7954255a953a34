//! A stage buffer in time: slots, who has filled them, who still needs them.

use rdusim_cost::cost::Ticks;

use super::clock::Clock;
use super::ring::Ring;

#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    first: Ticks,
    last: Ticks,
    parts: u64,
    fills: u64,
    releases: u64,
    freed: Ticks,
}

/// When the contents of a slot were there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Filled {
    /// The first flit.
    pub first: Ticks,
    /// The last.
    pub last: Ticks,
    /// In how many parts they came, one after the other: flits of its scarcest flow.
    pub parts: u64,
}

impl Filled {
    /// When the first of the parts was there that can be worked on, of at most `most`.
    pub(super) fn begins(self, most: u64) -> Ticks {
        self.first + (self.last - self.first) / self.parts.min(most).max(1)
    }
}

/// State of one buffer of `depth` slots, filled and released in order.
#[derive(Debug)]
pub(super) struct BufferState {
    ring: Ring<Slot>,
    producers: u64,
    consumers: u64,
}

impl BufferState {
    /// An empty buffer that `count` slots will pass through.
    pub(super) fn new(depth: u64, producers: u64, consumers: u64, count: u64) -> Self {
        Self { ring: Ring::new(depth.min(count)), producers, consumers }
    }

    /// When a slot was filled; `None` while it is not.
    pub(super) fn filled(&self, ordinal: u64) -> Option<Filled> {
        (ordinal < self.ring.filled()).then(|| {
            let &Slot { first, last, parts, .. } = self.ring.slot(ordinal);
            Filled { first, last, parts }
        })
    }

    /// When a slot has its credit; `None` while that is not known.
    pub(super) fn credit(&self, ordinal: u64) -> Option<Ticks> {
        (ordinal < self.ring.released() + self.ring.depth()).then(|| self.ring.slot(ordinal).freed)
    }

    /// Slots completely filled, and completely released, so far.
    pub(super) fn passed(&self) -> (u64, u64) {
        (self.ring.filled(), self.ring.released())
    }

    /// Writes down all that the rest of a run depends on, but for how many slots have passed.
    pub(super) fn write_state(&self, clock: Clock, words: &mut Vec<u64>) {
        words.push(self.held());
        for slot in self.ring.slots() {
            words.push(slot.fills << 32 | slot.releases);
            if slot.fills > 0 {
                words.extend([clock.relative(slot.first), clock.relative(slot.last), slot.parts]);
            }
            words.push(clock.relative(slot.freed));
        }
    }

    /// Whether every slot that is filled was so long ago.
    pub(super) fn is_settled(&self, clock: Clock) -> bool {
        self.ring.slots().all(|slot| slot.fills == 0 || clock.is_past(slot.first) && clock.is_past(slot.last))
    }

    /// Lets `slots` more pass, and time with them: the state, seen from then, is the same.
    pub(super) fn shift(&mut self, slots: u64, time: Ticks) {
        for slot in self.ring.slots_mut() {
            slot.first += time;
            slot.last += time;
            slot.freed += time;
        }
        self.ring.pass(slots);
    }

    /// Slots filled and not yet released.
    pub(super) fn held(&self) -> u64 {
        self.ring.filled() - self.ring.released()
    }

    /// One producer has filled its share; whether the slot is now complete.
    pub(super) fn fill(&mut self, ordinal: u64, Filled { first, last, parts }: Filled) -> bool {
        let slot = self.ring.slot_mut(ordinal);
        if slot.fills == 0 {
            (slot.first, slot.last, slot.parts) = (first, last, parts);
        }
        slot.first = slot.first.max(first);
        slot.last = slot.last.max(last);
        slot.parts = slot.parts.min(parts);
        slot.fills += 1;
        let complete = slot.fills == self.producers;
        if complete {
            self.ring.fill(1);
        }
        complete
    }

    /// One consumer is done with a slot; whether the slot is now free.
    pub(super) fn release(&mut self, ordinal: u64, at: Ticks) -> bool {
        let slot = self.ring.slot_mut(ordinal);
        slot.freed = if slot.releases == 0 { at } else { slot.freed.max(at) };
        slot.releases += 1;
        let free = slot.releases == self.consumers;
        if free {
            slot.fills = 0;
            slot.releases = 0;
            self.ring.release(1);
        }
        free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(first: Ticks, last: Ticks) -> Filled {
        Filled { first, last, parts: 1 }
    }

    #[test]
    fn a_slot_waits_for_all_its_producers_and_consumers() {
        let mut buffer = BufferState::new(1, 2, 2, 2);
        assert_eq!(buffer.credit(0), Some(0));
        assert!(!buffer.fill(0, at(5, 8)));
        assert_eq!((buffer.filled(0), buffer.credit(1)), (None, None));
        assert!(buffer.fill(0, at(3, 9)));
        assert_eq!((buffer.filled(0), buffer.held()), (Some(at(5, 9)), 1));
        assert!(!buffer.release(0, 20));
        assert_eq!(buffer.credit(1), None);
        assert!(buffer.release(0, 15));
        assert_eq!((buffer.credit(1), buffer.held()), (Some(20), 0));
    }

    #[test]
    fn slots_are_used_in_turn() {
        let mut buffer = BufferState::new(2, 1, 1, 4);
        assert!(buffer.fill(0, at(1, 2)) && buffer.fill(1, at(3, 4)));
        assert_eq!((buffer.credit(2), buffer.held()), (None, 2));
        assert!(buffer.release(0, 10));
        assert_eq!((buffer.credit(2), buffer.credit(3)), (Some(10), None));
        assert!(buffer.fill(2, at(12, 13)) && buffer.release(1, 14));
        assert_eq!((buffer.filled(2), buffer.filled(3), buffer.credit(3)), (Some(at(12, 13)), None, Some(14)));
    }

    #[test]
    fn a_buffer_is_settled_when_all_was_filled_long_ago() {
        let mut buffer = BufferState::new(2, 1, 1, 4);
        let now = |now| Clock { now, reach: 10 };
        assert!(buffer.is_settled(now(0)));
        assert!(buffer.fill(0, at(1, 2)));
        assert_eq!([11, 12, 13].map(|at| buffer.is_settled(now(at))), [false, true, true]);
        assert!(buffer.fill(1, at(2, 9)));
        assert_eq!([18, 19].map(|at| buffer.is_settled(now(at))), [false, true]);
    }

    #[test]
    fn a_buffer_has_no_more_slots_than_pass_through_it() {
        let buffer = BufferState::new(8, 1, 1, 1);
        assert_eq!((buffer.credit(0), buffer.credit(1)), (Some(0), None));
    }
}
