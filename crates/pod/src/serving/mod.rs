//! Serving on many chips: prefill and decode of a batch, and requests that come and go.
//!
//! A pass of a stage is the chip's own simulation of its part of the model; collectives and transfers come from the links'
//! model as in training. `docs/serving.md` has the rules.

mod alone;
mod chip;
mod divided;
mod experts;
mod fleet;
mod grid;
mod kinds;
mod layered;
mod library;
mod memory;
mod mixed;
mod phases;
mod points;
mod policy;
mod ranks;
mod requests;
mod rounds;
mod schedule;
mod served;
mod service;
mod speculation;
mod stored;
mod stream;
mod targets;
mod time;
mod trace;
mod work;

pub use chip::check_served;
pub use divided::{Divided, Transfer, WorkerPool, divided};
pub use fleet::{Division, Fleet, FleetAsked, FleetObjective, FleetSearch, Operated, fleet, most_users};
pub use grid::{Grid, Range};
pub use memory::{ServingMemory, TierUse, memory, serving_remedies};
pub use mixed::{Chunk, Mixed};
pub use phases::Server;
pub use policy::{PREFILL_TOKENS, Policy};
pub use ranks::ExpertRanks;
pub use requests::{Arrivals, LoopRequests, Request, drawn};
pub use rounds::Round;
pub use schedule::{Answer, Drafted, Limits, Replayed, Sample, replay};
pub use served::{Served, serve};
pub use service::{Load, Parameters, RequestSize, ServedBlocks, Service};
pub use speculation::{MOST_DRAFTED, Speculation};
pub use stream::{DraftUse, Spread, Streamed, stream};
pub use targets::{Price, Statistic, Target, Targets};
pub use time::{Cost, ServedPhase, ServingTime, StepParts};
pub use trace::{Trace, read_trace};
