//! The classes of loop nests that a section may have: boxes over loop order, tiled axis, column tiles and row tiles.
//!
//! The boxes of a section are disjoint and cover every nest: a nest has no tiled axis or one, one of two orders, and a number
//! of row tiles and of column tiles, each in one of [`CLASSES`], or panels of columns around several column tiles of the depth.
//! Residency, split-K and the allocation of PCUs are free in every box: its bound holds for all of them.

use rdusim_program::{LoopOrder, Nest, PanelAxes, SectionGraph};

/// Numbers of tiles of each class, from and to.
const CLASSES: [Range; 6] = [
    Range { least: 1, most: 1 },
    Range { least: 2, most: 2 },
    Range { least: 3, most: 4 },
    Range { least: 5, most: 8 },
    Range { least: 9, most: 16 },
    Range { least: 17, most: u64::MAX },
];

/// Any number of tiles.
pub const ANY: Range = Range { least: 1, most: u64::MAX };

/// More than one tile.
const SEVERAL: Range = Range { least: 2, most: u64::MAX };

/// A range of numbers of tiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// Fewest tiles, at least one.
    pub least: u64,
    /// Most tiles, included; `u64::MAX` if there is no limit.
    pub most: u64,
}

impl Range {
    /// Elements of the smallest tile that cuts `extent` into so many.
    pub(crate) fn smallest_tile(self, extent: u64) -> u64 {
        extent.div_ceil(self.most.max(1)).max(1)
    }

    /// Elements of the largest.
    pub(crate) fn largest_tile(self, extent: u64) -> u64 {
        if self.least <= 1 { extent } else { extent.div_ceil(self.least - 1).saturating_sub(1).max(1) }
    }

    /// Whether a number of tiles is in the range.
    pub(crate) fn contains(self, tiles: u64) -> bool {
        (self.least..=self.most).contains(&tiles)
    }

    fn words(self) -> String {
        match (self.least, self.most) {
            (least, u64::MAX) => format!("{least} or more"),
            (least, most) if least == most => least.to_string(),
            (least, most) => format!("{least} to {most}"),
        }
    }
}

/// How column tiles and row tiles follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Columns {
    /// No axis is tiled.
    Whole,
    /// `for block { for row tile { for column tile } }` over an axis.
    RowTileOuter(usize, Range),
    /// `for block { for column tile { for row tile } }` over an axis.
    ColumnTileOuter(usize, Range),
    /// `for block { for panel { for column tile { for row tile } } }`: panels of a product's columns, column tiles of its depth.
    Panels {
        /// The columns and the depth.
        axes: PanelAxes,
        /// How many panels the columns are cut into.
        panels: Range,
        /// How many column tiles the depth is cut into, in each panel.
        tiles: Range,
    },
}

/// What boxes know of a nest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NestCounts {
    pub row_tiles: u64,
    /// Axis that is cut into column tiles.
    pub(crate) axis: Option<usize>,
    pub(crate) column_tiles: u64,
    /// Panels of another axis around the column tiles.
    pub(crate) panels: u64,
    /// Column tiles are outside the row tiles.
    pub(crate) column_tile_outer: bool,
}

impl From<&Nest> for NestCounts {
    fn from(nest: &Nest) -> Self {
        Self {
            row_tiles: nest.row_tiles(),
            axis: nest.tiled_axis.map(|cut| cut.axis),
            column_tiles: nest.column_tiles(),
            panels: nest.panels(),
            column_tile_outer: nest.order == LoopOrder::ColumnTileOuter,
        }
    }
}

/// A class of loop nests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NestBox {
    /// How the columns are tiled, and in which order the loops run.
    pub columns: Columns,
    /// Row tiles of the whole nest.
    pub row_tiles: Range,
    /// Blocks of rows over which column tiles pass. Counts only where column tiles are outermost.
    pub row_blocks: Range,
}

impl NestBox {
    /// Every box of a section.
    pub(crate) fn all(graph: &SectionGraph<'_>) -> Vec<Self> {
        let mut columns = vec![Columns::Whole];
        // Where sequences have weights of their own, a row block is a sequence, and its column tiles pass inside it.
        for (axis, of) in graph.axes.iter().enumerate().filter(|(axis, _)| graph.may_cut(*axis)) {
            for tiles in CLASSES.into_iter().filter(|class| class.least > 1 && class.least <= of.extent) {
                if graph.sequences() <= 1 {
                    columns.push(Columns::RowTileOuter(axis, tiles));
                }
                columns.push(Columns::ColumnTileOuter(axis, tiles));
            }
        }
        let classes = CLASSES.into_iter().filter(|class| class.least <= graph.rows && class.most >= graph.sequences());
        let plain = columns
            .iter()
            .flat_map(|&columns| classes.clone().map(move |row_tiles| Self { columns, row_tiles, row_blocks: ANY }));
        // What counts of panels is their number: memory takes longest where they are worth it.
        let several = || CLASSES.into_iter().filter(|class| class.least > 1);
        let in_panels = graph.panel_axes().into_iter().flat_map(|axes| {
            let of = move |panels| Columns::Panels { axes, panels, tiles: SEVERAL };
            several().filter(move |class| class.least <= graph.axes[axes.columns].extent).map(of)
        });
        let in_panels = in_panels.map(|columns| Self { columns, row_tiles: ANY, row_blocks: ANY });
        plain.chain(in_panels).collect()
    }

    /// Whether a nest with these counts is one of the box.
    pub(crate) fn contains(&self, nest: NestCounts) -> bool {
        let axis = nest.axis.filter(|_| nest.column_tiles > 1);
        let columns = match self.columns {
            Columns::Panels { axes, panels, tiles } => {
                axis == Some(axes.depth)
                    && nest.panels > 1
                    && panels.contains(nest.panels)
                    && tiles.contains(nest.column_tiles / nest.panels)
            }
            _ if nest.panels > 1 => false,
            Columns::Whole => axis.is_none(),
            Columns::RowTileOuter(along, tiles) => {
                axis == Some(along) && !nest.column_tile_outer && tiles.contains(nest.column_tiles)
            }
            Columns::ColumnTileOuter(along, tiles) => {
                axis == Some(along) && nest.column_tile_outer && tiles.contains(nest.column_tiles)
            }
        };
        columns && self.row_tiles.contains(nest.row_tiles)
    }

    /// What a certificate calls it.
    pub(crate) fn name(&self) -> String {
        let rows = format!("{} row tiles", self.row_tiles.words());
        match self.columns {
            Columns::Whole => rows,
            Columns::RowTileOuter(axis, tiles) => {
                format!("{rows}, in each {} column tiles of axis {axis}", tiles.words())
            }
            Columns::ColumnTileOuter(axis, tiles) => {
                format!("{} column tiles of axis {axis}, in each {rows}", tiles.words())
            }
            Columns::Panels { axes: PanelAxes { depth, columns }, panels, tiles } => {
                let panels = format!("{} panels of axis {columns}", panels.words());
                format!("{panels}, in each {} column tiles of axis {depth}, in each {rows}", tiles.words())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_follow_each_other_without_a_gap() {
        assert_eq!((CLASSES[0].least, CLASSES[5].most), (1, u64::MAX));
        assert!(CLASSES.windows(2).all(|pair| pair[0].most + 1 == pair[1].least));
    }

    #[test]
    fn tiles_of_a_class_are_within_its_range() {
        for extent in 1..70u64 {
            for tile in 1..=extent {
                let count = extent.div_ceil(tile);
                let class = CLASSES.into_iter().find(|class| class.least <= count && count <= class.most).unwrap();
                assert!(class.smallest_tile(extent) <= tile && tile <= class.largest_tile(extent), "{extent} {tile}");
            }
        }
    }
}
