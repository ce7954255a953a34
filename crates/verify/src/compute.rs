//! What a PCU does with the operands that reached it.

use rdusim_base::units::Dtype;
use rdusim_graph::workload::{CausalAxis, Operator, OperatorId, OperatorKind, TensorId, Workload};
use rdusim_program::StageSpec;

use super::functions::{along_row, binary, unary};
use super::matrix::Matrix;
use super::meaning::{self, Scores};
use super::number::{exp2, requantisation_shift, round, round_int8};
use super::recurrent_functions::exp_decay;
use super::row_functions::{Line, line, placed};
use super::weights::SlotIndex;

/// Sums of the output tiles of one PCU of a GEMM stage: tile after tile, each rows x columns. They start from `partials`
/// and take the products in the order of the K steps, each product and sum rounded to fp32 (`int8`: 32-bit integers).
/// `keeps` says which pairs of a row and a column, or of a row and a step, causality leaves.
pub(super) fn gemm(
    dtype: Dtype,
    activations: &Matrix,
    index: &SlotIndex,
    weights: &[f64],
    partials: Option<&[f64]>,
    keeps: Option<&dyn Fn(CausalAxis, usize, u64) -> bool>,
) -> Vec<f64> {
    let rows = activations.rows;
    let mut sums = Vec::with_capacity(rows * index.columns() as usize);
    for tile in &index.tiles {
        let columns = (tile.columns.end - tile.columns.start) as usize;
        let mut next = weights[tile.first_value.min(weights.len())..].iter();
        // What the index leaves out is zero.
        let expanded: Vec<f64> =
            tile.stored.iter().map(|&stored| if stored { next.next().copied().unwrap_or(0.0) } else { 0.0 }).collect();
        let start = |at: usize| partials.map_or(0.0, |p| p[at]);
        let operands = |row: usize| &activations.row(row)[tile.first_activation as usize..];
        let does = |row: usize, step: u32| keeps.is_none_or(|keeps| keeps(CausalAxis::Depth, row, u64::from(step)));
        let from = sums.len();
        if dtype == Dtype::Int8 {
            let narrow: Vec<i32> = expanded.iter().map(|&w| w as i32).collect();
            for row in 0..rows {
                let from = sums.len();
                let mut acc: Vec<i32> = (0..columns).map(|c| start(from + c) as i32).collect();
                for (&step, line) in tile.steps.iter().zip(narrow.chunks_exact(columns.max(1))) {
                    if does(row, step) {
                        let x = operands(row)[step as usize] as i32;
                        acc.iter_mut().zip(line).for_each(|(sum, w)| *sum = sum.wrapping_add(x.wrapping_mul(*w)));
                    }
                }
                sums.extend(acc.into_iter().map(f64::from));
            }
        } else {
            let narrow: Vec<f32> = expanded.iter().map(|&w| w as f32).collect();
            for row in 0..rows {
                let from = sums.len();
                let mut acc: Vec<f32> = (0..columns).map(|c| start(from + c) as f32).collect();
                for (&step, line) in tile.steps.iter().zip(narrow.chunks_exact(columns.max(1))) {
                    if does(row, step) {
                        let x = operands(row)[step as usize] as f32;
                        acc.iter_mut().zip(line).for_each(|(sum, w)| *sum += x * w);
                    }
                }
                sums.extend(acc.into_iter().map(f64::from));
            }
        }
        if let Some(keeps) = keeps {
            for (at, sum) in sums[from..].iter_mut().enumerate() {
                if !keeps(CausalAxis::Columns, at / columns, tile.first_in_head + (at % columns) as u64) {
                    *sum = 0.0;
                }
            }
        }
    }
    sums
}

/// Adds the sums of another slice of K to those of a PCU.
pub(super) fn add(dtype: Dtype, sums: &mut [f64], others: &[f64]) {
    for (sum, &other) in sums.iter_mut().zip(others) {
        *sum = if dtype == Dtype::Int8 {
            f64::from((*sum as i32).wrapping_add(other as i32))
        } else {
            f64::from(*sum as f32 + other as f32)
        };
    }
}

/// The results of a GEMM stage from its sums, whose first stands in row `row` and column `column` and of which a row has
/// `columns`: bias and the tail's functions in fp32, then the output's data type. `vector` gives row vectors.
pub(super) fn finish<'v>(
    workload: &Workload,
    spec: &StageSpec,
    sums: &[f64],
    row: u64,
    column: u64,
    columns: usize,
    vector: impl Fn(TensorId) -> Option<&'v Matrix>,
) -> Vec<f64> {
    let main = &workload.operators[spec.main];
    let first = &workload.tensors[main.inputs[0]];
    let output = &workload.tensors[spec.output];
    let whole = first.dtype == Dtype::Int8 && workload.tensors[main.output].dtype == Dtype::Int8;
    let depth = main.form.map_or(first.columns, |form| form.k);
    let scale = if whole { exp2(-requantisation_shift(depth)) } else { 1.0 };
    let operators: Vec<&Operator> =
        std::iter::once(&spec.main).chain(&spec.tail).map(|&op| &workload.operators[op]).collect();
    let functions: Vec<(&Operator, Vec<&Matrix>, Scores)> = operators
        .into_iter()
        .map(|op| (op, op.vectors.iter().filter_map(|&v| vector(v)).collect(), meaning::scores(workload, op)))
        .collect();
    let plain = spec.tail.is_empty() && functions.iter().all(|f| f.1.is_empty());
    let result = |(at, sum): (usize, &f64)| {
        let (row, column) = (row + (at / columns) as u64, column + (at % columns) as u64);
        // Of the gradient of a sparse weight the stored part is kept.
        if output.mask.as_ref().is_some_and(|m| !m.is_kept(row / m.block_rows(), column / m.block_columns())) {
            return 0.0;
        }
        let sum = sum * scale;
        if plain && output.dtype == Dtype::Int8 {
            return round_int8(sum);
        }
        let through = |x: f32, (op, vectors, scores): &(&Operator, Vec<&Matrix>, Scores)| {
            let of = |vector: &Matrix| vector.row(0)[column as usize] as f32;
            match (op.kind, vectors.as_slice()) {
                (OperatorKind::Gemm | OperatorKind::Bias, [bias]) => x + of(bias),
                (OperatorKind::BatchNorm, [gain, bias]) => x * of(gain) + of(bias),
                (OperatorKind::BatchNorm, [gain]) => x * of(gain),
                (OperatorKind::ExpDecay, [log]) => exp_decay(x, of(log)),
                (OperatorKind::Scale | OperatorKind::CausalMask | OperatorKind::Dropout, _) => {
                    placed(op, x, row, column, *scores)
                }
                (kind, _) => unary(kind, x),
            }
        };
        round(output.dtype, functions.iter().fold(sum as f32, through))
    };
    sums.iter().enumerate().map(result).collect()
}

/// A step of an optimiser on complete sums, row by row, each result rounded to its data type: the tail takes the gradient as it
/// was added up, in fp32.
pub(super) fn update(workload: &Workload, step: OperatorId, sums: &Matrix, state: &Matrix) -> Vec<Vec<f64>> {
    let operator = &workload.operators[step];
    let narrow = |matrix: &Matrix, row: usize| matrix.row(row).iter().map(|&x| x as f32).collect::<Vec<f32>>();
    let at = || Line { row: 0, column: 0, label: 0, scores: meaning::scores(workload, operator) };
    let of_row = |row: usize| {
        let (sums, state) = (narrow(sums, row), narrow(state, row));
        let result = match operator.kind {
            OperatorKind::SgdUpdate => line(workload, operator, &state, &sums, at()),
            OperatorKind::Add => state.iter().zip(&sums).map(|(of, to)| binary(operator.kind, *of, *to)).collect(),
            _ => line(workload, operator, &sums, &state, at()),
        };
        result.into_iter().map(|x| round(workload.tensors[operator.output].dtype, x)).collect()
    };
    (0..sums.rows).map(of_row).collect()
}

/// The results of a SIMD stage's pipeline from its operands, in the order of `spec.activations`; the first stands in row
/// `row` and column `column` of the output. `argument` gives what rides with a launch: row vectors, indices, labels.
pub(super) fn simd<'v>(
    workload: &Workload,
    spec: &StageSpec,
    operands: &[Matrix],
    row: u64,
    column: u64,
    argument: impl Fn(TensorId) -> Option<&'v Matrix>,
) -> Matrix {
    let operator = &workload.operators[spec.main];
    let output = &workload.tensors[spec.output];
    let operand = |n: usize| {
        let input = operator.inputs.get(n).or(operator.inputs.last());
        &operands[spec.activations.iter().position(|t| Some(t) == input).unwrap_or(0)]
    };
    let labels = operator.indices.and_then(&argument);
    let scores = meaning::scores(workload, operator);
    let vectors: Vec<&Matrix> = operator.vectors.iter().filter_map(|&v| argument(v)).collect();
    let narrow = |matrix: &Matrix, row: usize| matrix.row(row).iter().map(|&x| x as f32).collect::<Vec<f32>>();
    let mut values = Vec::new();
    for at in 0..operand(0).rows {
        let (mut x, y) = (narrow(operand(0), at), narrow(operand(1), at));
        let row = row + at as u64;
        match operator.kind {
            OperatorKind::Add | OperatorKind::Mul | OperatorKind::Sub => {
                x.iter_mut().zip(&y).for_each(|(x, y)| *x = binary(operator.kind, *x, *y));
            }
            OperatorKind::Softmax | OperatorKind::LayerNorm | OperatorKind::RmsNorm => {
                let head = (output.columns / operator.heads.max(1)).max(1) as usize;
                let sinks = vectors.first().filter(|_| operator.kind.has_vector_of_heads());
                for (n, part) in x.chunks_mut(head).enumerate() {
                    let sink = sinks.map(|sinks| sinks.row(0)[column as usize / head + n] as f32);
                    along_row(operator.kind, part, sink);
                }
            }
            kind if kind.is_function() => x.iter_mut().for_each(|x| *x = unary(kind, *x)),
            _ => {
                let label = labels.map_or(0, |labels| labels.values[row as usize] as u64);
                x = line(workload, operator, &x, &y, Line { row, column, label, scores });
            }
        }
        let norm = matches!(operator.kind, OperatorKind::LayerNorm | OperatorKind::RmsNorm | OperatorKind::BatchNorm);
        for (c, x) in x.iter_mut().enumerate() {
            for (n, vector) in vectors.iter().enumerate().filter(|_| !operator.kind.has_vector_of_heads()) {
                let of = vector.row(0)[column as usize + c] as f32;
                *x = if norm && n == 0 { *x * of } else { *x + of };
            }
        }
        let kept = |c: usize| {
            let (row, column) = (row, column + c as u64);
            output.mask.as_ref().is_none_or(|m| m.is_kept(row / m.block_rows(), column / m.block_columns()))
        };
        values.extend(x.iter().enumerate().map(|(c, &x)| if kept(c) { round(output.dtype, x) } else { 0.0 }));
    }
    let rows = operand(0).rows;
    Matrix { rows, columns: values.len().checked_div(rows).unwrap_or(0), values }
}
