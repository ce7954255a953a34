//! What a check of the verifier says: the place, the fault, and what was expected.

/// What a fault is about. Indices are into the lists of the section: stages, buffers, streams, flows.
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
    Stage(usize),
    /// Mapping of a stage.
    Mapping(usize),
    /// The list of a stage's PCUs.
    Pcus(usize),
    /// A PCU of a stage.
    Pcu(usize, usize),
    /// The list of buffers.
    Buffers,
    /// A buffer.
    Buffer(usize),
    /// Slots of a buffer.
    Depth(usize),
    /// Bytes of a buffer's slot.
    SlotBytes(usize),
    /// Pieces of a buffer.
    Pieces(usize),
    /// A part of a piece of a buffer.
    Part(usize, usize, usize),
    /// The list of streams.
    Streams,
    /// A stream.
    Stream(usize),
    /// A generator of a stream.
    Generator(usize, usize),
    /// A route.
    Route(usize),
    /// A link of a route.
    Link(usize, usize),
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
