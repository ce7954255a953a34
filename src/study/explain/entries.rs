//! The JSON of `explain`.

use serde::Serialize;

use crate::arch::AreaMm2;

/// What bounds a workload on a chip and what would change it.
#[derive(Debug, Clone, Serialize)]
pub struct Explanation {
    /// Version of the object's shape.
    pub schema: u32,
    /// Name of the chip.
    pub arch: String,
    /// Name of the workload.
    pub workload: String,
    /// How closely time was modelled.
    pub fidelity: &'static str,
    /// How good mappings are taken to be: `ideal` or `vendor`.
    pub mapping: &'static str,
    /// The modes asked for.
    pub modes: Vec<ModeEntry>,
    /// Remarks of the workload.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Estimated area of the chip's units, if its file tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub area_mm2: Option<AreaEntry>,
    /// What the assumed fields of the chip file may change, if asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uncertainty: Option<Uncertainty>,
}

/// One mode.
#[derive(Debug, Clone, Serialize)]
pub struct ModeEntry {
    /// Its name.
    pub mode: &'static str,
    /// First launch to last byte drained.
    pub cycles: u64,
    /// The same in seconds.
    pub time_s: f64,
    /// Lower bound of the cycles whatever the mapping.
    pub bound_cycles: u64,
    /// Average power, by the energy model.
    pub power_w: PowerEntry,
    /// Sections in order.
    pub sections: Vec<SectionEntry>,
    /// What one more of each resource would save, most first.
    pub derivatives: Vec<Derivative>,
}

/// Average power of a run.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct PowerEntry {
    /// Energy over time.
    pub average: f64,
    /// Power of the package, if the chip file tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub package: Option<f64>,
}

/// One section.
#[derive(Debug, Clone, Serialize)]
pub struct SectionEntry {
    /// Name.
    pub name: String,
    /// Operators in order.
    pub operators: Vec<String>,
    /// Cycles, launch included.
    pub cycles: u64,
    /// The same in seconds.
    pub time_s: f64,
    /// What bounds it.
    pub bound_by: String,
    /// How busy each resource was, most first.
    pub resources: Vec<ResourceEntry>,
}

/// A resource of a section.
#[derive(Debug, Clone, Serialize)]
pub struct ResourceEntry {
    /// `compute`, `launch`, `memory:TIER`, `ag`, `link`, `pcu_port` or `pmu_port`.
    pub resource: String,
    /// Cycles for which the busiest unit of its kind was busy.
    pub busy_cycles: u64,
    /// Those over the section's cycles, launch included.
    pub share: f64,
    /// The same of the mean unit, where it is known: far below the busiest, the load is uneven.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean_share: Option<f64>,
    /// The stage, of compute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
    /// What the chip's compute units are called.
    #[serde(skip)]
    pub units: &'static str,
}

/// One more of a resource, and what it saves.
#[derive(Debug, Clone, Serialize)]
pub struct Derivative {
    /// The resource.
    pub resource: String,
    /// What was added.
    pub step: String,
    /// The same as `--set` arguments.
    pub set: Vec<String>,
    /// Time with it.
    pub time_s: Option<f64>,
    /// Time it saves; below zero where the mapping found for the larger chip is slower.
    pub saved_s: Option<f64>,
    /// That over the time without it.
    pub saved_share: Option<f64>,
    /// Why it could not be run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// Estimated square millimetres by kind of unit.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct AreaEntry {
    /// The sum of the others.
    pub total: f64,
    /// PCUs.
    pub pcus: f64,
    /// PMUs.
    pub pmus: f64,
    /// Switches and links.
    pub network: f64,
    /// Address generators.
    pub ags: f64,
}

impl From<AreaMm2> for AreaEntry {
    fn from(area: AreaMm2) -> Self {
        Self { total: area.total(), pcus: area.pcus, pmus: area.pmus, network: area.network, ags: area.ags }
    }
}

/// What the assumed fields of a chip file may change.
#[derive(Debug, Clone, Serialize)]
pub struct Uncertainty {
    /// Of each mode's time: `[mode, band]`, and of the speedups if both of their modes ran.
    pub bands: Vec<Band>,
    /// Each assumption varied alone, the ones that matter most first.
    pub assumptions: Vec<Effect>,
    /// Assumed fields that were not varied: words, and sides of the grid.
    pub not_varied: Vec<String>,
}

/// A quantity between its least and its most.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Band {
    /// A mode's name (seconds), `speedup` or `speedup_over_epilogue`.
    pub of: &'static str,
    /// With the file's values.
    pub value: f64,
    /// Least with one assumption varied.
    pub least: f64,
    /// Most with one assumption varied.
    pub most: f64,
    /// With every assumption at once on the side that makes it least; missing where that chip cannot run.
    pub all_least: Option<f64>,
    /// The same for most.
    pub all_most: Option<f64>,
}

/// What one assumption changes.
#[derive(Debug, Clone, Serialize)]
pub struct Effect {
    /// Fields that one comment of the file calls assumed.
    pub fields: Vec<String>,
    /// Seconds of each mode with the fields doubled; missing where that cannot run.
    pub doubled_time_s: Option<Vec<f64>>,
    /// The same with the fields halved.
    pub halved_time_s: Option<Vec<f64>>,
    /// The largest change of any mode's time, as a share of it.
    pub largest_change: f64,
}
