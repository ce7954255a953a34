//! What a check of the verifier says: the place, the fault, and what was expected.

use crate::ids::{BufferId, FlowId, StageId, StreamId};

/// What a fault is about. Numbers behind an id are places in the lists of what it names: PCUs of a stage, pieces of a
/// buffer and parts of a piece, generators of a stream, links of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The section as a whole.
    Section,
    /// Rows of a row tile.
    TileRows,
    /// Row tiles of a row block.
    BlockTiles,
    /// Size of a column tile of the cut axis.
    Width,
    /// The nest as a whole.
    Nest,
    /// A stage as a whole.
    Stage(StageId),
    /// Mapping of a stage.
    Mapping(StageId),
    /// The list of a stage's PCUs.
    Pcus(StageId),
    /// A PCU of a stage.
    Pcu(StageId, usize),
    /// The list of buffers.
    Buffers,
    /// A buffer.
    Buffer(BufferId),
    /// Slots of a buffer.
    Depth(BufferId),
    /// Bytes of a buffer's slot.
    SlotBytes(BufferId),
    /// Pieces of a buffer.
    Pieces(BufferId),
    /// A part of a piece of a buffer.
    Part(BufferId, usize, usize),
    /// The list of streams.
    Streams,
    /// A stream.
    Stream(StreamId),
    /// A generator of a stream.
    Generator(StreamId, usize),
    /// A route.
    Route(FlowId),
    /// A link of a route.
    Link(FlowId, usize),
}

/// Something that a program cannot be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Where.
    pub place: Place,
    /// What is wrong.
    pub title: String,
    /// What was expected there.
    pub expected: String,
}

impl Fault {
    /// A fault at a place.
    pub fn new(place: Place, title: impl Into<String>, expected: impl Into<String>) -> Self {
        Self { place, title: title.into(), expected: expected.into() }
    }
}

/// A check that a program fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Name of the check, as the verifier lists it.
    pub check: &'static str,
    /// Section it fails in; empty for a check over all sections.
    pub section: String,
    /// What it found.
    pub fault: Fault,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Fault { place, title, expected } = &self.fault;
        write!(f, "check `{}`, section `{}`, {place:?}: {title}; {expected}", self.check, self.section)
    }
}
