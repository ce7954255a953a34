//! Pictures: where the bytes go, where the time goes, and how far the roofs are.
//!
//! A chart is laid out as shapes and then painted as SVG and as PNG by the same code, with a font that travels with
//! the program.

mod axis;
mod bars;
mod curves;
mod font;
mod grid;
mod heat;
mod map;
mod mask;
mod paint;
mod palette;
mod pixels;
mod roofline;
mod scale;
mod scene;
mod set;
mod study;
mod time;
mod traffic;
mod waterfall;

pub use curves::{Curve, CurveChart};
pub use map::MapChart;
pub use mask::MaskChart;
pub use paint::ChartError;
pub use set::SetChart;
pub use study::{PlotData, Series, StudyPlot};
pub use waterfall::WaterfallChart;

use crate::arch::Device;
use crate::outcome::Outcome;
use crate::workload::Workload;

use self::palette::{INK, MUTED};
use self::scene::{Anchor, Face, Scene};
use super::human::shorten;
use super::side::Side;

/// A picture of one or two runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chart {
    /// Off-chip bytes by tensor.
    Traffic,
    /// Time by section and what bounds it.
    Time,
    /// Throughput against operational intensity, under the chip's roofs.
    Roofline,
}

impl Chart {
    /// Every chart.
    pub const ALL: [Self; 3] = [Self::Traffic, Self::Time, Self::Roofline];

    /// The file's name without its ending.
    pub fn name(self) -> &'static str {
        match self {
            Self::Traffic => "traffic",
            Self::Time => "time",
            Self::Roofline => "roofline",
        }
    }

    /// The chart as an SVG file.
    pub fn svg(self, chip: &dyn Device, workload: &Workload, outcomes: &[Outcome]) -> Result<String, ChartError> {
        paint::svg(&self.scene(chip, workload, outcomes))
    }

    /// The chart of runs on one chip or several as an SVG file.
    pub fn svg_of(self, workload: &Workload, sides: &[Side<'_>]) -> Result<String, ChartError> {
        paint::svg(&self.scene_of(workload, sides))
    }

    /// The chart of runs on one chip or several as a PNG file.
    pub fn png_of(self, workload: &Workload, sides: &[Side<'_>]) -> Result<Vec<u8>, ChartError> {
        paint::png(&self.scene_of(workload, sides))
    }

    /// The chart as a PNG file.
    pub fn png(self, chip: &dyn Device, workload: &Workload, outcomes: &[Outcome]) -> Result<Vec<u8>, ChartError> {
        paint::png(&self.scene(chip, workload, outcomes))
    }

    fn scene(self, chip: &dyn Device, workload: &Workload, outcomes: &[Outcome]) -> Scene {
        self.scene_of(workload, &[Side { chip, outcomes }])
    }

    fn scene_of(self, workload: &Workload, sides: &[Side<'_>]) -> Scene {
        match self {
            Self::Traffic => traffic::scene(workload, sides),
            Self::Time => time::scene(workload, sides),
            Self::Roofline => roofline::scene(workload, sides),
        }
    }
}

/// Width of every chart.
const WIDTH: f64 = 1000.0;
/// Distance of everything from the edges.
const MARGIN: f64 = 28.0;

const TITLE: Face = Face { em: 21.0, bold: true, color: INK };
const SUBTITLE: Face = Face { em: 13.0, bold: false, color: MUTED };
const LABEL: Face = Face { em: 14.0, bold: false, color: INK };
const STRONG: Face = Face { em: 15.0, bold: true, color: INK };
const TICK: Face = Face { em: 12.5, bold: false, color: MUTED };

/// Title and what it is about; returns where the rest may start.
fn heading(scene: &mut Scene, title: &str, workload: &Workload, sides: &[Side<'_>]) -> f64 {
    scene.text((MARGIN, 36.0), Anchor::Start, TITLE, title);
    let outcomes = sides.iter().flat_map(|side| side.outcomes);
    let mut fidelities: Vec<&str> = outcomes.map(|outcome| outcome.fidelity.name()).collect();
    fidelities.dedup();
    let chips: Vec<String> = sides.iter().map(|side| shorten(side.chip.name(), 32)).collect();
    let (workload, chips) = (shorten(&workload.name, 48), chips.join(" and "));
    let about = format!("{workload} on {chips}, fidelity {}", fidelities.join(" and "));
    scene.text((MARGIN, 62.0), Anchor::Start, SUBTITLE, &about);
    84.0
}

/// The longest shortening of `text` that is at most `room` wide, or `None` if that would say nothing.
fn fitted(text: &str, face: Face, room: f64) -> Option<String> {
    let most = text.chars().count();
    let full = shorten(text, most);
    if face.width(&full) <= room {
        return Some(full);
    }
    (8..most).rev().map(|length| shorten(text, length)).find(|text| face.width(text) <= room)
}

#[cfg(test)]
mod tests;
