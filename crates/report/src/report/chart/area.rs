//! Quantities over time that add up, as filled steps on top of each other, with what they may be at most.

use super::axis::{BYTES, Linear, SECONDS, Units};
use super::bars::{Fill, Key, legend};
use super::frame::{LABEL, MARGIN, SUBTITLE, TICK, TITLE, WIDTH};
use super::paint::{self, ChartError};
use super::palette::{AXIS, GRID, INK, SERIES};
use super::scene::{Anchor, Area, Scene};

const HEIGHT: f64 = 470.0;
/// Width of a step: samples within one are drawn as the largest of them.
const STEP: f64 = 2.0;
/// A limit so many times what there is at most is named, not drawn: what there is would be a line.
const FAR: f64 = 5.0;
/// Things.
const COUNTS: [(f64, &str); 3] = [(1.0, ""), (1e3, "thousand"), (1e6, "million")];

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    /// Bytes.
    Bytes,
    /// Things, by their number.
    Things,
}

/// Quantities over time.
#[derive(Debug, Clone, PartialEq)]
pub struct AreaChart {
    /// What is shown.
    pub title: String,
    /// On what.
    pub about: String,
    /// Name of the upright axis.
    pub y_name: String,
    /// What is counted.
    pub counted: Counted,
    /// Names of the quantities, the lowest first.
    pub layers: Vec<String>,
    /// Seconds, by rising time, and as many values as there are layers, which hold from the time before.
    pub points: Vec<(f64, Vec<f64>)>,
    /// The most that all of them may be, with its name.
    pub limit: Option<(String, f64)>,
}

impl AreaChart {
    /// The picture as an SVG file.
    pub fn svg(&self) -> Result<String, ChartError> {
        paint::svg(&self.scene())
    }

    /// The picture as a PNG file.
    pub fn png(&self) -> Result<Vec<u8>, ChartError> {
        paint::png(&self.scene())
    }

    /// The largest sum of all quantities.
    fn most(&self) -> f64 {
        self.points.iter().map(|(_, values)| values.iter().sum()).fold(0.0, f64::max)
    }

    /// Values of the sample in a span of time whose sum is the largest; between samples those of the next one.
    fn steps(&self, spans: usize, end: f64) -> Vec<&[f64]> {
        let mut at = 0;
        let step = |span: usize| {
            let until = end * (span + 1) as f64 / spans as f64;
            let from = at.min(self.points.len().saturating_sub(1));
            while self.points.get(at).is_some_and(|(seconds, _)| *seconds <= until) {
                at += 1;
            }
            let within = self.points.get(from..at.max(from + 1)).unwrap_or_default();
            let sum = |values: &[f64]| values.iter().sum::<f64>();
            let most = within.iter().map(|(_, values)| values.as_slice()).max_by(|a, b| sum(a).total_cmp(&sum(b)));
            most.unwrap_or_default()
        };
        (0..spans).map(step).collect()
    }

    fn scene(&self) -> Scene {
        let mut scene = Scene::new(WIDTH, HEIGHT);
        scene.text((MARGIN, 36.0), Anchor::Start, TITLE, &self.title);
        let (most, end) = (self.most(), self.points.last().map_or(1.0, |(seconds, _)| seconds.max(1e-12)));
        let near = self.limit.as_ref().filter(|(_, limit)| *limit <= FAR * most);
        scene.text((MARGIN, 62.0), Anchor::Start, SUBTITLE, &self.about);
        let top = near.map_or(most, |(_, limit)| limit.max(most)).max(1e-12) * 1.04;
        let plot = Area { left: MARGIN + 56.0, top: 112.0, width: WIDTH - 2.0 * MARGIN - 60.0, height: HEIGHT - 230.0 };
        let units: &Units = if self.counted == Counted::Bytes { &BYTES } else { &COUNTS };
        let (x, y) = (Linear::new(end, &SECONDS), Linear::new(top, units));
        for (value, label) in &x.ticks {
            let at = plot.left + value / end * plot.width;
            scene.line((at, plot.bottom()), (at, plot.bottom() + 5.0), 1, AXIS);
            scene.text((at, plot.bottom() + 18.0), Anchor::Middle, TICK, label);
        }
        for (value, label) in &y.ticks {
            let at = plot.bottom() - value / top * plot.height;
            scene.line((plot.left, at), (plot.right(), at), 1, GRID);
            scene.text((plot.left - 10.0, at), Anchor::End, TICK, label);
        }
        let unit = if y.unit.is_empty() { String::new() } else { format!(", {}", y.unit) };
        scene.text((plot.left, plot.top - 18.0), Anchor::Start, LABEL, &format!("{}{unit}", self.y_name));
        scene.text((plot.right(), plot.bottom() + 42.0), Anchor::End, LABEL, &format!("time, {}", x.unit));
        self.draw(&mut scene, plot, end, top);
        scene.frame(plot, AXIS);
        if let Some((_, limit)) = near {
            let at = plot.bottom() - limit / top * plot.height;
            scene.dashes((plot.left, at), (plot.right(), at), 6.0, INK);
        }
        let mut keys: Vec<Key> = (self.layers.iter().enumerate())
            .map(|(at, name)| Key::Fill(Fill::Solid(SERIES[at % SERIES.len()]), name.clone()))
            .collect();
        if let Some((name, _)) = &self.limit {
            keys.push(Key::Mark(name.clone()));
        }
        if near.is_none() {
            keys.truncate(self.layers.len());
        }
        scene.height = legend(&mut scene, plot.bottom() + 74.0, &keys) + MARGIN;
        if let Some((name, limit)) = self.limit.as_ref().filter(|_| near.is_none()) {
            let (size, unit) = units.iter().rev().find(|(size, _)| limit >= size).unwrap_or(&units[0]);
            let text = format!("{name}: {:.1} {unit}, {:.0} times the most", limit / size, limit / most.max(1e-12));
            scene.text((plot.right(), plot.top - 18.0), Anchor::End, LABEL, &text);
        }
        scene
    }

    /// The filled steps; neighbours that are equal are one.
    fn draw(&self, scene: &mut Scene, plot: Area, end: f64, top: f64) {
        let spans = (plot.width / STEP) as usize;
        let width = plot.width / spans as f64;
        let mut at = 0;
        for run in self.steps(spans, end).chunk_by(|a, b| a == b) {
            let left = plot.left + at as f64 * width;
            at += run.len();
            let mut base = plot.bottom();
            for (layer, value) in run[0].iter().enumerate() {
                let height = value / top * plot.height;
                base -= height;
                scene.fill(
                    Area { left, top: base, width: run.len() as f64 * width, height },
                    SERIES[layer % SERIES.len()],
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(limit: f64) -> AreaChart {
        AreaChart {
            title: "t".into(),
            about: "a".into(),
            y_name: "bytes".into(),
            counted: Counted::Bytes,
            layers: vec!["weights".into(), "keys".into()],
            points: vec![(1.0, vec![4.0, 0.0]), (2.0, vec![4.0, 6.0]), (4.0, vec![4.0, 2.0])],
            limit: Some(("capacity".into(), limit)),
        }
    }

    #[test]
    fn steps_hold_from_the_sample_before_and_keep_peaks() {
        let chart = chart(12.0);
        let steps = chart.steps(4, 4.0);
        assert_eq!(steps, [[4.0, 0.0], [4.0, 6.0], [4.0, 2.0], [4.0, 2.0]]);
        // In one step the largest is left.
        assert_eq!(chart.steps(1, 4.0), [[4.0, 6.0]]);
    }

    #[test]
    fn a_limit_that_is_near_is_drawn_and_one_that_is_far_is_named() {
        let svg = |limit: f64| chart(limit).svg().expect("is drawn");
        assert!(svg(12.0).contains("capacity") && !svg(12.0).contains("times the most"));
        assert!(svg(1e6).contains("times the most"));
        assert!(!chart(12.0).png().expect("is drawn").is_empty());
        let empty = AreaChart { points: Vec::new(), limit: None, ..chart(1.0) };
        assert!(empty.svg().is_ok());
    }
}
