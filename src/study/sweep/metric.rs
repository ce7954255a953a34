//! Metrics by name: figures of the inputs, of a run, and of two runs together.

use crate::arch::{AnyChip, Chip};
use crate::mode::Mode;
use crate::report::{Document, METRICS, MetricValue, RunEntry, RunRanges};
use crate::workload::Workload;

/// One cell of a result.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Cell {
    Whole(u64),
    Real(f64),
    Word(String),
}

impl std::fmt::Display for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Whole(number) => number.fmt(f),
            // The shortest digits that read back as the same number.
            Self::Real(number) => number.fmt(f),
            Self::Word(word) => word.fmt(f),
        }
    }
}

impl From<MetricValue> for Cell {
    fn from(value: MetricValue) -> Self {
        match value {
            MetricValue::Whole(count) => Self::Whole(count),
            MetricValue::Real(measure) => Self::Real(measure),
        }
    }
}

/// A figure that a study records for each point.
#[derive(Debug, Clone, Copy)]
pub(super) enum Metric {
    /// Of chip or workload.
    Input(&'static InputFigure),
    /// Of a mode's run.
    Run(Mode, &'static RunFigure),
    /// Of a mode's run, by its key in the JSON object.
    Key(Mode, &'static str),
    /// Of two runs.
    Both(&'static BothFigure),
    /// `ok`, or why there is no result.
    Status,
}

type Name = &'static str;
pub(super) type InputFigure = (Name, fn(&AnyChip, &Workload) -> Option<Cell>);
pub(super) type RunFigure = (Name, fn(&RunEntry) -> Cell);
/// The two modes it is of, and what it is.
pub(super) type BothFigure = (Name, [Mode; 2], fn(&Document) -> Option<f64>);

/// Figures that need no run; constraints may name them too.
const INPUTS: [InputFigure; 13] = [
    ("pcus", |chip, _| Some(Cell::Whole(chip.device().compute_units()))),
    ("pmus", |chip, _| Some(Cell::Whole(chip.device().memory_units()))),
    ("ags", |chip, _| of_grid(chip, |chip| Some(Cell::Whole(chip.grid.ags())))),
    ("sram_bytes", |chip, _| Some(Cell::Whole(chip.device().sram_bytes()))),
    ("peak_tflops", |chip, _| {
        let device = chip.device();
        let peaks = device.dtypes().into_iter().filter_map(|dtype| device.peak_flops(dtype));
        Some(Cell::Real(peaks.fold(0.0, f64::max) / 1e12))
    }),
    ("off_chip_gb_per_s", |chip, _| {
        let tiers = chip.device().tiers().iter();
        Some(Cell::Real(tiers.map(|tier| tier.bandwidth_bytes_per_s as f64).sum::<f64>() / 1e9))
    }),
    ("launch_cycles", |chip, _| of_grid(chip, |chip| Some(Cell::Whole(chip.launch_cycles())))),
    ("area_mm2", |chip, _| of_grid(chip, |chip| chip.area_mm2().map(|area| Cell::Real(area.total())))),
    ("pcu_area_mm2", |chip, _| of_grid(chip, |chip| chip.area_mm2().map(|area| Cell::Real(area.pcus)))),
    ("pmu_area_mm2", |chip, _| of_grid(chip, |chip| chip.area_mm2().map(|area| Cell::Real(area.pmus)))),
    ("package_w", |chip, _| of_grid(chip, |chip| chip.area.as_ref()?.package_w.map(Cell::Real))),
    ("parameters", |_, workload| Some(Cell::Whole(workload.parameters()))),
    ("stored_macs", |_, workload| {
        Some(Cell::Whole(workload.operators.ids().map(|operator| workload.stored_macs(operator)).sum()))
    }),
];

/// What only a grid of PCUs and PMUs has.
fn of_grid(chip: &AnyChip, figure: fn(&Chip) -> Option<Cell>) -> Option<Cell> {
    chip.rdu().and_then(figure)
}

/// Figures of a run that the lower bound of the graph has too.
const BOUNDED: [Name; 3] = ["cycles", "time_s", "bound_cycles"];

/// One end of a range of a run; recorded as no number where nothing was drawn.
fn end(run: &RunEntry, of: fn(&RunRanges) -> [f64; 2], upper: bool) -> Cell {
    run.ranges.as_ref().map_or_else(|| Cell::Word(String::new()), |ranges| Cell::Real(of(ranges)[usize::from(upper)]))
}

const RUNS: [RunFigure; 29] = [
    ("cycles", |run| Cell::Whole(run.cycles)),
    ("time_s", |run| Cell::Real(run.time_s)),
    ("bound_cycles", |run| Cell::Whole(run.bound_cycles)),
    (GAP, |run| run.gap.map_or_else(|| Cell::Word(String::new()), Cell::Real)),
    ("launches", |run| Cell::Whole(run.launches)),
    ("launch_cycles", |run| Cell::Whole(run.sections.iter().map(|section| section.launch_cycles).sum())),
    ("tflops_dense_equivalent", |run| Cell::Real(run.tflops_dense_equivalent)),
    ("tflops_executed", |run| Cell::Real(run.tflops_executed)),
    ("utilization", |run| Cell::Real(run.utilization)),
    ("off_chip_bytes", |run| Cell::Whole(run.traffic.off_chip_read_bytes + run.traffic.off_chip_write_bytes)),
    ("off_chip_read_bytes", |run| Cell::Whole(run.traffic.off_chip_read_bytes)),
    ("off_chip_write_bytes", |run| Cell::Whole(run.traffic.off_chip_write_bytes)),
    ("network_bytes", |run| Cell::Whole(run.traffic.network_bytes)),
    ("network_byte_hops", |run| Cell::Whole(run.traffic.network_byte_hops)),
    ("sram_read_bytes", |run| Cell::Whole(run.traffic.sram_read_bytes)),
    ("sram_write_bytes", |run| Cell::Whole(run.traffic.sram_write_bytes)),
    ("waste_bytes", |run| Cell::Whole(run.traffic.waste_bytes)),
    ("op_intensity_flop_per_byte", |run| Cell::Real(run.op_intensity_flop_per_byte)),
    ("energy_j", |run| Cell::Real(run.energy_j.total)),
    ("energy_compute_j", |run| Cell::Real(run.energy_j.compute)),
    ("energy_sram_j", |run| Cell::Real(run.energy_j.sram)),
    ("energy_network_j", |run| Cell::Real(run.energy_j.network)),
    ("energy_off_chip_j", |run| Cell::Real(run.energy_j.off_chip)),
    ("energy_static_j", |run| Cell::Real(run.energy_j.static_)),
    ("time_s_p5", |run| end(run, |ranges| ranges.time_s, false)),
    ("time_s_p95", |run| end(run, |ranges| ranges.time_s, true)),
    ("energy_j_p5", |run| end(run, |ranges| ranges.energy_j, false)),
    ("energy_j_p95", |run| end(run, |ranges| ranges.energy_j, true)),
    ("bound_by", |run| {
        // Of the section that takes most of the time; of equals the first.
        let longest = run.sections.iter().rev().max_by_key(|section| section.cycles);
        Cell::Word(longest.map_or_else(String::new, |section| section.bound_by.clone()))
    }),
];

/// How far a mapping may be from the best; no number where that is not known.
const GAP: Name = "gap";

/// Ends of the names of what gaps allow of a ratio.
const GAP_ENDS: [&str; 2] = ["_least", "_most"];

const TRAFFIC_RATIO: Name = "off_chip_traffic_ratio";

/// Ends of the names of figures that need draws of uncertain fields.
const RANGE_ENDS: [&str; 2] = ["_p5", "_p95"];

const BOTH: [BothFigure; 11] = [
    ("speedup", [Mode::Kbk, Mode::Fused], |document| document.speedup),
    ("speedup_over_epilogue", [Mode::Epilogue, Mode::Fused], |document| document.speedup_over_epilogue),
    ("speedup_least", [Mode::Kbk, Mode::Fused], |document| Some(document.speedup_range?[0])),
    ("speedup_most", [Mode::Kbk, Mode::Fused], |document| Some(document.speedup_range?[1])),
    ("speedup_over_epilogue_least", [Mode::Epilogue, Mode::Fused], |document| {
        Some(document.speedup_over_epilogue_range?[0])
    }),
    ("speedup_over_epilogue_most", [Mode::Epilogue, Mode::Fused], |document| {
        Some(document.speedup_over_epilogue_range?[1])
    }),
    ("speedup_p5", [Mode::Kbk, Mode::Fused], |document| Some(document.uncertainty.as_ref()?.speedup?[0])),
    ("speedup_p95", [Mode::Kbk, Mode::Fused], |document| Some(document.uncertainty.as_ref()?.speedup?[1])),
    ("speedup_over_epilogue_p5", [Mode::Epilogue, Mode::Fused], |document| {
        Some(document.uncertainty.as_ref()?.speedup_over_epilogue?[0])
    }),
    ("speedup_over_epilogue_p95", [Mode::Epilogue, Mode::Fused], |document| {
        Some(document.uncertainty.as_ref()?.speedup_over_epilogue?[1])
    }),
    (TRAFFIC_RATIO, [Mode::Kbk, Mode::Fused], |document| document.off_chip_traffic_ratio?.number()),
];

fn run_names() -> impl Iterator<Item = Name> {
    RUNS.iter().map(|(name, _)| *name).chain(METRICS.iter().map(|metric| metric.key))
}

impl Metric {
    /// The metric of a name, if there is one.
    pub(super) fn named(name: &str) -> Option<Self> {
        if name == "status" {
            return Some(Self::Status);
        }
        let input = INPUTS.iter().find(|(known, _)| *known == name).map(Self::Input);
        let both = || BOTH.iter().find(|(known, ..)| *known == name).map(Self::Both);
        let run = || {
            let (mode, figure) = name.split_once('.')?;
            let mode = Mode::named(mode)?;
            let of_field = RUNS.iter().find(|(known, _)| *known == figure).map(|figure| Self::Run(mode, figure));
            let of_key = || METRICS.iter().find(|known| known.key == figure).map(|known| Self::Key(mode, known.key));
            of_field.or_else(of_key)
        };
        input.or_else(both).or_else(run)
    }

    /// Every name, for messages.
    pub(super) fn names() -> Vec<String> {
        let inputs = INPUTS.iter().map(|(name, _)| (*name).to_owned());
        let both = BOTH.iter().map(|(name, ..)| (*name).to_owned());
        let runs =
            Mode::ALL.into_iter().rev().flat_map(|mode| run_names().map(move |name| format!("{}.{name}", mode.name())));
        inputs.chain(both).chain(["status".to_owned()]).chain(runs).collect()
    }

    /// Modes whose runs it needs.
    pub(super) fn needs(self) -> Vec<Mode> {
        match self {
            Self::Input(_) | Self::Status => Vec::new(),
            Self::Run(mode, _) | Self::Key(mode, _) => vec![mode],
            Self::Both((_, modes, _)) => modes.to_vec(),
        }
    }

    /// Whether the lower bound of the graph has it.
    pub(super) fn is_bounded(self) -> bool {
        match self {
            Self::Input(_) | Self::Status => true,
            Self::Run(_, (name, _)) => BOUNDED.contains(name),
            Self::Key(..) => false,
            Self::Both((name, ..)) => *name != TRAFFIC_RATIO && !self.is_range() && !self.needs_gaps(),
        }
    }

    /// Whether it is an end of a range.
    pub(super) fn is_range(self) -> bool {
        let name = match self {
            Self::Run(_, (name, _)) | Self::Both((name, ..)) => *name,
            Self::Input(_) | Self::Key(..) | Self::Status => return false,
        };
        RANGE_ENDS.iter().any(|end| name.ends_with(end))
    }

    /// Whether it needs to know what no mapping beats.
    pub(super) fn needs_gaps(self) -> bool {
        match self {
            Self::Run(_, (name, _)) => *name == GAP,
            Self::Both((name, ..)) => GAP_ENDS.iter().any(|end| name.ends_with(end)),
            Self::Input(_) | Self::Key(..) | Self::Status => false,
        }
    }

    /// Names of the metrics that a study records behind this one: a speed-up never stands without what the gaps of its runs allow.
    pub(super) fn with(self) -> Vec<String> {
        match self {
            Self::Both((name @ ("speedup" | "speedup_over_epilogue"), ..)) => {
                GAP_ENDS.iter().map(|end| format!("{name}{end}")).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Whether the inputs alone give it.
    pub(super) fn is_input(self) -> bool {
        matches!(self, Self::Input(_))
    }

    /// Its value of a point; `None` where there is none.
    pub(super) fn of(self, chip: &AnyChip, workload: &Workload, measured: &Measured) -> Option<Cell> {
        match (self, measured) {
            (Self::Input((_, figure)), _) => figure(chip, workload),
            (Self::Run(mode, (_, figure)), Measured::Runs(document)) => {
                document.runs.iter().find(|run| run.mode == mode.name()).map(figure)
            }
            (Self::Key(mode, key), Measured::Runs(document)) => {
                let run = document.runs.iter().find(|run| run.mode == mode.name())?;
                run.metrics.get(key).map(|&value| value.into())
            }
            (Self::Both((.., figure)), Measured::Runs(document)) => figure(document).map(Cell::Real),
            (Self::Run(mode, (name, _)), Measured::Bounds(bounds)) => {
                let (_, cycles) = bounds.iter().find(|(of, _)| *of == mode)?;
                Some(if *name == "time_s" { Cell::Real(chip.device().seconds(*cycles)) } else { Cell::Whole(*cycles) })
            }
            (Self::Both((_, [before, after], _)), Measured::Bounds(bounds)) => {
                let of = |mode: Mode| bounds.iter().find(|(m, _)| *m == mode).map(|(_, cycles)| *cycles as f64);
                Some(Cell::Real(of(*before)? / of(*after)?))
            }
            (Self::Status, Measured::Refused(why)) => Some(Cell::Word(why.clone())),
            (Self::Status, _) => Some(Cell::Word("ok".to_owned())),
            (_, Measured::Refused(_)) | (Self::Key(..), Measured::Bounds(_)) => None,
        }
    }
}

/// What was found out about a point.
#[derive(Debug)]
pub(super) enum Measured {
    /// Lower bounds of the graph, in cycles.
    Bounds(Vec<(Mode, u64)>),
    /// Runs.
    Runs(Box<Document>),
    /// Nothing, and why.
    Refused(String),
}
