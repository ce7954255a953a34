//! A chip file as it is read: one field a key, nothing checked yet.

use indexmap::IndexMap;
use serde::Deserialize;
use toml::Spanned;

use rdusim_base::input::{Count, Real, Table};

/// A table from names to values, both with their places in the file.
pub(super) type Named<T> = IndexMap<Spanned<String>, Spanned<T>>;

/// The file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ChipSpec {
    pub(super) schema: Spanned<Count>,
    pub(super) kind: Option<Spanned<String>>,
    pub(super) name: Spanned<String>,
    pub(super) clock_ghz: Spanned<Real>,
    pub(super) grid: Table<GridSpec>,
    pub(super) pcu: Table<PcuSpec>,
    pub(super) pmu: Table<PmuSpec>,
    pub(super) network: Table<NetworkSpec>,
    pub(super) ag: Table<AgSpec>,
    pub(super) memory: Spanned<Vec<Table<TierSpec>>>,
    pub(super) launch: Table<LaunchSpec>,
    pub(super) energy: Table<EnergySpec>,
    pub(super) emulated: Option<Named<String>>,
    pub(super) area: Option<Table<AreaSpec>>,
    pub(super) vendor: Option<Table<VendorSpec>>,
    pub(super) ranges: Option<Spanned<Named<Vec<Spanned<Real>>>>>,
}

/// `[grid]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GridSpec {
    pub(super) columns: Spanned<Count>,
    pub(super) rows: Spanned<Count>,
    pub(super) pattern: Spanned<Vec<Spanned<String>>>,
    pub(super) pcus: Option<Spanned<Count>>,
    pub(super) pcus_per_pmu: Option<Spanned<Real>>,
    pub(super) tile_columns: Option<Spanned<Count>>,
    pub(super) tile_rows: Option<Spanned<Count>>,
    pub(super) die_columns: Option<Spanned<Count>>,
    pub(super) die_rows: Option<Spanned<Count>>,
    pub(super) agcus: Spanned<Table<EdgesSpec>>,
}

/// `[grid.agcus]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EdgesSpec {
    pub(super) left: Option<Table<EdgeSpec>>,
    pub(super) right: Option<Table<EdgeSpec>>,
    pub(super) top: Option<Table<EdgeSpec>>,
    pub(super) bottom: Option<Table<EdgeSpec>>,
}

/// One edge of `[grid.agcus]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EdgeSpec {
    pub(super) first: Option<Spanned<Count>>,
    pub(super) every: Option<Spanned<Count>>,
    pub(super) count: Option<Spanned<Count>>,
    pub(super) ags: Spanned<Count>,
}

/// `[pcu]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PcuSpec {
    pub(super) lanes: Spanned<Named<Count>>,
    pub(super) stages: Spanned<Count>,
    pub(super) accumulator_sets: Spanned<Count>,
    pub(super) tail_elements: Spanned<Count>,
    pub(super) vector_inputs: Spanned<Count>,
    pub(super) vector_outputs: Spanned<Count>,
    pub(super) simd_stages: Named<Count>,
}

/// `[pmu]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PmuSpec {
    pub(super) capacity_bytes: Spanned<Count>,
    pub(super) banks: Spanned<Count>,
    pub(super) read_ports: Spanned<Count>,
    pub(super) write_ports: Spanned<Count>,
    pub(super) port_bytes: Spanned<Count>,
    pub(super) gather: Option<Spanned<String>>,
}

/// `[network]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NetworkSpec {
    pub(super) flit_bytes: Spanned<Count>,
    pub(super) links_per_direction: Spanned<Count>,
    pub(super) hop_cycles: Spanned<Count>,
    pub(super) die_hop_cycles: Option<Spanned<Count>>,
    pub(super) fifo_depth_flits: Spanned<Count>,
    pub(super) max_packet_flits: Spanned<Count>,
}

/// `[ag]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AgSpec {
    pub(super) bytes_per_cycle: Spanned<Count>,
    pub(super) outstanding: Option<Spanned<Count>>,
}

/// `[[memory]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TierSpec {
    pub(super) name: Spanned<String>,
    pub(super) part: Option<Spanned<String>>,
    pub(super) channels: Spanned<Count>,
    pub(super) bandwidth_gb_per_s: Option<Spanned<Real>>,
    pub(super) latency_ns: Spanned<Real>,
    pub(super) burst_bytes: Option<Spanned<Count>>,
    pub(super) interleave_bytes: Spanned<Count>,
    pub(super) turnaround_ns: Option<Spanned<Real>>,
    pub(super) write_batch_bytes: Option<Spanned<Count>>,
    pub(super) non_sequential_ns: Option<Spanned<Real>>,
    pub(super) capacity_bytes: Spanned<Count>,
    pub(super) pj_per_bit: Option<Spanned<Real>>,
    pub(super) device_pj_per_bit: Option<Spanned<Real>>,
    pub(super) phy_pj_per_bit: Option<Spanned<Real>>,
    pub(super) controller_pj_per_bit: Option<Spanned<Real>>,
}

/// `[launch]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LaunchSpec {
    pub(super) orchestration: Spanned<String>,
    pub(super) program_bytes_per_unit: Spanned<Count>,
    pub(super) software: Table<LaunchTimesSpec>,
    pub(super) hardware: Table<LaunchTimesSpec>,
}

/// `[launch.software]` and `[launch.hardware]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_field_names, reason = "a field's name carries its unit")]
pub(super) struct LaunchTimesSpec {
    pub(super) program_load_us: Spanned<Real>,
    pub(super) argument_load_us: Spanned<Real>,
    pub(super) execute_us: Spanned<Real>,
}

/// `[energy]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EnergySpec {
    pub(super) mac_pj: Spanned<Named<Real>>,
    pub(super) sram_pj_per_byte: Spanned<Real>,
    pub(super) network_pj_per_bit_hop: Spanned<Real>,
    pub(super) static_w: Spanned<Real>,
    pub(super) zero_mac_share: Option<Spanned<Real>>,
}

/// `[area]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AreaSpec {
    pub(super) cell_mm2: Spanned<Real>,
    pub(super) pmu_mm2: Spanned<Real>,
    pub(super) sram_mm2_per_mib: Spanned<Real>,
    pub(super) switch_mm2_per_link_byte: Spanned<Real>,
    pub(super) ag_mm2: Spanned<Real>,
    pub(super) logic_shrink: Spanned<Real>,
    pub(super) sram_shrink: Spanned<Real>,
    pub(super) package_w: Option<Spanned<Real>>,
}

/// `[vendor]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct VendorSpec {
    pub(super) launch_us: Spanned<Real>,
    pub(super) stream_gb_per_s: Spanned<Real>,
    pub(super) large_tensor_bytes: Option<Spanned<Count>>,
    pub(super) large_tensor_gb_per_s: Option<Spanned<Real>>,
    pub(super) pcus_per_operator: Spanned<Count>,
    pub(super) pcu_efficiency: Option<Spanned<Real>>,
}
