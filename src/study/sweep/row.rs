//! The row of a study's table that a point makes.

use crate::report::guarded_cell;

use super::study::Study;

/// All cells of a point: values of the axes, then metrics.
pub(super) fn row_of(study: &Study, index: usize, metrics: &[String]) -> Vec<String> {
    let point = study.points.get(index);
    let axes = study.axes.iter().zip(&point);
    let values = axes.flat_map(|(axis, value)| axis.paths.iter().map(|_| value.cell.clone()));
    values.chain(metrics.iter().cloned()).collect()
}

/// Rows as lines of CSV; no cell is a formula to a spreadsheet.
pub(super) fn csv_lines(rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let written = rows
        .into_iter()
        .try_for_each(|row| writer.write_record(row.iter().map(|cell| guarded_cell(cell).into_owned())));
    let bytes = written.ok().and_then(|()| writer.into_inner().ok()).expect("a vector takes every byte");
    String::from_utf8(bytes).expect("cells are text")
}
