//! Compile: an operator graph becomes a [`Configuration`] of a chip.
//!
//! The passes, in order:
//!
//! 1. `program::tensor_tiers`: the memory tier of each tensor;
//! 2. `search::runs`, `search::canonical`: runs of operators that may share a section, isomorphic ones once;
//! 3. `search::plan` over `mapping`: the loop nests, tiles and unit allocations of each run, by estimate;
//! 4. `search::evaluate`: those of least estimate are run on an ideal network, and the fastest of them placed, routed
//!    (`physical`) and measured by the event engine, with their neighbours;
//! 5. `search::partition`: the cut of the graph into sections that takes least, by `search::sequence` with what prefetching gains of
//!    sections in a row;
//! 6. `prefetch`: weights that a section loads for the next one;
//! 7. `remarks`: what a user should know about the mapping;
//! 8. `seeds`: what less effort found competes with what was found; after the last effort, what slower modes found. Between chips of
//!    a study, `carried` does the same;
//! 9. `search::decisions`: why mappings were taken, and why others lost.
//!
//! Passes 2 to 8 run once for each effort up to the one that is asked for.
//!
//! A *run of operators* that may become a section is planned as *choices* (points of the space of its mappings, with an
//! estimate); a choice worked out in full is a *plan* (exact work tables and buffers); a plan with places is *placed*, and with
//! routes it is a [`Section`](rdusim_program::Section). A `SectionRun`, kept with its section in [`Compiled`], is what the event
//! engine counted when it ran one.
//!
//! A configuration that breaks a capacity cannot come out, because banks, ports and generators are taken from what is left.
//! In debug builds the verifier of programs ([`rdusim_program::verifier`]) says so after every pass that makes sections.

mod carried;
mod compiled;
mod legal;
mod logged;
mod mapping;
mod params;
mod passes;
mod physical;
mod prefetch;
mod recompile;
mod remarks;
mod retarget;
mod search;
mod seeds;
mod validate;
mod verified;

pub use carried::{carried, handed_on};
pub use compiled::Compiled;
pub use legal::legal;
pub use mapping::bases::BaseCache;
pub use passes::{
    compile, compile_measured, compile_traced, compile_until, compile_with, exhaust, simulate_measured, simulate_until,
};
pub use recompile::recompiled;
pub use retarget::{retargeted, retargeted_section};
pub use search::context::Effort;
pub use search::decisions::{Decisions, SectionDecisions};
pub use search::exhaustive::Exhausted;
pub use seeds::compare_fused_with_others;
pub use validate::{BufferDraft, Draft, StreamDraft, Validated};
