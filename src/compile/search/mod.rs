//! Search: which operators share a section, and how each section is mapped.

pub mod branch_and_bound;
mod budget;
pub mod canonical;
pub mod compact;
pub mod context;
pub mod epilogues;
pub mod evaluate;
pub mod exhaustive;
mod fits;
pub mod low_effort;
pub mod neighbours;
pub mod nests;
mod order;
pub mod partition;
pub mod plan;
mod planned;
pub mod runs;
pub mod space;
