//! Off-chip memory: every channel of a tier serves the bursts that lie on it, one after the other.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::arch::{Chip, Penalties, TierId};
use crate::index::IndexVec;
use crate::program::StreamId;
use crate::units::Rate;

/// A slot of a stream at a tier, in the order of service: urgency, stream, slot.
pub(super) type Key = (u64, StreamId, u64);

#[derive(Debug)]
struct Transfer {
    /// Addresses: first byte, behind the last.
    start: u64,
    end: u64,
    /// First address on each channel that has not been served, and that has not arrived; `end` or more when all have.
    next: Vec<u64>,
    pending: Vec<u64>,
    /// Behind the last byte that may be written (reads: `end`).
    available: u64,
    is_write: bool,
}

/// What became of a transfer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Progress {
    /// The transfer.
    pub(super) key: Key,
    /// Bytes from its beginning that have all arrived, of so many.
    pub(super) bytes: u64,
    /// Its bytes.
    pub(super) of: u64,
}

/// What a channel remembers of its accesses.
#[derive(Debug, Clone, Copy, Default)]
struct Habit {
    /// Stream and address that would go on where it is.
    open: Option<(StreamId, u64)>,
    /// Writes that have come to the batch under way.
    batch_bytes: u64,
    /// Reads between that and the batch before.
    reads: u64,
}

/// One tier.
#[derive(Debug)]
pub(super) struct Tier {
    rate: Rate,
    channels: u64,
    interleave: u64,
    grain: u64,
    latency: u64,
    penalties: Penalties,
    habits: Vec<Habit>,
    /// Transfers that have not all arrived, by key.
    transfers: Vec<(Key, Transfer)>,
    /// Those with something left to serve on each channel, by key.
    waiting: Vec<Vec<Key>>,
    /// When each channel is free, in cycles times `rate.bytes`.
    free: Vec<u128>,
    /// Accesses under way: when they are there, transfer, channel, first address behind.
    under_way: BinaryHeap<Reverse<(u64, Key, usize, u64)>>,
    /// Next address of each stream.
    address: IndexVec<StreamId, u64>,
    /// Whether a channel may find something to do.
    stirred: bool,
    /// Bytes served.
    pub(super) bytes: u64,
}

impl Tier {
    /// An idle tier that this many streams may use.
    pub(super) fn new(chip: &Chip, tier: TierId, streams: usize) -> Self {
        let t = &chip.memory[tier];
        // A channel is asked for a flit's worth of whole bursts at a time.
        let grain = chip.network.flit_bytes.next_multiple_of(t.burst_bytes).min(t.interleave_bytes);
        Self {
            rate: chip.tier_rate(tier),
            channels: t.channels,
            interleave: t.interleave_bytes,
            grain,
            latency: chip.tier_latency_cycles(tier),
            penalties: chip.tier_penalties(tier),
            habits: vec![Habit::default(); t.channels as usize],
            transfers: Vec::new(),
            waiting: vec![Vec::new(); t.channels as usize],
            free: vec![0; t.channels as usize],
            under_way: BinaryHeap::new(),
            // Streams begin on different channels.
            address: (0..streams as u64).map(|s| s * t.interleave_bytes).collect(),
            stirred: false,
            bytes: 0,
        }
    }

    /// First address not below `from` on a channel.
    fn on_channel(&self, from: u64, channel: u64) -> u64 {
        let stripe = from / self.interleave;
        let ahead = (channel + self.channels - stripe % self.channels) % self.channels;
        if ahead == 0 { from } else { (stripe + ahead) * self.interleave }
    }

    /// The first `bytes` of a stream have been loaded before.
    pub(super) fn pass(&mut self, stream: StreamId, bytes: u64) {
        self.address[stream] += bytes;
    }

    /// Asks for the next `bytes` of a stream. Of a write (`here` = 0) nothing can be served before it is there.
    pub(super) fn ask(&mut self, key: Key, bytes: u64, here: u64) {
        let start = self.address[key.1];
        let end = start + bytes;
        self.address[key.1] = end;
        let next: Vec<u64> = (0..self.channels).map(|c| self.on_channel(start, c)).collect();
        for (channel, &at) in next.iter().enumerate() {
            if at < end {
                let keys = &mut self.waiting[channel];
                keys.insert(keys.partition_point(|&other| other < key), key);
            }
        }
        if bytes == 0 {
            // Nothing is stored in this slot: it is there as soon as it is asked for.
            self.under_way.push(Reverse((0, key, 0, end)));
        }
        let is_write = here < bytes;
        let transfer = Transfer { start, end, pending: next.clone(), next, available: start + here, is_write };
        let place = self.transfers.partition_point(|(other, _)| *other < key);
        self.transfers.insert(place, (key, transfer));
        self.stirred = true;
    }

    /// Where a transfer stands in `transfers`.
    fn place(&self, key: Key) -> Option<usize> {
        self.transfers.binary_search_by_key(&key, |(other, _)| *other).ok()
    }

    /// So many bytes of a write are there.
    pub(super) fn offer(&mut self, key: Key, bytes: u64) {
        if let Some(place) = self.place(key) {
            let transfer = &mut self.transfers[place].1;
            transfer.available = transfer.start + bytes;
            self.stirred = true;
        }
    }

    /// When something next happens by itself.
    pub(super) fn next_at(&self) -> u64 {
        let arrival = self.under_way.peek().map_or(u64::MAX, |Reverse((at, ..))| *at);
        if !self.stirred {
            return arrival;
        }
        let free = self.waiting.iter().zip(&self.free).filter(|(keys, _)| !keys.is_empty()).map(|(_, &free)| free);
        let free = free.min().map_or(u64::MAX, |free| (free / u128::from(self.rate.bytes)) as u64);
        arrival.min(free)
    }

    /// What has arrived by now is told in `progress`.
    pub(super) fn arrive(&mut self, now: u64, progress: &mut Vec<Progress>) {
        while let Some(&Reverse((at, key, channel, behind))) = self.under_way.peek() {
            if at > now {
                break;
            }
            self.under_way.pop();
            let Some(place) = self.place(key) else { continue };
            let transfer = &mut self.transfers[place].1;
            transfer.pending[channel] = behind;
            let upto = transfer.pending.iter().copied().min().unwrap_or(transfer.end).min(transfer.end);
            let (bytes, of) = (upto - transfer.start, transfer.end - transfer.start);
            if bytes == of {
                self.transfers.remove(place);
            }
            progress.push(Progress { key, bytes, of });
        }
    }

    /// One cycle of the channels: they begin what they have time for.
    pub(super) fn tick(&mut self, now: u64) {
        if self.stirred {
            self.serve(now);
        }
    }

    /// Cycles that a channel needs before an access at an address, besides the access itself.
    fn penalty(&mut self, channel: usize, place: usize, (at, behind): (u64, u64), bytes: u64) -> u64 {
        let Penalties { turn_cycles, write_batch_bytes, jump_cycles } = self.penalties;
        let ((_, stream, _), Transfer { is_write, .. }) = self.transfers[place];
        let habit = &mut self.habits[channel];
        let elsewhere = habit.open.is_some() && habit.open != Some((stream, at));
        habit.open = Some((stream, behind));
        let jump = if elsewhere { jump_cycles } else { 0 };
        if !is_write {
            habit.reads += 1;
            return jump;
        }
        let batches = habit.batch_bytes / write_batch_bytes;
        habit.batch_bytes = habit.batch_bytes % write_batch_bytes + bytes;
        let turns = batches > 0 && std::mem::take(&mut habit.reads) > 0;
        jump + if turns { turn_cycles } else { 0 }
    }

    fn serve(&mut self, now: u64) {
        let per_cycle = u128::from(self.rate.bytes);
        let until = u128::from(now + 1) * per_cycle;
        let mut idle = true;
        for channel in 0..self.channels as usize {
            while self.free[channel] < until {
                let found = self.waiting[channel].iter().enumerate().find_map(|(nth, &key)| {
                    let place = self.place(key)?;
                    let transfer = &self.transfers[place].1;
                    let at = transfer.next[channel];
                    let bytes = (self.grain - at % self.grain).min(transfer.end - at);
                    (at + bytes <= transfer.available).then_some((nth, place, at, bytes))
                });
                let Some((nth, place, at, bytes)) = found else { break };
                let behind = self.on_channel(at + bytes, channel as u64);
                let lost = self.penalty(channel, place, (at, behind), bytes);
                let begin = self.free[channel].max(u128::from(now) * per_cycle) + u128::from(lost) * per_cycle;
                let end = begin + u128::from(bytes) * u128::from(self.channels) * u128::from(self.rate.cycles);
                self.free[channel] = end;
                self.bytes += bytes;
                let there = end.div_ceil(per_cycle) as u64 + self.latency;
                let (key, transfer) = &mut self.transfers[place];
                self.under_way.push(Reverse((there, *key, channel, behind)));
                transfer.next[channel] = behind;
                if behind >= transfer.end {
                    self.waiting[channel].remove(nth);
                }
            }
            idle &= self.waiting[channel].is_empty() || self.free[channel] < until;
        }
        // A channel that could not go on waits for data or a request.
        self.stirred = !idle;
    }
}
