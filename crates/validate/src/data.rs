//! Measurements of a user beside the simulation: a CSV file of cases and times, `docs/validation.md` describes it.

use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::input::{line_of_record, refuse_repeated};
use rdusim_base::mode::Mode;
use rdusim_base::units::Dtype;
use rdusim_graph::arch::{AnyChip, Bsp, Chip, Quality, Systolic};
use rdusim_graph::workload::Builder;
use rdusim_graph::workload::ProductShape;
use rdusim_machines::bsp;
use rdusim_machines::gpu::{self, Case};
use rdusim_machines::systolic;
use rdusim_pod::System;

use super::cases::{self, Asked};
use super::exchange;
use super::line::{Line, TIMES};
use super::pods;
use super::run::{RefusedRow, SetPart, SetReport, SetRow, outcome};
use super::score::Score;
use super::serving;

/// A kind of case: its name, and the columns it takes; those of [`OPTIONAL`] may be missing.
const KINDS: [(&str, &[&str]); 10] = [
    ("gemm", &["m", "n", "k"]),
    ("attention-prefill", &["batch", "isl", "heads", "kv_heads", "head_dim"]),
    ("attention-decode", &["batch", "cached", "heads", "kv_heads", "head_dim"]),
    (
        "experts",
        &[
            "num_tokens",
            "hidden_size",
            "inter_size",
            "topk",
            "num_experts",
            "moe_tp_size",
            "moe_ep_size",
            "distribution",
        ],
    ),
    (cases::LATENT, &["mla_dtype", "kv_cache_dtype", "num_heads", "batch_size", "isl", "step"]),
    (pods::COLLECTIVES, &["collective", "gpus", "message_size"]),
    (pods::TRAINING, &["gpus", "global_batch", "micro_batch", "hidden", "heads", "layers", "seq", "tp", "dp", "pp"]),
    (pods::PRETRAINING, &["model", "seq", "micro_batch", "accumulation", "tp", "pp", "dp"]),
    (exchange::EXCHANGE, &exchange::COLUMNS),
    (serving::SERVING, &["sockets", "model", "input_tokens", "output_tokens", "batch"]),
];
/// Of these, a measured rate that follows from the other columns is not read.
const OPTIONAL: [&str; 15] = [
    "table",
    "round",
    "memory_share",
    "score_dropout",
    "stage_layers",
    "predicted_tokens",
    "dtype",
    "window_size",
    "tp_size",
    "library",
    "params_b",
    "ttft_s",
    "ttft_s_at_1024",
    "throughput_tok_per_s",
    "derived_ms_per_output_step",
];

/// Below this many microseconds, launches and latencies are most of a time.
const SMALL_US: f64 = 10.0;

/// Simulates every case of a file on a chip or a system: one set for the file, in microseconds.
///
/// # Errors
/// A file that is not what `docs/validation.md` describes, or a case that the chip cannot run.
pub fn validate_data(path: &str, text: &str, target: &Target) -> Result<SetReport, Diagnostic> {
    let source = text.lines().next().and_then(|line| line.strip_prefix('#')).unwrap_or("no source given").trim();
    let mut reader = csv::ReaderBuilder::new().comment(Some(b'#')).trim(csv::Trim::All).from_reader(text.as_bytes());
    let broken =
        |error: &csv::Error| Diagnostic::new(format!("{path}: not a table of comma-separated values: {error}"));
    let header = reader.headers().map_err(|error| broken(&error))?.clone();
    let columns: Vec<&str> = header.iter().collect();
    let kind = kind_of(path, &columns)?;
    let (mut rows, mut refused, mut second_half) = (Vec::new(), Vec::new(), Vec::new());
    let (mut of_rows, mut steps, mut batches) = (Vec::new(), Vec::new(), Vec::new());
    for record in reader.records() {
        let record = record.map_err(|error| broken(&error))?;
        let number = record.position().map_or(0, |at| line_of_record(text, at.byte(), at.line()));
        let line = Line { path, number, cells: columns.iter().copied().zip(record.iter()).collect() };
        if kind == serving::SERVING {
            batches.push((serving::batch(&line)?, line.microseconds()?));
            continue;
        }
        if kind == exchange::EXCHANGE {
            rows.push(exchanged(&line, target)?);
            continue;
        }
        let published = line.microseconds()?;
        let Simulated { label, times } = simulated(kind, &line, target)?;
        let times = match times {
            Ok(times) => times,
            Err(reason) => {
                refused.push(RefusedRow { label, published, reason: reason.title().to_owned() });
                continue;
            }
        };
        second_half.push(line.is_in_second_half());
        if kind == pods::TRAINING {
            steps.push(pods::measured(&line)?);
        }
        if pods::is_of_systems(kind) {
            of_rows.push(pods::feature(kind, &line)?);
        }
        rows.push(SetRow {
            label,
            at: published,
            published,
            simulated: times.simulated * 1e6,
            ideal: times.ideal.map(|seconds| seconds * 1e6),
            serial: times.serial.map(|seconds| seconds * 1e6),
            outlier: false,
        });
    }
    let mut list = Vec::new();
    if kind == serving::SERVING {
        let Target::System(system) = target else { return Err(of_a_system(kind, target)) };
        (rows, list) = serving::rows(system, &batches)?;
    } else if pods::is_of_systems(kind) {
        list.extend(pods::parts(&rows, &of_rows));
    } else {
        list.extend(parts(kind, &rows));
    }
    list.extend(halves(&rows, &second_half));
    let column = |value: fn(&SetRow) -> f64| rows.iter().map(value).collect::<Vec<f64>>();
    let score = Score::new(&column(|row| row.published), &column(|row| row.simulated));
    let ideals: Option<Vec<f64>> = rows.iter().map(|row| row.ideal).collect();
    let ideal = ideals.filter(|all| !all.is_empty()).map(|all| Score::new(&column(|row| row.published), &all));
    if let (Target::System(system), pods::TRAINING) = (target, kind) {
        list.extend(pods::of_models(&steps, &rows));
        list.extend(pods::compared(system, &steps, &rows)?);
    }
    Ok(SetReport {
        name: kind.to_owned(),
        chip: target.name().to_owned(),
        quality: if ideal.is_some() { Quality::Vendor } else { Quality::Ideal },
        point: "case".to_owned(),
        quantity: if kind == exchange::EXCHANGE { "the value in its unit" } else { "microseconds" }.to_owned(),
        source: source.trim_start_matches("source:").trim().to_owned(),
        plotted: false,
        parts: list,
        rows,
        refused,
        score,
        ideal_score: ideal,
    })
}

/// An exchange between tiles, in its own unit.
fn exchanged(line: &Line, target: &Target) -> Result<SetRow, Diagnostic> {
    let (label, published, simulated) = exchange::compared(line, tiles_of(target)?)?;
    Ok(SetRow { label, at: published, published, simulated, ideal: None, serial: None, outlier: false })
}

/// Odd and even lines, so that one may be fitted to and the other predicted, and lines of kernels by size.
fn parts(kind: &str, rows: &[SetRow]) -> Vec<SetPart> {
    let mut list = Vec::new();
    list.extend(SetPart::new("odd lines", rows, |i, _| i % 2 == 0));
    list.extend(SetPart::new("even lines", rows, |i, _| i % 2 == 1));
    if kind != exchange::EXCHANGE {
        let is_small = |i: usize, row: &SetRow| i % 2 == 1 && row.published < SMALL_US;
        list.extend(SetPart::new("even lines below 10 µs", rows, is_small));
        list.extend(SetPart::by_size(rows));
    }
    list
}

/// Halves by a hash of the inputs, of rows of which it is known whether they are in the second.
fn halves(rows: &[SetRow], second: &[bool]) -> Vec<SetPart> {
    let mut list = Vec::new();
    if !second.is_empty() {
        list.extend(SetPart::new("first half by hash of the inputs", rows, |i, _| !second[i]));
        list.extend(SetPart::new("second half by hash of the inputs", rows, |i, _| second[i]));
    }
    list
}

/// The kind whose columns a file has.
fn kind_of(path: &str, columns: &[&str]) -> Result<&'static str, Diagnostic> {
    let has = |column: &&str| columns.contains(column);
    let takes = || {
        let kinds = KINDS.iter().map(|(kind, columns)| format!("{kind}: {}", columns.join(", ")));
        format!(
            "columns by kind: {}; and one of {}",
            kinds.collect::<Vec<_>>().join("; "),
            TIMES.map(|t| t.0).join(", ")
        )
    };
    refuse_repeated(path, columns)?;
    let Some((kind, wanted)) = KINDS.iter().find(|(_, wanted)| wanted.iter().all(&has)) else {
        return Err(
            Diagnostic::new(format!("{path}: the columns {columns:?} are those of no kind of case")).with_help(takes())
        );
    };
    let known =
        |column: &str| wanted.contains(&column) || OPTIONAL.contains(&column) || TIMES.iter().any(|t| t.0 == column);
    if let Some(unknown) = columns.iter().find(|column| !known(column)) {
        return Err(
            Diagnostic::new(format!("{path}: unknown column {unknown:?} for cases of kind {kind}")).with_help(takes())
        );
    }
    if *kind != exchange::EXCHANGE && !TIMES.iter().any(|(column, _)| has(column)) {
        return Err(Diagnostic::new(format!("{path}: no column of measured times")).with_help(takes()));
    }
    Ok(kind)
}

/// What a file was measured on.
#[derive(Debug, Clone)]
pub enum Target {
    /// A chip.
    Chip(AnyChip),
    /// A system of chips.
    System(Box<System>),
}

impl Target {
    fn name(&self) -> &str {
        match self {
            Self::Chip(chip) => chip.device().name(),
            Self::System(system) => &system.name,
        }
    }
}

/// Whether the cases of a file are of a system: what they are simulated on by default.
pub fn is_of_a_system(text: &str) -> bool {
    kind_of("", &header_of(text)).is_ok_and(pods::is_of_systems)
}

/// Whether they are batches that a system of RDUs serves.
pub fn is_of_serving(text: &str) -> bool {
    kind_of("", &header_of(text)).is_ok_and(|kind| kind == serving::SERVING)
}

/// The names of the columns.
pub(super) fn header_of(text: &str) -> Vec<&str> {
    let header = text.lines().find(|line| !line.starts_with('#') && !line.trim().is_empty()).unwrap_or_default();
    header.split(',').map(str::trim).collect()
}

/// Seconds of a case.
struct Times {
    simulated: f64,
    /// If nothing loads while it computes.
    serial: Option<f64>,
    /// With an ideal mapping, where `simulated` has vendor limits.
    ideal: Option<f64>,
}

/// A product on an RDU, within its vendor's limits if it has any.
fn on_rdu(chip: &Chip, case: &Case) -> Result<Times, Diagnostic> {
    let Some((dtype, m, n, k)) = plain(case) else {
        let title = format!("{} is an RDU: only products can be simulated as cases on it", chip.name);
        return Err(Diagnostic::new(title).with_help("give other operators as a workload file to `rdusim run`"));
    };
    let workload = Builder::product(dtype.name(), m, n, k).finish().workload("the product of a case", 0)?;
    let run = |quality: Quality| outcome(&chip.under(quality)?, &workload, Mode::Kbk);
    let ideal = chip.seconds(run(Quality::Ideal)?.cycles);
    if chip.vendor.is_none() {
        return Ok(Times { simulated: ideal, serial: None, ideal: None });
    }
    let vendor = run(Quality::Vendor)?;
    let serial = Some(chip.seconds(vendor.serial_cycles()));
    Ok(Times { simulated: chip.seconds(vendor.cycles), serial, ideal: Some(ideal) })
}

/// The chip of tiles that exchanges are measured on.
fn tiles_of(target: &Target) -> Result<&Bsp, Diagnostic> {
    let bsp = if let Target::Chip(chip) = target { chip.bsp() } else { None };
    bsp.ok_or_else(|| {
        let title = format!("exchanges between tiles are of a chip of kind \"bsp\", {} is none", target.name());
        Diagnostic::new(title).with_help("give `--arch` a file such as arch/gc2.toml")
    })
}

fn of_a_system(kind: &str, target: &Target) -> Diagnostic {
    let title = format!("cases of kind {kind} are of a system, {} is a chip", target.name());
    Diagnostic::new(title).with_help("give `--arch` a system file, such as arch/systems/dgx-a100.toml")
}

/// A case in words, and its times; an error says why it cannot be simulated.
struct Simulated {
    label: String,
    times: Result<Times, Diagnostic>,
}

/// Simulates the case of a line.
///
/// # Errors
/// A cell that cannot be read, or cases of a kind that the target has none of.
fn simulated(kind: &str, line: &Line, target: &Target) -> Result<Simulated, Diagnostic> {
    if pods::is_of_systems(kind) {
        let Target::System(system) = target else {
            return Err(of_a_system(kind, target));
        };
        if kind == pods::COLLECTIVES {
            let (label, seconds) = pods::collective(line, system)?;
            let times = seconds.map(|seconds| Times { simulated: seconds, serial: None, ideal: None });
            return Ok(Simulated { label, times });
        }
        let (label, seconds) = pods::simulated(kind, line, system)?;
        return Ok(Simulated { label, times: Ok(Times { simulated: seconds, serial: None, ideal: None }) });
    }
    let Target::Chip(chip) = target else {
        let title = format!("cases of kind {kind} are of a chip, {} is a system", target.name());
        return Err(Diagnostic::new(title).with_help("give `--arch` a chip file, such as arch/a100.toml"));
    };
    let Asked { label, case } = cases::asked(kind, line)?;
    let case = match case {
        Ok(case) => case,
        Err(reason) => return Ok(Simulated { label, times: Err(reason) }),
    };
    let times = match chip {
        AnyChip::Gpu(gpu) => gpu::seconds(gpu, &case).map(|simulated| Times { simulated, serial: None, ideal: None }),
        AnyChip::Rdu(chip) => Ok(on_rdu(chip, &case)?),
        AnyChip::Bsp(chip) => Ok(on_bsp(chip, &case)?),
        AnyChip::Systolic(chip) => Ok(on_systolic(chip, &case)?),
        AnyChip::Wafer(chip) => {
            let title =
                format!("{} is a chip of kind \"wafer\": no measurement of single kernels is known of it", chip.name);
            return Err(Diagnostic::new(title).with_help("name another chip with `--arch`"));
        }
    };
    Ok(Simulated { label, times })
}

/// A product of one data type, as chips without other formats multiply it.
fn plain(case: &Case) -> Option<(Dtype, u64, u64, u64)> {
    let &Case::Gemm { format, m, n, k } = case else { return None };
    Some((format.plain()?, m, n, k))
}

fn on_bsp(chip: &Bsp, case: &Case) -> Result<Times, Diagnostic> {
    let Some((dtype, m, n, k)) = plain(case) else {
        let title = format!("{} is a chip of kind \"bsp\": attention and experts are not measured on it", chip.name);
        return Err(Diagnostic::new(title).with_help("columns m, n, k are those of a product"));
    };
    Ok(Times { simulated: bsp::gemm_seconds(chip, dtype, ProductShape { m, n, k })?, serial: None, ideal: None })
}

fn on_systolic(chip: &Systolic, case: &Case) -> Result<Times, Diagnostic> {
    let Some((dtype, m, n, k)) = plain(case) else {
        let title =
            format!("{} is a chip of kind \"systolic\": only products are compared with measurements", chip.name);
        return Err(Diagnostic::new(title).with_help("columns m, n, k are those of a product"));
    };
    Ok(Times { simulated: systolic::gemm_seconds(chip, dtype, ProductShape { m, n, k })?, serial: None, ideal: None })
}
