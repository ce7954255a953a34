//! A timeline of a run: when every actor worked, for as long as the run did not repeat itself.

use crate::cost::{Ticks, to_cycles};

/// Spans of one section that are kept.
pub const MOST_SPANS: usize = 20_000;

/// One piece of work on a track, in cycles from the section's first request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Index into [`SectionTrace::tracks`].
    pub track: usize,
    /// Firing or slot of the actor.
    pub number: u64,
    /// Begin.
    pub start_cycle: u64,
    /// End.
    pub end_cycle: u64,
}

/// Periods that were skipped, because they were like the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Repeat {
    /// Begin of the first that was skipped.
    pub start_cycle: u64,
    /// End of the last.
    pub end_cycle: u64,
    /// How many.
    pub times: u64,
}

/// The timeline of one section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SectionTrace {
    /// Name of the section.
    pub name: String,
    /// Cycle of the run at which it begins: its launch.
    pub start_cycle: u64,
    /// Cycles of the launch; spans count from behind it.
    pub launch_cycles: u64,
    /// Cycles, launch included.
    pub cycles: u64,
    /// What each actor is called.
    pub tracks: Vec<String>,
    /// What actors did, in the order it was simulated.
    pub spans: Vec<Span>,
    /// What was skipped.
    pub repeats: Vec<Repeat>,
    /// Whether there was more than [`MOST_SPANS`].
    pub is_cut: bool,
}

/// Takes down what an engine does.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    pub(super) spans: Vec<Span>,
    pub(super) repeats: Vec<Repeat>,
    pub(super) is_cut: bool,
}

impl Recorder {
    /// An actor works from `start` to `end`.
    pub(super) fn span(&mut self, track: usize, number: u64, start: Ticks, end: Ticks) {
        if self.spans.len() == MOST_SPANS {
            self.is_cut = true;
            return;
        }
        self.spans.push(Span { track, number, start_cycle: to_cycles(start), end_cycle: to_cycles(end) });
    }

    /// The time from `start` to `end` is skipped.
    pub(super) fn repeat(&mut self, times: u64, start: Ticks, end: Ticks) {
        self.repeats.push(Repeat { times, start_cycle: to_cycles(start), end_cycle: to_cycles(end) });
    }
}
