//! The schedule of a section as a cyclo-static dataflow graph whose processes walk affine loop nests.
//!
//! A [`Dataflow`] is a table of [`Loop`]s, *processes* (stages, loads, stores, copies) and *buffers*. Each process fires
//! once at each point of its own nest ([`Domain`]), in order. Each buffer is a sequence of slots, again the points of a
//! nest, of which `depth` exist at a time. An [`Access`] maps a firing to the slots it touches. From these three follow
//! four cumulative counts for each firing ([`ProcessGraph`]): slots that must be filled before it, slots free after it,
//! slots it begins and slots complete after it. They are all that an engine, a verifier or a scheduler has to ask.
//!
//! Invariants: processes fire in order; slots are begun, filled and freed in slot order; the result therefore does not
//! depend on the schedule (Kahn 1974), and one execution on counts decides whether the graph deadlocks.
//!
//! References: Bilsen, Engels, Lauwereins, Peperstraete, "Cyclo-static dataflow", IEEE Transactions on Signal Processing
//! 44(2), 1996 (cumulative production and consumption); Feautrier, "Dataflow analysis of array and scalar references",
//! International Journal of Parallel Programming 20(1), 1991 (iteration domains and affine access relations).
//!
//! The module knows no chip, no search and no engine. `docs/program.md` explains it with five sections written out.

mod access;
pub mod check;
mod counts;
mod credits;
mod domain;
mod graph;
mod ids;
mod interpret;
mod loops;
mod memory;
mod nests;
mod process_graph;
mod series;
mod streams;
#[cfg(test)]
mod tests;

pub use access::{Access, AccessError, Along};
pub use check::{Check, Violation, check};
pub use credits::{Blocked, Credits, Wait};
pub use domain::{Domain, DomainError, MAX_DEPTH, Point};
pub use graph::{Buffer, Carried, Dataflow, IterationClasses, Port, Process, ProcessKind};
pub use ids::{BufferId, LoopId, ProcessId};
pub use interpret::{Fault, Firing, Kernel, Outputs, Run, Schedule, Tile, interpret};
pub use loops::{Affine, Axis, Bound, Loop};
pub use memory::{Memories, Memory};
pub use nests::{BlockLoops, BlockNest, Order};
pub use process_graph::{GraphError, Period, PortRef, ProcessGraph};
pub use streams::{Coverage, Dim, Source, Stream, StreamBase};
