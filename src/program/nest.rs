//! The loop nest of a section: blocks of rows, column tiles of one axis, row tiles.

use std::ops::Range;

/// Which of the two inner loops is outermost within a row block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LoopOrder {
    /// `for block { for column_tile { for row_tile } }`: each weight column tile meets every row tile of the block.
    ColumnTileOuter,
    /// `for block { for row_tile { for column_tile } }`: weights stay, a row tile passes through every column tile.
    RowTileOuter,
}

/// One axis cut into column tiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct TiledAxis {
    /// Index into the section's axes.
    pub axis: usize,
    /// Length of the axis.
    pub extent: u64,
    /// Elements of a column tile (the last may be shorter).
    pub tile: u64,
}

/// How often something happens in the nest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LoopLevel {
    /// Once for each (block, column tile, row tile).
    Firing,
    /// Once for each (block, row tile).
    RowTile,
    /// Once for each (block, column tile).
    BlockColumn,
    /// Once for each column tile in the whole section.
    Column,
    /// Once in the section.
    Once,
}

/// The loop nest all stages of a section walk in step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Nest {
    /// Rows of the section's activations.
    pub rows: u64,
    /// Rows of a row tile (the last of a run may have fewer).
    pub tile_rows: u64,
    /// Row tiles of a row block (the last block may have fewer).
    pub block_tiles: u64,
    /// The axis cut into column tiles, if any.
    pub tiled_axis: Option<TiledAxis>,
    /// Order of the two inner loops.
    pub order: LoopOrder,
}

/// A place in the nest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Row block.
    pub block: u64,
    /// Column tile.
    pub column_tile: u64,
    /// Row tile, counted over the whole section.
    pub row_tile: u64,
}

impl Nest {
    /// Row tiles of the section.
    pub fn row_tiles(&self) -> u64 {
        self.rows.div_ceil(self.tile_rows)
    }

    /// Row blocks.
    pub fn blocks(&self) -> u64 {
        self.row_tiles().div_ceil(self.block_tiles)
    }

    /// Column tiles of the cut axis (one without a cut).
    pub fn column_tiles(&self) -> u64 {
        self.tiled_axis.map_or(1, |c| c.extent.div_ceil(c.tile))
    }

    /// Elements of the cut axis in a column tile; `None` without a cut.
    pub fn column_range(&self, column_tile: u64) -> Option<Range<u64>> {
        self.tiled_axis.map(|c| column_tile * c.tile..(c.extent.min((column_tile + 1) * c.tile)))
    }

    /// Rows of a row tile.
    pub fn rows_of(&self, row_tile: u64) -> u64 {
        self.tile_rows.min(self.rows - row_tile * self.tile_rows)
    }

    /// Whether a row tile is the short last one.
    pub fn is_ragged(&self, row_tile: u64) -> bool {
        self.rows_of(row_tile) != self.tile_rows
    }

    /// Row tiles of a block: the first, and how many.
    pub fn block_range(&self, block: u64) -> Range<u64> {
        block * self.block_tiles..self.row_tiles().min((block + 1) * self.block_tiles)
    }

    /// Number of events of a loop level in the section.
    pub fn count(&self, level: LoopLevel) -> u64 {
        match level {
            LoopLevel::Firing => self.row_tiles() * self.column_tiles(),
            LoopLevel::RowTile => self.row_tiles(),
            LoopLevel::BlockColumn => self.blocks() * self.column_tiles(),
            LoopLevel::Column => self.column_tiles(),
            LoopLevel::Once => 1,
        }
    }

    /// The step at which event `n` of a loop level happens (the first, where it lasts several); `n` is below
    /// [`Self::count`].
    pub fn step(&self, level: LoopLevel, n: u64) -> Step {
        debug_assert!(n < self.count(level), "event {n} of {}, {level:?}, in {self:?}", self.count(level));
        let column_tiles = self.column_tiles();
        match level {
            LoopLevel::Firing => {
                let block = n / (self.block_tiles * column_tiles);
                let row_tiles = self.block_range(block);
                let within = n - block * self.block_tiles * column_tiles;
                let in_block = row_tiles.end - row_tiles.start;
                let (column_tile, row_tile) = match self.order {
                    LoopOrder::ColumnTileOuter => (within / in_block, within % in_block),
                    LoopOrder::RowTileOuter => (within % column_tiles, within / column_tiles),
                };
                Step { block, column_tile, row_tile: row_tiles.start + row_tile }
            }
            LoopLevel::RowTile => Step { block: n / self.block_tiles, column_tile: 0, row_tile: n },
            LoopLevel::BlockColumn => {
                let block = n / column_tiles;
                Step { block, column_tile: n % column_tiles, row_tile: block * self.block_tiles }
            }
            LoopLevel::Column => Step { block: 0, column_tile: n, row_tile: 0 },
            LoopLevel::Once => Step { block: 0, column_tile: 0, row_tile: 0 },
        }
    }

    /// The event of a loop level that covers a step: the inverse of [`Self::step`].
    pub fn ordinal(&self, level: LoopLevel, at: Step) -> u64 {
        let column_tiles = self.column_tiles();
        match level {
            LoopLevel::Firing => match self.order {
                LoopOrder::ColumnTileOuter => {
                    let row_tiles = self.block_range(at.block);
                    let within = at.column_tile * (row_tiles.end - row_tiles.start) + at.row_tile - row_tiles.start;
                    at.block * self.block_tiles * column_tiles + within
                }
                LoopOrder::RowTileOuter => at.row_tile * column_tiles + at.column_tile,
            },
            LoopLevel::RowTile => at.row_tile,
            LoopLevel::BlockColumn => at.block * column_tiles + at.column_tile,
            LoopLevel::Column => at.column_tile,
            LoopLevel::Once => 0,
        }
    }

    /// Whether the firing at `at` is the last that uses its event of `level`.
    pub fn is_last_use(&self, level: LoopLevel, at: Step) -> bool {
        let last_column_tile = || at.column_tile + 1 == self.column_tiles();
        let last_row_tile = || at.row_tile + 1 == self.block_range(at.block).end;
        match level {
            LoopLevel::Firing => true,
            LoopLevel::RowTile => last_column_tile(),
            LoopLevel::BlockColumn => last_row_tile(),
            LoopLevel::Column => last_row_tile() && at.block + 1 == self.blocks(),
            LoopLevel::Once => last_row_tile() && last_column_tile() && at.block + 1 == self.blocks(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ordinal_inverts_step(rows in 1u64..200, tm in 1u64..50, bt in 1u64..8, extent in 1u64..60, width in 1u64..60, outer: bool) {
            let order = if outer { LoopOrder::ColumnTileOuter } else { LoopOrder::RowTileOuter };
            let nest = Nest { rows, tile_rows: tm, block_tiles: bt, tiled_axis: Some(TiledAxis { axis: 0, extent, tile: width }), order };
            let mut rows_seen = 0;
            for n in 0..nest.count(LoopLevel::Firing) {
                let step = nest.step(LoopLevel::Firing, n);
                prop_assert_eq!(nest.ordinal(LoopLevel::Firing, step), n);
                rows_seen += nest.rows_of(step.row_tile);
            }
            prop_assert_eq!(rows_seen, rows * nest.column_tiles());
            for level in [LoopLevel::RowTile, LoopLevel::BlockColumn, LoopLevel::Column, LoopLevel::Once] {
                let mut last_uses = 0;
                for n in 0..nest.count(level) {
                    prop_assert_eq!(nest.ordinal(level, nest.step(level, n)), n);
                }
                for n in 0..nest.count(LoopLevel::Firing) {
                    last_uses += u64::from(nest.is_last_use(level, nest.step(LoopLevel::Firing, n)));
                }
                prop_assert_eq!(last_uses, nest.count(level));
            }
        }
    }
}
