//! Search: which operators share a section, and how each section is mapped.

pub(super) mod branch_and_bound;
mod breakpoints;
pub(super) mod canonical;
pub(super) mod chosen;
pub(super) mod compact;
pub(super) mod context;
pub(super) mod epilogues;
pub(super) mod evaluate;
pub(super) mod exhaustive;
mod fits;
mod joined;
mod links;
pub(super) mod neighbours;
pub(super) mod partition;
pub(super) mod plan;
mod planned;
pub(super) mod runs;
mod sequence;
pub(super) mod space;
mod walk;
