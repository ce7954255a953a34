//! Mapping: how the stages of one section lie on units in a given loop nest, and what that costs.

pub(super) mod allocate;
pub(super) mod balance;
pub(super) mod base;
pub(super) mod bases;
pub(super) mod buffers;
pub(super) mod candidates;
pub(super) mod estimate;
pub(super) mod front;
pub(super) mod heads;
mod link_load;
pub(super) mod pipeline;
pub(super) mod plan;
pub(super) mod residency;
pub(super) mod resolve;
pub(super) mod roles;
pub(super) mod row_reduction;
pub(super) mod simd;
pub(super) mod stage_context;
pub(super) mod streams;
