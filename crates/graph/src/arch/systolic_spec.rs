//! A chip file of `kind = "systolic"` as it is read and checked.

use std::ops::RangeInclusive;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::IgnoredAny;
use toml::Spanned;

use super::check::{counts_by_type, mac_energy, zero_mac_share};
use super::chip::Emulated;
use super::emulated::emulated;
use super::limits;
use super::memory_tiers::memory;
use super::spec::{Named, TierSpec};
use super::systolic::{Arrays, Dataflow, Systolic, SystolicEnergy, UnifiedBuffer};
use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::input::{Count, Real, Source, Table};

/// The file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SystolicSpec {
    schema: Spanned<Count>,
    /// Has been read before, to choose this kind of file.
    #[serde(rename = "kind")]
    _kind: IgnoredAny,
    name: Spanned<String>,
    clock_ghz: Spanned<Real>,
    array: Table<ArraySpec>,
    vector: Table<VectorSpec>,
    buffer: Table<BufferSpec>,
    memory: Spanned<Vec<Table<TierSpec>>>,
    program: Table<ProgramSpec>,
    energy: Table<EnergySpec>,
    die_mm2: Option<Spanned<Real>>,
    emulated: Option<Named<String>>,
    pub(super) ranges: Option<Spanned<Named<Vec<Spanned<Real>>>>>,
}

/// `[array]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ArraySpec {
    count: Spanned<Count>,
    rows: Spanned<Count>,
    columns: Spanned<Count>,
    cell_macs: Spanned<Named<Count>>,
    dataflow: Spanned<String>,
    double_buffered: bool,
    accumulator_rows: Spanned<Count>,
}

/// `[vector]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct VectorSpec {
    lanes: Spanned<Count>,
}

/// `[buffer]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BufferSpec {
    capacity_bytes: Spanned<Count>,
    bytes_per_cycle: Spanned<Real>,
    stream_share: Spanned<Real>,
}

/// `[program]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProgramSpec {
    start_us: Spanned<Real>,
    step_us: Spanned<Real>,
}

/// `[energy]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EnergySpec {
    mac_pj: Spanned<Named<Real>>,
    buffer_pj_per_byte: Spanned<Real>,
    static_w: Spanned<Real>,
    zero_mac_share: Option<Spanned<Real>>,
}

const ARRAYS: RangeInclusive<u64> = 1..=4096;
const CELLS: RangeInclusive<u64> = 1..=4096;
const CELL_MACS: RangeInclusive<u64> = 1..=64;
const ACCUMULATORS: RangeInclusive<u64> = 1..=1 << 24;
const LANES: RangeInclusive<u64> = 1..=1 << 24;
const BUFFER_BYTES: RangeInclusive<u64> = 1 << 14..=1 << 40;
const BUFFER_RATE: RangeInclusive<f64> = 1.0..=1e7;
const SHARE: RangeInclusive<f64> = 0.01..=1.0;

/// Checks the file.
pub(super) fn systolic(source: &Source, spec: &SystolicSpec) -> Result<Systolic, Diagnostic> {
    source.count("schema", &spec.schema, 1..=1)?;
    let name = source.name("name", &spec.name)?;
    let clock_ghz = source.real("clock_ghz", &spec.clock_ghz, limits::CLOCK_GHZ)?;
    let tiers = memory(source, &spec.memory)?;
    if tiers.len() != 1 {
        let title = format!("`memory` has {} tiers, a chip of systolic arrays is timed with one", tiers.len());
        return Err(source.error(spec.memory.span(), title, "expected one table `[[memory]]`"));
    }
    let array = array(source, &spec.array)?;
    let buffer = buffer(source, &spec.buffer)?;
    // Of 4 bytes each: a fold of an operand and the sums of one, twice.
    let least = 16 * array.rows.max(array.columns) * array.columns.max(array.rows);
    if (buffer.capacity_bytes as f64 * buffer.stream_share) < least as f64 {
        let streamed = (buffer.capacity_bytes as f64 * buffer.stream_share) as u64;
        let title = format!(
            "`buffer.stream_share` leaves {streamed} bytes for tiles under way, an array of {} x {} needs {least}",
            array.rows, array.columns
        );
        let spans = [spec.buffer.stream_share.span(), spec.buffer.capacity_bytes.span()];
        return Err(source.error_among(&spans, title, "expected room for two folds and their sums"));
    }
    let mut chip = Systolic {
        name,
        clock_hz: (clock_ghz * 1e9).round() as u64,
        vector_lanes: source.count("vector.lanes", &spec.vector.lanes, LANES)?,
        buffer,
        memory: tiers,
        start_us: source.real("program.start_us", &spec.program.start_us, limits::LAUNCH_US)?,
        step_us: source.real("program.step_us", &spec.program.step_us, limits::LAUNCH_US)?,
        energy: energy(source, &spec.energy, &array)?,
        die_mm2: spec.die_mm2.as_ref().map(|mm2| source.real("die_mm2", mm2, limits::AREA_MM2)).transpose()?,
        array,
        emulated: Emulated::new(),
        assumed: Arc::default(),
        text: Arc::default(),
    };
    let macs = ("array.cell_macs", &mut chip.array.cell_macs);
    chip.emulated = emulated(source, spec.emulated.as_ref(), macs.0, macs.1, &mut chip.energy.mac_pj)?;
    Ok(chip)
}

fn array(source: &Source, spec: &ArraySpec) -> Result<Arrays, Diagnostic> {
    let names = Dataflow::NAMES;
    let dataflow = source.keyword("array.dataflow", &spec.dataflow, &names.map(|(name, _)| name))?;
    Ok(Arrays {
        count: source.count("array.count", &spec.count, ARRAYS)?,
        rows: source.count("array.rows", &spec.rows, CELLS)?,
        columns: source.count("array.columns", &spec.columns, CELLS)?,
        cell_macs: counts_by_type(source, "array.cell_macs", &spec.cell_macs, CELL_MACS)?,
        dataflow: names[dataflow].1,
        is_double_buffered: spec.double_buffered,
        accumulator_rows: source.count("array.accumulator_rows", &spec.accumulator_rows, ACCUMULATORS)?,
    })
}

fn buffer(source: &Source, spec: &BufferSpec) -> Result<UnifiedBuffer, Diagnostic> {
    Ok(UnifiedBuffer {
        capacity_bytes: source.count("buffer.capacity_bytes", &spec.capacity_bytes, BUFFER_BYTES)?,
        bytes_per_cycle: source.real("buffer.bytes_per_cycle", &spec.bytes_per_cycle, BUFFER_RATE)?,
        stream_share: source.real("buffer.stream_share", &spec.stream_share, SHARE)?,
    })
}

fn energy(source: &Source, spec: &EnergySpec, array: &Arrays) -> Result<SystolicEnergy, Diagnostic> {
    let real = |key: &str, value| source.real(&format!("energy.{key}"), value, limits::ENERGY);
    Ok(SystolicEnergy {
        mac_pj: mac_energy(source, &spec.mac_pj, "array.cell_macs", &array.cell_macs)?,
        buffer_pj_per_byte: real("buffer_pj_per_byte", &spec.buffer_pj_per_byte)?,
        static_w: real("static_w", &spec.static_w)?,
        zero_mac_share: zero_mac_share(source, spec.zero_mac_share.as_ref())?,
    })
}
