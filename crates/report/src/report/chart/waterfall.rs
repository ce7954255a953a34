//! A waterfall: full bars at its ends, a hanging bar a step, the factor over each.

use crate::report::human::{shorten, si};
use crate::report::waterfall::Waterfall;

use super::axis::{Linear, SECONDS};
use super::frame::{LABEL, MARGIN, STRONG, SUBTITLE, TICK, TITLE, WIDTH};
use super::paint::{self, ChartError};
use super::palette::{AXIS, Color, GREEN, GRID, MUTED, VERMILLION};
use super::scene::{Anchor, Area, Face, Scene};

const HEIGHT: f64 = 560.0;
/// Share of a column that its bar takes.
const BAR: f64 = 0.62;
const END: Color = Color(0x4d, 0x6a, 0x8a);

/// A picture of a waterfall.
#[derive(Debug, Clone, Copy)]
pub struct WaterfallChart<'a> {
    /// What is shown.
    pub waterfall: &'a Waterfall,
    /// One line on what the times are of.
    pub about: &'a str,
}

impl WaterfallChart<'_> {
    /// The picture as an SVG file.
    pub fn svg(self) -> Result<String, ChartError> {
        paint::svg(&self.scene())
    }

    /// The picture as a PNG file.
    pub fn png(self) -> Result<Vec<u8>, ChartError> {
        paint::png(&self.scene())
    }

    pub(super) fn scene(self) -> Scene {
        let Self { waterfall, about } = self;
        let Waterfall { title, from, to, steps } = waterfall;
        let (start_s, end_s) = waterfall.ends_s();
        let mut scene = Scene::new(WIDTH, HEIGHT);
        scene.text((MARGIN, 36.0), Anchor::Start, TITLE, &shorten(title, 80));
        scene.text((MARGIN, 62.0), Anchor::Start, SUBTITLE, &shorten(about, 140));
        let plot = Area { left: MARGIN + 46.0, top: 126.0, width: WIDTH - 2.0 * MARGIN - 46.0, height: HEIGHT - 226.0 };
        let most = steps.iter().map(|step| step.end_s).fold(start_s, f64::max);
        let axis = Linear::new(most, &SECONDS);
        let scale = if most > 0.0 { plot.height / most } else { 0.0 };
        let y = |time_s: f64| plot.bottom() - time_s * scale;
        for (value, label) in &axis.ticks {
            scene.line((plot.left, y(*value)), (plot.right(), y(*value)), 1, GRID);
            scene.text((plot.left - 8.0, y(*value)), Anchor::End, TICK, label);
        }
        scene.line((plot.left, plot.bottom()), (plot.right(), plot.bottom()), 1, AXIS);
        scene.text((plot.left - 8.0, plot.top - 20.0), Anchor::End, TICK, axis.unit);

        let column = plot.width / (steps.len() + 2) as f64;
        let bar = |at: usize, from: f64, to: f64| Area {
            left: plot.left + (at as f64 + (1.0 - BAR) / 2.0) * column,
            top: y(from.max(to)),
            width: column * BAR,
            height: (from - to).abs() * scale,
        };
        let mut label = |at: usize, name: &str, top: f64, over: [&str; 2]| {
            let x = plot.left + (at as f64 + 0.5) * column;
            scene.text((x, top - 30.0), Anchor::Middle, STRONG, over[0]);
            scene.text((x, top - 12.0), Anchor::Middle, Face { color: MUTED, ..LABEL }, over[1]);
            for (row, line) in wrapped(name, column - 8.0).iter().enumerate() {
                scene.text((x, plot.bottom() + 20.0 + row as f64 * 18.0), Anchor::Middle, LABEL, line);
            }
        };
        label(0, from, y(start_s), [&si(start_s, "s"), ""]);
        for (at, step) in steps.iter().enumerate() {
            let factor = format!("{:.2}x", step.factor());
            label(at + 1, &step.label, y(step.start_s.max(step.end_s)), [&factor, &si(step.end_s, "s")]);
        }
        let last = steps.len() + 1;
        label(last, to, y(end_s), [&si(end_s, "s"), &format!("{:.2}x in all", waterfall.speedup())]);

        scene.fill(bar(0, start_s, 0.0), END);
        for (at, step) in steps.iter().enumerate() {
            let color = if step.end_s <= step.start_s { GREEN } else { VERMILLION };
            let area = bar(at + 1, step.start_s, step.end_s);
            scene.fill(Area { height: area.height.max(2.0), ..area }, color);
            // The level it starts from.
            let left = bar(at, 0.0, 0.0).right();
            scene.line((left, y(step.start_s)), (area.left, y(step.start_s)), 1, AXIS);
        }
        let area = bar(last, end_s, 0.0);
        scene.line((bar(last - 1, 0.0, 0.0).right(), y(end_s)), (area.left, y(end_s)), 1, AXIS);
        scene.fill(area, END);
        scene
    }
}

/// A name over lines of at most `room`.
fn wrapped(name: &str, room: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in name.split(' ').map(|word| shorten(word, 24)) {
        match lines.last_mut() {
            Some(line) if LABEL.width(&format!("{line} {word}")) <= room => {
                line.push(' ');
                line.push_str(&word);
            }
            _ => lines.push(word),
        }
    }
    lines.truncate(4);
    lines
}

#[cfg(test)]
mod tests {
    use super::super::scene::Shape;
    use super::*;

    #[test]
    fn every_factor_is_written_and_nothing_lies_outside() {
        let steps = [("chip: SN40L kernel by kernel", 5.0, ""), ("fusion", 2.5, ""), ("sparsity 87.5 %", 0.7, "")];
        let waterfall = Waterfall::between("From here to there", ("A100 dense", 3.0), &steps, "SN40L");
        let scene = WaterfallChart { waterfall: &waterfall, about: "seconds a step" }.scene();
        let texts: Vec<&str> = scene
            .shapes
            .iter()
            .filter_map(|shape| if let Shape::Text { text, .. } = shape { Some(text.as_str()) } else { None })
            .collect();
        for expected in ["0.60x", "2.00x", "3.57x", "4.29x in all"] {
            assert!(texts.contains(&expected), "{expected} in {texts:?}");
        }
        for shape in &scene.shapes {
            if let Shape::Fill(area, _) = shape {
                assert!(area.top >= 0.0 && area.bottom() <= HEIGHT && area.right() <= WIDTH, "{area:?}");
            }
        }
    }
}
