//! The nest of blocks of rows, column tiles and row tiles that most sections walk.
//!
//! `for block { for column { for row } }` meets each column tile (of weights) with every row tile of the block;
//! `for block { for row { for column } }` takes a row tile through all column tiles before the next.

use rdusim_base::index::IndexVec;

use super::ids::LoopId;
use super::loops::{Axis, Loop};

/// Which of the two inner loops is the outer one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Column tiles around row tiles.
    ColumnOuter,
    /// Row tiles around column tiles.
    RowOuter,
}

/// Sizes of a nest of row blocks, column tiles and row tiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockNest {
    /// Rows.
    pub rows: u64,
    /// Rows of a row tile; the last may have fewer.
    pub tile_rows: u64,
    /// Row tiles of a block; the last block may have fewer.
    pub block_tiles: u64,
    /// The tiled axis: its elements, and those of a column tile.
    pub columns: Option<(u64, u64)>,
    /// The axis that is cut into panels around the column tiles, which are then of the depth: its elements, and those of a panel.
    pub panels: Option<(u64, u64)>,
    /// Order of the inner loops.
    pub order: Order,
}

/// The loops of a [`BlockNest`], and the nests of what happens at each of its six levels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockLoops {
    /// Row blocks.
    pub block: LoopId,
    /// Panels, if an axis is cut into panels.
    pub panel: Option<LoopId>,
    /// Column tiles, if an axis is tiled.
    pub column: Option<LoopId>,
    /// Row tiles of a block.
    pub row: LoopId,
    /// Once for each block, column tile and row tile.
    pub firing: Vec<LoopId>,
    /// Once for each row tile: `[block, row]`.
    pub row_tile: Vec<LoopId>,
    /// Once for each row tile of each panel: `[block, panel, row]`, or `[block, row]` without panels.
    pub panel_row: Vec<LoopId>,
    /// Once for each block and column tile: `[block, panel, column]`.
    pub block_column: Vec<LoopId>,
    /// Once for each column tile of the section: `[panel, column]`.
    pub columns: Vec<LoopId>,
}

impl BlockNest {
    /// Adds the loops of the nest to a loop table.
    pub fn add_to(&self, table: &mut IndexVec<LoopId, Loop>) -> BlockLoops {
        let block_rows = self.tile_rows * self.block_tiles;
        let block = table.push(Loop::full(Axis::Row, self.rows, block_rows));
        let row = table.push(Loop::within(block, block_rows, Axis::Row, self.rows, self.tile_rows));
        let panel = self.panels.map(|(extent, width)| table.push(Loop::full(Axis::Column, extent, width)));
        let axis = if panel.is_some() { Axis::K } else { Axis::Column };
        let column = self.columns.map(|(extent, width)| table.push(Loop::full(axis, extent, width)));
        let columns: Vec<LoopId> = panel.into_iter().chain(column).collect();
        let firing = match self.order {
            Order::ColumnOuter => [&[block], columns.as_slice(), &[row]].concat(),
            Order::RowOuter => [&[block, row], columns.as_slice()].concat(),
        };
        let block_column = [&[block], columns.as_slice()].concat();
        let panel_row = match self.order {
            Order::ColumnOuter => [block].into_iter().chain(panel).chain([row]).collect(),
            Order::RowOuter => [block, row].into_iter().chain(panel).collect(),
        };
        BlockLoops { block, panel, column, row, firing, row_tile: vec![block, row], panel_row, block_column, columns }
    }
}
