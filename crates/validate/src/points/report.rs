//! The two sets of measured serving points, with their parts.

use std::collections::BTreeMap;

use super::super::run::{RefusedRow, SetPart, SetReport, SetRow};
use super::super::score::Score;
use super::row::{Row, Unread};
use super::simulated::Simulated;
use rdusim_graph::arch::Quality;

/// A set, its quantity, and the figures of a row.
struct Kind {
    name: &'static str,
    quantity: &'static str,
    published: fn(&Row) -> f64,
    of_unread: fn(&Unread) -> f64,
    simulated: fn(f64, f64) -> f64,
}

const KINDS: [Kind; 2] = [
    Kind {
        name: "serving-tpot",
        quantity: "milliseconds a token behind the first",
        published: |row| row.tpot_ms,
        of_unread: |row| row.tpot_ms,
        simulated: |_, token_s| token_s * 1e3,
    },
    Kind {
        name: "serving-ttft",
        quantity: "milliseconds to the first token",
        published: |row| row.ttft_ms,
        of_unread: |row| row.ttft_ms,
        simulated: |ttft_s, _| ttft_s * 1e3,
    },
];

/// Names of what rows are told apart by, and a row's words for it.
type Split = (&'static str, fn(&Row) -> String);

const SPLITS: [Split; 5] = [
    ("system", |row| row.system.clone()),
    ("model", |row| row.model.clone()),
    ("engine", |row| row.engine.clone()),
    ("precision", |row| row.precision.clone()),
    ("system and precision", |row| format!("{} {}", row.system, row.precision)),
];

/// Both sets, a row a point in the order of the files; rows that cannot be simulated have a reason.
pub(super) fn sets(rows: &[Result<Row, Unread>], found: &[Option<Simulated>], source: &str) -> Vec<SetReport> {
    KINDS.iter().map(|kind| set(kind, rows, found, source)).collect()
}

fn set(kind: &Kind, rows: &[Result<Row, Unread>], found: &[Option<Simulated>], source: &str) -> SetReport {
    let (mut list, mut told, mut refused) = (Vec::new(), Vec::new(), Vec::new());
    for (row, found) in rows.iter().zip(found) {
        let row = match row {
            Ok(row) => row,
            Err(row) => {
                let (label, reason) = (row.label.clone(), row.reason.clone());
                refused.push(RefusedRow { label, published: (kind.of_unread)(row), reason });
                continue;
            }
        };
        let published = (kind.published)(row);
        match found {
            Some(Simulated::Times { ttft_s, token_s }) => {
                list.push(SetRow {
                    label: row.label.clone(),
                    at: published,
                    published,
                    simulated: (kind.simulated)(*ttft_s, *token_s),
                    ideal: None,
                    serial: None,
                    outlier: false,
                });
                told.push(row);
            }
            Some(Simulated::Refused(reason)) => {
                refused.push(RefusedRow { label: row.label.clone(), published, reason: reason.clone() });
            }
            None => {}
        }
    }
    let mut parts = Vec::new();
    let halves = [("first half by hash", false), ("second half by hash", true)];
    for (name, is_second) in halves {
        parts.extend(SetPart::new(name, &list, |at, _| told[at].is_in_second_half == is_second));
    }
    for (split, word) in SPLITS {
        let mut words: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (at, row) in told.iter().enumerate() {
            words.entry(word(row)).or_default().push(at);
        }
        for (name, places) in words {
            let is_there = |at: usize, _: &SetRow| places.binary_search(&at).is_ok();
            parts.extend(SetPart::new(&format!("{split} {name}"), &list, is_there));
        }
    }
    let column = |value: fn(&SetRow) -> f64| list.iter().map(value).collect::<Vec<f64>>();
    let mut systems: Vec<&str> = rows.iter().flatten().map(|row| row.system.as_str()).collect();
    systems.sort_unstable();
    systems.dedup();
    SetReport {
        name: kind.name.to_owned(),
        chip: systems.join(", "),
        quality: Quality::Ideal,
        point: "serving point".to_owned(),
        quantity: kind.quantity.to_owned(),
        source: source.to_owned(),
        plotted: false,
        score: Score::new(&column(|row| row.published), &column(|row| row.simulated)),
        ideal_score: None,
        rows: list,
        refused,
        parts,
    }
}
