//! The JSON object: its shape and key order are a contract, new keys may be added, none renamed.

use indexmap::IndexMap;
use serde::Serialize;

use crate::arch::{Device, Vendor};
use crate::mode::Mode;
use crate::outcome::{
    BundleOutcome, EnergyJ, Outcome, SectionOutcome, StageOutcome, StopReason, TensorTraffic, Traffic,
};
use crate::workload::{Phase, Workload};

use super::figures::{Figures, Work, off_chip_bytes_per_s, peak_dtype, quotient};
use super::side::Side;
use super::waterfall::Waterfall;

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
    /// Where the time goes from kernel by kernel to fused, if both ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waterfall: Option<Waterfall>,
    /// The same workload on another chip, of `compare --against`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub against: Option<AgainstEntry>,
}

/// Runs on another chip.
#[derive(Debug, Clone, Serialize)]
pub struct AgainstEntry {
    /// The chip.
    pub arch: ArchEntry,
    /// Its runs.
    pub runs: Vec<RunEntry>,
    /// Its time of kernel by kernel over its time of fused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speedup: Option<f64>,
    /// Its off-chip bytes of kernel by kernel over those of fused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub off_chip_traffic_ratio: Option<f64>,
    /// Of each mode, this chip's time over the other's: above 1 the chip of `--arch` is faster.
    pub speedups: IndexMap<&'static str, f64>,
}

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
    fn new(chip: &dyn Device) -> Self {
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
}

impl VendorEntry {
    fn new(vendor: &Vendor) -> Self {
        Self {
            launch_us: vendor.launch_us,
            stream_gb_per_s: vendor.stream_bytes_per_s as f64 / 1e9,
            large_tensor_bytes: vendor.large.map(|large| large.tensor_bytes),
            large_tensor_gb_per_s: vendor.large.map(|large| large.stream_bytes_per_s as f64 / 1e9),
            pcus_per_operator: vendor.pcus_per_operator,
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
    /// Part of a training step, of a workload that trains.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<&'static str>,
    /// Times it runs, if more than once: everything here counts all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeat: Option<u64>,
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
    /// Energy by place.
    pub energy_j: EnergyEntry,
    /// Stages in order.
    pub stages: Vec<StageEntry>,
}

/// How the bundles of a stage spent the drain of a section: mean cycles, which add up to it.
#[derive(Debug, Clone, Serialize)]
pub struct UnitsEntry {
    /// Bundles.
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
    /// Mean cycles of its bundles (PCUs in lockstep), by what they did; absent where no time passed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub units: Option<UnitsEntry>,
}

impl Document {
    /// The object for the runs of `workload` on `chip`; of two runs, kernel by kernel stands first.
    pub fn new(chip: &dyn Device, workload: &Workload, outcomes: &[Outcome]) -> Self {
        let work = Work::of(workload);
        let runs: Vec<RunEntry> =
            outcomes.iter().map(|outcome| RunEntry::new(chip, &work, outcome, tokens(workload))).collect();
        let ratio = |measure: fn(&RunEntry) -> f64| {
            let of = |mode: Mode| runs.iter().find(|run| run.mode == mode.name()).map(measure);
            Some(quotient(of(Mode::Kbk)?, of(Mode::Fused)?))
        };
        let off_chip = |run: &RunEntry| (run.traffic.off_chip_read_bytes + run.traffic.off_chip_write_bytes) as f64;
        let (speedup, off_chip_traffic_ratio) = (ratio(|run| run.time_s), ratio(off_chip));
        let waterfall = match &runs[..] {
            [kbk, fused] => Waterfall::of_fusion(kbk, fused),
            _ => None,
        };
        Self {
            schema: SCHEMA,
            arch: ArchEntry::new(chip),
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
            waterfall,
            against: None,
        }
    }

    /// The object for two chips: the first's as it would be alone, and the second's runs beside them.
    pub fn versus(workload: &Workload, first: Side<'_>, second: Side<'_>) -> Self {
        let mut document = Self::new(first.chip, workload, first.outcomes);
        let other = Self::new(second.chip, workload, second.outcomes);
        let ratio = |run: &RunEntry| {
            let same = other.runs.iter().find(|other| other.mode == run.mode)?;
            Some((run.mode, quotient(same.time_s, run.time_s)))
        };
        document.against = Some(AgainstEntry {
            speedups: document.runs.iter().filter_map(ratio).collect(),
            arch: other.arch,
            runs: other.runs,
            speedup: other.speedup,
            off_chip_traffic_ratio: other.off_chip_traffic_ratio,
        });
        document
    }

    /// The object as indented JSON, with a line break at the end.
    pub fn to_json(&self) -> String {
        let mut text =
            serde_json::to_string_pretty(self).expect("strings, numbers and string-keyed maps always serialise");
        text.push('\n');
        text
    }
}

/// Tokens that a model's run takes in.
pub(crate) fn tokens(workload: &Workload) -> Option<u64> {
    workload.first_of_a_model().and_then(|_| workload.dims.get("tokens").copied())
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
        entry.launches += if section.every == 1 { section.repeat } else { 0 };
        entry.off_chip_bytes += section.traffic.off_chip_bytes();
    }
    (phases.len() > 1).then_some(phases)
}

impl RunEntry {
    fn new(chip: &dyn Device, work: &Work, outcome: &Outcome, tokens: Option<u64>) -> Self {
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
            tokens_per_s: tokens.map(|tokens| quotient(tokens as f64, figures.time_s)),
            phases: phases(chip, outcome),
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
            phase: Some(section.phase.name()).filter(|_| section.phase != Phase::Forward),
            repeat: Some(section.repeat).filter(|&repeat| repeat > 1),
            every: Some(section.every).filter(|&every| every > 1),
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
            units: (!stage.bundles.is_empty()).then(|| UnitsEntry::from(&stage.bundles[..])),
        }
    }
}

impl From<&[BundleOutcome]> for UnitsEntry {
    fn from(bundles: &[BundleOutcome]) -> Self {
        let mean = |cycles: fn(&BundleOutcome) -> u64| {
            quotient(bundles.iter().map(cycles).sum::<u64>() as f64, bundles.len() as f64)
        };
        Self {
            bundles: bundles.len() as u64,
            busy_cycles: mean(|bundle| bundle.busy_cycles),
            starved_cycles: mean(|bundle| bundle.starved_cycles),
            stalled_cycles: mean(|bundle| bundle.stalled_cycles),
            idle_cycles: mean(|bundle| bundle.idle_cycles),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::report::fixture;

    fn compare() -> Document {
        Document::new(&fixture::sn10(), &fixture::ffn(None), &fixture::outcomes())
    }

    /// Keys of a type in order of appearance, as written.
    fn keys(json: &str, indent: usize, after: &str) -> Vec<String> {
        let start = json.find(after).unwrap() + after.len();
        let prefix = format!("{}\"", " ".repeat(indent));
        let inside = json[start..].lines().skip(1).take_while(|line| line.starts_with(&" ".repeat(indent)));
        inside.filter_map(|line| Some(line.strip_prefix(&prefix)?.split_once('"')?.0.to_owned())).collect()
    }

    #[test]
    fn keys_stand_in_the_agreed_order() {
        let json = compare().to_json();
        let top = ["schema", "arch", "workload", "runs", "speedup", "off_chip_traffic_ratio", "waterfall"];
        assert_eq!(keys(&json, 2, "{"), top);
        let arch = ["name", "pcus", "pmus", "peak_tflops", "sram_bytes", "off_chip_gb_per_s"];
        assert_eq!(keys(&json, 4, "\"arch\": {"), arch);
        let workload =
            ["name", "operators", "dense_flops", "executed_flops", "parameters", "dense_parameters", "dtype"];
        assert_eq!(keys(&json, 4, "\"workload\": {"), workload);
        let run = [
            "mode",
            "fidelity",
            "cycles",
            "time_s",
            "launches",
            "tflops_dense_equivalent",
            "tflops_executed",
            "utilization",
            "bound_cycles",
            "traffic",
            "op_intensity_flop_per_byte",
            "energy_j",
            "sections",
            "stop",
            "notes",
        ];
        assert_eq!(keys(&json, 6, "    {"), run);
        let traffic = [
            "off_chip_read_bytes",
            "off_chip_write_bytes",
            "network_bytes",
            "sram_read_bytes",
            "sram_write_bytes",
            "by_tensor",
            "network_byte_hops",
            "waste_bytes",
            "program_bytes",
        ];
        assert_eq!(keys(&json, 8, "\"traffic\": {"), traffic);
        assert_eq!(keys(&json, 10, "\"by_tensor\": {"), ["x", "w_up", "h", "h_act", "w_down", "y"]);
        assert_eq!(keys(&json, 8, "\"energy_j\": {"), ["total", "compute", "sram", "network", "off_chip", "static"]);
        let section = [
            "name",
            "operators",
            "cycles",
            "launch_cycles",
            "bound_by",
            "pcus",
            "pmus",
            "sram_peak_bytes",
            "traffic",
            "sram_bank_loss_bytes",
            "energy_j",
            "stages",
        ];
        assert_eq!(keys(&json, 10, "\"sections\": [\n        {"), section);
        assert!(json.ends_with("}\n"));
    }

    #[test]
    fn figures_have_their_definitions() {
        let json: Value = serde_json::from_str(&compare().to_json()).unwrap();
        let (arch, workload, kbk, fused) = (&json["arch"], &json["workload"], &json["runs"][0], &json["runs"][1]);
        let near = |got: &Value, want: f64| {
            let got = got.as_f64().unwrap();
            assert!((got - want).abs() <= 1e-9 * want.abs(), "{got} is not {want}");
        };
        assert_eq!(json["schema"], 1);
        assert_eq!((arch["pcus"].as_u64(), arch["sram_bytes"].as_u64()), (Some(640), Some(320 << 20)));
        near(&arch["peak_tflops"], 307.2);
        near(&arch["off_chip_gb_per_s"], 100.0);
        assert_eq!((workload["operators"].as_u64(), workload["dtype"].as_str()), (Some(3), Some("bf16")));
        assert_eq!((kbk["mode"].as_str(), fused["mode"].as_str()), (Some("kbk"), Some("fused")));
        let bytes = |run: &Value| {
            let traffic = &run["traffic"];
            traffic["off_chip_read_bytes"].as_u64().unwrap() + traffic["off_chip_write_bytes"].as_u64().unwrap()
        };
        assert_eq!((bytes(kbk), bytes(fused)), (796_917_760, 461_373_440));
        near(&json["off_chip_traffic_ratio"], 796_917_760.0 / 461_373_440.0);
        for run in [kbk, fused] {
            let time = run["cycles"].as_u64().unwrap() as f64 / 1.25e9;
            near(&run["time_s"], time);
            near(&run["tflops_executed"], 0.858_993_459_2 / time);
            near(&run["utilization"], 0.858_993_459_2 / time / 307.2);
            near(&run["op_intensity_flop_per_byte"], 858_993_459_200.0 / bytes(run) as f64);
            let sections = run["sections"].as_array().unwrap();
            assert_eq!(run["launches"].as_u64(), Some(sections.len() as u64));
            assert_eq!(run["cycles"].as_u64(), sections.iter().map(|section| section["cycles"].as_u64()).sum());
            let energy = &run["energy_j"];
            let parts = ["compute", "sram", "network", "off_chip", "static"].map(|part| energy[part].as_f64().unwrap());
            near(&energy["total"], parts.iter().sum());
        }
        near(&json["speedup"], kbk["time_s"].as_f64().unwrap() / fused["time_s"].as_f64().unwrap());
        assert_eq!(kbk["sections"][1]["bound_by"], "memory:ddr");
        assert_eq!(kbk["traffic"]["by_tensor"]["h"]["off_chip_write_bytes"], 80 << 20);
    }

    #[test]
    fn sparse_work_is_told_from_dense() {
        let (chip, workload) = (fixture::sn10(), fixture::ffn(Some(0.125)));
        let document = Document::new(&chip, &workload, &fixture::outcomes());
        assert_eq!(document.workload.executed_flops * 8, document.workload.dense_flops);
        assert_eq!(document.workload.parameters * 8, document.workload.dense_parameters);
        let run = &document.runs[0];
        assert!((run.tflops_dense_equivalent / run.tflops_executed - 8.0).abs() < 1e-9);
    }

    #[test]
    fn one_run_has_no_ratios() {
        let json = Document::new(&fixture::sn10(), &fixture::ffn(None), &fixture::outcomes()[1..]).to_json();
        assert!(!json.contains("speedup") && !json.contains("off_chip_traffic_ratio"));
        assert_eq!(keys(&json, 2, "{"), ["schema", "arch", "workload", "runs"]);
    }

    #[test]
    fn nothing_divides_to_zero() {
        let fused = Outcome { mode: Mode::Fused, ..fixture::empty_outcome() };
        let document = Document::new(&fixture::sn10(), &fixture::empty_workload(), &[fixture::empty_outcome(), fused]);
        let json = document.to_json();
        assert!(!json.contains("null") && !json.contains("NaN"));
        assert_eq!((document.speedup, document.off_chip_traffic_ratio), (Some(0.0), Some(0.0)));
    }

    #[test]
    fn a_deadlock_names_who_waits() {
        let stop = StopReason::Deadlock(vec!["up waits for a credit of h (4 of 4 tokens)".into()]);
        let run =
            Document::new(&fixture::sn10(), &fixture::ffn(None), &[Outcome { stop, ..fixture::outcomes().remove(0) }]);
        let json: Value = serde_json::from_str(&run.to_json()).unwrap();
        assert_eq!(json["runs"][0]["stop"], "deadlock");
        assert_eq!(json["runs"][0]["blocked"][0], "up waits for a credit of h (4 of 4 tokens)");
    }
}
