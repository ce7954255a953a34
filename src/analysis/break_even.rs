//! Where a chip and another take as long for a workload, along a field of the chip's file or of the workload.

use std::fmt::Write as _;
use std::path::Path;

use serde::Serialize;

use super::compare::{Options, Ran};
use super::failure::Failure;
use crate::arch;
use crate::diagnostics::Diagnostic;
use crate::input::{Override, Root};
use crate::mode::Mode;
use crate::outcome::Outcome;
use crate::report::human::si;
use crate::report::screen::Screen;
use crate::report::{Curve, CurveChart};
use crate::study::break_even::{Axis, Compared, Crossing, Measured, crossing, figure};
use crate::workload::Workload;

/// What is compared.
pub struct BreakEvenRequest<'a> {
    /// The chip whose field may be the axis.
    pub arch: &'a Path,
    /// The other one.
    pub against: &'a Path,
    /// Overrides of both the first chip's file and the workload's.
    pub sets: &'a [Override],
    /// The path of the field, as in `--set`.
    pub axis: &'a str,
    /// Its value at one end, as in `--set`.
    pub from: &'a str,
    /// And at the other.
    pub to: &'a str,
    /// The mode in which both run.
    pub mode: Mode,
    /// How workloads are run.
    pub options: Options,
    /// Reads the workload under some overrides.
    pub workload: &'a dyn Fn(&[Override]) -> Result<Workload, Diagnostic>,
}

/// The crossing and the names of both chips.
#[derive(Debug)]
pub struct BreakEven {
    /// Names of the chips.
    pub names: [String; 2],
    /// Name of the workload.
    pub workload: String,
    /// Path of the axis.
    pub axis: String,
    /// The mode in which both ran.
    pub mode: Mode,
    /// What was found.
    pub crossing: Crossing,
}

/// Runs both chips along the axis.
///
/// # Errors
/// An axis whose ends are no two numbers, and what the runs refuse.
pub fn break_even(request: &BreakEvenRequest<'_>) -> Result<BreakEven, Failure> {
    let (from, to) = (end(request.axis, "--from", request.from)?, end(request.axis, "--to", request.to)?);
    if (from.number - to.number).abs() <= 0.0 {
        let title = format!("`--from` and `--to` are both {}", request.from);
        return Err(Diagnostic::new(title).with_help("give two ends between which the verdict may turn").into());
    }
    let against = arch::open(request.against, &[])?;
    let is_whole = from.is_whole && to.is_whole;
    let is_of_chip = from.set.root() == Root::Arch;
    let with = |at: f64| -> Result<Vec<Override>, Diagnostic> {
        // A real number keeps its point, so that TOML reads a real one.
        let value = if is_whole { format!("{at:.0}") } else { format!("{at:?}") };
        let mut sets = request.sets.to_vec();
        sets.push(Override::parse(&format!("{}={value}", request.axis))?);
        Ok(sets)
    };
    let first = arch::open(request.arch, &with(from.number)?)?;
    let names = [first.device().name().to_owned(), against.device().name().to_owned()];
    let mut known: Option<Measured> = None;
    let mut name = String::new();
    let axis = Axis {
        path: request.axis,
        from: from.number,
        to: to.number,
        is_whole,
        names: [names[0].as_str(), names[1].as_str()],
    };
    let crossing = crossing(&axis, &mut |at| -> Result<Compared, Failure> {
        let sets = with(at)?;
        let workload = (request.workload)(&sets)?;
        let chip = arch::open(request.arch, &sets)?;
        let first = measured(&Ran::on(chip, &workload, &[request.mode], &request.options, &mut |_| {})?)?;
        // The other chip does not change with a field of this one.
        let second = match known.clone().filter(|_| is_of_chip) {
            Some(known) => known,
            None => measured(&Ran::on(against.clone(), &workload, &[request.mode], &request.options, &mut |_| {})?)?,
        };
        known = Some(second.clone());
        name = workload.name;
        Ok(Compared { at, first, second })
    })?;
    Ok(BreakEven { names, workload: name, axis: request.axis.to_owned(), mode: request.mode, crossing })
}

#[derive(Serialize)]
struct SideEntry<'a> {
    time_s: f64,
    least_s: f64,
    bound_by: &'a str,
}

impl<'a> From<&'a Measured> for SideEntry<'a> {
    fn from(of: &'a Measured) -> Self {
        Self { time_s: of.seconds, least_s: of.least_s, bound_by: &of.bound_by }
    }
}

#[derive(Serialize)]
struct PointEntry<'a> {
    value: f64,
    speedup: f64,
    speedup_range: [f64; 2],
    first: SideEntry<'a>,
    second: SideEntry<'a>,
}

#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    axis: &'a str,
    first: &'a str,
    second: &'a str,
    workload: &'a str,
    mode: &'static str,
    value: Option<f64>,
    range: Option<[f64; 2]>,
    why: &'a str,
    points: Vec<PointEntry<'a>>,
}

impl BreakEven {
    /// The object of `--format json`: `value` and `range` are null where the verdict does not turn; `speedup` of each point is how many
    /// times as fast the first chip is.
    pub fn to_json(&self) -> String {
        let point = |of: &'_ Compared| {
            let (least, most) = of.ratio_range();
            (of.at, of.ratio(), [least, most])
        };
        let entry = |of| {
            let (value, speedup, speedup_range) = point(of);
            PointEntry { value, speedup, speedup_range, first: (&of.first).into(), second: (&of.second).into() }
        };
        let document = Document {
            schema: 1,
            axis: &self.axis,
            first: &self.names[0],
            second: &self.names[1],
            workload: &self.workload,
            mode: self.mode.name(),
            value: self.crossing.value,
            range: self.crossing.range.map(|(least, most)| [least, most]),
            why: &self.crossing.why,
            points: self.crossing.points.iter().map(entry).collect(),
        };
        // Plain data: nothing in it can fail to be written.
        serde_json::to_string_pretty(&document).map(|text| text + "\n").unwrap_or_default()
    }

    /// What was found in sentences; with `full` every point too.
    pub fn to_text(&self, full: bool) -> String {
        let [first, second] = &self.names;
        let mut screen = Screen::default();
        screen.sentence(&format!("{first} against {second}, {} in mode {}", self.workload, self.mode.name()));
        screen.line("");
        let found = self.crossing.value.map_or_else(
            || format!("no break-even along {}", self.axis),
            |value| format!("break-even at {} = {}", self.axis, figure(value)),
        );
        screen.sentence(&match self.crossing.range {
            Some((least, most)) => {
                format!("{found} (better mappings: from {} to {})", figure(least), figure(most))
            }
            None => found,
        });
        screen.line("");
        screen.sentence(&self.crossing.why);
        let mut text = screen.finish(if full { "" } else { "every point" });
        if full {
            let _ = writeln!(text, "\n{:>14} {first:>13} {second:>13} {:>9}", "value", "speed-up");
            for of in &self.crossing.points {
                let times = [of.first.seconds, of.second.seconds].map(|seconds| si(seconds, "s"));
                let _ = writeln!(text, "{:>14} {:>13} {:>13} {:>9.3}", figure(of.at), times[0], times[1], of.ratio());
            }
        }
        text
    }

    /// How many times as fast the first chip is along the axis, with what better mappings could make of it.
    pub fn chart(&self) -> CurveChart {
        let curve = |name: &str, dashed: bool, of: &dyn Fn(&Compared) -> f64| Curve {
            name: name.to_owned(),
            points: self.crossing.points.iter().map(|point| (point.at, of(point))).collect(),
            dashed,
        };
        let [first, second] = &self.names;
        CurveChart {
            title: format!("{first} against {second}"),
            about: format!("{} in mode {}", self.workload, self.mode.name()),
            x_name: self.axis.clone(),
            y_name: format!("times as fast as {second}"),
            curves: vec![
                curve("as found", false, &Compared::ratio),
                curve("at least", true, &|of| of.ratio_range().0),
                curve("at most", true, &|of| of.ratio_range().1),
                curve("break-even", true, &|_| 1.0),
            ],
        }
    }
}

/// An end of the axis.
struct End {
    set: Override,
    number: f64,
    is_whole: bool,
}

fn end(axis: &str, flag: &str, text: &str) -> Result<End, Diagnostic> {
    let set = Override::parse(&format!("{axis}={text}"))?;
    let number = set.value().trim().replace('_', "").parse::<f64>().ok().filter(|number| number.is_finite());
    let number = number.ok_or_else(|| {
        Diagnostic::new(format!("`{flag}` is {text:?}, expected a number")).with_help("such as 100, 0.25 or 64Ki")
    })?;
    let is_whole = set.value().trim().replace('_', "").parse::<i64>().is_ok();
    Ok(End { set, number, is_whole })
}

/// What a run took, and what bounds most of it.
fn measured(ran: &Ran) -> Result<Measured, Failure> {
    ran.drained()?;
    let outcome = ran.outcomes.first().ok_or_else(|| Diagnostic::new("nothing was run"))?;
    let device = ran.chip.device();
    let least = outcome.least_cycles.unwrap_or(outcome.cycles).min(outcome.cycles);
    Ok(Measured {
        seconds: device.seconds(outcome.cycles),
        least_s: device.seconds(least),
        bound_by: bound_by(outcome),
    })
}

/// What bounds the sections that take most of the time.
fn bound_by(outcome: &Outcome) -> String {
    let mut causes: Vec<(String, u64)> = Vec::new();
    for section in &outcome.sections {
        let name = section.bound_by.to_string();
        match causes.iter_mut().find(|(known, _)| *known == name) {
            Some((_, cycles)) => *cycles += section.cycles,
            None => causes.push((name, section.cycles)),
        }
    }
    // Of equals the first.
    causes.into_iter().rev().max_by_key(|(_, cycles)| *cycles).map_or_else(|| "nothing".to_owned(), |(name, _)| name)
}
