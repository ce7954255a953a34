//! Serving on many chips: prefill and decode of a batch, and requests that come and go.
//!
//! A pass of a stage is the chip's own simulation of its part of the model; collectives and transfers come from the links'
//! model as in training. `docs/serving.md` has the rules.

mod chip;
mod grid;
mod memory;
mod phases;
mod requests;
mod schedule;
mod served;
mod service;
mod stream;

pub use grid::{Cost, Grid, Range};
pub use memory::{ServingMemory, TierUse, memory, serving_remedies};
pub use phases::{ServedPhase, Server, ServingTime};
pub use requests::{Arrivals, Request, drawn, read_trace};
pub use schedule::{Answer, Limits, Replayed, Sample, replay};
pub use served::{Served, serve};
pub use service::{Load, Parameters, Service};
pub use stream::{Policy, Spread, Streamed, stream};
