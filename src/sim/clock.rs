//! Times as the rest of a run sees them: relative to now, and equal where they are too long past to matter.

use crate::cost::Ticks;

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
