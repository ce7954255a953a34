//! A result's JSON as one flat table for spreadsheets and data frames.
//!
//! The table has a row for each item of the list that the result is about: runs, candidates of a search, steps of an explanation;
//! a result without such a list has one row. Columns are keys, those of objects in objects joined by dots; lists have no columns.

use indexmap::{IndexMap, IndexSet};
use serde::Deserialize;

use super::csv::guarded;

/// JSON whose keys keep their order.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Json {
    Null,
    Bool(bool),
    Number(serde_json::Number),
    Text(String),
    List(Vec<Json>),
    Object(Object),
}

type Object = IndexMap<String, Json>;
type Row = IndexMap<String, String>;

/// What a result is of: columns of every row.
const IDENTITY: [&str; 8] = ["study", "arch", "workload", "system", "model", "phase", "fidelity", "mapping"];
/// Lists that results are about, with the list inside each of their items, if that is what counts.
const LISTS: [(&str, Option<&str>); 9] = [
    ("candidates", None),
    ("modes", Some("derivatives")),
    ("sets", Some("rows")),
    ("rows", None),
    ("entries", None),
    ("runs", None),
    ("products", None),
    ("partitions", None),
    ("sections", None),
];
/// Objects that are no columns: they have keys of their own for every tensor, file or point.
const LEFT_OUT: [&str; 6] = ["by_tensor", "inputs", "waterfall", "grid", "uncertainty", AGAINST];

/// The key of the second chip's runs; those of others stand in a list ([`Against`](super::against::Against)).
const AGAINST: &str = "against";
const FURTHER: &str = "against_further";

/// The table of a result as `--format json` prints it.
///
/// # Errors
/// A text that is no JSON object.
pub fn result_csv(json: &str) -> Result<String, serde_json::Error> {
    let document: Object = serde_json::from_str(json)?;
    let mut rows = Vec::new();
    of_document(&document, &mut rows);
    let further = match document.get(FURTHER) {
        Some(Json::List(further)) => &further[..],
        _ => &[],
    };
    for against in document.get(AGAINST).into_iter().chain(further) {
        // The same of each other chip.
        let Json::Object(against) = against else { continue };
        let workload = document.get("workload").map(|workload| identity("workload", workload));
        let start = rows.len();
        of_document(against, &mut rows);
        for row in &mut rows[start..] {
            row.extend(workload.iter().flatten().cloned());
        }
    }
    let columns: IndexSet<&String> = rows.iter().flat_map(Row::keys).collect();
    let mut writer = ::csv::Writer::from_writer(Vec::new());
    // Writing to memory fails for rows of unequal lengths alone.
    let cells = |row: &Row| -> Vec<String> {
        columns
            .iter()
            .map(|column| row.get(*column).map_or_else(String::new, |cell| guarded(cell).into_owned()))
            .collect()
    };
    let _ = writer.write_record(columns.iter().map(|column| guarded(column).into_owned()));
    for row in &rows {
        let _ = writer.write_record(cells(row));
    }
    Ok(String::from_utf8_lossy(&writer.into_inner().unwrap_or_default()).into_owned())
}

fn of_document(document: &Object, rows: &mut Vec<Row>) {
    let list = LISTS.iter().find_map(|(name, inner)| match document.get(*name) {
        Some(Json::List(items)) => Some((*name, *inner, items)),
        _ => None,
    });
    let Some((name, inner, items)) = list else {
        let mut row = Row::new();
        document.iter().for_each(|(key, value)| flatten(key, value, &mut row));
        rows.push(row);
        return;
    };
    let known = IDENTITY.iter().filter_map(|key| Some(identity(key, document.get(*key)?)));
    let own: Row = known.flatten().collect();
    for item in items {
        let Json::Object(item) = item else { continue };
        let Some(inner) = inner else {
            rows.push(joined(&own, name, item));
            continue;
        };
        let mut outer = own.clone();
        for (key, value) in item.iter().filter(|(_, value)| !matches!(value, Json::Object(_) | Json::List(_))) {
            flatten(&format!("{name}.{key}"), value, &mut outer);
        }
        let Some(Json::List(steps)) = item.get(inner) else { continue };
        for step in steps {
            if let Json::Object(step) = step {
                rows.push(joined(&outer, inner, step));
            }
        }
    }
}

/// A row of an item behind what it belongs to; a key that both have begins with the list's name.
fn joined(outer: &Row, list: &str, item: &Object) -> Row {
    let mut own = Row::new();
    item.iter().for_each(|(key, value)| flatten(key, value, &mut own));
    let mut row = outer.clone();
    for (key, cell) in own {
        let key = if row.contains_key(&key) { format!("{list}.{key}") } else { key };
        row.insert(key, cell);
    }
    row
}

/// The columns of what a result is of: of an object its name, and how many chips.
fn identity(key: &str, value: &Json) -> Vec<(String, String)> {
    let Json::Object(object) = value else {
        let mut row = Row::new();
        flatten(key, value, &mut row);
        return row.into_iter().collect();
    };
    let cell = |name: &str| object.get(name).and_then(scalar);
    let named = [(key.to_owned(), cell("name")), (format!("{key}.chips"), cell("chips"))];
    named.into_iter().filter_map(|(key, cell)| Some((key, cell?))).collect()
}

fn flatten(key: &str, value: &Json, row: &mut Row) {
    match value {
        Json::Object(_) if LEFT_OUT.contains(&key.rsplit('.').next().unwrap_or(key)) => {}
        Json::Object(object) => object.iter().for_each(|(inner, value)| flatten(&format!("{key}.{inner}"), value, row)),
        _ => {
            if let Some(cell) = scalar(value) {
                row.insert(key.to_owned(), cell);
            }
        }
    }
}

/// A cell; nothing of lists and objects.
fn scalar(value: &Json) -> Option<String> {
    match value {
        Json::Null => Some(String::new()),
        Json::Bool(is_true) => Some(is_true.to_string()),
        Json::Number(number) => Some(number.to_string()),
        Json::Text(text) => Some(text.clone()),
        Json::List(_) | Json::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_two_chips_are_rows() {
        let json = r#"{"schema": 1, "arch": {"name": "A", "pcus": 4}, "workload": {"name": "w"}, "speedup": 2,
            "runs": [{"mode": "kbk", "time_s": 0.5, "traffic": {"read": 3, "by_tensor": {"x": {"read": 3}}}, "notes": ["n"]}],
            "against": {"arch": {"name": "B"}, "runs": [{"mode": "kbk", "time_s": null, "extra": "=1+1"}]}}"#;
        insta::assert_snapshot!(result_csv(json).unwrap(), @r"
        arch,workload,mode,time_s,traffic.read,extra
        A,w,kbk,0.5,3,
        B,w,kbk,,,'=1+1
        ");
    }

    #[test]
    fn steps_stand_behind_their_modes() {
        let json = r#"{"arch": "A", "modes": [{"mode": "fused", "time_s": 2, "derivatives": [{"resource": "ag", "time_s": 1}]}]}"#;
        insta::assert_snapshot!(result_csv(json).unwrap(), @r"
        arch,modes.mode,modes.time_s,resource,time_s
        A,fused,2,ag,1
        ");
    }

    #[test]
    fn a_result_without_a_list_is_one_row() {
        let json = r#"{"schema": 1, "system": {"name": "S", "chips": 8}, "step_s": 0.5, "notes": []}"#;
        insta::assert_snapshot!(result_csv(json).unwrap(), @r"
        schema,system.name,system.chips,step_s
        1,S,8,0.5
        ");
        assert!(result_csv("[1]").is_err());
    }
}
