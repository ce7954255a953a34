//! When the array of a lockstep group takes the operands of its firings.

use std::collections::VecDeque;

use rdusim_base::units::saturating_u64;
use rdusim_cost::cost::Ticks;

use super::clock::Clock;

/// `whole` times `part` of `all`, which is not 0.
pub(super) fn share(whole: u64, part: u64, all: u64) -> u64 {
    saturating_u64(u128::from(whole) * u128::from(part) / u128::from(all))
}

/// When an array takes the operands of one firing: evenly over its work.
#[derive(Debug, Clone, Copy)]
pub(super) struct Taking {
    /// When it ends.
    pub(super) end: Ticks,
    /// How long it takes each kind of operand.
    pub(super) lasts: [Ticks; 2],
    /// Flits of its longest activation stream, and of its longest weight stream.
    pub(super) flits: [u64; 2],
}

impl Taking {
    /// When all but the last `flits` of a kind of operand have been taken.
    pub(super) fn all_but(&self, kind: usize, flits: u64) -> Ticks {
        let all = self.flits[kind].max(1);
        self.end.saturating_sub(share(self.lasts[kind], flits.min(all), all))
    }
}

/// The latest firings that a lockstep group has begun, the latest last: as many as the FIFOs hold operands of.
#[derive(Debug, Clone, Default)]
pub(super) struct Taken {
    firings: VecDeque<Taking>,
    /// Flits of all of them.
    flits: [u64; 2],
}

impl Taken {
    /// When all but the last `flits` of a kind of operand of the firings so far have been taken; 0 if that was long ago.
    pub(super) fn all_but(&self, kind: usize, mut flits: u64) -> Ticks {
        for taking in self.firings.iter().rev() {
            if flits < taking.flits[kind] {
                return taking.all_but(kind, flits);
            }
            flits -= taking.flits[kind];
        }
        0
    }

    /// Flits of a kind of operand that are on their way into the array at a time.
    pub(super) fn untaken(&self, kind: usize, at: Ticks) -> u64 {
        let of_firing = |taking: &Taking| {
            let (left, lasts) = (taking.end.saturating_sub(at), taking.lasts[kind].max(1));
            share(taking.flits[kind], left.min(lasts), lasts)
        };
        self.firings.iter().map(of_firing).sum()
    }

    /// When the work of the latest firing begins.
    pub(super) fn begins(&self) -> Ticks {
        self.firings.back().map_or(0, |taking| taking.end.saturating_sub(taking.lasts[0]))
    }

    /// Adds a firing, and forgets those that ended before `past` or whose operands FIFOs that hold so many flits held no more.
    pub(super) fn add(&mut self, taking: Taking, holds: [u64; 2], past: Ticks) {
        let is_held = |flits: [u64; 2]| (0..2).any(|kind| holds[kind] != u64::MAX && flits[kind] < holds[kind]);
        self.firings.push_back(taking);
        self.flits = [0, 1].map(|kind| self.flits[kind] + taking.flits[kind]);
        while let Some(&oldest) = self.firings.front().filter(|_| self.firings.len() > 1) {
            let others = [0, 1].map(|kind| self.flits[kind] - oldest.flits[kind]);
            if oldest.end >= past && is_held(others) {
                break;
            }
            self.flits = others;
            self.firings.pop_front();
        }
    }

    /// Writes down all that the rest of a run depends on.
    pub(super) fn write_state(&self, clock: Clock, words: &mut Vec<u64>) {
        words.push(self.firings.len() as u64);
        for taking in &self.firings {
            words.push(clock.relative(taking.end));
            words.extend(taking.lasts.into_iter().chain(taking.flits));
        }
    }

    /// The same, later.
    pub(super) fn shift(&mut self, time: Ticks) {
        self.firings.iter_mut().for_each(|taking| taking.end += time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taking(end: Ticks) -> Taking {
        Taking { end, lasts: [8, 0], flits: [4, 0] }
    }

    #[test]
    fn fifos_hold_operands_of_several_firings() {
        let mut taken = Taken::default();
        for firing in 1..=5 {
            taken.add(taking(firing * 10), [10, u64::MAX], 0);
        }
        // All but the last 4, 5 and 8 flits: the end of a firing's work, and a quarter of it earlier.
        assert_eq!([0, 1, 4, 5, 8].map(|flits| taken.all_but(0, flits)), [50, 48, 40, 38, 30]);
        // Three firings are 12 flits, more than the FIFOs hold.
        assert_eq!((taken.firings.len(), taken.all_but(0, 12)), (3, 0));
    }

    #[test]
    fn flits_on_their_way_are_those_of_firings_that_have_not_ended() {
        let mut taken = Taken::default();
        for firing in 1..=3 {
            taken.add(taking(firing * 10), [100, 100], 0);
        }
        // A quarter of a firing's work is one flit of it.
        assert_eq!([30, 28, 26, 22, 16, 0].map(|at| taken.untaken(0, at)), [0, 1, 2, 4, 6, 12]);
    }

    #[test]
    fn what_ended_long_ago_is_forgotten() {
        let mut taken = Taken::default();
        for firing in 1..=5 {
            taken.add(taking(firing * 10), [100, 100], 25);
        }
        assert_eq!((taken.firings.len(), taken.begins()), (3, 42));
    }
}
