//! Pictures: where the bytes go, where the time goes, and how far the roofs are.
//!
//! A chart is laid out as shapes and then painted as SVG and as PNG by the same code, with a font that travels with
//! the program.

mod area;
mod axis;
mod bars;
mod curves;
mod energy;
mod font;
mod frame;
mod grid;
mod heat;
mod map;
mod mask;
mod over_time;
mod paint;
mod palette;
mod parts;
mod pixels;
mod roofline;
mod scale;
mod scene;
mod set;
mod study;
mod tiles;
mod time;
mod timeline;
mod tornado;
mod traffic;
mod waterfall;

pub use area::{AreaChart, Counted};
pub use curves::{Curve, CurveChart};
pub use map::MapChart;
pub use mask::MaskChart;
pub use paint::ChartError;
pub use parts::PartsChart;
pub use scale::{label as value_label, words as name_in_words};
pub use set::SetChart;
pub use study::{Facet, PlotData, Series, StudyPlot};
pub use tiles::TileChart;
pub use timeline::TimelineChart;
pub use tornado::{TornadoChart, TornadoRow};
pub use waterfall::WaterfallChart;

use rdusim_graph::arch::Device;
use rdusim_graph::workload::Workload;
use rdusim_outcome::Outcome;

use self::over_time::Quantity;
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
    /// Average power over time, by place.
    Power,
    /// Off-chip bandwidth over time, by tier.
    Bandwidth,
    /// Units and tiers working over time.
    Utilization,
    /// On-chip memory over time, by what it holds.
    Memory,
    /// Energy by section.
    EnergyBySection,
    /// Energy by tensor moved off chip.
    EnergyByTensor,
}

impl Chart {
    /// Every chart.
    pub const ALL: [Self; 9] = [
        Self::Traffic,
        Self::Time,
        Self::Roofline,
        Self::Power,
        Self::Bandwidth,
        Self::Utilization,
        Self::Memory,
        Self::EnergyBySection,
        Self::EnergyByTensor,
    ];

    /// The file's name without its ending.
    pub fn name(self) -> &'static str {
        match self {
            Self::Traffic => "traffic",
            Self::Time => "time",
            Self::Roofline => "roofline",
            Self::Power => "power",
            Self::Bandwidth => "bandwidth",
            Self::Utilization => "utilization",
            Self::Memory => "memory",
            Self::EnergyBySection => "energy-by-section",
            Self::EnergyByTensor => "energy-by-tensor",
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
            Self::Power => over_time::scene(Quantity::Power, workload, sides),
            Self::Bandwidth => over_time::scene(Quantity::Bandwidth, workload, sides),
            Self::Utilization => over_time::scene(Quantity::Utilization, workload, sides),
            Self::Memory => over_time::scene(Quantity::Memory, workload, sides),
            Self::EnergyBySection => energy::by_section(workload, sides),
            Self::EnergyByTensor => energy::by_tensor(workload, sides),
        }
    }
}

#[cfg(test)]
mod tests;
