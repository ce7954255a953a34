//! Ranges of runs and of their ratios, from draws of uncertain fields.

use indexmap::IndexMap;
use serde::Serialize;

use super::against::Against;

/// Ranges of a run.
#[derive(Debug, Clone, Serialize)]
pub struct RunRanges {
    /// Of its time.
    pub time_s: [f64; 2],
    /// Of its energy.
    pub energy_j: [f64; 2],
    /// What they are of, draw by draw; nothing where a draw was refused. Draws of equal number are of the same chip in all runs on a
    /// chip file with one seed, so that ratios can be taken draw by draw.
    pub draws: Vec<Option<DrawEntry>>,
}

/// A run on one draw.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DrawEntry {
    /// Its time.
    pub time_s: f64,
    /// Its energy.
    pub energy_j: f64,
    /// Times of the parts of a training step.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub phases_s: IndexMap<&'static str, f64>,
}

/// How the ranges of a document were drawn, and those of the ratios of its runs.
#[derive(Debug, Clone, Serialize)]
pub struct UncertaintyEntry {
    /// Draws.
    pub samples: u64,
    /// Draws that were no chip, or on which something did not run.
    pub refused: u64,
    /// Draws in which some units, ports or banks are the file's, because the mapping has no place on those that were drawn.
    pub kept_units: u64,
    /// Seed of the draws.
    pub seed: u64,
    /// The ends of every range.
    pub quantiles: [f64; 2],
    /// Fields of the chip file that were drawn.
    pub fields: Vec<String>,
    /// Assumed fields that were not.
    pub not_varied: Vec<String>,
    /// Time of kernel by kernel over time of fused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speedup: Option<[f64; 2]>,
    /// Time of kernels with epilogues over time of fused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speedup_over_epilogue: Option<[f64; 2]>,
    /// Against each other chip.
    #[serde(flatten)]
    pub against: Against<VersusRanges>,
}

/// Ranges against another chip, whose fields are drawn too.
#[derive(Debug, Clone, Default, Serialize)]
pub struct VersusRanges {
    /// Fields of the other chip's file that were drawn.
    pub fields: Vec<String>,
    /// Its time over the first's, by mode.
    pub speedups: IndexMap<&'static str, [f64; 2]>,
    /// Its energy over the first's, by mode.
    pub energy_ratios: IndexMap<&'static str, [f64; 2]>,
}
