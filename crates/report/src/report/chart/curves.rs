//! Curves over one axis, both axes in powers of two or the upright one from zero: the plots of a study.

use super::frame::{LABEL, MARGIN, SUBTITLE, TICK, TITLE, WIDTH};
use super::paint::{self, ChartError};
use super::palette::{AXIS, Color, GRID, SERIES, WHITE};
use super::scene::{Anchor, Area, Face, Scene};

const HEIGHT: f64 = 620.0;
/// Width of the legend beside the plot.
const LEGEND: f64 = 190.0;

/// One curve: its name and its points.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    /// Name in the legend.
    pub name: String,
    /// Points by rising x, all above zero.
    pub points: Vec<(f64, f64)>,
    /// Dashed, for what is compared with.
    pub dashed: bool,
    /// The curve, by its place, whose colour it has; one of its own if nothing.
    pub like: Option<usize>,
}

/// A plot of curves with positive coordinates on axes in powers of two.
#[derive(Debug, Clone, PartialEq)]
pub struct CurveChart {
    /// What is shown.
    pub title: String,
    /// On what it was measured.
    pub about: String,
    /// Name of the level axis.
    pub x_name: String,
    /// Name of the upright axis.
    pub y_name: String,
    /// The curves, in the order of the legend.
    pub curves: Vec<Curve>,
}

impl CurveChart {
    /// The picture as an SVG file.
    pub fn svg(&self) -> Result<String, ChartError> {
        paint::svg(&self.scene())
    }

    /// The picture as a PNG file.
    pub fn png(&self) -> Result<Vec<u8>, ChartError> {
        paint::png(&self.scene())
    }

    fn scene(&self) -> Scene {
        let mut scene = Scene::new(WIDTH, HEIGHT);
        scene.text((MARGIN, 36.0), Anchor::Start, TITLE, &self.title);
        scene.text((MARGIN, 62.0), Anchor::Start, SUBTITLE, &self.about);
        let plot = Area {
            left: MARGIN + 62.0,
            top: 104.0,
            width: WIDTH - 2.0 * MARGIN - 72.0 - LEGEND,
            height: HEIGHT - 180.0,
        };
        let points = || self.curves.iter().flat_map(|curve| &curve.points).filter(|p| p.0 > 0.0 && p.1 > 0.0);
        let x = Doublings::over(points().map(|p| p.0));
        let y = Doublings::over(points().map(|p| p.1));
        for (power, label) in x.ticks() {
            let at = plot.left + x.part(power) * plot.width;
            scene.line((at, plot.top), (at, plot.bottom()), 1, GRID);
            scene.text((at, plot.bottom() + 18.0), Anchor::Middle, TICK, &label);
        }
        for (power, label) in y.ticks() {
            let at = plot.bottom() - y.part(power) * plot.height;
            scene.line((plot.left, at), (plot.right(), at), 1, if power == 0.0 { AXIS } else { GRID });
            scene.text((plot.left - 10.0, at), Anchor::End, TICK, &label);
        }
        scene.frame(plot, AXIS);
        scene.text((plot.left, plot.top - 16.0), Anchor::Start, LABEL, &self.y_name);
        scene.text((plot.right(), plot.bottom() + 44.0), Anchor::End, LABEL, &self.x_name);
        let place = |point: &(f64, f64)| {
            (plot.left + x.part(point.0.log2()) * plot.width, plot.bottom() - y.part(point.1.log2()) * plot.height)
        };
        for (at, curve) in self.curves.iter().enumerate() {
            let color = color(curve.like.unwrap_or(at));
            let line: Vec<(f64, f64)> = curve.points.iter().filter(|p| p.0 > 0.0 && p.1 > 0.0).map(place).collect();
            for ends in line.windows(2) {
                if curve.dashed {
                    scene.dashes(ends[0], ends[1], 5.0, color);
                } else {
                    scene.line(ends[0], ends[1], 2, color);
                }
            }
            // A single point stands out of the curves that it lies on.
            let mark = |scene: &mut Scene, at| match curve.points.len() {
                1 => {
                    scene.circle(at, 8.0, color);
                    scene.circle(at, 5.0, WHITE);
                }
                _ => scene.circle(at, 4.0, color),
            };
            for &point in &line {
                mark(&mut scene, point);
            }
            let (left, top) = (plot.right() + 22.0, plot.top + 12.0 + at as f64 * 26.0);
            if curve.dashed {
                scene.dashes((left, top), (left + 26.0, top), 5.0, color);
            } else if curve.points.len() > 1 {
                scene.line((left, top), (left + 26.0, top), 2, color);
            }
            mark(&mut scene, (left + 13.0, top));
            scene.text((left + 34.0, top), Anchor::Start, Face { em: 13.0, ..LABEL }, &curve.name);
        }
        scene
    }
}

fn color(curve: usize) -> Color {
    let color = SERIES[curve % SERIES.len()];
    if curve < SERIES.len() { color } else { color.tint(0.45) }
}

/// An axis in whole powers of two.
struct Doublings {
    low: f64,
    high: f64,
}

impl Doublings {
    fn over(values: impl Iterator<Item = f64> + Clone) -> Self {
        let low = values.clone().fold(f64::INFINITY, f64::min).log2();
        let high = values.fold(0.0, f64::max).log2();
        if low > high {
            return Self { low: 0.0, high: 1.0 };
        }
        let (low, high) = ((low + 1e-9).floor(), (high - 1e-9).ceil());
        Self { low, high: high.max(low + 1.0) }
    }

    fn part(&self, power: f64) -> f64 {
        (power - self.low) / (self.high - self.low)
    }

    /// Powers with labels: at most nine of them, `1/8`, `1`, `4`.
    fn ticks(&self) -> Vec<(f64, String)> {
        let all = (self.high - self.low) as i32;
        let step = all.unsigned_abs().div_ceil(8).max(1);
        (0..=all)
            .step_by(step as usize)
            .map(|i| {
                let power = self.low + f64::from(i);
                let label =
                    if power < 0.0 { format!("1/{}", 2f64.powf(-power)) } else { format!("{}", 2f64.powf(power)) };
                (power, label)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_powers_of_two() {
        let axis = Doublings::over([0.02, 0.5].into_iter());
        let labels: Vec<String> = axis.ticks().into_iter().map(|tick| tick.1).collect();
        assert_eq!(labels, ["1/64", "1/32", "1/16", "1/8", "1/4", "1/2"]);
        assert_eq!(Doublings::over(std::iter::empty()).ticks().len(), 2);
    }

    #[test]
    fn a_plot_of_curves_is_drawn() {
        let curve = |name: &str, dashed| Curve {
            name: name.into(),
            points: vec![(0.125, 0.9), (0.5, 4.0), (1.0, 0.0)],
            dashed,
            like: None,
        };
        let chart = CurveChart {
            title: "t".into(),
            about: "a".into(),
            x_name: "x".into(),
            y_name: "y".into(),
            curves: vec![curve("one", false), curve("two", true)],
        };
        let svg = chart.svg().expect("is drawn");
        assert!(svg.contains("1/8") && svg.contains("two"));
        assert!(!chart.png().expect("is drawn").is_empty());
    }
}
