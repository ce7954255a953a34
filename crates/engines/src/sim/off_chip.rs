//! Slots on their way between memory tiers and buffers: asked for, served by channels, and arrived.

use rdusim_base::units::{Flits, saturating_u64};
use std::cmp::Reverse;

use rdusim_base::index::Id;
use rdusim_cost::cost::{SlotBytes, TICKS_PER_CYCLE, Ticks, transfer_bytes, transfer_runs};
use rdusim_program::{Iteration, StreamId};

use super::buffer::Filled;
use super::engine::{Engine, Event};
use super::memory::{Arrival, Transfer};

impl Engine<'_> {
    /// Asks for a slot that a load has room for.
    pub(super) fn issue(&mut self, stream: StreamId, slot: u64, now: Ticks) {
        let index = self.stream_actor[stream];
        let at = self.step_of(index, slot);
        let actor = &mut self.actors[index];
        actor.scheduled = None;
        actor.free_at = now;
        self.go_on(index, 1);
        self.request(stream, slot, at, now);
        self.wake(index, now);
    }

    /// Queues the bytes of a slot at their memory tier.
    pub(super) fn request(&mut self, stream: StreamId, slot: u64, at: Iteration, now: Ticks) {
        let slot_bytes = transfer_bytes(self.chip, &self.graph, self.section, stream, at);
        self.streams[stream].payload += slot_bytes.payload.0;
        self.streams[stream].waste += slot_bytes.waste().0;
        let index = self.stream_actor[stream];
        let writes = self.section.streams[stream].stream.writes;
        let needed = if writes { self.store_step(index, at) } else { self.processes.due(stream, at) };
        let urgency = self.processes.rank(needed);
        let runs = transfer_runs(&self.graph, self.section, stream, at);
        let tier = self.section.streams[stream].tier.index();
        self.tiers[tier].request(Transfer { urgency, stream, slot, moved_bytes: slot_bytes.moved.0, runs }, now);
        self.take_events(tier);
    }

    /// Lets a memory channel serve what is next.
    pub(super) fn serve(&mut self, tier: usize, channel: usize, now: Ticks) {
        self.tiers[tier].serve(channel, now);
        self.take_events(tier);
    }

    /// Queues the events of a memory tier.
    fn take_events(&mut self, tier: usize) {
        let tier_server = &mut self.tiers[tier];
        let due = tier_server.due.drain(..).map(|(channel, at)| Reverse((at, Event::Serve(tier, channel))));
        self.queue.extend(due);
        let arrival = |Arrival { at, stream, slot, first }| Reverse((at, Event::Arrive(stream, slot, first)));
        self.queue.extend(tier_server.arrivals.drain(..).map(arrival));
    }

    /// The first, or the last, bytes of a slot have come from memory, or are written.
    pub(super) fn arrive(&mut self, stream: StreamId, slot: u64, first: bool, now: Ticks) {
        let index = self.stream_actor[stream];
        let at = self.step_of(index, slot);
        if self.section.streams[stream].stream.writes {
            if !first && let Some(i) = self.filling[stream].iter().position(|f| f.0 == slot) {
                let (_, began, through) = self.filling[stream].swap_remove(i);
                let written = now.max(through);
                if let Some(recorder) = &mut self.recorder {
                    let SlotBytes { payload, .. } = transfer_bytes(self.chip, &self.graph, self.section, stream, at);
                    recorder.span(index, slot, began, written, payload.0);
                }
                self.end = self.end.max(written);
                self.release_inputs(index, self.store_step(index, at), [written; 3], now);
            }
            return;
        }
        if first {
            let SlotBytes { payload, .. } = transfer_bytes(self.chip, &self.graph, self.section, stream, at);
            // Its flits follow each other as memory serves it; the first have come.
            let tier = self.section.streams[stream].tier;
            let ticks = self.chip.tier_rate(tier).ticks(payload.0, TICKS_PER_CYCLE);
            let nominal = ticks.saturating_sub(self.tiers[tier.index()].grain_ticks());
            let nominal = nominal.max(self.tiers[tier.index()].window_ticks(stream, payload));
            let through = self.network.send(self.actors[index].feed, self.flits_of(payload), now, now, nominal);
            self.filling[stream].push((slot, now, through));
        } else if let Some(i) = self.filling[stream].iter().position(|f| f.0 == slot) {
            let (_, first_at, through) = self.filling[stream].swap_remove(i);
            if let Some(recorder) = &mut self.recorder {
                let SlotBytes { payload, .. } = transfer_bytes(self.chip, &self.graph, self.section, stream, at);
                recorder.span(index, slot, first_at, now.max(through), payload.0);
            }
            let hops = self.actors[index].feed_hops;
            let SlotBytes { payload, .. } = transfer_bytes(self.chip, &self.graph, self.section, stream, at);
            // The last stripes come from all channels at once, and leave one after the other.
            let tier = &self.tiers[self.section.streams[stream].tier.index()];
            let at_once = self.flits_of(tier.at_once_bytes(payload));
            let fewest = self.network.fewest(self.actors[index].feed, self.flits_of(payload));
            let through = through.max(now + self.network.longest(self.actors[index].feed, at_once).1);
            let parts = fewest.min(parts_of(self.flits_of(payload), at_once, through - first_at, through - now)).max(1);
            let filled = Filled { first: first_at + hops, last: through + hops, parts };
            for o in 0..self.actors[index].outputs.len() {
                self.fill(self.actors[index].outputs[o], at, filled, now);
            }
        }
    }
}

/// In how many parts a slot of `flits` comes over `ticks` of which the last `at_once` flits take the last `leaving`: the
/// part that is not there yet when those begin to leave, beside a slot that comes at a constant rate, is one of them.
fn parts_of(Flits(flits): Flits, Flits(at_once): Flits, ticks: Ticks, leaving: Ticks) -> u64 {
    let product = |flits: u64, ticks: Ticks| u128::from(flits) * u128::from(ticks);
    let late = product(at_once, ticks).saturating_sub(product(flits, leaving));
    product(flits, ticks).checked_div(late).map_or(u64::MAX, saturating_u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flits_that_come_at_once_are_one_part_unless_they_leave_slowly() {
        // Four of five stripes come at the end of 100 ticks, and leave in no time, or in some.
        let parts = |at_once, leaving| parts_of(Flits(50), Flits(at_once), 100, leaving);
        assert_eq!(parts(40, 0), 1);
        assert_eq!(parts(40, 30), 2);
        // As slowly as all others: at a constant rate.
        assert_eq!(parts(40, 80), u64::MAX);
        assert_eq!(parts(0, 0), u64::MAX);
    }
}
