//! A stage buffer in time: slots, who has filled them, who still needs them.

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
