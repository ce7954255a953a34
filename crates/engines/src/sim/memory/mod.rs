//! Off-chip memory: every channel of a tier serves what lies on it, the most urgent first.

mod in_order;
mod part;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rdusim_base::index::{Id, IndexVec};
use rdusim_base::units::{Bytes, Rate};
use rdusim_cost::cost::{TICKS_PER_CYCLE, Ticks, cycles};
use rdusim_graph::arch::{Chip, Penalties, TierId};
use rdusim_program::{OffChip, StreamId};

use super::clock::Clock;
use in_order::{InOrder, Undelivered};
use part::{Part, Recent, Service};

pub(super) use in_order::Arrival;
pub(super) use part::Transfer;

/// A transfer that is not served yet.
#[derive(Debug, Clone, Copy)]
struct UnderWay {
    stream: StreamId,
    slot: u64,
    /// All its bytes.
    moved_bytes: u64,
    /// Bytes that are still to be served; of a row that is not in use, none.
    left_bytes: u64,
}

#[derive(Debug, Default)]
struct Channel {
    waiting: BinaryHeap<Reverse<Part>>,
    serving: Option<Service>,
    /// When it is due next: at the end of its service, or at once.
    scheduled: Option<Ticks>,
    free_at: Ticks,
    recent: Recent,
}

/// Thousandths of a cycle in ticks, rounded up.
fn milli_cycles(milli_cycles: u64) -> Ticks {
    cycles(milli_cycles).div_ceil(1000)
}

/// What the channels of a tier have done: bytes served, and ticks lost beside, of all channels added up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Done {
    pub bytes: u64,
    pub lost: Ticks,
}

/// One memory tier.
#[derive(Debug)]
pub(super) struct TierServer {
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
    /// The rate that each stream's accesses under way allow.
    windows: IndexVec<StreamId, Option<Rate>>,
    channels: Vec<Channel>,
    under_way: Vec<UnderWay>,
    /// Rows of `under_way` that are not in use.
    unused: Vec<usize>,
    /// Next address of each stream.
    address: IndexVec<StreamId, u64>,
    in_order: IndexVec<StreamId, InOrder>,
    /// What its channels have done.
    pub done: Done,
    /// Channels that are due, and when.
    pub due: Vec<(usize, Ticks)>,
    /// What has become known of transfers.
    pub arrivals: Vec<Arrival>,
}

impl TierServer {
    /// An idle tier that these streams will use.
    pub(super) fn new(chip: &Chip, tier: TierId, streams: &IndexVec<StreamId, OffChip>) -> Self {
        let t = &chip.memory[tier];
        let latency = cycles(chip.tier_latency_cycles(tier));
        let grain = chip.network.flit_bytes.next_multiple_of(t.burst_bytes).min(t.interleave_bytes);
        let penalties = chip.tier_penalties(tier);
        let writes = streams.iter().map(|off_chip| off_chip.stream.writes).collect();
        let windows = streams.iter().map(|off_chip| off_chip.window_rate(chip)).collect();
        let idle = Self::idle(chip.tier_rate(tier), t.channels, t.interleave_bytes, grain, latency, writes);
        Self { penalties, windows, ..idle }
    }

    /// A tier that loses nothing beside its rate.
    fn idle(
        rate: Rate,
        channels: u64,
        stripe: u64,
        grain: u64,
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
            windows: IndexVec::filled(streams, None),
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
            done: Done::default(),
            due: Vec::new(),
            arrivals: Vec::new(),
        }
    }

    /// All tiers of a chip, idle.
    pub(super) fn all(chip: &Chip, streams: &IndexVec<StreamId, OffChip>) -> Vec<Self> {
        (0..chip.memory.len()).map(|t| Self::new(chip, TierId::from_index(t), streams)).collect()
    }

    /// Ticks that serving has taken, all channels together. Of all bytes at once: rounded part by part, small parts would add up to
    /// more than the time in which they were served.
    pub(super) fn busy(&self) -> Ticks {
        self.rate.ticks(self.done.bytes, TICKS_PER_CYCLE) + self.done.lost / self.channels.len() as u64
    }

    /// When the last channel is through with what it serves.
    pub(super) fn free_at(&self) -> Ticks {
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

    /// Ticks that bytes of a stream take at the rate that its accesses under way allow.
    pub(super) fn window_ticks(&self, stream: StreamId, Bytes(bytes): Bytes) -> Ticks {
        self.windows[stream].map_or(0, |rate| rate.ticks(bytes, TICKS_PER_CYCLE))
    }

    /// Bytes that a channel serves at once at least.
    pub(super) fn grain_bytes(&self) -> Bytes {
        Bytes(self.grain_bytes)
    }

    /// Ticks that a channel serves one thing at least.
    pub(super) fn grain_ticks(&self) -> Ticks {
        self.ticks(self.grain_bytes)
    }

    /// Of a slot of so many bytes, those that come at once at the end: channels serve their stripes side by side, and
    /// an address generator delivers in order.
    pub(super) fn at_once_bytes(&self, Bytes(bytes): Bytes) -> Bytes {
        let around = self.interleave_bytes * self.channels.len() as u64;
        let last_round = bytes.saturating_sub(1) % around + 1;
        Bytes(last_round.min(bytes).saturating_sub(self.interleave_bytes))
    }

    /// Ticks that the last stripe of the slot of a stream that was asked for last takes, latency included.
    pub(super) fn last_stripe_ticks(&self, stream: StreamId, Bytes(bytes): Bytes) -> Ticks {
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
    pub(super) fn begin_behind_first(&mut self, stream: StreamId, Bytes(moved_bytes): Bytes) {
        self.address[stream] += moved_bytes;
        self.in_order[stream].first_slot = 1;
    }

    /// Queues a transfer: the next bytes of its stream, on the channels they lie on.
    pub(super) fn request(&mut self, transfer: Transfer, now: Ticks) {
        let Transfer { stream, slot, moved_bytes, .. } = transfer;
        let start = self.address[stream];
        let end = start + moved_bytes;
        self.address[stream] = end;
        let in_order = &mut self.in_order[stream];
        in_order.undelivered.push_back(Undelivered::default());
        if moved_bytes == 0 {
            // Nothing is stored in this slot: it is there as soon as it is asked for.
            *in_order.of(slot) = Undelivered { first_at: Some(now), end: Some(now), allowed_at: now };
            in_order.deliver(stream, &mut self.arrivals);
            return;
        }
        let under_way = UnderWay { stream, slot, moved_bytes, left_bytes: moved_bytes };
        let row = self.unused.pop().unwrap_or(self.under_way.len());
        if row == self.under_way.len() {
            self.under_way.push(under_way);
        } else {
            self.under_way[row] = under_way;
        }
        let run_bytes = self.run_bytes(moved_bytes / transfer.runs);
        for c in 0..self.channels.len() {
            let from = self.bytes_below(start, c as u64);
            let bytes = self.bytes_below(end, c as u64) - from;
            if bytes > 0 {
                let part = Part { transfer, row, bytes, from, run_bytes, into_run: 0 };
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

    /// Bytes of a run on each of the channels that it lies on.
    fn run_bytes(&self, bytes: u64) -> u64 {
        let channels = bytes.div_ceil(self.interleave_bytes).clamp(1, self.channels.len() as u64);
        bytes.div_ceil(channels).max(1)
    }

    /// Ticks until the first bytes of what a channel serves are served.
    fn service_ticks(&self, service: &Service, bytes: u64) -> Ticks {
        self.part_ticks(service.part.from, bytes) + service.part.inner_runs(bytes) * service.run_ticks
    }

    /// Ends a service with what it has begun: something more urgent has come.
    fn interrupt(&mut self, channel: usize, service: Service, now: Ticks) {
        let Service { part, began, run_ticks } = service;
        let passed = now.saturating_sub(began);
        // The fewest grains that take as long.
        let (mut low, mut high) = (1, part.bytes.div_ceil(self.grain_bytes));
        while low < high {
            let middle = low.midpoint(high);
            if self.service_ticks(&service, middle * self.grain_bytes) < passed {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let begun = low * self.grain_bytes;
        if begun >= part.bytes {
            return;
        }
        let end = began + self.service_ticks(&service, begun);
        let c = &mut self.channels[channel];
        c.waiting.push(Reverse(part.behind(begun)));
        c.serving = Some(Service { part: part.first(begun), began, run_ticks });
        c.free_at = end;
        self.schedule(channel, end);
    }

    /// Whether a channel is due now; a service that was interrupted has left an earlier appointment.
    pub(super) fn is_due(&self, channel: usize, now: Ticks) -> bool {
        self.channels[channel].scheduled == Some(now)
    }

    /// A channel ends what it serves, if it serves anything, and begins with the most urgent part that waits.
    pub(super) fn serve(&mut self, channel: usize, now: Ticks) {
        let c = &mut self.channels[channel];
        c.scheduled = None;
        let ended = c.serving.take();
        if let Some(Service { part, run_ticks, .. }) = ended {
            self.done.bytes += part.bytes;
            if self.penalties.are_any() {
                self.remember(channel, part);
                self.done.lost += part.inner_runs(part.bytes) * run_ticks;
            }
            let row = &mut self.under_way[part.row];
            row.left_bytes -= part.bytes;
            if row.left_bytes == 0 {
                let UnderWay { stream, slot, .. } = *row;
                self.unused.push(part.row);
                let allowed_at = self.in_order[stream].of(slot).allowed_at;
                self.in_order[stream].of(slot).end = Some(allowed_at.max(now + self.latency));
                self.in_order[stream].deliver(stream, &mut self.arrivals);
            }
        }
        let Some(Reverse(part)) = self.channels[channel].waiting.pop() else { return };
        let run_ticks = milli_cycles(self.penalties.run_milli_cycles(part.run_bytes));
        let began = now + self.loses(channel, part, run_ticks);
        let service = Service { part, began, run_ticks };
        let end = began + self.service_ticks(&service, part.bytes);
        let first = began + self.ticks(part.bytes.min(self.grain_bytes)) + self.latency;
        let c = &mut self.channels[channel];
        c.serving = Some(service);
        c.free_at = end;
        self.schedule(channel, end);
        let UnderWay { stream, slot, moved_bytes, .. } = self.under_way[part.row];
        if self.in_order[stream].of(slot).first_at.is_none() {
            let window_ticks = self.window_ticks(stream, Bytes(moved_bytes));
            let in_order = &mut self.in_order[stream];
            in_order.allowed_at = in_order.allowed_at.max(began) + window_ticks;
            let allowed_at = in_order.allowed_at;
            *in_order.of(slot) = Undelivered { first_at: Some(first), end: None, allowed_at };
            in_order.deliver(stream, &mut self.arrivals);
        }
    }

    /// Ticks that a channel loses before it serves a part, if it must go elsewhere for it in `run_ticks`.
    fn loses(&mut self, channel: usize, part: Part, run_ticks: Ticks) -> Ticks {
        if !self.penalties.are_any() {
            return 0;
        }
        let recent = &mut self.channels[channel].recent;
        let jump = if recent.goes_on(&part) { 0 } else { run_ticks };
        let turns = recent.turns(self.penalties.write_batch_bytes, self.writes[part.transfer.stream]);
        let lost = jump + if turns { milli_cycles(self.penalties.turn_milli_cycles) } else { 0 };
        self.done.lost += lost;
        lost
    }

    /// A channel has served a part.
    fn remember(&mut self, channel: usize, part: Part) {
        let stream = part.transfer.stream;
        let recent = &mut self.channels[channel].recent;
        recent.last = Some((stream, part.from + part.bytes));
        recent.written += if self.writes[stream] { part.bytes } else { 0 };
    }

    /// Writes down all that the rest of a run depends on: urgencies relative to `urgency`, slots to `next` of their
    /// stream, addresses within a unit over all channels.
    pub(super) fn write_state(&self, clock: Clock, urgency: u64, next: &dyn Fn(StreamId) -> u64, words: &mut Vec<u64>) {
        let around = self.unit_bytes * self.channels.len() as u64;
        words.extend(self.address.iter().map(|address| address % around));
        let mut rows: Vec<&UnderWay> = self.under_way.iter().filter(|row| row.left_bytes > 0).collect();
        rows.sort_unstable_by_key(|row| (row.stream, row.slot));
        words.push(rows.len() as u64);
        for &&UnderWay { stream, slot, left_bytes, .. } in &rows {
            words.extend([stream.index() as u64, slot.wrapping_sub(next(stream)), left_bytes]);
        }
        for (stream, in_order) in self.in_order.iter_enumerated() {
            // Where nothing is under way the next slot is the stream's next, or the stream comes from another tier.
            let first =
                if in_order.undelivered.is_empty() { 0 } else { in_order.first_slot.wrapping_sub(next(stream)) };
            words.extend([first, clock.relative(in_order.latest), clock.relative(in_order.allowed_at)]);
            words.extend([in_order.undelivered.len() as u64, u64::from(in_order.has_begun)]);
            let relative = |at: Option<Ticks>| at.map_or(0, |at| clock.relative(at) + 1);
            words.extend(in_order.undelivered.iter().flat_map(|undelivered| {
                [relative(undelivered.first_at), relative(undelivered.end), clock.relative(undelivered.allowed_at)]
            }));
        }
        let part_words = |part: Part| {
            let Transfer { urgency: at, stream, slot, moved_bytes, runs } = part.transfer;
            let slot = slot.wrapping_sub(next(stream));
            [
                at.wrapping_sub(urgency),
                stream.index() as u64,
                slot,
                moved_bytes,
                runs,
                part.bytes,
                part.from % self.unit_bytes,
            ]
        };
        for (c, channel) in self.channels.iter().enumerate().filter(|_| self.penalties.are_any()) {
            let Recent { last, written, has_read } = channel.recent;
            let goes_on = |(stream, at): (StreamId, u64)| {
                let next = self.bytes_below(self.address[stream], c as u64);
                [stream.index() as u64 + 1, at.wrapping_sub(next)]
            };
            words.extend(last.map_or([0; 2], goes_on));
            words.extend([written, u64::from(has_read)]);
            // Parts that wait: what they lose depends on where they begin.
            let parts = channel.waiting.iter().map(|&Reverse(part)| part).chain(channel.serving.map(|s| s.part));
            let mut parts: Vec<[u64; 4]> = parts
                .map(|part| {
                    let [stream, from] = goes_on((part.transfer.stream, part.from));
                    [stream, from, part.run_bytes, part.into_run]
                })
                .collect();
            parts.sort_unstable();
            words.extend(parts.into_iter().flatten());
        }
        for channel in &self.channels {
            words.push(channel.scheduled.map_or(0, |at| clock.relative(at) + 1));
            if let Some(Service { part, began, .. }) = channel.serving {
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
    pub(super) fn shift(&mut self, time: Ticks, urgency: u64, slots: &dyn Fn(StreamId) -> u64) {
        for row in self.under_way.iter_mut().filter(|row| row.left_bytes > 0) {
            row.slot += slots(row.stream);
        }
        for (stream, in_order) in self.in_order.ids().zip(self.in_order.iter_mut()) {
            in_order.first_slot += slots(stream);
            in_order.latest += time;
            in_order.allowed_at += time;
            for undelivered in &mut in_order.undelivered {
                undelivered.first_at = undelivered.first_at.map(|at| at + time);
                undelivered.end = undelivered.end.map(|at| at + time);
                undelivered.allowed_at += time;
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
            let moved =
                |service: Service| Service { part: later(service.part), began: service.began + time, ..service };
            channel.serving = channel.serving.map(moved);
            let waiting = std::mem::take(&mut channel.waiting).into_iter();
            channel.waiting = waiting.map(|Reverse(part)| Reverse(later(part))).collect();
        }
    }
}
