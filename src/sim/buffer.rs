//! A stage buffer in time: slots, who has filled them, who still needs them.

use super::time::Ticks;

#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    first: Ticks,
    last: Ticks,
    fills: u64,
    releases: u64,
    freed: Ticks,
    /// All its producers have filled it.
    full: bool,
    /// All its consumers are done with it.
    done: bool,
}

/// State of one buffer of `depth` slots, used in order. Slots may be filled or released out of order (a short transfer
/// overtakes a long one), but count as filled or free only when all before them are.
#[derive(Debug)]
pub struct BufferState {
    slots: Vec<Slot>,
    producers: u64,
    consumers: u64,
    /// Slots filled so far, with all before them.
    filled: u64,
    /// Slots released so far, with all before them.
    released: u64,
    /// When the last of those was.
    released_at: Ticks,
}

impl BufferState {
    /// An empty buffer that `count` slots will pass through.
    pub fn new(depth: u64, producers: u64, consumers: u64, count: u64) -> Self {
        let slots = depth.min(count).max(1) as usize;
        Self { slots: vec![Slot::default(); slots], producers, consumers, filled: 0, released: 0, released_at: 0 }
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

    /// Slots filled and not yet released.
    pub fn held(&self) -> u64 {
        self.filled - self.released
    }

    /// One producer has filled its part; whether more slots now count as filled.
    pub fn fill(&mut self, ordinal: u64, first: Ticks, last: Ticks) -> bool {
        let producers = self.producers;
        let slot = self.slot(ordinal);
        if slot.fills == 0 {
            (slot.first, slot.last) = (first, last);
        }
        slot.first = slot.first.max(first);
        slot.last = slot.last.max(last);
        slot.fills += 1;
        slot.full = slot.fills == producers;
        let before = self.filled;
        while self.held() < self.slots.len() as u64 && self.slot(self.filled).full {
            self.filled += 1;
        }
        self.filled > before
    }

    /// One consumer is done with a slot; whether more slots are now free.
    pub fn release(&mut self, ordinal: u64, at: Ticks) -> bool {
        let consumers = self.consumers;
        let slot = self.slot(ordinal);
        slot.freed = if slot.releases == 0 { at } else { slot.freed.max(at) };
        slot.releases += 1;
        slot.done = slot.releases == consumers;
        let before = self.released;
        while self.held() > 0 && self.slot(self.released).done {
            let freed = self.released_at.max(self.slot(self.released).freed);
            *self.slot(self.released) = Slot { freed, ..Slot::default() };
            self.released_at = freed;
            self.released += 1;
        }
        self.released > before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_that_is_overtaken_keeps_its_place() {
        let mut buffer = BufferState::new(2, 1, 1, 4);
        assert!(!buffer.fill(1, 10, 20));
        assert_eq!(buffer.filled(0), None);
        assert!(buffer.fill(0, 12, 30));
        assert_eq!((buffer.filled(0), buffer.filled(1)), (Some((12, 30)), Some((10, 20))));
        assert!(!buffer.release(1, 40));
        assert_eq!((buffer.room(2), buffer.room(3)), (None, None));
        assert!(buffer.release(0, 50));
        assert_eq!((buffer.room(2), buffer.room(3), buffer.held()), (Some(50), Some(50), 0));
        assert!(buffer.fill(2, 60, 60) && buffer.fill(3, 61, 61));
    }

    #[test]
    fn a_slot_waits_for_all_its_producers_and_consumers() {
        let mut buffer = BufferState::new(1, 2, 2, 2);
        assert_eq!(buffer.room(0), Some(0));
        assert!(!buffer.fill(0, 5, 8));
        assert!(buffer.fill(0, 3, 9));
        assert_eq!(buffer.filled(0), Some((5, 9)));
        assert!(!buffer.release(0, 20));
        assert_eq!(buffer.room(1), None);
        assert!(buffer.release(0, 15));
        assert_eq!(buffer.room(1), Some(20));
    }
}
