//! From a chip file as read to a chip: every value in range, every cross-check made.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use toml::Spanned;

use super::emulated::emulated;
use super::grid::grid;
use super::limits;
use super::memory_tiers::memory;
use super::spec::{
    AreaSpec, ChipSpec, EnergySpec, LaunchSpec, LaunchTimesSpec, Named, NetworkSpec, PcuSpec, PmuSpec, VendorSpec,
};
use super::{
    Area, Chip, Emulated, Energy, LargeTensors, Launch, LaunchTimes, Network, Orchestration, Pcu, Pmu, Quality, Vendor,
};
use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::input::{Count, Real, Source};
use rdusim_base::units::Dtype;

/// Functions a PCU can run as a SIMD pipeline; the keys of `pcu.simd_stages`.
pub(crate) const FUNCTIONS: [&str; 10] =
    ["gelu", "relu", "silu", "sigmoid", "tanh", "add", "mul", "softmax", "layer_norm", "rms_norm"];

/// Checks a chip file and resolves it.
pub(super) fn chip(source: &Source, spec: &ChipSpec) -> Result<Chip, Diagnostic> {
    source.count("schema", &spec.schema, 1..=1)?;
    // What it says was read before, to choose this kind of file.
    let _ = &spec.kind;
    let name = source.name("name", &spec.name)?;
    let clock_ghz = source.real("clock_ghz", &spec.clock_ghz, limits::CLOCK_GHZ)?;
    let mut chip = Chip {
        name,
        clock_hz: (clock_ghz * 1e9).round() as u64,
        grid: grid(source, &spec.grid)?,
        pcu: pcu(source, &spec.pcu)?,
        pmu: pmu(source, &spec.pmu)?,
        network: network(source, &spec.network)?,
        ag_bytes_per_cycle: source.count("ag.bytes_per_cycle", &spec.ag.bytes_per_cycle, limits::WIDTH_BYTES)?,
        ag_outstanding: match &spec.ag.outstanding {
            Some(accesses) => Some(source.count("ag.outstanding", accesses, limits::OUTSTANDING)?),
            None => None,
        },
        memory: memory(source, &spec.memory)?,
        launch: launch(source, &spec.launch)?,
        energy: energy(source, &spec.energy, &spec.pcu)?,
        area: spec.area.as_ref().map(|spec| area(source, spec)).transpose()?,
        vendor: spec.vendor.as_ref().map(|vendor_spec| vendor(source, vendor_spec)).transpose()?,
        quality: Quality::Ideal,
        emulated: Emulated::new(),
        assumed: Arc::default(),
        text: Arc::default(),
    };
    let lanes = ("pcu.lanes", &mut chip.pcu.lanes);
    chip.emulated = emulated(source, spec.emulated.as_ref(), lanes.0, lanes.1, &mut chip.energy.mac_pj)?;
    Ok(chip)
}

fn pcu(source: &Source, spec: &PcuSpec) -> Result<Pcu, Diagnostic> {
    let mut lanes = BTreeMap::new();
    for (key, value) in spec.lanes.get_ref() {
        let dtype = dtype(source, "pcu.lanes", key)?;
        lanes.insert(dtype, source.count(&format!("pcu.lanes.{dtype}"), value, limits::LANES)?);
    }
    if lanes.is_empty() {
        return Err(source.error(
            spec.lanes.span(),
            "`pcu.lanes` names no data type",
            "expected bf16 = ... or another",
        ));
    }
    let mut simd_stages = BTreeMap::new();
    for (key, value) in &spec.simd_stages {
        let function = key_of(source, "pcu.simd_stages", key, &FUNCTIONS)?;
        let field = format!("pcu.simd_stages.{}", key.get_ref());
        simd_stages.insert(FUNCTIONS[function].to_owned(), source.count(&field, value, limits::STAGES)?);
    }
    Ok(Pcu {
        lanes,
        stages: source.count("pcu.stages", &spec.stages, limits::STAGES)?,
        accumulator_sets: source.count("pcu.accumulator_sets", &spec.accumulator_sets, limits::ACCUMULATOR_SETS)?,
        tail_elements: source.count("pcu.tail_elements", &spec.tail_elements, limits::LANES)?,
        vector_inputs: source.count("pcu.vector_inputs", &spec.vector_inputs, limits::PORTS)?,
        vector_outputs: source.count("pcu.vector_outputs", &spec.vector_outputs, limits::PORTS)?,
        simd_stages,
    })
}

fn pmu(source: &Source, spec: &PmuSpec) -> Result<Pmu, Diagnostic> {
    let pmu = Pmu {
        capacity_bytes: source.count("pmu.capacity_bytes", &spec.capacity_bytes, limits::PMU_BYTES)?,
        banks: source.count("pmu.banks", &spec.banks, limits::BANKS)?,
        read_ports: source.count("pmu.read_ports", &spec.read_ports, limits::PORTS)?,
        write_ports: source.count("pmu.write_ports", &spec.write_ports, limits::PORTS)?,
        port_bytes: source.count("pmu.port_bytes", &spec.port_bytes, limits::WIDTH_BYTES)?,
        gathers_out_of_order: match &spec.gather {
            Some(word) => source.keyword("pmu.gather", word, &["in_order", "out_of_order"])? == 1,
            None => false,
        },
    };
    if !pmu.capacity_bytes.is_multiple_of(pmu.banks) {
        let title = format!(
            "`pmu.banks` must divide `pmu.capacity_bytes`: {} is not a multiple of {}",
            pmu.capacity_bytes, pmu.banks
        );
        let spans = [spec.banks.span(), spec.capacity_bytes.span()];
        return Err(source.error_among(&spans, title, "banks of unequal size"));
    }
    Ok(pmu)
}

fn network(source: &Source, spec: &NetworkSpec) -> Result<Network, Diagnostic> {
    let hop_cycles = source.count("network.hop_cycles", &spec.hop_cycles, limits::HOP_CYCLES)?;
    let die_hop_cycles = match &spec.die_hop_cycles {
        Some(value) => source.count("network.die_hop_cycles", value, limits::HOP_CYCLES)?,
        None => hop_cycles,
    };
    let network = Network {
        flit_bytes: source.count("network.flit_bytes", &spec.flit_bytes, limits::WIDTH_BYTES)?,
        links_per_direction: source.count("network.links_per_direction", &spec.links_per_direction, limits::PORTS)?,
        hop_cycles,
        die_hop_cycles,
        fifo_depth_flits: source.count("network.fifo_depth_flits", &spec.fifo_depth_flits, limits::FLITS)?,
        max_packet_flits: source.count("network.max_packet_flits", &spec.max_packet_flits, limits::FLITS)?,
    };
    if let Some(die_hop) = spec.die_hop_cycles.as_ref().filter(|_| die_hop_cycles < hop_cycles) {
        let title = format!(
            "`network.die_hop_cycles` must be at least `network.hop_cycles`: found {die_hop_cycles} and {hop_cycles}"
        );
        let spans = [die_hop.span(), spec.hop_cycles.span()];
        return Err(source.error_among(&spans, title, "a hop between dies is never shorter"));
    }
    Ok(network)
}

fn launch(source: &Source, spec: &LaunchSpec) -> Result<Launch, Diagnostic> {
    let known = [("software", Orchestration::Software), ("hardware", Orchestration::Hardware)];
    let chosen = source.keyword("launch.orchestration", &spec.orchestration, &known.map(|(name, _)| name))?;
    let times = |table: &str, spec: &LaunchTimesSpec| -> Result<LaunchTimes, Diagnostic> {
        let time =
            |key: &str, value: &Spanned<Real>| source.real(&format!("launch.{table}.{key}"), value, limits::LAUNCH_US);
        Ok(LaunchTimes {
            program_load_us: time("program_load_us", &spec.program_load_us)?,
            argument_load_us: time("argument_load_us", &spec.argument_load_us)?,
            execute_us: time("execute_us", &spec.execute_us)?,
        })
    };
    Ok(Launch {
        orchestration: known[chosen].1,
        software: times("software", &spec.software)?,
        hardware: times("hardware", &spec.hardware)?,
        program_bytes_per_unit: source.count(
            "launch.program_bytes_per_unit",
            &spec.program_bytes_per_unit,
            limits::PROGRAM_BYTES,
        )?,
    })
}

fn energy(source: &Source, spec: &EnergySpec, pcu: &PcuSpec) -> Result<Energy, Diagnostic> {
    let mut mac_pj = BTreeMap::new();
    for (key, value) in spec.mac_pj.get_ref() {
        let dtype = dtype(source, "energy.mac_pj", key)?;
        mac_pj.insert(dtype, source.real(&format!("energy.mac_pj.{dtype}"), value, limits::ENERGY)?);
    }
    for (key, _) in pcu.lanes.get_ref() {
        if !spec.mac_pj.get_ref().contains_key(key) {
            let title = format!("`energy.mac_pj.{0}` is missing: `pcu.lanes` has {0}", key.get_ref());
            let spans = [spec.mac_pj.span(), key.span()];
            return Err(source.error_among(&spans, title, format!("expected {} = ...", key.get_ref())));
        }
    }
    let real = |key: &str, value: &Spanned<Real>| source.real(&format!("energy.{key}"), value, limits::ENERGY);
    Ok(Energy {
        mac_pj,
        sram_pj_per_byte: real("sram_pj_per_byte", &spec.sram_pj_per_byte)?,
        network_pj_per_bit_hop: real("network_pj_per_bit_hop", &spec.network_pj_per_bit_hop)?,
        static_w: real("static_w", &spec.static_w)?,
        zero_mac_share: zero_mac_share(source, spec.zero_mac_share.as_ref())?,
    })
}

/// Part of the energy of a MAC that one on a zero takes; all of it unless the file says otherwise.
pub(super) fn zero_mac_share(source: &Source, share: Option<&Spanned<Real>>) -> Result<f64, Diagnostic> {
    share.map_or(Ok(1.0), |share| source.real("energy.zero_mac_share", share, 0.0..=1.0))
}

fn area(source: &Source, spec: &AreaSpec) -> Result<Area, Diagnostic> {
    let mm2 = |key: &str, value: &Spanned<Real>| source.real(&format!("area.{key}"), value, limits::AREA_MM2);
    let shrink = |key: &str, value: &Spanned<Real>| source.real(&format!("area.{key}"), value, limits::SHRINK);
    Ok(Area {
        cell_mm2: mm2("cell_mm2", &spec.cell_mm2)?,
        pmu_mm2: mm2("pmu_mm2", &spec.pmu_mm2)?,
        sram_mm2_per_mib: mm2("sram_mm2_per_mib", &spec.sram_mm2_per_mib)?,
        switch_mm2_per_link_byte: mm2("switch_mm2_per_link_byte", &spec.switch_mm2_per_link_byte)?,
        ag_mm2: mm2("ag_mm2", &spec.ag_mm2)?,
        logic_shrink: shrink("logic_shrink", &spec.logic_shrink)?,
        sram_shrink: shrink("sram_shrink", &spec.sram_shrink)?,
        package_w: match &spec.package_w {
            Some(watt) => Some(source.real("area.package_w", watt, limits::ENERGY)?),
            None => None,
        },
    })
}

fn vendor(source: &Source, spec: &VendorSpec) -> Result<Vendor, Diagnostic> {
    let gb_per_s = |key: &str, value: &Spanned<Real>| {
        let rate = source.real(&format!("vendor.{key}"), value, limits::BANDWIDTH_GB_PER_S)?;
        Ok::<u64, Diagnostic>((rate * 1e9).round() as u64)
    };
    let large = match (&spec.large_tensor_bytes, &spec.large_tensor_gb_per_s) {
        (Some(bytes), Some(rate)) => Some(LargeTensors {
            tensor_bytes: source.count("vendor.large_tensor_bytes", bytes, limits::TIER_BYTES)?,
            stream_bytes_per_s: gb_per_s("large_tensor_gb_per_s", rate)?,
        }),
        (None, None) => None,
        (bytes, rate) => {
            let span = bytes.as_ref().map(Spanned::span).or_else(|| rate.as_ref().map(Spanned::span));
            let title = "`vendor.large_tensor_bytes` and `vendor.large_tensor_gb_per_s` belong together";
            return Err(source.error(span.unwrap_or_default(), title, "one without the other"));
        }
    };
    let vendor = Vendor {
        launch_us: source.real("vendor.launch_us", &spec.launch_us, limits::LAUNCH_US)?,
        stream_bytes_per_s: gb_per_s("stream_gb_per_s", &spec.stream_gb_per_s)?,
        large,
        pcus_per_operator: source.count("vendor.pcus_per_operator", &spec.pcus_per_operator, limits::SIDE)?,
        pcu_efficiency: match &spec.pcu_efficiency {
            Some(share) => source.real("vendor.pcu_efficiency", share, 0.01..=1.0)?,
            None => 1.0,
        },
    };
    if let (Some(large), Some(rate)) = (&vendor.large, &spec.large_tensor_gb_per_s)
        && large.stream_bytes_per_s < vendor.stream_bytes_per_s
    {
        let title = format!(
            "`vendor.large_tensor_gb_per_s` must be at least `vendor.stream_gb_per_s`: found {} and {}",
            large.stream_bytes_per_s as f64 / 1e9,
            vendor.stream_bytes_per_s as f64 / 1e9
        );
        let spans = [rate.span(), spec.stream_gb_per_s.span()];
        return Err(source.error_among(&spans, title, "a large tensor is never slower"));
    }
    Ok(vendor)
}

pub(super) fn dtype(source: &Source, table: &str, key: &Spanned<String>) -> Result<Dtype, Diagnostic> {
    key_of(source, table, key, &Dtype::ALL.map(Dtype::name)).map(|index| Dtype::ALL[index])
}

/// The index among `known` of a key of a table whose keys are closed.
fn key_of(source: &Source, table: &str, key: &Spanned<String>, known: &[&str]) -> Result<usize, Diagnostic> {
    source.key(&format!("{table}.{}", key.get_ref()), key, known)
}

/// Counts by data type, at least one.
pub(super) fn counts_by_type(
    source: &Source,
    table: &str,
    spec: &Spanned<Named<Count>>,
    range: RangeInclusive<u64>,
) -> Result<BTreeMap<Dtype, u64>, Diagnostic> {
    let mut counts = BTreeMap::new();
    for (key, value) in spec.get_ref() {
        let dtype = dtype(source, table, key)?;
        counts.insert(dtype, source.count(&format!("{table}.{dtype}"), value, range.clone())?);
    }
    if counts.is_empty() {
        let title = format!("`{table}` names no data type");
        return Err(source.error(spec.span(), title, "expected bf16 = ... or another"));
    }
    Ok(counts)
}

/// Picojoule of a multiply-accumulate of every data type that `table` has counts of.
pub(super) fn mac_energy(
    source: &Source,
    spec: &Spanned<Named<Real>>,
    table: &str,
    counts: &BTreeMap<Dtype, u64>,
) -> Result<BTreeMap<Dtype, f64>, Diagnostic> {
    let mut mac_pj = BTreeMap::new();
    for (key, value) in spec.get_ref() {
        let dtype = dtype(source, "energy.mac_pj", key)?;
        mac_pj.insert(dtype, source.real(&format!("energy.mac_pj.{dtype}"), value, limits::ENERGY)?);
    }
    if let Some(missing) = counts.keys().find(|dtype| !mac_pj.contains_key(dtype)) {
        let title = format!("`energy.mac_pj.{missing}` is missing: `{table}` has {missing}");
        return Err(source.error(spec.span(), title, format!("expected {missing} = ...")));
    }
    Ok(mac_pj)
}
