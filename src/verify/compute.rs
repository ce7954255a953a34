//! What a PCU does with the operands that reached it.

use crate::compile::StageSpec;
use crate::units::Dtype;
use crate::workload::{OperatorKind, Workload};

use super::functions::{along_row, binary, unary};
use super::matrix::Matrix;
use super::number::{exp2, requantisation_shift, round, round_int8};
use super::weights::SlotIndex;

/// Sums of the output tiles of one PCU of a GEMM stage: tile after tile, each rows x columns. They start from `partials`
/// and take the products in the order of the K steps, each product and sum rounded to fp32 (`int8`: 32-bit integers).
pub(super) fn gemm(
    dtype: Dtype,
    activations: &Matrix,
    index: &SlotIndex,
    weights: &[f64],
    partials: Option<&[f64]>,
) -> Vec<f64> {
    let rows = activations.rows;
    let mut sums = Vec::with_capacity(rows * index.columns() as usize);
    let mut next = weights.iter();
    for tile in &index.tiles {
        let columns = (tile.columns.end - tile.columns.start) as usize;
        // What the index leaves out is zero.
        let expanded: Vec<f64> =
            tile.stored.iter().map(|&stored| if stored { next.next().copied().unwrap_or(0.0) } else { 0.0 }).collect();
        let start = |at: usize| partials.map_or(0.0, |p| p[at]);
        if dtype == Dtype::Int8 {
            let narrow: Vec<i32> = expanded.iter().map(|&w| w as i32).collect();
            for row in 0..rows {
                let from = sums.len();
                let mut acc: Vec<i32> = (0..columns).map(|c| start(from + c) as i32).collect();
                for (&step, line) in tile.steps.iter().zip(narrow.chunks_exact(columns.max(1))) {
                    let x = activations.row(row)[step as usize] as i32;
                    acc.iter_mut().zip(line).for_each(|(sum, w)| *sum = sum.wrapping_add(x.wrapping_mul(*w)));
                }
                sums.extend(acc.into_iter().map(f64::from));
            }
        } else {
            let narrow: Vec<f32> = expanded.iter().map(|&w| w as f32).collect();
            for row in 0..rows {
                let from = sums.len();
                let mut acc: Vec<f32> = (0..columns).map(|c| start(from + c) as f32).collect();
                for (&step, line) in tile.steps.iter().zip(narrow.chunks_exact(columns.max(1))) {
                    let x = activations.row(row)[step as usize] as f32;
                    acc.iter_mut().zip(line).for_each(|(sum, w)| *sum += x * w);
                }
                sums.extend(acc.into_iter().map(f64::from));
            }
        }
    }
    sums
}

/// The results of a GEMM stage from its sums: the tail's functions in fp32, then the output's data type.
pub(super) fn finish(workload: &Workload, spec: &StageSpec, sums: &[f64]) -> Vec<f64> {
    let main = &workload.operators[spec.main];
    let first = &workload.tensors[main.inputs[0]];
    let out = workload.tensors[spec.output].dtype;
    let whole = first.dtype == Dtype::Int8 && workload.tensors[main.output].dtype == Dtype::Int8;
    let scale = if whole { exp2(-requantisation_shift(first.columns)) } else { 1.0 };
    sums.iter()
        .map(|sum| {
            let sum = sum * scale;
            if spec.tail.is_empty() && out == Dtype::Int8 {
                return round_int8(sum);
            }
            let through = |x, &op: &_| unary(workload.operators[op].kind, x);
            round(out, spec.tail.iter().fold(sum as f32, through))
        })
        .collect()
}

/// The results of a SIMD stage's pipeline from its operands, in the order of `spec.activations`.
pub(super) fn simd(workload: &Workload, spec: &StageSpec, operands: &[Matrix]) -> Matrix {
    let operator = &workload.operators[spec.main];
    let out = workload.tensors[spec.output].dtype;
    let operand = |n: usize| {
        let at = spec.activations.iter().position(|&t| t == operator.inputs[n]).unwrap_or(0);
        &operands[at]
    };
    let mut result = operand(0).clone();
    match operator.kind {
        OperatorKind::Add | OperatorKind::Mul => {
            let kind = operator.kind;
            for (x, y) in result.values.iter_mut().zip(&operand(1).values) {
                *x = round(out, binary(kind, *x as f32, *y as f32));
            }
        }
        kind if kind.is_row_wise() => {
            for row in 0..result.rows {
                let mut line: Vec<f32> = result.row(row).iter().map(|&x| x as f32).collect();
                along_row(kind, &mut line);
                result.row_mut(row).iter_mut().zip(line).for_each(|(x, y)| *x = round(out, y));
            }
        }
        kind => result.values.iter_mut().for_each(|x| *x = round(out, unary(kind, *x as f32))),
    }
    result
}
