//! `rdusim validate` and `rdusim calibrate`: simulated against published.

use std::path::PathBuf;

use clap::Args;

use crate::analysis::{self, PointsRequest};
use crate::arch::{self, Chip};
use crate::diagnostics::Diagnostic;
use crate::input::{self, Given, Override};
use crate::pod;
use crate::report;
use crate::validate::{
    Points, PublishedSet, SetReport, Target, fit, gpu_chip, is_of_a_system, is_of_points, is_of_serving, layer_report,
    validate as validate_set, validate_data,
};

use super::failure::Failure;
use super::values::Format;
use super::{interrupt, output, progress};

pub(super) const VALIDATE_EXAMPLES: &str = "\
Examples:
  # every published set, within the vendor's limits and with an ideal mapping
  rdusim validate

  # another calibration; CSV, JSON and pictures in results/
  rdusim validate --set arch.vendor.stream_gb_per_s=33 --out results

  # one set, as JSON
  rdusim validate --only sn10-gemm-square --format json";

pub(super) const CALIBRATE_EXAMPLES: &str = "\
Examples:
  # fit launch time, stream rates and PCUs an operator to the sets of SN10
  rdusim calibrate --arch arch/sn10.toml

  # to one set; the residuals of the other show what was not fitted
  rdusim calibrate --arch arch/sn10.toml --on sn10-gemm-square";

#[derive(Debug, Args)]
pub(super) struct ValidateArgs {
    /// Chip file (TOML) in place of the shipped one of its name; only its sets are run. With --data, a system file too
    #[arg(long, value_name = "FILE")]
    pub(super) arch: Option<PathBuf>,
    /// Change a field of the chips: arch.PATH=VALUE; may be repeated
    #[arg(long, value_name = "PATH=VALUE")]
    pub(super) set: Vec<String>,
    /// Run this set; may be repeated
    #[arg(long, value_name = "SET")]
    pub(super) only: Vec<String>,
    /// Simulate the cases of this CSV file in place of the published sets (docs/validation.md)
    #[arg(long, value_name = "FILE", conflicts_with = "only")]
    pub(super) data: Vec<PathBuf>,
    /// With --data of serving points: a directory of config.json files by the names of their models, / written --
    #[arg(long, value_name = "DIR", requires = "data")]
    pub(super) models: Option<PathBuf>,
    /// Also write JSON, CSV and pictures into this directory
    #[arg(long, value_name = "DIR")]
    pub(super) out: Option<PathBuf>,
    /// Form of the result on standard output
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(super) format: Format,
}

#[derive(Debug, Args)]
pub(super) struct CalibrateArgs {
    /// Chip file (TOML) in place of the shipped one of its name; only its sets are used
    #[arg(long, value_name = "FILE")]
    pub(super) arch: Option<PathBuf>,
    /// Change a field of the chips: arch.PATH=VALUE; may be repeated
    #[arg(long, value_name = "PATH=VALUE")]
    pub(super) set: Vec<String>,
    /// Fit to this set; may be repeated (default: every set)
    #[arg(long, value_name = "SET")]
    pub(super) on: Vec<String>,
    /// Steps of the search at most
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub(super) iterations: u64,
}

/// Simulates the sets and shows their errors.
pub(super) fn validate(args: &ValidateArgs) -> Result<(), Failure> {
    if !args.data.is_empty() {
        return on_data(args);
    }
    let sets = args.set.iter().map(|set| Override::parse(set)).collect::<Result<Vec<_>, _>>()?;
    let reports =
        progress::watched("simulating published sets", || analysis::validate(args.arch.as_deref(), &sets, &args.only))?;
    show(args, &reports)
}

fn show(args: &ValidateArgs, reports: &[SetReport]) -> Result<(), Failure> {
    if let Some(directory) = &args.out {
        report::write(directory, &report::validation_files(reports)?)?;
    }
    match args.format {
        Format::Table => output::print_text(&report::validation_table(reports)),
        Format::Json => output::print(report::validation_json(reports).as_bytes()),
        Format::Csv => output::print(report::validation_csv(reports)?.as_bytes()),
    }
}

/// Simulates the cases of a user's files.
fn on_data(args: &ValidateArgs) -> Result<(), Failure> {
    let sets = args.set.iter().map(|set| Override::parse(set)).collect::<Result<Vec<_>, _>>()?;
    let mut texts = Vec::new();
    let mut points = Points::default();
    for path in &args.data {
        let text = input::read_piped_text(path)
            .map_err(|why| Diagnostic::new(format!("cannot read `{}`: it {why}", path.display())))?;
        let name = path.display().to_string();
        if is_of_points(&text) {
            points.add(&name, &text)?;
        } else {
            texts.push((name, text));
        }
    }
    let mut reports = if points.is_empty() { Vec::new() } else { on_points(args, &sets, &points)? };
    if texts.is_empty() {
        return show(args, &reports);
    }
    let given = match &args.arch {
        Some(path) if pod::is_system(path) => Some(Target::System(Box::new(pod::open(path, &sets)?))),
        Some(path) => Some(Target::Chip(arch::open(path, &sets)?)),
        None => None,
    };
    for (name, text) in texts {
        let report = match &given {
            Some(target) => validate_data(&name, &text, target),
            None if is_of_serving(&text) => {
                validate_data(&name, &text, &Target::System(Box::new(pod::sn40l_16(&sets)?)))
            }
            None if is_of_a_system(&text) => {
                validate_data(&name, &text, &Target::System(Box::new(pod::dgx_a100(&sets)?)))
            }
            None => validate_data(&name, &text, &Target::Chip(gpu_chip(&sets)?)),
        };
        reports.push(report?);
    }
    show(args, &reports)
}

/// Simulates measured serving points; an interrupt says what is kept.
fn on_points(args: &ValidateArgs, sets: &[Override], points: &Points) -> Result<Vec<SetReport>, Failure> {
    let request =
        PointsRequest { system: args.arch.as_deref(), sets, models: args.models.as_deref(), out: args.out.as_deref() };
    Ok(progress::counted("serving points", |tick| {
        analysis::points(&request, points, &|done, all| {
            interrupt::keeps_points(args.out.as_deref(), done, all);
            tick(done, all);
        })
    })?)
}

/// Fits the vendor limits to some sets and shows them on all.
pub(super) fn calibrate(args: &CalibrateArgs) -> Result<(), Failure> {
    let sets = args.set.iter().map(|set| Override::parse(set)).collect::<Result<Vec<_>, _>>()?;
    if let Some(path) = &args.arch {
        analysis::chip_for("calibrate", &Given::File(path.clone()), &sets)?;
    }
    let chips = analysis::validated_chips(args.arch.as_deref(), &sets)?;
    let sets = analysis::known_sets(&chips)?;
    let names: Vec<&str> = sets.iter().map(|set| set.name).collect();
    analysis::check_names(&args.on, &names)?;
    let (fitted, reports) = progress::watched("fitting", || -> Result<_, Diagnostic> {
        let mut chosen: Vec<(PublishedSet, Chip)> = Vec::new();
        for set in sets.iter().filter(|set| args.on.is_empty() || args.on.iter().any(|on| on == set.name)) {
            if let Some(chip) = chips.iter().find(|chip| chip.name == set.chip) {
                chosen.push((set.clone(), chip.clone()));
            }
        }
        let fitted = fit(&chosen, args.iterations)?;
        // The limits found, on every chip: sets that were left out show what they predict.
        let limited: Vec<Chip> =
            chips.iter().map(|chip| Chip { vendor: Some(fitted.vendor), ..chip.clone() }).collect();
        let mut reports: Vec<SetReport> =
            sets.iter().map(|set| validate_set(set, &limited)).collect::<Result<_, _>>()?;
        reports.extend(layer_report(&reports));
        Ok((fitted, reports))
    })?;
    output::print_text(&report::fit_table(&fitted, &reports))
}
