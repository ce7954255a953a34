//! The sheet of a break-even: where two chips take as long.

use serde::Deserialize;

use super::super::human::{plain, si};
use super::sheet::{BarRow, Bars, Figure, Sheet, SheetTable, parsed};

#[derive(Deserialize)]
struct Found {
    schema: u32,
    axis: String,
    first: String,
    second: String,
    workload: String,
    mode: String,
    value: Option<f64>,
    range: Option<[f64; 2]>,
    why: String,
    points: Vec<Point>,
}

#[derive(Deserialize)]
struct Point {
    value: f64,
    speedup: f64,
    speedup_range: [f64; 2],
    first: Side,
    second: Side,
}

#[derive(Deserialize)]
struct Side {
    time_s: f64,
    bound_by: String,
}

/// The sheet of where the verdict turns, with every point.
pub(super) fn crossing(text: &str) -> Result<Sheet, String> {
    let of: Found = parsed(text)?;
    if of.schema != 1 {
        return Err(format!("schema {}, this version reads 1", of.schema));
    }
    let (first, second) = (&of.first, &of.second);
    let columns = [of.axis.as_str(), first, second, "times as fast", "at least", "at most", "bounds"];
    let mut table = SheetTable::new("Points", &columns, &[6]);
    for point in &of.points {
        let [least, most] = point.speedup_range;
        table.rows.push(vec![
            plain(point.value),
            si(point.first.time_s, "s"),
            si(point.second.time_s, "s"),
            format!("{:.3}", point.speedup),
            format!("{least:.3}"),
            format!("{most:.3}"),
            format!("{}, {}", point.first.bound_by, point.second.bound_by),
        ]);
    }
    let bars = Bars {
        title: format!("Times as fast as {second}, along {}", of.axis),
        unit: "",
        pieces: vec![first.clone()],
        rows: of.points.iter().map(|point| BarRow { name: plain(point.value), values: vec![point.speedup] }).collect(),
    };
    let range =
        of.range.map_or_else(String::new, |[least, most]| format!(", from {} to {}", plain(least), plain(most)));
    Ok(Sheet {
        kind: "break-even",
        title: format!("{first} against {second}: {} in mode {}", of.workload, of.mode),
        headline: of.value.map_or_else(|| "no break-even".to_owned(), plain),
        verdict: format!("{}{range}", of.axis),
        lines: vec![of.why],
        figures: of.value.map(|value| Figure::plain("break-even", "", value)).into_iter().collect(),
        bars: vec![bars],
        tables: vec![table],
        ..Sheet::default()
    })
}
