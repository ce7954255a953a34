//! Times as the rest of a run sees them: relative to now, and equal where they are too long past to matter.

use rdusim_cost::cost::Ticks;

/// The point from which a state is seen.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    /// Now.
    pub now: Ticks,
    /// No event from now on depends on how long before `now - reach` something was.
    pub reach: Ticks,
}

impl Clock {
    /// A time relative to the earliest that matters.
    pub(super) fn relative(self, at: Ticks) -> u64 {
        (at + self.reach).saturating_sub(self.now)
    }

    /// A time relative to now, however long ago: of work that is still under way.
    pub(super) fn exact(self, at: Ticks) -> u64 {
        at.wrapping_sub(self.now)
    }

    /// Whether a time is too long ago to matter.
    pub(super) fn is_past(self, at: Ticks) -> bool {
        self.relative(at) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beyond_reach_is_past() {
        let clock = Clock { now: 100, reach: 30 };
        assert_eq!([60, 70, 71, 100, 120].map(|at| clock.relative(at)), [0, 0, 1, 30, 50]);
        assert_eq!([60, 70, 71, 100].map(|at| clock.is_past(at)), [true, true, false, false]);
        assert_eq!(clock.exact(104), 4);
    }
}
