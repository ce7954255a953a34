//! Bytes of the slots of off-chip streams and resident buffers.

use rdusim_base::units::saturating_u64;
use std::ops::Range;

use rdusim_graph::workload::Tensor;
use rdusim_program::{Iteration, SectionGraph, Tiling};

/// Bytes of the slot of an off-chip stream or resident buffer at a step.
pub fn slot_bytes(
    graph: &SectionGraph<'_>,
    tiling: Tiling,
    tensor: rdusim_graph::workload::TensorId,
    at: Iteration,
) -> u64 {
    let t = &graph.workload.tensors[tensor];
    if let Some((rows, columns)) = reduced_extent(graph, tiling, tensor, at) {
        return (rows.end - rows.start) * (columns.end - columns.start) * t.dtype.bytes();
    }
    let columns = graph.columns_in(tiling.tiled_axis, tensor, at.column_tile);
    let columns = columns.end - columns.start;
    let first_row = at.row_tile * tiling.tile_rows;
    let elements = t.elements_of(first_row..first_row + tiling.rows_of(at.row_tile), columns);
    match &t.mask {
        // A sparse weight that is converted, or a gradient of one: its part of what is stored.
        Some(_) => {
            let all = u128::from(t.rows) * u128::from(t.columns);
            saturating_u64((u128::from(elements) * u128::from(t.stored_bytes())).div_ceil(all))
        }
        None => elements * t.dtype.bytes(),
    }
}

/// Elements of an image that a row tile of its windows has beyond a whole number of them, as a fraction: numerator and
/// denominator.
fn left_over(tensor: &Tensor, tile_rows: u64) -> (u128, u128) {
    let (elements, rows) = (tensor.window().map_or(0, |window| window.elements), u128::from(tensor.rows.max(1)));
    (u128::from(elements) * u128::from(tile_rows) % rows, rows)
}

/// Of so many full row tiles of a tensor, those whose share of the image is larger than that of the first, by one element, and
/// the first of them; `None` if all are equal.
pub(super) fn larger_shares(tensor: &Tensor, tile_rows: u64, row_tiles: u64) -> Option<(u64, u64)> {
    let (over, rows) = left_over(tensor, tile_rows);
    let larger = saturating_u64(over * u128::from(row_tiles) / rows);
    (larger > 0).then(|| (larger, saturating_u64(rows.div_ceil(over) - 1)))
}

/// Row tiles after which the slots of a tensor repeat: those of windows whose shares of the image are no whole elements differ.
pub fn different_slots(tensor: &Tensor, tile_rows: u64) -> u64 {
    let (over, rows) = left_over(tensor, tile_rows);
    let (mut divisor, mut rest) = (rows, over);
    while rest > 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    saturating_u64(rows / divisor)
}

/// Rows and columns of a slot of the result of a stage that adds up over rows, or of what the step in its tail reads; `None` of
/// any other tensor.
pub fn reduced_extent(
    graph: &SectionGraph<'_>,
    tiling: Tiling,
    tensor: rdusim_graph::workload::TensorId,
    at: Iteration,
) -> Option<(Range<u64>, Range<u64>)> {
    let (stage, (of, word)) = graph.summed(tensor)?;
    let sums = graph.main_output(stage);
    let t = &graph.workload.tensors[sums];
    let cut = |axis: Option<usize>| tiling.tiled_axis.is_some_and(|c| axis == Some(c.axis));
    let (mut rows, mut columns) = (0..t.rows, 0..t.columns);
    if let Some(form) = graph.form(stage).filter(|form| form.instances > 1) {
        rows = at.block * form.m..(at.block + 1) * form.m;
    }
    if let Some(range) = tiling.column_range(at.column_tile) {
        if cut(graph.row_axis(sums)) {
            rows = range;
        } else if cut(graph.column_axis(sums)) {
            columns = range;
        }
    }
    Some((rows, columns.start * of / word..columns.end * of / word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdusim_graph::workload;

    /// 11 x 13 places on each of two images of 25 x 29 pixels, of which 24 x 27 are under one: 4 and a half pixels a place.
    #[test]
    fn row_tiles_of_windows_share_out_the_image() {
        let text = "schema = 1\nname = \"w\"\n[[tensors]]\nname = \"x\"\nshape = [1450, 5]\nrole = \"input\"\n\
            [[operators]]\nname = \"pool\"\nkind = \"max_pool\"\ninputs = [\"x\"]\noutput = \"y\"\nimage = [25, 29]\n\
            kernel = [4, 3]\nstride = [2, 2]\n";
        let workload = workload::parse("w", text, &[], 0).expect("a pooling");
        let windows = workload.tensors.iter().find(|tensor| tensor.window().is_some()).expect("windows");
        for tile_rows in [1, 3, 8, 13, 40, 143, 286] {
            let full = windows.rows / tile_rows;
            let share = |tile: u64| windows.elements_of(tile * tile_rows..(tile + 1) * tile_rows, windows.columns);
            let larger: Vec<u64> = (0..full).filter(|&tile| share(tile) > share(0)).collect();
            let found = larger_shares(windows, tile_rows, full);
            assert_eq!(found, larger.first().map(|&first| (larger.len() as u64, first)), "{tile_rows}");
            let period = different_slots(windows, tile_rows);
            assert!((period..full).all(|tile| share(tile) == share(tile - period)), "{tile_rows}");
            assert!(period == 1 || found.is_some() || full < period, "{tile_rows}");
        }
    }
}
