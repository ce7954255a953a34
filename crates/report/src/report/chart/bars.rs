//! Horizontal bars of segments, one bar a run, over a common axis; and the legend under them.

use super::axis::Linear;
use super::frame::{LABEL, MARGIN, STRONG, TICK, WIDTH, fitted};
use super::palette::{AXIS, Color, GRID, INK, WHITE};
use super::scene::{Anchor, Area, Face, Scene};

/// Height of a bar.
const BAR: f64 = 84.0;
/// Distance from bar to bar.
const GAP: f64 = 34.0;

/// How a segment or its legend is filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fill {
    Solid(Color),
    Hatched(Color),
}

/// A part of a bar.
pub(super) struct Segment {
    /// Size in the axis's quantity.
    pub(super) size: f64,
    pub(super) fill: Fill,
    /// Written inside, shortened to the room there is.
    pub(super) name: String,
    /// Written under the name, each whole or not at all.
    pub(super) lines: Vec<String>,
}

/// A bar with its name, its total and a mark somewhere along it.
pub(super) struct Bar {
    pub(super) name: String,
    pub(super) total: String,
    pub(super) segments: Vec<Segment>,
    pub(super) mark: Option<f64>,
}

/// An entry of the legend.
pub(super) enum Key {
    Fill(Fill, String),
    Mark(String),
}

/// Draws bars, axis and legend from `top` down; gives the scene the height they need.
pub(super) fn draw(scene: &mut Scene, top: f64, bars: &[Bar], axis: &Linear, keys: &[Key]) {
    let widest = |face: Face, text: &dyn Fn(&Bar) -> &str| bars.iter().map(|b| face.width(text(b))).fold(0.0, f64::max);
    let left = MARGIN + widest(STRONG, &|bar| &bar.name) + 14.0;
    let right = WIDTH - MARGIN - widest(STRONG, &|bar| &bar.total) - 12.0;
    let longest = bars.iter().map(|bar| bar.segments.iter().map(|s| s.size).sum::<f64>()).fold(0.0, f64::max);
    let scale = if longest > 0.0 { (right - left) / longest } else { 0.0 };
    let bottom = top + 18.0 + bars.len() as f64 * (BAR + GAP) - GAP + 18.0;

    for (value, label) in &axis.ticks {
        let x = left + value * scale;
        scene.line((x, top), (x, bottom), 1, GRID);
        scene.line((x, bottom), (x, bottom + 5.0), 1, AXIS);
        scene.text((x, bottom + 17.0), Anchor::Middle, TICK, label);
    }
    scene.line((left, bottom), (right, bottom), 1, AXIS);
    scene.text((WIDTH - MARGIN, bottom + 17.0), Anchor::End, TICK, axis.unit);

    for (row, bar) in bars.iter().enumerate() {
        let y = top + 18.0 + row as f64 * (BAR + GAP);
        scene.text((left - 14.0, y + BAR / 2.0), Anchor::End, STRONG, &bar.name);
        let written = draw_segments(scene, left, y, scale, &bar.segments);
        if let Some(mark) = bar.mark {
            let x = left + mark * scale;
            scene.dashes((x, y - 9.0), (x, y + BAR + 9.0), 4.0, INK);
        }
        // Over the mark, which may cross them.
        for (area, segment, ink) in &written {
            write_inside(scene, *area, segment, *ink);
        }
        let end = left + bar.segments.iter().map(|s| s.size * scale).sum::<f64>();
        scene.text((end + 10.0, y + BAR / 2.0), Anchor::Start, STRONG, &bar.total);
    }
    scene.height = legend(scene, bottom + 52.0, keys) + MARGIN;
}

/// Returns what is to be written where, and with what ink.
fn draw_segments<'a>(
    scene: &mut Scene,
    left: f64,
    top: f64,
    scale: f64,
    segments: &'a [Segment],
) -> Vec<(Area, &'a Segment, Color)> {
    let mut x = left;
    let mut written = Vec::new();
    for segment in segments {
        let area = Area { left: x, top, width: segment.size * scale, height: BAR };
        x = area.right();
        // What would be thinner than a third of a pixel is left to its neighbours.
        if area.width < 0.3 {
            continue;
        }
        let ink = match segment.fill {
            Fill::Solid(color) => {
                scene.fill(area, color);
                color.ink()
            }
            Fill::Hatched(color) if area.width >= 3.0 => {
                scene.hatch(area, color);
                INK
            }
            Fill::Hatched(color) => {
                scene.fill(area, color.tint(0.65));
                INK
            }
        };
        if area.width > 4.0 {
            scene.line((area.right(), top), (area.right(), top + BAR), 1, WHITE);
        }
        written.push((area, segment, ink));
    }
    written
}

fn write_inside(scene: &mut Scene, area: Area, segment: &Segment, ink: Color) {
    let face = Face { color: ink, ..LABEL };
    let room = area.width - 12.0;
    let name = fitted(&segment.name, face, room);
    let mut lines: Vec<&str> = name.as_deref().into_iter().collect();
    lines.extend(segment.lines.iter().map(String::as_str).take_while(|line| face.width(line) <= room));
    if lines.is_empty() {
        return;
    }
    let first = area.top + area.height / 2.0 - (lines.len() as f64 - 1.0) * 10.0;
    for (row, line) in lines.into_iter().enumerate() {
        let at = (area.left + area.width / 2.0, first + row as f64 * 20.0);
        let text = Scene::text_area(at, Anchor::Middle, face, line);
        let behind = Area { left: text.left - 4.0, top: text.top - 3.0, width: text.width + 8.0, height: 20.0 };
        let paper = match segment.fill {
            Fill::Solid(color) => color,
            Fill::Hatched(color) => color.tint(0.65),
        };
        scene.fill(behind, paper);
        scene.text(at, Anchor::Middle, face, line);
    }
}

/// Entries in rows from `top` down; returns where they end.
pub(super) fn legend(scene: &mut Scene, top: f64, keys: &[Key]) -> f64 {
    let (mut x, mut y) = (MARGIN, top);
    for key in keys {
        let (Key::Fill(_, text) | Key::Mark(text)) = key;
        let width = 22.0 + 8.0 + LABEL.width(text);
        if x > MARGIN && x + width > WIDTH - MARGIN {
            (x, y) = (MARGIN, y + 26.0);
        }
        let swatch = Area { left: x, top: y - 8.0, width: 22.0, height: 16.0 };
        match key {
            Key::Fill(Fill::Solid(color), _) => scene.fill(swatch, *color),
            Key::Fill(Fill::Hatched(color), _) => scene.hatch(swatch, *color),
            Key::Mark(_) => scene.dashes((x + 11.0, y - 10.0), (x + 11.0, y + 10.0), 4.0, INK),
        }
        scene.text((x + 30.0, y), Anchor::Start, LABEL, text);
        x += width + 24.0;
    }
    y + 8.0
}
