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
//! | [`Check::Streams`] | a stream's tensor has the lengths of the loops that walk it; each pass moves every byte once (of a stream in parts: none twice, and all passes every byte); a store's repetitions do not overlap |
//! | [`Check::Depth`] | a buffer holds the slots that one firing keeps at a time |
//! | [`Check::Deadlock`] | execution on counts reaches the end |
//!
//! Coverage, streams and depth are checked on processes of at most [`LISTED_FIRINGS`] firings and buffers of as many
//! slots, deadlock by the first [`EXECUTED_FIRINGS`] firings of the section; beyond these the structural checks alone
//! speak. The later checks need a process graph and are left out if one of the first four fails.

mod schedule;
mod stream;
mod structure;
mod violation;

pub use violation::{Check, EXECUTED_FIRINGS, LISTED_FIRINGS, Violation};

use violation::Violations;

use super::graph::Dataflow;
use super::process_graph::ProcessGraph;

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
