//! Points run apart from their sweep: on other processes and machines, in any order, more than once.
//!
//! A point is a pure function of the study's inputs. What comes of it is a line of a journal with a checksum; a
//! [`Collector`] takes lines in any order, each point once, into the journal and the table that a sweep on one machine
//! makes, byte for byte.

use std::path::Path;

use rayon::prelude::*;
use xxhash_rust::xxh3::Xxh3;

use crate::diagnostics::Diagnostic;
use crate::study::StudyError;

use super::evaluate::Bench;
use super::fingerprints::fingerprints;
use super::journal::{Ending, Journal, PartialTable, Record, of_line, to_line};
use super::results::Results;
use super::row::{csv_lines, row_of};
use super::run::{Runner, Shard, header_of, pool};
use super::study::{Compile, Study};

/// Runs some points of a study; a line for each, in their order. `tick` is called with points done and points there are.
///
/// # Errors
/// Inputs that cannot be read, an index that is no point's, and a study that prunes: there, a point depends on others.
pub fn run_points(
    study: &Study,
    indices: &[usize],
    threads: Option<usize>,
    tick: &(dyn Fn(usize, usize) + Sync),
) -> Result<Vec<String>, StudyError> {
    let records = pool(threads)?.install(|| Runner::of_points(study, indices, tick)?.records())?.0;
    Ok(records.iter().map(to_line).collect())
}

/// For each point, a hash of everything that its line depends on but its index: program, chip, workload, and how the study
/// compiles, runs and measures. `None` if its overrides do not apply.
///
/// # Errors
/// Inputs that cannot be read.
pub fn point_keys(study: &Study) -> Result<Vec<Option<String>>, Diagnostic> {
    let bench = Bench::open(study)?;
    let mut common = Xxh3::new();
    let files = fingerprints(study)?;
    let inputs: Vec<String> = study.input_files().iter().map(|path| path.display().to_string()).collect();
    let settings =
        (study.fidelity, study.compile, study.effort, study.mapping.name(), &study.modes, study.seed, &study.model);
    let constraints: Vec<&str> =
        study.constraints.iter().map(|(_, span)| study.source.text().get(span.clone()).unwrap_or_default()).collect();
    let metrics = study.columns.get(study.axis_columns..).unwrap_or_default();
    common.update(format!("{} {settings:?} {constraints:?} {metrics:?}", env!("CARGO_PKG_VERSION")).as_bytes());
    // Chip and workload are hashed by content below; masks are files of their own.
    for (name, hash) in files.iter().filter(|(name, _)| !inputs.contains(name)) {
        common.update(format!("{name} {hash}").as_bytes());
    }
    if matches!(study.compile, Compile::Once | Compile::Shared) {
        // Which mapping a point runs depends on the points beside it.
        common.update(format!("{:032x} {files:?}", study.fingerprint).as_bytes());
    }
    let key = |index| {
        let keys = bench.keys(&bench.setting(&study.points.get(index)))?;
        let mut hash = common.clone();
        hash.update(&keys.content.to_le_bytes());
        Some(format!("{:032x}", hash.digest128()))
    };
    Ok((0..study.points.len()).into_par_iter().map(key).collect())
}

/// What a line says without its point's index, to be kept under the key of its point; `None` if the line is damaged.
pub fn line_content(line: &str) -> Option<String> {
    let record: Record = of_line(line.as_bytes())?;
    Some(to_line(&Record { i: 0, ..record }))
}

/// The line of a point from kept content; `None` if it is damaged.
pub fn line_of(content: &str, index: usize) -> Option<String> {
    let record: Record = of_line(content.as_bytes())?;
    Some(to_line(&Record { i: index, ..record }))
}

/// Takes the lines of points as they come.
#[derive(Debug)]
pub struct Collector {
    journal: Journal,
    partial: PartialTable,
    found: Vec<Option<Record>>,
    warnings: Vec<String>,
}

impl Collector {
    /// Goes on from the journal in `out`, or begins one there.
    ///
    /// # Errors
    /// Inputs that cannot be read, a study that prunes, a journal of something else, and one that cannot be written.
    pub fn open(study: &Study, out: Option<&Path>) -> Result<Self, StudyError> {
        Runner::refuse_pruning(study, "be run in parts")?;
        let mut found = vec![None; study.points.len()];
        let Some(directory) = out else {
            return Ok(Self { journal: Journal::none(), partial: PartialTable::none(), found, warnings: Vec::new() });
        };
        let (journal, held) = Journal::open(directory, &header_of(study, Shard::WHOLE)?, &|r| study.admits(r))?;
        let done =
            held.records.iter().filter(|record| record.s != Ending::Excluded && record.patience_ms() == u64::MAX);
        let rows = done.map(|record| row_of(study, record.i, &record.m));
        let partial = PartialTable::open(directory, &csv_lines(std::iter::once(study.columns.clone()).chain(rows)))?;
        // What was stopped is run again here, where no clock is.
        for record in held.records.into_iter().filter(|record| record.patience_ms() == u64::MAX) {
            let index = record.i;
            found[index] = Some(record);
        }
        Ok(Self { journal, partial, found, warnings: held.damaged })
    }

    /// Points that no line has come of.
    pub fn pending(&self) -> Vec<usize> {
        let all = self.found.iter().enumerate();
        all.filter(|(_, record)| record.is_none()).map(|(index, _)| index).collect()
    }

    /// Takes lines; returns how many were new. A line that is there already is not taken again.
    ///
    /// # Errors
    /// A damaged line, one of another study, a second result of a point that is not the first, and a journal that cannot be
    /// written.
    pub fn add(&mut self, study: &Study, lines: &[String]) -> Result<usize, StudyError> {
        let mut new = Vec::new();
        for line in lines {
            let record: Record = of_line(line.as_bytes())
                .filter(|record| study.admits(record))
                .ok_or_else(|| Diagnostic::new("a line is damaged, or of another study"))?;
            let known = self.found.get(record.i).and_then(Option::as_ref).or_else(|| {
                let is_same_point = |earlier: &&Record| earlier.i == record.i;
                new.iter().find(is_same_point)
            });
            match known {
                Some(known) if *known == record => {}
                Some(_) => {
                    let title = format!("point {} has two different results", record.i);
                    let help = "all workers must run the same version of rdusim on the same inputs";
                    return Err(Diagnostic::new(title).with_help(help).into());
                }
                None => new.push(record),
            }
        }
        self.journal.append(&new)?;
        let done = new.iter().filter(|record| record.s != Ending::Excluded);
        self.partial.append(&csv_lines(done.map(|record| row_of(study, record.i, &record.m))))?;
        let count = new.len();
        for record in new {
            let index = record.i;
            self.found[index] = Some(record);
        }
        Ok(count)
    }

    /// The results, as of a sweep.
    ///
    /// # Errors
    /// Points that are missing, and a study of which no point can be built.
    pub fn finish(self, study: &Study) -> Result<Results<'_>, StudyError> {
        if let Some(first) = self.pending().first() {
            return Err(Diagnostic::new(format!("point {first} of {} is missing", study.points.len())).into());
        }
        if self.found.iter().flatten().all(|record| record.s == Ending::Refused) {
            Runner::of_points(study, &[0], &|_, _| {})?.refusing_all().records()?;
        }
        Ok(Results::new(study, self.found.into_iter().flatten()).warning(self.warnings))
    }
}
