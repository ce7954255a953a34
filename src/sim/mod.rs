//! Simulation: a [`Configuration`] on a chip becomes an [`Outcome`].
//!
//! Three fidelities run the same configuration: `bound` in closed form, `event` in time order, and `cycle` (a module of its
//! own) unit by unit. None decides anything about the mapping.

#![cfg_attr(not(test), warn(clippy::cast_possible_truncation))]

mod account;
mod actors;
mod buffer;
mod clock;
mod credit_limits;
mod deadline;
mod deadlock;
mod engine;
mod event;
mod firing_rule;
mod hops;
mod memory;
mod merging;
mod network;
mod off_chip;
mod reference;
mod ring;
mod run;
mod state;
mod steady;
mod steps;
mod stores;
mod trace;

pub use event::MOST_EVENTS;
pub use reference::check_size;
pub use ring::Ring;
pub use run::{
    Measurement, measure, run_section, simulate, simulate_known, simulate_unskipped, simulate_within, trace,
};
pub use trace::{MOST_SPANS, Repeat, SectionTrace, Span};
