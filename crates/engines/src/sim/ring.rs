//! Slots used in turn: the ring behind every stage buffer and every channel of a pipeline.

use rdusim_base::units::index;

/// A ring of slots, filled and released in order. Slot n of the stream lies in place n mod depth.
#[derive(Debug, Clone)]
pub struct Ring<S> {
    places: Vec<S>,
    /// The place of the oldest slot that is not released.
    front: usize,
    filled: u64,
    released: u64,
}

impl<S: Clone + Default> Ring<S> {
    /// An empty ring of `depth` slots, at least one.
    pub fn new(depth: u64) -> Self {
        Self { places: vec![S::default(); index(depth.max(1))], front: 0, filled: 0, released: 0 }
    }

    /// Slots filled so far.
    pub fn filled(&self) -> u64 {
        self.filled
    }

    /// Slots released so far.
    pub fn released(&self) -> u64 {
        self.released
    }

    /// Slots that may be filled before the next is released.
    pub fn credit(&self) -> u64 {
        self.released + self.depth() - self.filled
    }

    /// How many slots there are.
    pub fn depth(&self) -> u64 {
        self.places.len() as u64
    }

    /// Where a slot lies that is not released, and no more than a turn ahead of those that are.
    fn place(&self, ordinal: u64) -> usize {
        let place = self.front + index(ordinal - self.released);
        if place < self.places.len() { place } else { place - self.places.len() }
    }

    /// A slot that is not released, and no more than a turn ahead of those that are.
    pub fn slot(&self, ordinal: u64) -> &S {
        &self.places[self.place(ordinal)]
    }

    /// As [`Self::slot`], to be changed.
    pub fn slot_mut(&mut self, ordinal: u64) -> &mut S {
        let place = self.place(ordinal);
        &mut self.places[place]
    }

    /// `count` slots from one on, to be changed, as far as they lie behind each other and from the first place on. They
    /// are not released, and no more than a turn ahead of those that are.
    pub fn range_mut(&mut self, ordinal: u64, count: u64) -> (&mut [S], &mut [S]) {
        let (place, count) = (self.place(ordinal), index(count));
        let (start, behind) = self.places.split_at_mut(place);
        let first = count.min(behind.len());
        (&mut behind[..first], &mut start[..count - first])
    }

    /// All slots, the oldest that is not released first.
    pub fn slots(&self) -> impl Iterator<Item = &S> {
        let (before, from) = self.places.split_at(self.front);
        from.iter().chain(before)
    }

    /// All slots, to be changed.
    pub fn slots_mut(&mut self) -> impl Iterator<Item = &mut S> {
        self.places.iter_mut()
    }

    /// The oldest `slots` that were not filled now are.
    pub fn fill(&mut self, slots: u64) {
        self.filled += slots;
    }

    /// The oldest `slots` that were not released now are; no more than there are.
    pub fn release(&mut self, slots: u64) {
        self.released += slots;
        self.front += index(slots);
        if self.front >= self.places.len() {
            self.front -= self.places.len();
        }
    }

    /// Counts `slots` more as filled and released, with all slots as they are.
    pub fn pass(&mut self, slots: u64) {
        self.filled += slots;
        self.released += slots;
    }
}
