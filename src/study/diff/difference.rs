//! What differs between two results.

use indexmap::IndexMap;
use serde::Serialize;
use serde_json::Value;

/// What changed from one result to another.
#[derive(Debug, Clone, Serialize)]
pub struct Difference {
    /// Version of the object's shape.
    pub schema: u32,
    /// Name of the first file.
    pub a: String,
    /// Name of the second file.
    pub b: String,
    /// Fields of chip and workload that are not the same.
    pub inputs: Vec<InputChange>,
    /// Runs of modes that both have.
    pub runs: Vec<RunChange>,
    /// Modes that only the first has.
    pub only_in_a: Vec<String>,
    /// Modes that only the second has.
    pub only_in_b: Vec<String>,
    /// Kernel by kernel over fused, where a file has both.
    pub speedup: Option<Change>,
    /// Kernels with epilogues over fused, where a file has both.
    pub speedup_over_epilogue: Option<Change>,
}

/// A field of an input.
#[derive(Debug, Clone, Serialize)]
pub struct InputChange {
    /// `arch.KEY` or `workload.KEY`.
    pub field: String,
    /// In the first; null if missing.
    pub a: Value,
    /// In the second; null if missing.
    pub b: Value,
}

/// A number in both.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Change {
    /// In the first.
    pub a: f64,
    /// In the second.
    pub b: f64,
    /// `b / a`; null where that is no number.
    pub ratio: Option<f64>,
}

/// A mode's run.
#[derive(Debug, Clone, Serialize)]
pub struct RunChange {
    /// The mode.
    pub mode: String,
    /// Figures by name.
    pub figures: IndexMap<String, Change>,
    /// Sections: those that run the same operators side by side, the others alone.
    pub sections: Vec<SectionChange>,
    /// Off-chip bytes of tensors whose bytes differ.
    pub tensors: IndexMap<String, Change>,
    /// Why the time changed, most important first.
    pub reasons: Vec<String>,
}

/// A section.
#[derive(Debug, Clone, Serialize)]
pub struct SectionChange {
    /// Its operators.
    pub operators: Vec<String>,
    /// Seconds; a side without the section has none.
    pub a_time_s: Option<f64>,
    /// The same of the second.
    pub b_time_s: Option<f64>,
    /// What bounds it.
    pub a_bound_by: Option<String>,
    /// The same of the second.
    pub b_bound_by: Option<String>,
}

impl Change {
    pub(super) fn new(a: f64, b: f64) -> Self {
        Self { a, b, ratio: Some(b / a).filter(|ratio| ratio.is_finite()) }
    }

    pub(super) fn is_none(self) -> bool {
        self.a.to_bits() == self.b.to_bits()
    }
}
