//! Physical: a section's units, buffers and streams get places, and its flows get routes.

pub(super) mod anneal;
pub(super) mod assemble;
mod exchange;
pub(super) mod flows;
pub(super) mod generators;
pub(super) mod place;
pub(super) mod placed;
pub(super) mod route;
mod straight;
pub(super) mod unrouted;
