//! What a certificate says.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::bound::nests::NestCounts;
use rdusim_graph::workload::{OperatorId, Workload};
use rdusim_program::Nest;

/// A mapping, and the leaves of the search that bound it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Certificate {
    /// How the graph is cut into sections.
    pub mode: String,
    /// Fingerprint of the chip.
    pub chip: String,
    /// Fingerprint of the workload, masks included.
    pub workload: String,
    /// Cycles of the mapping, by the event engine.
    pub cycles: u64,
    /// Its sections, in the order they run.
    pub sections: Vec<SectionEntry>,
    /// What is known of each group of operators that may share sections.
    pub groups: Vec<GroupEntry>,
    /// Cycles that no mapping beats: the sum over the groups.
    pub least_cycles: u64,
    /// `cycles / least_cycles - 1`.
    pub gap: f64,
}

/// A section of the mapping.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SectionEntry {
    /// Its operators.
    pub operators: Vec<String>,
    /// Cycles of all its repetitions, launches included.
    pub cycles: u64,
    /// Its loop nest.
    pub nest: NestEntry,
}

/// A loop nest, as far as its class depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NestEntry {
    /// Row tiles.
    pub row_tiles: u64,
    /// Axis that is cut into column tiles, ...
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub axis: Option<usize>,
    /// ... into so many, of all panels.
    pub column_tiles: u64,
    /// Panels of another axis around the column tiles.
    #[serde(skip_serializing_if = "is_one", default = "one")]
    pub panels: u64,
    /// Column tiles are outermost.
    pub column_tile_outer: bool,
}

fn one() -> u64 {
    1
}

/// For serde, which asks by reference.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_one(count: &u64) -> bool {
    *count == 1
}

impl NestEntry {
    /// What classes of nests differ in.
    pub(super) fn counts(&self) -> NestCounts {
        let &Self { row_tiles, axis, column_tiles, panels, column_tile_outer } = self;
        NestCounts { row_tiles, axis, column_tiles, panels, column_tile_outer }
    }
}

impl From<&Nest> for NestEntry {
    fn from(nest: &Nest) -> Self {
        let NestCounts { row_tiles, axis, column_tiles, panels, column_tile_outer } = NestCounts::from(nest);
        Self { row_tiles, axis, column_tiles, panels, column_tile_outer }
    }
}

/// Operators that may share sections.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupEntry {
    /// The operators.
    pub operators: Vec<String>,
    /// All partitions into sections are bounded; else the group as a whole is, whatever its sections: it has too many.
    pub by_sections: bool,
    /// Sections whose time is at most this share over what memory moves give their idle memory to the section behind them, in
    /// thousandths: a multiplier of the relaxation, any value is admissible. Without one, none do.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub gives_permille: Option<u64>,
    /// The sections, each with its classes.
    pub leaves: Vec<Leaf>,
    /// Cycles that no partition of the group beats, repetitions and launches included.
    pub least_cycles: u64,
}

/// A section that a partition may have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Leaf {
    /// Its operators: places in the group's list.
    pub operators: Vec<usize>,
    /// Of each class of nests that is possible, cycles that none of them beats, launch excluded: where the section loads all
    /// that it needs, and where one before it may have loaded its first weights.
    pub boxes: IndexMap<String, [u64; 2]>,
}

/// A section of a mapping, to be certified.
#[derive(Debug, Clone)]
pub struct Mapped {
    /// Its operators.
    pub operators: Vec<OperatorId>,
    /// Its loop nest.
    pub nest: Nest,
    /// Cycles of all its repetitions, launches included.
    pub cycles: u64,
}

/// `cycles / least - 1`; 0 where there is nothing to do.
pub fn gap(cycles: u64, least: u64) -> f64 {
    if cycles == 0 && least == 0 {
        return 0.0;
    }
    cycles as f64 / least.max(1) as f64 - 1.0
}

/// A name for a list of operators, in certificates.
pub(super) fn names(workload: &Workload, operators: &[OperatorId]) -> Vec<String> {
    operators.iter().map(|&op| workload.operators[op].name.clone()).collect()
}
