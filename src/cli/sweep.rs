//! `rdusim sweep` and `rdusim merge`: a study's points.

use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::arch::Quality;
use crate::diagnostics::{Diagnostic, printable};
use crate::input::Override;
use crate::report::{self, File, Made, Page};
use crate::study::sweep::{self, PointLimit, Results, Shard, Study};

use super::failure::Failure;
use super::made::made_by_sweep;
use super::study_args::{MergeArgs, SweepArgs};
use super::values::{Format, Mapping};
use super::{interrupt, output, progress};

/// Runs the points that are not done yet.
pub(super) fn sweep(args: &SweepArgs) -> Result<(), Failure> {
    let study = open(&args.study, &args.set, args.mapping)?;
    let shard = args.shard.as_deref().map_or(Ok(Shard::WHOLE), parse_shard)?;
    if shard != Shard::WHOLE && args.out.is_none() {
        let title = "a shard needs `--out`: its points are joined from there by `rdusim merge`";
        return Err(Diagnostic::new(title).with_help("give `--out DIR`, another for each shard").into());
    }
    let out = args.out.as_deref();
    let results = progress::counted(study.name(), |tick| {
        let counted = |done: usize, all: usize| {
            interrupt::keeps_points(out, done, all);
            tick(done, all);
        };
        let start = || started(args.timeout_per_point.unwrap_or(Duration::MAX));
        let milliseconds = |limit: Duration| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        let limit = args.timeout_per_point.map(|limit| PointLimit { milliseconds: milliseconds(limit), start: &start });
        sweep::sweep_within(&study, shard, args.threads, out, &counted, limit)
    })?;
    let mut arguments = arguments(&args.study, &args.set, args.mapping);
    arguments.extend(args.shard.iter().flat_map(|shard| ["--shard".to_owned(), shard.clone()]));
    arguments.extend(
        args.timeout_per_point.iter().flat_map(|of| ["--timeout-per-point".to_owned(), of.as_secs_f64().to_string()]),
    );
    let asked = Asked { path: &args.study, arguments, out, format: args.format };
    finish(&asked, &study, &results)
}

/// A clock that starts now, and says when `limit` has passed.
#[expect(clippy::disallowed_methods, reason = "who asks for a limit of time per point wants the clock's")]
fn started(limit: Duration) -> Box<dyn Fn() -> bool + Send + Sync> {
    let start = Instant::now();
    Box::new(move || start.elapsed() > limit)
}

/// Joins shards.
pub(super) fn merge(args: &MergeArgs) -> Result<(), Failure> {
    let study = open(&args.study, &args.set, args.mapping)?;
    let shards: Vec<&Path> = args.shards.iter().map(AsRef::as_ref).collect();
    let arguments = arguments(&args.study, &args.set, args.mapping);
    let asked = Asked { path: &args.study, arguments, out: args.out.as_deref(), format: args.format };
    finish(&asked, &study, &sweep::merge(&study, &shards)?)
}

/// The arguments of `rdusim sweep` that decide what a study's points are.
fn arguments(study: &Path, sets: &[String], mapping: Option<Mapping>) -> Vec<String> {
    let mut arguments = vec![study.display().to_string()];
    arguments.extend(sets.iter().flat_map(|set| ["--set".to_owned(), set.clone()]));
    let name = |mapping| Quality::from(mapping).name().to_owned();
    arguments.extend(mapping.into_iter().flat_map(|mapping| ["--mapping".to_owned(), name(mapping)]));
    arguments
}

/// What is made of a study's results.
struct Asked<'a> {
    /// The study file.
    path: &'a Path,
    /// The arguments of `rdusim sweep` that make these results.
    arguments: Vec<String>,
    out: Option<&'a Path>,
    format: Format,
}

fn open(path: &Path, sets: &[String], mapping: Option<Mapping>) -> Result<Study, Failure> {
    let sets = sets.iter().map(|set| Override::parse(set)).collect::<Result<Vec<_>, _>>()?;
    // Millions of points may have to be drawn.
    Ok(progress::watched("reading the study", || Study::open(path, &sets, mapping.map(Into::into)))?)
}

fn finish(asked: &Asked<'_>, study: &Study, results: &Results<'_>) -> Result<(), Failure> {
    tell_warnings(results);
    // Files first: standard output shows a result only if everything asked for was done.
    if let Some(directory) = asked.out {
        let inputs = study.input_files();
        let inputs: Vec<&Path> = std::iter::once(asked.path).chain(inputs.iter().map(AsRef::as_ref)).collect();
        write_study(directory, results, made_by_sweep(&asked.arguments, &inputs))?;
    }
    match asked.format {
        Format::Table => output::print_text(&results.to_text()),
        Format::Json => output::print(results.to_json().as_bytes()),
        Format::Csv => output::print(results.to_csv().as_bytes()),
    }
}

/// Says on standard error what of a journal was not believed.
pub(super) fn tell_warnings(results: &Results<'_>) {
    for warning in results.warnings() {
        // A closed standard error costs nothing but this line.
        let _ = writeln!(io::stderr().lock(), "warning: {}", printable(warning));
    }
}

/// Writes the table, the summary, the pictures and the page of a study.
pub(super) fn write_study(directory: &Path, results: &Results<'_>, made: Made) -> Result<(), Failure> {
    let mut files = results.files()?;
    let mut page = Page::new(made);
    page.set_points(results.points());
    files.push(File { name: "report.html".to_owned(), bytes: page.html().into_bytes() });
    report::write(directory, &files)?;
    // The whole table is there now. If the part of it stays, the next sweep begins it anew.
    let _ = std::fs::remove_file(directory.join(sweep::PARTIAL_TABLE));
    Ok(())
}

fn parse_shard(text: &str) -> Result<Shard, Diagnostic> {
    let parsed = text.split_once('/').and_then(|(index, count)| Some((index.parse().ok()?, count.parse().ok()?)));
    match parsed {
        Some((index, count)) if index >= 1 && index <= count => Ok(Shard { index, count }),
        _ => Err(Diagnostic::new(format!("`--shard {text}` is no shard"))
            .with_help("expected I/N with I from 1 to N, for example 2/8")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_counted_from_one() {
        assert_eq!(parse_shard("2/8").ok(), Some(Shard { index: 2, count: 8 }));
        for text in ["0/2", "3/2", "1", "a/b", "1/0", "-1/2", "1/2/3"] {
            assert!(parse_shard(text).is_err(), "{text}");
        }
    }
}
