//! What one section did, in raw counts: the result of every fidelity.

use super::stop::Stop;
use super::usage::Usage;
use rdusim_base::index::IndexVec;
use rdusim_program::{StageId, StreamId};

/// Bytes an off-chip stream moved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StreamBytes {
    /// Payload.
    pub payload: u64,
    /// Moved beyond the payload.
    pub waste: u64,
}

/// Time that a lockstep group did not work though it had firings to do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Waits {
    /// Cycles it waited for its inputs.
    pub starved_cycles: u64,
    /// Cycles it waited for room in its outputs, or for results to leave.
    pub stalled_cycles: u64,
}

/// A period that a run has skipped: what happened from one iteration of a loop to another happened again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SkippedPeriod {
    /// The loop, by its position in the walk of all firings.
    pub level: usize,
    /// The iteration at which the run met a state that it had met before.
    pub from: u64,
    /// The iteration from which it went on.
    pub to: u64,
    /// Iterations of the period.
    pub iterations: u64,
    /// Cycles that were skipped.
    pub cycles: u64,
}

/// The periods that a run has skipped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SkippedPeriods {
    /// The first [`SkippedPeriods::MOST_KEPT`] of them.
    pub first: Vec<SkippedPeriod>,
    /// How many there were.
    pub count: u64,
    /// Cycles of all of them.
    pub cycles: u64,
}

impl SkippedPeriods {
    /// Periods that are kept one by one: nests skip one for each iteration of an outer loop.
    pub const MOST_KEPT: usize = 4;

    /// Adds a period.
    pub fn push(&mut self, period: SkippedPeriod) {
        self.count += 1;
        self.cycles += period.cycles;
        if self.first.len() < Self::MOST_KEPT {
            self.first.push(period);
        }
    }
}

/// What one section did, launch excluded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SectionRun {
    /// Why it ended: `None` if drained.
    pub stopped: Option<Stopped>,
    /// Cycles from the first request to the last byte.
    pub cycles: u64,
    /// Cycles each lockstep group of each stage worked.
    pub busy_cycles: IndexVec<StageId, Vec<u64>>,
    /// What they waited for; empty where no time passed.
    pub waits: IndexVec<StageId, Vec<Waits>>,
    /// MACs on stored elements.
    pub macs: u64,
    /// All MACs, also on elements that are not stored.
    pub executed_macs: u64,
    /// Elements of packed second operands expanded on their way to PCUs.
    pub expanded_elements: u64,
    /// Element operations of SIMD stages and tails, by stage.
    pub simd_elements: IndexVec<StageId, u64>,
    /// Bytes of each stream.
    pub streams: IndexVec<StreamId, StreamBytes>,
    /// Busy cycles of each tier.
    pub tier_busy_cycles: Vec<u64>,
    /// Least cycles of the stream that the accesses under way of its address generators hold up longest.
    pub window_cycles: u64,
    /// What went over links and ports.
    pub usage: Usage,
    /// Events that were simulated one by one: fewer than happened, where periods were skipped.
    pub events: u64,
    /// What simulating them has cost the host, in the unit of [`Limits::work`].
    pub work: u64,
    /// Periods that were skipped.
    pub skipped: SkippedPeriods,
}

/// Why a section did not drain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stopped {
    /// Nothing could go on; one line per blocked actor.
    Deadlock(Vec<String>),
    /// Too many events, or too much work.
    Events,
    /// Too many cycles.
    Cycles,
}

/// When a run is ended before it has drained.
#[derive(Debug, Clone, Copy)]
pub struct Limits<'a> {
    /// Events it may take.
    pub events: u64,
    /// Cycles it may take, launch excluded.
    pub cycles: u64,
    /// Work that it may cost the host: steps of the engine, each about as long as serving one transfer at one resource for
    /// one interval. Counted, not timed, so that where a run ends is a function of its inputs. With a limit of work, a run also
    /// ends where its rate would lead it far beyond its cycles.
    pub work: u64,
    /// Whether what repeats exactly is skipped: the result is the same, sooner.
    pub skip: bool,
    /// Who may stop it from outside.
    pub stop: Stop<'a>,
}
