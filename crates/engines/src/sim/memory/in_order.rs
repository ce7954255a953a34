//! In-order delivery: a tier's channels serve the slots of a stream in any order, and its address generators deliver them in
//! the order of the stream. A slot that is served early waits for those before it (a reorder buffer, of any size).

use rdusim_base::units::index;
use std::collections::VecDeque;

use rdusim_cost::cost::Ticks;
use rdusim_program::StreamId;

/// The first or the last bytes of a slot leave the address generators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arrival {
    /// When, in ticks.
    pub at: Ticks,
    /// Stream.
    pub stream: StreamId,
    /// Slot ordinal.
    pub slot: u64,
    /// Whether its first bytes arrive (reads) or are written, or else its last.
    pub first: bool,
}

/// A slot that was requested and is not delivered.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Undelivered {
    /// When its first bytes have been served, and when all have been, latency included, whatever came before it.
    pub(super) first_at: Option<Ticks>,
    pub(super) end: Option<Ticks>,
    /// When the accesses that may be under way allow it to be complete.
    pub(super) allowed_at: Ticks,
}

/// The slots of one stream that are not delivered, in the order of the stream.
#[derive(Debug, Default)]
pub(super) struct InOrder {
    pub(super) undelivered: VecDeque<Undelivered>,
    /// Slot ordinal of the first of them.
    pub(super) first_slot: u64,
    /// Whether the first bytes of the first of them have been delivered.
    pub(super) has_begun: bool,
    /// When the latest delivery was.
    pub(super) latest: Ticks,
    /// When the accesses that may be under way allow all requested slots to be complete.
    pub(super) allowed_at: Ticks,
}

impl InOrder {
    pub(super) fn of(&mut self, slot: u64) -> &mut Undelivered {
        &mut self.undelivered[index(slot - self.first_slot)]
    }

    /// Delivers what is next in order, as far as it has been served.
    pub(super) fn deliver(&mut self, stream: StreamId, arrivals: &mut Vec<Arrival>) {
        while let Some(&Undelivered { first_at: Some(first_at), end, .. }) = self.undelivered.front() {
            let slot = self.first_slot;
            if !self.has_begun {
                self.has_begun = true;
                self.latest = self.latest.max(first_at);
                arrivals.push(Arrival { at: self.latest, stream, slot, first: true });
            }
            let Some(end) = end else { return };
            // A tick later than the first bytes: events of one tick do not keep the order of slots.
            self.latest = end.max(self.latest + 1);
            arrivals.push(Arrival { at: self.latest, stream, slot, first: false });
            self.undelivered.pop_front();
            self.first_slot += 1;
            self.has_begun = false;
        }
    }
}
