//! A chip file of `kind = "gpu"` as it is read and checked.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::IgnoredAny;
use toml::Spanned;

use super::check::{dtype, mac_energy, zero_mac_share};
use super::chip::Emulated;
use super::emulated::emulated;
use super::gpu::{
    AttentionKind, BlockSparseKernel, Cluster, Fusion, GemmLibrary, Gpu, GpuEnergy, KernelLaunch, L2, Sharding, Sm,
};
use super::gpu_serving_spec::{AttentionSpec, QuantiseSpec, ServingSpec, attention, quantise, serving};
use super::limits;
use super::memory_tiers::memory;
use super::spec::{Named, TierSpec};
use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::input::{Count, Real, Source, Table};

/// The file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GpuSpec {
    schema: Spanned<Count>,
    /// Has been read before, to choose this kind of file.
    #[serde(rename = "kind")]
    _kind: IgnoredAny,
    name: Spanned<String>,
    clock_ghz: Spanned<Real>,
    sm: Table<SmSpec>,
    l2: Table<L2Spec>,
    memory: Spanned<Vec<Table<TierSpec>>>,
    launch: Table<KernelLaunchSpec>,
    gemm: Table<GemmSpec>,
    attention: Table<AttentionSpec>,
    serving: Table<ServingSpec>,
    quantise: Option<Named<QuantiseSpec>>,
    block_sparse: Table<BlockSparseSpec>,
    fusion: Table<FusionSpec>,
    cluster: Table<ClusterSpec>,
    energy: Table<GpuEnergySpec>,
    die_mm2: Option<Spanned<Real>>,
    emulated: Option<Named<String>>,
    pub(super) ranges: Option<Spanned<Named<Vec<Spanned<Real>>>>>,
}

/// `[sm]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SmSpec {
    count: Spanned<Count>,
    tensor_macs: Spanned<Named<Count>>,
    fp4_macs: Option<Spanned<Count>>,
    sparse_2_4_speedup: Spanned<Real>,
    vector_lanes: Spanned<Count>,
    special_lanes: Spanned<Count>,
    shared_bytes: Spanned<Count>,
    shared_bytes_per_cycle: Spanned<Count>,
    register_bytes: Spanned<Count>,
    l2_bytes_per_cycle: Spanned<Count>,
}

/// `[l2]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct L2Spec {
    capacity_bytes: Spanned<Count>,
    bytes_per_cycle: Spanned<Count>,
    reuse_share: Spanned<Real>,
}

/// `[launch]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_field_names, reason = "a field's name carries its unit")]
struct KernelLaunchSpec {
    gap_us: Spanned<Real>,
    host_us: Spanned<Real>,
    training_host_us: Spanned<Real>,
    graph_gap_us: Spanned<Real>,
    ramp_us: Spanned<Real>,
}

/// `[gemm]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GemmSpec {
    tiles: Spanned<Vec<Spanned<Vec<Spanned<Count>>>>>,
    step_bytes: Spanned<Count>,
    pipeline: Spanned<Count>,
    read_warps: Spanned<Count>,
    cluster_blocks: Spanned<Count>,
    sustained_share: Spanned<Real>,
    step_overhead_cycles: Spanned<Real>,
    overlap_share: Spanned<Real>,
    split_k_most: Spanned<Count>,
    stream_k: Spanned<bool>,
    hidden_launches: Option<Spanned<Real>>,
}

/// `[block_sparse]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BlockSparseSpec {
    block_overhead_cycles: Spanned<Real>,
    gather_share: Spanned<Real>,
}

/// `[fusion]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FusionSpec {
    epilogue: Spanned<bool>,
    elementwise: Spanned<bool>,
    attention: Spanned<String>,
    graphs: Spanned<bool>,
}

/// `[cluster]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClusterSpec {
    devices: Spanned<Count>,
    sharding: Spanned<String>,
    communication: Spanned<String>,
    link_gb_per_s: Spanned<Real>,
}

/// `[energy]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GpuEnergySpec {
    mac_pj: Spanned<Named<Real>>,
    l2_pj_per_byte: Spanned<Real>,
    static_w: Spanned<Real>,
    zero_mac_share: Option<Spanned<Real>>,
}

const SMS: RangeInclusive<u64> = 1..=4096;
const TENSOR_MACS: RangeInclusive<u64> = 1..=1 << 20;
const LANES: RangeInclusive<u64> = 1..=1 << 16;
const SM_BYTES: RangeInclusive<u64> = 1024..=1 << 30;
const L2_BYTES: RangeInclusive<u64> = 1..=1 << 40;
const TILE: RangeInclusive<u64> = 8..=1024;
const MOST_TILES: usize = 64;
/// Shares of a rate or a capacity: of nothing, a kernel would never end.
const SHARE: RangeInclusive<f64> = 0.01..=1.0;

/// Checks the file.
pub(super) fn gpu(source: &Source, spec: &GpuSpec) -> Result<Gpu, Diagnostic> {
    source.count("schema", &spec.schema, 1..=1)?;
    let name = source.name("name", &spec.name)?;
    let clock_ghz = source.real("clock_ghz", &spec.clock_ghz, limits::CLOCK_GHZ)?;
    for tier in spec.memory.get_ref() {
        let spans = [
            ("part", tier.part.as_ref().map(Spanned::span)),
            ("turnaround_ns", tier.turnaround_ns.as_ref().map(Spanned::span)),
            ("write_batch_bytes", tier.write_batch_bytes.as_ref().map(Spanned::span)),
            ("non_sequential_ns", tier.non_sequential_ns.as_ref().map(Spanned::span)),
        ];
        if let Some((key, span)) = spans.into_iter().find_map(|(key, span)| Some((key, span?))) {
            let title = format!("`memory.{}.{key}` has no effect on a GPU", tier.name.get_ref());
            return Err(source.error(span, title, "its memory is timed by its sustained rate alone"));
        }
    }
    let tiers = memory(source, &spec.memory)?;
    if tiers.len() != 1 {
        let title = format!("`memory` has {} tiers, a GPU is timed with one", tiers.len());
        return Err(source.error(spec.memory.span(), title, "expected one table `[[memory]]`"));
    }
    let sm = sm(source, &spec.sm)?;
    let mut chip = Gpu {
        name,
        clock_hz: (clock_ghz * 1e9).round() as u64,
        l2: L2 {
            capacity_bytes: source.count("l2.capacity_bytes", &spec.l2.capacity_bytes, L2_BYTES)?,
            bytes_per_cycle: source.count("l2.bytes_per_cycle", &spec.l2.bytes_per_cycle, 1..=1 << 24)?,
            reuse_share: source.real("l2.reuse_share", &spec.l2.reuse_share, 0.0..=1.0)?,
        },
        memory: tiers,
        launch: KernelLaunch {
            gap_us: source.real("launch.gap_us", &spec.launch.gap_us, limits::LAUNCH_US)?,
            host_us: source.real("launch.host_us", &spec.launch.host_us, limits::LAUNCH_US)?,
            training_host_us: source.real(
                "launch.training_host_us",
                &spec.launch.training_host_us,
                limits::LAUNCH_US,
            )?,
            graph_gap_us: source.real("launch.graph_gap_us", &spec.launch.graph_gap_us, limits::LAUNCH_US)?,
            ramp_us: source.real("launch.ramp_us", &spec.launch.ramp_us, limits::LAUNCH_US)?,
        },
        gemm: gemm(source, &spec.gemm)?,
        attention: attention(source, "attention", &spec.attention)?,
        serving: serving(source, &spec.serving)?,
        quantise: quantise(source, spec.quantise.as_ref())?,
        block_sparse: BlockSparseKernel {
            block_overhead_cycles: source.real(
                "block_sparse.block_overhead_cycles",
                &spec.block_sparse.block_overhead_cycles,
                0.0..=1e6,
            )?,
            gather_share: source.real("block_sparse.gather_share", &spec.block_sparse.gather_share, SHARE)?,
        },
        fusion: Fusion {
            epilogue: *spec.fusion.epilogue.get_ref(),
            elementwise: *spec.fusion.elementwise.get_ref(),
            attention: {
                let names = AttentionKind::NAMES;
                names[source.keyword("fusion.attention", &spec.fusion.attention, &names.map(|(name, _)| name))?].1
            },
            graphs: *spec.fusion.graphs.get_ref(),
        },
        cluster: cluster(source, &spec.cluster)?,
        energy: energy(source, &spec.energy, &sm)?,
        die_mm2: spec.die_mm2.as_ref().map(|mm2| source.real("die_mm2", mm2, limits::AREA_MM2)).transpose()?,
        sm,
        emulated: Emulated::new(),
        assumed: Arc::default(),
        text: Arc::default(),
    };
    let macs = ("sm.tensor_macs", &mut chip.sm.tensor_macs);
    chip.emulated = emulated(source, spec.emulated.as_ref(), macs.0, macs.1, &mut chip.energy.mac_pj)?;
    Ok(chip)
}

fn sm(source: &Source, spec: &SmSpec) -> Result<Sm, Diagnostic> {
    let mut tensor_macs = BTreeMap::new();
    for (key, value) in spec.tensor_macs.get_ref() {
        let dtype = dtype(source, "sm.tensor_macs", key)?;
        tensor_macs.insert(dtype, source.count(&format!("sm.tensor_macs.{dtype}"), value, TENSOR_MACS)?);
    }
    if tensor_macs.is_empty() {
        let title = "`sm.tensor_macs` names no data type";
        return Err(source.error(spec.tensor_macs.span(), title, "expected bf16 = ... or another"));
    }
    Ok(Sm {
        count: source.count("sm.count", &spec.count, SMS)?,
        tensor_macs,
        fp4_macs: spec.fp4_macs.as_ref().map(|macs| source.count("sm.fp4_macs", macs, TENSOR_MACS)).transpose()?,
        sparse_2_4_speedup: source.real("sm.sparse_2_4_speedup", &spec.sparse_2_4_speedup, 1.0..=2.0)?,
        vector_lanes: source.count("sm.vector_lanes", &spec.vector_lanes, LANES)?,
        special_lanes: source.count("sm.special_lanes", &spec.special_lanes, LANES)?,
        shared_bytes: source.count("sm.shared_bytes", &spec.shared_bytes, SM_BYTES)?,
        shared_bytes_per_cycle: source.count("sm.shared_bytes_per_cycle", &spec.shared_bytes_per_cycle, LANES)?,
        register_bytes: source.count("sm.register_bytes", &spec.register_bytes, SM_BYTES)?,
        l2_bytes_per_cycle: source.count("sm.l2_bytes_per_cycle", &spec.l2_bytes_per_cycle, LANES)?,
    })
}

fn gemm(source: &Source, spec: &GemmSpec) -> Result<GemmLibrary, Diagnostic> {
    let list = spec.tiles.get_ref();
    if list.is_empty() || list.len() > MOST_TILES {
        let title = format!("`gemm.tiles` has {} tiles, expected from 1 to {MOST_TILES}", list.len());
        return Err(source.error(spec.tiles.span(), title, "expected [rows, columns], ..."));
    }
    let mut tiles = Vec::with_capacity(list.len());
    for tile in list {
        let [rows, columns] = &tile.get_ref()[..] else {
            let title = format!("a tile of `gemm.tiles` has {} numbers, expected 2", tile.get_ref().len());
            return Err(source.error(tile.span(), title, "expected [rows, columns]"));
        };
        tiles.push((source.count("gemm.tiles", rows, TILE)?, source.count("gemm.tiles", columns, TILE)?));
    }
    Ok(GemmLibrary {
        tiles,
        step_bytes: source.count("gemm.step_bytes", &spec.step_bytes, 16..=4096)?,
        pipeline: source.count("gemm.pipeline", &spec.pipeline, 1..=16)?,
        read_warps: source.count("gemm.read_warps", &spec.read_warps, 1..=32)?,
        cluster_blocks: source.count("gemm.cluster_blocks", &spec.cluster_blocks, 1..=16)?,
        sustained_share: source.real("gemm.sustained_share", &spec.sustained_share, SHARE)?,
        step_overhead_cycles: source.real("gemm.step_overhead_cycles", &spec.step_overhead_cycles, 0.0..=1e6)?,
        overlap_share: source.real("gemm.overlap_share", &spec.overlap_share, 0.0..=1.0)?,
        split_k_most: source.count("gemm.split_k_most", &spec.split_k_most, 1..=1024)?,
        stream_k: *spec.stream_k.get_ref(),
        hidden_launches: (spec.hidden_launches.as_ref())
            .map_or(Ok(0.0), |share| source.real("gemm.hidden_launches", share, 0.0..=1.0))?,
    })
}

fn cluster(source: &Source, spec: &ClusterSpec) -> Result<Cluster, Diagnostic> {
    let kinds = [("none", Sharding::None), ("optimizer", Sharding::Optimizer), ("full", Sharding::Full)];
    let chosen = source.keyword("cluster.sharding", &spec.sharding, &kinds.map(|(name, _)| name))?;
    let link = source.real("cluster.link_gb_per_s", &spec.link_gb_per_s, limits::BANDWIDTH_GB_PER_S)?;
    Ok(Cluster {
        devices: source.count("cluster.devices", &spec.devices, 1..=1_000_000)?,
        sharding: kinds[chosen].1,
        exposed: source.keyword("cluster.communication", &spec.communication, &["ideal", "exposed"])? == 1,
        link_bytes_per_s: (link * 1e9).round() as u64,
    })
}

fn energy(source: &Source, spec: &GpuEnergySpec, sm: &Sm) -> Result<GpuEnergy, Diagnostic> {
    Ok(GpuEnergy {
        mac_pj: mac_energy(source, &spec.mac_pj, "sm.tensor_macs", &sm.tensor_macs)?,
        l2_pj_per_byte: source.real("energy.l2_pj_per_byte", &spec.l2_pj_per_byte, limits::ENERGY)?,
        static_w: source.real("energy.static_w", &spec.static_w, limits::ENERGY)?,
        zero_mac_share: zero_mac_share(source, spec.zero_mac_share.as_ref())?,
    })
}
