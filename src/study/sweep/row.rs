//! The row of a study's table that a point makes.

use super::study::Study;

/// All cells of a point: values of the axes, then metrics.
pub(super) fn row_of(study: &Study, index: usize, metrics: &[String]) -> Vec<String> {
    let axes = study.axes.iter().zip(&study.points[index]);
    let values = axes.flat_map(|(axis, value)| axis.paths.iter().map(|_| value.cell.clone()));
    values.chain(metrics.iter().cloned()).collect()
}
