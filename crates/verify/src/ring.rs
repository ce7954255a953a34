//! Buffers with real depth: a ring of slots, each with an owner, until its last read.

use rdusim_graph::arch::Chip;
use rdusim_program::Buffer;

use super::matrix::Matrix;

/// One place of a ring.
#[derive(Debug, Clone, Default)]
struct Slot {
    /// What it holds: the n-th slot that passes through the buffer.
    ordinal: Option<u64>,
    fills: usize,
    releases: usize,
    pieces: Vec<Matrix>,
}

/// The slots of one buffer. Piece `copy * slices + slice` of a slot is a matrix.
#[derive(Debug, Clone)]
pub(super) struct Ring {
    /// Slots that producers have credits for.
    depth: u64,
    /// Actors that fill each slot, and that release it.
    pub(super) writers: usize,
    pub(super) readers: usize,
    places: Vec<Slot>,
    released: u64,
}

impl Ring {
    /// A ring that `count` slots pass through. Credits go by the buffer's depth, places by what its banks hold.
    pub(super) fn new(chip: &Chip, buffer: &Buffer, count: u64) -> Self {
        let depth = buffer.spec.depth.min(count).max(1);
        let slots = |banks: u64| banks * chip.pmu.bank_bytes() / buffer.spec.slot_bytes.max(1);
        let holds = buffer.pieces.iter().map(|piece| slots(piece.parts.iter().map(|p| p.banks).sum())).min();
        let places = holds.unwrap_or(depth).clamp(1, depth);
        Self { depth, writers: 0, readers: 0, places: vec![Slot::default(); places as usize], released: 0 }
    }

    fn place(&self, ordinal: u64) -> usize {
        ((ordinal % self.depth) % self.places.len() as u64) as usize
    }

    /// Slots that producers have credits for.
    pub(super) fn depth(&self) -> u64 {
        self.depth
    }

    /// Whether a producer has a credit for a slot.
    pub(super) fn has_credit(&self, ordinal: u64) -> bool {
        ordinal < self.released + self.depth
    }

    /// Whether every producer has filled a slot.
    pub(super) fn is_filled(&self, ordinal: u64) -> bool {
        let slot = &self.places[self.place(ordinal)];
        slot.ordinal == Some(ordinal) && slot.fills == self.writers
    }

    /// Gives a slot its place, its pieces made by `shape`.
    ///
    /// # Errors
    /// The slot that would be overwritten before its last read.
    pub(super) fn claim(&mut self, ordinal: u64, pieces: impl FnOnce() -> Vec<Matrix>) -> Result<(), u64> {
        let place = self.place(ordinal);
        let slot = &mut self.places[place];
        match slot.ordinal {
            Some(held) if held == ordinal => Ok(()),
            Some(held) => Err(held),
            None => {
                *slot = Slot { ordinal: Some(ordinal), fills: 0, releases: 0, pieces: pieces() };
                Ok(())
            }
        }
    }

    /// A piece of a slot; `None` when the slot is not there.
    pub(super) fn piece(&self, ordinal: u64, piece: usize) -> Option<&Matrix> {
        let slot = &self.places[self.place(ordinal)];
        if slot.ordinal == Some(ordinal) { slot.pieces.get(piece) } else { None }
    }

    /// A piece of a slot, to write.
    pub(super) fn piece_mut(&mut self, ordinal: u64, piece: usize) -> Option<&mut Matrix> {
        let place = self.place(ordinal);
        let slot = &mut self.places[place];
        if slot.ordinal == Some(ordinal) { slot.pieces.get_mut(piece) } else { None }
    }

    /// One producer is done with a slot.
    pub(super) fn fill(&mut self, ordinal: u64) {
        let place = self.place(ordinal);
        self.places[place].fills += 1;
    }

    /// One consumer is done with a slot; with the last the slot is free.
    pub(super) fn release(&mut self, ordinal: u64) {
        let place = self.place(ordinal);
        let slot = &mut self.places[place];
        slot.releases += 1;
        if slot.releases >= self.readers {
            *slot = Slot::default();
            self.released += 1;
        }
    }
}
