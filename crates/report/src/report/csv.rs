//! Flat tables for other programs: `sections.csv` and `traffic.csv`.

use std::borrow::Cow;

use serde::Serialize;

use rdusim_outcome::Outcome;

use super::side::Side;
use rdusim_base::diagnostics::printable;

/// A cell of text that a spreadsheet takes for text and shows as it is: what it would run as a formula begins with a quote, and
/// characters that steer how others are shown are escapes. Numbers stay.
pub fn guarded(cell: &str) -> Cow<'_, str> {
    let is_formula = cell.starts_with(['=', '+', '-', '@', '\t', '\r']) && cell.parse::<f64>().is_err();
    let shown = printable(cell);
    if is_formula { Cow::Owned(format!("'{shown}")) } else { shown }
}

/// One row of `sections.csv`.
#[derive(Serialize)]
struct SectionRow<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    chip: Option<Cow<'a, str>>,
    run: &'a str,
    fidelity: &'a str,
    index: usize,
    section: Cow<'a, str>,
    operators: String,
    cycles: u64,
    launch_cycles: u64,
    bound_by: String,
    pcus: u64,
    pmus: u64,
    sram_peak_bytes: u64,
    sram_bank_loss_bytes: u64,
    off_chip_read_bytes: u64,
    off_chip_write_bytes: u64,
    waste_bytes: u64,
    program_bytes: u64,
    network_bytes: u64,
    network_byte_hops: u64,
    sram_read_bytes: u64,
    sram_write_bytes: u64,
    energy_total_j: f64,
    energy_compute_j: f64,
    energy_sram_j: f64,
    energy_network_j: f64,
    energy_off_chip_j: f64,
    energy_static_j: f64,
}

/// One row of `traffic.csv`.
#[derive(Serialize)]
struct TrafficRow<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    chip: Option<Cow<'a, str>>,
    run: &'a str,
    tensor: Cow<'a, str>,
    off_chip_read_bytes: u64,
    off_chip_write_bytes: u64,
}

/// `sections.csv`: one row a run and section, with every number of it. Operators are separated by spaces.
pub fn sections(outcomes: &[Outcome]) -> Result<String, csv::Error> {
    sections_with(&outcomes.iter().map(|outcome| (None, outcome)).collect::<Vec<_>>())
}

/// The same of runs on one chip or several; of several, with a first column `chip`.
pub(super) fn sections_of(sides: &[Side<'_>]) -> Result<String, csv::Error> {
    sections_with(&with_chips(sides))
}

/// Runs with the chips' names, if there are several.
fn with_chips<'a>(sides: &[Side<'a>]) -> Vec<(Option<&'a str>, &'a Outcome)> {
    let several = sides.len() > 1;
    let of_side = |side: &Side<'a>| {
        let Side { chip, outcomes } = *side;
        outcomes.iter().map(move |outcome| (Some(chip.name()).filter(|_| several), outcome))
    };
    sides.iter().flat_map(of_side).collect()
}

fn sections_with(runs: &[(Option<&str>, &Outcome)]) -> Result<String, csv::Error> {
    let rows = runs.iter().flat_map(|&(chip, outcome)| {
        outcome.sections.iter().enumerate().map(move |(index, section)| SectionRow {
            chip: chip.map(guarded),
            run: outcome.mode.name(),
            fidelity: outcome.fidelity.name(),
            index,
            section: guarded(&section.name),
            operators: guarded(&section.operators.join(" ")).into_owned(),
            cycles: section.cycles,
            launch_cycles: section.launch_cycles,
            bound_by: section.bound_by.to_string(),
            pcus: section.pcus,
            pmus: section.pmus,
            sram_peak_bytes: section.sram_peak_bytes,
            sram_bank_loss_bytes: section.sram_bank_loss_bytes,
            off_chip_read_bytes: section.traffic.off_chip_read_bytes,
            off_chip_write_bytes: section.traffic.off_chip_write_bytes,
            waste_bytes: section.traffic.waste_bytes,
            program_bytes: section.traffic.program_bytes,
            network_bytes: section.traffic.network_bytes,
            network_byte_hops: section.traffic.network_byte_hops,
            sram_read_bytes: section.traffic.sram_read_bytes,
            sram_write_bytes: section.traffic.sram_write_bytes,
            energy_total_j: section.energy.total(),
            energy_compute_j: section.energy.compute,
            energy_sram_j: section.energy.sram,
            energy_network_j: section.energy.network,
            energy_off_chip_j: section.energy.off_chip,
            energy_static_j: section.energy.static_,
        })
    });
    // Serde writes the header with the first row; without a row the file is empty.
    to_text(rows)
}

/// `traffic.csv`: off-chip bytes of each run and tensor.
pub fn traffic(outcomes: &[Outcome]) -> Result<String, csv::Error> {
    traffic_with(&outcomes.iter().map(|outcome| (None, outcome)).collect::<Vec<_>>())
}

/// The same of runs on one chip or several; of several, with a first column `chip`.
pub(super) fn traffic_of(sides: &[Side<'_>]) -> Result<String, csv::Error> {
    traffic_with(&with_chips(sides))
}

fn traffic_with(runs: &[(Option<&str>, &Outcome)]) -> Result<String, csv::Error> {
    let totals: Vec<_> = runs.iter().map(|&(chip, outcome)| (chip, outcome.mode.name(), outcome.traffic())).collect();
    to_text(totals.iter().flat_map(|(chip, run, total)| {
        total.by_tensor.iter().map(move |(tensor, bytes)| TrafficRow {
            chip: chip.map(guarded),
            run,
            tensor: guarded(tensor),
            off_chip_read_bytes: bytes.off_chip_read_bytes,
            off_chip_write_bytes: bytes.off_chip_write_bytes,
        })
    }))
}

pub(super) fn to_text<Row: Serialize>(rows: impl Iterator<Item = Row>) -> Result<String, csv::Error> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in rows {
        writer.serialize(row)?;
    }
    let bytes = writer.into_inner().map_err(csv::IntoInnerError::into_error)?;
    Ok(String::from_utf8(bytes).expect("rows are made of strings and numbers"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;

    #[test]
    fn one_row_a_run_and_section() {
        let outcomes = fixture::outcomes();
        let text = sections(&outcomes).unwrap();
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let headers = reader.headers().unwrap().clone();
        let at = |name: &str| headers.iter().position(|header| header == name).unwrap();
        let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
        assert_eq!(rows.len(), 6);
        assert_eq!(&rows[5][at("run")], "fused");
        assert_eq!(&rows[5][at("operators")], "up gelu down");
        assert_eq!(&rows[5][at("bound_by")], "memory:ddr");
        for (row, section) in rows.iter().zip(outcomes.iter().flat_map(|outcome| &outcome.sections)) {
            assert_eq!(row[at("cycles")], section.cycles.to_string());
            assert_eq!(row[at("off_chip_write_bytes")], section.traffic.off_chip_write_bytes.to_string());
            assert_eq!(row[at("energy_total_j")].parse::<f64>().unwrap().to_bits(), section.energy.total().to_bits());
        }
    }

    #[test]
    fn traffic_by_tensor() {
        insta::assert_snapshot!(traffic(&fixture::outcomes()).unwrap(), @r"
        run,tensor,off_chip_read_bytes,off_chip_write_bytes
        kbk,x,20971520,0
        kbk,w_up,209715200,0
        kbk,h,83886080,83886080
        kbk,h_act,83886080,83886080
        kbk,w_down,209715200,0
        kbk,y,0,20971520
        epilogue,x,20971520,0
        epilogue,w_up,209715200,0
        epilogue,h_act,83886080,83886080
        epilogue,w_down,209715200,0
        epilogue,y,0,20971520
        fused,x,20971520,0
        fused,w_up,209715200,0
        fused,w_down,209715200,0
        fused,y,0,20971520
        ");
    }

    #[test]
    fn awkward_names_are_quoted() {
        let section = fixture::section("a,\"b\"", &["x"], 1, rdusim_outcome::BoundBy::Fill, &[("t,\n", 1, 0)]);
        let outcomes = [fixture::outcome(rdusim_base::mode::Mode::Kbk, 1, vec![section])];
        assert!(sections(&outcomes).unwrap().contains("\"a,\"\"b\"\"\""));
        let text = traffic(&outcomes).unwrap();
        let row = csv::Reader::from_reader(text.as_bytes()).into_records().next().unwrap().unwrap();
        assert_eq!(&row[1], "t,\n");
    }

    #[test]
    fn formulas_are_text() {
        assert_eq!(guarded("=1+1"), "'=1+1");
        assert_eq!(guarded("@x"), "'@x");
        for plain in ["-1.5e3", "+2", "w_up", "a=b", ""] {
            assert_eq!(guarded(plain), plain);
        }
        let section = fixture::section("=x", &["-y"], 1, rdusim_outcome::BoundBy::Fill, &[("+t", 1, 0)]);
        let outcomes = [fixture::outcome(rdusim_base::mode::Mode::Kbk, 1, vec![section])];
        assert!(sections(&outcomes).unwrap().contains(",'=x,'-y,"));
        assert!(traffic(&outcomes).unwrap().contains(",'+t,"));
    }
}
