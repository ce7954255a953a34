//! Weights as they lie off chip and in PMUs: stored values in the order they are read, and the index that finds them.

use std::ops::Range;

use rdusim_graph::workload::{GemmForm, Operator, Tensor};
use rdusim_program::{GemmMapping, HeadsTile, OutputTile};

use super::address::of_second;
use super::matrix::{Kept, Matrix};

/// The columns of one PCU under one tile of its lockstep group, and the K rows it steps through.
#[derive(Debug, Clone)]
pub(super) struct TileIndex {
    /// Weight columns.
    pub(super) columns: Range<u64>,
    /// K rows that the lockstep group executes, counted from the column tile's first.
    pub(super) steps: Vec<u32>,
    /// Weight elements of this PCU that are stored, of all its columns in all steps, in reading order.
    pub(super) stored: Vec<bool>,
    /// Where its values begin in the slot: heads that share keys share values.
    pub(super) first_value: usize,
    /// Where its K rows begin among the columns of activations that the PCU is given.
    pub(super) first_activation: u64,
    /// Column of its product, of a stage with heads, that its first column is.
    pub(super) first_in_head: u64,
}

/// The index of one PCU column of a stage for one column tile: what of the slot belongs where.
#[derive(Debug, Clone, Default)]
pub(super) struct SlotIndex {
    pub(super) tiles: Vec<TileIndex>,
    /// Stored values in the slot.
    pub(super) values: usize,
}

impl SlotIndex {
    /// Columns of the PCU under all tiles.
    pub(super) fn columns(&self) -> u64 {
        self.tiles.iter().map(|t| t.columns.end - t.columns.start).sum()
    }
}

/// The index of PCU column `q` of `share` in a lockstep group that does `tiles` with the K rows `k`.
pub(super) fn index(
    tensor: &Tensor,
    stored_of: &Kept,
    tiles: &[OutputTile],
    k: Range<u64>,
    q: u64,
    share: u64,
) -> SlotIndex {
    let mut slot = SlotIndex::default();
    for tile in tiles {
        let end = (tile.start + tile.columns).min(tensor.columns);
        let whole = tile.start..end;
        let columns = tile.columns_of(q, share);
        let columns = columns.start.min(end)..columns.end.min(end);
        let mut steps = Vec::new();
        let mut stored = Vec::new();
        for row in k.clone() {
            let kept = |n: u64| stored_of.at(row, n);
            if whole.clone().any(kept) {
                steps.push((row - k.start) as u32);
                stored.extend(columns.clone().map(kept));
            }
        }
        let first_value = slot.values;
        slot.values += stored.iter().filter(|&&stored| stored).count();
        let first_in_head = columns.start;
        slot.tiles.push(TileIndex { columns, steps, stored, first_value, first_activation: 0, first_in_head });
    }
    slot
}

/// The index of PCU column `q` of a stage with heads: its stream's heads one after the other, each in tiles of `grain`
/// columns times the stream's columns of PCUs. What heads share of the second operand is in the slot once.
pub(super) fn index_of_heads(of: &HeadsTile, mapping: &GemmMapping, grain: u64, q: u64) -> SlotIndex {
    let form = &of.form;
    let each = mapping.pn / mapping.streams;
    let heads = form.heads_of_stream(mapping.streams, q / each);
    let shared = form.heads / form.b_heads;
    let mut slot = SlotIndex::default();
    for head in heads.clone() {
        for start in (0..form.n).step_by((grain * each) as usize) {
            let end = form.n.min(start + grain * each);
            let columns = OutputTile { start, columns: end - start }.columns_of(q % each, each);
            let count = (columns.end - columns.start) * form.k;
            // The first head of a group brings the values.
            let before = slot.tiles.iter().find(|t| {
                let first = (head - heads.start) / shared * shared * of.depth();
                t.first_activation == first && t.first_in_head == columns.start && !head.is_multiple_of(shared)
            });
            let first_value = before.map_or(slot.values, |tile| tile.first_value);
            if before.is_none() {
                slot.values += count as usize;
            }
            slot.tiles.push(TileIndex {
                columns: head * form.n + columns.start..head * form.n + columns.end,
                steps: (0..form.k as u32).collect(),
                stored: vec![true; count as usize],
                first_value,
                first_activation: (head - heads.start) * of.depth(),
                first_in_head: columns.start,
            });
        }
    }
    slot
}

/// An element of a slot of a second operand that a stage of the section makes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Element {
    /// Row of the row tile.
    pub(super) row: u64,
    /// Column of the tensor.
    pub(super) column: u64,
    /// Its place among the values that the column of PCUs works on.
    pub(super) place: usize,
}

/// The elements in rows `rows` of a second operand of `all_rows` rows that a column of PCUs works on, in the order of its index.
pub(super) fn elements(
    operator: &Operator,
    form: &GemmForm,
    index: &SlotIndex,
    rows: &Range<u64>,
    all_rows: u64,
) -> Vec<Element> {
    let sequence = if form.instances > 1 { rows.start / (all_rows / form.instances) } else { 0 };
    let (mut elements, mut place) = (Vec::new(), 0);
    for tile in &index.tiles {
        // Heads of a group share what the first of them brings.
        if tile.first_value < place {
            continue;
        }
        let head = tile.columns.start / form.n;
        for depth in 0..form.k {
            for column in 0..tile.columns.end - tile.columns.start {
                let at = [sequence, head, depth, tile.first_in_head + column];
                let (row, column) = of_second(operator, form, all_rows, at);
                if rows.contains(&row) {
                    elements.push(Element { row: row - rows.start, column, place });
                }
                place += 1;
            }
        }
    }
    elements
}

/// The values of a slot of a stage with heads, in the order of its index: of a sequence, from a depth and a column of each
/// product on. `tile` is the part of the product `form` that a column tile has.
pub(super) fn pack_heads(
    operator: &Operator,
    form: &GemmForm,
    tile: &GemmForm,
    matrix: &Matrix,
    index: &SlotIndex,
    [sequence, first_depth, first_column]: [u64; 3],
) -> Vec<f64> {
    let mut values = Vec::with_capacity(index.values);
    for of in &index.tiles {
        if of.first_value < values.len() {
            continue;
        }
        let head = of.columns.start / tile.n;
        for depth in 0..tile.k {
            for column in 0..of.columns.end - of.columns.start {
                let at = [sequence, head, first_depth + depth, first_column + of.first_in_head + column];
                let (row, column) = of_second(operator, form, matrix.rows as u64, at);
                values.push(matrix.row(row as usize)[column as usize]);
            }
        }
    }
    values
}

/// The stored values of a slot, in the order of its index, from the matrix off chip; `k` is the column tile's first K row.
pub(super) fn pack(matrix: &Matrix, index: &SlotIndex, k: u64) -> Vec<f64> {
    let mut values = Vec::with_capacity(index.values);
    for tile in &index.tiles {
        let mut stored = tile.stored.iter();
        for &step in &tile.steps {
            let row = matrix.row(k as usize + step as usize);
            for column in tile.columns.clone() {
                if stored.next() == Some(&true) {
                    values.push(row[column as usize]);
                }
            }
        }
    }
    values
}
