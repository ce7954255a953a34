//! A chip file of `kind = "wafer"` as it is read and checked.

use std::ops::RangeInclusive;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::IgnoredAny;
use toml::Spanned;

use super::check::{counts_by_type, mac_energy};
use super::chip::Emulated;
use super::emulated::emulated;
use super::limits;
use super::memory_tiers::memory;
use super::spec::{Named, TierSpec};
use super::wafer::{Wafer, WaferCore, WaferEnergy, WaferExecution, WaferFabric};
use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::input::{Count, Real, Source, Table};

/// The file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WaferSpec {
    schema: Spanned<Count>,
    /// Has been read before, to choose this kind of file.
    #[serde(rename = "kind")]
    _kind: IgnoredAny,
    name: Spanned<String>,
    clock_ghz: Spanned<Real>,
    core: Table<CoreSpec>,
    fabric: Table<FabricSpec>,
    stream: Table<StreamSpec>,
    memory: Spanned<Vec<Table<TierSpec>>>,
    program: Table<ProgramSpec>,
    energy: Table<EnergySpec>,
    die_mm2: Option<Spanned<Real>>,
    emulated: Option<Named<String>>,
    pub(super) ranges: Option<Spanned<Named<Vec<Spanned<Real>>>>>,
}

/// `[core]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CoreSpec {
    count: Spanned<Count>,
    sram_bytes: Spanned<Count>,
    activation_share: Spanned<Real>,
    macs: Spanned<Named<Count>>,
    weight_cycles: Spanned<Real>,
}

/// `[fabric]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FabricSpec {
    link_bytes_per_cycle: Spanned<Real>,
    hop_cycles: Spanned<Real>,
}

/// `[stream]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StreamSpec {
    index_bytes: Spanned<Real>,
}

/// `[program]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProgramSpec {
    execution: Option<Spanned<String>>,
    start_us: Spanned<Real>,
    step_us: Spanned<Real>,
}

/// `[energy]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EnergySpec {
    mac_pj: Spanned<Named<Real>>,
    sram_pj_per_byte: Spanned<Real>,
    link_pj_per_byte: Spanned<Real>,
    static_w: Spanned<Real>,
}

const CORES: RangeInclusive<u64> = 1..=1 << 24;
const CORE_BYTES: RangeInclusive<u64> = 1 << 10..=1 << 30;
const MACS: RangeInclusive<u64> = 1..=4096;
const CYCLES: RangeInclusive<f64> = 0.0..=1e6;
const LINK: RangeInclusive<f64> = 0.1..=4096.0;
const INDEX: RangeInclusive<f64> = 0.0..=64.0;
const SHARE: RangeInclusive<f64> = 0.01..=1.0;

/// Checks the file.
pub(super) fn wafer(source: &Source, spec: &WaferSpec) -> Result<Wafer, Diagnostic> {
    source.count("schema", &spec.schema, 1..=1)?;
    let name = source.name("name", &spec.name)?;
    let clock_ghz = source.real("clock_ghz", &spec.clock_ghz, limits::CLOCK_GHZ)?;
    let tiers = memory(source, &spec.memory)?;
    if tiers.len() != 1 {
        let title = format!("`memory` has {} tiers, a wafer is timed with one", tiers.len());
        return Err(source.error(spec.memory.span(), title, "expected one table `[[memory]]`"));
    }
    let core = core(source, &spec.core)?;
    let mut chip = Wafer {
        name,
        clock_hz: (clock_ghz * 1e9).round() as u64,
        fabric: WaferFabric {
            link_bytes_per_cycle: source.real(
                "fabric.link_bytes_per_cycle",
                &spec.fabric.link_bytes_per_cycle,
                LINK,
            )?,
            hop_cycles: source.real("fabric.hop_cycles", &spec.fabric.hop_cycles, CYCLES)?,
        },
        memory: tiers,
        index_bytes: source.real("stream.index_bytes", &spec.stream.index_bytes, INDEX)?,
        execution: match &spec.program.execution {
            Some(word) if source.keyword("program.execution", word, &["streaming", "pipeline"])? == 1 => {
                WaferExecution::Pipeline
            }
            _ => WaferExecution::Streaming,
        },
        start_us: source.real("program.start_us", &spec.program.start_us, limits::LAUNCH_US)?,
        step_us: source.real("program.step_us", &spec.program.step_us, limits::LAUNCH_US)?,
        energy: energy(source, &spec.energy, &core)?,
        die_mm2: spec.die_mm2.as_ref().map(|mm2| source.real("die_mm2", mm2, limits::AREA_MM2)).transpose()?,
        core,
        emulated: Emulated::new(),
        assumed: Arc::default(),
        text: Arc::default(),
    };
    let macs = ("core.macs", &mut chip.core.macs);
    chip.emulated = emulated(source, spec.emulated.as_ref(), macs.0, macs.1, &mut chip.energy.mac_pj)?;
    Ok(chip)
}

fn core(source: &Source, spec: &CoreSpec) -> Result<WaferCore, Diagnostic> {
    Ok(WaferCore {
        count: source.count("core.count", &spec.count, CORES)?,
        sram_bytes: source.count("core.sram_bytes", &spec.sram_bytes, CORE_BYTES)?,
        activation_share: source.real("core.activation_share", &spec.activation_share, SHARE)?,
        macs: counts_by_type(source, "core.macs", &spec.macs, MACS)?,
        weight_cycles: source.real("core.weight_cycles", &spec.weight_cycles, CYCLES)?,
    })
}

fn energy(source: &Source, spec: &EnergySpec, core: &WaferCore) -> Result<WaferEnergy, Diagnostic> {
    let real = |key: &str, value| source.real(&format!("energy.{key}"), value, limits::ENERGY);
    Ok(WaferEnergy {
        mac_pj: mac_energy(source, &spec.mac_pj, "core.macs", &core.macs)?,
        sram_pj_per_byte: real("sram_pj_per_byte", &spec.sram_pj_per_byte)?,
        link_pj_per_byte: real("link_pj_per_byte", &spec.link_pj_per_byte)?,
        static_w: real("static_w", &spec.static_w)?,
    })
}
