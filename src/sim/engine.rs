//! The state of the event engine, and its events.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::arch::Chip;
use crate::cost::{StageWork, StreamBytes, Ticks};
use crate::index::IndexVec;
use crate::program::{BufferId, ProcessGraph, Section, SectionGraph, StageId, StreamId, Tiling};

use super::actors::Actor;
use super::buffer::BufferState;
use super::memory::TierServer;
use super::network::Network;
use super::trace::Recorder;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// The first byte of a transfer arrives, or else the last has: stream, slot, first.
    Arrive(StreamId, u64, bool),
    /// Results of an actor begin to leave.
    Emit(usize),
    /// A stream's transfer may be queued, of a write because its first bytes have come: stream, slot.
    Issue(StreamId, u64),
    /// A channel of a memory tier is free.
    Serve(usize, usize),
    /// An actor starts its next firing.
    Start(usize),
}

/// One section being simulated.
pub(super) struct Engine<'a> {
    pub(super) chip: &'a Chip,
    pub(super) graph: SectionGraph<'a>,
    pub(super) section: &'a Section,
    pub(super) tiling: Tiling,
    pub(super) work: IndexVec<StageId, StageWork>,
    pub(super) actors: Vec<Actor>,
    pub(super) buffers: IndexVec<BufferId, BufferState>,
    /// Who fires, and what each firing needs.
    pub(super) processes: &'a ProcessGraph,
    pub(super) consumers: &'a IndexVec<BufferId, Vec<usize>>,
    pub(super) producers: &'a IndexVec<BufferId, Vec<usize>>,
    pub(super) stream_actor: &'a IndexVec<StreamId, usize>,
    /// Transfers under way of each stream: (slot, first arrival, when its flows are through).
    pub(super) filling: IndexVec<StreamId, Vec<(u64, Ticks, Ticks)>>,
    pub(super) streams: IndexVec<StreamId, StreamBytes>,
    pub(super) tiers: Vec<TierServer>,
    pub(super) network: Network<'a>,
    pub(super) queue: BinaryHeap<Reverse<(Ticks, Event)>>,
    pub(super) end: Ticks,
    pub(super) macs: u64,
    pub(super) executed_macs: u64,
    pub(super) simd_elements: IndexVec<StageId, u64>,
    pub(super) recorder: Option<Recorder>,
    /// The longest firing by itself: an event may look back so far.
    pub(super) longest: Ticks,
    /// Work of setting the section up: links and ports of all routes.
    pub(super) setup: u64,
}
