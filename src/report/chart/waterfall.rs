//! A waterfall: full bars at its ends, a hanging bar a step, the factor over each.

use super::axis::{Linear, SECONDS};
use super::palette::{AXIS, Color, GREEN, GRID, MUTED, VERMILLION};
use super::scene::{Anchor, Area, Face, Scene};
use super::{ChartError, LABEL, MARGIN, STRONG, SUBTITLE, TICK, TITLE, WIDTH, paint};
use crate::report::human::{shorten, si};
use crate::report::waterfall::Waterfall;

const HEIGHT: f64 = 560.0;
/// Share of a column that its bar takes.
const BAR: f64 = 0.62;
const END: Color = Color(0x4d, 0x6a, 0x8a);

/// A picture of a waterfall.
#[derive(Debug, Clone, Copy)]
pub struct WaterfallChart<'a>(pub &'a Waterfall);

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
        let Waterfall { title, about, start, start_s, end, end_s, speedup, steps } = self.0;
        let mut scene = Scene::new(WIDTH, HEIGHT);
        scene.text((MARGIN, 36.0), Anchor::Start, TITLE, &shorten(title, 80));
        scene.text((MARGIN, 62.0), Anchor::Start, SUBTITLE, &shorten(about, 140));
        let plot = Area { left: MARGIN + 46.0, top: 110.0, width: WIDTH - 2.0 * MARGIN - 46.0, height: HEIGHT - 210.0 };
        let most = steps.iter().map(|step| step.time_s).fold(start_s.max(*end_s), f64::max);
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
        let mut before = *start_s;
        label(0, start, y(before), [&si(before, "s"), ""]);
        for (at, step) in steps.iter().enumerate() {
            let factor = format!("{:.2}x", step.factor);
            label(at + 1, &step.name, y(before.max(step.time_s)), [&factor, &si(step.time_s, "s")]);
            before = step.time_s;
        }
        let last = steps.len() + 1;
        label(last, end, y(*end_s), [&si(*end_s, "s"), &format!("{speedup:.2}x in all")]);

        scene.fill(bar(0, *start_s, 0.0), END);
        let mut before = *start_s;
        for (at, step) in steps.iter().enumerate() {
            let color = if step.time_s <= before { GREEN } else { VERMILLION };
            let area = bar(at + 1, before, step.time_s);
            scene.fill(Area { height: area.height.max(2.0), ..area }, color);
            // The level it starts from.
            let from = bar(at, 0.0, 0.0).right();
            scene.line((from, y(before)), (area.left, y(before)), 1, AXIS);
            before = step.time_s;
        }
        let area = bar(last, *end_s, 0.0);
        scene.line((bar(last - 1, 0.0, 0.0).right(), y(*end_s)), (area.left, y(*end_s)), 1, AXIS);
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
        let steps = [("chip: SN40L kernel by kernel", 5.0), ("fusion", 2.5), ("sparsity 87.5 %", 0.7)];
        let waterfall = Waterfall::new("From here to there", "seconds a step", ("A100 dense", 3.0), &steps, "SN40L");
        let scene = WaterfallChart(&waterfall).scene();
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
