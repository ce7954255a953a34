//! Off-chip memory: every channel of a tier serves the bursts that lie on it, one after the other.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rdusim_base::index::{Id, IndexVec};
use rdusim_base::units::Rate;
use rdusim_graph::arch::{BankCycles, Chip, Penalties, TierId};
use rdusim_program::{OffChip, StreamId};

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
    /// Bytes of each of the runs of consecutive addresses that it is stored in, and whether it has several.
    run: u64,
    has_runs: bool,
    /// When it was asked for.
    asked: u64,
}

/// An access under way: when it is there, transfer, channel, the stream's next address on that channel, bytes.
type Access = (u64, Key, usize, u64, u64);

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
#[derive(Debug, Clone, Default)]
struct Habit {
    /// Position that would go on where it is.
    open: Option<AccessPosition>,
    /// Writes that have come to the batch under way.
    batch_bytes: u64,
    /// Reads between that and the batch before.
    reads: u64,
    banks: Vec<Bank>,
    /// When the row that was opened last could be used.
    row_ready: Option<u128>,
}

/// A bank with one open row; times in cycles times `rate.bytes`.
#[derive(Debug, Clone, Copy, Default)]
struct Bank {
    row: Option<(u64, u64)>,
    /// When it could be used.
    ready: u128,
    /// The end of the last access to it.
    used: u128,
}

/// An access: its stream, the slot and run that it is part of if the slot has several, and its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct AccessPosition {
    stream: StreamId,
    run: Option<(u64, u64)>,
    at: u64,
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
    banks: Option<BankCycles>,
    habits: Vec<Habit>,
    /// Transfers that have not all arrived, by key.
    transfers: Vec<(Key, Transfer)>,
    /// Those with something left to serve on each channel, by key.
    waiting: Vec<Vec<Key>>,
    /// When each channel is free, in cycles times `rate.bytes`.
    free: Vec<u128>,
    /// Accesses under way.
    under_way: BinaryHeap<Reverse<Access>>,
    /// Next address of each stream.
    address: IndexVec<StreamId, u64>,
    /// Bytes that each stream may still have under way.
    windows: IndexVec<StreamId, u64>,
    /// Whether a channel may find something to do.
    woken: bool,
    /// Bytes served.
    pub(super) bytes: u64,
}

impl Tier {
    /// An idle tier that these streams may use.
    pub(super) fn new(chip: &Chip, tier: TierId, streams: &IndexVec<StreamId, OffChip>) -> Self {
        let t = &chip.memory[tier];
        // A channel is asked for a flit's worth of whole bursts at a time.
        let grain = chip.network.flit_bytes.next_multiple_of(t.burst_bytes).min(t.interleave_bytes);
        let penalties = chip.tier_penalties(tier);
        let banks = penalties.bank_cycles().map_or(0, |banks| banks.count);
        let habit = Habit { banks: vec![Bank::default(); banks as usize], ..Habit::default() };
        Self {
            rate: chip.tier_rate(tier),
            channels: t.channels,
            interleave: t.interleave_bytes,
            grain,
            latency: chip.tier_latency_cycles(tier),
            banks: penalties.bank_cycles(),
            penalties,
            habits: vec![habit; t.channels as usize],
            transfers: Vec::new(),
            waiting: vec![Vec::new(); t.channels as usize],
            free: vec![0; t.channels as usize],
            under_way: BinaryHeap::new(),
            // Streams begin on different channels.
            address: (0..streams.len() as u64).map(|s| s * t.interleave_bytes).collect(),
            windows: streams
                .iter()
                .map(|stream| chip.window_bytes(tier, stream.ags.len() as u64).unwrap_or(u64::MAX))
                .collect(),
            woken: false,
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

    /// Asks for the next `bytes` of a stream, which lie in so many runs. Of a write (`here` = 0) nothing can be served before it is there.
    pub(super) fn ask(&mut self, key: Key, bytes: u64, here: u64, runs: u64, now: u64) {
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
            self.under_way.push(Reverse((0, key, 0, end, 0)));
        }
        let is_write = here < bytes;
        let (run, has_runs) = ((bytes / runs).max(1), runs > 1);
        let (pending, available) = (next.clone(), start + here);
        let transfer = Transfer { start, end, next, pending, available, is_write, run, has_runs, asked: now };
        let entry = self.transfers.partition_point(|(other, _)| *other < key);
        self.transfers.insert(entry, (key, transfer));
        self.woken = true;
    }

    /// Where a transfer stands in `transfers`.
    fn entry(&self, key: Key) -> Option<usize> {
        self.transfers.binary_search_by_key(&key, |(other, _)| *other).ok()
    }

    /// So many bytes of a write are there.
    pub(super) fn offer(&mut self, key: Key, bytes: u64) {
        if let Some(entry) = self.entry(key) {
            let transfer = &mut self.transfers[entry].1;
            transfer.available = transfer.start + bytes;
            self.woken = true;
        }
    }

    /// When something next happens by itself.
    pub(super) fn next_at(&self) -> u64 {
        let arrival = self.under_way.peek().map_or(u64::MAX, |Reverse((at, ..))| *at);
        if !self.woken {
            return arrival;
        }
        let free = self.waiting.iter().zip(&self.free).filter(|(keys, _)| !keys.is_empty()).map(|(_, &free)| free);
        let free = free.min().map_or(u64::MAX, |free| (free / u128::from(self.rate.bytes)) as u64);
        arrival.min(free)
    }

    /// What has arrived by now is told in `progress`.
    pub(super) fn arrive(&mut self, now: u64, progress: &mut Vec<Progress>) {
        while let Some(&Reverse((at, key, channel, behind, bytes))) = self.under_way.peek() {
            if at > now {
                break;
            }
            self.under_way.pop();
            self.woken |= self.windows[key.1] < self.grain;
            self.windows[key.1] += bytes;
            let Some(entry) = self.entry(key) else { continue };
            let transfer = &mut self.transfers[entry].1;
            transfer.pending[channel] = behind;
            let upto = transfer.pending.iter().copied().min().unwrap_or(transfer.end).min(transfer.end);
            let (bytes, of) = (upto - transfer.start, transfer.end - transfer.start);
            if bytes == of {
                self.transfers.remove(entry);
            }
            progress.push(Progress { key, bytes, of });
        }
    }

    /// One cycle of the channels: they begin what they have time for.
    pub(super) fn tick(&mut self, now: u64) {
        if self.woken {
            self.serve(now);
        }
    }

    /// When a channel that is free at a time begins an access; times in cycles times `rate.bytes`.
    fn begin(&mut self, channel: usize, entry: usize, at: u64, behind: u64, bytes: u64, free: u128) -> u128 {
        let per_cycle = u128::from(self.rate.bytes);
        let units = |milli_cycles: u64| u128::from(milli_cycles) * per_cycle / 1000;
        let (key, Transfer { is_write, run, has_runs, start, asked, .. }) = self.transfers[entry];
        let run_of = |address: u64| has_runs.then(|| (key.2, (address - start) / run));
        let place = AccessPosition { stream: key.1, run: run_of(at), at };
        let local = |address: u64| {
            let around = self.interleave * self.channels;
            address / around * self.interleave + address % self.interleave
        };
        let stream = key.1.index() as u64;
        // The row, and the bank that it is in.
        let row = self.banks.map(|banks| {
            if let Some((slot, run_number)) = place.run {
                // Runs lie in rows of their own, scattered over the banks.
                let first = scatter(stream, slot, run_number);
                let inside = (at - start) % run / banks.row_bytes;
                ((first, inside), first.wrapping_add(inside) % banks.count)
            } else {
                let row = local(at) / banks.row_bytes;
                ((stream, row), scatter(stream, 0, 0).wrapping_add(row) % banks.count)
            }
        });
        let service = self.service(bytes);
        let habit = &mut self.habits[channel];
        let elsewhere = habit.open.is_some_and(|open| open != place);
        habit.open = Some(AccessPosition { at: behind, ..place });
        let mut lost = if elsewhere { self.penalties.jump_milli_cycles } else { 0 };
        if is_write {
            let batches = habit.batch_bytes / self.penalties.write_batch_bytes;
            habit.batch_bytes = habit.batch_bytes % self.penalties.write_batch_bytes + bytes;
            let turns = batches > 0 && std::mem::take(&mut habit.reads) > 0;
            lost += if turns { self.penalties.turn_milli_cycles } else { 0 };
        } else {
            habit.reads += 1;
        }
        let mut begin = free + units(lost);
        if let (Some(banks), Some((row, bank))) = (self.banks, row) {
            let bank = &mut habit.banks[bank as usize];
            if bank.row != Some(row) {
                // Its row is opened as early as the bank allows; the latency of an access includes an idle bank's.
                let mut ready = u128::from(asked) * per_cycle;
                if let Some(before) = habit.row_ready {
                    ready = ready.max(before + units(banks.activation));
                }
                if bank.row.is_some() {
                    let (closed, cycled) =
                        (bank.used + units(banks.close + banks.open), bank.ready + units(banks.cycle));
                    ready = ready.max(closed).max(cycled);
                }
                *bank = Bank { row: Some(row), ready, used: ready };
                habit.row_ready = Some(ready);
            }
            begin = begin.max(bank.ready);
            bank.used = begin + service;
        }
        begin
    }

    /// Time that a channel takes for bytes, in cycles times `rate.bytes`.
    fn service(&self, bytes: u64) -> u128 {
        u128::from(bytes) * u128::from(self.channels) * u128::from(self.rate.cycles)
    }

    fn serve(&mut self, now: u64) {
        let per_cycle = u128::from(self.rate.bytes);
        let until = u128::from(now + 1) * per_cycle;
        let mut idle = true;
        for channel in 0..self.channels as usize {
            while self.free[channel] < until {
                let found = self.waiting[channel].iter().enumerate().find_map(|(nth, &key)| {
                    let entry = self.entry(key)?;
                    let transfer = &self.transfers[entry].1;
                    let at = transfer.next[channel];
                    let of_run = transfer.run - (at - transfer.start) % transfer.run;
                    let bytes = (self.grain - at % self.grain).min(transfer.end - at).min(of_run);
                    let bytes = bytes.min(self.windows[key.1]);
                    (bytes > 0 && at + bytes <= transfer.available).then_some((nth, entry, at, bytes))
                });
                let Some((nth, entry, at, bytes)) = found else { break };
                let behind = self.on_channel(at + bytes, channel as u64);
                let free = self.free[channel].max(u128::from(now) * per_cycle);
                let end = self.begin(channel, entry, at, behind, bytes, free) + self.service(bytes);
                self.free[channel] = end;
                self.bytes += bytes;
                let there = end.div_ceil(per_cycle) as u64 + self.latency;
                let (key, transfer) = &mut self.transfers[entry];
                self.windows[key.1] -= bytes;
                self.under_way.push(Reverse((there, *key, channel, behind, bytes)));
                transfer.next[channel] = behind;
                if behind >= transfer.end {
                    self.waiting[channel].remove(nth);
                }
            }
            idle &= self.waiting[channel].is_empty() || self.free[channel] < until;
        }
        // A channel that could not go on waits for data or a request.
        self.woken = !idle;
    }
}

/// A number that looks random and follows from three others (the finalizer of `SplitMix64`).
fn scatter(a: u64, b: u64, c: u64) -> u64 {
    let mut x = a.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ b.wrapping_mul(0xd1b5_4a32_d192_ed03) ^ c.rotate_left(32);
    for multiplier in [0xbf58_476d_1ce4_e5b9_u64, 0x94d0_49bb_1331_11eb] {
        x = (x ^ (x >> 30)).wrapping_mul(multiplier);
    }
    x ^ (x >> 31)
}
