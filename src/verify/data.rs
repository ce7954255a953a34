//! Random numbers for inputs and weights, the same for the configuration and for the reference.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::index::Id;
use crate::units::Dtype;
use crate::workload::{OperatorKind, TensorId, TensorRole, Workload};

use super::matrix::Matrix;
use super::number::round;

/// A matrix for every input and weight, `None` for what operators produce. Activations are uniform in -1..1; second
/// operands of a GEMM are scaled by sqrt(3 / K), so that results keep the size of activations; `int8` is uniform over
/// its range. What a mask drops is zero.
pub(super) fn inputs(workload: &Workload, seed: u64) -> Vec<Option<Matrix>> {
    workload.tensors.ids().map(|id| input(workload, id, seed)).collect()
}

fn input(workload: &Workload, id: TensorId, seed: u64) -> Option<Matrix> {
    let tensor = &workload.tensors[id];
    if !matches!(tensor.role, TensorRole::Input | TensorRole::Weight) {
        return None;
    }
    // The streams of one generator for one seed are told apart by their first number.
    let mut rng = Pcg64Mcg::seed_from_u64(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(id.index() as u64));
    let is_second = |op: &crate::workload::Operator| op.kind == OperatorKind::Gemm && op.inputs[1] == id;
    let second = workload.operators.iter().any(is_second);
    let scale = if second { (3.0 / tensor.rows as f64).sqrt() } else { 1.0 };
    let mut matrix = Matrix::filled(tensor.rows as usize, tensor.columns as usize, 0.0);
    for row in 0..matrix.rows {
        for column in 0..matrix.columns {
            let value = match tensor.dtype {
                Dtype::Int8 => f64::from(rng.random_range(-127i32..=127)),
                dtype => {
                    let whole = rng.random_range(-(1i32 << 23)..=1 << 23);
                    round(dtype, (f64::from(whole) / f64::from(1 << 23) * scale) as f32)
                }
            };
            let (k, n) = (row as u64, column as u64);
            let kept = tensor.mask.as_ref().is_none_or(|m| m.is_kept(k / m.block_rows(), n / m.block_columns()));
            matrix.row_mut(row)[column] = if kept { value } else { 0.0 };
        }
    }
    Some(matrix)
}
