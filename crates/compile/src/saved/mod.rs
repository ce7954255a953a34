//! Configurations as text that a person can read, edit and run again: names and coordinates in place of ids.
//!
//! `docs/configuration-format.md` describes the file. Writing and reading give the same configuration, byte for byte
//! in every result; what an edit breaks is refused with its place.

mod names;
mod read;
mod spec;
mod write;

pub use read::{load, parse};
pub use write::to_toml;

/// Version of the file's shape.
const SCHEMA: u64 = 1;
