//! The JSON object of a map: its shape and key order are a contract, new keys may be added, none renamed.

use std::collections::BTreeMap;

use serde::Serialize;

/// Version of the object's shape.
pub const SCHEMA: u32 = 1;

/// A site of the grid: column from the left, row from the top, both from 0.
pub type Site = [u32; 2];

/// A compiled graph on its chip.
#[derive(Debug, Clone, Serialize)]
pub struct Map {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The chip.
    pub arch: ArchEntry,
    /// The workload.
    pub workload: WorkloadEntry,
    /// The mode's name.
    pub mode: &'static str,
    /// Sections in the order they run.
    pub sections: Vec<Section>,
    /// What a user should know about the mapping.
    pub notes: Vec<String>,
}

/// The chip in short.
#[derive(Debug, Clone, Serialize)]
pub struct ArchEntry {
    /// Name.
    pub name: String,
    /// Columns of sites.
    pub columns: u32,
    /// Rows of sites.
    pub rows: u32,
    /// Number of PCUs.
    pub pcus: u64,
    /// Number of PMUs.
    pub pmus: u64,
    /// Banks of a PMU.
    pub banks_per_pmu: u64,
    /// Address generators at the edges.
    pub address_generators: u64,
    /// Parallel links a direction between neighbouring switches.
    pub links_per_direction: u64,
    /// Bytes of a flit.
    pub flit_bytes: u64,
}

/// The workload in short.
#[derive(Debug, Clone, Serialize)]
pub struct WorkloadEntry {
    /// Name.
    pub name: String,
}

/// One section on its units.
#[derive(Debug, Clone, Serialize)]
pub struct Section {
    /// Name.
    pub name: String,
    /// Operators in order.
    pub operators: Vec<String>,
    /// Cycles at the `bound` fidelity, launch excluded: what link loads are measured against.
    pub bound: u64,
    /// Loop nest.
    pub nest: NestEntry,
    /// Stages in order.
    pub stages: Vec<StageEntry>,
    /// Buffers in PMUs.
    pub buffers: Vec<BufferEntry>,
    /// Off-chip streams.
    pub streams: Vec<StreamEntry>,
    /// The network in figures.
    pub network: NetworkEntry,
    /// Links with flits, by site, direction and lane.
    pub links: Vec<LinkEntry>,
    /// Flows in order.
    pub routes: Vec<RouteEntry>,
    /// How it ran, once it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<RunEntry>,
}

/// How a section ran. If it runs several times, this is one of them, with its share of the launch if one launch runs all.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunEntry {
    /// Cycles, launch included.
    pub cycles: u64,
    /// Cycles of its launch.
    pub launch_cycles: u64,
    /// What bounds it.
    pub bound_by: String,
    /// Shares of its cycles for which the busiest of each kind was busy: memory tiers by name, `ag`, `link`, `pcu_port`,
    /// `pmu_port`.
    pub busy: Vec<(String, f64)>,
    /// How each working PCU spent the run.
    #[serde(skip)]
    pub units: BTreeMap<Site, StageTime>,
    /// Share of the run for which the busiest port of each PMU in use moved flits.
    #[serde(skip)]
    pub ports: BTreeMap<Site, f64>,
}

/// The loop nest that all stages walk.
#[derive(Debug, Clone, Serialize)]
pub struct NestEntry {
    /// Rows of the section's activations.
    pub rows: u64,
    /// Rows of a row tile.
    pub tile_rows: u64,
    /// Row tiles.
    pub row_tiles: u64,
    /// Row tiles of a row block.
    pub block_tiles: u64,
    /// Row blocks.
    pub blocks: u64,
    /// The tiled axis.
    pub tiled_axis: Option<TiledAxisEntry>,
    /// `column_tile_outer` or `row_tile_outer`: which of the inner loops is outermost within a row block.
    pub order: &'static str,
}

/// A tiled axis.
#[derive(Debug, Clone, Serialize)]
pub struct TiledAxisEntry {
    /// Tensors of the section whose columns are tiled.
    pub columns_of: Vec<String>,
    /// Tensors whose rows are tiled.
    pub rows_of: Vec<String>,
    /// Length of the axis.
    pub extent: u64,
    /// Elements of a column tile.
    pub tile: u64,
    /// Column tiles, of all panels.
    pub column_tiles: u64,
    /// The axis that is cut into panels around the column tiles, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub panels: Option<PanelsEntry>,
}

/// An axis that is cut into panels.
#[derive(Debug, Clone, Serialize)]
pub struct PanelsEntry {
    /// Tensors of the section whose columns are cut.
    pub columns_of: Vec<String>,
    /// Length of the axis.
    pub extent: u64,
    /// Elements of a panel.
    pub width: u64,
    /// How many panels there are, the last of which may be narrower.
    pub panels: u64,
}

/// A stage on its units.
#[derive(Debug, Clone, Serialize)]
pub struct StageEntry {
    /// Operators it runs; those behind the first in the tail.
    pub operators: Vec<String>,
    /// How it lies on its units.
    pub mapping: MappingEntry,
    /// How often it runs.
    pub level: &'static str,
    /// It accumulates over column tiles.
    pub k_cut: bool,
    /// Its output columns come column tile by column tile.
    pub n_cut: bool,
    /// Its PCUs.
    pub pcus: Vec<Site>,
    /// How its units spent the run, once there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<StageTime>,
}

/// Mean over the units of a stage: shares of the section's cycles, launch included. What is left is launch and idle.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct StageTime {
    /// Working.
    pub busy: f64,
    /// Waiting for inputs; known at the `event` fidelity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub starved: Option<f64>,
    /// Waiting for room in buffers, or for results to leave.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stalled: Option<f64>,
}

/// How a stage lies on its units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum MappingEntry {
    /// Systolic GEMM.
    Gemm {
        /// Row slices of a row tile.
        pm: u64,
        /// Columns of PCUs.
        pn: u64,
        /// Slices of K.
        pk: u64,
        /// Columns of PCUs on one stream of activations.
        multicast_width: u64,
        /// Rows of a row tile lie along the lanes (else weight columns do).
        rows_on_lanes: bool,
        /// Column tiles keep to the blocks of the mask.
        aligned: bool,
        /// `skip` or `gather`: how it works through a sparse weight.
        style: rdusim_program::Style,
    },
    /// SIMD function.
    Simd {
        /// Row slices of a row tile.
        pm: u64,
        /// Column slices of a row tile.
        pn: u64,
        /// PCUs one behind the other.
        chain: u64,
        /// Times each element is read.
        passes: u64,
    },
}

/// A buffer in its PMUs.
#[derive(Debug, Clone, Serialize)]
pub struct BufferEntry {
    /// `operand`, `resident`, `weight`, `partial_sums`, `output` or `partial_fifo`.
    pub role: &'static str,
    /// Tensor (of partial sums, the one they become).
    pub tensor: String,
    /// Index of the stage it serves.
    pub stage: usize,
    /// Of a partial-sum FIFO, the slice of K whose partial sums it takes to the next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub k_slice: Option<u64>,
    /// How often a slot is filled.
    pub level: &'static str,
    /// Slots.
    pub depth: u64,
    /// Distinct parts of a slot.
    pub slices: u64,
    /// Copies of every part.
    pub copies: u64,
    /// Bytes of a part of a slot.
    pub slot_bytes: u64,
    /// PMUs it lies in.
    pub pmus: u64,
    /// Banks it takes.
    pub banks: u64,
    /// Where each piece lies: piece `copy * slices + slice`.
    pub pieces: Vec<Vec<PartEntry>>,
}

/// Banks of one PMU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PartEntry {
    /// The PMU.
    pub pmu: Site,
    /// Banks.
    pub banks: u64,
}

/// An off-chip stream.
#[derive(Debug, Clone, Serialize)]
pub struct StreamEntry {
    /// Tensor.
    pub tensor: String,
    /// `read` or `write`.
    pub direction: &'static str,
    /// Memory tier.
    pub tier: String,
    /// How often a part of it moves.
    pub level: &'static str,
    /// Times the whole tensor moves.
    pub passes: u64,
    /// Bytes over all passes.
    pub bytes: u64,
    /// Its address generators.
    pub generators: Vec<GeneratorEntry>,
}

/// An address generator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct GeneratorEntry {
    /// The AGCU it is in, in the chip's order.
    pub agcu: u32,
    /// The site whose switch the AGCU is attached to.
    pub site: Site,
    /// Number within the AGCU.
    pub generator: u32,
}

/// The network in figures.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct NetworkEntry {
    /// Flows.
    pub flows: u64,
    /// Links of the chip.
    pub links: u64,
    /// Links with flits.
    pub links_used: u64,
    /// Links of all trees together.
    pub tree_links: u64,
    /// Flits times links.
    pub flit_hops: u64,
    /// Flits over the fullest link.
    pub fullest_flits: u64,
    /// Links by load, in tenths of the fullest; idle links are not counted.
    pub histogram: [u64; 10],
}

/// A link and its load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct LinkEntry {
    /// The switch it leaves.
    pub from: Site,
    /// `east`, `west`, `south` or `north`; y grows southwards.
    pub direction: &'static str,
    /// Which of the parallel links.
    pub lane: u32,
    /// Flits over the section.
    pub flits: u64,
}

/// A flow and its tree.
#[derive(Debug, Clone, Serialize)]
pub struct RouteEntry {
    /// `fill`, `copy`, `feed`, `emit`, `partial_read`, `partial_write` or `drain`.
    pub kind: &'static str,
    /// Index of the stage whose operands, results or partial sums it carries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<usize>,
    /// Index of the stream it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<usize>,
    /// Index of the buffer that it fills from off chip, or copies from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buffer: Option<usize>,
    /// Flits over the section.
    pub flits: u64,
    /// Links of the tree: x and y of the switch left, direction, lane.
    pub links: Vec<(u32, u32, &'static str, u32)>,
}
