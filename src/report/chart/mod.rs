//! Pictures: where the bytes go, where the time goes, and how far the roofs are.
//!
//! A chart is laid out as shapes and then painted as SVG and as PNG by the same code, with a font that travels with
//! the program.

mod axis;
mod bars;
mod curves;
mod font;
mod frame;
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
mod timeline;
mod traffic;
mod waterfall;

pub use curves::{Curve, CurveChart};
pub use map::MapChart;
pub use mask::MaskChart;
pub use paint::ChartError;
pub(crate) use scale::{label as value_label, words as name_in_words};
pub use set::SetChart;
pub use study::{Facet, PlotData, Series, StudyPlot};
pub use timeline::TimelineChart;
pub use waterfall::WaterfallChart;

use crate::arch::Device;
use crate::outcome::Outcome;
use crate::workload::Workload;

use self::scene::Scene;
use super::side::Side;

/// A picture of the runs of a workload.
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

#[cfg(test)]
mod tests;
