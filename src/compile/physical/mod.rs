//! Physical: a section's units, buffers and streams get places, and its flows get routes.

pub mod anneal;
pub mod assemble;
pub mod flows;
pub mod generators;
pub mod place;
pub mod placed;
pub mod route;
mod straight;
pub mod unrouted;
