//! What users see of results: tables, JSON, CSV, charts and the page ([`report`]), and a configuration with names and
//! coordinates ([`map`]).
//!
//! It sees outcomes, maps and verdicts, and never the compiler.

pub mod map;
pub mod report;
