//! Simulation: a [`Configuration`] on a chip becomes an [`Outcome`].
//!
//! Three fidelities run the same configuration: `bound` in closed form, `event` in time order, and `cycle` (a module of its
//! own) unit by unit. None decides anything about the mapping.
//!
//! To read the event engine: `run` (sections one after another), `actors` (who fires, from the process graph), `engine` (the
//! state, and what each kind of event means), `event` (the loop over events), `firing` (a firing of a lockstep group), `off_chip` and
//! `stores` (slots on their way from and to memory). They ask two servers how long a transfer takes: `network` (links and
//! ports) and `memory` (channels). `steady` skips what repeats; `account` turns counts into what is reported.

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
mod feeding;
mod firing;
mod firing_rule;
mod hops;
mod logged;
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
mod taken;
mod trace;

pub use event::MOST_EVENTS;
pub use reference::check_size;
pub use ring::Ring;
pub use run::{
    Measurement, cycles_known, measure, run_section, simulate, simulate_known, simulate_unskipped, simulate_within,
    trace,
};
pub use trace::{MOST_SPANS, Repeat, SectionTrace, Span, SpanKind, Track};
