//! What a tier tells of transfers: address generators give on the bytes of a stream in order, whatever channels they lie on.

use crate::units::index;
use std::collections::VecDeque;

use crate::cost::Ticks;
use crate::program::StreamId;

/// What a tier tells of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arrival {
    /// When.
    pub at: Ticks,
    /// Stream.
    pub stream: StreamId,
    /// Slot ordinal.
    pub slot: u64,
    /// Whether its first bytes arrive (reads) or are written, or else its last.
    pub first: bool,
}

/// A transfer of which something has not been told.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Untold {
    /// When its first bytes arrive, and when it is complete, by itself.
    pub(super) first_at: Option<Ticks>,
    pub(super) end: Option<Ticks>,
    /// When the accesses that may be under way allow it to be complete.
    pub(super) allowed_at: Ticks,
}

/// Transfers of a stream that are not told to be complete: address generators give bytes on in order, whatever channels
/// they lie on.
#[derive(Debug, Default)]
pub(super) struct InOrder {
    /// From the first on.
    pub(super) untold: VecDeque<Untold>,
    pub(super) first_slot: u64,
    /// Whether the beginning of the first has been told.
    pub(super) has_begun: bool,
    /// When the one before it was complete.
    pub(super) latest: Ticks,
    /// When the accesses that may be under way allow all that has been asked for to be complete.
    pub(super) allowed_at: Ticks,
}

impl InOrder {
    pub(super) fn of(&mut self, slot: u64) -> &mut Untold {
        &mut self.untold[index(slot - self.first_slot)]
    }

    /// Tells what can be told.
    pub(super) fn tell(&mut self, stream: StreamId, arrivals: &mut Vec<Arrival>) {
        while let Some(&Untold { first_at: Some(first_at), end, .. }) = self.untold.front() {
            let slot = self.first_slot;
            if !self.has_begun {
                self.has_begun = true;
                self.latest = self.latest.max(first_at);
                arrivals.push(Arrival { at: self.latest, stream, slot, first: true });
            }
            let Some(end) = end else { return };
            // Told apart from the first bytes.
            self.latest = end.max(self.latest + 1);
            arrivals.push(Arrival { at: self.latest, stream, slot, first: false });
            self.untold.pop_front();
            self.first_slot += 1;
            self.has_begun = false;
        }
    }
}
