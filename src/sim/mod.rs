//! Simulation: a [`Configuration`] on a chip becomes an [`Outcome`].
//!
//! Three fidelities walk the same configuration: `bound` in closed form, `event` in time order, and `cycle` (which stands
//! in a room of its own) unit by unit. None has its own idea of the mapping.

mod account;
mod actors;
mod apart;
mod buffer;
mod clock;
mod contention;
mod deadlock;
mod engine;
mod event;
mod fifo;
mod late;
mod memory;
mod network;
mod peaks;
mod ready;
mod reference;
mod ring;
mod run;
mod sharing;
mod state;
mod steady;
mod steps;
mod trace;
mod transfer_group;

pub use event::MOST_EVENTS;
pub use reference::check_size;
pub use ring::Ring;
pub use run::{Measurement, measure, run_section, simulate, simulate_known, simulate_unskipped, trace};
pub use trace::{MOST_SPANS, Repeat, SectionTrace, Span};
