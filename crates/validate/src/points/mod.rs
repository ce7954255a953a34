//! Measured serving points (time to first token, time a token of a closed loop of users) beside the simulation.
//!
//! Rows that differ in lengths and users alone share one grid of step times, which is simulated once; each row is then a replay of
//! its closed loop on it. What is done is kept in a journal, so that a run that was stopped goes on.

mod formats;
mod journal;
mod plan;
mod report;
mod row;
mod run;
mod simulated;

pub use plan::Sources;
pub use run::{Points, Progress};

/// Whether a file has rows of measured serving points.
pub fn is_of_points(text: &str) -> bool {
    let header = super::data::header_of(text);
    row::TELLING.iter().all(|column| header.contains(column))
}
