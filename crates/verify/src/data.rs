//! Random numbers for inputs and weights, the same for the configuration and for the reference.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use rdusim_base::index::Id;
use rdusim_base::interrupt;
use rdusim_base::units::Dtype;
use rdusim_graph::workload::{OperatorKind, Packed, TensorId, TensorRole, Workload};

use super::matrix::{Kept, Matrix};
use super::number::round;

/// A matrix for every input and weight, `None` for what operators produce. Activations are uniform in -1..1; second
/// operands of a GEMM are scaled by sqrt(3 / K), so that results keep the size of activations; `int8` is uniform over
/// its range. What a mask drops is zero.
pub(super) fn inputs(workload: &Workload, seed: u64) -> Vec<Option<Matrix>> {
    workload.tensors.ids().map(|id| input(workload, id, seed)).collect()
}

fn input(workload: &Workload, id: TensorId, seed: u64) -> Option<Matrix> {
    let tensor = &workload.tensors[id];
    // A view has no numbers of its own.
    if !matches!(tensor.role, TensorRole::Input | TensorRole::Weight) || tensor.view.is_some() {
        return None;
    }
    // The streams of one generator for one seed are told apart by their first number.
    let mut rng = Pcg64Mcg::seed_from_u64(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(id.index() as u64));
    let (rows, columns) = (tensor.rows as usize, tensor.columns as usize);
    let indexed = workload.operators.iter().filter(|op| op.indices == Some(id));
    if let Some(most) = indexed.map(|op| indexable(workload, op)).min() {
        let values = (0..rows * columns).map(|_| rng.random_range(0..most) as f64).collect();
        return Some(Matrix { rows, columns, values });
    }
    let is_second =
        |op: &&rdusim_graph::workload::Operator| op.kind == OperatorKind::Gemm && workload.base(op.inputs[1]) == id;
    let second = workload.operators.iter().find(is_second).map(|op| (op, op.form));
    let depth = |(op, form): (&rdusim_graph::workload::Operator, Option<rdusim_graph::workload::GemmForm>)| {
        form.map_or(workload.tensors[op.inputs[1]].rows, |form| form.k)
    };
    let scale = second.map_or(1.0, |second| (3.0 / depth(second) as f64).sqrt());
    // Second moments are no negative numbers.
    let is_state = |op: &rdusim_graph::workload::Operator| op.kind == OperatorKind::AdamUpdate && op.inputs[1] == id;
    let positive = workload.operators.iter().any(is_state);
    let kept = Kept::new(tensor.mask.as_deref());
    let mut matrix = Matrix::filled(rows, columns, 0.0);
    for row in 0..matrix.rows {
        interrupt::check();
        for column in 0..matrix.columns {
            let value = match tensor.dtype {
                Dtype::Int8 => f64::from(rng.random_range(-127i32..=127)),
                dtype => {
                    let whole = rng.random_range(-(1i32 << 23)..=1 << 23);
                    round(dtype, (f64::from(whole) / f64::from(1 << 23) * scale) as f32)
                }
            };
            let value = if positive { value.abs() } else { value };
            matrix.row_mut(row)[column] = if kept.at(row as u64, column as u64) { value } else { 0.0 };
        }
    }
    if let Some(packed) = &tensor.packed {
        expand(&mut matrix, packed, tensor.dtype);
    }
    Some(matrix)
}

/// What elements are after they were stored in a format and expanded again: both the configuration and the reference compute with
/// that.
fn expand(matrix: &mut Matrix, packed: &Packed, dtype: Dtype) {
    let size = |count: u64, all: usize| usize::try_from(count).unwrap_or(all).clamp(1, all.max(1));
    let (part_rows, columns) = (size(packed.part_rows, matrix.rows), matrix.columns.max(1));
    for first_row in (0..matrix.rows).step_by(part_rows) {
        let rows = part_rows.min(matrix.rows - first_row);
        let (along, others) = if packed.depth_is_rows { (rows, matrix.columns) } else { (matrix.columns, rows) };
        let place = |k: usize, other: usize| {
            if packed.depth_is_rows { (first_row + k, other) } else { (first_row + other, k) }
        };
        let (depth, all) = (size(packed.depth, along), rows * matrix.columns);
        // A scale for all of the part, or for each group of the depth of each head and column.
        let Some(group) = packed.group else {
            expand_group(matrix, packed, dtype, &|n| (first_row + n / columns, n % columns), all);
            continue;
        };
        let group = size(group, depth);
        for other in 0..others {
            for head in (0..along).step_by(depth) {
                let end = along.min(head + depth);
                for first in (head..end).step_by(group) {
                    expand_group(matrix, packed, dtype, &|n| place(first + n, other), group.min(end - first));
                }
            }
        }
    }
}

/// The same for `count` elements that share a scale.
fn expand_group(
    matrix: &mut Matrix,
    packed: &Packed,
    dtype: Dtype,
    place: &dyn Fn(usize) -> (usize, usize),
    count: usize,
) {
    let at = |matrix: &Matrix, n: usize| matrix.row(place(n).0)[place(n).1];
    let ends = (f64::INFINITY, f64::NEG_INFINITY);
    let (least, most) = (0..count).map(|n| at(matrix, n)).fold(ends, |(a, b), x| (a.min(x), b.max(x)));
    let grid = packed.grid(least, most);
    for n in 0..count {
        let value = round(dtype, packed.expanded(at(matrix, n), grid) as f32);
        matrix.row_mut(place(n).0)[place(n).1] = value;
    }
}

/// What an operator's indices or labels stay below: rows of the table, columns of the logits.
fn indexable(workload: &Workload, operator: &rdusim_graph::workload::Operator) -> u64 {
    match operator.kind {
        OperatorKind::Embedding => workload.tensors[workload.base(operator.inputs[0])].rows,
        OperatorKind::EmbeddingGrad => u64::MAX,
        _ => workload.tensors[operator.inputs[0]].columns,
    }
}
