//! `rdusim pod --search`: the best decomposition.

use std::io::{self, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};

use super::failure::Failure;
use super::values::FormArgs;
use super::{interrupt, output, progress};
use crate::analysis::{self, PodRequest, SearchRequest};
use crate::diagnostics::Diagnostic;
use crate::pod::{Counts, Failures, Job, Objective};
use crate::report::File;

/// A search that takes longer than this says how far it is, and says it again as often.
const TOLD_EVERY: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ObjectiveName {
    /// The shortest step on all of `--chips`
    Time,
    /// The most tokens a second and chip, on as many chips or fewer
    TokensPerChip,
    /// The fewest chips whose step takes at most `--target-step-s`
    Chips,
    /// The least energy of a step, on as many chips or fewer
    Energy,
    /// Requests: the least cost of a token
    Cost,
    /// Requests: the most tokens a second on as many chips or fewer
    Throughput,
    /// Requests: the most users at one time on as many chips or fewer
    Users,
}

/// How many chips a search may take: `N` is at most so many, `FEWEST..MOST` both ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ChipRange {
    pub(super) least: u64,
    pub(super) most: u64,
}

/// Reads a range of chips.
fn chip_range(text: &str) -> Result<ChipRange, String> {
    let count = |text: &str| text.trim().parse::<u64>().ok();
    let (least, most) = text.split_once("..").map_or_else(
        || (count(text).map(|most| most.min(1)), count(text)),
        |(least, most)| (count(least), count(most)),
    );
    match (least, most) {
        (Some(least), Some(most)) if least <= most => Ok(ChipRange { least, most }),
        _ => Err("expected a count of chips, or FEWEST..MOST such as 1..64".to_owned()),
    }
}

#[derive(Debug, Args)]
pub(super) struct SearchArgs {
    /// With --search: chips, or the most of them, or fewest..most [default: all that the system can have]
    #[arg(long, value_name = "N|A..B", requires = "search", value_parser = chip_range)]
    pub(super) chips: Option<ChipRange>,
    /// With --search: what is looked for [default: time; of requests cost]
    #[arg(long, value_enum, requires = "search")]
    pub(super) objective: Option<ObjectiveName>,
    /// With --objective chips: seconds that a step may take
    #[arg(long, value_name = "SECONDS", requires = "objective")]
    target_step_s: Option<f64>,
}

impl SearchArgs {
    fn objective(&self) -> Result<Objective, Diagnostic> {
        let target = self.target_step_s;
        match self.objective.unwrap_or(ObjectiveName::Time) {
            ObjectiveName::Chips => {
                let is_time = |seconds: &f64| seconds.is_finite() && *seconds > 0.0;
                target.filter(is_time).map(Objective::Chips).ok_or_else(|| {
                    let title = "`--objective chips` needs `--target-step-s`, a time above 0";
                    Diagnostic::new(title).with_help("for example --target-step-s 30")
                })
            }
            _ if target.is_some() => {
                let title = "`--target-step-s` has no effect without `--objective chips`";
                Err(Diagnostic::new(title).with_help("leave it out, or give `--objective chips`"))
            }
            ObjectiveName::Time => Ok(Objective::Time),
            ObjectiveName::TokensPerChip => Ok(Objective::TokensPerChip),
            ObjectiveName::Energy => Ok(Objective::Energy),
            ObjectiveName::Cost | ObjectiveName::Throughput | ObjectiveName::Users => {
                let title = "`--objective`: cost, throughput and users are of `--phase requests`";
                Err(Diagnostic::new(title).with_help("of training: time, tokens-per-chip, chips or energy"))
            }
        }
    }
}

/// What is shown beside the result, and where.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shown<'a> {
    /// How chips fail.
    pub(super) failures: Option<Failures>,
    /// Directory for files.
    pub(super) out: Option<&'a Path>,
    /// Form of the result.
    pub(super) form: &'a FormArgs,
    /// The system file, which the page shows.
    pub(super) system: &'a Path,
}

/// Searches and shows the best, and why the others lose.
#[expect(clippy::disallowed_methods, reason = "progress is told by the clock, on standard error")]
pub(super) fn search(
    args: &SearchArgs,
    pod: PodRequest<'_>,
    is_micro_batch_fixed: bool,
    shown: Shown<'_>,
) -> Result<(), Failure> {
    if let Some(range) = args.chips.filter(|range| range.least > 1) {
        let title =
            format!("`--chips {}..{}`: a search for training takes the most of them alone", range.least, range.most);
        return Err(Diagnostic::new(title).with_help(format!("use `--chips {}`", range.most)).into());
    }
    let (chips, objective) = (args.chips.map(|range| range.most), args.objective()?);
    let request = SearchRequest { pod, is_micro_batch_fixed, chips, objective, failures: shown.failures };
    let mut told = Instant::now();
    let mut heard = |counts: &Counts, best: Option<&Job>| {
        if let Some((seconds, job)) = counts.best_s.zip(best) {
            let best = job.decomposition();
            interrupt::keeps(format!("the best of {} simulated takes {seconds:.4} s: {best}", counts.simulated));
        }
        let now = Instant::now();
        if now.duration_since(told) >= TOLD_EVERY {
            told = now;
            let best = counts.best_s.map_or_else(String::new, |seconds| format!(", best {seconds:.4} s"));
            let (all, fit, simulated) = (counts.all, counts.fit, counts.simulated);
            let line = format!("search: {simulated} simulated of {fit} that fit, {all} in all{best}");
            let _ = writeln!(io::stderr().lock(), "{line}");
        }
    };
    let (files, text) =
        analysis::pod_search(&request, &mut progress::note, &mut heard, |report| -> Result<_, Failure> {
            let files: Vec<File> = if shown.out.is_some() { report.files()? } else { Vec::new() };
            Ok((files, shown.form.shown(|| report.json(), || report.table(), || report.screen())))
        })??;
    output::show_with_page(shown.out, files, &[shown.system], shown.form.format, &text)
}
