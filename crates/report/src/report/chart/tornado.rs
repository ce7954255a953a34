//! A tornado: what a quantity becomes when one thing is changed, a bar each, the widest on top, to both sides of what it is now.

use crate::report::human::{percent, shorten, si};

use super::frame::{LABEL, MARGIN, STRONG, SUBTITLE, TICK, TITLE, WIDTH, fitted};
use super::paint::{self, ChartError};
use super::palette::{Color, GRID, INK, MUTED};
use super::scene::{Anchor, Area, Face, Scene};

/// Distance from bar to bar, and height of a bar.
const ROW: f64 = 44.0;
const BAR: f64 = 24.0;
/// Width of the names.
const NAMES: f64 = 380.0;
/// Room beside the longest bars for their numbers.
const NUMBERS: f64 = 84.0;
/// Bars that are drawn; the page says how many are not.
const MOST_ROWS: usize = 24;
/// Changes below this share are told in one line.
const LEAST: f64 = 0.001;

/// What one change leads to.
#[derive(Debug, Clone, PartialEq)]
pub struct TornadoRow {
    /// What is changed, in a word or two.
    pub name: String,
    /// How it is changed.
    pub step: String,
    /// What the quantity is then, for each of the chart's ends; none where it cannot be.
    pub values: Vec<Option<f64>>,
}

/// A tornado of a time in seconds.
#[derive(Debug, Clone, PartialEq)]
pub struct TornadoChart {
    /// What is shown.
    pub title: String,
    /// On what it was measured.
    pub about: String,
    /// What it is without a change, seconds.
    pub base_s: f64,
    /// What the values of each row are of: one name or two.
    pub ends: Vec<String>,
    /// The rows, in any order.
    pub rows: Vec<TornadoRow>,
}

impl TornadoRow {
    /// The largest change to either side, relative to `base`.
    fn largest(&self, base: f64) -> f64 {
        self.values.iter().flatten().map(|value| ((value - base) / base).abs()).fold(0.0, f64::max)
    }
}

impl TornadoChart {
    /// The picture as an SVG file.
    pub fn svg(&self) -> Result<String, ChartError> {
        paint::svg(&self.scene())
    }

    /// The picture as a PNG file.
    pub fn png(&self) -> Result<Vec<u8>, ChartError> {
        paint::png(&self.scene())
    }

    pub(super) fn scene(&self) -> Scene {
        let base = self.base_s;
        let (mut told, little): (Vec<&TornadoRow>, Vec<&TornadoRow>) =
            self.rows.iter().partition(|row| row.largest(base) >= LEAST);
        // Stable: of equals the order that is given.
        told.sort_by(|a, b| b.largest(base).total_cmp(&a.largest(base)));
        let left_out = told.len().saturating_sub(MOST_ROWS);
        told.truncate(MOST_ROWS);
        let top = 150.0;
        let bottom = top + told.len().max(1) as f64 * ROW;
        let mut scene = Scene::new(WIDTH, bottom + 96.0);
        scene.text((MARGIN, 36.0), Anchor::Start, TITLE, &shorten(&self.title, 80));
        scene.text((MARGIN, 62.0), Anchor::Start, SUBTITLE, &shorten(&self.about, 140));
        self.keys(&mut scene);
        let plot = Area { left: MARGIN + NAMES, top, width: WIDTH - 2.0 * MARGIN - NAMES, height: bottom - top };
        let scale = Scale::new(plot, base, &told);
        for (value, label) in scale.ticks() {
            let x = scale.x(value);
            scene.line((x, top), (x, bottom), 1, GRID);
            scene.text((x, bottom + 18.0), Anchor::Middle, TICK, &label);
        }
        let x = scale.x(base);
        scene.text((x, top - 12.0), Anchor::Middle, STRONG, &si(base, "s"));
        scene.text((WIDTH - MARGIN, bottom + 42.0), Anchor::End, TICK, "change of the time; to the left it is shorter");
        for (at, row) in told.iter().enumerate() {
            let middle = top + (at as f64 + 0.5) * ROW;
            Self::row(&mut scene, row, middle, &scale);
        }
        scene.line((x, top - 2.0), (x, bottom), 2, INK);
        if told.is_empty() {
            scene.text((x - 12.0, top + ROW / 2.0), Anchor::End, LABEL, "Nothing changes the time.");
        }
        let mut notes = Vec::new();
        if !little.is_empty() {
            let mut names: Vec<&str> = Vec::new();
            for row in &little {
                if !names.contains(&row.name.as_str()) {
                    names.push(&row.name);
                }
            }
            notes.push(format!("Less than {} either way: {}.", percent(LEAST), names.join(", ")));
        }
        if left_out > 0 {
            notes.push(format!("{left_out} more change less than the last bar."));
        }
        if let Some(note) = fitted(&notes.join(" "), SUBTITLE, WIDTH - 2.0 * MARGIN).filter(|note| !note.is_empty()) {
            scene.text((MARGIN, bottom + 70.0), Anchor::Start, SUBTITLE, &note);
        }
        scene
    }

    fn keys(&self, scene: &mut Scene) {
        let mut left = MARGIN;
        for (end, name) in self.ends.iter().enumerate() {
            scene.fill(Area { left, top: 86.0, width: 22.0, height: 16.0 }, Self::color(end));
            scene.text((left + 30.0, 94.0), Anchor::Start, LABEL, name);
            left += 54.0 + LABEL.width(name);
        }
    }

    fn color(end: usize) -> Color {
        super::palette::ENDS[end.min(1)]
    }

    fn row(scene: &mut Scene, row: &TornadoRow, middle: f64, scale: &Scale) {
        let names = NAMES - 16.0;
        let name = fitted(&row.name, LABEL, names).unwrap_or_default();
        let face = Face { color: MUTED, em: 12.5, ..LABEL };
        let step = fitted(&row.step, face, names).unwrap_or_default();
        let up = if step.is_empty() { 0.0 } else { 9.0 };
        scene.text((MARGIN, middle - up), Anchor::Start, LABEL, &name);
        scene.text((MARGIN, middle + 10.0), Anchor::Start, face, &step);
        let base = scale.x(scale.base);
        // The longer of two bars on one side is behind the shorter.
        let mut bars: Vec<(usize, f64)> =
            row.values.iter().enumerate().filter_map(|(end, v)| Some((end, (*v)?))).collect();
        bars.sort_by(|a, b| (b.1 - scale.base).abs().total_cmp(&(a.1 - scale.base).abs()));
        for &(end, value) in &bars {
            let x = scale.x(value);
            let area =
                Area { left: x.min(base), top: middle - BAR / 2.0, width: (x - base).abs().max(1.0), height: BAR };
            scene.fill(area, Self::color(end));
        }
        // One number a side: that of the longest bar.
        for shorter in [true, false] {
            let longest =
                bars.iter().find(|(_, value)| (*value < scale.base) == shorter && (*value - scale.base).abs() > 0.0);
            let Some((_, value)) = longest else { continue };
            let share = (value - scale.base) / scale.base;
            let (at, anchor) = if shorter { (-6.0, Anchor::End) } else { (6.0, Anchor::Start) };
            scene.text((scale.x(*value) + at, middle), anchor, TICK, &signed(share));
        }
        if row.values.iter().any(Option::is_none) {
            let at = bars.iter().map(|(_, value)| scale.x(*value)).fold(base, f64::max) + 62.0;
            scene.text((at, middle), Anchor::Start, TICK, "one end alone");
        }
    }
}

/// A change with its sign: `+3.2 %`, `-12.0 %` with a true minus.
fn signed(share: f64) -> String {
    let sign = if share < 0.0 { "\u{2212}" } else { "+" };
    format!("{sign}{}", percent(share.abs()))
}

/// Where times lie.
struct Scale {
    base: f64,
    left: f64,
    /// Pixels of the whole time.
    per_base: f64,
    /// Least and most change, as shares.
    low: f64,
    high: f64,
}

impl Scale {
    fn new(plot: Area, base: f64, rows: &[&TornadoRow]) -> Self {
        let changes = || rows.iter().flat_map(|row| row.values.iter().flatten()).map(|value| (value - base) / base);
        let (low, high) = (changes().fold(0.0, f64::min), changes().fold(0.0, f64::max));
        let room = |change: f64| if change == 0.0 { 44.0 } else { NUMBERS };
        let width = plot.width - room(low) - room(high);
        let per_base = if high > low { width / (high - low) } else { 0.0 };
        Self { base, left: plot.left + room(low) - low * per_base, per_base, low, high }
    }

    fn x(&self, value: f64) -> f64 {
        self.left + (value - self.base) / self.base * self.per_base
    }

    /// Round changes, at most nine.
    fn ticks(&self) -> Vec<(f64, String)> {
        let step = super::axis::round_step((self.high - self.low) / 6.0);
        let decimals = (-(step * 100.0).log10().floor()).max(0.0) as usize;
        let all = (self.low / step).ceil() as i64..=(self.high / step).floor() as i64;
        let label = |times: i64| {
            if times == 0 {
                return "0".to_owned();
            }
            let sign = if times < 0 { "\u{2212}" } else { "+" };
            format!("{sign}{:.decimals$} %", times.unsigned_abs() as f64 * step * 100.0)
        };
        all.take(9).map(|times| (self.base * (1.0 + times as f64 * step), label(times))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::scene::Shape;
    use super::*;

    fn row(name: &str, values: &[Option<f64>]) -> TornadoRow {
        TornadoRow { name: name.to_owned(), step: format!("a step of {name}"), values: values.to_vec() }
    }

    fn texts(scene: &Scene) -> Vec<(f64, &str)> {
        let text =
            |shape| if let &Shape::Text { at, ref text, .. } = shape { Some((at.1, text.as_str())) } else { None };
        scene.shapes.iter().filter_map(text).collect()
    }

    #[test]
    fn bars_are_sorted_and_lie_on_their_side() {
        let rows = vec![
            row("small", &[Some(0.99), Some(1.02)]),
            row("none", &[Some(1.0), Some(1.0002)]),
            row("large", &[Some(0.8), Some(1.5)]),
            row("half", &[None, Some(1.1)]),
        ];
        let ends = vec!["low".to_owned(), "high".to_owned()];
        let chart = TornadoChart { title: "t".into(), about: "a".into(), base_s: 1.0, ends, rows };
        let scene = chart.scene();
        let texts = texts(&scene);
        let at = |wanted: &str| {
            texts.iter().find(|(_, text)| *text == wanted).unwrap_or_else(|| panic!("{wanted} {texts:?}")).0
        };
        assert!(at("large") < at("half") && at("half") < at("small"));
        for number in ["\u{2212}20.0 %", "+50.0 %", "+10.0 %", "\u{2212}1.0 %", "+2.0 %"] {
            at(number);
        }
        assert!(texts.iter().any(|(_, text)| text.starts_with("Less than 0.1 % either way: none.")), "{texts:?}");
        let base = scene.shapes.iter().find_map(|shape| match shape {
            Shape::Line { from, width: 2, color, .. } if *color == INK => Some(from.0),
            _ => None,
        });
        let base = base.expect("the line of the base");
        for shape in &scene.shapes {
            if let Shape::Fill(area, _) = shape
                && area.height == BAR
            {
                assert!(area.right() <= base + 1.0 || area.left >= base - 1.0, "{area:?} {base}");
                assert!(area.left >= MARGIN + NAMES && area.right() <= WIDTH - MARGIN, "{area:?}");
            }
        }
    }

    #[test]
    fn nothing_to_show_is_said() {
        let chart = TornadoChart {
            title: "t".into(),
            about: "a".into(),
            base_s: 1.0,
            ends: vec!["x".into()],
            rows: Vec::new(),
        };
        assert!(texts(&chart.scene()).iter().any(|(_, text)| *text == "Nothing changes the time."));
        assert!(!chart.png().expect("is drawn").is_empty());
    }
}
