//! Which slots of a buffer a firing touches: an affine relation from iterations to slots, loop by loop.

use std::fmt;
use std::ops::Range;

use super::domain::{Domain, Point};
use super::ids::LoopId;

/// The slot coordinates that a firing touches along one slot loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Along {
    /// Every iteration. The firing waits for all of them: a barrier.
    All,
    /// From the first up to the one that holds the last element that the process's loop `of` has reached: causal keys.
    Prefix {
        /// A loop of the process. Its axis may differ, as keys and the rows that look back on them do.
        of: LoopId,
    },
    /// The iterations that hold the elements `[start * stride - before, (end - 1) * stride + after]`, clipped to the
    /// slot loop, where `[start, end)` is what the process's loop `of` covers. A convolution over rows has its kernel's
    /// reach in `before` and `after`; with stride 1 and no reach, a firing touches the slots of its own elements, in
    /// tiles of another size or order.
    Window {
        /// A loop of the process.
        of: LoopId,
        /// Elements of the slot's axis for each element of the process's axis.
        stride: u64,
        /// Elements before the first.
        before: u64,
        /// Elements after the last.
        after: u64,
    },
    /// The iteration `distance` before that of the process's loop of the same id; none in the first `distance`
    /// iterations.
    Previous {
        /// Iterations, at least 1.
        distance: u64,
    },
    /// The iteration `distance` after that of the process's loop `of`: what the last repetitions of a looped section
    /// leave, read by a store that walks `of` from 0.
    Later {
        /// A loop of the process.
        of: LoopId,
        /// Iterations.
        distance: u64,
    },
}

/// The slots a firing touches, as one rule for each slot loop. A slot loop without a rule has the iteration index that
/// the process's loop of the same id has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Access {
    /// Slot loops with a rule.
    pub along: Vec<(LoopId, Along)>,
}

impl Access {
    /// The slot with the coordinates of the firing: the slot loops are a subset of the process's loops, and a slot is
    /// touched by all firings that project onto it.
    pub fn same() -> Self {
        Self::default()
    }

    /// Adds a rule.
    #[must_use]
    pub fn with(mut self, slot_loop: LoopId, along: Along) -> Self {
        self.along.push((slot_loop, along));
        self
    }

    /// All slots along a slot loop that the process does not have.
    pub fn all(slot_loop: LoopId) -> Self {
        Self::same().with(slot_loop, Along::All)
    }

    /// The slots up to what the process's loop `of` has reached.
    pub fn prefix(slot_loop: LoopId, of: LoopId) -> Self {
        Self::same().with(slot_loop, Along::Prefix { of })
    }

    /// The slots that hold the elements of the process's loop `of`.
    pub fn cover(slot_loop: LoopId, of: LoopId) -> Self {
        Self::window(slot_loop, of, 1, 0, 0)
    }

    /// The slots within a window about the elements of the process's loop `of` ([`Along::Window`]).
    pub fn window(slot_loop: LoopId, of: LoopId, stride: u64, before: u64, after: u64) -> Self {
        Self::same().with(slot_loop, Along::Window { of, stride, before, after })
    }

    /// The slot of `distance` iterations of `repeat` earlier.
    pub fn previous(repeat: LoopId, distance: u64) -> Self {
        Self::same().with(repeat, Along::Previous { distance })
    }

    /// The slot of the iteration of `repeat` that is `distance` after that of the process's loop `of`.
    pub fn later(repeat: LoopId, of: LoopId, distance: u64) -> Self {
        Self::same().with(repeat, Along::Later { of, distance })
    }
}

/// Why an access is not legal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessError {
    /// A slot loop without a rule that the process does not have.
    NotInNest(LoopId),
    /// A rule that names a loop the process does not have.
    NoSuchLoop(LoopId),
    /// A rule for a loop that the buffer does not have, or a second one for the same loop.
    NotOfBuffer(LoopId),
    /// A rule whose two loops count elements of different axes.
    AxesDiffer(LoopId, LoopId),
    /// A carried distance or a stride of 0.
    Zero(LoopId),
}

impl std::error::Error for AccessError {}

impl fmt::Display for AccessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotInNest(id) => write!(f, "the process does not have slot {id:?}, which has no rule"),
            Self::NoSuchLoop(id) => write!(f, "the process does not have {id:?}, which a rule names"),
            Self::NotOfBuffer(id) => write!(f, "{id:?} has two rules, or is no slot loop"),
            Self::AxesDiffer(slot, of) => write!(f, "{slot:?} and {of:?} count elements of different axes"),
            Self::Zero(id) => write!(f, "the rule for {id:?} has a distance or a stride of 0"),
        }
    }
}

/// A rule with loops resolved to levels of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    Same { level: usize },
    All,
    Prefix { level: usize },
    Window { level: usize, stride: u64, before: u64, after: u64 },
    Previous { level: usize, distance: u64 },
    Later { level: usize, distance: u64 },
}

/// An access resolved for one process and one buffer: a rule for each level of the buffer's slots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Footprint {
    pub(super) rules: Vec<Rule>,
}

impl Footprint {
    pub(super) fn new(access: &Access, process: &Domain, slots: &Domain) -> Result<Self, AccessError> {
        for (n, &(id, _)) in access.along.iter().enumerate() {
            if slots.level_of(id).is_none() || access.along[..n].iter().any(|(other, _)| *other == id) {
                return Err(AccessError::NotOfBuffer(id));
            }
        }
        let resolve = |slot_level: usize| {
            let id = slots.loop_at(slot_level);
            let along = access.along.iter().find(|(of, _)| *of == id).map(|(_, along)| *along);
            let level_of = |of: LoopId| {
                let level = process.level_of(of).ok_or(AccessError::NoSuchLoop(of))?;
                if process.axis(level) == slots.axis(slot_level) {
                    Ok(level)
                } else {
                    Err(AccessError::AxesDiffer(id, of))
                }
            };
            Ok(match along {
                None => Rule::Same { level: process.level_of(id).ok_or(AccessError::NotInNest(id))? },
                Some(Along::All) => Rule::All,
                Some(Along::Later { of, distance }) => Rule::Later { level: level_of(of)?, distance },
                Some(Along::Prefix { of }) => {
                    Rule::Prefix { level: process.level_of(of).ok_or(AccessError::NoSuchLoop(of))? }
                }
                Some(Along::Window { stride: 0, .. } | Along::Previous { distance: 0 }) => {
                    return Err(AccessError::Zero(id));
                }
                Some(Along::Window { of, stride, before, after }) => {
                    Rule::Window { level: level_of(of)?, stride, before, after }
                }
                Some(Along::Previous { distance }) => Rule::Previous { level: level_of(id)?, distance },
            })
        };
        Ok(Self { rules: (0..slots.depth()).map(resolve).collect::<Result<_, _>>()? })
    }

    /// Appends the numbers of the slots that the firing at `at` touches, in rising order.
    pub(super) fn slots(&self, process: &Domain, slots: &Domain, at: &Point, found: &mut Vec<u64>) {
        self.descend(process, slots, at, 0, &mut Point::default(), found);
    }

    fn descend(
        &self,
        process: &Domain,
        slots: &Domain,
        at: &Point,
        level: usize,
        slot: &mut Point,
        found: &mut Vec<u64>,
    ) {
        if level == self.rules.len() {
            found.push(slots.ordinal(slot));
            return;
        }
        let trips = slots.trips(level, slot);
        let iterations: Range<u64> = match self.rules[level] {
            Rule::Same { level: of } => {
                let i = at.get(of);
                i..trips.min(i + 1)
            }
            Rule::All => 0..trips,
            Rule::Later { level: of, distance } => {
                let i = at.get(of).saturating_add(distance);
                i..trips.min(i.saturating_add(1))
            }
            Rule::Prefix { level: of } => slots.iterations_over(level, slot, &(0..process.range(of, at).end)),
            Rule::Window { level: of, stride, before, after } => {
                let range = process.range(of, at);
                let from = (range.start * stride).saturating_sub(before);
                let to = ((range.end - 1) * stride + 1).saturating_add(after);
                slots.iterations_over(level, slot, &(from..to))
            }
            Rule::Previous { level: of, distance } => match at.get(of).checked_sub(distance) {
                Some(i) => i..trips.min(i + 1),
                None => 0..0,
            },
        };
        for i in iterations {
            slot.set(level, i);
            self.descend(process, slots, at, level + 1, slot, found);
        }
        slot.set(level, 0);
    }
}
