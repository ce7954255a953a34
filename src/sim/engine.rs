//! The state of the event engine, and its events.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::arch::Chip;
use crate::cost::{StageWork, StreamBytes, Ticks};
use crate::program::{ProcessGraph, Section, SectionGraph, Tiling};

use super::actors::Actor;
use super::buffer::BufferState;
use super::fifo::InputFifo;
use super::memory::TierServer;
use super::network::Network;
use super::trace::Recorder;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// The first byte of a transfer arrives, or else the last has: stream, slot, first.
    Arrive(usize, u64, bool),
    /// Results of an actor begin to leave.
    Emit(usize),
    /// A stream's transfer may be queued: stream, slot.
    Issue(usize, u64),
    /// A channel of a memory tier is free.
    Serve(usize, usize),
    /// An actor starts its next firing.
    Start(usize),
}

/// One section being simulated.
pub struct Engine<'a> {
    pub(super) chip: &'a Chip,
    pub(super) graph: SectionGraph<'a>,
    pub(super) section: &'a Section,
    pub(super) tiling: Tiling,
    pub(super) work: Vec<StageWork>,
    pub(super) actors: Vec<Actor>,
    pub(super) buffers: Vec<BufferState>,
    /// Who fires, and what each firing needs.
    pub(super) processes: &'a ProcessGraph,
    pub(super) consumers: &'a [Vec<usize>],
    pub(super) producers: &'a [Vec<usize>],
    pub(super) stream_actor: &'a [usize],
    /// Who sends each volley.
    pub(super) volley_actor: Vec<usize>,
    /// Transfers under way of each stream: (slot, first arrival, when its flows are through).
    pub(super) filling: Vec<Vec<(u64, Ticks, Ticks)>>,
    pub(super) streams: Vec<StreamBytes>,
    pub(super) tiers: Vec<TierServer>,
    pub(super) network: Network<'a>,
    pub(super) input_fifo: InputFifo,
    pub(super) queue: BinaryHeap<Reverse<(Ticks, Event)>>,
    pub(super) end: Ticks,
    pub(super) macs: u64,
    pub(super) simd_elements: Vec<u64>,
    pub(super) recorder: Option<Recorder>,
    /// The longest firing by itself: an event may look back so far.
    pub(super) longest: Ticks,
}
