//! The schedule of a section: a table of loops, and the nests that its stages, streams and buffers walk.
//!
//! Everything that happens in a section happens at the points of some nest over the loop table: the firings of a stage, the
//! slots of a buffer, the transfers of a stream. A nest is named by a [`LoopLevel`]. A point of any nest has a place among
//! all firings of the section, an [`Iteration`]: the loops that the nest does not walk stand at their first iteration (where
//! something begins) or at their last (where it is complete). The number of a slot, whether a firing is the last that uses it,
//! and which firing comes first all follow from the step by the iteration domains of the nests ([`Domain`]).
//!
//! Invariant: [`Schedule::ordinal`] inverts [`Schedule::step`] in every nest.

use rdusim_base::index::IndexVec;

use super::dataflow::{BlockLoops, BlockNest, Domain, DomainError, Loop, LoopId, MAX_DEPTH, Order, Point};
use super::nest::{Iteration, LoopLevel, LoopOrder, Nest, TiledAxis, Tiling};

/// What an iteration index of a loop says of an [`Iteration`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Coordinate {
    Block,
    Column,
    Panel,
    /// Column tile within its panel.
    TileOfPanel,
    /// Row tile within its block.
    Row,
}

/// A nest over the loop table.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Walk {
    loops: Vec<LoopId>,
    domain: Domain,
    /// What the index of each of its loops says.
    coordinates: Vec<Coordinate>,
    /// Positions, in the walk of all firings, of the loops that this nest does not walk.
    others: Vec<usize>,
}

/// The loops of a section, and its nests by [`LoopLevel`]. The first nest walks all loops, in the order in which firings
/// fall due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    loops: IndexVec<LoopId, Loop>,
    /// Rows of the section, its row tiles and column tiles.
    tiling: Tiling,
    /// Row tiles of a block.
    block_tiles: u64,
    /// Column tiles of a panel.
    tiles_of_panel: u64,
    walks: Vec<Walk>,
}

impl Schedule {
    /// The schedule that a nest of row blocks, column tiles and row tiles stands for.
    ///
    /// # Errors
    /// A tile or block of 0 elements.
    pub fn of(nest: &Nest) -> Result<Self, DomainError> {
        let mut loops: IndexVec<LoopId, Loop> = IndexVec::new();
        let order = match nest.order {
            LoopOrder::ColumnTileOuter => Order::ColumnOuter,
            LoopOrder::RowTileOuter => Order::RowOuter,
        };
        let &Nest { rows, tile_rows, block_tiles, tiled_axis, .. } = nest;
        let columns = tiled_axis.map(|cut| (cut.extent, cut.tile));
        let panels = tiled_axis.and_then(|cut| cut.panels).map(|panels| (panels.extent, panels.width));
        let BlockLoops { block, panel, row, firing, row_tile, panel_row, block_column, columns, .. } =
            BlockNest { rows, tile_rows, block_tiles, columns, panels, order }.add_to(&mut loops);
        let coordinate = |id: &LoopId| match *id {
            id if id == block => Coordinate::Block,
            id if id == row => Coordinate::Row,
            id if Some(id) == panel => Coordinate::Panel,
            _ if panel.is_some() => Coordinate::TileOfPanel,
            _ => Coordinate::Column,
        };
        let due = firing.clone();
        let walk = |walked: Vec<LoopId>| -> Result<Walk, DomainError> {
            let domain = Domain::new(&loops, &walked)?;
            let coordinates = walked.iter().map(coordinate).collect();
            let others = (0..due.len()).filter(|&level| !walked.contains(&due[level])).collect();
            Ok(Walk { loops: walked, domain, coordinates, others })
        };
        let nests = [firing, row_tile, block_column, columns, Vec::new(), panel_row];
        let walks = nests.into_iter().map(walk).collect::<Result<_, _>>()?;
        let tiles_of_panel = tiled_axis.map_or(1, |cut| cut.tiles_of_panel());
        Ok(Self { tiling: nest.tiling(), block_tiles, tiles_of_panel, walks, loops })
    }

    /// The nest of row blocks, column tiles and row tiles that it was made of; without column tiles in the one order there is.
    pub fn nest(&self) -> Nest {
        let Tiling { rows, tile_rows, tiled_axis } = self.tiling;
        let is_outside = |c: &&Coordinate| **c != Coordinate::Block;
        let order = match self.due().coordinates.iter().find(is_outside) {
            Some(Coordinate::Row) if tiled_axis.is_some() => LoopOrder::RowTileOuter,
            _ => LoopOrder::ColumnTileOuter,
        };
        Nest { rows, tile_rows, block_tiles: self.block_tiles, tiled_axis, order }
    }

    #[inline]
    fn due(&self) -> &Walk {
        &self.walks[LoopLevel::FIRING.index()]
    }

    #[inline]
    fn walk(&self, level: LoopLevel) -> &Walk {
        &self.walks[level.index()]
    }

    /// The loop table.
    pub fn loops(&self) -> &IndexVec<LoopId, Loop> {
        &self.loops
    }

    /// The loops of a nest, outermost first.
    pub fn loops_of(&self, level: LoopLevel) -> &[LoopId] {
        &self.walk(level).loops
    }

    /// Rows, row tiles and column tiles.
    pub fn tiling(&self) -> Tiling {
        self.tiling
    }

    /// The axis cut into column tiles, if any.
    pub fn tiled_axis(&self) -> Option<TiledAxis> {
        self.tiling.tiled_axis
    }

    /// Row blocks.
    pub fn blocks(&self) -> u64 {
        self.tiling.row_tiles().div_ceil(self.block_tiles)
    }

    /// The firing of a column tile and a row tile.
    pub fn at(&self, column_tile: u64, row_tile: u64) -> Iteration {
        Iteration { block: row_tile / self.block_tiles, column_tile, row_tile }
    }

    /// Number of points of a nest.
    pub fn count(&self, level: LoopLevel) -> u64 {
        self.walk(level).domain.count()
    }

    /// Where point `n` of a nest begins: loops that it does not walk stand at their first iteration. `n` is below
    /// [`Self::count`].
    #[inline]
    pub fn step(&self, level: LoopLevel, n: u64) -> Iteration {
        let walk = self.walk(level);
        let mut step = Iteration { block: 0, column_tile: 0, row_tile: 0 };
        self.set(&mut step, walk, &walk.domain.point(n));
        step
    }

    #[inline]
    fn set(&self, step: &mut Iteration, walk: &Walk, point: &Point) {
        let mut in_block = 0;
        for (level, coordinate) in walk.coordinates.iter().enumerate() {
            match coordinate {
                Coordinate::Block => step.block = point.get(level),
                Coordinate::Column => step.column_tile = point.get(level),
                // The panel comes before its column tiles in every nest.
                Coordinate::Panel => step.column_tile = point.get(level) * self.tiles_of_panel,
                Coordinate::TileOfPanel => step.column_tile += point.get(level),
                Coordinate::Row => in_block = point.get(level),
            }
        }
        step.row_tile = step.block * self.block_tiles + in_block;
    }

    #[inline]
    fn point(&self, walk: &Walk, at: Iteration) -> Point {
        let mut point = Point::default();
        for (level, coordinate) in walk.coordinates.iter().enumerate() {
            let index = match coordinate {
                Coordinate::Block => at.block,
                Coordinate::Column => at.column_tile,
                Coordinate::Panel => at.column_tile / self.tiles_of_panel,
                Coordinate::TileOfPanel => at.column_tile % self.tiles_of_panel,
                Coordinate::Row => at.row_tile - at.block * self.block_tiles,
            };
            point.set(level, index);
        }
        point
    }

    /// Where what happens at a point of a nest that begins at `at` is complete: loops that the nest does not walk stand at
    /// their last iteration.
    #[inline]
    pub fn complete(&self, level: LoopLevel, at: Iteration) -> Iteration {
        let (walk, due) = (self.walk(level), self.due());
        if walk.others.is_empty() {
            return at;
        }
        let mut point = self.point(due, at);
        for &other in &walk.others {
            point.set(other, due.domain.trips(other, &point) - 1);
        }
        let mut step = at;
        self.set(&mut step, due, &point);
        step
    }

    /// The point of a nest that a step lies in: the inverse of [`Self::step`].
    #[inline]
    pub fn ordinal(&self, level: LoopLevel, at: Iteration) -> u64 {
        let walk = self.walk(level);
        walk.domain.ordinal(&self.point(walk, at))
    }

    /// Whether the firing at a step is the last within its point of a nest.
    #[inline]
    pub fn is_last_use(&self, level: LoopLevel, at: Iteration) -> bool {
        let (walk, due) = (self.walk(level), self.due());
        walk.others.is_empty() || {
            let point = self.point(due, at);
            walk.others.iter().all(|&other| due.domain.is_last(other, &point))
        }
    }

    /// Whether a firing of the nest `of` at a step is the first within its point of the nest `within`, and whether it is the
    /// last.
    #[inline]
    pub fn ends(&self, of: LoopLevel, within: LoopLevel, at: Iteration) -> (bool, bool) {
        if of == within {
            return (true, true);
        }
        let (due, walked) = (self.due(), &self.walk(of).others);
        let point = self.point(due, at);
        let over = || self.walk(within).others.iter().filter(|other| !walked.contains(other));
        (over().all(|&other| point.get(other) == 0), over().all(|&other| due.domain.is_last(other, &point)))
    }

    /// The firing of the nest `of` before the one at `at` in the same point of the nest `within`, if the latter is not its
    /// first.
    pub fn before(&self, of: LoopLevel, within: LoopLevel, at: Iteration) -> Option<Iteration> {
        let (due, walked) = (self.due(), &self.walk(of).others);
        let mut point = self.point(due, at);
        let over = || self.walk(within).others.iter().copied().filter(|other| !walked.contains(other));
        let innermost = over().rfind(|&other| point.get(other) > 0)?;
        point.set(innermost, point.get(innermost) - 1);
        for inner in over().filter(|&other| other > innermost) {
            point.set(inner, due.domain.trips(inner, &point) - 1);
        }
        let mut step = at;
        self.set(&mut step, due, &point);
        Some(step)
    }

    /// Loops of the walk of all firings.
    pub fn depth(&self) -> usize {
        debug_assert!(self.due().domain.depth() <= MAX_DEPTH);
        self.due().domain.depth()
    }

    /// The outermost loop, by its position in the walk of all firings, of which the firing at a step begins an iteration.
    pub fn begins(&self, at: Iteration) -> usize {
        let point = self.point(self.due(), at);
        (0..self.depth()).rev().find(|&level| point.get(level) > 0).unwrap_or(0)
    }

    /// Whether a nest walks a loop of the walk of all firings.
    pub fn is_walked(&self, of: LoopLevel, level: usize) -> bool {
        !self.walk(of).others.contains(&level)
    }

    /// Iteration index of a loop of the walk of all firings at a step.
    pub fn iteration(&self, level: usize, at: Iteration) -> u64 {
        self.point(self.due(), at).get(level)
    }

    /// Iterations that a loop of the walk of all firings has at a step.
    pub fn trips(&self, level: usize, at: Iteration) -> u64 {
        self.due().domain.trips(level, &self.point(self.due(), at))
    }

    /// Whether two steps lie in the same iterations of the loops of a nest around a loop of the walk of all firings.
    pub fn is_same_around(&self, of: LoopLevel, level: usize, one: Iteration, other: Iteration) -> bool {
        let (due, walked) = (self.due(), &self.walk(of).others);
        let (one, other) = (self.point(due, one), self.point(due, other));
        (0..level).filter(|outer| !walked.contains(outer)).all(|outer| one.get(outer) == other.get(outer))
    }

    /// Whether a loop of the walk of all firings runs over column tiles or panels.
    pub fn is_over_columns(&self, level: usize) -> bool {
        matches!(self.due().coordinates[level], Coordinate::Column | Coordinate::Panel | Coordinate::TileOfPanel)
    }

    /// Whether a loop of the walk of all firings runs over panels.
    pub fn is_over_panels(&self, level: usize) -> bool {
        self.due().coordinates[level] == Coordinate::Panel
    }

    /// Column tiles of a panel; all where nothing is cut into panels.
    pub fn tiles_of_panel(&self) -> u64 {
        self.tiles_of_panel
    }

    /// Row tiles in an iteration of a loop of the walk of all firings; `None` of a loop over column tiles or panels.
    pub fn row_tiles_of(&self, level: usize) -> Option<u64> {
        match self.due().coordinates[level] {
            Coordinate::Block => Some(self.block_tiles),
            Coordinate::Row => Some(1),
            Coordinate::Column | Coordinate::Panel | Coordinate::TileOfPanel => None,
        }
    }

    /// Points of a nest in one iteration of a loop of the walk of all firings, at a step of that iteration; 0 if the nest
    /// walks neither that loop nor one inside it.
    pub fn points_in(&self, of: LoopLevel, level: usize, at: Iteration) -> u64 {
        if !self.is_walked(of, level) {
            return 0;
        }
        let due = self.due();
        let point = self.point(due, at);
        (level + 1..self.depth())
            .filter(|&inner| self.is_walked(of, inner))
            .map(|inner| due.domain.trips(inner, &point))
            .product()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nest::Panels;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ordinal_inverts_step(rows in 1u64..200, tile_rows in 1u64..50, block_tiles in 1u64..8, extent in 1u64..60, tile in 1u64..60, width in 1u64..20, shape in 0..5) {
            let order = if shape % 2 == 0 { LoopOrder::ColumnTileOuter } else { LoopOrder::RowTileOuter };
            let panels = (shape > 2).then_some(Panels { axis: 4, extent: 20, width });
            let tiled_axis = (shape != 2).then_some(TiledAxis { panels, ..TiledAxis::new(3, extent, tile) });
            let order = if tiled_axis.is_some() { order } else { LoopOrder::ColumnTileOuter };
            let nest = Nest { rows, tile_rows, block_tiles, tiled_axis, order };
            let schedule = Schedule::of(&nest).expect("tiles have elements");
            prop_assert_eq!(schedule.nest(), nest);
            let mut rows_seen = 0;
            let mut before = None;
            let at = |step| -> Vec<u64> { (0..schedule.depth()).map(|level| schedule.iteration(level, step)).collect() };
            for n in 0..schedule.count(LoopLevel::FIRING) {
                let step = schedule.step(LoopLevel::FIRING, n);
                prop_assert_eq!(schedule.ordinal(LoopLevel::FIRING, step), n);
                prop_assert!(before != Some(step));
                // Iterations count up like digits; the first that changes is the loop that goes on.
                let (last, now) = (before.map(at), at(step));
                let changed = last.as_ref().map_or(Some(0), |last| (0..now.len()).find(|&level| last[level] != now[level]));
                let changed = changed.expect("some loop goes on");
                prop_assert_eq!(schedule.begins(step), changed);
                for level in 0..now.len() {
                    let is_next = last.as_ref().is_none_or(|last| match level.cmp(&changed) {
                        std::cmp::Ordering::Less => true,
                        std::cmp::Ordering::Equal => now[level] == last[level] + 1,
                        std::cmp::Ordering::Greater => now[level] == 0,
                    });
                    prop_assert!(is_next && now[level] < schedule.trips(level, step));
                    if let Some(before) = before {
                        let same = schedule.is_same_around(LoopLevel::FIRING, level, before, step);
                        prop_assert_eq!(same, level <= changed);
                    }
                }
                before = Some(step);
                rows_seen += schedule.tiling().rows_of(step.row_tile);
            }
            prop_assert_eq!(rows_seen, rows * schedule.tiling().column_tiles());
            let others =
                [LoopLevel::ROW_TILE, LoopLevel::BLOCK_COLUMN, LoopLevel::COLUMN, LoopLevel::ONCE, LoopLevel::PANEL_ROW];
            for level in others {
                prop_assert_eq!(schedule.count(level), nest.count(level));
                for n in 0..schedule.count(level) {
                    let begins = schedule.step(level, n);
                    let ends = schedule.complete(level, begins);
                    prop_assert_eq!(schedule.ordinal(level, begins), n);
                    prop_assert_eq!(schedule.ordinal(level, ends), n);
                    prop_assert!(schedule.is_last_use(level, ends));
                    prop_assert_eq!(schedule.ends(LoopLevel::FIRING, level, begins).0, true);
                    prop_assert_eq!(schedule.before(LoopLevel::FIRING, level, begins), None);
                }
                let (mut first_uses, mut last_uses) = (0, 0);
                for n in 0..schedule.count(LoopLevel::FIRING) {
                    let step = schedule.step(LoopLevel::FIRING, n);
                    let (first, last) = schedule.ends(LoopLevel::FIRING, level, step);
                    prop_assert_eq!(last, schedule.is_last_use(level, step));
                    first_uses += u64::from(first);
                    last_uses += u64::from(last);
                    if let Some(earlier) = schedule.before(LoopLevel::FIRING, level, step) {
                        let rank = |step| schedule.ordinal(LoopLevel::FIRING, step);
                        prop_assert!(!first && rank(earlier) < n);
                        prop_assert_eq!(schedule.ordinal(level, earlier), schedule.ordinal(level, step));
                    } else {
                        prop_assert!(first);
                    }
                }
                prop_assert_eq!((first_uses, last_uses), (schedule.count(level), schedule.count(level)));
            }
        }
    }
}
