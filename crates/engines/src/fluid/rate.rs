//! Rates in fixed point.

/// Bits behind the binary point of a [`Rate`].
pub const RATE_BITS: u32 = 32;

/// A rate: amount per tick, in units of 2^-32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Rate(u64);

impl Rate {
    /// No progress.
    pub const ZERO: Self = Self(0);
    /// The highest rate: one unit of 2^-32 below 2^32 a tick. An activity that nothing limits runs at this rate.
    pub const MAX: Self = Self(u64::MAX);

    /// The rate of `units` of 2^-32 a tick.
    pub const fn from_units(units: u64) -> Self {
        Self(units)
    }

    /// Units of 2^-32 a tick.
    pub const fn units(self) -> u64 {
        self.0
    }

    /// The lowest rate that moves `amount` in `ticks` or less: rounded up, at most [`Rate::MAX`], which is also the rate
    /// for no ticks. As a cap it lets an activity last exactly `ticks` as long as `ticks` squared is below `amount` times
    /// 2^32, and less by the rounding beyond.
    pub fn to_finish(amount: u64, ticks: u64) -> Self {
        if ticks == 0 {
            return Self::MAX;
        }
        let units = (u128::from(amount) << RATE_BITS).div_ceil(u128::from(ticks));
        Self(u64::try_from(units).unwrap_or(u64::MAX))
    }

    /// What is moved at this rate in `ticks`, in units of 2^-32.
    pub(super) fn moved(self, ticks: u64) -> u128 {
        u128::from(self.0) * u128::from(ticks)
    }

    /// Ticks until `left` units of 2^-32 are moved, rounded up; `None` if never, or not in 64 bits.
    pub(super) fn ticks_for(self, left: u128) -> Option<u64> {
        if let Ok(left) = u64::try_from(left) {
            // Most often; a division of 128 bits takes several times as long.
            return if left == 0 { Some(0) } else { (self.0 > 0).then(|| left.div_ceil(self.0)) };
        }
        (self.0 > 0).then(|| left.div_ceil(u128::from(self.0))).and_then(|ticks| u64::try_from(ticks).ok())
    }
}
