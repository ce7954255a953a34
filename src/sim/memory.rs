//! Off-chip memory: every channel of a tier serves what lies on it, the most urgent first.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::arch::{Chip, Penalties, TierId};
use crate::cost::{TICKS_PER_CYCLE, Ticks, cycles};
use crate::index::{Id, IndexVec};
use crate::program::StreamId;
use crate::units::Rate;

use super::clock::Clock;

/// One transfer of a stream: a slot filled or drained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Transfer {
    /// The firing of the nest that needs it first: the order in which address generators were programmed.
    pub urgency: u64,
    /// Stream.
    pub stream: StreamId,
    /// Slot ordinal.
    pub slot: u64,
    /// Bytes moved, padding to whole bursts included.
    pub moved_bytes: u64,
}

/// What a tier tells of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
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
struct Untold {
    /// When its first bytes arrive, and when it is complete, by itself.
    first_at: Option<Ticks>,
    end: Option<Ticks>,
}

/// Transfers of a stream that are not told to be complete: address generators give bytes on in order, whatever channels
/// they lie on.
#[derive(Debug, Default)]
struct InOrder {
    /// From the first on.
    untold: VecDeque<Untold>,
    first_slot: u64,
    /// Whether the beginning of the first has been told.
    has_begun: bool,
    /// When the one before it was complete.
    latest: Ticks,
}

impl InOrder {
    fn of(&mut self, slot: u64) -> &mut Untold {
        &mut self.untold[(slot - self.first_slot) as usize]
    }

    /// Tells what can be told.
    fn tell(&mut self, stream: StreamId, arrivals: &mut Vec<Arrival>) {
        while let Some(&Untold { first_at: Some(first_at), end }) = self.untold.front() {
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

/// The part of a transfer that lies on one channel and is still to be served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Part {
    transfer: Transfer,
    /// Its row in `TierServer::under_way`.
    row: usize,
    bytes: u64,
    /// Where it begins, in bytes of the stream on this channel.
    from: u64,
}

/// A transfer that is not served yet.
#[derive(Debug, Clone, Copy)]
struct UnderWay {
    stream: StreamId,
    slot: u64,
    /// Bytes that are still to be served; of a row that is not in use, none.
    left_bytes: u64,
}

/// What a channel is doing: all of a part, or as much as it had begun when something more urgent came.
#[derive(Debug, Clone, Copy)]
struct Service {
    part: Part,
    began: Ticks,
}

#[derive(Debug, Default)]
struct Channel {
    waiting: BinaryHeap<Reverse<Part>>,
    serving: Option<Service>,
    /// When it is looked at next: the end of its service, or at once.
    scheduled: Option<Ticks>,
    free_at: Ticks,
    recent: Recent,
}

/// What a channel has served lately, as far as it loses time by it.
#[derive(Debug, Clone, Copy, Default)]
struct Recent {
    /// The stream that it has served last, and where on the channel that stream goes on.
    last: Option<(StreamId, u64)>,
    /// Bytes written since it turned.
    written: u64,
    /// Whether it has read since.
    has_read: bool,
}

impl Recent {
    /// Cycles lost before a part of a stream, from `from` on, is served.
    fn loses(&mut self, penalties: Penalties, part: (StreamId, u64), writes: bool) -> u64 {
        let jumps = self.last.is_some_and(|last| last != part);
        let mut lost = if jumps { penalties.jump_cycles } else { 0 };
        if !writes {
            self.has_read = true;
        } else if self.written >= penalties.write_batch_bytes {
            self.written %= penalties.write_batch_bytes;
            lost += if self.has_read { penalties.turn_cycles } else { 0 };
            self.has_read = false;
        }
        lost
    }
}

/// One memory tier.
#[derive(Debug)]
pub struct TierServer {
    rate: Rate,
    interleave_bytes: u64,
    /// Bytes on a channel that take the same time wherever they lie, ...
    unit_bytes: u64,
    /// ... and that time.
    unit_ticks: Ticks,
    /// Bytes that a channel serves before it may turn to something more urgent.
    grain_bytes: u64,
    latency: Ticks,
    penalties: Penalties,
    /// Whether each stream writes.
    writes: IndexVec<StreamId, bool>,
    channels: Vec<Channel>,
    under_way: Vec<UnderWay>,
    /// Rows of `under_way` that are not in use.
    unused: Vec<usize>,
    /// Next address of each stream.
    address: IndexVec<StreamId, u64>,
    in_order: IndexVec<StreamId, InOrder>,
    /// Ticks that serving has taken, all channels together.
    pub busy: Ticks,
    /// Channels that want to be looked at, and when.
    pub due: Vec<(usize, Ticks)>,
    /// What has become known of transfers.
    pub arrivals: Vec<Arrival>,
}

impl TierServer {
    /// An idle tier that these streams will use, of which some write.
    pub fn new(chip: &Chip, tier: TierId, writes: IndexVec<StreamId, bool>) -> Self {
        let t = &chip.memory[tier];
        let latency = cycles(chip.tier_latency_cycles(tier));
        let grain = chip.network.flit_bytes.next_multiple_of(t.burst_bytes).min(t.interleave_bytes);
        let penalties = chip.tier_penalties(tier);
        Self { penalties, ..Self::idle(chip.tier_rate(tier), t.channels, (t.interleave_bytes, grain), latency, writes) }
    }

    /// A tier that loses nothing beside its rate.
    fn idle(
        rate: Rate,
        channels: u64,
        (stripe, grain): (u64, u64),
        latency: Ticks,
        writes: IndexVec<StreamId, bool>,
    ) -> Self {
        let streams = writes.len();
        let ticks = |bytes: u64| rate.ticks(bytes * channels, TICKS_PER_CYCLE);
        // As many stripes as keep what rounding adds below a 512th.
        let added = |bytes: u64| ticks(bytes).saturating_mul(1024).saturating_sub(ticks(1024 * bytes));
        let mut unit_bytes = stripe;
        while added(unit_bytes) > ticks(1024 * unit_bytes) / 512 {
            unit_bytes *= 2;
        }
        Self {
            rate,
            penalties: Penalties::default(),
            writes,
            interleave_bytes: stripe,
            unit_bytes,
            unit_ticks: ticks(unit_bytes),
            grain_bytes: grain,
            latency,
            channels: (0..channels).map(|_| Channel::default()).collect(),
            under_way: Vec::new(),
            unused: Vec::new(),
            // Streams begin on different channels.
            address: (0..streams as u64).map(|stream| stream * stripe).collect(),
            in_order: (0..streams).map(|_| InOrder::default()).collect(),
            busy: 0,
            due: Vec::new(),
            arrivals: Vec::new(),
        }
    }

    /// All tiers of a chip, idle.
    pub fn all(chip: &Chip, writes: &IndexVec<StreamId, bool>) -> Vec<Self> {
        (0..chip.memory.len()).map(|t| Self::new(chip, TierId::from_index(t), writes.clone())).collect()
    }

    /// When the last channel is through with what it serves.
    pub fn free_at(&self) -> Ticks {
        self.channels.iter().map(|channel| channel.free_at).max().unwrap_or(0)
    }

    /// Ticks that bytes take on one channel.
    fn ticks(&self, bytes: u64) -> Ticks {
        self.rate.ticks(bytes * self.channels.len() as u64, TICKS_PER_CYCLE)
    }

    /// Ticks that a part of a stream takes on its channel. Each whole unit takes the same, however it is cut: rounded by
    /// itself, every cut would set channels that are always busy a tick further apart, and no state would come again.
    fn part_ticks(&self, from: u64, bytes: u64) -> Ticks {
        let below = |at: u64| at / self.unit_bytes * self.unit_ticks + self.ticks(at % self.unit_bytes);
        below(from + bytes) - below(from)
    }

    /// Ticks that a channel serves one thing at least.
    pub fn grain_ticks(&self) -> Ticks {
        self.ticks(self.grain_bytes)
    }

    /// Of a slot of so many bytes, those that come at once at the end: channels serve their stripes side by side, and
    /// what an address generator gives on is in order.
    pub fn at_once_bytes(&self, bytes: u64) -> u64 {
        let around = self.interleave_bytes * self.channels.len() as u64;
        let last_round = bytes.saturating_sub(1) % around + 1;
        last_round.min(bytes).saturating_sub(self.interleave_bytes)
    }

    /// Ticks that the last stripe of the slot of a stream that was asked for last takes, latency included.
    pub fn last_stripe_ticks(&self, stream: StreamId, bytes: u64) -> Ticks {
        let last = self.address[stream].saturating_sub(1) % self.interleave_bytes + 1;
        self.ticks(last.min(bytes)) + self.latency
    }

    /// Bytes below an address that lie on a channel.
    fn bytes_below(&self, address: u64, channel: u64) -> u64 {
        let (stripe, channels) = (self.interleave_bytes, self.channels.len() as u64);
        let (rounds, within) = (address / (stripe * channels), address % (stripe * channels));
        rounds * stripe + within.saturating_sub(channel * stripe).min(stripe)
    }

    /// The first slot of a stream, of so many bytes, has been loaded before.
    pub fn begin_behind_first(&mut self, stream: StreamId, moved_bytes: u64) {
        self.address[stream] += moved_bytes;
        self.in_order[stream].first_slot = 1;
    }

    /// Queues a transfer: the next bytes of its stream, on the channels they lie on.
    pub fn request(&mut self, transfer: Transfer, now: Ticks) {
        let Transfer { stream, slot, moved_bytes, .. } = transfer;
        let start = self.address[stream];
        let end = start + moved_bytes;
        self.address[stream] = end;
        let in_order = &mut self.in_order[stream];
        in_order.untold.push_back(Untold::default());
        if moved_bytes == 0 {
            // Nothing is stored in this slot: it is there as soon as it is asked for.
            *in_order.of(slot) = Untold { first_at: Some(now), end: Some(now) };
            in_order.tell(stream, &mut self.arrivals);
            return;
        }
        let under_way = UnderWay { stream, slot, left_bytes: moved_bytes };
        let row = self.unused.pop().unwrap_or(self.under_way.len());
        if row == self.under_way.len() {
            self.under_way.push(under_way);
        } else {
            self.under_way[row] = under_way;
        }
        for c in 0..self.channels.len() {
            let from = self.bytes_below(start, c as u64);
            let bytes = self.bytes_below(end, c as u64) - from;
            if bytes > 0 {
                let part = Part { transfer, row, bytes, from };
                let channel = &mut self.channels[c];
                channel.waiting.push(Reverse(part));
                match channel.serving {
                    Some(service) if part < service.part => self.interrupt(c, service, now),
                    // What is asked for in the past is served behind what the channel has served since.
                    None if channel.scheduled.is_none() => {
                        let at = now.max(channel.free_at);
                        self.schedule(c, at);
                    }
                    _ => {}
                }
            }
        }
    }

    fn schedule(&mut self, channel: usize, at: Ticks) {
        self.channels[channel].scheduled = Some(at);
        self.due.push((channel, at));
    }

    /// Ends a service with what it has begun: something more urgent has come.
    fn interrupt(&mut self, channel: usize, Service { mut part, began }: Service, now: Ticks) {
        let passed = now.saturating_sub(began);
        let grains = passed.div_ceil(self.ticks(self.grain_bytes)).max(1);
        let mut begun = grains * self.grain_bytes;
        // Many grains together take less than each rounded up.
        while begun < part.bytes && self.part_ticks(part.from, begun) < passed {
            begun += self.grain_bytes;
        }
        if begun >= part.bytes {
            return;
        }
        let rest = Part { bytes: part.bytes - begun, from: part.from + begun, ..part };
        part.bytes = begun;
        let end = began + self.part_ticks(part.from, begun);
        let c = &mut self.channels[channel];
        c.waiting.push(Reverse(rest));
        c.serving = Some(Service { part, began });
        c.free_at = end;
        self.schedule(channel, end);
    }

    /// Whether a channel is to be looked at now; a service that was interrupted has left an earlier appointment.
    pub fn is_due(&self, channel: usize, now: Ticks) -> bool {
        self.channels[channel].scheduled == Some(now)
    }

    /// A channel ends what it serves, if it serves anything, and begins with the most urgent part that waits.
    pub fn serve(&mut self, channel: usize, now: Ticks) {
        let c = &mut self.channels[channel];
        c.scheduled = None;
        let ended = c.serving.take();
        if let Some(Service { part, .. }) = ended {
            self.busy += self.rate.ticks(part.bytes, TICKS_PER_CYCLE);
            if self.is_losing() {
                self.remember(channel, part);
            }
            let row = &mut self.under_way[part.row];
            row.left_bytes -= part.bytes;
            if row.left_bytes == 0 {
                let UnderWay { stream, slot, .. } = *row;
                self.unused.push(part.row);
                self.in_order[stream].of(slot).end = Some(now + self.latency);
                self.in_order[stream].tell(stream, &mut self.arrivals);
            }
        }
        let Some(Reverse(part)) = self.channels[channel].waiting.pop() else { return };
        let began = now + self.loses(channel, part);
        let end = began + self.part_ticks(part.from, part.bytes);
        let first = began + self.ticks(part.bytes.min(self.grain_bytes)) + self.latency;
        let c = &mut self.channels[channel];
        c.serving = Some(Service { part, began });
        c.free_at = end;
        self.schedule(channel, end);
        let UnderWay { stream, slot, .. } = self.under_way[part.row];
        let first_at = &mut self.in_order[stream].of(slot).first_at;
        if first_at.is_none() {
            *first_at = Some(first);
            self.in_order[stream].tell(stream, &mut self.arrivals);
        }
    }

    /// Ticks that a channel loses before it serves a part.
    fn loses(&mut self, channel: usize, part: Part) -> Ticks {
        if !self.is_losing() {
            return 0;
        }
        let stream = part.transfer.stream;
        let recent = &mut self.channels[channel].recent;
        let lost = cycles(recent.loses(self.penalties, (stream, part.from), self.writes[stream]));
        // One of all channels.
        self.busy += lost / self.channels.len() as u64;
        lost
    }

    /// A channel has served a part.
    fn remember(&mut self, channel: usize, part: Part) {
        let stream = part.transfer.stream;
        let recent = &mut self.channels[channel].recent;
        recent.last = Some((stream, part.from + part.bytes));
        recent.written += if self.writes[stream] { part.bytes } else { 0 };
    }

    fn is_losing(&self) -> bool {
        self.penalties.turn_cycles > 0 || self.penalties.jump_cycles > 0
    }

    /// Writes down all that the rest of a run depends on: urgencies relative to `urgency`, slots to `next` of their
    /// stream, addresses within a unit over all channels.
    pub fn write_state(&self, clock: Clock, urgency: u64, next: &dyn Fn(StreamId) -> u64, words: &mut Vec<u64>) {
        let around = self.unit_bytes * self.channels.len() as u64;
        words.extend(self.address.iter().map(|address| address % around));
        let mut rows: Vec<&UnderWay> = self.under_way.iter().filter(|row| row.left_bytes > 0).collect();
        rows.sort_unstable_by_key(|row| (row.stream, row.slot));
        words.push(rows.len() as u64);
        for &&UnderWay { stream, slot, left_bytes } in &rows {
            words.extend([stream.index() as u64, slot.wrapping_sub(next(stream)), left_bytes]);
        }
        for (stream, in_order) in self.in_order.iter_enumerated() {
            // Where nothing is under way the next slot is the stream's next, or the stream comes from another tier.
            let first = if in_order.untold.is_empty() { 0 } else { in_order.first_slot.wrapping_sub(next(stream)) };
            words.extend([first, clock.relative(in_order.latest)]);
            words.extend([in_order.untold.len() as u64, u64::from(in_order.has_begun)]);
            let relative = |at: Option<Ticks>| at.map_or(0, |at| clock.relative(at) + 1);
            words.extend(in_order.untold.iter().flat_map(|untold| [relative(untold.first_at), relative(untold.end)]));
        }
        let part_words = |part: Part| {
            let Transfer { urgency: at, stream, slot, moved_bytes } = part.transfer;
            let slot = slot.wrapping_sub(next(stream));
            [
                at.wrapping_sub(urgency),
                stream.index() as u64,
                slot,
                moved_bytes,
                part.bytes,
                part.from % self.unit_bytes,
            ]
        };
        for (c, channel) in self.channels.iter().enumerate().filter(|_| self.is_losing()) {
            let Recent { last, written, has_read } = channel.recent;
            let goes_on = |(stream, at): (StreamId, u64)| {
                let next = self.bytes_below(self.address[stream], c as u64);
                [stream.index() as u64 + 1, at.wrapping_sub(next)]
            };
            words.extend(last.map_or([0; 2], goes_on));
            words.extend([written, u64::from(has_read)]);
            // Parts that wait: what they lose depends on where they begin.
            let parts = channel.waiting.iter().map(|&Reverse(part)| part).chain(channel.serving.map(|s| s.part));
            let mut parts: Vec<[u64; 2]> = parts.map(|part| goes_on((part.transfer.stream, part.from))).collect();
            parts.sort_unstable();
            words.extend(parts.into_iter().flatten());
        }
        for channel in &self.channels {
            words.push(channel.scheduled.map_or(0, |at| clock.relative(at) + 1));
            if let Some(Service { part, began }) = channel.serving {
                words.push(clock.now.wrapping_sub(began));
                words.extend(part_words(part));
            }
            let mut waiting: Vec<Part> = channel.waiting.iter().map(|&Reverse(part)| part).collect();
            waiting.sort_unstable();
            words.push(waiting.len() as u64);
            words.extend(waiting.into_iter().flat_map(part_words));
        }
    }

    /// Lets time pass, and the firings and slots of `step`: the state, seen from then, is the same.
    pub fn shift(&mut self, time: Ticks, urgency: u64, slots: &dyn Fn(StreamId) -> u64) {
        for row in self.under_way.iter_mut().filter(|row| row.left_bytes > 0) {
            row.slot += slots(row.stream);
        }
        for (stream, in_order) in self.in_order.ids().zip(self.in_order.iter_mut()) {
            in_order.first_slot += slots(stream);
            in_order.latest += time;
            for untold in &mut in_order.untold {
                untold.first_at = untold.first_at.map(|at| at + time);
                untold.end = untold.end.map(|at| at + time);
            }
        }
        let later = |part: Part| {
            let Transfer { urgency: at, stream, slot, .. } = part.transfer;
            let transfer = Transfer { urgency: at + urgency, slot: slot + slots(stream), ..part.transfer };
            Part { transfer, ..part }
        };
        for channel in &mut self.channels {
            channel.free_at += time;
            channel.scheduled = channel.scheduled.map(|at| at + time);
            let moved = |Service { part, began }| Service { part: later(part), began: began + time };
            channel.serving = channel.serving.map(moved);
            let waiting = std::mem::take(&mut channel.waiting).into_iter();
            channel.waiting = waiting.map(|Reverse(part)| Reverse(later(part))).collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Six channels in stripes of 1 KiB, at a byte a tick together; an access takes 100 ticks.
    fn server() -> TierServer {
        TierServer::idle(Rate { bytes: TICKS_PER_CYCLE, cycles: 1 }, 6, (1024, 64), 100, IndexVec::filled(2, false))
    }

    fn transfer(urgency: u64, stream: usize, slot: u64, moved_bytes: u64) -> Transfer {
        Transfer { urgency, stream: StreamId::from_index(stream), slot, moved_bytes }
    }

    /// Looks at channels when they are due, until none is; what becomes known, in order: when, stream, slot, first.
    fn run(tier: &mut TierServer) -> Vec<(Ticks, usize, u64, bool)> {
        while !tier.due.is_empty() {
            tier.due.sort_by_key(|due| std::cmp::Reverse(due.1));
            if let Some((channel, at)) = tier.due.pop().filter(|&(channel, at)| tier.is_due(channel, at)) {
                tier.serve(channel, at);
            }
        }
        let mut told: Vec<_> = tier.arrivals.drain(..).map(|a| (a.at, a.stream.index(), a.slot, a.first)).collect();
        told.sort_unstable();
        told
    }

    #[test]
    fn a_transfer_comes_at_the_rate_of_the_channels_it_lies_on() {
        // 6 KiB are a stripe on every channel: each gives a sixth of a byte a tick, 1024 x 6 = 6144 ticks. The first
        // 64 B take 64 x 6 = 384.
        let mut tier = server();
        tier.request(transfer(0, 0, 0, 6144), 0);
        assert_eq!(run(&mut tier), [(484, 0, 0, true), (6244, 0, 0, false)]);
        assert_eq!((tier.free_at(), tier.busy), (6144, 6144));
        // The next 512 B are half a stripe on the first channel, and take 512 x 6 ticks there.
        tier.request(transfer(1, 0, 1, 512), 10_000);
        assert_eq!(run(&mut tier), [(10_484, 0, 1, true), (13_172, 0, 1, false)]);
    }

    #[test]
    fn the_most_urgent_goes_first_and_slots_complete_in_order() {
        let mut tier = server();
        tier.request(transfer(3, 0, 0, 1024 + 64), 0);
        tier.request(transfer(2, 1, 0, 64), 0);
        tier.request(transfer(7, 0, 1, 64), 0);
        let told = run(&mut tier);
        // Slot 0 of stream 0 begins on the first channel, where its last byte is served after 6144 ticks. On the second,
        // stream 1 goes first, then the end of that slot, then slot 1, after 3 x 384 ticks: it is told in its turn.
        assert!(told.contains(&(484, 1, 0, false)) || told.contains(&(485, 1, 0, false)));
        assert_eq!(
            told.iter().filter(|t| t.1 == 0 && !t.3).map(|t| (t.0, t.2)).collect::<Vec<_>>(),
            [(6144 + 100, 0), (6144 + 101, 1)]
        );
    }

    #[test]
    fn a_channel_serves_no_two_things_at_a_time() {
        let mut tier = server();
        tier.request(transfer(0, 0, 0, 1024), 0);
        assert_eq!(run(&mut tier), [(484, 0, 0, true), (6244, 0, 0, false)]);
        // What becomes known late was asked for while the channel was busy: it comes behind what has been served since.
        tier.request(transfer(1, 1, 0, 6 * 1024), 3000);
        let told = run(&mut tier);
        assert_eq!(told.iter().find(|t| !t.3), Some(&(2 * 6144 + 100, 1, 0, false)));
        assert_eq!(tier.free_at(), 2 * 6144);
    }

    #[test]
    fn what_is_more_urgent_interrupts_at_the_next_grain() {
        let mut tier = server();
        tier.request(transfer(5, 0, 0, 1024), 0);
        tier.serve(0, 0);
        // 1000 ticks are 2.6 grains of 384: the third is ended.
        tier.request(transfer(1, 0, 1, 6 * 1024 - 1024), 1000);
        tier.request(transfer(1, 0, 2, 64), 1000);
        let told = run(&mut tier);
        let end = |slot| told.iter().find(|t| t.2 == slot && !t.3).map(|t| t.0);
        // Slot 2 takes the first channel from 1152 to 1536, and slot 0 what is left: 6144 + 384. Slot 1 is served on the
        // others from 1000 on, and what came before it is told behind it.
        assert_eq!(end(0), Some(6144 + 384 + 100));
        assert_eq!(end(1), Some(1000 + 6144 + 100));
        assert_eq!(end(2), Some(1000 + 6144 + 101));
    }

    #[test]
    fn what_is_served_takes_the_same_however_it_is_cut() {
        // A byte takes 6 x 64 / (7 x 64) ticks, a stripe of 16 B 13.7: 32 are a unit, of 438.9.
        let rate = Rate { bytes: 7 * TICKS_PER_CYCLE, cycles: 1 };
        let tier = TierServer::idle(rate, 6, (16, 16), 100, IndexVec::filled(1, false));
        assert_eq!((tier.ticks(16), tier.unit_bytes, tier.unit_ticks), (14, 512, 439));
        for cuts in [vec![16_384], vec![64; 256], vec![1000, 15_000, 384], vec![1; 16_384]] {
            let mut from = 0;
            let parts = cuts.into_iter().map(|bytes| {
                from += bytes;
                tier.part_ticks(from - bytes, bytes)
            });
            assert_eq!(parts.sum::<Ticks>(), 32 * 439);
        }
    }

    #[test]
    fn who_turns_or_jumps_loses_time() {
        let penalties = Penalties { turn_cycles: 10, write_batch_bytes: 128, jump_cycles: 3 };
        let (mut recent, read, write) = (Recent::default(), StreamId::from_index(0), StreamId::from_index(1));
        let mut serve = |stream: StreamId, from: u64, bytes: u64| {
            let lost = recent.loses(penalties, (stream, from), stream == write);
            recent.last = Some((stream, from + bytes));
            recent.written += if stream == write { bytes } else { 0 };
            lost
        };
        // The first access, and what follows it.
        assert_eq!((serve(read, 0, 64), serve(read, 64, 64)), (0, 0));
        // Elsewhere in the same stream; another stream, and on in it.
        assert_eq!((serve(read, 640, 64), serve(write, 0, 64), serve(write, 64, 64)), (3, 3, 0));
        // A batch has been written, and something read before it.
        assert_eq!((serve(write, 128, 256), serve(write, 384, 64), serve(read, 704, 64)), (10, 0, 3));
        // Half a batch, then the rest of it: who writes next has turned again.
        assert_eq!((serve(write, 448, 64), serve(read, 768, 64), serve(write, 512, 64)), (3, 3, 13));
    }

    #[test]
    fn what_is_lost_makes_transfers_later_and_a_channel_busy() {
        let mut tier = server();
        tier.penalties = Penalties { turn_cycles: 0, write_batch_bytes: 1024, jump_cycles: 6 };
        for slot in 0..2 {
            for stream in 0..2 {
                tier.request(transfer(slot, stream, slot, 1024), 0);
            }
        }
        // Each stream goes on on the next channel: nobody jumps but on the channel where both meet, and that once.
        let told = run(&mut tier);
        let end = |stream, slot| told.iter().find(|t| (t.1, t.2, t.3) == (stream, slot, false)).map(|t| t.0);
        assert_eq!((end(0, 0), end(1, 0)), (Some(6144 + 100), Some(6144 + 100)));
        assert_eq!(end(0, 1), Some(2 * 6144 + 100 + 6 * TICKS_PER_CYCLE));
        assert_eq!((end(1, 1), tier.busy), (Some(6144 + 101), 4 * 1024 + TICKS_PER_CYCLE));
    }

    #[test]
    fn a_transfer_without_bytes_is_there_at_once() {
        let mut tier = server();
        tier.request(transfer(0, 0, 0, 0), 7);
        assert_eq!(run(&mut tier), [(7, 0, 0, true), (8, 0, 0, false)]);
        assert_eq!(tier.busy, 0);
    }
}
