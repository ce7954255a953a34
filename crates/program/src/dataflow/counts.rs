//! Cumulative slot counts of one port: slots touched up to a firing, and slots done with after it.
//!
//! Both counts never fall. They are the cumulative production and consumption functions of cyclo-static dataflow: for a
//! reader, *touched* slots must be filled and *finished* slots are free; for a writer, *touched* slots are begun and
//! *finished* ones are complete, because a stage that accumulates touches its slot until its last iteration.
//!
//! Where each slot loop is one of the process's own, in the same order, or a trailing barrier, both follow from the
//! firing's point in one step for each loop ([`Projection`]). Other accesses are listed firing by firing over one
//! iteration of the outer loops that process and buffer share, and shift from iteration to iteration ([`Listing`]).

use super::access::{Footprint, Rule};
use super::domain::{Domain, Point};
use rdusim_base::units::index;

/// Cumulative counts of a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Counts {
    Projection(Projection),
    Listing(Listing),
}

/// Counts of an access by equal coordinates: slot levels `0..levels` are loops of the process, in its order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Projection {
    /// Process level of each slot level.
    levels: Vec<usize>,
    /// Process loops that are not slot loops but enclose some, outermost first: each iteration comes back to the same
    /// slots. With each, the number of slot levels outside it.
    revisits: Vec<(usize, usize)>,
    /// Process loops that are not slot loops and enclose none.
    within: Vec<usize>,
    /// Slots to subtract, for a port that reads an earlier iteration of the outermost loop.
    behind: u64,
}

/// Counts listed for the firings of one period; each later period adds `shift`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Listing {
    period: u64,
    shift: u64,
    touched: Vec<u64>,
    /// By firings done within the period.
    finished: Vec<u64>,
}

impl Counts {
    pub(super) fn new(footprint: &Footprint, process: &Domain, slots: &Domain) -> Self {
        match Projection::new(footprint, process, slots) {
            Some(projection) => Self::Projection(projection),
            None => Self::Listing(Listing::new(footprint, process, slots)),
        }
    }

    /// Slots touched by the firings up to number `n`, at `at`, that one included.
    #[inline]
    pub(super) fn touched(&self, process: &Domain, slots: &Domain, n: u64, at: &Point) -> u64 {
        match self {
            Self::Projection(projection) => projection.touched(slots, at),
            Self::Listing(listing) => {
                debug_assert!(n < process.count());
                n / listing.period * listing.shift + listing.touched[index(n % listing.period)]
            }
        }
    }

    /// Slots that no firing after the first `done` touches, up to the first that one does.
    #[inline]
    pub(super) fn finished(&self, process: &Domain, slots: &Domain, done: u64) -> u64 {
        if done >= process.count() {
            return slots.count();
        }
        match (self, done.checked_sub(1)) {
            (Self::Projection(_), None) => 0,
            (Self::Projection(projection), Some(n)) => projection.finished(process, slots, &process.point(n)),
            (Self::Listing(listing), _) => listing.finished(done),
        }
    }

    /// The same after firing `n`, at `at`.
    #[inline]
    pub(super) fn finished_after(&self, process: &Domain, slots: &Domain, n: u64, at: &Point) -> u64 {
        if n + 1 >= process.count() {
            return slots.count();
        }
        match self {
            Self::Projection(projection) => projection.finished(process, slots, at),
            Self::Listing(listing) => listing.finished(n + 1),
        }
    }
}

impl Projection {
    fn new(footprint: &Footprint, process: &Domain, slots: &Domain) -> Option<Self> {
        if process.has_empty_loops() || slots.has_empty_loops() {
            return None;
        }
        let mut levels = Vec::new();
        let mut behind = 0;
        let mut barrier = false;
        for (slot_level, rule) in footprint.rules.iter().enumerate() {
            match *rule {
                Rule::Same { level } if !barrier => levels.push(level),
                Rule::All => barrier = true,
                Rule::Previous { level: 0, distance } if slot_level == 0 => {
                    behind = slots.uniform_weight(0)? * distance;
                    levels.push(0);
                }
                _ => return None,
            }
        }
        if levels.windows(2).any(|pair| pair[0] >= pair[1]) {
            return None;
        }
        let innermost = levels.last().copied();
        let missing = |&level: &usize| !levels.contains(&level);
        let encloses = |level: usize| innermost.is_some_and(|innermost| level < innermost);
        let revisits = (0..process.depth()).filter(missing).filter(|&level| encloses(level));
        let revisits = revisits.map(|level| (level, levels.iter().filter(|&&l| l < level).count())).collect();
        let within = (0..process.depth()).filter(missing).filter(|&level| !encloses(level)).collect();
        Some(Self { levels, revisits, within, behind })
    }

    #[inline]
    fn slot(&self, at: &Point) -> Point {
        let mut slot = Point::default();
        for (slot_level, &level) in self.levels.iter().enumerate() {
            slot.set(slot_level, at.get(level));
        }
        slot
    }

    #[inline]
    fn touched(&self, slots: &Domain, at: &Point) -> u64 {
        let slot = self.slot(at);
        // An earlier iteration of such a loop has touched every slot below the ones outside it.
        let revisit = self.revisits.iter().find(|(level, _)| at.get(*level) > 0);
        let outside = revisit.map_or(self.levels.len(), |(_, outside)| *outside);
        (slots.ordinal_of_first(outside, &slot) + slots.count_below(outside, &slot)).saturating_sub(self.behind)
    }

    #[inline]
    fn finished(&self, process: &Domain, slots: &Domain, at: &Point) -> u64 {
        let slot = self.slot(at);
        let revisit = self.revisits.iter().find(|(level, _)| !process.is_last(*level, at));
        let outside = revisit.map_or(self.levels.len(), |(_, outside)| *outside);
        let mut finished = slots.ordinal_of_first(outside, &slot);
        if revisit.is_none() && self.within.iter().all(|&level| process.is_last(level, at)) {
            finished += slots.count_below(outside, &slot);
        }
        finished.saturating_sub(self.behind)
    }
}

impl Listing {
    fn new(footprint: &Footprint, process: &Domain, slots: &Domain) -> Self {
        // Outer loops that both have, with as many points in each iteration: their iterations are equal but for a shift.
        let shared = footprint.rules.iter().enumerate().take_while(|&(level, rule)| {
            *rule == Rule::Same { level }
                && process.uniform_weight(level).is_some()
                && slots.uniform_weight(level).is_some()
        });
        let shared = shared.count();
        let (period, shift) = match shared.checked_sub(1) {
            Some(level) => (process.uniform_weight(level), slots.uniform_weight(level)),
            None => (None, None),
        };
        let period = period.unwrap_or(process.count());
        let shift = shift.unwrap_or(slots.count());
        let mut first = Vec::new();
        let mut touched = Vec::new();
        let mut most = 0;
        let mut found = Vec::new();
        for n in 0..period.min(process.count()) {
            found.clear();
            footprint.slots(process, slots, &process.point(n), &mut found);
            most = found.last().map_or(most, |last| most.max(last + 1));
            touched.push(most);
            first.push(found.first().copied());
        }
        let mut finished = vec![shift; first.len()];
        let mut least = shift;
        for (n, first) in first.iter().enumerate().rev() {
            least = first.map_or(least, |first| least.min(first));
            finished[n] = least;
        }
        Self { period: period.max(1), shift, touched, finished }
    }

    #[inline]
    fn finished(&self, done: u64) -> u64 {
        done / self.period * self.shift + self.finished[index(done % self.period)]
    }
}
