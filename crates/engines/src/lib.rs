//! Engines that run on shared resources: the event engine of a chip ([`sim`]) and max-min fair sharing over time ([`fluid`]),
//! which solves the links of pods.
//!
//! An engine decides nothing about a mapping, and simulated time is an integer.

pub mod fluid;
pub mod sim;
