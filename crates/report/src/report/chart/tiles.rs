//! All tiles of a chip in one step: what each holds, and how long each works.

use crate::map::{StepPlace, TileMap};
use crate::report::figures::quotient;
use crate::report::human::{bytes, percent, shorten, whole};

use super::frame::{LABEL, MARGIN, STRONG, SUBTITLE, TICK, TITLE, WIDTH, fitted};
use super::paint::{self, ChartError};
use super::palette::{AXIS, BLUE, Color, GRID, ORANGE, VERMILLION, WHITE};
use super::scene::{Anchor, Area, Scene};

/// Most tiles along an edge of the picture.
const MOST_TILES: u64 = 1 << 16;
/// Steps of a scale.
const STEPS: usize = 5;
/// Room between the two panels.
const GAP: f64 = 44.0;

/// A picture of one step of a map.
#[derive(Debug, Clone, Copy)]
pub struct TileChart<'a> {
    map: &'a TileMap,
    place: StepPlace,
}

impl<'a> TileChart<'a> {
    /// The picture of a step.
    pub fn new(map: &'a TileMap, place: StepPlace) -> Self {
        Self { map, place }
    }

    /// The picture as an SVG file.
    pub fn svg(self) -> Result<String, ChartError> {
        paint::svg(&self.drawable()?)
    }

    /// The picture as a PNG file.
    pub fn png(self) -> Result<Vec<u8>, ChartError> {
        paint::png(&self.drawable()?)
    }

    fn drawable(self) -> Result<Scene, ChartError> {
        if self.map.arch.tiles > MOST_TILES { Err(ChartError::TooLarge(u32::MAX, u32::MAX)) } else { Ok(self.scene()) }
    }

    pub(super) fn scene(self) -> Scene {
        let (arch, operator) = (&self.map.arch, &self.map.operators[self.place.0]);
        let step = &operator.steps[self.place.1];
        let (columns, rows) = shape(arch.tiles);
        let width = (WIDTH - 2.0 * MARGIN - GAP) / 2.0;
        let cell = (width / columns as f64).floor().max(2.0);
        let mut scene = Scene::new(WIDTH.max(2.0 * (MARGIN + cell * columns as f64) + GAP), 0.0);
        let room = scene.width - 2.0 * MARGIN;
        let times = if step.times > 1 { format!(", {} times", whole(step.times)) } else { String::new() };
        let title = format!("{}: {} of {}{times}", self.map.mode, step.name, shorten(&operator.name, 60));
        scene.text((MARGIN, 36.0), Anchor::Start, TITLE, &fitted(&title, TITLE, room).unwrap_or_default());
        let about = format!(
            "{} on {}: {} of {} tiles work; {}",
            shorten(&self.map.workload, 40),
            shorten(&arch.name, 24),
            whole(step.tiles_at_work),
            whole(arch.tiles),
            operator.mapping
        );
        scene.text((MARGIN, 62.0), Anchor::Start, SUBTITLE, &fitted(&about, SUBTITLE, room).unwrap_or_default());
        let held = arch.reserved_bytes + operator.live_bytes;
        let busiest = step.tiles().map(|(cycles, _)| cycles).max().unwrap_or(0);
        let memory: Vec<f64> =
            step.tiles().map(|(_, bytes)| quotient((held + bytes) as f64, arch.sram_bytes as f64)).collect();
        let work: Vec<f64> = step.tiles().map(|(cycles, _)| quotient(cycles as f64, busiest as f64)).collect();
        let least = step.bytes_by_tile.iter().map(|(bytes, _)| *bytes).min().unwrap_or(0);
        let captions = [
            format!(
                "{} to {} of {} a tile",
                bytes(held + least),
                bytes(held + step.most_bytes()),
                bytes(arch.sram_bytes)
            ),
            format!("at most {} cycles, the mean {} of it", whole(busiest), percent(step.balance)),
        ];
        let labels = ["memory in use, of a tile's", "work, of the busiest tile's"];
        let mut bottom: f64 = 0.0;
        for (at, values) in [memory, work].iter().enumerate() {
            let left = MARGIN + at as f64 * (cell * columns as f64 + GAP);
            let panel = Panel { left, top: 118.0, cell, columns, rows };
            scene.text((left, 96.0), Anchor::Start, STRONG, &fitted(&captions[at], STRONG, width).unwrap_or_default());
            panel.draw(&mut scene, values, [BLUE, ORANGE][at]);
            bottom = bottom.max(panel.legend(&mut scene, labels[at], [BLUE, ORANGE][at]));
        }
        let told =
            "Tiles in the order in which the plan numbers them, row by row; their place on the die is not known.";
        scene.text((MARGIN, bottom + 18.0), Anchor::Start, TICK, told);
        scene.height = bottom + 18.0 + MARGIN;
        scene
    }
}

/// Columns and rows of so many tiles: whole rows where a number near the wanted one divides them.
fn shape(tiles: u64) -> (u64, u64) {
    let wanted = ((tiles as f64 * 1.4).sqrt().ceil() as u64).clamp(1, tiles.max(1));
    let near = (wanted.saturating_sub(8).max(1)..=wanted + 8).filter(|columns| tiles.is_multiple_of(*columns));
    let columns = near.min_by_key(|columns| columns.abs_diff(wanted)).unwrap_or(wanted);
    (columns, tiles.div_ceil(columns))
}

/// Tiles in rows.
struct Panel {
    left: f64,
    top: f64,
    cell: f64,
    columns: u64,
    rows: u64,
}

impl Panel {
    fn draw(&self, scene: &mut Scene, values: &[f64], color: Color) {
        let border = if self.cell > 5.0 { 1.0 } else { 0.0 };
        for (at, &value) in values.iter().enumerate() {
            let (x, y) = (at as u64 % self.columns, at as u64 / self.columns);
            let area = Area {
                left: self.left + x as f64 * self.cell,
                top: self.top + y as f64 * self.cell,
                width: self.cell - border,
                height: self.cell - border,
            };
            scene.fill(area, shade(value, color));
        }
        let (width, height) = (self.columns as f64 * self.cell, self.rows as f64 * self.cell);
        let frame = Area { left: self.left - 2.0, top: self.top - 2.0, width: width + 3.0, height: height + 3.0 };
        scene.frame(frame, AXIS);
    }

    /// The scale under the tiles; returns where it ends.
    fn legend(&self, scene: &mut Scene, label: &str, color: Color) -> f64 {
        let top = self.top + self.rows as f64 * self.cell + 14.0;
        let width = (self.columns as f64 * self.cell / (STEPS + 1) as f64).floor();
        for step in 0..=STEPS {
            let left = self.left + step as f64 * width;
            let (value, told) = if step == 0 {
                (0.0, "none".to_owned())
            } else {
                let end = step as f64 / STEPS as f64;
                (end, format!("{} %", (end * 100.0).round()))
            };
            scene.fill(Area { left, top, width: width - 4.0, height: 12.0 }, shade(value, color));
            scene.text((left, top + 24.0), Anchor::Start, TICK, &told);
        }
        scene.text((self.left, top + 46.0), Anchor::Start, LABEL, label);
        top + 56.0
    }
}

/// The colour of a share: the darker the more, and another beyond all of it.
fn shade(value: f64, color: Color) -> Color {
    if value <= 0.0 {
        return GRID.tint(0.4);
    }
    if value > 1.0 + 1e-9 {
        return VERMILLION;
    }
    let step = (value * STEPS as f64).ceil().clamp(1.0, STEPS as f64);
    if step >= STEPS as f64 { color } else { mixed(color, 1.0 - step / STEPS as f64) }
}

fn mixed(color: Color, share: f64) -> Color {
    if share >= 1.0 { WHITE } else { color.tint(share) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_fill_whole_rows_where_they_can() {
        assert_eq!(shape(1472), (46, 32));
        assert_eq!(shape(1344), (42, 32));
        assert_eq!(shape(1), (1, 1));
        let (columns, rows) = shape(1471);
        assert!(columns * rows >= 1471 && columns * (rows - 1) < 1471);
    }

    #[test]
    fn more_is_darker_and_too_much_is_told_apart() {
        let light = |value: f64| u32::from(shade(value, BLUE).0) + u32::from(shade(value, BLUE).1);
        assert!(light(0.1) > light(0.4) && light(0.4) > light(0.9));
        assert_eq!(shade(1.0, BLUE), BLUE);
        assert_eq!(shade(1.1, BLUE), VERMILLION);
    }
}
