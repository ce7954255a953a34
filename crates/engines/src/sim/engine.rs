//! The state of the event engine, and its events.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rdusim_base::index::IndexVec;
use rdusim_cost::cost::{StageWork, StreamBytes, Ticks};
use rdusim_graph::arch::Chip;
use rdusim_program::{BufferId, ProcessGraph, Section, SectionGraph, StageId, StreamId, Tiling};

use super::actors::Actor;
use super::buffer::BufferState;
use super::memory::TierServer;
use super::network::Network;
use super::trace::Recorder;

/// What happens at a tick. Events of one tick are handled in the order of the variants, then of their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// Bytes of a slot leave the address generators (loads) or are written (stores), the first if the flag is set, else the
    /// last: stream, slot, first. The last of a load fill the slot, and the last of a store release it.
    Arrive(StreamId, u64, bool),
    /// The first output tile of a lockstep group's firing is done: its results, or its partial sums, begin to leave.
    Emit(usize),
    /// A slot is requested of its memory tier: of a load because it has room, of a store because its first bytes have come.
    Issue(StreamId, u64),
    /// A channel of a memory tier is free for the most urgent of what waits: tier, channel.
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
    /// Slots of each stream that are under way: (slot, when its transfer began, when its flits have passed the network).
    pub(super) filling: IndexVec<StreamId, Vec<(u64, Ticks, Ticks)>>,
    pub(super) streams: IndexVec<StreamId, StreamBytes>,
    pub(super) tiers: Vec<TierServer>,
    pub(super) network: Network<'a>,
    pub(super) queue: BinaryHeap<Reverse<(Ticks, Event)>>,
    /// The latest time of all so far, at which the section ends if nothing comes later.
    pub(super) end: Ticks,
    pub(super) macs: u64,
    pub(super) executed_macs: u64,
    pub(super) expanded_elements: u64,
    pub(super) simd_elements: IndexVec<StageId, u64>,
    pub(super) recorder: Option<Recorder>,
    /// The longest firing by itself: an event may look back so far.
    pub(super) longest: Ticks,
    /// Steps that setting the section up has taken, in the unit of [`rdusim_cost::cost::Limits::work`]: links and ports of all routes.
    pub(super) setup: u64,
}
