//! A study's `summary.json`, and the table that lies beside it, as the points of a page.

use std::io;

use indexmap::IndexMap;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::points::{BestRow, Points, View};
use super::sheet::parsed;

#[derive(Deserialize)]
struct Summary {
    schema: u32,
    study: String,
    columns: Vec<String>,
    best: Vec<Best>,
    pareto: Option<Vec<Map<String, Value>>>,
    // Summaries of earlier versions do not have these.
    #[serde(default)]
    lead: Vec<String>,
    #[serde(default)]
    minimize: Vec<String>,
    #[serde(default)]
    maximize: Vec<String>,
    #[serde(default)]
    front_of: Vec<String>,
    #[serde(default)]
    plots: Vec<View>,
    #[serde(default)]
    names: IndexMap<String, String>,
}

#[derive(Deserialize)]
struct Best {
    of: String,
    maximize: bool,
    subject_to: Option<String>,
    /// The axis that a mean is taken over: no row has it.
    over: Option<Value>,
    point: Option<Map<String, Value>>,
}

/// Whether a text is the summary of a study.
pub(super) fn is_one(text: &str) -> bool {
    let keys: Option<IndexMap<String, Value>> = serde_json::from_str(text).ok();
    keys.is_some_and(|keys| keys.contains_key("study") && keys.contains_key("columns"))
}

/// A cell as a summary has it: a number if it is one.
fn cell(text: &str) -> Value {
    let whole = text.parse::<u64>().ok().map(Value::from);
    let real = || text.parse::<f64>().ok().and_then(serde_json::Number::from_f64).map(Value::from);
    whole.or_else(real).unwrap_or_else(|| text.into())
}

/// The key of a row, by which rows of the table are found again.
fn key<'a>(values: impl Iterator<Item = &'a Value>) -> String {
    values.map(|value| value.to_string() + "\u{0}").collect()
}

/// The points of a summary. `table`: `results.csv`, without which the points that stand out are shown alone.
pub(super) fn points(text: &str, table: Option<&str>) -> Result<Points, String> {
    let summary: Summary = parsed(text)?;
    if summary.schema != 1 {
        return Err(format!("schema {}, expected 1", summary.schema));
    }
    let columns = summary.columns;
    let of_point = |point: &Map<String, Value>| -> Vec<Value> {
        columns.iter().map(|name| point.get(name).cloned().unwrap_or_default()).collect()
    };
    let mut lead = summary.lead;
    let rows: Vec<Vec<String>> = if let Some(table) = table {
        let refused = |error: csv::Error| format!("of a table `results.csv` that cannot be read: {error}");
        let mut reader = csv::Reader::from_reader(io::Cursor::new(table));
        let head = reader.headers().map_err(refused)?;
        if !head.iter().eq(columns.iter().map(String::as_str)) {
            let found = head.iter().collect::<Vec<&str>>().join(", ");
            return Err(format!("of another study than `results.csv` beside it, whose columns are {found}"));
        }
        let row = |record: csv::Result<csv::StringRecord>| Ok(record?.iter().map(str::to_owned).collect());
        reader.records().map(row).collect::<csv::Result<_>>().map_err(refused)?
    } else {
        lead.push(
            "`results.csv` does not lie beside `summary.json`: only the points that stand out are shown.".to_owned(),
        );
        let stand_out = summary.best.iter().filter(|best| best.over.is_none()).filter_map(|best| best.point.as_ref());
        let all = stand_out.chain(summary.pareto.iter().flatten());
        let texts = |point| of_point(point).iter().map(shown).collect();
        let mut rows: Vec<Vec<String>> = Vec::new();
        for row in all.map(texts) {
            if !rows.contains(&row) {
                rows.push(row);
            }
        }
        rows
    };
    let mut places: IndexMap<String, usize> = IndexMap::new();
    for (at, row) in rows.iter().enumerate() {
        let values: Vec<Value> = row.iter().map(|text| cell(text)).collect();
        places.entry(key(values.iter())).or_insert(at);
    }
    let place = |point: &Map<String, Value>| {
        // An empty cell is an empty text in a summary too.
        let values: Vec<Value> = of_point(point).iter().map(|value| cell(&shown(value))).collect();
        places.get(&key(values.iter())).copied()
    };
    let best = summary.best.iter().filter(|best| best.over.is_none()).map(|best| BestRow {
        column: best.of.clone(),
        maximize: best.maximize,
        subject_to: best.subject_to.clone(),
        row: best.point.as_ref().and_then(place),
    });
    let best: Vec<BestRow> = best.filter(|best| columns.contains(&best.column)).collect();
    let front: Vec<usize> = summary.pareto.iter().flatten().filter_map(place).collect();
    let is_axis = |name: &&String| {
        matches!(name.as_str(), "arch" | "workload")
            || ["arch.", "workload.", "run."].iter().any(|root| name.starts_with(root))
    };
    let axes = columns.iter().take_while(is_axis).count();
    let mut points = Points {
        name: summary.study,
        best,
        lead,
        axes,
        minimize: summary.minimize,
        maximize: summary.maximize,
        views: summary.plots,
        front_of: summary.front_of,
        columns,
        ..Points::default()
    };
    let is_file = |column: &usize| matches!(points.columns[*column].as_str(), "arch" | "workload");
    let files: Vec<usize> = (0..points.columns.len()).filter(is_file).collect();
    let mut rows = rows;
    for row in &mut rows {
        for &column in &files {
            if let Some(name) = summary.names.get(&row[column]) {
                row[column].clone_from(name);
            }
        }
    }
    points.set_rows(&rows, &front);
    Ok(points)
}

/// A value as it stands in the table.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUMMARY: &str = r#"{"schema": 1, "study": "s", "columns": ["arch.x", "fused.time_s"], "counts": {}, "refused": [],
        "best": [{"of": "fused.time_s", "maximize": false, "subject_to": null, "value": 0.5,
                  "point": {"arch.x": 2, "fused.time_s": 0.5}}],
        "pareto": [{"arch.x": 2, "fused.time_s": 0.5}]}"#;

    #[test]
    fn a_summary_finds_its_rows_again() {
        let points = points(SUMMARY, Some("arch.x,fused.time_s\n1,0.75\n2,0.5\n4,\n")).unwrap();
        assert_eq!((points.rows.len(), points.axes, points.best[0].row, points.front), (3, 1, Some(1), vec![1]));
    }

    #[test]
    fn without_its_table_what_stands_out_is_shown() {
        let points = points(SUMMARY, None).unwrap();
        assert_eq!((points.rows.len(), points.front), (1, vec![0]));
        assert!(points.lead[0].contains("results.csv"), "{:?}", points.lead);
    }

    #[test]
    fn a_table_of_another_study_is_refused() {
        assert!(points(SUMMARY, Some("a,b\n1,2\n")).unwrap_err().contains("another study"));
        assert!(points(SUMMARY, Some("arch.x,fused.time_s\n1\n")).unwrap_err().contains("cannot be read"));
    }
}
