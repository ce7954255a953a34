//! Iteration domains: the points of a loop nest in the order they are walked, numbered from 0.
//!
//! A loop's trip count depends on the iteration index of at most one outer loop. The number of points below one
//! iteration is therefore a product of one factor for each enclosing loop, each a function of that loop's index alone.
//! [`Domain`] keeps these factors and their running sums. Numbering a point and finding the point of a number take one
//! step for each loop, with one integer division where the iterations are equal (all but the last), and a binary search
//! in running sums elsewhere.

use std::fmt;
use std::ops::Range;

use rdusim_base::index::IndexVec;

use super::ids::LoopId;
use super::loops::{Axis, Bound, Loop};
use super::series::{Series, Sums};

/// Most loops of a nest.
pub const MAX_DEPTH: usize = 8;

/// A point of a domain: an iteration index for each of its loops, outermost first; 0 beyond the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Point {
    index: [u64; MAX_DEPTH],
}

impl Point {
    /// The point with these iteration indices, of which there are at most [`MAX_DEPTH`].
    pub fn new(indices: &[u64]) -> Self {
        let mut point = Self::default();
        for (level, &i) in indices.iter().enumerate() {
            point.set(level, i);
        }
        point
    }

    /// Iteration index of the loop at `level`.
    #[inline]
    pub fn get(&self, level: usize) -> u64 {
        self.index[level]
    }

    /// Sets the iteration index of the loop at `level`.
    #[inline]
    pub fn set(&mut self, level: usize, i: u64) {
        self.index[level] = i;
    }
}

/// Why loops do not make a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DomainError {
    /// More than [`MAX_DEPTH`] loops.
    TooDeep(usize),
    /// A loop that is not in the loop table.
    UnknownLoop(LoopId),
    /// A loop that stands twice in the nest.
    Twice(LoopId),
    /// A loop whose tile has no elements.
    EmptyTile(LoopId),
    /// A loop whose bounds follow a loop that does not stand before it in the nest.
    BoundNotOuter(LoopId),
    /// A table that has fewer ranges than its outer loop has iterations.
    ShortTable(LoopId),
}

impl fmt::Display for DomainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooDeep(depth) => write!(f, "{depth} loops, more than {MAX_DEPTH}"),
            Self::UnknownLoop(id) => write!(f, "{id:?} is not in the loop table"),
            Self::Twice(id) => write!(f, "{id:?} stands twice in a nest"),
            Self::EmptyTile(id) => write!(f, "{id:?} has a tile of 0 elements"),
            Self::BoundNotOuter(id) => write!(f, "the loop that bounds {id:?} does not stand before it"),
            Self::ShortTable(id) => write!(f, "{id:?} has fewer ranges than its outer loop has iterations"),
        }
    }
}

impl std::error::Error for DomainError {}

/// One loop of a domain.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Level {
    id: LoopId,
    /// Level of the loop its bounds follow.
    outer: Option<usize>,
    /// The loop, which says which elements it walks.
    nested: Loop,
    /// Iterations, by the iteration index of `outer`.
    trips: Series,
    /// Largest trip count.
    most_trips: u64,
    /// Points below an iteration: the product of a factor for each enclosing level ...
    factors: Vec<(usize, Series)>,
    /// ... and one of the level's own, here summed over its iterations.
    own: Sums,
}

impl Level {
    #[inline]
    fn factor(&self, point: &Point) -> u64 {
        self.factors.iter().fold(1, |product, (level, series)| product * series.at(point.get(*level)))
    }

    #[inline]
    fn outer_index(&self, point: &Point) -> u64 {
        self.outer.map_or(0, |level| point.get(level))
    }
}

/// Iterations of a loop by the iteration index of its outer loop, which has `outer_trips`. Tiles of an outer tile are
/// counted once, as all but the last have as many.
fn trips(nested: &Loop, outer_trips: u64) -> Series {
    let trips = |i: u64| {
        let elements = nested.elements(i);
        (elements.end - elements.start).div_ceil(nested.tile)
    };
    match &nested.bound {
        Bound::Full => Series::constant(trips(0)),
        Bound::Affine { start, end, .. }
            if start.step == end.step
                && start.step >= 0
                && start.offset >= 0
                && outer_trips > 1
                && end.at(outer_trips - 2) <= nested.extent =>
        {
            Series::Uniform { value: trips(0), last: outer_trips - 1, at_last: trips(outer_trips - 1) }
        }
        Bound::Affine { .. } | Bound::Table { .. } => Series::by(outer_trips, trips),
    }
}

/// The iteration domain of a process, or the slots of a buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Domain {
    levels: Vec<Level>,
    count: u64,
    /// Some loop makes no iteration for some iteration of its outer loop.
    has_empty: bool,
}

impl Domain {
    /// The domain of the nest `nest`, outermost loop first, over the loop table.
    pub fn new(table: &IndexVec<LoopId, Loop>, nest: &[LoopId]) -> Result<Self, DomainError> {
        if nest.len() > MAX_DEPTH {
            return Err(DomainError::TooDeep(nest.len()));
        }
        let mut levels: Vec<Level> = Vec::new();
        for &id in nest {
            let level = Self::level(table, id, &levels)?;
            levels.push(level);
        }
        let has_empty = levels.iter().any(|level| {
            let outer_trips = level.outer.map_or(1, |outer| levels[outer].most_trips);
            outer_trips > 0 && level.trips.range(outer_trips).0 == 0
        });
        let count = Self::weigh(&mut levels);
        Ok(Self { levels, count, has_empty })
    }

    fn level(table: &IndexVec<LoopId, Loop>, id: LoopId, before: &[Level]) -> Result<Level, DomainError> {
        let nested = table.get(id).ok_or(DomainError::UnknownLoop(id))?;
        if before.iter().any(|level| level.id == id) {
            return Err(DomainError::Twice(id));
        }
        if nested.tile == 0 {
            return Err(DomainError::EmptyTile(id));
        }
        let outer = match nested.outer() {
            None => None,
            Some(outer) => {
                Some(before.iter().position(|level| level.id == outer).ok_or(DomainError::BoundNotOuter(id))?)
            }
        };
        let outer_trips = outer.map_or(1, |level| before[level].most_trips);
        if let Bound::Table { ranges, .. } = &nested.bound
            && (ranges.len() as u64) < outer_trips
        {
            return Err(DomainError::ShortTable(id));
        }
        let trips = trips(nested, outer_trips);
        let most_trips = if outer_trips == 0 { 0 } else { trips.range(outer_trips).1 };
        let (nested, own) = (nested.clone(), Sums::Table(Vec::new()));
        Ok(Level { id, nested, outer, trips, most_trips, factors: Vec::new(), own })
    }

    /// Sets the factors and sums of every level, innermost first, and returns the number of points.
    fn weigh(levels: &mut [Level]) -> u64 {
        // Points below one iteration of the current level: `scale` times a factor by the index of each level.
        let mut scale = 1u64;
        let mut factors: Vec<Option<Series>> = vec![None; levels.len()];
        for l in (0..levels.len()).rev() {
            let own = factors[l].take().unwrap_or_else(|| Series::constant(1));
            let sums = Sums::of(&own, scale, levels[l].most_trips);
            let of_outer = factors[..l].iter().enumerate();
            levels[l].factors = of_outer.filter_map(|(k, series)| Some((k, series.clone()?))).collect();
            match levels[l].outer {
                None => scale = sums.before(levels[l].trips.at(0)),
                Some(outer) => {
                    scale = 1;
                    let most = levels[outer].most_trips;
                    let below = levels[l].trips.map(most, |trips| sums.before(trips));
                    factors[outer] = Some(match &factors[outer] {
                        Some(series) => series.times(&below, most),
                        None => below,
                    });
                }
            }
            levels[l].own = sums;
        }
        scale
    }

    /// Number of loops.
    pub fn depth(&self) -> usize {
        self.levels.len()
    }

    /// Number of points.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Whether some loop makes no iteration for some iteration of its outer loop.
    pub fn has_empty_loops(&self) -> bool {
        self.has_empty
    }

    /// The loop at `level`.
    pub fn loop_at(&self, level: usize) -> LoopId {
        self.levels[level].id
    }

    /// The axis of the loop at `level`.
    pub fn axis(&self, level: usize) -> Axis {
        self.levels[level].nested.axis
    }

    /// The level of a loop.
    pub fn level_of(&self, id: LoopId) -> Option<usize> {
        self.levels.iter().position(|level| level.id == id)
    }

    /// The innermost level that walks `axis`.
    pub fn innermost(&self, axis: Axis) -> Option<usize> {
        self.levels.iter().rposition(|level| level.nested.axis == axis)
    }

    /// The point numbered `n`, which must be below [`Self::count`].
    #[inline]
    pub fn point(&self, n: u64) -> Point {
        debug_assert!(n < self.count, "point {n} of {}", self.count);
        let mut rest = n;
        let mut point = Point::default();
        for (l, level) in self.levels.iter().enumerate() {
            let factor = level.factor(&point);
            let i = level.own.find(rest, factor);
            rest -= level.own.before(i) * factor;
            point.set(l, i);
        }
        point
    }

    /// The number of a point: the inverse of [`Self::point`].
    #[inline]
    pub fn ordinal(&self, point: &Point) -> u64 {
        self.ordinal_of_first(self.levels.len(), point)
    }

    /// The number of the first point that agrees with `point` in its first `levels` loops.
    #[inline]
    pub fn ordinal_of_first(&self, levels: usize, point: &Point) -> u64 {
        let ordinals = self.levels[..levels].iter().enumerate();
        ordinals.map(|(l, level)| level.factor(point) * level.own.before(point.get(l))).sum()
    }

    /// How many points agree with `point` in their first `levels` loops.
    #[inline]
    pub fn count_below(&self, levels: usize, point: &Point) -> u64 {
        let Some(l) = levels.checked_sub(1) else { return self.count };
        let (level, i) = (&self.levels[l], point.get(l));
        level.factor(point) * (level.own.before(i + 1) - level.own.before(i))
    }

    /// How many points one iteration of the loop at `level` has, if every iteration has as many.
    pub fn uniform_weight(&self, level: usize) -> Option<u64> {
        let level = &self.levels[level];
        let factor = level.factors.iter().try_fold(1, |product, (_, series)| Some(product * series.as_constant()?))?;
        match level.own {
            Sums::Uniform { each, iterations, total } => (each * iterations == total).then_some(each * factor),
            Sums::Table(_) => None,
        }
    }

    /// Iterations of the loop at `level`, given the outer iteration indices of `point`.
    #[inline]
    pub fn trips(&self, level: usize, point: &Point) -> u64 {
        let level = &self.levels[level];
        level.trips.at(level.outer_index(point))
    }

    /// The largest trip count that the loop at `level` has.
    pub fn most_trips(&self, level: usize) -> u64 {
        self.levels[level].most_trips
    }

    /// Elements that the iteration of the loop at `level` covers.
    #[inline]
    pub fn range(&self, level: usize, point: &Point) -> Range<u64> {
        let i = point.get(level);
        let level = &self.levels[level];
        let outer = level.outer_index(point);
        let (elements, tile) = (level.nested.elements(outer), level.nested.tile);
        let start = elements.start + i * tile;
        start..elements.end.min(start + tile)
    }

    /// Whether the loop at `level` is in its last iteration.
    #[inline]
    pub fn is_last(&self, level: usize, point: &Point) -> bool {
        point.get(level) + 1 == self.trips(level, point)
    }

    /// The point after `point`.
    pub fn next(&self, point: &Point) -> Option<Point> {
        if self.has_empty {
            let n = self.ordinal(point) + 1;
            return (n < self.count).then(|| self.point(n));
        }
        let mut next = *point;
        for level in (0..self.levels.len()).rev() {
            if !self.is_last(level, point) {
                next.set(level, point.get(level) + 1);
                return Some(next);
            }
            next.set(level, 0);
        }
        None
    }

    /// All points, in order.
    pub fn points(&self) -> impl Iterator<Item = Point> + '_ {
        (0..self.count).map(|n| self.point(n))
    }

    /// Iterations of the loop at `level` that cover at least one of `elements`, given the outer indices of `point`.
    pub fn iterations_over(&self, level: usize, point: &Point, elements: &Range<u64>) -> Range<u64> {
        let level = &self.levels[level];
        let outer = level.outer_index(point);
        let Range { start, end } = level.nested.elements(outer);
        let (from, to) = (elements.start.max(start), elements.end.min(end));
        if from >= to {
            return 0..0;
        }
        (from - start) / level.nested.tile..(to - start).div_ceil(level.nested.tile)
    }

    /// The different numbers of elements that an iteration of the loop at `level` may cover, largest first.
    pub fn tile_lengths(&self, level: usize) -> Vec<u64> {
        let level = &self.levels[level];
        let mut lengths = Vec::new();
        for outer in 0..level.outer.map_or(1, |outer| self.levels[outer].most_trips) {
            let (elements, tile) = (level.nested.elements(outer), level.nested.tile);
            let last = elements.end - elements.start - level.trips.at(outer).saturating_sub(1) * tile;
            lengths.push(last);
            if level.trips.at(outer) > 1 {
                lengths.push(tile);
            }
        }
        lengths.sort_unstable_by(|a, b| b.cmp(a));
        lengths.dedup();
        lengths.retain(|&length| length > 0);
        lengths
    }
}
