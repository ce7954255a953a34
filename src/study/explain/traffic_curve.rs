//! Least off-chip traffic against SRAM: what no mapping moves less of on the chip with more and with less of it, and what the mapping
//! that was found moves.

use std::fmt::Write as _;

use serde::Serialize;

use crate::arch::Chip;
use crate::compile::Effort;
use crate::diagnostics::Diagnostic;
use crate::input::Override;
use crate::mode::Mode;
use crate::outcome::Fidelity;
use crate::program::divided_over_tiers;
use crate::proof::least_bytes;
use crate::report::{Curve, CurveChart, File, WriteError};
use crate::study::inputs::{Inputs, run, run_all};

use super::remark_of;

const MIB: f64 = (1u64 << 20) as f64;
const NOT_COUNTED: &str =
    "The floors count bytes of SRAM alone: banks, and double buffers of what passes through, may take more.";
/// Half octaves of SRAM below the chip's, and above.
const STEPS: std::ops::RangeInclusive<i32> = -12..=6;

/// Least off-chip traffic of each mode against the SRAM of a chip.
#[derive(Debug, Clone, Serialize)]
pub struct TrafficCurve {
    /// Version of this form.
    pub schema: u32,
    /// Name of the chip.
    pub arch: String,
    /// Name of the workload.
    pub workload: String,
    /// Bytes of all PMUs of the chip as it is.
    pub sram_bytes: u64,
    /// What the mapping that was found moves on the chip as it is, and what none moves less of, a mode each.
    pub modes: Vec<OfMode>,
    /// By rising SRAM.
    pub points: Vec<OfSram>,
    /// What the floors leave out.
    pub notes: Vec<String>,
}

/// A mode on the chip as it is.
#[derive(Debug, Clone, Serialize)]
pub struct OfMode {
    /// Name of the mode.
    pub mode: &'static str,
    /// Bytes off chip of the mapping that was found.
    pub found_bytes: u64,
    /// Bytes off chip that no mapping moves less of; nothing where the floors know none.
    pub least_bytes: Option<u64>,
    /// `found_bytes / least_bytes - 1`.
    pub gap: Option<f64>,
    /// The least SRAM of the points beyond which the floor falls no further.
    pub enough_sram_bytes: Option<u64>,
}

/// An amount of SRAM.
#[derive(Debug, Clone, Serialize)]
pub struct OfSram {
    /// Bytes of one PMU, in whole banks: what `arch.pmu.capacity_bytes` is set to.
    pub pmu_capacity_bytes: u64,
    /// Bytes of all PMUs.
    pub sram_bytes: u64,
    /// Bytes off chip that no mapping moves less of, a mode each in the order of `modes`; nothing where no mapping fits.
    pub least_bytes: Vec<Option<u64>>,
}

/// The curve of some modes: the floors at many amounts of SRAM, and one compilation at the chip's own, at an effort. `tick` is called with
/// the points done and the points there are, from any thread.
///
/// # Errors
/// What the inputs, the compiler or a run refuse, and a chip that has no mapping.
pub fn traffic_curve(
    inputs: &Inputs,
    modes: &[Mode],
    effort: Effort,
    tick: &(dyn Fn(usize, usize) + Sync),
) -> Result<TrafficCurve, Diagnostic> {
    let Ok(chip) = inputs.any_chip(&[])?.into_rdu() else {
        let title =
            "--traffic-curve draws what a mapping onto an RDU must move: this chip runs kernels, which need no mapping";
        return Err(Diagnostic::new(title).with_help("leave --traffic-curve out, or take a chip of kind `rdu`"));
    };
    let workload = inputs.workload(&[], None)?;
    let floors = |chip: &Chip| {
        let divided = divided_over_tiers(chip, &workload);
        least_bytes(chip, divided.as_ref().unwrap_or(&workload), modes)
    };
    let capacities = capacities(&chip);
    let done = std::sync::atomic::AtomicUsize::new(0);
    let all = capacities.len() + 1;
    let count = || tick(done.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1, all);
    tick(0, all);
    let of_capacity = |&capacity: &u64| -> Result<Option<OfSram>, Diagnostic> {
        let set = Override::parse(&format!("arch.pmu.capacity_bytes={capacity}"))?;
        // The chip as it is has passed its checks; what is too small or too large for them is no point.
        let varied = inputs.chip(&[&set]).ok();
        let point = varied.map(|varied| OfSram {
            pmu_capacity_bytes: capacity,
            sram_bytes: varied.sram_bytes(),
            least_bytes: floors(&varied),
        });
        count();
        Ok(point)
    };
    let points = run_all(&capacities, of_capacity).into_iter().collect::<Result<Vec<_>, _>>()?;
    let points: Vec<OfSram> = points.into_iter().flatten().collect();

    let divided = divided_over_tiers(&chip, &workload);
    let graph = divided.as_ref().unwrap_or(&workload);
    let (_, outcomes) = run(&chip, graph, modes, effort, Fidelity::Event)?;
    // The chip's own amount is one of the points.
    let own = points.iter().find(|point| point.pmu_capacity_bytes == chip.pmu.capacity_bytes);
    let own = own.map_or_else(|| vec![None; modes.len()], |point| point.least_bytes.clone());
    let mut of_modes = Vec::with_capacity(modes.len());
    for ((at, outcome), least_bytes) in outcomes.iter().enumerate().zip(own) {
        let found_bytes = outcome.traffic().off_chip_bytes();
        let of_point = |point: &OfSram| Some((point.sram_bytes, point.least_bytes[at]?));
        let last = points.iter().rev().find_map(of_point);
        let is_last = |of: &(u64, u64)| last.is_some_and(|last| of.1 == last.1);
        of_modes.push(OfMode {
            mode: modes[at].name(),
            found_bytes,
            least_bytes,
            gap: least_bytes.filter(|&least| least > 0).map(|least| found_bytes as f64 / least as f64 - 1.0),
            enough_sram_bytes: points.iter().filter_map(of_point).find(is_last).map(|of| of.0),
        });
    }
    count();
    Ok(TrafficCurve {
        schema: 1,
        arch: chip.name.clone(),
        workload: workload.name.clone(),
        sram_bytes: chip.sram_bytes(),
        modes: of_modes,
        points,
        notes: std::iter::once(NOT_COUNTED.to_owned()).chain(remark_of(effort)).collect(),
    })
}

/// Bytes of a PMU at each point: half octaves around the chip's, in whole banks.
fn capacities(chip: &Chip) -> Vec<u64> {
    let (own, banks) = (chip.pmu.capacity_bytes, chip.pmu.banks.max(1));
    let of_step = |step: i32| {
        let bytes = own as f64 * 2f64.powf(f64::from(step) / 2.0);
        (bytes / banks as f64).round().max(1.0) as u64 * banks
    };
    let mut list: Vec<u64> = STEPS.map(of_step).collect();
    list.dedup();
    list
}

fn mib(bytes: u64) -> String {
    let mib = bytes as f64 / MIB;
    if mib < 10.0 { format!("{mib:.2}") } else { format!("{mib:.1}") }
}

impl TrafficCurve {
    /// As text: what was found beside the floor, and the floors by SRAM.
    pub fn to_text(&self) -> String {
        let mut text = format!("{} on {}: off-chip traffic against SRAM, MiB\n\n", self.workload, self.arch);
        let _ = writeln!(
            text,
            "{:<10} {:>12} {:>12} {:>8}   does more SRAM save traffic?",
            "mode", "found", "at least", "gap"
        );
        for of in &self.modes {
            let least = of.least_bytes.map_or_else(|| "-".to_owned(), mib);
            let gap = of.gap.map_or_else(|| "-".to_owned(), |gap| format!("{:.1} %", 100.0 * gap));
            let enough = match of.enough_sram_bytes {
                Some(enough) if enough <= self.sram_bytes => format!("no, from {} MiB on", mib(enough)),
                Some(enough) => format!("yes, up to {} MiB", mib(enough)),
                None => "-".to_owned(),
            };
            let _ = writeln!(text, "{:<10} {:>12} {least:>12} {gap:>8}   {enough}", of.mode, mib(of.found_bytes));
        }
        let _ = write!(text, "\nno mapping moves less than, at so much SRAM:\n{:>10}", "SRAM");
        for of in &self.modes {
            let _ = write!(text, " {:>12}", of.mode);
        }
        text.push('\n');
        for point in &self.points {
            let _ = write!(text, "{:>10}", mib(point.sram_bytes));
            for least in &point.least_bytes {
                let _ = write!(text, " {:>12}", least.map_or_else(|| "-".to_owned(), mib));
            }
            text.push_str(if point.sram_bytes == self.sram_bytes { "  the chip\n" } else { "\n" });
        }
        for note in &self.notes {
            let _ = writeln!(text, "note: {note}");
        }
        text
    }

    /// All of it as JSON, which the page is made of.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).map(|json| json + "\n").unwrap_or_default()
    }

    /// As CSV: a row for each amount of SRAM and mode; `found_bytes` where it is the chip's own.
    pub fn to_csv(&self) -> String {
        let mut text = "pmu_capacity_bytes,sram_bytes,mode,least_bytes,found_bytes\n".to_owned();
        for point in &self.points {
            for (of, least) in self.modes.iter().zip(&point.least_bytes) {
                let least = least.map_or_else(String::new, |bytes| bytes.to_string());
                let is_own = point.sram_bytes == self.sram_bytes;
                let found = if is_own { of.found_bytes.to_string() } else { String::new() };
                let _ = writeln!(text, "{},{},{},{least},{found}", point.pmu_capacity_bytes, point.sram_bytes, of.mode);
            }
        }
        text
    }

    /// The picture, as SVG and PNG.
    ///
    /// # Errors
    /// A picture that cannot be drawn.
    pub fn pictures(&self) -> Result<Vec<File>, WriteError> {
        let chart = self.chart();
        let failed = |error| WriteError::Chart("traffic-curve", error);
        let file = |ending: &str, bytes| File { name: format!("traffic-curve.{ending}"), bytes };
        Ok(vec![file("svg", chart.svg().map_err(failed)?.into_bytes()), file("png", chart.png().map_err(failed)?)])
    }

    fn chart(&self) -> CurveChart {
        let floor = |(at, of): (usize, &OfMode)| Curve {
            name: format!("{}, least", of.mode),
            points: self
                .points
                .iter()
                .filter_map(|point| Some((point.sram_bytes as f64 / MIB, point.least_bytes[at]? as f64 / MIB)))
                .collect(),
            dashed: true,
            like: None,
        };
        let found = |(at, of): (usize, &OfMode)| Curve {
            name: format!("{}, found", of.mode),
            points: vec![(self.sram_bytes as f64 / MIB, of.found_bytes as f64 / MIB)],
            dashed: false,
            like: Some(at),
        };
        CurveChart {
            title: "Off-chip traffic against SRAM".to_owned(),
            about: format!(
                "{} on {}: what no mapping moves less of, and what was found at {} MiB",
                self.workload,
                self.arch,
                mib(self.sram_bytes)
            ),
            x_name: "MiB of SRAM".to_owned(),
            y_name: "MiB off chip".to_owned(),
            curves: self.modes.iter().enumerate().map(floor).chain(self.modes.iter().enumerate().map(found)).collect(),
        }
    }
}
