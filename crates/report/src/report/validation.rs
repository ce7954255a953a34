//! Validation and calibration as text, JSON, CSV and pictures.

use std::fmt::Write as _;

use serde::Serialize;

use super::chart::{ChartError, SetChart};
use super::human::percent;
use super::text_table::{new_table, wrapped};
use super::write::{File, WriteError};
use rdusim_graph::arch::Vendor;
use rdusim_validate::{FitReport, LeftOut, Score, SetPart, SetReport, SetRow, leave_one_set_out};

/// Version of the object's shape.
const SCHEMA: u32 = 1;

/// `validate --format json`.
#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    sets: Vec<SetEntry<'a>>,
    /// Each measured set against a band of the others' errors.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    leave_one_set_out: Vec<LeftOutEntry>,
}

#[derive(Serialize)]
struct LeftOutEntry {
    set: String,
    mapping: &'static str,
    /// 5 to 95 % of the simulated speed over the measured one, of the other sets.
    band: [f64; 2],
    inside: usize,
    points: usize,
}

impl From<LeftOut> for LeftOutEntry {
    fn from(LeftOut { name: set, mapping, band, inside, points }: LeftOut) -> Self {
        Self { set, mapping, band, inside, points }
    }
}

#[derive(Serialize)]
struct SetEntry<'a> {
    name: &'a str,
    chip: &'a str,
    mapping: &'static str,
    quantity: &'a str,
    source: &'a str,
    median_error: f64,
    worst_error: f64,
    rank_correlation: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ideal: Option<ScoreEntry>,
    #[serde(skip_serializing_if = "Option::is_none")]
    range: Option<RangeEntry>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    parts: Vec<PartEntry<'a>>,
    rows: Vec<RowEntry<'a>>,
}

/// How the published figures lie to the ranges from loads under computing to loads before it.
#[derive(Serialize)]
struct RangeEntry {
    /// Points inside.
    inside: usize,
    /// Points with a range.
    points: usize,
    /// Median of the absolute errors of the end that is nearer.
    nearer_end_median_error: f64,
    /// The largest error outside.
    worst_outside: f64,
}

impl RangeEntry {
    fn new(set: &SetReport) -> Option<Self> {
        let outside: Vec<f64> = set.rows.iter().filter_map(SetRow::range_error).map(f64::abs).collect();
        let nearer: Vec<f64> = set.rows.iter().filter_map(SetRow::nearer_end_error).map(|error| 1.0 + error).collect();
        (!outside.is_empty()).then(|| Self {
            inside: outside.iter().filter(|error| **error <= 0.0).count(),
            points: outside.len(),
            nearer_end_median_error: Score::new(&vec![1.0; nearer.len()], &nearer).median_error,
            worst_outside: outside.iter().copied().fold(0.0, f64::max),
        })
    }
}

#[derive(Serialize)]
struct PartEntry<'a> {
    name: &'a str,
    points: usize,
    median_error: f64,
    ninetieth_error: f64,
    worst_error: f64,
    rank_correlation: Option<f64>,
    /// Of decompositions of a model: how much slower the one simulated as the fastest was than the fastest.
    #[serde(skip_serializing_if = "Option::is_none")]
    over_fastest: Option<f64>,
}

#[derive(Serialize)]
struct ScoreEntry {
    median_error: f64,
    worst_error: f64,
    rank_correlation: Option<f64>,
}

#[derive(Serialize)]
struct RowEntry<'a> {
    point: &'a str,
    published: f64,
    /// Nothing where the row cannot be simulated.
    simulated: Option<f64>,
    /// The same.
    error: Option<f64>,
    /// Why the row cannot be simulated.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ideal: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ideal_error: Option<f64>,
    /// The simulated figure with loads under computing, and with loads before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    range: Option<[f64; 2]>,
    outlier: bool,
}

impl<'a> SetEntry<'a> {
    fn new(set: &'a SetReport) -> Self {
        let score = |score: &Score| ScoreEntry {
            median_error: score.median_error,
            worst_error: score.worst_error,
            rank_correlation: score.rank_correlation,
        };
        let rows = set.rows.iter().map(|row| RowEntry {
            point: &row.label,
            published: row.published,
            simulated: Some(row.simulated),
            error: Some(row.error()),
            reason: None,
            ideal: row.ideal,
            ideal_error: row.ideal_error(),
            range: row.serial.map(|serial| [row.simulated, serial]),
            outlier: row.outlier,
        });
        let refused = set.refused.iter().map(|row| RowEntry {
            point: &row.label,
            published: row.published,
            simulated: None,
            error: None,
            reason: Some(&row.reason),
            ideal: None,
            ideal_error: None,
            range: None,
            outlier: false,
        });
        let part = |part: &'a SetPart| PartEntry {
            name: &part.name,
            points: part.points,
            median_error: part.score.median_error,
            ninetieth_error: part.score.ninetieth_error,
            worst_error: part.score.worst_error,
            rank_correlation: part.score.rank_correlation,
            over_fastest: part.over_fastest,
        };
        let ScoreEntry { median_error, worst_error, rank_correlation } = score(&set.score);
        Self {
            name: &set.name,
            chip: &set.chip,
            mapping: set.quality.name(),
            quantity: &set.quantity,
            source: &set.source,
            median_error,
            worst_error,
            rank_correlation,
            ideal: set.ideal_score.as_ref().map(score),
            range: RangeEntry::new(set),
            parts: set.parts.iter().map(part).collect(),
            rows: rows.chain(refused).collect(),
        }
    }
}

/// The sets as a JSON object. Errors of rows are signed, those of sets are absolute.
pub fn validation_json(sets: &[SetReport]) -> String {
    let left_out = leave_one_set_out(sets).into_iter().map(LeftOutEntry::from).collect();
    let document =
        Document { schema: SCHEMA, sets: sets.iter().map(SetEntry::new).collect(), leave_one_set_out: left_out };
    // Strings, numbers and lists of them cannot fail.
    let mut text = serde_json::to_string_pretty(&document).unwrap_or_default();
    text.push('\n');
    text
}

/// The sets as tables for the terminal: each point, then the errors of each set.
pub fn validation_table(sets: &[SetReport]) -> String {
    let mut blocks: Vec<String> = sets.iter().map(of_set).collect();
    blocks.push(summary(sets));
    blocks.extend(ranges(sets));
    blocks.extend(left_out(sets));
    let mut text = blocks.join("\n\n");
    text.push('\n');
    text
}

fn of_set(set: &SetReport) -> String {
    let about = format!("{} on {}, {}; {}", set.name, set.chip, set.quantity, set.source);
    let mut header = vec![set.point.clone(), "published".to_owned()];
    let measured = set.ideal_score.is_some();
    if measured {
        header.extend(["vendor", "error", "serial", "ideal", "error", ""].map(str::to_owned));
    } else {
        header.extend(["simulated", "error"].map(str::to_owned));
    }
    let mut table = new_table(header);
    for row in &set.rows {
        let mut cells =
            vec![row.label.clone(), number(row.published), number(row.simulated), signed_percent(row.error())];
        if let (Some(ideal), Some(error)) = (row.ideal, row.ideal_error()) {
            let mark = if row.outlier { "outlier" } else { "" };
            cells.push(row.serial.map_or_else(String::new, number));
            cells.extend([number(ideal), signed_percent(error), mark.to_owned()]);
        }
        table.add_row(cells);
    }
    for row in &set.refused {
        let mut cells = vec![row.label.clone(), number(row.published), "-".to_owned(), "-".to_owned()];
        cells.resize(if measured { 8 } else { 4 }, String::new());
        table.add_row(cells);
    }
    let reasons = match set.refused.first() {
        None => String::new(),
        Some(first) => format!("\n{} points cannot be simulated; the first: {}", set.refused.len(), first.reason),
    };
    format!("{}\n{}{reasons}", wrapped("set       ", &about), table.trim_fmt())
}

fn summary(sets: &[SetReport]) -> String {
    let header = ["set", "mapping or part", "points", "median error", "worst error", "rank correlation", "outliers"];
    let mut table = new_table(header.map(str::to_owned).to_vec());
    for set in sets {
        let mut line = |quality: &str, score: &Score, points: usize, outliers: String| {
            let rank = score.rank_correlation.map_or_else(|| "-".to_owned(), |r| format!("{r:.3}"));
            let (median, worst) = (percent(score.median_error), percent(score.worst_error));
            table.add_row(vec![
                set.name.clone(),
                quality.to_owned(),
                if points > 0 { points } else { set.rows.len() }.to_string(),
                median,
                worst,
                rank,
                outliers,
            ]);
        };
        let outliers: Vec<&str> = set.rows.iter().filter(|row| row.outlier).map(|row| row.label.as_str()).collect();
        line(set.quality.name(), &set.score, 0, outliers.join(" "));
        if let Some(ideal) = &set.ideal_score {
            line("ideal", ideal, 0, String::new());
        }
        for part in &set.parts {
            // Cases of a file: a part may be large.
            let mut most = format!("9 in 10 within {}", percent(part.score.ninetieth_error));
            if let Some(over) = part.over_fastest {
                let _ = write!(most, "; fastest simulated {} over fastest", signed_percent(over));
            }
            let of_cases = !set.plotted && set.ideal_score.is_none();
            line(&part.name, &part.score, part.points, if of_cases { most } else { String::new() });
        }
    }
    table.trim_fmt()
}

/// Under vendor limits, one line a set: how many published figures lie inside the simulated range.
fn ranges(sets: &[SetReport]) -> Option<String> {
    let line = |set: &SetReport| {
        let range = RangeEntry::new(set)?;
        Some(format!(
            "{}: {} of {} points inside the range from loads under computing to loads before it, nearer end {} off in the \
             median, at most {} outside",
            set.name,
            range.inside,
            range.points,
            percent(range.nearer_end_median_error),
            percent(range.worst_outside)
        ))
    };
    let lines: Vec<String> = sets.iter().filter_map(line).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// Whole sets left out, in a table, and how many points the bands of the others cover.
fn left_out(sets: &[SetReport]) -> Option<String> {
    let list = leave_one_set_out(sets);
    let header = ["set left out", "mapping", "speed over measured, others' 5 to 95 %", "points inside"];
    let mut table = new_table(header.map(str::to_owned).to_vec());
    let mut lines = Vec::new();
    for mapping in ["ideal", "vendor"] {
        let of_mapping: Vec<&LeftOut> = list.iter().filter(|set| set.mapping == mapping).collect();
        for set in &of_mapping {
            let band = format!("{:.2} to {:.2}", set.band[0], set.band[1]);
            table.add_row(vec![
                set.name.clone(),
                mapping.to_owned(),
                band,
                format!("{} of {}", set.inside, set.points),
            ]);
        }
        let mean = of_mapping.iter().map(|set| set.inside as f64 / set.points as f64).sum::<f64>();
        lines.push(format!(
            "{mapping}: {} sets, mean coverage {} where 90 % are aimed at; so few sets make it a diagnostic, no confidence level",
            of_mapping.len(),
            percent(mean / of_mapping.len().max(1) as f64)
        ));
    }
    (!list.is_empty()).then(|| format!("{}\n{}", table.trim_fmt(), lines.join("\n")))
}

/// Four significant digits; large counts whole.
fn number(value: f64) -> String {
    match value.abs() {
        v if v >= 1000.0 => format!("{value:.0}"),
        v if v >= 100.0 => format!("{value:.1}"),
        v if v >= 10.0 => format!("{value:.2}"),
        v if v >= 1.0 => format!("{value:.3}"),
        _ => format!("{value:.4}"),
    }
}

fn signed_percent(share: f64) -> String {
    format!("{:+.1} %", share * 100.0)
}

/// `validation.csv`, `validation.json`, and a picture of every set with numbers for points.
///
/// # Errors
/// A picture that cannot be drawn.
pub fn validation_files(sets: &[SetReport]) -> Result<Vec<File>, WriteError> {
    let mut files = vec![
        File { name: "validation.json".to_owned(), bytes: validation_json(sets).into_bytes() },
        File { name: "validation.csv".to_owned(), bytes: validation_csv(sets)?.into_bytes() },
    ];
    for set in sets.iter().filter(|set| set.plotted && !set.rows.is_empty()) {
        let chart = SetChart::new(set);
        let failed = |error: ChartError| WriteError::Chart("validation", error);
        files.push(File { name: format!("{}.svg", set.name), bytes: chart.svg().map_err(failed)?.into_bytes() });
        files.push(File { name: format!("{}.png", set.name), bytes: chart.png().map_err(failed)? });
    }
    Ok(files)
}

/// `validation.csv`: one row a point.
///
/// # Errors
/// A table that cannot be made.
pub fn validation_csv(sets: &[SetReport]) -> Result<String, WriteError> {
    csv_of(sets).map_err(|error| WriteError::Csv("validation.csv", error))
}

/// One row a point.
#[derive(Serialize)]
struct CsvRow<'a> {
    set: &'a str,
    chip: &'a str,
    mapping: &'static str,
    quantity: &'a str,
    point: &'a str,
    published: f64,
    simulated: f64,
    error: f64,
    ideal: Option<f64>,
    ideal_error: Option<f64>,
    outlier: bool,
}

fn csv_of(sets: &[SetReport]) -> Result<String, csv::Error> {
    super::csv::to_text(sets.iter().flat_map(|set| {
        set.rows.iter().map(|row| CsvRow {
            set: &set.name,
            chip: &set.chip,
            mapping: set.quality.name(),
            quantity: &set.quantity,
            point: &row.label,
            published: row.published,
            simulated: row.simulated,
            error: row.error(),
            ideal: row.ideal,
            ideal_error: row.ideal_error(),
            outlier: row.outlier,
        })
    }))
}

/// A fit and what its limits predict: parameters, then sets it was fitted to and sets it never saw.
pub fn fit_table(fit: &FitReport, sets: &[SetReport]) -> String {
    let mut parameters = new_table(["field", "start", "fitted"].map(str::to_owned).to_vec());
    for fitted in &fit.fitted {
        parameters.add_row(vec![format!("vendor.{}", fitted.field), number(fitted.start), number(fitted.value)]);
    }
    let cost = format!(
        "mean softened residual {:.4} at the start, {:.4} after {} simulations of all points",
        fit.cost.0, fit.cost.1, fit.evaluations
    );
    let mut residuals: Vec<String> = sets.iter().map(of_set).collect();
    residuals.push(summary(sets));
    format!(
        "{}\n{}\n{}\n\n{}\n\nTo put into the chip file:\n\n{}",
        wrapped("fitted to  ", &fit.sets.join(", ")),
        parameters.trim_fmt(),
        cost,
        residuals.join("\n\n"),
        vendor_toml(&fit.vendor, &fit.sets),
    )
}

/// The `[vendor]` table of a chip file.
fn vendor_toml(vendor: &Vendor, sets: &[String]) -> String {
    let large = vendor.large.map_or_else(String::new, |large| {
        format!(
            "large_tensor_bytes = {}\nlarge_tensor_gb_per_s = {}\n",
            large.tensor_bytes,
            large.stream_bytes_per_s as f64 / 1e9
        )
    });
    format!(
        "# calibrated on: {}\n[vendor]\nlaunch_us = {}\nstream_gb_per_s = {}\n{large}pcus_per_operator = {}\npcu_efficiency = {}\n",
        sets.join(", "),
        vendor.launch_us,
        vendor.stream_bytes_per_s as f64 / 1e9,
        vendor.pcus_per_operator,
        vendor.pcu_efficiency
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdusim_graph::arch::Quality;
    use rdusim_validate::SetRow;

    pub(crate) fn set() -> SetReport {
        let row = |at: f64, published: f64, simulated: f64, ideal: f64, outlier: bool| SetRow {
            label: format!("{at}"),
            at,
            published,
            simulated,
            ideal: Some(ideal),
            serial: None,
            outlier,
        };
        let rows =
            vec![row(128.0, 0.2, 0.25, 0.4, true), row(256.0, 1.0, 1.0, 2.0, false), row(512.0, 8.0, 7.0, 16.0, false)];
        SetReport {
            name: "example".into(),
            chip: "SN10".into(),
            quality: Quality::Vendor,
            point: "n".into(),
            quantity: "TFLOP/s".into(),
            source: "nowhere".into(),
            plotted: true,
            score: Score::new(&[0.2, 1.0, 8.0], &[0.25, 1.0, 7.0]),
            ideal_score: Some(Score::new(&[0.2, 1.0, 8.0], &[0.4, 2.0, 16.0])),
            parts: Vec::new(),
            rows,
            refused: Vec::new(),
        }
    }

    #[test]
    fn the_object_has_the_keys_of_the_contract() {
        let value: serde_json::Value = serde_json::from_str(&validation_json(&[set()])).unwrap();
        assert_eq!(value["schema"], 1);
        let set = &value["sets"][0];
        assert_eq!((&set["name"], &set["mapping"]), (&"example".into(), &"vendor".into()));
        // Errors 0.25, 0 and 0.125; the rows' are signed.
        assert_eq!((set["median_error"].as_f64(), set["worst_error"].as_f64()), (Some(0.125), Some(0.25)));
        assert_eq!(set["rank_correlation"].as_f64(), Some(1.0));
        assert_eq!(set["rows"][2]["error"].as_f64(), Some(-0.125));
        assert_eq!(set["ideal"]["median_error"].as_f64(), Some(1.0));
        for key in ["point", "published", "simulated", "error"] {
            assert!(set["rows"][0].get(key).is_some(), "{key}");
        }
    }

    #[test]
    fn the_table_shows_points_errors_and_outliers() {
        insta::assert_snapshot!(validation_table(&[set()]));
    }

    #[test]
    fn a_set_has_a_csv_and_pictures() {
        let files = validation_files(&[set()]).unwrap();
        let names: Vec<&str> = files.iter().map(|file| file.name.as_str()).collect();
        assert_eq!(names, ["validation.json", "validation.csv", "example.svg", "example.png"]);
        let csv = String::from_utf8(files[1].bytes.clone()).unwrap();
        assert_eq!(csv.lines().nth(1), Some("example,SN10,vendor,TFLOP/s,128,0.2,0.25,0.25,0.4,1.0,true"));
        let svg = String::from_utf8(files[2].bytes.clone()).unwrap();
        assert!(svg.contains("published") && svg.contains("vendor") && svg.contains("ideal"));
    }
}
