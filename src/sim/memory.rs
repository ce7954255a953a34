//! Off-chip memory: each tier serves pieces of transfers, the most urgent first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::arch::{Chip, TierId};
use crate::index::Id;
use crate::units::Rate;

use super::time::{TICKS_PER_CYCLE, Ticks, cycles};

/// Most bytes of one piece: requests of different streams take turns at this grain.
const PIECE_BYTES: u64 = 32 * 1024;

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
    /// Whether a service is already scheduled.
    pub scheduled: bool,
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
            scheduled: false,
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
