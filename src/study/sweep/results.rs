//! What a sweep found: the table, what stands out of it, and what could not run.

use std::fmt::Write;

use indexmap::IndexMap;
use rayon::prelude::*;
use serde::Serialize;

use crate::report::{BestRow, File, Points, View, WriteError, counted};

use super::front::{BestValue, Front, best, costs};
use super::journal::{Ending, Record};
use super::plots::{picture, short};
use super::row::{csv_lines, row_of};
use super::study::Study;
use super::wanted::{Best, Plot};

/// Reasons of refusal that are told one by one.
const MOST_REASONS: usize = 5;
/// Points of a front that the text lists.
const MOST_LISTED: usize = 12;

/// The results of a study, in the order of its points.
#[derive(Debug)]
pub struct Results<'a> {
    study: &'a Study,
    rows: Vec<Vec<String>>,
    counts: Counts,
    reasons: Vec<(String, usize)>,
    warnings: Vec<String>,
}

/// How many points ended how.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// All of the study or shard.
    pub points: usize,
    /// They ran.
    pub ran: usize,
    /// A constraint left them out; they have no row.
    pub excluded: usize,
    /// Chip, workload or mapping cannot be.
    pub refused: usize,
    /// Their lower bound is worse than a point that ran.
    pub pruned: usize,
    /// They were stopped.
    #[serde(skip_serializing_if = "is_zero")]
    pub timed_out: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// A row that stands out.
#[derive(Debug, Clone, Serialize)]
struct Row<'a>(#[serde(serialize_with = "as_map")] Vec<(&'a str, &'a str)>);

fn as_map<S: serde::Serializer>(pairs: &[(&str, &str)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().map(|(key, cell)| (*key, json_cell(cell))))
}

/// A cell as JSON: a number if it is one.
fn json_cell(cell: &str) -> serde_json::Value {
    let whole = cell.parse::<u64>().ok().map(Into::into);
    let real = || cell.parse::<f64>().ok().and_then(serde_json::Number::from_f64).map(Into::into);
    whole.or_else(real).unwrap_or_else(|| cell.into())
}

#[derive(Debug, Serialize)]
struct BestEntry<'a> {
    of: &'a str,
    maximize: bool,
    subject_to: Option<&'a str>,
    /// The value of the axis that this is the best of, of several.
    #[serde(skip_serializing_if = "Option::is_none")]
    per: Option<Row<'a>>,
    /// The axis that a mean is taken over, and which mean.
    #[serde(skip_serializing_if = "Option::is_none")]
    over: Option<(&'a str, &'a str)>,
    value: Option<f64>,
    point: Option<Row<'a>>,
}

#[derive(Debug, Serialize)]
struct Summary<'a> {
    schema: u32,
    study: &'a str,
    columns: &'a [String],
    counts: Counts,
    refused: Vec<(&'a str, usize)>,
    best: Vec<BestEntry<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pareto: Option<Vec<Row<'a>>>,
    // What the page shows beside the table.
    lead: Vec<String>,
    minimize: Vec<String>,
    maximize: Vec<String>,
    front_of: Vec<String>,
    plots: Vec<View>,
    /// Names of chips and workloads, by the cells that name their files.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    names: IndexMap<String, String>,
    /// The points themselves, of a study without files.
    #[serde(skip_serializing_if = "Option::is_none")]
    rows: Option<Vec<Row<'a>>>,
}

impl<'a> Results<'a> {
    pub(super) fn new(study: &'a Study, records: impl Iterator<Item = Record>) -> Self {
        let mut results =
            Self { study, rows: Vec::new(), counts: Counts::default(), reasons: Vec::new(), warnings: Vec::new() };
        for record in records {
            results.counts.points += 1;
            match record.s {
                Ending::Ok => results.counts.ran += 1,
                Ending::Refused => results.counts.refused += 1,
                Ending::Pruned => results.counts.pruned += 1,
                Ending::TimedOut(_) => results.counts.timed_out += 1,
                Ending::Excluded => {
                    results.counts.excluded += 1;
                    continue;
                }
            }
            if let Some(why) = record.m.iter().find(|cell| record.s == Ending::Refused && cell.starts_with("refused: "))
            {
                match results.reasons.iter_mut().find(|(known, _)| known == why) {
                    Some((_, times)) => *times += 1,
                    None => results.reasons.push((why.clone(), 1)),
                }
            }
            results.rows.push(row_of(study, record.i, &record.m));
        }
        results
    }

    pub(super) fn warning(self, warnings: Vec<String>) -> Self {
        Self { warnings, ..self }
    }

    /// What of a journal was not believed, a message for each line.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// How many points ended how.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Axis paths, then metric names.
    pub fn columns(&self) -> &[String] {
        self.study.columns()
    }

    /// Rows of cells in the order of the columns.
    pub fn rows(&self) -> &[Vec<String>] {
        &self.rows
    }

    /// The table as CSV: axis paths, then metric names; a row for each point that no constraint leaves out.
    pub fn to_csv(&self) -> String {
        csv_lines(std::iter::once(self.study.columns().to_vec()).chain(self.rows.iter().cloned()))
    }

    /// The whole directory: table, summary and pictures.
    ///
    /// # Errors
    /// A picture that cannot be drawn.
    pub fn files(&self) -> Result<Vec<File>, WriteError> {
        let file = |name: &str, bytes: Vec<u8>| File { name: name.to_owned(), bytes };
        let mut files = vec![
            file("results.csv", self.to_csv().into_bytes()),
            file("summary.json", self.to_json().into_bytes()),
            file("summary.txt", self.to_text().into_bytes()),
        ];
        #[cfg(feature = "parquet")]
        files.push(file("results.parquet", super::parquet::table(self.study.columns(), &self.rows)));
        let rows = self.labelled();
        // Pictures take longer than all else here.
        let plots: Vec<(usize, &Plot)> = self.study.plots.iter().enumerate().collect();
        let draw = |&(at, plot): &(usize, &Plot)| {
            let (kind, drawn) = picture(self.study, plot, &rows);
            let failed = |error| WriteError::Chart("plot", error);
            let named = |suffix: &str| format!("plot-{}-{kind}.{suffix}", at + 1);
            let svg = file(&named("svg"), drawn.svg().map_err(failed)?.into_bytes());
            Ok([svg, file(&named("png"), drawn.png().map_err(failed)?)])
        };
        let drawn: Vec<[File; 2]> = plots.par_iter().map(draw).collect::<Result<_, WriteError>>()?;
        files.extend(drawn.into_iter().flatten());
        Ok(files)
    }

    /// The points for a page, with what stands out of them.
    pub fn points(&self) -> Points {
        let study = self.study;
        let mut points = Points {
            name: study.name.clone(),
            best: study.best.iter().flat_map(|wanted| self.best_rows(wanted)).collect(),
            lead: self.lead(),
            columns: study.columns.clone(),
            axes: study.axis_columns,
            minimize: self.aims(false),
            maximize: self.aims(true),
            front_of: self.front_of(),
            views: self.views(),
            ..Points::default()
        };
        points.set_rows(&self.labelled(), &self.front().unwrap_or_default());
        points
    }

    /// Rows with the names of chips and workloads in place of their files, for pages and pictures.
    fn labelled(&self) -> Vec<Vec<String>> {
        let names = self.study.names();
        if names.is_empty() {
            return self.rows.clone();
        }
        let mut rows = self.rows.clone();
        for column in
            (0..self.study.axis_columns).filter(|&at| matches!(self.study.columns[at].as_str(), "arch" | "workload"))
        {
            for row in &mut rows {
                if let Some(name) = names.get(&row[column]) {
                    row[column].clone_from(name);
                }
            }
        }
        rows
    }

    fn name(&self, column: usize) -> String {
        self.study.columns[column].clone()
    }

    /// Columns that are to be large, or to be small.
    fn aims(&self, maximize: bool) -> Vec<String> {
        let pareto = self.study.pareto.iter().flat_map(|pareto| &pareto.objectives);
        let of_best = self.study.best.iter().map(|best| &best.objective);
        let columns = pareto.chain(of_best).filter(|o| o.maximize == maximize).map(|o| o.column);
        let mut names: Vec<String> = columns.map(|column| self.name(column)).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// The columns of the front.
    fn front_of(&self) -> Vec<String> {
        self.study.pareto.iter().flat_map(|pareto| &pareto.objectives).map(|o| self.name(o.column)).collect()
    }

    /// The pictures of the study.
    fn views(&self) -> Vec<View> {
        let name = |column: usize| self.name(column);
        let view = |plot: &Plot| {
            let (kind, title, x, y, colour) = match plot {
                Plot::Lines { title, x, y, series } => ("lines", title, x, y, *series),
                Plot::Pareto { title, x, y, series } => ("pareto", title, x, y, *series),
                Plot::Heat { title, x, y, value } => ("heat", title, x, y, Some(*value)),
            };
            View { kind: kind.to_owned(), title: title.clone(), x: name(*x), y: name(*y), colour: colour.map(name) }
        };
        self.study.plots.iter().map(view).collect()
    }

    /// Rows on the front, or on the front of each value of `per`.
    fn front(&self) -> Option<Vec<usize>> {
        Some(self.fronts()?.into_iter().flat_map(|(_, front)| front).collect())
    }

    /// The fronts, each with the value of `per` that it is of.
    fn fronts(&self) -> Option<Vec<(String, Vec<usize>)>> {
        let pareto = self.study.pareto.as_ref()?;
        let mut fronts: IndexMap<&str, Front> = IndexMap::new();
        for (at, row) in self.rows.iter().enumerate() {
            let front = fronts.entry(pareto.per.map_or("", |per| row[per].as_str())).or_default();
            if let Some(costs) = costs(&pareto.objectives, row) {
                front.add(at, costs);
            }
        }
        Some(fronts.into_iter().map(|(of, front)| (of.to_owned(), front.indices())).collect())
    }

    fn row(&self, at: usize) -> Row<'_> {
        Row(self.study.columns.iter().zip(&self.rows[at]).map(|(name, cell)| (name.as_str(), cell.as_str())).collect())
    }

    /// A row that is best; of a mean, what the rows under it have in common.
    fn point(&self, wanted: &Best, at: usize) -> Row<'_> {
        let Some(over) = &wanted.over else { return self.row(at) };
        let pairs = self.study.columns.iter().zip(&self.rows[at]).enumerate().take(self.study.axis_columns);
        Row(pairs
            .filter(|(column, _)| *column != over.column)
            .map(|(_, (name, cell))| (name.as_str(), cell.as_str()))
            .collect())
    }

    /// What stands out, as indented JSON with a line break at the end.
    pub fn to_json(&self) -> String {
        self.json_with(None)
    }

    /// The same with every point, under `rows`.
    pub fn to_json_with_rows(&self) -> String {
        self.json_with(Some((0..self.rows.len()).map(|at| self.row(at)).collect()))
    }

    fn json_with<'b>(&'b self, rows: Option<Vec<Row<'b>>>) -> String {
        let study = self.study;
        let column = |at: usize| study.columns[at].as_str();
        let best = study.best.iter().flat_map(|wanted| {
            let found = best(wanted, study, &self.rows);
            let entries = found.into_iter().map(move |found| BestEntry {
                of: column(wanted.objective.column),
                maximize: wanted.objective.maximize,
                subject_to: wanted.subject_to.as_ref().map(|(text, _)| text.as_str()),
                per: wanted.per.zip(found.row).map(|(per, at)| Row(vec![(column(per), self.rows[at][per].as_str())])),
                over: wanted.over.as_ref().map(|over| (column(over.column), over.mean.name())),
                value: found.value,
                point: found.row.map(|at| self.point(wanted, at)),
            });
            entries.collect::<Vec<_>>()
        });
        let summary = Summary {
            schema: 1,
            study: &study.name,
            columns: &study.columns,
            counts: self.counts,
            refused: self.reasons.iter().map(|(why, times)| (why.as_str(), *times)).collect(),
            best: best.collect(),
            notes: study.notes(),
            pareto: self.front().map(|front| front.into_iter().map(|at| self.row(at)).collect()),
            lead: self.lead(),
            minimize: self.aims(false),
            maximize: self.aims(true),
            front_of: self.front_of(),
            plots: self.views(),
            names: study.names(),
            rows,
        };
        let mut text = serde_json::to_string_pretty(&summary).expect("strings and numbers always serialise");
        text.push('\n');
        text
    }

    /// What stands out, for people.
    pub fn to_text(&self) -> String {
        let study = self.study;
        let mut text = self.count_line();
        text.push('\n');
        for (why, times) in self.reasons.iter().take(MOST_REASONS) {
            let _ = writeln!(text, "  {times} x {why}");
        }
        if self.counts.timed_out > 0 {
            text.push_str("  A longer `--timeout-per-point`, or none, runs again what timed out, and nothing else.\n");
        }
        for line in study.best.iter().flat_map(|wanted| self.best_lines(wanted)) {
            let _ = writeln!(text, "{line}");
        }
        for (of, front) in self.fronts().unwrap_or_default() {
            let Some(pareto) = &study.pareto else { continue };
            let names: Vec<&str> = pareto.objectives.iter().map(|o| study.columns[o.column].as_str()).collect();
            let of = pareto.per.map_or(String::new(), |per| format!(" for {}={}", study.columns[per], short(&of)));
            let points = counted(front.len(), "point");
            let _ = writeln!(text, "{points} on the front of {}{of}:", names.join(", "));
            for &at in front.iter().take(MOST_LISTED) {
                let values: Vec<String> = pareto.objectives.iter().map(|o| short(&self.rows[at][o.column])).collect();
                let _ = writeln!(text, "  {} at {}", values.join(", "), self.place(at));
            }
            if front.len() > MOST_LISTED {
                let _ = writeln!(text, "  and {} more", front.len() - MOST_LISTED);
            }
        }
        for note in study.notes() {
            let _ = writeln!(text, "note  {note}");
        }
        text
    }

    fn count_line(&self) -> String {
        let counts = self.counts;
        let mut text = format!("{}: {}, {} ran", self.study.name, counted(counts.points, "point"), counts.ran);
        for (count, what) in [
            (counts.excluded, "left out by constraints"),
            (counts.refused, "refused"),
            (counts.pruned, "pruned"),
            (counts.timed_out, "timed out"),
        ] {
            if count > 0 {
                let _ = write!(text, ", {count} {what}");
            }
        }
        text.push('.');
        text
    }

    /// What the page says beside its first figure.
    fn lead(&self) -> Vec<String> {
        let lines = self.study.best.iter().flat_map(|wanted| self.best_lines(wanted));
        // A mean has no figure of its own.
        let shown = usize::from(self.study.best.first().is_some_and(|wanted| wanted.over.is_none()));
        let names = self.study.names();
        let named = |line: String| names.iter().fold(line, |line, (cell, name)| line.replace(cell, name));
        lines.skip(shown).map(named).chain([self.count_line()]).chain(self.study.notes()).collect()
    }

    fn best_rows(&self, wanted: &Best) -> Vec<BestRow> {
        if wanted.over.is_some() {
            // No row has a mean.
            return Vec::new();
        }
        let rows = best(wanted, self.study, &self.rows).into_iter().map(|found| BestRow {
            column: self.study.columns[wanted.objective.column].clone(),
            maximize: wanted.objective.maximize,
            subject_to: wanted.subject_to.as_ref().map(|(text, _)| text.clone()),
            row: found.row,
        });
        rows.collect()
    }

    fn best_lines(&self, wanted: &Best) -> Vec<String> {
        let column = wanted.objective.column;
        let word = if wanted.objective.maximize { "Most" } else { "Least" };
        let under = wanted.subject_to.as_ref().map_or(String::new(), |(text, _)| format!(" with {text}"));
        let mean = wanted.over.as_ref().map_or(String::new(), |over| {
            format!(", {} mean over {}", over.mean.name(), self.study.columns[over.column])
        });
        let line = |found: BestValue| {
            let point = match found.row.zip(found.value) {
                Some((at, value)) => {
                    let Row(pairs) = self.point(wanted, at);
                    let axes = pairs.iter().take(self.study.axis_columns);
                    let place: Vec<String> = axes.map(|(path, cell)| format!("{path}={}", short(cell))).collect();
                    format!("{} at {}", short(&format!("{value:?}")), place.join(", "))
                }
                None => "no point".to_owned(),
            };
            format!("{word} {}{mean}{under}: {point}.", self.study.columns[column])
        };
        best(wanted, self.study, &self.rows).into_iter().map(line).collect()
    }

    /// A point by the values of its axes.
    fn place(&self, at: usize) -> String {
        let pairs = self.study.columns.iter().zip(&self.rows[at]).take(self.study.axis_columns);
        pairs.map(|(path, cell)| format!("{path}={}", short(cell))).collect::<Vec<_>>().join(", ")
    }
}
