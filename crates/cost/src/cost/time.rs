//! Simulated time: whole ticks, a fixed number to a cycle, so that memory rates that are no whole number of cycles
//! round up by little and sums never depend on their order.

/// A time or a duration in ticks.
pub type Ticks = u64;

/// A duration in cycles. A type of its own where engines take cycles from [`StageWork`](super::StageWork), so that none is
/// added to a time in ticks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cycles(pub u64);

impl Cycles {
    /// The same duration in ticks.
    #[inline]
    pub const fn ticks(self) -> Ticks {
        cycles(self.0)
    }
}

/// Ticks of one cycle.
pub const TICKS_PER_CYCLE: u64 = 64;

/// Ticks of a number of cycles.
pub const fn cycles(cycles: u64) -> Ticks {
    cycles * TICKS_PER_CYCLE
}

/// Cycles that a time takes, rounded up.
pub const fn to_cycles(ticks: Ticks) -> u64 {
    ticks.div_ceil(TICKS_PER_CYCLE)
}
