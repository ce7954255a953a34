//! `--set` of a range in `compare` and `run`: a small study of its values, without a file.

use std::fmt::Write as _;
use std::path::Path;

use clap::ValueEnum as _;
use indexmap::IndexMap;

use crate::arch::{self, Quality};
use crate::diagnostics::Diagnostic;
use crate::import;
use crate::input::{Given, Override, RangeValues, SetRange};
use crate::mode::Mode;
use crate::report;
use crate::study::StudyError;
use crate::study::sweep::{self, Results, Shard, Study};

use super::failure::Failure;
use super::made::made;
use super::run_args::{RangeArgs, SharedArgs};
use super::sweep::{tell_warnings, write_study};
use super::values::{Effort, Fidelity, Format};
use super::{interrupt, output, progress};

/// Rows of the table on a screen.
const MOST_ROWS: usize = 14;

/// What a study of ranges is asked for.
pub(super) struct Asked<'a> {
    /// The arguments that `compare` and `run` have in common.
    pub(super) args: &'a SharedArgs,
    /// Whether answers come with ranges.
    pub(super) ranges: &'a RangeArgs,
    /// Modes that run.
    pub(super) modes: &'a [Mode],
    /// Whether there are other chips.
    pub(super) is_against: bool,
}

impl Asked<'_> {
    /// Runs the study of the ranges among `--set`, if there are some: whether there are.
    pub(super) fn answered(&self) -> Result<bool, Failure> {
        let (mut ranges, mut sets) = (Vec::new(), Vec::new());
        for set in &self.args.set {
            match SetRange::parse(set)? {
                Some(range) => ranges.push(range),
                None => sets.push(Override::parse(set)?),
            }
        }
        if ranges.is_empty() {
            return Ok(false);
        }
        self.refuse_options()?;
        let text = self.study(&ranges)?;
        let given = Given::Text { name: "--set".to_owned(), text };
        let study = Study::take(&given, IndexMap::new(), &sets, None)?;
        let out = self.args.out.as_deref();
        let results = progress::counted("points of --set", |tick| {
            let counted = |done: usize, all: usize| {
                interrupt::keeps_points(out, done, all);
                tick(done, all);
            };
            sweep::sweep_within(&study, Shard::WHOLE, None, out, &counted, None)
        })
        .map_err(|error| match error {
            StudyError::Refused(error) => self.at_argument(error, &ranges, &sets).into(),
            other @ StudyError::Files(_) => Failure::from(other),
        })?;
        tell_warnings(&results);
        if let Some(directory) = out {
            let inputs: [&Path; 2] = [&self.args.arch, &self.args.workload];
            write_study(directory, &results, made(&inputs))?;
        }
        match self.args.format {
            Format::Table => output::print_text(&self.told(&results)),
            Format::Json => output::print(results.to_json_with_rows().as_bytes()),
            Format::Csv => output::print(results.to_csv().as_bytes()),
        }?;
        Ok(true)
    }

    /// The error of a study in the argument that it comes from, if the first value alone has one.
    fn at_argument(&self, error: Diagnostic, ranges: &[SetRange], sets: &[Override]) -> Diagnostic {
        let mut all = sets.to_vec();
        all.extend(ranges.iter().filter_map(|range| Override::parse(&format!("{}={}", range.path, first(range))).ok()));
        let (args, seed) = (self.args, self.args.seed);
        let read = || -> Result<(), Diagnostic> {
            arch::open(&args.arch, &all)?;
            import::take(&args.workload.as_path().into(), &all, seed, &args.model.options_for(&args.workload)?)?;
            Ok(())
        };
        read().err().unwrap_or(error)
    }

    /// Refuses what a study of ranges does not have.
    fn refuse_options(&self) -> Result<(), Diagnostic> {
        let (args, from) = (self.args, &self.args.configuration);
        let refused = [
            ("--against", self.is_against),
            ("--uncertainty", self.ranges.uncertainty),
            ("--config", from.config.is_some()),
            ("--save-config", from.save_config.is_some()),
            ("--sections", from.sections.is_some()),
            ("--trace", args.trace.is_some()),
            ("--no-skip", args.no_skip),
            ("--fidelity cycle", args.fidelity == Fidelity::Cycle),
            ("--dim", !args.model.dim.is_empty()),
            ("--skip-unsupported", args.model.skip_unsupported),
        ];
        match refused.into_iter().find(|(_, given)| *given) {
            None => Ok(()),
            Some((flag, _)) => {
                let title = format!("`{flag}` does not go with a range of `--set`, which starts a study");
                Err(Diagnostic::new(title).with_help(format!("leave `{flag}` out, or give `--set` one value")))
            }
        }
    }

    /// The study file that says the same.
    fn study(&self, ranges: &[SetRange]) -> Result<String, Diagnostic> {
        let args = self.args;
        let quoted = |text: &str| toml::Value::from(text).to_string();
        let names: Vec<&str> = self.modes.iter().map(|mode| mode.name()).collect();
        let mut metrics: Vec<String> = names.iter().map(|mode| format!("{mode}.time_s")).collect();
        let last = names.last().copied().unwrap_or("fused");
        let figures: &[&str] = if names.len() > 1 {
            metrics.push("speedup".to_owned());
            &["off_chip_bytes", "bound_by"]
        } else {
            &["off_chip_bytes", "energy_j", "bound_by"]
        };
        metrics.extend(figures.iter().map(|figure| format!("{last}.{figure}")));
        metrics.push("status".to_owned());
        let words = |list: &[String]| list.iter().map(|word| quoted(word)).collect::<Vec<String>>().join(", ");
        let fidelity = if args.fidelity == Fidelity::Bound { "mapped_bound" } else { "event" };
        let effort = match args.configuration.effort {
            Effort::Quick => "quick",
            Effort::Normal => "normal",
            Effort::Thorough => "thorough",
        };
        let mut text = format!(
            "schema = 1\nname = {}\narch = {}\nworkload = {}\nseed = {}\nfidelity = \"{fidelity}\"\neffort = \"{effort}\"\n\
             mapping = \"{}\"\nmetrics = [{}]\n",
            quoted(&format!("{} on {}", stem(&args.workload), stem(&args.arch))),
            quoted(&args.arch.display().to_string()),
            quoted(&args.workload.display().to_string()),
            args.seed,
            Quality::from(args.mapping).name(),
            words(&metrics)
        );
        for range in ranges {
            let _ = write!(text, "[[axes]]\npath = {}\n{}\n", quoted(&range.path), axis(range)?);
        }
        let _ = write!(text, "[[best]]\nminimize = \"{last}.time_s\"\n");
        let mut drawn = vec![format!("{last}.time_s")];
        if names.len() > 1 {
            text.push_str("[[best]]\nmaximize = \"speedup\"\n");
            drawn.push("speedup".to_owned());
        }
        let path = |at: usize| ranges.get(at).map(|range| quoted(&range.path));
        if let Some(x) = path(0) {
            let series = path(1).map_or_else(String::new, |path| format!("series = {path}\n"));
            for y in drawn {
                let _ = write!(text, "[[plots]]\nkind = \"lines\"\nx = {x}\ny = {}\n{series}", quoted(&y));
            }
        }
        self.model(&mut text);
        Ok(text)
    }

    /// How a `config.json` becomes the workload.
    fn model(&self, text: &mut String) {
        let request = self.args.model.request();
        let words = [("dtype", &request.dtype), ("expert_load", &request.expert_load)];
        let mut lines: Vec<String> = words
            .into_iter()
            .filter_map(|(key, word)| Some(format!("{key} = {}", toml::Value::from(word.as_deref()?))))
            .collect();
        let sizes = [("batch", request.batch), ("seq", request.seq), ("context", request.context)];
        lines.extend(sizes.into_iter().filter_map(|(key, size)| Some(format!("{key} = {}", size?))));
        let phase = self.args.model.phase.and_then(|phase| phase.to_possible_value());
        lines.extend(phase.map(|phase| format!("phase = {:?}", phase.get_name())));
        if !lines.is_empty() {
            let _ = write!(text, "[model]\n{}\n", lines.join("\n"));
        }
    }

    /// The points in a table, and what stands out of them.
    fn told(&self, results: &Results<'_>) -> String {
        let most = if self.args.full { usize::MAX } else { MOST_ROWS };
        let table = report::study_table(results.columns(), results.rows(), most);
        format!("{}\n{table}\n", results.to_text())
    }
}

/// The first value of a range.
fn first(range: &SetRange) -> &str {
    match &range.values {
        RangeValues::Linear { from, .. } | RangeValues::Geometric { from, .. } => from,
        RangeValues::Listed(values) => values.first().map_or("", String::as_str),
    }
}

/// The values of an axis as a study file has them.
fn axis(range: &SetRange) -> Result<String, Diagnostic> {
    // What is wrong with the path or a value is shown in the argument.
    let value = |value: &str| Ok(Override::parse(&format!("{}={value}", range.path))?.value().to_owned());
    value(first(range))?;
    Ok(match &range.values {
        RangeValues::Linear { from, to, step } => format!("range = {{ from = {from}, to = {to}, step = {step} }}"),
        RangeValues::Geometric { from, to, factor } => {
            format!("log_range = {{ from = {from}, to = {to}, factor = {factor} }}")
        }
        RangeValues::Listed(values) => {
            let values = values.iter().map(|text| value(text)).collect::<Result<Vec<String>, Diagnostic>>()?;
            format!("values = [{}]", values.join(", "))
        }
    })
}

/// What a file is called: its name without its ending.
fn stem(path: &Path) -> String {
    path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default()
}
