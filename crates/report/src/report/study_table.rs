//! The points of a study as a table for the terminal: a row a point, cells in the units that columns are named by.

use std::fmt::Write as _;

use super::chart::{name_in_words, value_label};
use super::human::{percent, ratio, shorten};
use super::text_table::{align_left, new_table};

/// Columns of a word, such as what bounds a run.
const WORD: usize = 24;

/// Rows of a study under the names of its columns. Columns without a value are left out, and so is the status where all points ran;
/// of more than `most` rows an even choice is shown, with the first and the last.
pub fn study_table(columns: &[String], rows: &[Vec<String>], most: usize) -> String {
    let at = |name: &str| columns.iter().position(|other| other == name);
    // What the gaps allow stands behind the speed-up that it is of.
    let is_end =
        |name: &str| ["_least", "_most"].iter().any(|end| name.strip_suffix(end).is_some_and(|of| at(of).is_some()));
    let is_told = |column: &usize| {
        if is_end(&columns[*column]) {
            return false;
        }
        let mut cells = rows.iter().map(|row| row[*column].as_str());
        if columns[*column] == "status" { cells.any(|cell| cell != "ok") } else { cells.any(|cell| !cell.is_empty()) }
    };
    let shown: Vec<usize> = (0..columns.len()).filter(is_told).collect();
    let mut table = new_table(shown.iter().map(|&column| name_in_words(&columns[column])).collect());
    for (at, &column) in shown.iter().enumerate() {
        if rows.iter().all(|row| row[column].parse::<f64>().is_err()) {
            align_left(&mut table, at);
        }
    }
    let least = |count: usize, part: usize| if count > 1 { part * (rows.len() - 1) / (count - 1) } else { 0 };
    let count = rows.len().min(most.max(2));
    for row in (0..count).map(|part| &rows[least(count, part)]) {
        let told = |&column: &usize| {
            let name = &columns[column];
            let end = |end: &str| at(&format!("{name}{end}")).and_then(|at| row[at].parse::<f64>().ok());
            let allowed = end("_least")
                .zip(end("_most"))
                .map_or_else(String::new, |(least, most)| format!(" ({least:.2} to {most:.2})"));
            cell(&row[column], name) + &allowed
        };
        table.add_row(shown.iter().map(told).collect::<Vec<String>>());
    }
    let mut text = table.trim_fmt();
    if count < rows.len() {
        // Writing to a string does not fail.
        let _ = write!(text, "\n{count} of {} points, evenly chosen; --full prints all", rows.len());
    }
    text
}

/// A cell in the unit of its column.
fn cell(cell: &str, column: &str) -> String {
    match cell.parse::<f64>() {
        Ok(number) if column.starts_with("speedup") || column.ends_with("ratio") => ratio(number, 1.0),
        Ok(number) if column.strip_suffix(".gap").is_some() || column.ends_with("utilization") => percent(number),
        Ok(number) => value_label(number, column),
        Err(_) if cell.is_empty() => "-".to_owned(),
        Err(_) => shorten(cell, WORD),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_without_values_are_left_out() {
        let names = [
            "arch.pmu.capacity_bytes",
            "fused.time_s",
            "fused.gap",
            "speedup",
            "speedup_least",
            "speedup_most",
            "status",
        ];
        let columns = names.map(str::to_owned);
        let row = |bytes: u64, time: &str| {
            [&bytes.to_string(), time, "", "1.5", "1.25", "2", "ok"].map(str::to_owned).to_vec()
        };
        let rows: Vec<Vec<String>> = (0..40).map(|at| row(65_536 << (at % 4), "0.002")).collect();
        let text = study_table(&columns, &rows, 4);
        assert!(
            text.contains("PMU capacity") && text.contains("64 KiB") && text.contains("1.50x (1.25 to 2.00)"),
            "{text}"
        );
        assert!(!text.contains("gap") && !text.contains("status"), "{text}");
        assert!(text.ends_with("4 of 40 points, evenly chosen; --full prints all"), "{text}");
        assert_eq!(study_table(&columns, &rows, 100).lines().count(), 42);
        assert!(study_table(&columns, &[], 4).is_empty());
    }
}
