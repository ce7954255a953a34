//! The sizes of a section's loop nest (blocks of rows, panels, column tiles, row tiles), from which its schedule is made.

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

/// One axis cut into column tiles, and perhaps another into panels around them: column tiles are counted panel by panel.
///
/// With panels the tiled axis is the depth of a GEMM and the other its columns: sums of a row block and a panel stay on chip while
/// the depth passes in column tiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
pub struct TiledAxis {
    /// Index into the section's axes.
    pub axis: usize,
    /// Length of the axis.
    pub extent: u64,
    /// Elements of a column tile (the last may be shorter).
    pub tile: u64,
    /// The axis that is cut into panels, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub panels: Option<Panels>,
}

/// An axis cut into panels, each of which meets all column tiles of a [`TiledAxis`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
pub struct Panels {
    /// Index into the section's axes.
    pub axis: usize,
    /// Length of the axis.
    pub extent: u64,
    /// Elements of a panel (the last may be narrower).
    pub width: u64,
}

impl Panels {
    /// How many there are.
    pub fn count(&self) -> u64 {
        self.extent.div_ceil(self.width)
    }
}

impl TiledAxis {
    /// An axis cut into column tiles, without panels.
    pub fn new(axis: usize, extent: u64, tile: u64) -> Self {
        Self { axis, extent, tile, panels: None }
    }

    /// Panels (one without).
    pub fn panel_count(&self) -> u64 {
        self.panels.map_or(1, |panels| panels.count())
    }

    /// Column tiles of a panel.
    #[inline]
    pub fn tiles_of_panel(&self) -> u64 {
        self.extent.div_ceil(self.tile)
    }

    /// Column tiles of all panels.
    pub fn column_tiles(&self) -> u64 {
        self.panel_count() * self.tiles_of_panel()
    }

    /// Elements of the tiled axis in a column tile.
    #[inline]
    pub fn range(&self, column_tile: u64) -> Range<u64> {
        let tile = if self.panels.is_some() { column_tile % self.tiles_of_panel() } else { column_tile };
        tile * self.tile..self.extent.min((tile + 1) * self.tile)
    }

    /// Whether the tiled axis is this one.
    #[inline]
    pub fn is_along(&self, axis: Option<usize>) -> bool {
        axis == Some(self.axis)
    }

    /// Whether the axis that is cut into panels is this one.
    #[inline]
    pub fn has_panels_of(&self, axis: Option<usize>) -> bool {
        self.panels.is_some_and(|panels| axis == Some(panels.axis))
    }

    /// Whether column tiles or panels cut an axis.
    #[inline]
    pub fn cuts(&self, axis: Option<usize>) -> bool {
        self.is_along(axis) || self.has_panels_of(axis)
    }

    /// Elements of an axis in a column tile; `None` of an axis that is not cut.
    #[inline]
    pub fn range_of(&self, axis: Option<usize>, column_tile: u64) -> Option<Range<u64>> {
        if self.is_along(axis) {
            return Some(self.range(column_tile));
        }
        let panels = self.panels.filter(|panels| axis == Some(panels.axis))?;
        let panel = column_tile / self.tiles_of_panel();
        Some(panel * panels.width..panels.extent.min((panel + 1) * panels.width))
    }
}

/// A nest of a section's schedule: something happens once at each of its points. The six that a [`Nest`] makes have names.
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
    /// Once for each (block, panel, row tile): where nothing is cut into panels, the same as [`Self::ROW_TILE`].
    pub const PANEL_ROW: Self = Self(5);

    /// That of the complete results of a stage whose firings are at `own`: sums over column tiles of the depth are complete once a
    /// row tile, or once in each panel of the columns.
    pub fn of_results(own: Self, is_depth_cut: bool, are_columns_cut: bool) -> Self {
        match (is_depth_cut, are_columns_cut) {
            (true, true) => Self::PANEL_ROW,
            (true, false) => Self::ROW_TILE,
            (false, _) => own,
        }
    }

    /// Its position among the nests of the schedule.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        ["firing", "row_tile", "block_column", "column", "once", "panel_row"]
            .get(self.index())
            .copied()
            .unwrap_or("own")
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

    /// Column tiles of all panels (one without a cut).
    pub fn column_tiles(&self) -> u64 {
        self.tiled_axis.map_or(1, |cut| cut.column_tiles())
    }

    /// Panels (one where nothing is cut into panels).
    pub fn panels(&self) -> u64 {
        self.tiled_axis.map_or(1, |cut| cut.panel_count())
    }

    /// Elements of the tiled axis in a column tile; `None` without a cut.
    pub fn column_range(&self, column_tile: u64) -> Option<Range<u64>> {
        self.tiled_axis.map(|cut| cut.range(column_tile))
    }

    /// Elements of an axis in a column tile; `None` of an axis that is not cut.
    pub fn range_of(&self, axis: Option<usize>, column_tile: u64) -> Option<Range<u64>> {
        self.tiled_axis.and_then(|cut| cut.range_of(axis, column_tile))
    }

    /// Whether column tiles or panels cut an axis.
    pub fn cuts(&self, axis: Option<usize>) -> bool {
        self.tiled_axis.is_some_and(|cut| cut.cuts(axis))
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

    /// Column tiles of all panels (one without a cut).
    pub fn column_tiles(&self) -> u64 {
        self.tiling().column_tiles()
    }

    /// Panels (one where nothing is cut into panels).
    pub fn panels(&self) -> u64 {
        self.tiling().panels()
    }

    /// Whether there are panels, of sums that stay on chip while column tiles of the depth pass.
    pub fn has_panels(&self) -> bool {
        self.tiled_axis.is_some_and(|cut| cut.panels.is_some())
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
            LoopLevel::PANEL_ROW => self.row_tiles() * self.panels(),
            _ => 1,
        }
    }
}
