//! Simulated time: whole ticks, a fixed number to a cycle, so that memory rates that are no whole number of cycles
//! round up by little and sums never depend on their order.

/// A time or a duration in ticks.
pub type Ticks = u64;

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
