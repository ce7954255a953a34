//! Off-chip memory: each tier serves pieces of transfers, the most urgent first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::arch::{Chip, TierId};
use crate::index::Id;
use crate::units::Rate;

use super::clock::Clock;
use super::time::{TICKS_PER_CYCLE, Ticks, cycles};

/// Most bytes of one piece: requests of different streams take turns at this grain.
pub const PIECE_BYTES: u64 = 32 * 1024;

/// One transfer of a stream: a slot filled or drained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Transfer {
    /// The firing of the nest that needs it first: the order in which address generators were programmed.
    pub urgency: u64,
    /// Stream.
    pub stream: usize,
    /// Slot ordinal.
    pub slot: u64,
    /// Bytes moved, padding to whole bursts included.
    pub moved_bytes: u64,
}

/// A piece that was served.
#[derive(Debug, Clone, Copy)]
pub struct Served {
    /// Its transfer.
    pub transfer: Transfer,
    /// Whether it is the first of the transfer.
    pub first: bool,
    /// Whether it is the last.
    pub last: bool,
    /// When its last byte has arrived (reads) or is written.
    pub done_at: Ticks,
}

/// One memory tier.
#[derive(Debug)]
pub struct TierServer {
    rate: Rate,
    channels: u64,
    interleave_bytes: u64,
    latency: Ticks,
    waiting: BinaryHeap<Reverse<(Transfer, u64)>>,
    /// When the last piece given is through.
    pub free_at: Ticks,
    /// When the next service is scheduled.
    pub scheduled: Option<Ticks>,
    /// Ticks spent serving.
    pub busy: Ticks,
    /// When each stream's latest piece arrives.
    arrived: Vec<Ticks>,
}

impl TierServer {
    /// An idle tier that this many streams will use.
    pub fn new(chip: &Chip, tier: TierId, streams: usize) -> Self {
        let t = &chip.memory[tier];
        Self {
            rate: chip.tier_rate(tier),
            channels: t.channels,
            interleave_bytes: t.interleave_bytes,
            latency: cycles(chip.tier_latency_cycles(tier)),
            waiting: BinaryHeap::new(),
            free_at: 0,
            scheduled: None,
            busy: 0,
            arrived: vec![0; streams],
        }
    }

    /// All tiers of a chip, idle.
    pub fn all(chip: &Chip, streams: usize) -> Vec<Self> {
        (0..chip.memory.len()).map(|t| Self::new(chip, TierId::from_index(t), streams)).collect()
    }

    /// Queues a transfer.
    pub fn request(&mut self, transfer: Transfer) {
        self.waiting.push(Reverse((transfer, 0)));
    }

    /// Writes down all that the rest of a run depends on: urgencies relative to `urgency`, slots to `next` of their
    /// stream.
    pub fn write_state(&self, clock: Clock, urgency: u64, next: &dyn Fn(usize) -> u64, words: &mut Vec<u64>) {
        words.push(clock.relative(self.free_at));
        words.push(self.scheduled.map_or(0, |at| clock.relative(at) + 1));
        words.extend(self.arrived.iter().map(|&at| clock.relative(at)));
        let mut waiting: Vec<(Transfer, u64)> = self.waiting.iter().map(|&Reverse(waiting)| waiting).collect();
        waiting.sort_unstable();
        words.push(waiting.len() as u64);
        for (transfer, offset) in waiting {
            let Transfer { urgency: at, stream, slot, moved_bytes } = transfer;
            let slot = slot.wrapping_sub(next(stream));
            words.extend([at.wrapping_sub(urgency), stream as u64, slot, moved_bytes, offset]);
        }
    }

    /// Lets time pass, and the firings and slots of `step`: the state, seen from then, is the same.
    pub fn shift(&mut self, time: Ticks, urgency: u64, slots: &dyn Fn(usize) -> u64) {
        self.free_at += time;
        self.scheduled = self.scheduled.map(|at| at + time);
        self.arrived.iter_mut().for_each(|at| *at += time);
        let moved = |Reverse((transfer, offset)): Reverse<(Transfer, u64)>| {
            let later = transfer.slot + slots(transfer.stream);
            Reverse((Transfer { urgency: transfer.urgency + urgency, slot: later, ..transfer }, offset))
        };
        self.waiting = std::mem::take(&mut self.waiting).into_iter().map(moved).collect();
    }

    /// Whether anything waits.
    pub fn has_work(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Serves the most urgent piece at `now`.
    pub fn serve(&mut self, now: Ticks) -> Option<Served> {
        let Reverse((transfer, offset)) = self.waiting.pop()?;
        let bytes = (transfer.moved_bytes - offset).min(PIECE_BYTES);
        let last = offset + bytes >= transfer.moved_bytes;
        if !last {
            self.waiting.push(Reverse((transfer, offset + bytes)));
        }
        let service = self.rate.ticks(bytes, TICKS_PER_CYCLE);
        self.free_at = now + service;
        self.busy += service;
        // A piece shorter than a stripe over the channels comes at the rate of the channels it lies on.
        let on_one_channel = bytes.div_ceil(self.interleave_bytes * self.channels) * self.interleave_bytes;
        let slowest = self.rate.ticks(on_one_channel.min(bytes) * self.channels, TICKS_PER_CYCLE);
        // Pieces of a stream arrive in order.
        let arrived = &mut self.arrived[transfer.stream];
        let done_at = (now + service.max(slowest) + self.latency).max(*arrived + 1);
        *arrived = done_at;
        Some(Served { transfer, first: offset == 0, last, done_at })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Six channels in stripes of 1 KiB, at a byte a tick; an access takes 100 ticks.
    fn server() -> TierServer {
        TierServer {
            rate: Rate { bytes: TICKS_PER_CYCLE, cycles: 1 },
            channels: 6,
            interleave_bytes: 1024,
            latency: 100,
            waiting: BinaryHeap::new(),
            free_at: 0,
            scheduled: None,
            busy: 0,
            arrived: vec![0; 2],
        }
    }

    fn transfer(urgency: u64, moved_bytes: u64) -> Transfer {
        Transfer { urgency, stream: 0, slot: urgency, moved_bytes }
    }

    #[test]
    fn the_last_piece_does_not_overtake_the_first() {
        // The first 32 KiB lie on six channels in 5 1/3 stripes of 6 KiB: the fullest channel has six, and one that
        // gives a sixth of a byte a tick needs 6 x 6 KiB = 36,864 ticks for them. The last 12 B need 6 x 12 ticks, and
        // would be there long before.
        let mut tier = server();
        tier.request(transfer(0, 32 * 1024 + 12));
        let first = tier.serve(0).unwrap();
        assert!(first.first && !first.last);
        assert_eq!((first.done_at, tier.free_at), (36_864 + 100, 32_768));
        let last = tier.serve(tier.free_at).unwrap();
        assert!(!last.first && last.last && last.done_at > first.done_at);
        assert_eq!((tier.free_at, tier.has_work()), (32_768 + 12, false));
    }

    #[test]
    fn the_most_urgent_goes_first_and_work_adds_up() {
        let mut tier = server();
        tier.request(transfer(7, 64));
        tier.request(transfer(3, 6144));
        let served = tier.serve(0).unwrap();
        assert_eq!((served.transfer.urgency, served.done_at), (3, 6144 + 100));
        assert_eq!(tier.serve(tier.free_at).unwrap().transfer.urgency, 7);
        assert_eq!(tier.busy, 6144 + 64);
        assert!(tier.serve(tier.free_at).is_none());
    }
}
