//! The JSON object: its shape and key order are a contract, new keys may be added, none renamed.

use std::collections::BTreeMap;

use indexmap::IndexMap;
use serde::Serialize;
use serde_json::Value;

use rdusim_base::mode::Mode;
use rdusim_graph::arch::Device;
use rdusim_graph::workload::Workload;
use rdusim_outcome::Outcome;

use super::against::Against;
use super::comparable;
use super::entries::{ArchEntry, RunEntry, WorkloadEntry};
use super::figures::Work;
use super::gaps::Speedup;
use super::ranges::UncertaintyEntry;
use super::side::{Side, name_of};
use super::waterfall::Waterfall;

/// Version of the object's shape.
pub const SCHEMA: u32 = 1;

/// The runs of a workload on a chip, as printed by `--format json`.
#[derive(Debug, Clone, Serialize)]
pub struct Document {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The chip.
    pub arch: ArchEntry,
    /// The workload.
    pub workload: WorkloadEntry,
    /// The runs, in the order of [`Mode::ALL`].
    pub runs: Vec<RunEntry>,
    /// Time of kernel by kernel over time of fused, if both ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speedup: Option<f64>,
    /// What `speedup` of the best mappings of both modes can be, from least to most, as both gaps allow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speedup_range: Option<[f64; 2]>,
    /// Time of kernels with epilogues over time of fused, if both ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speedup_over_epilogue: Option<f64>,
    /// As `speedup_range`, over kernels with epilogues.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speedup_over_epilogue_range: Option<[f64; 2]>,
    /// Of each speed-up whose gaps allow another verdict, a sentence.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub speedup_notes: Vec<String>,
    /// Off-chip bytes of kernel by kernel over those of fused, if both ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub off_chip_traffic_ratio: Option<TrafficRatio>,
    /// Where the time goes from kernel by kernel to fused, if both ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waterfall: Option<Waterfall>,
    /// The same workload on other chips, of `compare --against`.
    #[serde(flatten)]
    pub against: Against<AgainstEntry>,
    /// How ranges were drawn, and those of ratios, if they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uncertainty: Option<UncertaintyEntry>,
    /// What was run, and how; left out where that is not recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inputs: Option<InputsEntry>,
}

/// Fields of the inputs by path, overrides applied.
#[derive(Debug, Clone, Serialize)]
pub struct InputsEntry {
    /// The chip file.
    pub arch: BTreeMap<String, Value>,
    /// The workload file, or what a model was imported as.
    pub workload: BTreeMap<String, Value>,
    /// Options that change results.
    pub options: BTreeMap<String, Value>,
    /// The chip files of `--against`.
    #[serde(flatten)]
    pub against: Against<BTreeMap<String, Value>>,
}

/// Off-chip bytes of one run over those of another: a number, or null in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(untagged)]
pub enum TrafficRatio {
    /// Both move bytes, or none does.
    Number(f64),
    /// Only one of them moves any.
    Undefined,
}

impl TrafficRatio {
    /// Of two that move nothing it is 1: they move as much as each other.
    fn new(before_bytes: f64, after_bytes: f64) -> Self {
        match (before_bytes > 0.0, after_bytes > 0.0) {
            (true, true) => Self::Number(before_bytes / after_bytes),
            (false, false) => Self::Number(1.0),
            _ => Self::Undefined,
        }
    }

    /// The number, if it is one.
    pub fn number(self) -> Option<f64> {
        match self {
            Self::Number(ratio) => Some(ratio),
            Self::Undefined => None,
        }
    }
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
    /// What its `speedup` can be, as both gaps allow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speedup_range: Option<[f64; 2]>,
    /// Its time of kernels with epilogues over its time of fused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speedup_over_epilogue: Option<f64>,
    /// What its `speedup_over_epilogue` can be, as both gaps allow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speedup_over_epilogue_range: Option<[f64; 2]>,
    /// Its off-chip bytes of kernel by kernel over those of fused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub off_chip_traffic_ratio: Option<TrafficRatio>,
    /// Where its time goes from kernel by kernel to fused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waterfall: Option<Waterfall>,
    /// Of each mode, this chip's time over that of the chip of `--arch`: above 1 the chip of `--arch` is faster.
    pub speedups: IndexMap<&'static str, f64>,
    /// Of each mode of which both gaps are known, what its entry in `speedups` can be.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub speedups_range: IndexMap<&'static str, [f64; 2]>,
    /// Of each speed-up on this chip, or against the other, whose gaps allow another verdict, a sentence.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub speedup_notes: Vec<String>,
    /// Why energies and areas of the two cannot be compared one to one, a sentence each.
    pub not_like_for_like: Vec<String>,
}

impl Document {
    /// The object for the runs of `workload` on `chip`.
    pub fn new(chip: &dyn Device, workload: &Workload, outcomes: &[Outcome]) -> Self {
        let work = Work::of(workload);
        let runs: Vec<RunEntry> =
            outcomes.iter().map(|outcome| RunEntry::new(chip, &work, outcome, tokens(workload))).collect();
        let of = |mode: Mode| runs.iter().find(|run| run.mode == mode.name());
        let over_fused = |before: Mode| {
            let after = of(Mode::Fused)?.timed(Mode::Fused.name());
            Some(Speedup { before: of(before)?.timed(before.name()), after })
        };
        let off_chip = |run: &RunEntry| (run.traffic.off_chip_read_bytes + run.traffic.off_chip_write_bytes) as f64;
        let speedups = [Mode::Kbk, Mode::Epilogue].map(over_fused);
        let [speedup, speedup_over_epilogue] = speedups.map(|of| Some(of?.ratio()));
        let [speedup_range, speedup_over_epilogue_range] = speedups.map(|of| of?.range());
        let speedup_notes = speedups.into_iter().flatten().filter_map(|of| of.sentence()).collect();
        let off_chip_traffic_ratio =
            of(Mode::Kbk).zip(of(Mode::Fused)).map(|(kbk, fused)| TrafficRatio::new(off_chip(kbk), off_chip(fused)));
        let waterfall = of(Mode::Kbk).zip(of(Mode::Fused)).and_then(|(kbk, fused)| Waterfall::of_fusion(kbk, fused));
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
            speedup_range,
            speedup_over_epilogue,
            speedup_over_epilogue_range,
            speedup_notes,
            off_chip_traffic_ratio,
            waterfall,
            against: Against::default(),
            uncertainty: None,
            inputs: None,
        }
    }

    /// The object for several chips: the first's as it would be alone, and the runs of the others beside them.
    pub fn versus(workload: &Workload, first: Side<'_>, others: &[Side<'_>]) -> Self {
        let mut document = Self::new(first.chip, workload, first.outcomes);
        let entries = others.iter().map(|other| document.entry_of(workload, first, *other)).collect();
        document.against = Against(entries);
        document
    }

    /// The runs of another chip beside those of the first, which are the document's.
    fn entry_of(&self, workload: &Workload, first: Side<'_>, second: Side<'_>) -> AgainstEntry {
        let other = Self::new(second.chip, workload, second.outcomes);
        let mut speedup_notes = other.speedup_notes;
        let (mut speedups, mut speedups_range) = (IndexMap::new(), IndexMap::new());
        for run in &self.runs {
            let Some(same) = other.runs.iter().find(|other| other.mode == run.mode) else { continue };
            let [own, others] = [first, second].map(|side| name_of(side, run.mode));
            let of = Speedup { before: same.timed(&others), after: run.timed(&own) };
            speedups.insert(run.mode, of.ratio());
            speedups_range.extend(of.range().map(|range| (run.mode, range)));
            speedup_notes.extend(of.sentence());
        }
        AgainstEntry {
            speedups,
            speedups_range,
            speedup_notes,
            arch: other.arch,
            runs: other.runs,
            speedup: other.speedup,
            speedup_range: other.speedup_range,
            speedup_over_epilogue: other.speedup_over_epilogue,
            speedup_over_epilogue_range: other.speedup_over_epilogue_range,
            off_chip_traffic_ratio: other.off_chip_traffic_ratio,
            waterfall: other.waterfall,
            not_like_for_like: comparable::differences(first.chip, second.chip),
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

/// Tokens that a model's run takes in.
pub(crate) fn tokens(workload: &Workload) -> Option<u64> {
    workload.first_of_a_model().and_then(|_| workload.dims.get("tokens").copied())
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::report::{METRICS, fixture};
    use rdusim_outcome::StopReason;

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
        let top = [
            "schema",
            "arch",
            "workload",
            "runs",
            "speedup",
            "speedup_range",
            "speedup_over_epilogue",
            "speedup_over_epilogue_range",
            "off_chip_traffic_ratio",
            "waterfall",
        ];
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
            "gap",
            "traffic",
            "op_intensity_flop_per_byte",
            "energy_j",
            "sections",
            "stop",
            "notes",
        ];
        let all = keys(&json, 6, "    {");
        let (own, figures) = all.split_at(run.len());
        assert_eq!(own, run);
        let metrics = METRICS.map(|metric| metric.key);
        let shown: Vec<&str> = metrics.into_iter().filter(|&key| key != "j_per_token").collect();
        assert_eq!(figures, shown, "further figures of a run that is no model's");
        let optional = ["time_range_s", "ranges", "tokens_per_s", "phases", "blocked"];
        let taken = |key: &&str| run.contains(key) || optional.contains(key);
        assert_eq!(metrics.iter().find(|key| taken(key)), None, "a figure has the key of a field");
    }

    #[test]
    fn keys_of_traffic_energy_and_sections_stand_in_the_agreed_order() {
        let json = compare().to_json();
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
        assert_eq!(
            keys(&json, 8, "\"energy_j\": {"),
            ["total", "compute", "sram", "network", "off_chip", "static", "compute_zeros"]
        );
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
            "sram_by_use",
            "off_chip_by_tier",
            "energy_j",
            "stages",
        ];
        assert_eq!(keys(&json, 10, "\"sections\": [\n        {"), section);
        assert!(json.ends_with("}\n"));
    }

    #[test]
    fn figures_have_their_definitions() {
        let json: Value = serde_json::from_str(&compare().to_json()).unwrap();
        let (arch, workload) = (&json["arch"], &json["workload"]);
        let [kbk, epilogue, fused] = [0, 1, 2].map(|run| &json["runs"][run]);
        let near = |got: &Value, want: f64| {
            let got = got.as_f64().unwrap();
            assert!((got - want).abs() <= 1e-9 * want.abs(), "{got} is not {want}");
        };
        assert_eq!(json["schema"], 1);
        assert_eq!((arch["pcus"].as_u64(), arch["sram_bytes"].as_u64()), (Some(640), Some(320 << 20)));
        near(&arch["peak_tflops"], 307.2);
        near(&arch["off_chip_gb_per_s"], 100.0);
        assert_eq!((workload["operators"].as_u64(), workload["dtype"].as_str()), (Some(3), Some("bf16")));
        assert_eq!([kbk, epilogue, fused].map(|run| run["mode"].as_str()), ["kbk", "epilogue", "fused"].map(Some));
        let bytes = |run: &Value| {
            let traffic = &run["traffic"];
            traffic["off_chip_read_bytes"].as_u64().unwrap() + traffic["off_chip_write_bytes"].as_u64().unwrap()
        };
        assert_eq!((bytes(kbk), bytes(fused)), (796_917_760, 461_373_440));
        near(&json["off_chip_traffic_ratio"], 796_917_760.0 / 461_373_440.0);
        for run in [kbk, epilogue, fused] {
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
        near(&json["speedup_over_epilogue"], epilogue["time_s"].as_f64().unwrap() / fused["time_s"].as_f64().unwrap());
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
        let json = Document::new(&fixture::sn10(), &fixture::ffn(None), &fixture::outcomes()[2..]).to_json();
        assert!(!json.contains("speedup") && !json.contains("off_chip_traffic_ratio"));
        assert_eq!(keys(&json, 2, "{"), ["schema", "arch", "workload", "runs"]);
    }

    #[test]
    fn nothing_divides_to_zero() {
        let fused = Outcome { mode: Mode::Fused, ..fixture::empty_outcome() };
        let document = Document::new(&fixture::sn10(), &fixture::empty_workload(), &[fixture::empty_outcome(), fused]);
        let json = document.to_json();
        assert!(!json.contains("null") && !json.contains("NaN"));
        assert_eq!((document.speedup, document.off_chip_traffic_ratio), (Some(0.0), Some(TrafficRatio::Number(1.0))));
    }

    #[test]
    fn a_ratio_of_traffic_that_only_one_run_has_is_null() {
        let json = |before, after| serde_json::to_string(&TrafficRatio::new(before, after)).unwrap();
        assert_eq!([json(6.0, 4.0), json(0.0, 0.0), json(6.0, 0.0), json(0.0, 4.0)], ["1.5", "1.0", "null", "null"]);
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
