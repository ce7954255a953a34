//! A validated set: published points under the simulated curves, both axes logarithmic.

use crate::report::human::percent;
use rdusim_validate::{SetReport, SetRow};

use super::axis::power_of_ten;
use super::frame::{LABEL, MARGIN, SUBTITLE, TICK, TITLE, WIDTH};
use super::paint::{self, ChartError};
use super::palette::{AXIS, BLUE, Color, GRID, INK, MUTED, VERMILLION, WHITE};
use super::scene::{Anchor, Area, Face, Scene};

const HEIGHT: f64 = 600.0;
const RADIUS: f64 = 6.0;
/// Width of the key to a curve and its label.
const KEY: f64 = 290.0;

/// A picture of one set.
#[derive(Debug, Clone, Copy)]
pub struct SetChart<'a> {
    set: &'a SetReport,
}

impl<'a> SetChart<'a> {
    /// The picture of a set whose points are numbers above zero.
    pub fn new(set: &'a SetReport) -> Self {
        Self { set }
    }

    /// The picture as an SVG file.
    pub fn svg(self) -> Result<String, ChartError> {
        paint::svg(&self.scene())
    }

    /// The picture as a PNG file.
    pub fn png(self) -> Result<Vec<u8>, ChartError> {
        paint::png(&self.scene())
    }

    fn scene(self) -> Scene {
        let set = self.set;
        let mut scene = Scene::new(WIDTH, HEIGHT);
        scene.text((MARGIN, 36.0), Anchor::Start, TITLE, &set.name);
        let about = format!("{}, published ({}) and simulated", set.chip, set.source);
        scene.text((MARGIN, 62.0), Anchor::Start, SUBTITLE, &about);
        let plot = Area { left: MARGIN + 52.0, top: 130.0, width: WIDTH - 2.0 * MARGIN - 60.0, height: HEIGHT - 200.0 };
        let axes = Axes::new(plot, &set.rows);
        axes.draw(&mut scene, &set.point, &set.quantity);
        let mut curve = |value: &dyn Fn(&SetRow) -> Option<f64>, color: Color| {
            let places: Vec<(f64, f64)> =
                set.rows.iter().filter_map(|row| Some(axes.at(row.at, value(row)?))).collect();
            for pair in places.windows(2) {
                scene.line(pair[0], pair[1], 2, color);
            }
        };
        curve(&|row| row.ideal, BLUE);
        curve(&|row| Some(row.simulated), VERMILLION);
        for row in &set.rows {
            let center = axes.at(row.at, row.published);
            scene.circle(center, RADIUS, INK);
            if row.outlier {
                scene.circle(center, RADIUS - 2.5, WHITE);
            }
        }
        let median = |error: f64| format!("median error {}", percent(error));
        let mut keys = vec![("published (hollow: outlier)".to_owned(), INK)];
        keys.push((format!("{}, {}", set.quality.name(), median(set.score.median_error)), VERMILLION));
        if let Some(ideal) = &set.ideal_score {
            keys.push((format!("ideal, {}", median(ideal.median_error)), BLUE));
        }
        for (at, (text, color)) in keys.iter().enumerate() {
            let x = plot.left + at as f64 * KEY;
            if at == 0 {
                scene.circle((x + 12.0, 96.0), RADIUS, *color);
            } else {
                scene.line((x, 96.0), (x + 24.0, 96.0), 2, *color);
            }
            scene.text((x + 34.0, 96.0), Anchor::Start, LABEL, text);
        }
        scene
    }
}

/// Logarithmic axes over whole decades.
struct Axes {
    plot: Area,
    x: (i32, i32),
    y: (i32, i32),
}

impl Axes {
    fn new(plot: Area, rows: &[SetRow]) -> Self {
        let decades = |values: &mut dyn Iterator<Item = f64>| {
            let (least, most) = values
                .filter(|value| *value > 0.0)
                .fold((f64::INFINITY, 0.0_f64), |(least, most), value| (least.min(value), most.max(value)));
            if most <= 0.0 {
                return (0, 1);
            }
            let low = least.log10().floor() as i32;
            (low, (most.log10().ceil() as i32).max(low + 1))
        };
        let x = decades(&mut rows.iter().map(|row| row.at));
        let y =
            decades(&mut rows.iter().flat_map(|row| [Some(row.published), Some(row.simulated), row.ideal]).flatten());
        Self { plot, x, y }
    }

    fn at(&self, x: f64, y: f64) -> (f64, f64) {
        let part =
            |value: f64, (low, high): (i32, i32)| (value.max(1e-300).log10() - f64::from(low)) / f64::from(high - low);
        let left = self.plot.left + part(x, self.x) * self.plot.width;
        (left, self.plot.bottom() - part(y, self.y) * self.plot.height)
    }

    fn draw(&self, scene: &mut Scene, point: &str, quantity: &str) {
        let plot = self.plot;
        let (low_x, low_y) = (10_f64.powi(self.x.0), 10_f64.powi(self.y.0));
        for decade in self.x.0..=self.x.1 {
            let (x, _) = self.at(10_f64.powi(decade), low_y);
            scene.line((x, plot.top), (x, plot.bottom()), 1, GRID);
            scene.text((x, plot.bottom() + 18.0), Anchor::Middle, TICK, &power_of_ten(decade));
        }
        for decade in self.y.0..=self.y.1 {
            let (_, y) = self.at(low_x, 10_f64.powi(decade));
            scene.line((plot.left, y), (plot.right(), y), 1, GRID);
            scene.text((plot.left - 10.0, y), Anchor::End, TICK, &power_of_ten(decade));
        }
        let between = |(low, high): (i32, i32)| {
            (low..high).flat_map(|decade| (2..10).map(move |digit| f64::from(digit) * 10_f64.powi(decade)))
        };
        for (x, _) in between(self.x).map(|x| self.at(x, low_y)) {
            scene.line((x, plot.bottom()), (x, plot.bottom() - 5.0), 1, AXIS);
        }
        for (_, y) in between(self.y).map(|y| self.at(low_x, y)) {
            scene.line((plot.left, y), (plot.left + 5.0, y), 1, AXIS);
        }
        scene.line((plot.left, plot.bottom()), (plot.right(), plot.bottom()), 1, AXIS);
        scene.line((plot.left, plot.top), (plot.left, plot.bottom()), 1, AXIS);
        let face = Face { color: MUTED, ..SUBTITLE };
        scene.text((MARGIN, plot.top - 16.0), Anchor::Start, face, quantity);
        scene.text((plot.left + plot.width / 2.0, plot.bottom() + 44.0), Anchor::Middle, face, point);
    }
}
