//! A chip file of `kind = "bsp"` as it is read and checked.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::IgnoredAny;
use toml::Spanned;

use super::bsp::{Bsp, BspEnergy, BspLink, BspPart, BspTile, Exchange, Planner, SparseKernel};
use super::check::{dtype, mac_energy, zero_mac_share};
use super::chip::Emulated;
use super::emulated::emulated;
use super::limits;
use super::memory_tiers::memory;
use super::spec::{Named, TierSpec};
use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::input::{Count, Real, Source, Table};
use rdusim_base::units::Dtype;

/// The file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BspSpec {
    schema: Spanned<Count>,
    /// Has been read before, to choose this kind of file.
    #[serde(rename = "kind")]
    _kind: IgnoredAny,
    name: Spanned<String>,
    clock_ghz: Spanned<Real>,
    tile: Table<TileSpec>,
    exchange: Table<ExchangeSpec>,
    links: Option<Spanned<Named<Table<LinkSpec>>>>,
    memory: Spanned<Vec<Table<TierSpec>>>,
    program: Table<ProgramSpec>,
    planner: Table<PlannerSpec>,
    energy: Table<EnergySpec>,
    die_mm2: Option<Spanned<Real>>,
    emulated: Option<Named<String>>,
    pub(super) ranges: Option<Spanned<Named<Vec<Spanned<Real>>>>>,
}

/// `[tile]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TileSpec {
    count: Spanned<Count>,
    threads: Spanned<Count>,
    sram_bytes: Spanned<Count>,
    reserved_bytes: Spanned<Count>,
    io_tiles: Option<Spanned<Count>>,
    macs: Spanned<Named<Count>>,
    weight_load_bytes: Spanned<Count>,
    vector_bytes: Spanned<Count>,
    copy_bytes_per_cycle: Spanned<Real>,
}

/// `[exchange]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExchangeSpec {
    bytes_per_cycle: Spanned<Real>,
    shared_bus_tiles: Spanned<Count>,
    sync_cycles: Spanned<Count>,
    setup_cycles: Spanned<Count>,
    near_cycles: Spanned<Count>,
    far_cycles: Spanned<Count>,
    broadcast_cycles: Spanned<Count>,
}

/// `[links.NAME]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkSpec {
    gb_per_s: Spanned<Real>,
    pair_gb_per_s: Spanned<Real>,
    latency_ns: Spanned<Real>,
    message_ns: Spanned<Real>,
    message_directions: Option<Spanned<Count>>,
}

/// `[program]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProgramSpec {
    start_us: Spanned<Real>,
}

/// `[planner]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PlannerSpec {
    memory_share: Spanned<Real>,
    partials: Spanned<String>,
    dynamic_partials: Spanned<String>,
    sparse: Spanned<String>,
    bucket_oversize: Spanned<Real>,
    vertex_cycles: Spanned<Count>,
    subgraph_operators: Option<Spanned<Count>>,
}

/// `[energy]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EnergySpec {
    mac_pj: Spanned<Named<Real>>,
    sram_pj_per_byte: Spanned<Real>,
    exchange_pj_per_byte: Spanned<Real>,
    static_w: Spanned<Real>,
    zero_mac_share: Option<Spanned<Real>>,
}

const TILES: RangeInclusive<u64> = 1..=1 << 16;
const THREADS: RangeInclusive<u64> = 1..=64;
const TILE_BYTES: RangeInclusive<u64> = 1 << 14..=1 << 30;
/// Of a tile; 16 input channels are multiplied at a time.
const MACS: RangeInclusive<u64> = 4..=4096;
const BYTES_PER_CYCLE: RangeInclusive<f64> = 0.1..=4096.0;
const CYCLES: RangeInclusive<u64> = 0..=1_000_000;
const SHARE: RangeInclusive<f64> = 0.01..=1.0;
const PARTIALS: [&str; 2] = ["fp16", "fp32"];

/// Checks the file.
pub(super) fn bsp(source: &Source, spec: &BspSpec) -> Result<Bsp, Diagnostic> {
    source.count("schema", &spec.schema, 1..=1)?;
    let name = source.name("name", &spec.name)?;
    let clock_ghz = source.real("clock_ghz", &spec.clock_ghz, limits::CLOCK_GHZ)?;
    let tiers = memory(source, &spec.memory)?;
    if tiers.len() != 1 {
        let title = format!("`memory` has {} tiers, a chip of tiles is timed with one", tiers.len());
        return Err(source.error(spec.memory.span(), title, "expected one table `[[memory]]`"));
    }
    let tile = tile(source, &spec.tile)?;
    let mut chip = Bsp {
        name,
        clock_hz: (clock_ghz * 1e9).round() as u64,
        exchange: exchange(source, &spec.exchange)?,
        links: links(source, spec.links.as_ref())?,
        memory: tiers,
        program_us: source.real("program.start_us", &spec.program.start_us, limits::LAUNCH_US)?,
        planner: planner(source, &spec.planner)?,
        energy: energy(source, &spec.energy, &tile)?,
        die_mm2: spec.die_mm2.as_ref().map(|mm2| source.real("die_mm2", mm2, limits::AREA_MM2)).transpose()?,
        tile,
        part: BspPart::ALL,
        emulated: Emulated::new(),
        assumed: Arc::default(),
        text: Arc::default(),
    };
    let macs = ("tile.macs", &mut chip.tile.macs);
    chip.emulated = emulated(source, spec.emulated.as_ref(), macs.0, macs.1, &mut chip.energy.mac_pj)?;
    Ok(chip)
}

fn tile(source: &Source, spec: &TileSpec) -> Result<BspTile, Diagnostic> {
    let mut macs = BTreeMap::new();
    for (key, value) in spec.macs.get_ref() {
        let dtype = dtype(source, "tile.macs", key)?;
        let field = format!("tile.macs.{dtype}");
        if dtype == Dtype::Int8 {
            return Err(source.error(key.span(), format!("`{field}` has no kernel"), "expected fp16, bf16 or fp32"));
        }
        let count = source.count(&field, value, MACS)?;
        if count % 4 != 0 {
            let title = format!("`{field}` must be a multiple of 4: the units take 16 input channels in 4 cycles");
            return Err(source.error(value.span(), title, format!("{count} is none")));
        }
        macs.insert(dtype, count);
    }
    if macs.is_empty() {
        let title = "`tile.macs` names no data type";
        return Err(source.error(spec.macs.span(), title, "expected fp16 = ... or another"));
    }
    let sram_bytes = source.count("tile.sram_bytes", &spec.sram_bytes, TILE_BYTES)?;
    let reserved_bytes = source.count("tile.reserved_bytes", &spec.reserved_bytes, 0..=1 << 30)?;
    if reserved_bytes >= sram_bytes {
        let title =
            format!("`tile.reserved_bytes` must be less than `tile.sram_bytes`: {reserved_bytes} of {sram_bytes}");
        let spans = [spec.reserved_bytes.span(), spec.sram_bytes.span()];
        return Err(source.error_among(&spans, title, "no room for tensors is left"));
    }
    let count = source.count("tile.count", &spec.count, TILES)?;
    let io_tiles = spec
        .io_tiles
        .as_ref()
        .map(|tiles| source.count("tile.io_tiles", tiles, 0..=count - 1))
        .transpose()?
        .unwrap_or(0);
    Ok(BspTile {
        count,
        io_tiles,
        threads: source.count("tile.threads", &spec.threads, THREADS)?,
        sram_bytes,
        reserved_bytes,
        macs,
        weight_load_bytes: source.count("tile.weight_load_bytes", &spec.weight_load_bytes, 1..=4096)?,
        vector_bytes: source.count("tile.vector_bytes", &spec.vector_bytes, 4..=4096)?,
        copy_bytes_per_cycle: source.real("tile.copy_bytes_per_cycle", &spec.copy_bytes_per_cycle, BYTES_PER_CYCLE)?,
    })
}

fn exchange(source: &Source, spec: &ExchangeSpec) -> Result<Exchange, Diagnostic> {
    let cycles = |key: &str, value| source.count(&format!("exchange.{key}"), value, CYCLES);
    Ok(Exchange {
        bytes_per_cycle: source.real("exchange.bytes_per_cycle", &spec.bytes_per_cycle, BYTES_PER_CYCLE)?,
        shared_bus_tiles: source.count("exchange.shared_bus_tiles", &spec.shared_bus_tiles, 1..=2)?,
        sync_cycles: cycles("sync_cycles", &spec.sync_cycles)?,
        setup_cycles: cycles("setup_cycles", &spec.setup_cycles)?,
        near_cycles: cycles("near_cycles", &spec.near_cycles)?,
        far_cycles: cycles("far_cycles", &spec.far_cycles)?,
        broadcast_cycles: cycles("broadcast_cycles", &spec.broadcast_cycles)?,
    })
}

fn links(
    source: &Source,
    spec: Option<&Spanned<Named<Table<LinkSpec>>>>,
) -> Result<BTreeMap<String, BspLink>, Diagnostic> {
    let mut links = BTreeMap::new();
    for (key, link) in spec.iter().flat_map(|links| links.get_ref()) {
        let link: &LinkSpec = link.get_ref();
        let names = ["board", "direct", "indirect"];
        let name = names[source.keyword("links", key, &names)?];
        let rate = |field: &str, value| {
            let field = format!("links.{name}.{field}");
            source.real(&field, value, limits::BANDWIDTH_GB_PER_S).map(|gb| gb * 1e9)
        };
        let time = |field: &str, value| source.real(&format!("links.{name}.{field}"), value, limits::LATENCY_NS);
        let link = BspLink {
            bytes_per_s: rate("gb_per_s", &link.gb_per_s)?,
            pair_bytes_per_s: rate("pair_gb_per_s", &link.pair_gb_per_s)?,
            latency_ns: time("latency_ns", &link.latency_ns)?,
            message_ns: time("message_ns", &link.message_ns)?,
            message_directions: match &link.message_directions {
                Some(count) => source.count(&format!("links.{name}.message_directions"), count, 1..=2)?,
                None => 2,
            },
        };
        links.insert(name.to_owned(), link);
    }
    Ok(links)
}

fn planner(source: &Source, spec: &PlannerSpec) -> Result<Planner, Diagnostic> {
    let kernels = SparseKernel::NAMES;
    let sparse = source.keyword("planner.sparse", &spec.sparse, &kernels.map(|(name, _)| name))?;
    let wide = |key: &str, value| source.keyword(&format!("planner.{key}"), value, &PARTIALS).map(|at| at == 1);
    Ok(Planner {
        memory_share: source.real("planner.memory_share", &spec.memory_share, SHARE)?,
        wide_partials: wide("partials", &spec.partials)?,
        dynamic_wide_partials: wide("dynamic_partials", &spec.dynamic_partials)?,
        sparse: kernels[sparse].1,
        bucket_oversize: source.real("planner.bucket_oversize", &spec.bucket_oversize, 0.0..=10.0)?,
        vertex_cycles: source.count("planner.vertex_cycles", &spec.vertex_cycles, CYCLES)?,
        subgraph_operators: spec
            .subgraph_operators
            .as_ref()
            .map(|count| source.count("planner.subgraph_operators", count, 1..=1 << 20))
            .transpose()?
            .unwrap_or(1),
    })
}

fn energy(source: &Source, spec: &EnergySpec, tile: &BspTile) -> Result<BspEnergy, Diagnostic> {
    let real = |key: &str, value| source.real(&format!("energy.{key}"), value, limits::ENERGY);
    Ok(BspEnergy {
        mac_pj: mac_energy(source, &spec.mac_pj, "tile.macs", &tile.macs)?,
        sram_pj_per_byte: real("sram_pj_per_byte", &spec.sram_pj_per_byte)?,
        exchange_pj_per_byte: real("exchange_pj_per_byte", &spec.exchange_pj_per_byte)?,
        static_w: real("static_w", &spec.static_w)?,
        zero_mac_share: zero_mac_share(source, spec.zero_mac_share.as_ref())?,
    })
}
