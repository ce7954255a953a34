//! What a check reports, and how much is listed one by one.

use std::fmt;

/// Most firings of a process, and most slots of a buffer, that are listed one by one. A quarter of a million take tens
/// of milliseconds; the sections of a search have a tenth of that.
pub const LISTED_FIRINGS: u64 = 1 << 18;

/// Most firings of an execution on counts; four million take about a second.
pub const EXECUTED_FIRINGS: u64 = 1 << 22;

/// What is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Check {
    /// Tiles and bounds of loops.
    Loops,
    /// Nests of processes and buffers.
    Nests,
    /// Producers and consumers.
    Ports,
    /// Slots by firing.
    Access,
    /// Every slot written and read.
    Coverage,
    /// Tensors between repetitions.
    Carried,
    /// Off-chip streams.
    Streams,
    /// Slots of a buffer.
    Depth,
    /// Execution to the end.
    Deadlock,
}

/// Something that does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The check.
    pub check: Check,
    /// Loop, process or buffer.
    pub place: String,
    /// What is there.
    pub found: String,
    /// What must be.
    pub expected: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}: found {}, expected {}", self.check, self.place, self.found, self.expected)
    }
}

/// Violations found so far.
#[derive(Debug, Default)]
pub(super) struct Violations {
    pub(super) list: Vec<Violation>,
}

impl Violations {
    pub(super) fn add(&mut self, check: Check, place: &str, found: impl fmt::Display, expected: impl fmt::Display) {
        let (place, found, expected) = (place.to_owned(), found.to_string(), expected.to_string());
        self.list.push(Violation { check, place, found, expected });
    }
}
