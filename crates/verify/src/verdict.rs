//! What a verification found.

use serde::Serialize;

use super::compare::Deviation;
use super::fault::Fault;
use super::retargeted::Retargeting;
use super::scale::Scaling;
use rdusim_graph::workload::Workload;

/// Version of the JSON object.
const SCHEMA: u32 = 1;

/// One configuration on numbers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunVerdict {
    /// The mode's name.
    pub mode: &'static str,
    /// Whether nothing failed and every number is within its tolerance.
    pub passed: bool,
    /// Sections that were run.
    pub sections: usize,
    /// Numbers compared, stage by stage and at the end.
    pub compared: u64,
    /// Firings of all actors, in one order.
    pub firings: u64,
    /// Of a graph that was made smaller, how its configuration relates to that of the full size.
    pub mapping: Option<Retargeting>,
    /// What failed before there was a number; `None` for nothing.
    pub fault: Option<Fault>,
    /// The worst number of any stage against the reference of that stage on the numbers it was given.
    pub by_stage: Option<Deviation>,
    /// The worst number of the graph's outputs against the reference of the whole graph.
    pub end_to_end: Option<Deviation>,
}

/// A verification of one or more configurations of a workload on a chip.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdict {
    schema: u32,
    /// Whether every run passed.
    pub passed: bool,
    /// Error of the number that is farthest off for its tolerance; `None` if a run failed before there was one.
    pub max_rel_error: Option<f64>,
    /// Tolerance of that number.
    pub tolerance: Option<f64>,
    /// Where that is, or what failed.
    #[serde(rename = "where")]
    pub place: Option<Place>,
    /// Chip.
    pub arch: String,
    /// Workload.
    pub workload: String,
    /// Floating-point operations of the graph, with every weight counted.
    pub flops: u64,
    /// Dimensions that were made smaller, if any.
    pub scaled: Option<Scaling>,
    /// Remarks of the workload.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The runs.
    pub runs: Vec<RunVerdict>,
}

/// The worst number, or a failure.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Place {
    /// A failure.
    Fault(Fault),
    /// A number.
    Number(Deviation),
}

impl RunVerdict {
    /// The worst number of the run.
    fn worst(&self) -> Option<Deviation> {
        self.by_stage.iter().chain(&self.end_to_end).cloned().reduce(Deviation::worse)
    }
}

impl Verdict {
    /// Puts runs together.
    pub fn new(arch: &str, workload: &Workload, flops: u64, scaled: Option<Scaling>, runs: Vec<RunVerdict>) -> Self {
        let fault = runs.iter().find_map(|run| run.fault.clone());
        let worst = runs.iter().filter_map(RunVerdict::worst).reduce(Deviation::worse);
        let number = if fault.is_some() { None } else { worst };
        Self {
            schema: SCHEMA,
            passed: runs.iter().all(|run| run.passed),
            max_rel_error: number.as_ref().map(|n| n.rel_error),
            tolerance: number.as_ref().map(|n| n.tolerance),
            place: fault.map(Place::Fault).or(number.map(Place::Number)),
            arch: arch.to_owned(),
            workload: workload.name.clone(),
            flops,
            scaled,
            notes: workload.notes.clone(),
            runs,
        }
    }

    /// The object as JSON with a line break at the end.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("strings, numbers and lists always serialise");
        text.push('\n');
        text
    }
}
