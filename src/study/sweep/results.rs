//! What a sweep found: the table, what stands out of it, and what could not run.

use std::fmt::Write;

use rayon::prelude::*;
use serde::Serialize;

use crate::report::{BestRow, File, PlotData, Points, Series, StudyPlot, View, WriteError, guarded_cell};

use super::front::{Front, best, costs};
use super::journal::{Ending, Record};
use super::row::row_of;
use super::study::{Best, Plot, Study};

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
    #[serde(skip_serializing_if = "Option::is_none")]
    pareto: Option<Vec<Row<'a>>>,
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

    /// Rows of cells in the order of the columns.
    pub fn rows(&self) -> &[Vec<String>] {
        &self.rows
    }

    /// The table as CSV: axis paths, then metric names; a row for each point that no constraint leaves out.
    pub fn to_csv(&self) -> String {
        let mut writer = csv::Writer::from_writer(Vec::new());
        let written = std::iter::once(self.study.columns())
            .chain(self.rows.iter().map(Vec::as_slice))
            .try_for_each(|row| writer.write_record(row.iter().map(|cell| guarded_cell(cell).into_owned())));
        let bytes = written.ok().and_then(|()| writer.into_inner().ok()).expect("a vector takes every byte");
        String::from_utf8(bytes).expect("cells are text")
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
        // Pictures take longer than all else here.
        let plots: Vec<(usize, &Plot)> = self.study.plots.iter().enumerate().collect();
        let draw = |&(at, plot): &(usize, &Plot)| {
            let (kind, drawn) = self.plot(plot);
            let failed = |error| WriteError::Chart("plot", error);
            let named = |suffix: &str| format!("plot-{}-{kind}.{suffix}", at + 1);
            let svg = file(&named("svg"), drawn.svg().map_err(failed)?.into_bytes());
            Ok([svg, file(&named("png"), drawn.png().map_err(failed)?)])
        };
        let drawn: Vec<[File; 2]> = plots.par_iter().map(draw).collect::<Result<_, WriteError>>()?;
        files.extend(drawn.into_iter().flatten());
        Ok(files)
    }

    fn plot(&self, plot: &Plot) -> (&'static str, StudyPlot) {
        let (kind, title, x, y, data) = match plot {
            Plot::Lines { title, x, y, series } => {
                ("lines", title, *x, *y, PlotData::Lines(self.series(*x, *y, *series)))
            }
            Plot::Pareto { title, x, y, series } => {
                ("pareto", title, *x, *y, PlotData::Front(self.series(*x, *y, *series)))
            }
            Plot::Heat { title, x, y, value } => {
                let number = |row: &[String]| row[*value].parse().ok();
                let cells = self.rows.iter().map(|row| (row[*x].clone(), row[*y].clone(), number(row))).collect();
                let value = self.study.columns[*value].clone();
                ("heat", title, *x, *y, PlotData::Heat { value, cells })
            }
        };
        let columns = &self.study.columns;
        let by = match plot {
            Plot::Lines { series: Some(by), .. } | Plot::Pareto { series: Some(by), .. } => {
                format!("; colour: {}", last_key(&columns[*by]))
            }
            _ => String::new(),
        };
        let about = format!("study {}, {} points{by}", self.study.name, self.counts.points);
        (kind, StudyPlot { title: title.clone(), about, x: columns[x].clone(), y: columns[y].clone(), data })
    }

    /// The points for a page, with what stands out of them.
    pub fn points(&self) -> Points {
        let study = self.study;
        let name = |column: usize| study.columns[column].clone();
        let aims = |wanted: bool| {
            let pareto = study.pareto.iter().flat_map(|pareto| &pareto.objectives);
            let of_best = study.best.iter().map(|best| &best.objective);
            let columns = pareto.chain(of_best).filter(|o| o.maximize == wanted).map(|o| o.column);
            let mut names: Vec<String> = columns.map(name).collect();
            names.sort_unstable();
            names.dedup();
            names
        };
        let view = |plot: &Plot| {
            let (kind, title, x, y, colour) = match plot {
                Plot::Lines { title, x, y, series } => ("lines", title, x, y, *series),
                Plot::Pareto { title, x, y, series } => ("pareto", title, x, y, *series),
                Plot::Heat { title, x, y, value } => ("heat", title, x, y, Some(*value)),
            };
            View { kind, title: title.clone(), x: name(*x), y: name(*y), colour: colour.map(name) }
        };
        let mut points = Points {
            name: study.name.clone(),
            best: study.best.iter().map(|wanted| self.best_row(wanted)).collect(),
            lead: study.best.iter().skip(1).map(|wanted| self.best_line(wanted)).chain([self.count_line()]).collect(),
            columns: study.columns.clone(),
            axes: study.axis_columns,
            minimize: aims(false),
            maximize: aims(true),
            front_of: study.pareto.iter().flat_map(|p| &p.objectives).map(|o| name(o.column)).collect(),
            views: study.plots.iter().map(view).collect(),
            ..Points::default()
        };
        points.set_rows(&self.rows, &self.front().unwrap_or_default());
        points
    }

    /// Points of two columns by the values of a third, in order of first use; rows without numbers are left out.
    fn series(&self, x: usize, y: usize, by: Option<usize>) -> Vec<Series> {
        let mut list: Vec<Series> = Vec::new();
        for row in &self.rows {
            let (Ok(x), Ok(y)) = (row[x].parse::<f64>(), row[y].parse::<f64>()) else { continue };
            let name = by.map_or(String::new(), |by| series_name(&row[by]));
            match list.iter_mut().find(|series| series.name == name) {
                Some(series) => series.points.push((x, y)),
                None => list.push(Series { name, points: vec![(x, y)] }),
            }
        }
        list
    }

    fn front(&self) -> Option<Vec<usize>> {
        let pareto = self.study.pareto.as_ref()?;
        let mut front = Front::default();
        for (at, row) in self.rows.iter().enumerate() {
            if let Some(costs) = costs(&pareto.objectives, row) {
                front.add(at, costs);
            }
        }
        Some(front.indices())
    }

    fn row(&self, at: usize) -> Row<'_> {
        Row(self.study.columns.iter().zip(&self.rows[at]).map(|(name, cell)| (name.as_str(), cell.as_str())).collect())
    }

    /// What stands out, as indented JSON with a line break at the end.
    pub fn to_json(&self) -> String {
        let study = self.study;
        let best = study.best.iter().map(|wanted| BestEntry {
            of: &study.columns[wanted.objective.column],
            maximize: wanted.objective.maximize,
            subject_to: wanted.subject_to.as_ref().map(|(text, _)| text.as_str()),
            point: best(wanted, &study.columns, &self.rows).map(|at| self.row(at)),
        });
        let summary = Summary {
            schema: 1,
            study: &study.name,
            columns: &study.columns,
            counts: self.counts,
            refused: self.reasons.iter().map(|(why, times)| (why.as_str(), *times)).collect(),
            best: best.collect(),
            pareto: self.front().map(|front| front.into_iter().map(|at| self.row(at)).collect()),
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
        for wanted in &study.best {
            let _ = writeln!(text, "{}", self.best_line(wanted));
        }
        if let (Some(front), Some(pareto)) = (self.front(), &study.pareto) {
            let names: Vec<&str> = pareto.objectives.iter().map(|o| study.columns[o.column].as_str()).collect();
            let _ = writeln!(text, "{} points on the front of {}:", front.len(), names.join(", "));
            for &at in front.iter().take(MOST_LISTED) {
                let values: Vec<String> = pareto.objectives.iter().map(|o| short(&self.rows[at][o.column])).collect();
                let _ = writeln!(text, "  {} at {}", values.join(", "), self.place(at));
            }
            if front.len() > MOST_LISTED {
                let _ = writeln!(text, "  and {} more", front.len() - MOST_LISTED);
            }
        }
        text
    }

    fn count_line(&self) -> String {
        let counts = self.counts;
        let mut text = format!("{}: {} points, {} ran", self.study.name, counts.points, counts.ran);
        for (count, what) in
            [(counts.excluded, "left out by constraints"), (counts.refused, "refused"), (counts.pruned, "pruned")]
        {
            if count > 0 {
                let _ = write!(text, ", {count} {what}");
            }
        }
        text.push('.');
        text
    }

    fn best_row(&self, wanted: &Best) -> BestRow {
        BestRow {
            column: self.study.columns[wanted.objective.column].clone(),
            maximize: wanted.objective.maximize,
            subject_to: wanted.subject_to.as_ref().map(|(text, _)| text.clone()),
            row: best(wanted, &self.study.columns, &self.rows),
        }
    }

    fn best_line(&self, wanted: &Best) -> String {
        let column = wanted.objective.column;
        let word = if wanted.objective.maximize { "Most" } else { "Least" };
        let under = wanted.subject_to.as_ref().map_or(String::new(), |(text, _)| format!(" with {text}"));
        let point = match best(wanted, &self.study.columns, &self.rows) {
            Some(at) => format!("{} at {}", short(&self.rows[at][column]), self.place(at)),
            None => "no point".to_owned(),
        };
        format!("{word} {}{under}: {point}.", self.study.columns[column])
    }

    /// A point by the values of its axes.
    fn place(&self, at: usize) -> String {
        let pairs = self.study.columns.iter().zip(&self.rows[at]).take(self.study.axis_columns);
        pairs.map(|(path, cell)| format!("{path}={}", short(cell))).collect::<Vec<_>>().join(", ")
    }
}

/// A cell for people: of a long fraction six significant digits.
fn short(cell: &str) -> String {
    let Ok(number) = cell.parse::<f64>() else { return cell.to_owned() };
    if cell.len() <= 8 || !cell.contains('.') || number.abs() >= 1e6 || number.abs() < 1e-12 {
        return cell.to_owned();
    }
    let decimals = (5 - number.abs().log10().floor() as i32).clamp(0, 18) as usize;
    let text = format!("{number:.decimals$}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// What a series is called: the value that it shares; of a file its name alone.
fn series_name(cell: &str) -> String {
    match cell.strip_suffix(".toml").and_then(|path| path.rsplit('/').next()) {
        Some(stem) if !stem.is_empty() => stem.to_owned(),
        _ => short(cell),
    }
}

/// The last two keys of a path, enough to know it by.
fn last_key(path: &str) -> &str {
    path.rmatch_indices('.').nth(1).map_or(path, |(at, _)| &path[at + 1..])
}
