//! Transfers, the parts of them that lie on one channel, and what a channel loses time by between parts.

use rdusim_cost::cost::Ticks;
use rdusim_program::StreamId;

/// One transfer of a stream: a slot filled or drained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Transfer {
    /// The firing of the nest that needs it first: the order in which address generators were programmed.
    pub urgency: u64,
    /// Stream.
    pub stream: StreamId,
    /// Slot ordinal.
    pub slot: u64,
    /// Bytes moved, padding to whole bursts included.
    pub moved_bytes: u64,
    /// Runs of consecutive addresses that they are stored in.
    pub runs: u64,
}

/// The part of a transfer that lies on one channel and is still to be served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Part {
    pub(super) transfer: Transfer,
    /// Its row in `TierServer::under_way`.
    pub(super) row: usize,
    pub(super) bytes: u64,
    /// Where it begins, in bytes of the stream on this channel.
    pub(super) from: u64,
    /// Bytes of each run of the transfer on a channel that has some of it.
    pub(super) run_bytes: u64,
    /// Of the run that it begins in, the bytes before it on this channel.
    pub(super) into_run: u64,
}

impl Part {
    /// Runs that begin within its first bytes, but for one at the beginning.
    pub(super) fn inner_runs(&self, bytes: u64) -> u64 {
        (self.into_run + bytes.saturating_sub(1)) / self.run_bytes
    }

    /// Its first bytes.
    pub(super) fn first(self, bytes: u64) -> Self {
        Self { bytes, ..self }
    }

    /// All but its first bytes.
    pub(super) fn behind(self, bytes: u64) -> Self {
        let into_run = (self.into_run + bytes) % self.run_bytes;
        Self { bytes: self.bytes - bytes, from: self.from + bytes, into_run, ..self }
    }
}

/// What a channel is doing: all of a part, or as much as it had begun when something more urgent came.
#[derive(Debug, Clone, Copy)]
pub(super) struct Service {
    pub(super) part: Part,
    pub(super) began: Ticks,
    /// What each run after the first adds.
    pub(super) run_ticks: Ticks,
}

/// What a channel has served lately, as far as it loses time by it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Recent {
    /// The stream that it has served last, and where on the channel that stream goes on.
    pub(super) last: Option<(StreamId, u64)>,
    /// Bytes written since it turned.
    pub(super) written: u64,
    /// Whether it has read since.
    pub(super) has_read: bool,
}

impl Recent {
    /// Whether a part goes on where the channel has served last.
    pub(super) fn goes_on(&self, part: &Part) -> bool {
        let is_within_run = part.transfer.runs == 1 || part.into_run > 0;
        self.last.is_none_or(|last| is_within_run && last == (part.transfer.stream, part.from))
    }

    /// Whether the channel turns to a part and back.
    pub(super) fn turns(&mut self, write_batch_bytes: u64, writes: bool) -> bool {
        if !writes {
            self.has_read = true;
            return false;
        }
        if self.written < write_batch_bytes {
            return false;
        }
        self.written %= write_batch_bytes;
        std::mem::take(&mut self.has_read)
    }
}
