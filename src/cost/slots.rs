//! Bytes of the slots of off-chip streams and resident buffers.

use std::ops::Range;

use crate::program::{SectionGraph, Step, Tiling};

/// Bytes of the slot of an off-chip stream or resident buffer at a step.
pub fn slot_bytes(graph: &SectionGraph<'_>, tiling: Tiling, tensor: crate::workload::TensorId, at: Step) -> u64 {
    let t = &graph.workload.tensors[tensor];
    if let Some((rows, columns)) = reduced_extent(graph, tiling, tensor, at) {
        return (rows.end - rows.start) * (columns.end - columns.start) * t.dtype.bytes();
    }
    let columns = match tiling.column_range(at.column_tile) {
        Some(range) if tiling.tiled_axis.is_some_and(|c| graph.column_axis(tensor) == Some(c.axis)) => {
            range.end - range.start
        }
        _ => t.columns,
    };
    let first_row = at.row_tile * tiling.tile_rows;
    let elements = t.elements_of(first_row..first_row + tiling.rows_of(at.row_tile), columns);
    match &t.mask {
        // A sparse weight that is converted, or a gradient of one: its part of what is stored.
        Some(_) => {
            let all = u128::from(t.rows) * u128::from(t.columns);
            (u128::from(elements) * u128::from(t.stored_bytes())).div_ceil(all) as u64
        }
        None => elements * t.dtype.bytes(),
    }
}

/// Rows and columns of a slot of the result of a stage that adds up over rows; `None` of any other tensor.
pub fn reduced_extent(
    graph: &SectionGraph<'_>,
    tiling: Tiling,
    tensor: crate::workload::TensorId,
    at: Step,
) -> Option<(Range<u64>, Range<u64>)> {
    let stage = graph.reducer(tensor)?;
    let t = &graph.workload.tensors[tensor];
    let cut = |axis: Option<usize>| tiling.tiled_axis.is_some_and(|c| axis == Some(c.axis));
    let (mut rows, mut columns) = (0..t.rows, 0..t.columns);
    if let Some(form) = graph.form(stage).filter(|form| form.instances > 1) {
        rows = at.block * form.m..(at.block + 1) * form.m;
    }
    if let Some(range) = tiling.column_range(at.column_tile) {
        if cut(graph.row_axis(tensor)) {
            rows = range;
        } else if cut(graph.column_axis(tensor)) {
            columns = range;
        }
    }
    Some((rows, columns))
}
