//! The sheet of least off-chip traffic against SRAM.

use serde::Deserialize;

use super::super::human::{self, percent};
use super::sheet::{BarRow, Bars, Figure, Sheet, SheetTable, parsed};

#[derive(Deserialize)]
struct Found {
    schema: u32,
    arch: String,
    workload: String,
    sram_bytes: u64,
    modes: Vec<OfMode>,
    points: Vec<OfSram>,
    #[serde(default)]
    notes: Vec<String>,
}

#[derive(Deserialize)]
struct OfMode {
    mode: String,
    found_bytes: u64,
    least_bytes: Option<u64>,
    gap: Option<f64>,
    enough_sram_bytes: Option<u64>,
}

#[derive(Deserialize)]
struct OfSram {
    sram_bytes: u64,
    least_bytes: Vec<Option<u64>>,
}

fn bytes(of: Option<u64>) -> String {
    of.map_or_else(|| "-".to_owned(), human::bytes)
}

/// The sheet: the last mode's mapping against its floor, and the floors of all modes by SRAM.
pub(super) fn traffic_curve(text: &str) -> Result<Sheet, String> {
    let of: Found = parsed(text)?;
    if of.schema != 1 {
        return Err(format!("schema {}, this version reads 1", of.schema));
    }
    let Some(last) = of.modes.last() else { return Err("no modes, expected at least one".to_owned()) };
    let verdict = match (last.least_bytes, last.gap) {
        (Some(least), Some(gap)) => format!(
            "off chip by the mapping found for {}: {} above what none moves less of, {}",
            last.mode,
            percent(gap),
            bytes(Some(least))
        ),
        _ => format!("off chip by the mapping found for {}", last.mode),
    };
    let mut found =
        SheetTable::new("Traffic on the chip as it is", &["mode", "found", "at least", "gap", "enough SRAM"], &[]);
    let mut figures = Vec::new();
    for mode in &of.modes {
        found.rows.push(vec![
            mode.mode.clone(),
            bytes(Some(mode.found_bytes)),
            bytes(mode.least_bytes),
            mode.gap.map_or_else(|| "-".to_owned(), percent),
            bytes(mode.enough_sram_bytes),
        ]);
        let name = |what: &str| format!("{}, {what}", mode.mode);
        figures.push(Figure::low(&name("off-chip traffic found"), "B", mode.found_bytes as f64));
        figures.push(Figure::plain(&name("least off-chip traffic"), "B", mode.least_bytes.map(|bytes| bytes as f64)));
    }
    let bar = |mode: &OfMode| {
        let least = mode.least_bytes.unwrap_or(0).min(mode.found_bytes);
        BarRow { name: mode.mode.clone(), values: vec![least as f64, (mode.found_bytes - least) as f64] }
    };
    let bars = Bars {
        title: "Off-chip traffic found, over what no mapping moves less of".to_owned(),
        unit: "B",
        pieces: vec!["at least".to_owned(), "above it".to_owned()],
        rows: of.modes.iter().map(bar).collect(),
    };
    let mut head = vec!["SRAM"];
    head.extend(of.modes.iter().map(|mode| mode.mode.as_str()));
    let mut floors = SheetTable::new("Least off-chip traffic by SRAM", &head, &[]);
    for point in &of.points {
        let mut row = vec![bytes(Some(point.sram_bytes))];
        row.extend(point.least_bytes.iter().map(|&of| bytes(of)));
        floors.rows.push(row);
    }
    Ok(Sheet {
        kind: "traffic-curve",
        title: format!("Off-chip traffic against SRAM: {} on {}", of.workload, of.arch),
        headline: bytes(Some(last.found_bytes)),
        verdict,
        lines: vec![format!("{} of SRAM.", bytes(Some(of.sram_bytes)))],
        figures,
        bars: vec![bars],
        tables: vec![found, floors],
        remarks: of.notes,
        ..Sheet::default()
    })
}
