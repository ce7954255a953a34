//! Credits: how long a flow needs for its flits where FIFOs hold less than a credit round trip.
//!
//! A flow may send as many flits as the FIFO at the next switch holds; each credit returns two hops after its flit. So a
//! rested flow sends one FIFO's depth at the full rate, and then as many in every round trip: a leaky bucket, kept as the
//! theoretical arrival time of the generic cell rate algorithm (ITU-T I.371).

use rdusim_base::units::floor_u64;
use rdusim_cost::cost::{Ticks, cycles};
use rdusim_graph::arch::Chip;

use super::marked_graph::Loop;

/// Credits of every flow of a chip: all FIFOs are equally deep, and all hops equally long.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Credits {
    /// Flits that a FIFO holds.
    depth: u64,
    /// From a flit's departure to the return of its credit.
    round_trip: Ticks,
    /// The share of the round trip that falls on each flit of a FIFO.
    flit: Ticks,
}

impl Credits {
    /// Those of the links of `chip`.
    pub(crate) fn new(chip: &Chip) -> Self {
        let (depth, round_trip) = (chip.network.fifo_depth_flits.max(1), cycles(2 * chip.network.hop_cycles));
        Self { depth, round_trip, flit: round_trip.div_ceil(depth) }
    }

    /// Those of a flow of `flits` flits a firing that goes around a loop.
    pub(crate) fn of_loop(of: Loop, flits: f64) -> Self {
        let depth = floor_u64(of.periods * flits).max(1);
        // The rate is kept where the loop holds no whole number of flits.
        let round_trip = floor_u64(of.cycles_of_period() / flits * cycles(depth) as f64);
        Self { depth, round_trip, flit: round_trip.div_ceil(depth) }
    }

    /// How long a rested flow takes for so many flits, `ticks` at its ports and links alone.
    pub(crate) fn rested(self, flits: u64, ticks: Ticks) -> Ticks {
        if flits <= self.depth {
            return ticks;
        }
        let (round_trips, rest) = ((flits - 1) / self.depth, (flits - 1) % self.depth + 1);
        ticks.max(round_trips * self.round_trip + ticks * rest / flits)
    }

    /// How long a flow takes that begins `at` and, because of its earlier flits, has all its credits at `full_at` only;
    /// that time follows its flits.
    pub(crate) fn take(self, full_at: &mut Ticks, at: Ticks, flits: u64, ticks: Ticks) -> Ticks {
        if flits == 0 {
            return ticks;
        }
        let needed = flits * self.flit;
        if needed <= ticks {
            return ticks;
        }
        *full_at = (*full_at).max(at) + needed;
        // A whole FIFO goes ahead of the credits, at the rate of ports and links.
        let ahead = self.depth * (self.flit - ticks / flits);
        self.rested(flits, ticks).max(full_at.saturating_sub(ahead).saturating_sub(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF_4: Credits = Credits { depth: 4, round_trip: 40, flit: 10 };

    #[test]
    fn a_rested_flow_sends_what_a_fifo_holds_and_then_waits_for_credits() {
        // Flits leave at 0, 1, 2, 3 and, with the credits of these, at 40 to 43, and at 80.
        assert_eq!([1, 4, 5, 8, 9].map(|flits| OF_4.rested(flits, flits)), [1, 4, 41, 44, 81]);
        // A port that is slower than the credits.
        assert_eq!(OF_4.rested(9, 9 * 12), 108);
    }

    #[test]
    fn what_follows_at_once_has_no_credits_left() {
        let mut full_at = 0;
        assert_eq!(OF_4.take(&mut full_at, 0, 4, 4), 4);
        // The next four find their credits at 40 to 43.
        assert_eq!(OF_4.take(&mut full_at, 4, 4, 4), 40);
        assert_eq!(full_at, 80);
        // Long after, all credits are back.
        assert_eq!(OF_4.take(&mut full_at, 1000, 4, 4), 4);
        // In the long run a flit takes a quarter of a round trip.
        let (mut at, mut full_at) = (0, 0);
        for _ in 0..100 {
            at += OF_4.take(&mut full_at, at, 3, 3);
        }
        assert!((2960..=3000).contains(&at), "{at}");
    }
}
