//! A stage buffer in time: slots, who has filled them, who still needs them.

use super::clock::Clock;
use super::time::Ticks;

#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    first: Ticks,
    last: Ticks,
    fills: u64,
    releases: u64,
    freed: Ticks,
}

/// State of one buffer of `depth` slots, filled and released in order.
#[derive(Debug)]
pub struct BufferState {
    slots: Vec<Slot>,
    producers: u64,
    consumers: u64,
    /// Slots completely filled so far.
    filled: u64,
    /// Slots completely released so far.
    released: u64,
}

impl BufferState {
    /// An empty buffer that `count` slots will pass through.
    pub fn new(depth: u64, producers: u64, consumers: u64, count: u64) -> Self {
        let slots = depth.min(count).max(1) as usize;
        Self { slots: vec![Slot::default(); slots], producers, consumers, filled: 0, released: 0 }
    }

    fn slot(&mut self, ordinal: u64) -> &mut Slot {
        let at = (ordinal % self.slots.len() as u64) as usize;
        &mut self.slots[at]
    }

    /// When the first and the last flit of a slot were there; `None` while it is not filled.
    pub fn filled(&self, ordinal: u64) -> Option<(Ticks, Ticks)> {
        (ordinal < self.filled).then(|| {
            let slot = &self.slots[(ordinal % self.slots.len() as u64) as usize];
            (slot.first, slot.last)
        })
    }

    /// When there is room for a slot; `None` while there is not.
    pub fn room(&self, ordinal: u64) -> Option<Ticks> {
        let depth = self.slots.len() as u64;
        if ordinal < depth {
            return Some(0);
        }
        (ordinal < self.released + depth).then(|| self.slots[(ordinal % depth) as usize].freed)
    }

    /// Slots completely filled, and completely released, so far.
    pub fn passed(&self) -> (u64, u64) {
        (self.filled, self.released)
    }

    /// Writes down all that the rest of a run depends on, but for how many slots have passed.
    pub fn write_state(&self, clock: Clock, words: &mut Vec<u64>) {
        let depth = self.slots.len() as u64;
        words.push(self.filled - self.released);
        for ordinal in self.released..self.released + depth {
            let slot = &self.slots[(ordinal % depth) as usize];
            words.push(slot.fills << 32 | slot.releases);
            if slot.fills > 0 {
                words.extend([clock.relative(slot.first), clock.relative(slot.last)]);
            }
            words.push(clock.relative(slot.freed));
        }
    }

    /// Whether every slot that is filled was so long ago.
    pub fn is_settled(&self, clock: Clock) -> bool {
        self.slots.iter().all(|slot| slot.fills == 0 || clock.is_past(slot.first) && clock.is_past(slot.last))
    }

    /// Lets `slots` more pass, and time with them: the state, seen from then, is the same.
    pub fn shift(&mut self, slots: u64, time: Ticks) {
        let depth = self.slots.len() as u64;
        for slot in &mut self.slots {
            slot.first += time;
            slot.last += time;
            slot.freed += time;
        }
        self.slots.rotate_right((slots % depth) as usize);
        self.filled += slots;
        self.released += slots;
    }

    /// Slots filled and not yet released.
    pub fn held(&self) -> u64 {
        self.filled - self.released
    }

    /// One producer has filled its part; whether the slot is now complete.
    pub fn fill(&mut self, ordinal: u64, first: Ticks, last: Ticks) -> bool {
        let producers = self.producers;
        let slot = self.slot(ordinal);
        if slot.fills == 0 {
            (slot.first, slot.last) = (first, last);
        }
        slot.first = slot.first.max(first);
        slot.last = slot.last.max(last);
        slot.fills += 1;
        let complete = slot.fills == producers;
        if complete {
            self.filled += 1;
        }
        complete
    }

    /// One consumer is done with a slot; whether the slot is now free.
    pub fn release(&mut self, ordinal: u64, at: Ticks) -> bool {
        let consumers = self.consumers;
        let slot = self.slot(ordinal);
        slot.freed = if slot.releases == 0 { at } else { slot.freed.max(at) };
        slot.releases += 1;
        let free = slot.releases == consumers;
        if free {
            slot.fills = 0;
            slot.releases = 0;
            self.released += 1;
        }
        free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_waits_for_all_its_producers_and_consumers() {
        let mut buffer = BufferState::new(1, 2, 2, 2);
        assert_eq!(buffer.room(0), Some(0));
        assert!(!buffer.fill(0, 5, 8));
        assert_eq!((buffer.filled(0), buffer.room(1)), (None, None));
        assert!(buffer.fill(0, 3, 9));
        assert_eq!((buffer.filled(0), buffer.held()), (Some((5, 9)), 1));
        assert!(!buffer.release(0, 20));
        assert_eq!(buffer.room(1), None);
        assert!(buffer.release(0, 15));
        assert_eq!((buffer.room(1), buffer.held()), (Some(20), 0));
    }

    #[test]
    fn slots_are_used_in_turn() {
        let mut buffer = BufferState::new(2, 1, 1, 4);
        assert!(buffer.fill(0, 1, 2) && buffer.fill(1, 3, 4));
        assert_eq!((buffer.room(2), buffer.held()), (None, 2));
        assert!(buffer.release(0, 10));
        assert_eq!((buffer.room(2), buffer.room(3)), (Some(10), None));
        assert!(buffer.fill(2, 12, 13) && buffer.release(1, 14));
        assert_eq!((buffer.filled(2), buffer.filled(3), buffer.room(3)), (Some((12, 13)), None, Some(14)));
    }

    #[test]
    fn a_buffer_has_no_more_slots_than_pass_through_it() {
        let buffer = BufferState::new(8, 1, 1, 1);
        assert_eq!((buffer.room(0), buffer.room(1)), (Some(0), None));
    }
}
