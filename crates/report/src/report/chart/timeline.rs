//! The schedule of a step: what each stage does when.

use super::axis::{Linear, SECONDS};
use super::frame::{LABEL, MARGIN, SUBTITLE, TICK, TITLE, WIDTH};
use super::paint::{self, ChartError};
use super::palette::{AXIS, BLUE, Color, GREEN, GRID, ORANGE, PURPLE, SKY, VERMILLION, YELLOW};
use super::scene::{Anchor, Area, Face, Scene};
use rdusim_pod::{Simulated, SpanKind};

/// Height of a stage.
const ROW: f64 = 26.0;
/// Most stages that are drawn: every so many of more.
const MOST_ROWS: usize = 64;
/// Spans narrower than this many pixels are drawn with their neighbours of the same kind.
const NARROW: f64 = 0.4;

/// The picture.
#[derive(Debug, Clone)]
pub struct TimelineChart<'a> {
    /// What is shown.
    pub title: String,
    /// Of what.
    pub about: String,
    /// The schedule in time.
    pub step: &'a Simulated,
}

const KINDS: [(SpanKind, Color, &str); 7] = [
    (SpanKind::Forward, SKY, "forward"),
    (SpanKind::Backward, BLUE, "backward"),
    (SpanKind::Transfer, VERMILLION, "waits for a transfer"),
    (SpanKind::Reduce, ORANGE, "reduces gradients"),
    (SpanKind::Optimizer, GREEN, "optimiser"),
    (SpanKind::Weights, PURPLE, "gradients of weights"),
    (SpanKind::Sharded, YELLOW, "waits for replicas"),
];

impl TimelineChart<'_> {
    /// The picture as an SVG file.
    pub fn svg(&self) -> Result<String, ChartError> {
        paint::svg(&self.scene())
    }

    /// The picture as a PNG file.
    pub fn png(&self) -> Result<Vec<u8>, ChartError> {
        paint::png(&self.scene())
    }

    fn scene(&self) -> Scene {
        let actors = self.step.spent.len();
        let every = actors.div_ceil(MOST_ROWS).max(1);
        let rows = actors.div_ceil(every);
        let plot =
            Area { left: MARGIN + 70.0, top: 118.0, width: WIDTH - 2.0 * MARGIN - 80.0, height: rows as f64 * ROW };
        let mut scene = Scene::new(WIDTH, plot.bottom() + 60.0);
        scene.text((MARGIN, 36.0), Anchor::Start, TITLE, &self.title);
        scene.text((MARGIN, 62.0), Anchor::Start, SUBTITLE, &self.about);
        let mut left = MARGIN;
        let occurs = |kind: SpanKind| self.step.spans.iter().any(|span| span.kind == kind);
        let is_rare = |kind: SpanKind| matches!(kind, SpanKind::Weights | SpanKind::Sharded);
        for (_, color, name) in KINDS.into_iter().filter(|(kind, ..)| !is_rare(*kind) || occurs(*kind)) {
            scene.fill(Area { left, top: 84.0, width: 14.0, height: 14.0 }, color);
            let face = Face { em: 13.0, ..LABEL };
            scene.text((left + 20.0, 91.0), Anchor::Start, face, name);
            left += 46.0 + face.width(name);
        }
        let seconds = self.step.end as f64 / 1e9;
        let axis = Linear::new(seconds, &SECONDS);
        let x = |ns: u64| plot.left + ns as f64 / self.step.end.max(1) as f64 * plot.width;
        for (value, label) in &axis.ticks {
            let at = plot.left + value / seconds.max(f64::MIN_POSITIVE) * plot.width;
            scene.line((at, plot.top), (at, plot.bottom()), 1, GRID);
            scene.text((at, plot.bottom() + 18.0), Anchor::Middle, TICK, label);
        }
        scene.text((plot.right(), plot.bottom() + 40.0), Anchor::End, TICK, axis.unit);
        for row in 0..rows {
            let middle = plot.top + (row as f64 + 0.5) * ROW;
            scene.text((plot.left - 8.0, middle), Anchor::End, TICK, &format!("stage {}", row * every));
        }
        // Of each row and kind, where the last span that was drawn ended.
        for row in 0..rows {
            let top = plot.top + row as f64 * ROW + 3.0;
            let mut drawn = plot.left - 1.0;
            for span in self.step.spans.iter().filter(|span| span.actor == row * every) {
                let (start, end) = (x(span.time.0), x(span.time.1));
                let Some((_, color, _)) = KINDS.iter().find(|(kind, ..)| *kind == span.kind) else { continue };
                if end - start < NARROW && end - drawn < NARROW {
                    continue;
                }
                drawn = end;
                let width = (end - start).max(NARROW);
                let height = ROW - 6.0;
                // Further parts of a stage are paler.
                let color = color.tint((0.18 * span.part as f64).min(0.6));
                scene.fill(Area { left: start, top, width, height }, color);
                if width > 3.0 {
                    scene.line((start, top), (start, top + height), 1, super::palette::WHITE);
                }
                let label = format!("{}", span.micro + 1);
                let face = Face { em: 11.0, bold: false, color: color.ink() };
                let has_number = matches!(span.kind, SpanKind::Forward | SpanKind::Backward | SpanKind::Weights);
                if has_number && face.width(&label) + 4.0 < width {
                    scene.text((start + width / 2.0, top + height / 2.0), Anchor::Middle, face, &label);
                }
            }
        }
        scene.frame(plot, AXIS);
        scene
    }
}
