//! Verifier of a dataflow. It checks, in this order:
//!
//! | check | what holds |
//! | --- | --- |
//! | [`Check::Loops`] | every tile has an element; a bound refers to an outer loop of every nest the loop stands in; a table has a range for each iteration of that loop |
//! | [`Check::Nests`] | at most [`super::MAX_DEPTH`] loops, none twice; `Repeat` loops are full and outermost; no axis is walked twice: an inner loop of the same axis walks exactly the tile of the outer one; two processes joined by a buffer have their common loops in the same order |
//! | [`Check::Ports`] | every buffer has a consumer and as many producers as parts; a load only writes, a store only reads one buffer, a copy reads one and writes |
//! | [`Check::Access`] | every rule names loops of its process and of its buffer, of equal axes; a write has the slot of its own iteration, or all: no window, so that no two firings write a slot but those that accumulate in it |
//! | [`Check::Coverage`] | every producer contributes to every slot, and every slot is read: each tile is computed once and none for nothing |
//! | [`Check::Carried`] | a tensor carried between repetitions has the declared distance, at least 1 and less than the repetitions; its initial slots are those of the first repetitions; every port that reads an earlier repetition is declared |
//! | [`Check::Streams`] | a stream's tensor has the extents of the loops that walk it; each pass moves every byte once (of a stream in parts: none twice, and all passes every byte); a store's repetitions do not overlap |
//! | [`Check::Depth`] | a buffer holds the slots that one firing keeps at a time |
//! | [`Check::Deadlock`] | execution on counts reaches the end |
//!
//! Coverage, streams and depth are checked on processes of at most [`LISTED_FIRINGS`] firings and buffers of as many
//! slots, deadlock by the first [`EXECUTED_FIRINGS`] firings of the section; beyond these the structural checks alone
//! speak. The later checks need a process graph and are left out if one of the first four fails.

mod schedule;
mod stream;
mod structure;

use std::fmt;

use super::graph::Dataflow;
use super::process_graph::ProcessGraph;

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
struct Violations {
    list: Vec<Violation>,
}

impl Violations {
    fn add(&mut self, check: Check, place: &str, found: impl fmt::Display, expected: impl fmt::Display) {
        let (place, found, expected) = (place.to_owned(), found.to_string(), expected.to_string());
        self.list.push(Violation { check, place, found, expected });
    }
}

/// All violations of a dataflow; none if it is correct.
pub fn check(dataflow: &Dataflow) -> Vec<Violation> {
    let mut violations = Violations::default();
    structure::check(dataflow, &mut violations);
    if !violations.list.is_empty() {
        return violations.list;
    }
    match ProcessGraph::new(dataflow) {
        Ok(graph) => {
            schedule::coverage(dataflow, &graph, &mut violations);
            schedule::carried(dataflow, &mut violations);
            stream::check(dataflow, &graph, &mut violations);
            schedule::depth(dataflow, &graph, &mut violations);
            schedule::deadlock(dataflow, &graph, &mut violations);
        }
        Err(error) => violations.add(Check::Nests, "dataflow", error, "a process graph"),
    }
    violations.list
}
