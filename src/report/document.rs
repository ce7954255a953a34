//! The JSON object: its shape and key order are a contract, new keys may be added, none renamed.

use indexmap::IndexMap;
use serde::Serialize;

use super::figures::{Figures, Work, off_chip_bytes_per_s, peak_dtype, quotient};
use crate::arch::Chip;
use crate::sim::{EnergyJ, Mode, Outcome, SectionOutcome, StageOutcome, StopReason, TensorTraffic, Traffic};
use crate::workload::Workload;

/// Version of the object's shape.
pub const SCHEMA: u32 = 1;

/// One or two runs of a workload on a chip, as printed by `--format json`.
#[derive(Debug, Clone, Serialize)]
pub struct Document {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The chip.
    pub arch: ArchEntry,
    /// The workload.
    pub workload: WorkloadEntry,
    /// The runs; of two, kernel by kernel stands first.
    pub runs: Vec<RunEntry>,
    /// Time of kernel by kernel over time of fused, if both ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speedup: Option<f64>,
    /// Off-chip bytes of kernel by kernel over those of fused, if both ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub off_chip_traffic_ratio: Option<f64>,
}

/// The chip in short.
#[derive(Debug, Clone, Serialize)]
pub struct ArchEntry {
    /// Name.
    pub name: String,
    /// Number of PCUs.
    pub pcus: u64,
    /// Number of PMUs.
    pub pmus: u64,
    /// Peak at bf16, else at the widest data type the chip has.
    pub peak_tflops: f64,
    /// Scratchpad bytes.
    pub sram_bytes: u64,
    /// Sustained bandwidth of all tiers.
    pub off_chip_gb_per_s: f64,
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
    /// `kbk` or `fused`.
    pub mode: &'static str,
    /// How closely time was modelled.
    pub fidelity: &'static str,
    /// First launch to last byte drained.
    pub cycles: u64,
    /// `cycles` over the clock.
    pub time_s: f64,
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
    /// Bytes moved.
    pub traffic: TrafficEntry,
    /// Executed FLOP over off-chip bytes.
    pub op_intensity_flop_per_byte: f64,
    /// Energy by place.
    pub energy_j: EnergyEntry,
    /// Sections in order.
    pub sections: Vec<SectionEntry>,
    /// `drained` or `deadlock`.
    pub stop: &'static str,
    /// Of a deadlock: one line a blocked stage.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub blocked: Vec<String>,
    /// What a user should know about the mapping.
    pub notes: Vec<String>,
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

/// Off-chip bytes of one tensor.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct TensorEntry {
    /// Read from off-chip memory.
    pub off_chip_read_bytes: u64,
    /// Written to off-chip memory.
    pub off_chip_write_bytes: u64,
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
}

/// One section of a run.
#[derive(Debug, Clone, Serialize)]
pub struct SectionEntry {
    /// Name.
    pub name: String,
    /// Operators in order.
    pub operators: Vec<String>,
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
    /// Energy by place.
    pub energy_j: EnergyEntry,
    /// Stages in order.
    pub stages: Vec<StageEntry>,
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
}

impl Document {
    /// The object for the runs of `workload` on `chip`; of two runs, kernel by kernel stands first.
    pub fn new(chip: &Chip, workload: &Workload, outcomes: &[Outcome]) -> Self {
        let work = Work::new(chip, workload);
        let runs: Vec<RunEntry> = outcomes.iter().map(|outcome| RunEntry::new(chip, &work, outcome)).collect();
        let ratio = |measure: fn(&RunEntry) -> f64| {
            let of = |mode: Mode| runs.iter().find(|run| run.mode == mode.name()).map(measure);
            Some(quotient(of(Mode::Kbk)?, of(Mode::Fused)?))
        };
        let off_chip = |run: &RunEntry| (run.traffic.off_chip_read_bytes + run.traffic.off_chip_write_bytes) as f64;
        let (speedup, off_chip_traffic_ratio) = (ratio(|run| run.time_s), ratio(off_chip));
        Self {
            schema: SCHEMA,
            arch: ArchEntry {
                name: chip.name.clone(),
                pcus: chip.pcus(),
                pmus: chip.pmus(),
                peak_tflops: chip.peak_flops(peak_dtype(chip)).unwrap_or(0.0) / 1e12,
                sram_bytes: chip.sram_bytes(),
                off_chip_gb_per_s: off_chip_bytes_per_s(chip) / 1e9,
            },
            workload: WorkloadEntry {
                name: workload.name.clone(),
                operators: workload.operators.len() as u64,
                dense_flops: work.dense_flops,
                executed_flops: work.executed_flops,
                parameters: work.parameters,
                dense_parameters: work.dense_parameters,
                dtype: work.dtype.name(),
            },
            runs,
            speedup,
            off_chip_traffic_ratio,
        }
    }

    /// The object as indented JSON, with a line break at the end.
    pub fn to_json(&self) -> String {
        let mut text =
            serde_json::to_string_pretty(self).expect("strings, numbers and string-keyed maps always serialise");
        text.push('\n');
        text
    }
}

impl RunEntry {
    fn new(chip: &Chip, work: &Work, outcome: &Outcome) -> Self {
        let figures = Figures::new(chip, work, outcome);
        let (stop, blocked) = match &outcome.stop {
            StopReason::Drained => ("drained", Vec::new()),
            StopReason::Deadlock(lines) => ("deadlock", lines.clone()),
        };
        Self {
            mode: outcome.mode.name(),
            fidelity: outcome.fidelity.name(),
            cycles: outcome.cycles,
            time_s: figures.time_s,
            launches: figures.launches,
            tflops_dense_equivalent: figures.tflops_dense_equivalent,
            tflops_executed: figures.tflops_executed,
            utilization: figures.utilization,
            bound_cycles: outcome.bound_cycles,
            traffic: (&figures.traffic).into(),
            op_intensity_flop_per_byte: figures.op_intensity,
            energy_j: figures.energy.into(),
            sections: outcome.sections.iter().map(SectionEntry::from).collect(),
            stop,
            blocked,
            notes: outcome.notes.clone(),
        }
    }
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

impl From<EnergyJ> for EnergyEntry {
    fn from(energy: EnergyJ) -> Self {
        // JSON has no NaN and no infinity.
        let number = |joules: f64| quotient(joules, 1.0);
        Self {
            total: number(energy.total()),
            compute: number(energy.compute),
            sram: number(energy.sram),
            network: number(energy.network),
            off_chip: number(energy.off_chip),
            static_: number(energy.static_),
        }
    }
}

impl From<&SectionOutcome> for SectionEntry {
    fn from(section: &SectionOutcome) -> Self {
        Self {
            name: section.name.clone(),
            operators: section.operators.clone(),
            cycles: section.cycles,
            launch_cycles: section.launch_cycles,
            bound_by: section.bound_by.to_string(),
            pcus: section.pcus,
            pmus: section.pmus,
            sram_peak_bytes: section.sram_peak_bytes,
            traffic: (&section.traffic).into(),
            sram_bank_loss_bytes: section.sram_bank_loss_bytes,
            energy_j: section.energy.into(),
            stages: section.stages.iter().map(StageEntry::from).collect(),
        }
    }
}

impl From<&StageOutcome> for StageEntry {
    fn from(stage: &StageOutcome) -> Self {
        Self {
            operators: stage.operators.clone(),
            pcus: stage.pcus,
            busiest_cycles: stage.busiest_cycles,
            mean_cycles: quotient(stage.mean_cycles, 1.0),
            mapping: stage.mapping.clone(),
        }
    }
}
