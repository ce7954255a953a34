//! What a compiled program is: the contract between the compiler, which writes it, and the engines, which run it.
//!
//! [`dataflow`] holds a section's schedule: which process fires when, and which buffer slots a firing needs, fills and
//! frees.

pub mod dataflow;
