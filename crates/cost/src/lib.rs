//! Arithmetic that the search and the event engine share ([`cost`]), floors of sections over boxes of loop nests ([`bound`]),
//! and certificates of what no mapping beats ([`proof`]).
//!
//! No compiler and no engine stands below it, so that a bound is never derived from what it bounds.

pub mod bound;
pub mod cost;
pub mod proof;
