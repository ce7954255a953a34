//! Search: which operators share a section, and how each section is mapped.

pub(super) mod branch_and_bound;
mod breakpoints;
pub(super) mod canonical;
pub(super) mod chosen;
pub(super) mod compact;
pub(super) mod context;
pub(super) mod decisions;
pub(super) mod epilogues;
mod evaluate;
pub(super) mod evaluated;
pub(super) mod exhaustive;
mod fits;
mod frontier;
mod ideal_network;
mod joined;
pub(super) mod least_room;
mod links;
pub(super) mod neighbours;
pub(super) mod partition;
pub(super) mod plan;
mod planned;
pub(super) mod runs;
mod sequence;
pub(super) mod space;
mod trace;
mod trend;
mod walk;
