//! The runs of a workload side by side: their figures, and which is how much faster.

use comfy_table::Table;
use indexmap::IndexMap;

use rdusim_graph::arch::Device;
use rdusim_graph::workload::Workload;
use rdusim_outcome::{BoundBy, Outcome};

use super::document::tokens;
use super::figures::{Figures, Work, quotient};
use super::gaps::{Speedup, Timed};
use super::human::{bytes, intensity, percent, ratio, shorten, si, whole};
use super::metrics::{ENERGY_OF_A_TOKEN, METRICS, MetricValue, RunView, metrics_of};
use super::side::{MOST_BESIDE, Side, named};
use super::text_table::new_table;

/// More runs side by side have two lines for what bounds them: one would be too wide.
const MOST_WIDE_RUNS: usize = 2;

/// Columns of the name of a chip or of a bound over or among the figures of a run.
pub(super) const NARROW: usize = 15;

/// A row of the summary: its label, how a run shows it, and what of it the runs are compared by.
struct Row(&'static str, fn(&Figures) -> String, Option<fn(&Figures) -> f64>);

/// In lines below each other where there are many runs.
const BOUND_BY: &str = "bound by";

/// Shown for sparse workloads only.
const DENSE_EQUIVALENT: &str = "  dense equivalent";

/// Shown under vendor limits only.
const SERIAL: &str = "  if loads are serial";

/// Multiply-accumulates on elements that are not stored; shown where there are any.
const ZEROS: &str = "    on zeros";

/// Parts of the energy off chip; shown where the chip files tell them.
const ITEMS: [&str; 3] = ["    devices", "    PHYs", "    controllers"];

pub(super) const STATIC: &str = "  static         ";
pub(super) const STATIC_ASSUMED: &str = "  static, assumed";

/// How far the mapping may be from the best; shown where it is known.
const GAP: &str = "  gap";

const SUMMARY: [Row; 28] = [
    Row("time", |f| si(f.time_s, "s"), Some(|f| f.time_s)),
    Row(SERIAL, |f| f.serial_s.map_or_else(String::new, |serial| si(serial, "s")), None),
    Row("cycles", |f| whole(f.cycles), None),
    Row("  lower bound", |f| whole(f.bound_cycles), None),
    Row("  bound / cycles", |f| percent(f.bound_share), None),
    Row(GAP, |f| f.gap.map_or_else(String::new, percent), None),
    Row(BOUND_BY, |f| bound_by(f).join(", "), None),
    Row("launches", |f| whole(f.launches), Some(|f| f.launches as f64)),
    Row("executed", |f| si(f.tflops_executed * 1e12, "FLOP/s"), None),
    Row("  of peak", |f| percent(f.utilization), None),
    Row(DENSE_EQUIVALENT, |f| si(f.tflops_dense_equivalent * 1e12, "FLOP/s"), None),
    Row("op intensity", |f| intensity(f.op_intensity), None),
    Row("off-chip traffic", |f| bytes(f.traffic.off_chip_bytes()), Some(|f| f.traffic.off_chip_bytes() as f64)),
    Row("  read", |f| bytes(f.traffic.off_chip_read_bytes), Some(|f| f.traffic.off_chip_read_bytes as f64)),
    Row("  written", |f| bytes(f.traffic.off_chip_write_bytes), Some(|f| f.traffic.off_chip_write_bytes as f64)),
    Row("network traffic", |f| bytes(f.traffic.network_bytes), Some(|f| f.traffic.network_bytes as f64)),
    Row("SRAM read", |f| bytes(f.traffic.sram_read_bytes), Some(|f| f.traffic.sram_read_bytes as f64)),
    Row("SRAM written", |f| bytes(f.traffic.sram_write_bytes), Some(|f| f.traffic.sram_write_bytes as f64)),
    Row("energy", |f| si(f.energy.total(), "J"), Some(|f| f.energy.total())),
    Row("  compute", |f| si(f.energy.compute, "J"), Some(|f| f.energy.compute)),
    Row(ZEROS, |f| si(f.energy.zeros, "J"), Some(|f| f.energy.zeros)),
    Row("  SRAM", |f| si(f.energy.sram, "J"), Some(|f| f.energy.sram)),
    Row("  network", |f| si(f.energy.network, "J"), Some(|f| f.energy.network)),
    Row("  off chip", |f| si(f.energy.off_chip, "J"), Some(|f| f.energy.off_chip)),
    Row(ITEMS[0], |f| si(f.energy.off_chip_items[0], "J"), Some(|f| f.energy.off_chip_items[0])),
    Row(ITEMS[1], |f| si(f.energy.off_chip_items[1], "J"), Some(|f| f.energy.off_chip_items[1])),
    Row(ITEMS[2], |f| si(f.energy.off_chip_items[2], "J"), Some(|f| f.energy.off_chip_items[2])),
    Row("  static", |f| si(f.energy.static_, "J"), Some(|f| f.energy.static_)),
];

/// What users of a language model look at first: tokens a second, and the energy of one.
fn token_rows(tokens: u64, figures: &[Figures], is_compared: bool) -> [Vec<String>; 2] {
    let row = |label: &str, of: &dyn Fn(&Figures) -> f64, show: &dyn Fn(f64) -> String| {
        let values: Vec<f64> = figures.iter().map(of).collect();
        let mut cells = vec![label.to_owned()];
        cells.extend(values.iter().map(|&value| show(value)));
        if let Some((&last, others)) = values.split_last().filter(|_| is_compared) {
            cells.extend(others.iter().map(|&value| ratio(value, last)));
        }
        cells
    };
    let rate = |value: f64| if value < 100.0 { si(value, "").trim_end().to_owned() } else { whole(value as u64) };
    [
        row("tokens / s", &|f| quotient(tokens as f64, f.time_s), &rate),
        row(ENERGY_OF_A_TOKEN, &|f| quotient(f.energy.total(), tokens as f64), &|j| si(j, "J")),
    ]
}

/// Rows of the summary that decide: those of a default answer.
const DECIDING: [&str; 7] = ["time", SERIAL, GAP, BOUND_BY, "  of peak", "off-chip traffic", "energy"];

/// Runs side by side, and what they are compared by.
pub(super) struct Compared<'a> {
    /// The workload's work.
    pub(super) work: Work,
    /// Runs of all chips.
    pub(super) runs: Vec<(String, &'a dyn Device, &'a Outcome)>,
    pub(super) figures: Vec<Figures>,
    /// What the runs are called over their columns.
    headers: Vec<String>,
    /// Tokens that a run handles, of a language model.
    tokens: Option<u64>,
    /// Whether all runs are compared with the last; of several chips, each mode on the first is with the same on each other.
    with_last: bool,
    chips: usize,
}

impl<'a> Compared<'a> {
    pub(super) fn new(workload: &Workload, sides: &[Side<'a>]) -> Self {
        let work = Work::of(workload);
        let runs = named(sides);
        let figures = runs.iter().map(|(_, chip, outcome)| Figures::new(*chip, &work, outcome)).collect();
        let headers = if sides.len() > 1 {
            runs.iter().map(|(_, chip, run)| format!("{}\n{}", shorten(chip.name(), NARROW), run.mode.name())).collect()
        } else {
            runs.iter().map(|(name, ..)| name.clone()).collect()
        };
        let with_last = sides.len() == 1 || runs.len() == 2;
        Self { work, figures, headers, tokens: tokens(workload), with_last, chips: sides.len(), runs }
    }

    /// Runs that are compared, the one before first.
    fn pairs(&self) -> Vec<(usize, usize)> {
        let runs = &self.runs;
        if self.with_last {
            return (1..runs.len()).map(|before| (before - 1, runs.len() - 1)).collect();
        }
        let split = (runs.len() / self.chips.max(1)).max(1);
        let mode = |at: usize| runs[at].2.mode;
        let others = (1..self.chips).flat_map(|chip| chip * split..(chip + 1) * split).filter(|&at| at < runs.len());
        others.filter_map(|other| Some((other, (0..split).find(|&at| mode(at) == mode(other))?))).collect()
    }

    /// Each pair in a sentence; and in another what its gaps leave open, where they allow another verdict.
    pub(super) fn verdicts(&self) -> Vec<(String, Option<String>)> {
        let told = |(old, new): (usize, usize)| {
            let [before, after] = [old, new].map(|run| Timed::new(&self.runs[run].0, &self.figures[run]));
            let speedup = Speedup { before, after };
            (verdict(&speedup, &self.figures[old], &self.figures[new]), speedup.sentence())
        };
        self.pairs().into_iter().map(told).collect()
    }

    /// The first row: names of the runs, and of their ratios, behind a first cell.
    fn table(&self, first: String) -> Table {
        let mut header = vec![first];
        header.extend(self.headers.iter().cloned());
        if let Some((last, others)) = self.headers.split_last().filter(|_| self.with_last) {
            let over = if last.contains('\n') { "\n/ " } else { " / " };
            header.extend(others.iter().map(|name| format!("{name}{over}{last}")));
        }
        new_table(header)
    }

    /// A row of the summary.
    fn cells(&self, Row(label, show, measure): &Row) -> Vec<String> {
        let mut cells = vec![(*label).to_owned()];
        cells.extend(self.figures.iter().map(show));
        if let (Some((last, others)), Some(measure)) = (self.figures.split_last().filter(|_| self.with_last), measure) {
            cells.extend(others.iter().map(|run| ratio(measure(run), measure(last))));
        }
        cells
    }

    /// Whether a row says something of these runs.
    fn is_shown(&self, Row(label, ..): &Row) -> bool {
        let any = |holds: fn(&Figures) -> bool| self.figures.iter().any(holds);
        (self.work.executed_flops != self.work.dense_flops || *label != DENSE_EQUIVALENT)
            && (*label != SERIAL || any(|run| run.serial_s.is_some()))
            && (*label != ZEROS || any(|run| run.energy.zeros > 0.0))
            && (!ITEMS.contains(label) || any(|run| run.energy.off_chip_items.iter().any(|&joules| joules > 0.0)))
            && (*label != GAP || any(|run| run.gap.is_some()))
    }

    /// The rows that decide, a line each.
    pub(super) fn deciding(&self) -> String {
        let mut fidelities: Vec<&str> = self.runs.iter().map(|(.., run)| run.fidelity.name()).collect();
        fidelities.dedup();
        let first = format!("fidelity {}", fidelities.join(", "));
        let mut rows: Vec<Vec<String>> = Vec::new();
        let [rate, _] = self.tokens.map(|tokens| token_rows(tokens, &self.figures, self.with_last)).unwrap_or_default();
        if !rate.is_empty() {
            rows.push(rate);
        }
        for row in SUMMARY.iter().filter(|row| DECIDING.contains(&row.0) && self.is_shown(row)) {
            let mut cells = self.cells(row);
            if row.0 == BOUND_BY {
                for (cell, run) in cells[1..].iter_mut().zip(&self.figures) {
                    *cell = bound_by(run).into_iter().next().unwrap_or_default();
                }
            }
            rows.push(cells);
        }
        if self.chips > MOST_BESIDE {
            return self.by_chip(first, &rows);
        }
        let mut table = self.table(first);
        for row in rows {
            table.add_row(row);
        }
        table.trim_fmt()
    }

    /// Rows of figures as columns, a row for each run: what many chips have room for. The last column is the time of each over that of
    /// the first.
    fn by_chip(&self, first: String, rows: &[Vec<String>]) -> String {
        let mut header = vec![first];
        header.extend(rows.iter().map(|row| row[0].trim().to_owned()));
        let base = self.figures.first().map_or(0.0, |run| run.time_s);
        header.push(format!(
            "time / {}",
            self.runs.first().map_or(String::new(), |(_, chip, _)| shorten(chip.name(), NARROW))
        ));
        let mut table = new_table(header);
        for (at, (name, ..)) in self.runs.iter().enumerate() {
            let mut cells = vec![name.clone()];
            cells.extend(rows.iter().map(|row| row.get(at + 1).cloned().unwrap_or_default()));
            cells.push(ratio(self.figures[at].time_s, base));
            table.add_row(cells);
        }
        table.trim_fmt()
    }
}

/// Figures of the runs side by side; if they are compared, also those of each run over those of the last.
pub(super) fn summary(of: &Compared<'_>) -> String {
    let &Compared { tokens, ref figures, with_last: is_compared, ref runs, .. } = of;
    let view = |((_, _, outcome), figures): (&(String, &dyn Device, &Outcome), _)| {
        metrics_of(&RunView { figures, outcome, tokens })
    };
    let metrics: Vec<IndexMap<&'static str, MetricValue>> = runs.iter().zip(figures).map(view).collect();
    let mut table = of.table(String::new());
    if let Some(tokens) = tokens {
        for cells in token_rows(tokens, figures, is_compared) {
            table.add_row(cells);
        }
    }
    for row in SUMMARY.iter().filter(|row| of.is_shown(row)) {
        let mut cells = of.cells(row);
        if row.0 == BOUND_BY && figures.len() > MOST_WIDE_RUNS {
            for (cell, run) in cells[1..].iter_mut().zip(figures) {
                *cell = bound_by(run).join("\n");
            }
        }
        table.add_row(cells);
    }
    for metric in METRICS.iter().filter(|metric| metric.label != ENERGY_OF_A_TOKEN) {
        let values: Vec<Option<f64>> =
            metrics.iter().map(|run| run.get(metric.key).map(|value| value.number())).collect();
        if values.iter().all(Option::is_none) {
            continue;
        }
        let mut cells = vec![metric.label.to_owned()];
        cells.extend(values.iter().map(|value| value.map_or_else(String::new, |value| metric.shown(value))));
        if let Some((last, others)) = values.split_last().filter(|_| is_compared) {
            cells.extend(others.iter().map(|value| value.zip(*last).map_or_else(String::new, |(a, b)| ratio(a, b))));
        }
        table.add_row(cells);
    }
    table.trim_fmt()
}

/// The one or two resources that bound most of a run's cycles.
fn bound_by(figures: &Figures) -> Vec<String> {
    match figures.bound_by.as_slice() {
        [] => vec!["-".to_owned()],
        [(only, _)] => vec![shorten(&only.to_string(), NARROW)],
        several => {
            let share = |part: u64| 100.0 * quotient(part as f64, figures.cycles as f64);
            let named =
                |(bound, part): &(BoundBy, u64)| format!("{} {:.0} %", shorten(&bound.to_string(), 10), share(*part));
            // The largest has at least a sixteenth of all; a second that rounds to nothing says nothing.
            several.iter().take(2).filter(|(_, part)| share(*part) >= 0.5).map(named).collect()
        }
    }
}

/// The second run against the first in one sentence, with the range that the gaps of both allow.
fn verdict(speedup: &Speedup<'_>, old: &Figures, new: &Figures) -> String {
    let (first, second) = (speedup.before.name, speedup.after.name);
    let (before, after) = (old.traffic.off_chip_bytes() as f64, new.traffic.off_chip_bytes() as f64);
    let traffic = if before <= 0.0 && after <= 0.0 {
        "no off-chip traffic in either".to_owned()
    } else if after <= 0.0 {
        "no off-chip traffic any more".to_owned()
    } else if before <= 0.0 {
        format!("off-chip traffic, of which {first} has none")
    } else if ratio(before, after) == ratio(1.0, 1.0) {
        if before.to_bits() == after.to_bits() {
            "the same off-chip traffic".to_owned()
        } else {
            "about the same off-chip traffic".to_owned()
        }
    } else if before >= after {
        format!("{} less off-chip traffic", ratio(before, after))
    } else {
        format!("{} more off-chip traffic", ratio(after, before))
    };
    let range = speedup.words().map_or_else(String::new, |range| format!(" ({range})"));
    format!("{second} is {}{range} as fast as {first}, with {traffic}", ratio(old.time_s, new.time_s))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;

    #[test]
    fn several_bounds_are_shared_out() {
        let section = |cycles, bound| fixture::section("s", &["s"], cycles, bound, &[]);
        let sections =
            vec![section(970_000, BoundBy::Compute), section(2_970_000, BoundBy::Fill), section(0, BoundBy::Launch)];
        let outcome = fixture::outcome(rdusim_base::mode::Mode::Kbk, 0, sections);
        let figures = Figures::new(&fixture::sn10(), &Work::of(&fixture::ffn(None)), &outcome);
        assert_eq!(bound_by(&figures), ["fill 74 %", "compute 25 %"]);
    }
}
