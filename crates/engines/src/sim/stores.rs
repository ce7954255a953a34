//! Stores: slots of output buffers on their way to memory.

use rdusim_base::units::saturating_u64;
use std::cmp::Reverse;

use rdusim_base::index::Id;
use rdusim_cost::cost::{SlotBytes, Ticks, transfer_bytes};
use rdusim_program::StreamId;

use super::engine::{Engine, Event};

impl Engine<'_> {
    /// Sends a slot to the address generators. Memory can take nothing of it before the first bytes that a channel serves
    /// at once have come from the farthest PMU.
    pub(super) fn start_store(&mut self, index: usize, stream: StreamId, now: Ticks) {
        let at = self.actors[index].at;
        let slot = self.actors[index].next;
        let SlotBytes { payload, moved } = transfer_bytes(self.chip, &self.graph, self.section, stream, at);
        let feed = self.actors[index].feed;
        let from = now.max(self.network.ends_at(feed));
        let through = self.network.send(feed, self.flits_of(payload), now, now, 0).max(from);
        let piece = self.tiers[self.section.streams[stream].tier.index()].grain_bytes().min(moved);
        let first = saturating_u64(u128::from(through - from) * u128::from(piece.0) / u128::from(moved.0.max(1)));
        let actor = &mut self.actors[index];
        actor.free_at = now;
        let hops = actor.feed_hops;
        self.go_on(index, 1);
        self.filling[stream].push((slot, now, through + hops));
        self.queue.push(Reverse((from + hops + first, Event::Issue(stream, slot))));
        self.wake(index, now);
    }

    /// Queues a write, of which the first bytes have come.
    pub(super) fn write(&mut self, stream: StreamId, slot: u64, now: Ticks) {
        let at = self.step_of(self.stream_actor[stream], slot);
        self.request(stream, slot, at, now);
        let SlotBytes { moved, .. } = transfer_bytes(self.chip, &self.graph, self.section, stream, at);
        // The last stripe is written when its bytes have come.
        let last = self.tiers[self.section.streams[stream].tier.index()].last_stripe_ticks(stream, moved);
        if let Some((.., through)) = self.filling[stream].iter_mut().find(|(known, ..)| *known == slot) {
            *through += last;
        }
    }
}
