//! Where two chips take as long for a workload, or two systems for a batch of users: along a field, a count or a price.

use std::fmt::Write as _;
use std::path::Path;

use serde::Serialize;

use super::compare::{Options, Ran};
use super::failure::Failure;
use super::serving::{ServingRequest, serving};
use crate::arch::{self, AnyChip};
use crate::diagnostics::Diagnostic;
use crate::input::{Override, Root};
use crate::mode::Mode;
use crate::model::Phase;
use crate::outcome::Outcome;
use crate::pod::{Price, Served};
use crate::report::human::{plain, si};
use crate::report::screen::Screen;
use crate::report::{Curve, CurveChart};
use crate::study::break_even::{Axis, Compared, Crossing, Measured, crossing};
use crate::workload::Workload;

/// The axis along which two answers are compared, and what their seconds cost.
#[derive(Debug, Clone, Copy)]
pub struct AxisRequest<'a> {
    /// The path of a field, as in `--set`; `price`, dollars for an hour of a chip of the first; of pods also `batch` and `seq`.
    pub axis: &'a str,
    /// Its value at one end, as in `--set`.
    pub from: &'a str,
    /// And at the other.
    pub to: &'a str,
    /// Dollars for an hour of a chip, of either; times are compared where the second has none.
    pub usd_per_chip_hour: [Option<f64>; 2],
}

/// Chips that are compared.
pub struct BreakEvenRequest<'a> {
    /// The chip whose field may be the axis.
    pub arch: &'a Path,
    /// The chip that it is compared with, as its file says.
    pub against: &'a Path,
    /// Overrides of both the first chip's file and the workload's.
    pub sets: &'a [Override],
    /// The axis, its ends and the prices.
    pub along: AxisRequest<'a>,
    /// The mode in which both run.
    pub mode: Mode,
    /// How workloads are run.
    pub options: Options,
    /// Reads the workload under some overrides.
    pub workload: &'a dyn Fn(&[Override]) -> Result<Workload, Diagnostic>,
}

/// Pods that are compared: the same model and users on both.
#[derive(Debug, Clone)]
pub struct PodBreakEvenRequest<'a> {
    /// The system whose field may be the axis.
    pub first: ServingRequest<'a>,
    /// The system that it is compared with, as its file says.
    pub second: ServingRequest<'a>,
    /// The axis, its ends and the prices.
    pub along: AxisRequest<'a>,
}

/// The crossing and the names of both sides.
#[derive(Debug)]
pub struct BreakEven {
    /// Names of both chips or systems, the one whose field may be the axis first.
    pub names: [String; 2],
    /// Name of the workload or model.
    pub workload: String,
    /// Path of the axis.
    pub axis: String,
    /// The mode in which chips ran, or the phase of pods.
    pub mode: &'static str,
    /// Where the verdict turns, and every point.
    pub crossing: Crossing,
}

/// The ends of an axis.
struct Ends {
    from: End,
    to: End,
    is_whole: bool,
}

impl AxisRequest<'_> {
    /// The axis is the price of the first.
    fn is_price(&self) -> bool {
        self.axis == "price"
    }

    /// Reads both ends and the prices.
    fn ends(&self) -> Result<Ends, Diagnostic> {
        let [first, second] = self.usd_per_chip_hour;
        Price::new(first, None)?;
        Price::new(second, None)?;
        if second.is_none() && (first.is_some() || self.is_price()) {
            let title = "dollars are compared with dollars, and the other side has no price";
            return Err(Diagnostic::new(title).with_help("give `--against-usd-per-chip-hour`"));
        }
        if second.is_some() && first.is_none() && !self.is_price() {
            let title = "dollars are compared with dollars, and the first side has no price";
            return Err(Diagnostic::new(title).with_help("give `--usd-per-chip-hour`, or `--axis price`"));
        }
        let (from, to) = (end(self.axis, "--from", self.from)?, end(self.axis, "--to", self.to)?);
        if (from.number - to.number).abs() <= 0.0 {
            let title = format!("`--from` and `--to` are both {}", self.from);
            return Err(Diagnostic::new(title).with_help("give two ends between which the verdict may turn"));
        }
        let is_whole = from.is_whole && to.is_whole && !self.is_price();
        if (self.is_price() || !self.axis.contains('.')) && from.number.min(to.number) <= 0.0 {
            let title = format!("`--axis {}` begins at {}, expected above 0", self.axis, from.number.min(to.number));
            return Err(Diagnostic::new(title));
        }
        Ok(Ends { from, to, is_whole })
    }

    /// Dollars a second of so many chips on each side, at a value of the axis.
    fn usd_per_s(&self, at: f64, chips: [u64; 2]) -> [Option<f64>; 2] {
        let [first, second] = self.usd_per_chip_hour;
        let first = if self.is_price() { Some(at) } else { first };
        let a_second = |usd: Option<f64>, chips: u64| Some(usd? * chips as f64 / 3600.0);
        [a_second(first, chips[0]), a_second(second, chips[1])]
    }
}

/// A value as `--set` takes it: a real number keeps its point, so that TOML reads a real one.
fn typed(at: f64, is_whole: bool) -> String {
    if is_whole { format!("{at:.0}") } else { format!("{at:?}") }
}

/// Runs both chips along the axis.
///
/// # Errors
/// An axis whose ends are no two numbers, and what the runs refuse.
pub fn break_even(request: &BreakEvenRequest<'_>) -> Result<BreakEven, Failure> {
    let along = &request.along;
    let ends = along.ends()?;
    let against = arch::open(request.against, &[])?;
    let of_first = along.is_price() || ends.from.root.is_some_and(|root| root == Root::Arch);
    if ends.from.root.is_none() && !along.is_price() {
        let title = format!("`--axis` is {:?}, which is no field of a chip or of a workload", along.axis);
        return Err(Diagnostic::new(title).with_help("arch.PATH, workload.PATH, or price").into());
    }
    let with = |at: f64| -> Result<Vec<Override>, Diagnostic> {
        let mut sets = request.sets.to_vec();
        if !along.is_price() {
            sets.push(Override::parse(&format!("{}={}", along.axis, typed(at, ends.is_whole)))?);
        }
        Ok(sets)
    };
    let first = arch::open(request.arch, &with(ends.from.number)?)?;
    let names = [first.device().name().to_owned(), against.device().name().to_owned()];
    let mut known: [Option<Measured>; 2] = [None, None];
    let mut name = String::new();
    let run = |chip: AnyChip, workload: &Workload| {
        measured(&Ran::on(chip, workload, &[request.mode], &request.options, &mut |_| {})?)
    };
    let crossing = crossing(&axis(along, &ends, &names), &mut |at| -> Result<Compared, Failure> {
        let sets = with(at)?;
        let workload = (request.workload)(&sets)?;
        // A price changes no run, and a field of the first chip none of the other.
        let first = match known[0].take().filter(|_| along.is_price()) {
            Some(known) => known,
            None => run(arch::open(request.arch, &sets)?, &workload)?,
        };
        let second = match known[1].take().filter(|_| of_first) {
            Some(known) => known,
            None => run(against.clone(), &workload)?,
        };
        known = [Some(first.clone()), Some(second.clone())];
        name = workload.name;
        let [of_first, of_second] = along.usd_per_s(at, [1, 1]);
        let (first, second) = (Measured { usd_per_s: of_first, ..first }, Measured { usd_per_s: of_second, ..second });
        Ok(Compared { at, first, second })
    })?;
    Ok(BreakEven { names, workload: name, axis: along.axis.to_owned(), mode: request.mode.name(), crossing })
}

/// Serves a batch on both systems along the axis: a token of decoding, or the prompts.
///
/// # Errors
/// An axis whose ends are no two numbers, and what the systems refuse.
pub fn break_even_of_pods(
    request: &PodBreakEvenRequest<'_>,
    noted: &mut dyn FnMut(&str),
) -> Result<BreakEven, Diagnostic> {
    let along = &request.along;
    let ends = along.ends()?;
    let is_count = ["batch", "seq"].contains(&along.axis);
    let is_of_system = ends.from.root.is_some_and(|root| root == Root::Arch);
    if !(is_count || along.is_price() || is_of_system) {
        let title = format!("`--axis` is {:?}, which no system has", along.axis);
        return Err(Diagnostic::new(title).with_help("batch, seq, price, or arch.PATH of the first system's file"));
    }
    if is_count && !ends.is_whole {
        return Err(Diagnostic::new(format!("`--axis {}` is a count: its ends are whole numbers", along.axis)));
    }
    let mut names = [String::new(), String::new()];
    let mut known: [Option<(Measured, u64)>; 2] = [None, None];
    let mut points = Vec::new();
    let mut compare = |at: f64, names: &mut [String; 2]| -> Result<Compared, Diagnostic> {
        let mut sides = [request.first.clone(), request.second.clone()];
        for side in &mut sides {
            match along.axis {
                "batch" => side.batch = at as u64,
                "seq" => side.sequence = Some(at as u64),
                _ => {}
            }
        }
        let mut sets = request.first.sets.to_vec();
        if is_of_system {
            sets.push(Override::parse(&format!("{}={}", along.axis, typed(at, ends.is_whole)))?);
        }
        let mut found = Vec::with_capacity(2);
        for (of, side) in sides.iter().enumerate() {
            let own = ServingRequest { sets: if of == 0 { &sets } else { side.sets }, ..side.clone() };
            let is_known = along.is_price() || (is_of_system && of == 1);
            let served = match known[of].take().filter(|_| is_known) {
                Some(served) => served,
                None => serving(&own, noted, |system, _, service, _, served| {
                    names[of].clone_from(&system.name);
                    (of_served(served, own.phase), service.parallel.chips())
                })?,
            };
            known[of] = Some(served.clone());
            found.push(served);
        }
        let [(first, of_first), (second, of_second)] = [found[0].clone(), found[1].clone()];
        let [usd_of_first, usd_of_second] = along.usd_per_s(at, [of_first, of_second]);
        let (first, second) =
            (Measured { usd_per_s: usd_of_first, ..first }, Measured { usd_per_s: usd_of_second, ..second });
        Ok(Compared { at, first, second })
    };
    // The names are known from the first point on.
    points.push(compare(ends.from.number, &mut names)?);
    let shown = names.clone();
    let crossing = crossing(&axis(along, &ends, &shown), &mut |at| match points.pop() {
        Some(first) => Ok(first),
        None => compare(at, &mut names),
    })?;
    let mode = if request.first.phase == Phase::Decode { "decode" } else { "prefill" };
    Ok(BreakEven {
        names: shown,
        workload: request.first.model.to_owned(),
        axis: along.axis.to_owned(),
        mode,
        crossing,
    })
}

/// The axis of the search.
fn axis<'a>(along: &AxisRequest<'a>, ends: &Ends, names: &'a [String; 2]) -> Axis<'a> {
    Axis {
        path: along.axis,
        from: ends.from.number,
        to: ends.to.number,
        is_whole: ends.is_whole,
        names: [names[0].as_str(), names[1].as_str()],
    }
}

/// What a phase takes, and what most of it is.
fn of_served(served: &Served, phase: Phase) -> Measured {
    let (seconds, time) = match phase {
        Phase::Decode => (served.token_s(), served.decode.time),
        _ => (served.ttft_s(), served.prefill.time),
    };
    let parts = [
        (time.compute, "computing and memory"),
        (time.tensor_comm, "collectives"),
        (time.pipeline_comm, "transfers between stages"),
        (time.expert_comm, "exchanges of experts"),
        (time.bubble, "waiting for stages"),
        (time.other, "the host"),
    ];
    let longest = parts.iter().rev().max_by(|a, b| a.0.total_cmp(&b.0)).map_or("nothing", |(_, name)| name);
    Measured { seconds, least_s: seconds, bound_by: longest.to_owned(), usd_per_s: None }
}

#[derive(Serialize)]
struct SideEntry<'a> {
    time_s: f64,
    least_s: f64,
    bound_by: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    usd: Option<f64>,
}

impl<'a> From<&'a Measured> for SideEntry<'a> {
    fn from(of: &'a Measured) -> Self {
        Self { time_s: of.seconds, least_s: of.least_s, bound_by: &of.bound_by, usd: of.usd() }
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
            mode: self.mode,
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
        screen.sentence(&format!("{first} against {second}, {} in mode {}", self.workload, self.mode));
        screen.line("");
        let found = self.crossing.value.map_or_else(
            || format!("no break-even along {}", self.axis),
            |value| format!("break-even at {} = {}", self.axis, plain(value)),
        );
        screen.sentence(&match self.crossing.range {
            Some((least, most)) => {
                format!("{found} (from {} to {})", plain(least), plain(most))
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
                let _ = writeln!(text, "{:>14} {:>13} {:>13} {:>9.3}", plain(of.at), times[0], times[1], of.ratio());
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
            like: None,
        };
        let [first, second] = &self.names;
        let at = |point: Option<&Compared>| point.map_or(0.0, |point| point.at);
        let ends = [at(self.crossing.points.first()), at(self.crossing.points.last())];
        let is_priced = self.crossing.points.iter().any(|point| point.first.usd_per_s.is_some());
        CurveChart {
            title: format!("{first} against {second}"),
            about: format!("{} in mode {}", self.workload, self.mode),
            x_name: self.axis.clone(),
            y_name: format!("times as {} as {second}", if is_priced { "cheap" } else { "fast" }),
            curves: vec![
                curve("as found", false, &Compared::ratio),
                curve("at least", true, &|of| of.ratio_range().0),
                curve("at most", true, &|of| of.ratio_range().1),
                Curve {
                    name: "break-even".to_owned(),
                    points: ends.map(|at| (at, 1.0)).to_vec(),
                    dashed: true,
                    like: None,
                },
            ],
        }
    }
}

/// An end of the axis.
struct End {
    /// The file that has the field; nothing of an axis that is no field.
    root: Option<Root>,
    number: f64,
    is_whole: bool,
}

fn end(axis: &str, flag: &str, text: &str) -> Result<End, Diagnostic> {
    let is_field = axis.contains('.');
    // Suffixes are those of `--set`.
    let path = if is_field { axis } else { "workload.value" };
    let set = Override::parse(&format!("{path}={text}"))?;
    let plain = set.value().trim().replace('_', "");
    let number = plain.parse::<f64>().ok().filter(|number| number.is_finite());
    let number = number.ok_or_else(|| {
        Diagnostic::new(format!("`{flag}` is {text:?}, expected a number")).with_help("such as 100, 0.25 or 64Ki")
    })?;
    Ok(End { root: is_field.then(|| set.root()), number, is_whole: plain.parse::<i64>().is_ok() })
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
        usd_per_s: None,
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
