//! The pictures that a study asks for.
//!
//! Points that differ in an axis which a picture does not show are never joined and never drawn in one place of a heat map:
//! they are divided into facets by the axes that are not shown; where there are too many facets, points stay unjoined and a
//! cell shows the median, and the picture says so.

use std::collections::BTreeSet;

use indexmap::IndexMap;

use crate::report::{Facet, PlotData, Series, StudyPlot, name_in_words, value_label};

use super::study::Study;
use super::wanted::Plot;

/// Facets of a picture, at most.
const MOST_FACETS: usize = 12;

type Rows<'a> = Vec<&'a Vec<String>>;

/// A picture of rows, and the kind that names its file.
pub(super) fn picture(study: &Study, plot: &Plot, rows: &[Vec<String>]) -> (&'static str, StudyPlot) {
    let (kind, title, x, y, colour) = match plot {
        Plot::Lines { title, x, y, series } => ("lines", title, *x, *y, *series),
        Plot::Pareto { title, x, y, series } => ("pareto", title, *x, *y, *series),
        Plot::Heat { title, x, y, value } => ("heat", title, *x, *y, Some(*value)),
    };
    let columns = &study.columns;
    let rows: Rows<'_> = rows.iter().collect();
    // A front is of all points, and none hides another that is on it.
    let shown: Vec<usize> = match plot {
        Plot::Lines { series, .. } => [Some(x), *series].into_iter().flatten().collect(),
        Plot::Heat { .. } => vec![x, y],
        Plot::Pareto { .. } => Vec::new(),
    };
    let others = other_axes(study, &rows, &[Some(x), Some(y), colour]);
    let is_mixed = !shown.is_empty() && !others.is_empty() && has_two_in_a_place(&rows, &shown);
    let mut groups: IndexMap<String, Rows<'_>> = IndexMap::new();
    for row in &rows {
        let name = if is_mixed { facet_name(columns, &others, row) } else { String::new() };
        groups.entry(name).or_default().push(row);
    }
    let too_many = groups.len() > MOST_FACETS;
    if too_many {
        groups = IndexMap::from([(String::new(), rows)]);
    }
    let named =
        |axes: &[usize]| axes.iter().map(|&axis| name_in_words(&columns[axis])).collect::<Vec<_>>().join(" and ");
    let unjoined = too_many || (study.is_sampled && !others.is_empty());
    let mut about = format!("study {}, {} points", study.name, study.points.len());
    if let (Some(by), "lines" | "pareto") = (colour, kind) {
        about = format!("{about}; colour: {}", name_in_words(&columns[by]));
    }
    match plot {
        Plot::Lines { .. } if unjoined => {
            about = format!("{about}; not joined: {} differ too", named(&others));
        }
        Plot::Heat { .. } if too_many => about = format!("{about}; median over {}", named(&others)),
        _ => {}
    }
    let facets = groups.into_iter().map(|(name, rows)| {
        let data = match plot {
            Plot::Lines { series, .. } if unjoined => PlotData::Points(series_of(&rows, x, y, *series)),
            Plot::Lines { series, .. } => PlotData::Lines(series_of(&rows, x, y, *series)),
            Plot::Pareto { series, .. } => PlotData::Front(series_of(&rows, x, y, *series)),
            Plot::Heat { value, .. } => {
                PlotData::Heat { value: columns[*value].clone(), cells: cells(&rows, x, y, *value) }
            }
        };
        Facet { name, data }
    });
    let facets = facets.collect();
    (kind, StudyPlot { title: title.clone(), about, x: columns[x].clone(), y: columns[y].clone(), facets })
}

/// The first column of each axis that takes several values and that a picture does not show.
fn other_axes(study: &Study, rows: &Rows<'_>, shown: &[Option<usize>]) -> Vec<usize> {
    let mut found = Vec::new();
    let mut first = 0;
    for axis in study.axes.iter() {
        let own = first..first + axis.paths.len();
        first = own.end;
        let is_shown = shown.iter().flatten().any(|column| own.contains(column));
        let varies = rows.windows(2).any(|pair| pair[0][own.start] != pair[1][own.start]);
        if !is_shown && varies {
            found.push(own.start);
        }
    }
    found
}

/// Whether two rows have the same values of all the columns of a place.
fn has_two_in_a_place(rows: &Rows<'_>, columns: &[usize]) -> bool {
    let mut seen = BTreeSet::new();
    rows.iter().any(|row| {
        let place: Vec<&str> = columns.iter().map(|&column| row[column].as_str()).collect();
        !seen.insert(place)
    })
}

fn facet_name(columns: &[String], axes: &[usize], row: &[String]) -> String {
    let value = |axis: usize| match row[axis].parse::<f64>() {
        Ok(number) => value_label(number, &columns[axis]),
        Err(_) => series_name(&row[axis]),
    };
    let pairs = axes.iter().map(|&axis| format!("{} = {}", name_in_words(&columns[axis]), value(axis)));
    pairs.collect::<Vec<_>>().join(", ")
}

/// Points of two columns by the values of a third, in order of first use; rows without numbers are left out.
fn series_of(rows: &Rows<'_>, x: usize, y: usize, by: Option<usize>) -> Vec<Series> {
    let mut list: Vec<Series> = Vec::new();
    for row in rows {
        let (Ok(x), Ok(y)) = (row[x].parse::<f64>(), row[y].parse::<f64>()) else { continue };
        let name = by.map_or(String::new(), |by| series_name(&row[by]));
        match list.iter_mut().find(|series| series.name == name) {
            Some(series) => series.points.push((x, y)),
            None => list.push(Series { name, points: vec![(x, y)] }),
        }
    }
    list
}

/// Cells of a heat map: of several points in one, the median.
fn cells(rows: &Rows<'_>, x: usize, y: usize, value: usize) -> Vec<(String, String, Option<f64>)> {
    let mut found: IndexMap<(&str, &str), Vec<f64>> = IndexMap::new();
    for row in rows {
        let numbers = found.entry((&row[x], &row[y])).or_default();
        numbers.extend(row[value].parse::<f64>().ok());
    }
    let median = |mut numbers: Vec<f64>| {
        numbers.sort_by(f64::total_cmp);
        numbers.get(numbers.len().saturating_sub(1) / 2).copied()
    };
    found.into_iter().map(|((x, y), numbers)| (x.to_owned(), y.to_owned(), median(numbers))).collect()
}

/// What a series is called: the value that it shares; of a file its name alone.
fn series_name(cell: &str) -> String {
    match cell.strip_suffix(".toml").and_then(|path| path.rsplit('/').next()) {
        Some(stem) if !stem.is_empty() => stem.to_owned(),
        _ => short(cell),
    }
}

/// A cell for people: of a long fraction six significant digits.
pub(super) fn short(cell: &str) -> String {
    let Ok(number) = cell.parse::<f64>() else { return cell.to_owned() };
    if cell.len() <= 8 || !cell.contains('.') || number.abs() >= 1e6 || number.abs() < 1e-12 {
        return cell.to_owned();
    }
    let decimals = (5 - number.abs().log10().floor() as i32).clamp(0, 18) as usize;
    let text = format!("{number:.decimals$}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
