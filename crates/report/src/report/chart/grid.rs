//! Where the sites of a chip lie in a picture: cells with streets between them, gaps between tiles and dies.

use super::palette::{AXIS, MUTED};
use super::scene::{Anchor, Area, Face, Scene};
use crate::map::Site;
use rdusim_graph::arch::{Agcu, Grid};

/// Width that the cells should take together, whatever their number.
const WANTED: u32 = 1400;
/// Least and most distance from cell to cell.
const PITCH: (u32, u32) = (4, 40);
/// Most columns or rows: beyond, a PNG would take gigabytes.
pub(super) const MOST_SITES: u32 = 1000;
/// Room at the left and right for AGCUs, and at the left for numbers.
const SIDE: f64 = 72.0;
/// Room above and below the grid without AGCUs there.
const EDGE: f64 = 34.0;
/// Widths of the lines between dies and between tiles.
pub(super) const DIE_BORDER: u32 = 4;
pub(super) const TILE_BORDER: u32 = 1;
const NUMBER: Face = Face { em: 11.5, bold: false, color: MUTED };

/// The layout of a grid. The streets run along the left and upper side of each cell; a cell's switch is the crossing
/// in its upper left corner.
pub(super) struct Plan<'a> {
    grid: &'a Grid,
    origin: (f64, f64),
    pitch: f64,
    street: f64,
    gaps: (f64, f64),
    /// Room above and below.
    edges: (f64, f64),
}

impl<'a> Plan<'a> {
    /// A layout that begins at `top`, with room for AGCUs and numbers around it.
    pub(super) fn new(grid: &'a Grid, left: f64, top: f64) -> Self {
        let pitch = (WANTED / grid.columns.max(grid.rows).max(1)).clamp(PITCH.0, PITCH.1);
        let street = f64::from((pitch * 2 / 5).max(2));
        let gaps = if pitch < 8 { (0.0, 2.0) } else { (6.0, 12.0) };
        let pitch = f64::from(pitch);
        let room = |edge: u32| {
            let at_edge = |agcu: &&Agcu| is_vertical(agcu, grid) && (agcu.site.y == 0) == (edge == 0);
            if grid.agcus.iter().any(|agcu| at_edge(&agcu)) { EDGE + pitch } else { EDGE }
        };
        let edges = (room(0), room(1));
        Self { grid, origin: (left + SIDE, top + edges.0), pitch, street, gaps, edges }
    }

    /// Width of a street.
    pub(super) fn street(&self) -> f64 {
        self.street
    }

    /// Where the street left of column `x` lies; `x` may be the column behind the last.
    fn column(&self, x: u32) -> f64 {
        self.origin.0 + self.along(x, self.grid.tile.0, self.grid.die.0)
    }

    /// Where the street above row `y` lies.
    fn row(&self, y: u32) -> f64 {
        self.origin.1 + self.along(y, self.grid.tile.1, self.grid.die.1)
    }

    fn along(&self, at: u32, tile: u32, die: u32) -> f64 {
        let borders = |size: u32| f64::from(at / size.max(1));
        f64::from(at) * self.pitch + borders(tile) * self.gaps.0 + borders(die) * self.gaps.1
    }

    /// Where the switch of a site lies.
    pub(super) fn switch(&self, [x, y]: Site) -> (f64, f64) {
        (self.column(x), self.row(y))
    }

    /// The box of the unit at a site.
    pub(super) fn unit(&self, site: Site) -> Area {
        let (x, y) = self.switch(site);
        let size = self.pitch - self.street;
        Area { left: x + self.street / 2.0, top: y + self.street / 2.0, width: size, height: size }
    }

    /// The box around the grid, AGCUs and numbers.
    pub(super) fn area(&self) -> Area {
        let last = self.unit([self.grid.columns.saturating_sub(1), self.grid.rows.saturating_sub(1)]);
        let (left, top) = (self.origin.0 - SIDE, self.origin.1 - self.edges.0);
        Area { left, top, width: last.right() + SIDE - left, height: last.bottom() + self.edges.1 - top }
    }

    /// The boxes of the AGCUs, outside the edge that each stands at; of several at one site, one beside the other.
    pub(super) fn agcus(&self) -> Vec<Area> {
        let size = (self.pitch - self.street).max(6.0);
        let (last_x, last_y) = (self.grid.columns.saturating_sub(1), self.grid.rows.saturating_sub(1));
        let mut boxes: Vec<Area> = Vec::new();
        for (at, agcu) in self.grid.agcus.iter().enumerate() {
            let earlier = self.grid.agcus[..at].iter().filter(|other| other.site == agcu.site).count() as f64;
            boxes.push(self.agcu(agcu, earlier * (size + 3.0), size, (last_x, last_y)));
        }
        boxes
    }

    fn agcu(&self, agcu: &Agcu, shift: f64, size: f64, last: (u32, u32)) -> Area {
        let unit = self.unit([agcu.site.x, agcu.site.y]);
        let away = self.street + 4.0 + shift;
        let (left, top) = if agcu.site.x == 0 {
            (unit.left - away - size, unit.top)
        } else if agcu.site.x == last.0 {
            (unit.right() + away, unit.top)
        } else if agcu.site.y == 0 {
            (unit.left, unit.top - away - size)
        } else {
            (unit.left, unit.bottom() + away)
        };
        Area { left, top, width: size, height: size }
    }

    /// Borders between tiles and dies, and the numbers of columns and rows.
    pub(super) fn draw_frame(&self, scene: &mut Scene) {
        let (columns, rows) = (self.grid.columns, self.grid.rows);
        let half = self.street / 2.0;
        let (left, top) = (self.column(0) - half, self.row(0) - half);
        let end = self.unit([columns.saturating_sub(1), rows.saturating_sub(1)]);
        let (right, bottom) = (end.right() + half, end.bottom() + half);
        for x in 1..columns {
            if let Some((width, gap)) = self.border(x, self.grid.tile.0, self.grid.die.0) {
                let at = self.column(x) - half - gap / 2.0;
                scene.line((at, top), (at, bottom), width, AXIS);
            }
        }
        for y in 1..rows {
            if let Some((width, gap)) = self.border(y, self.grid.tile.1, self.grid.die.1) {
                let at = self.row(y) - half - gap / 2.0;
                scene.line((left, at), (right, at), width, AXIS);
            }
        }
        let step = if self.pitch * 5.0 < 40.0 { 10 * (8.0 / self.pitch).ceil() as usize } else { 5 };
        for x in (0..columns).step_by(step) {
            let at = self.unit([x, 0]);
            scene.text((at.left + at.width / 2.0, top - self.edges.0 + 22.0), Anchor::Middle, NUMBER, &x.to_string());
        }
        for y in (0..rows).step_by(step) {
            let at = self.unit([0, y]);
            scene.text((left - 34.0, at.top + at.height / 2.0), Anchor::End, NUMBER, &y.to_string());
        }
    }

    /// Whether the grid has more than one die, and more than one tile on a die.
    pub(super) fn parts(&self) -> (bool, bool) {
        let grid = self.grid;
        (grid.die != (grid.columns, grid.rows), grid.tile != grid.die)
    }

    /// Width of the line before column or row `at`, and of the gap it stands in.
    fn border(&self, at: u32, tile: u32, die: u32) -> Option<(u32, f64)> {
        let (tile_ends, die_ends) = (at.is_multiple_of(tile.max(1)), at.is_multiple_of(die.max(1)));
        match (tile_ends, die_ends) {
            (_, true) => Some((DIE_BORDER, self.gaps.1 + if tile_ends { self.gaps.0 } else { 0.0 })),
            (true, false) => Some((TILE_BORDER, self.gaps.0)),
            (false, false) => None,
        }
    }
}

/// Whether an AGCU stands above or below the grid, not beside it.
fn is_vertical(agcu: &Agcu, grid: &Grid) -> bool {
    agcu.site.x != 0 && agcu.site.x + 1 != grid.columns
}
