//! The sizes of a section's loop nest (blocks of rows, column tiles of one axis, row tiles), from which its schedule is made.

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

/// A nest of a section's schedule: something happens once at each of its points. The five that a [`Nest`] makes have names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LoopLevel(u8);

impl LoopLevel {
    /// Once for each (block, column tile, row tile): all firings, in the order in which they fall due.
    pub const FIRING: Self = Self(0);
    /// Once for each (block, row tile).
    pub const ROW_TILE: Self = Self(1);
    /// Once for each (block, column tile).
    pub const BLOCK_COLUMN: Self = Self(2);
    /// Once for each column tile in the whole section.
    pub const COLUMN: Self = Self(3);
    /// Once in the section.
    pub const ONCE: Self = Self(4);

    /// Its position among the nests of the schedule.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        ["firing", "row_tile", "block_column", "column", "once"].get(self.index()).copied().unwrap_or("own")
    }
}

impl serde::Serialize for LoopLevel {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// How the firings of a section cut its rows and one axis of its columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tiling {
    /// Rows of the section's activations.
    pub rows: u64,
    /// Rows of a row tile (the last may have fewer).
    pub tile_rows: u64,
    /// The axis cut into column tiles, if any.
    pub tiled_axis: Option<TiledAxis>,
}

/// A row tile, as far as work depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowTile {
    /// Rows in it.
    pub rows: u64,
    /// Its number in the section; `None` for one of mean work.
    pub index: Option<u64>,
}

impl RowTile {
    /// A row tile of `rows` rows and mean work.
    pub fn mean(rows: u64) -> Self {
        Self { rows, index: None }
    }
}

impl Tiling {
    /// The row tile with a number.
    #[inline]
    pub fn row_tile(&self, index: u64) -> RowTile {
        RowTile { rows: self.rows_of(index), index: Some(index) }
    }

    /// Row tiles of the section.
    pub fn row_tiles(&self) -> u64 {
        self.rows.div_ceil(self.tile_rows)
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
    #[inline]
    pub fn rows_of(&self, row_tile: u64) -> u64 {
        self.tile_rows.min(self.rows - row_tile * self.tile_rows)
    }

    /// Whether a row tile is the short last one.
    pub fn is_ragged(&self, row_tile: u64) -> bool {
        self.rows_of(row_tile) != self.tile_rows
    }
}

/// A loop nest that all stages of a section walk in step, by its sizes. [`super::Schedule::of`] makes it loops.
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

/// An iteration of the nest: one row tile under one column tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Iteration {
    /// Row block.
    pub block: u64,
    /// Column tile.
    pub column_tile: u64,
    /// Row tile, counted over the whole section.
    pub row_tile: u64,
}

impl Nest {
    /// Its rows, row tiles and column tiles.
    pub fn tiling(&self) -> Tiling {
        Tiling { rows: self.rows, tile_rows: self.tile_rows, tiled_axis: self.tiled_axis }
    }

    /// Row tiles of the section.
    pub fn row_tiles(&self) -> u64 {
        self.tiling().row_tiles()
    }

    /// Row blocks.
    pub fn blocks(&self) -> u64 {
        self.row_tiles().div_ceil(self.block_tiles)
    }

    /// Column tiles of the cut axis (one without a cut).
    pub fn column_tiles(&self) -> u64 {
        self.tiling().column_tiles()
    }

    /// Elements of the cut axis in a column tile; `None` without a cut.
    pub fn column_range(&self, column_tile: u64) -> Option<Range<u64>> {
        self.tiling().column_range(column_tile)
    }

    /// Number of points of one of its nests.
    pub fn count(&self, level: LoopLevel) -> u64 {
        match level {
            LoopLevel::FIRING => self.row_tiles() * self.column_tiles(),
            LoopLevel::ROW_TILE => self.row_tiles(),
            LoopLevel::BLOCK_COLUMN => self.blocks() * self.column_tiles(),
            LoopLevel::COLUMN => self.column_tiles(),
            _ => 1,
        }
    }
}
