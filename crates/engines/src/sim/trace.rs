//! A timeline of a run: when every actor worked, for as long as the run did not repeat itself.

use rdusim_cost::cost::{Ticks, to_cycles};

/// Spans of one section that are kept.
pub const MOST_SPANS: usize = 20_000;

/// What an actor does in a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    /// It works, or moves a slot.
    Works,
    /// It waits for its inputs.
    Starved,
    /// It waits for room in its outputs.
    Stalled,
}

/// One piece of work on a track, or the wait before it, in cycles from the section's first request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Index into [`SectionTrace::tracks`].
    pub track: usize,
    /// What it is.
    pub kind: SpanKind,
    /// Firing or slot of the actor.
    pub number: u64,
    /// Bytes from or to memory, of a stream's slot.
    pub bytes: u64,
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

/// An actor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Track {
    /// What it is called.
    pub name: String,
    /// What its spans are called: the operator, or the tensor that is moved.
    pub label: String,
    /// PCUs that work together in it.
    pub pcus: u64,
    /// Memory tier of a stream.
    pub tier: Option<String>,
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
    /// Scratchpad bytes that it holds, behind its launch.
    pub sram_bytes: u64,
    /// The actors.
    pub tracks: Vec<Track>,
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
    /// Spans of work, of which at most [`MOST_SPANS`] are kept.
    works: usize,
    pub(super) repeats: Vec<Repeat>,
    pub(super) is_cut: bool,
}

impl Recorder {
    /// An actor works from `start` to `end`, and moves some bytes from or to memory.
    pub(super) fn span(&mut self, track: usize, number: u64, start: Ticks, end: Ticks, bytes: u64) {
        if self.works == MOST_SPANS {
            self.is_cut = true;
            return;
        }
        self.works += 1;
        self.spans.push(Span {
            track,
            kind: SpanKind::Works,
            number,
            bytes,
            start_cycle: to_cycles(start),
            end_cycle: to_cycles(end),
        });
    }

    /// An actor waits from `start` to `ready` for its inputs, and then to `begin` for room.
    pub(super) fn wait(&mut self, track: usize, number: u64, [start, ready, begin]: [Ticks; 3]) {
        for (kind, from, to) in [(SpanKind::Starved, start, ready), (SpanKind::Stalled, ready, begin)] {
            let (start_cycle, end_cycle) = (to_cycles(from), to_cycles(to));
            if end_cycle > start_cycle && self.works < MOST_SPANS {
                self.spans.push(Span { track, kind, number, bytes: 0, start_cycle, end_cycle });
            }
        }
    }

    /// The time from `start` to `end` is skipped.
    pub(super) fn repeat(&mut self, times: u64, start: Ticks, end: Ticks) {
        self.repeats.push(Repeat { times, start_cycle: to_cycles(start), end_cycle: to_cycles(end) });
    }
}
