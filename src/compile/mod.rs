//! Compile: an operator graph becomes a [`Configuration`] of a chip.
mod allocate;
mod buffers;
mod candidates;
mod estimate;
mod mapping;
mod nest;
mod plan;
mod section_graph;
/// stub
pub struct Configuration;
