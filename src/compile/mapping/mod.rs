//! Mapping: how the stages of one section lie on units in a given loop nest, and what that costs.

pub mod allocate;
pub mod balance;
pub mod base;
pub mod bases;
pub mod buffers;
pub mod candidates;
pub mod estimate;
pub mod front;
pub mod heads;
pub mod pipeline;
pub mod plan;
pub mod residency;
pub mod resolve;
pub mod roles;
pub mod row_reduction;
pub mod simd;
pub mod stage_context;
pub mod streams;
