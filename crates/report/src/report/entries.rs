//! The parts of the JSON object: chip, workload, runs, sections and stages.

use indexmap::IndexMap;
use serde::Serialize;

use rdusim_graph::arch::{Device, Vendor};
use rdusim_graph::workload::Phase;
use rdusim_outcome::{
    EnergyJ, GroupOutcome, Outcome, SectionOutcome, StageOutcome, StopReason, TensorTraffic, Traffic,
};

use super::figures::{Figures, Work, off_chip_bytes_per_s, peak_dtype, quotient};
use super::gaps::Timed;
use super::metrics::{MetricValue, RunView, metrics_of};
use super::ranges::RunRanges;

/// The chip in short.
#[derive(Debug, Clone, Serialize)]
pub struct ArchEntry {
    /// Name.
    pub name: String,
    /// `gpu`, if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<&'static str>,
    /// Number of PCUs (of a GPU: SMs).
    pub pcus: u64,
    /// Number of PMUs (of a GPU: none).
    pub pmus: u64,
    /// Peak at bf16, else at the widest data type the chip has.
    pub peak_tflops: f64,
    /// Scratchpad bytes (of a GPU: its L2).
    pub sram_bytes: u64,
    /// Sustained bandwidth of all tiers.
    pub off_chip_gb_per_s: f64,
    /// The limits in force, under the mapping quality `vendor` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vendor: Option<VendorEntry>,
}

impl ArchEntry {
    /// Of a chip.
    pub fn new(chip: &dyn Device) -> Self {
        Self {
            name: chip.name().to_owned(),
            kind: Some(chip.kind()).filter(|&kind| kind != "rdu"),
            pcus: chip.compute_units(),
            pmus: chip.memory_units(),
            peak_tflops: chip.peak_flops(peak_dtype(chip)).unwrap_or(0.0) / 1e12,
            sram_bytes: chip.sram_bytes(),
            off_chip_gb_per_s: off_chip_bytes_per_s(chip) / 1e9,
            vendor: chip.limits().map(VendorEntry::new),
        }
    }
}

/// Limits of the vendor's stack.
#[derive(Debug, Clone, Serialize)]
pub struct VendorEntry {
    /// A launch.
    pub launch_us: f64,
    /// All off-chip streams of a section together.
    pub stream_gb_per_s: f64,
    /// From this size on a tensor is large.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub large_tensor_bytes: Option<u64>,
    /// All off-chip streams of a section that moves a large tensor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub large_tensor_gb_per_s: Option<f64>,
    /// PCUs an operator is given at most.
    pub pcus_per_operator: u64,
    /// Share of their peak that they reach.
    pub pcu_efficiency: f64,
}

impl VendorEntry {
    pub(super) fn new(vendor: &Vendor) -> Self {
        Self {
            launch_us: vendor.launch_us,
            stream_gb_per_s: vendor.stream_bytes_per_s as f64 / 1e9,
            large_tensor_bytes: vendor.large.map(|large| large.tensor_bytes),
            large_tensor_gb_per_s: vendor.large.map(|large| large.stream_bytes_per_s as f64 / 1e9),
            pcus_per_operator: vendor.pcus_per_operator,
            pcu_efficiency: vendor.pcu_efficiency,
        }
    }
}

/// The workload in short.
#[derive(Debug, Clone, Serialize)]
pub struct WorkloadEntry {
    /// Name.
    pub name: String,
    /// Number of operators.
    pub operators: u64,
    /// 2·M·N·K of all GEMMs.
    pub dense_flops: u64,
    /// The same, counting stored elements only.
    pub executed_flops: u64,
    /// Weight elements stored.
    pub parameters: u64,
    /// Weight elements if every one were stored.
    pub dense_parameters: u64,
    /// Data type whose peak `utilization` is measured against.
    pub dtype: &'static str,
}

/// One run.
#[derive(Debug, Clone, Serialize)]
pub struct RunEntry {
    /// The mode's name.
    pub mode: &'static str,
    /// How closely time was modelled.
    pub fidelity: &'static str,
    /// First launch to last byte drained.
    pub cycles: u64,
    /// `cycles` over the clock.
    pub time_s: f64,
    /// Under vendor limits: `time_s`, where loads run under computing as far as the mapping lets them, and the time if every
    /// section loads, computes and writes one after the other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_range_s: Option<[f64; 2]>,
    /// From the 5 to the 95 % quantile over draws of the chip's uncertain fields, if they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranges: Option<RunRanges>,
    /// Sections started.
    pub launches: u64,
    /// Dense FLOP over time.
    pub tflops_dense_equivalent: f64,
    /// Executed FLOP over time.
    pub tflops_executed: f64,
    /// Executed FLOP over time x peak.
    pub utilization: f64,
    /// Lower bound of the cycles whatever the mapping.
    pub bound_cycles: u64,
    /// `cycles` over the least cycles that a mapping of the mode can take, less 1: how far the mapping may be from the best. Null
    /// where no such bound is known: on chips that are no RDUs, at fidelities other than `event`, of runs that did not end.
    pub gap: Option<f64>,
    /// Bytes moved.
    pub traffic: TrafficEntry,
    /// Executed FLOP over off-chip bytes.
    pub op_intensity_flop_per_byte: f64,
    /// Energy by place.
    pub energy_j: EnergyEntry,
    /// Tokens a second, of a model whose file has a dimension `tokens`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_per_s: Option<f64>,
    /// Parts of a training step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phases: Option<IndexMap<&'static str, PhaseEntry>>,
    /// Sections in order.
    pub sections: Vec<SectionEntry>,
    /// `drained` or `deadlock`.
    pub stop: &'static str,
    /// Of a deadlock: one line a blocked stage.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub blocked: Vec<String>,
    /// What a user should know about the mapping.
    pub notes: Vec<String>,
    /// Further figures ([`super::METRICS`]).
    #[serde(flatten)]
    pub metrics: IndexMap<&'static str, MetricValue>,
}

impl RunEntry {
    /// The time of the run with its gap; `name`: what it is called beside another.
    pub(super) fn timed<'a>(&self, name: &'a str) -> Timed<'a> {
        Timed { name, time_s: self.time_s, gap: self.gap }
    }

    pub(super) fn new(chip: &dyn Device, work: &Work, outcome: &Outcome, tokens: Option<u64>) -> Self {
        let figures = Figures::new(chip, work, outcome);
        let (stop, blocked) = match &outcome.stop {
            StopReason::Drained => ("drained", Vec::new()),
            StopReason::Deadlock(lines) => ("deadlock", lines.clone()),
            StopReason::Limit(reached) => ("limit", vec![reached.clone()]),
        };
        Self {
            mode: outcome.mode.name(),
            fidelity: outcome.fidelity.name(),
            cycles: outcome.cycles,
            time_s: figures.time_s,
            time_range_s: figures.serial_s.map(|serial| [figures.time_s, serial]),
            ranges: None,
            tokens_per_s: tokens.map(|tokens| quotient(tokens as f64, figures.time_s)),
            phases: phases(chip, outcome),
            launches: figures.launches,
            tflops_dense_equivalent: figures.tflops_dense_equivalent,
            tflops_executed: figures.tflops_executed,
            utilization: figures.utilization,
            bound_cycles: outcome.bound_cycles,
            gap: outcome.gap(),
            traffic: (&figures.traffic).into(),
            op_intensity_flop_per_byte: figures.op_intensity,
            energy_j: figures.energy.into(),
            sections: outcome.sections.iter().map(SectionEntry::from).collect(),
            stop,
            blocked,
            notes: outcome.notes.clone(),
            metrics: metrics_of(&RunView { figures: &figures, outcome, tokens }),
        }
    }
}

/// Bytes moved, by place and by tensor.
#[derive(Debug, Clone, Serialize)]
pub struct TrafficEntry {
    /// Read from off-chip memory: payload and sparse metadata.
    pub off_chip_read_bytes: u64,
    /// Written to off-chip memory.
    pub off_chip_write_bytes: u64,
    /// Injected into the vector network.
    pub network_bytes: u64,
    /// Read from PMUs.
    pub sram_read_bytes: u64,
    /// Written to PMUs.
    pub sram_write_bytes: u64,
    /// Off-chip bytes of each tensor.
    pub by_tensor: IndexMap<String, TensorEntry>,
    /// Bytes x hops over the vector network.
    pub network_byte_hops: u64,
    /// Off-chip bytes moved beyond the payload.
    pub waste_bytes: u64,
    /// Program bytes of the launches.
    pub program_bytes: u64,
}

impl From<&Traffic> for TrafficEntry {
    fn from(traffic: &Traffic) -> Self {
        let entry = |(name, bytes): (&String, &TensorTraffic)| {
            let TensorTraffic { off_chip_read_bytes, off_chip_write_bytes } = *bytes;
            (name.clone(), TensorEntry { off_chip_read_bytes, off_chip_write_bytes })
        };
        Self {
            off_chip_read_bytes: traffic.off_chip_read_bytes,
            off_chip_write_bytes: traffic.off_chip_write_bytes,
            network_bytes: traffic.network_bytes,
            sram_read_bytes: traffic.sram_read_bytes,
            sram_write_bytes: traffic.sram_write_bytes,
            by_tensor: traffic.by_tensor.iter().map(entry).collect(),
            network_byte_hops: traffic.network_byte_hops,
            waste_bytes: traffic.waste_bytes,
            program_bytes: traffic.program_bytes,
        }
    }
}

/// Off-chip bytes of one tensor.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct TensorEntry {
    /// Read from off-chip memory.
    pub off_chip_read_bytes: u64,
    /// Written to off-chip memory.
    pub off_chip_write_bytes: u64,
}

/// One part of a training step.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct PhaseEntry {
    /// Cycles of its sections.
    pub cycles: u64,
    /// The same over the clock.
    pub time_s: f64,
    /// Sections started.
    pub launches: u64,
    /// Off-chip bytes, read and written.
    pub off_chip_bytes: u64,
}

/// Forward, backward and update apart, of a run that has more than the first.
pub(crate) fn phases(chip: &dyn Device, outcome: &Outcome) -> Option<IndexMap<&'static str, PhaseEntry>> {
    let mut phases: IndexMap<&'static str, PhaseEntry> = IndexMap::new();
    for section in &outcome.sections {
        let entry = phases.entry(section.phase.name()).or_insert(PhaseEntry {
            cycles: 0,
            time_s: 0.0,
            launches: 0,
            off_chip_bytes: 0,
        });
        entry.cycles += section.cycles;
        entry.time_s = quotient(entry.cycles as f64, chip.clock_hz() as f64);
        entry.launches += if section.every == 1 { section.launches } else { 0 };
        entry.off_chip_bytes += section.traffic.off_chip_bytes();
    }
    (phases.len() > 1).then_some(phases)
}

/// Energy in joules by place.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct EnergyEntry {
    /// The sum of the others.
    pub total: f64,
    /// Multiply-accumulates and SIMD work.
    pub compute: f64,
    /// PMU reads and writes.
    pub sram: f64,
    /// Vector network.
    pub network: f64,
    /// Off-chip memory.
    pub off_chip: f64,
    /// Static power over the time.
    #[serde(rename = "static")]
    pub static_: f64,
    /// Part of `compute`: multiply-accumulates on elements that are not stored.
    pub compute_zeros: f64,
    /// Part of `off_chip`: memory devices. These three are left out where the chip file does not tell them apart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub off_chip_device: Option<f64>,
    /// Part of `off_chip`: physical interfaces of the chip.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub off_chip_phy: Option<f64>,
    /// Part of `off_chip`: memory controllers, and the way from them to the units.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub off_chip_controller: Option<f64>,
}

impl From<EnergyJ> for EnergyEntry {
    fn from(energy: EnergyJ) -> Self {
        // JSON has no NaN and no infinity.
        let number = |joules: f64| quotient(joules, 1.0);
        let items = Some(energy.off_chip_items.map(number)).filter(|items| items.iter().any(|&joules| joules > 0.0));
        Self {
            total: number(energy.total()),
            compute: number(energy.compute),
            sram: number(energy.sram),
            network: number(energy.network),
            off_chip: number(energy.off_chip),
            static_: number(energy.static_),
            compute_zeros: number(energy.zeros),
            off_chip_device: items.map(|[device, ..]| device),
            off_chip_phy: items.map(|[_, phy, _]| phy),
            off_chip_controller: items.map(|[.., controller]| controller),
        }
    }
}

/// One section of a run.
#[derive(Debug, Clone, Serialize)]
pub struct SectionEntry {
    /// Name.
    pub name: String,
    /// Operators in order.
    pub operators: Vec<String>,
    /// Part of a training step, of a workload that trains.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<&'static str>,
    /// Times it runs, if more than once: everything here counts all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeat: Option<u64>,
    /// Times it is launched, if it loops: one launch runs all repetitions of its block.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launches: Option<u64>,
    /// Training steps that share one run; left out for one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every: Option<u64>,
    /// Cycles, launch included.
    pub cycles: u64,
    /// Cycles of the launch.
    pub launch_cycles: u64,
    /// What bounds it.
    pub bound_by: String,
    /// PCUs configured.
    pub pcus: u64,
    /// PMUs configured.
    pub pmus: u64,
    /// PMU bytes held at most, whole banks.
    pub sram_peak_bytes: u64,
    /// Bytes moved.
    pub traffic: TrafficEntry,
    /// Of `sram_peak_bytes`, lost because tensors occupy whole banks.
    pub sram_bank_loss_bytes: u64,
    /// What they hold: `weights`, `activations`, `sums`, `results`, `prefetched`, of tiles `tiles`; adds up to `sram_peak_bytes`.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub sram_by_use: IndexMap<&'static str, u64>,
    /// Off-chip bytes of each tier, with what is moved beyond the payload.
    pub off_chip_by_tier: IndexMap<String, u64>,
    /// Energy by place.
    pub energy_j: EnergyEntry,
    /// Stages in order.
    pub stages: Vec<StageEntry>,
}

impl From<&SectionOutcome> for SectionEntry {
    fn from(section: &SectionOutcome) -> Self {
        Self {
            name: section.name.clone(),
            operators: section.operators.clone(),
            phase: Some(section.phase.name()).filter(|_| section.phase != Phase::Forward),
            repeat: Some(section.repeat).filter(|&repeat| repeat > 1),
            launches: Some(section.launches).filter(|&launches| launches != section.repeat),
            every: Some(section.every).filter(|&every| every > 1),
            cycles: section.cycles,
            launch_cycles: section.launch_cycles,
            bound_by: section.bound_by.to_string(),
            pcus: section.pcus,
            pmus: section.pmus,
            sram_peak_bytes: section.sram_peak_bytes,
            traffic: (&section.traffic).into(),
            sram_bank_loss_bytes: section.sram_bank_loss_bytes,
            sram_by_use: section.held.iter().map(|(held, bytes)| (held.name(), *bytes)).collect(),
            off_chip_by_tier: section.moved.iter().cloned().collect(),
            energy_j: section.energy.into(),
            stages: section.stages.iter().map(StageEntry::from).collect(),
        }
    }
}

/// How the lockstep groups of a stage spent the drain of a section: mean cycles, which add up to it.
#[derive(Debug, Clone, Serialize)]
pub struct UnitsEntry {
    /// How many; the key keeps the word of an earlier version.
    pub bundles: u64,
    /// Working.
    pub busy_cycles: f64,
    /// Waiting for inputs.
    pub starved_cycles: f64,
    /// Waiting for room, or for results to leave.
    pub stalled_cycles: f64,
    /// After the last firing.
    pub idle_cycles: f64,
}

impl From<&[GroupOutcome]> for UnitsEntry {
    fn from(groups: &[GroupOutcome]) -> Self {
        let mean = |cycles: fn(&GroupOutcome) -> u64| {
            quotient(groups.iter().map(cycles).sum::<u64>() as f64, groups.len() as f64)
        };
        Self {
            bundles: groups.len() as u64,
            busy_cycles: mean(|group| group.busy_cycles),
            starved_cycles: mean(|group| group.starved_cycles),
            stalled_cycles: mean(|group| group.stalled_cycles),
            idle_cycles: mean(|group| group.idle_cycles),
        }
    }
}

/// One stage of a section.
#[derive(Debug, Clone, Serialize)]
pub struct StageEntry {
    /// Operators it runs.
    pub operators: Vec<String>,
    /// PCUs it was given.
    pub pcus: u64,
    /// Cycles its busiest unit worked.
    pub busiest_cycles: u64,
    /// Mean cycles its units worked.
    pub mean_cycles: f64,
    /// How it was mapped.
    pub mapping: String,
    /// Mean cycles of its lockstep groups, by what they did; absent where no time passed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub units: Option<UnitsEntry>,
}

impl From<&StageOutcome> for StageEntry {
    fn from(stage: &StageOutcome) -> Self {
        Self {
            operators: stage.operators.clone(),
            pcus: stage.pcus,
            busiest_cycles: stage.busiest_cycles,
            mean_cycles: quotient(stage.mean_cycles, 1.0),
            mapping: stage.mapping.clone(),
            units: (!stage.groups.is_empty()).then(|| UnitsEntry::from(&stage.groups[..])),
        }
    }
}
