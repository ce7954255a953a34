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
    /// Fields of chip, workload and options that are not the same, as far as both results record them; then figures of chip and
    /// workload that are not.
    pub inputs: Vec<InputChange>,
    /// Whether the first records the fields of its inputs, and whether the second does.
    pub inputs_recorded: [bool; 2],
    /// Runs of modes that both have.
    pub runs: Vec<RunChange>,
    /// Modes that only the first has.
    pub only_in_a: Vec<String>,
    /// Modes that only the second has.
    pub only_in_b: Vec<String>,
    /// Kernel by kernel over fused, where a file has both.
    pub speedup: Option<Change>,
    /// In the first and in the second, what `speedup` can be as the gaps of its runs allow; null where they are not known.
    pub speedup_range: [Option<[f64; 2]>; 2],
    /// Kernels with epilogues over fused, where a file has both.
    pub speedup_over_epilogue: Option<Change>,
    /// In the first and in the second, what `speedup_over_epilogue` can be.
    pub speedup_over_epilogue_range: [Option<[f64; 2]>; 2],
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

/// A figure: counts are whole numbers, and are compared as such.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(untagged)]
pub enum Figure {
    /// A count.
    Whole(u64),
    /// Any other.
    Real(f64),
}

impl Figure {
    /// The nearest real number.
    pub fn real(self) -> f64 {
        match self {
            Self::Whole(count) => count as f64,
            Self::Real(number) => number,
        }
    }
}

impl From<u64> for Figure {
    fn from(count: u64) -> Self {
        Self::Whole(count)
    }
}

impl From<f64> for Figure {
    fn from(number: f64) -> Self {
        Self::Real(number)
    }
}

/// A number in both.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Change {
    /// In the first.
    pub a: Figure,
    /// In the second.
    pub b: Figure,
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
    pub(super) fn new(a: impl Into<Figure>, b: impl Into<Figure>) -> Self {
        let (a, b) = (a.into(), b.into());
        Self { a, b, ratio: Some(b.real() / a.real()).filter(|ratio| ratio.is_finite()) }
    }

    pub(super) fn is_none(self) -> bool {
        match (self.a, self.b) {
            (Figure::Whole(a), Figure::Whole(b)) => a == b,
            (a, b) => a.real().to_bits() == b.real().to_bits(),
        }
    }

    /// How far the two are apart.
    pub(super) fn distance(self) -> f64 {
        match (self.a, self.b) {
            (Figure::Whole(a), Figure::Whole(b)) => a.abs_diff(b) as f64,
            (a, b) => (b.real() - a.real()).abs(),
        }
    }
}
