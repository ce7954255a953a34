//! What the graph says, in f64 and plain loops, and how far the chip's arithmetic may be off.
//!
//! `docs/verify.md` derives every bound. Nothing here knows tiles, row tiles or units.

use rdusim_base::interrupt;
use rdusim_base::units::Dtype;
use rdusim_graph::workload::{CausalAxis, GemmForm, Operator, OperatorId, OperatorKind, TensorId, Workload};

use super::bounded::{FP32, growth};
use super::bounded_matrix::Bounded;
use super::image_reference::{convolution, pooled};
use super::matrix::{Kept, Matrix};
use super::meaning::{self, Causal};
use super::number::{exp2, requantisation_shift};
use super::recurrent_reference;
use super::row_reference;
use super::view_reference::{operands, whole_numbers};

/// Added to the variance or mean square of a norm.
const EPSILON: f64 = 1e-5;

/// Every tensor of a graph from its inputs, each result rounded to its data type.
pub(super) fn graph(workload: &Workload, inputs: &[Option<Matrix>]) -> Vec<Option<Bounded>> {
    let mut tensors: Vec<Option<Bounded>> = inputs.iter().map(|input| input.clone().map(Bounded::exact)).collect();
    for operator in &workload.operators {
        interrupt::check();
        let result = apply(workload, operator, &|t| tensors[index(t)].as_ref());
        let unrounded = goes_on_unrounded(workload, operator.output).then(|| result.clone());
        let mut stored = stored(workload, operator.output, result);
        if let Some(unrounded) = unrounded {
            // A tail takes what is neither rounded nor cut off yet: as far as that is from what would be stored.
            let taken = unrounded.value.values.iter().zip(&unrounded.error.values);
            for ((value, error), (taken, off)) in stored.value.values.iter().zip(&mut stored.error.values).zip(taken) {
                *error = error.max((taken - value).abs() + off);
            }
        }
        tensors[index(operator.output)] = Some(stored);
    }
    tensors
}

/// Whether a tensor of 8 bits, which are rounded and cut off, may be what the tail of its stage goes on with, without being stored.
fn goes_on_unrounded(workload: &Workload, tensor: TensorId) -> bool {
    let mut readers = workload.operators.iter().filter(|operator| operator.inputs.contains(&tensor));
    workload.tensors[tensor].dtype.saturates()
        && readers.next().is_some_and(|reader| reader.kind.folds_into_a_tail())
        && readers.next().is_none()
}

fn index(tensor: TensorId) -> usize {
    rdusim_base::index::Id::index(tensor)
}

/// A result as it is stored: rounded, and of the gradient of a sparse weight the stored part.
fn stored(workload: &Workload, output: TensorId, result: Bounded) -> Bounded {
    let tensor = &workload.tensors[output];
    let mut result = result.rounded(tensor.dtype);
    if let Some(mask) = tensor.mask.as_deref() {
        let kept = Kept::new(Some(mask));
        for (row, column) in (0..tensor.rows).flat_map(|row| (0..tensor.columns).map(move |column| (row, column))) {
            if !kept.at(row, column) {
                result.value.row_mut(row as usize)[column as usize] = 0.0;
                result.error.row_mut(row as usize)[column as usize] = 0.0;
            }
        }
    }
    result
}

/// A main operator and the functions behind it, rounded once, to the data type of the last result. `tensor` gives tensors
/// as they are declared.
pub(super) fn chain<'t>(
    workload: &Workload,
    operators: &[OperatorId],
    tensor: &impl Fn(TensorId) -> Option<&'t Bounded>,
) -> Bounded {
    let mut result: Option<Bounded> = None;
    let mut output = None;
    for &id in operators {
        let operator = &workload.operators[id];
        let next = match &result {
            None => apply(workload, operator, tensor),
            // A step of an optimiser reads its state beside the gradient.
            Some(before) if operator.is_step() => {
                let gradient = output;
                apply(workload, operator, &|t| if Some(t) == gradient { Some(before) } else { tensor(t) })
            }
            Some(before) => apply_to(workload, operator, &[before], tensor),
        };
        (result, output) = (Some(next), Some(operator.output));
    }
    let result = result.unwrap_or_else(|| Bounded::exact(Matrix::filled(0, 0, 0.0)));
    match output {
        Some(output) => stored(workload, output, result),
        None => result,
    }
}

/// One operator on tensors, its result not yet rounded.
fn apply<'t>(workload: &Workload, operator: &Operator, tensor: &impl Fn(TensorId) -> Option<&'t Bounded>) -> Bounded {
    let given = operands(workload, operator, tensor);
    apply_to(workload, operator, &given.iter().collect::<Vec<_>>(), tensor)
}

/// One operator on operands in the shapes it reads, its result not yet rounded.
fn apply_to<'t>(
    workload: &Workload,
    operator: &Operator,
    given: &[&Bounded],
    tensor: &impl Fn(TensorId) -> Option<&'t Bounded>,
) -> Bounded {
    let Operator { kind, inputs, output, .. } = operator;
    // Row vectors of parameters, exact.
    let vectors: Vec<&[f64]> = operator.vectors.iter().filter_map(|&v| tensor(v)).map(|v| v.value.row(0)).collect();
    match kind {
        OperatorKind::Gemm => {
            let whole = workload.tensors[inputs[0]].dtype == Dtype::Int8;
            let window = workload.tensors[inputs[0]].window();
            let rows = workload.tensors[*output].rows as usize;
            let mut product = match (&operator.form, window) {
                (_, Some(window)) => convolution(&window.image, rows, given[0], given[1], whole),
                (None, None) => gemm(given[0], given[1], whole),
                (Some(form), None) => gemm_by_heads(operator, form, given[0], given[1], whole),
            };
            if whole && workload.tensors[*output].dtype == Dtype::Int8 {
                let scale = exp2(-requantisation_shift(
                    operator.form.map_or(workload.tensors[inputs[0]].columns, |form| form.k),
                ));
                product.value.values.iter_mut().for_each(|x| *x *= scale);
                product.error.values.iter_mut().for_each(|x| *x *= scale);
            }
            if let [bias] = vectors.as_slice() {
                add_vector(&mut product, bias);
            }
            product
        }
        OperatorKind::Add | OperatorKind::Mul | OperatorKind::Sub => binary(*kind, given[0], given[given.len() - 1]),
        OperatorKind::Softmax | OperatorKind::LayerNorm | OperatorKind::RmsNorm => {
            let mut result = given[0].clone();
            let width = (result.value.columns / operator.heads.max(1) as usize).max(1);
            for row in 0..result.value.rows {
                let (x, e) = (given[0].value.row(row), given[0].error.row(row));
                let (y, d) = (result.value.row_mut(row), result.error.row_mut(row));
                for (head, first) in (0..x.len()).step_by(width).enumerate() {
                    let of = first..(first + width).min(x.len());
                    let (x, e, y, d) = (&x[of.clone()], &e[of.clone()], &mut y[of.clone()], &mut d[of]);
                    match kind {
                        OperatorKind::Softmax => softmax(x, e, vectors.first().map(|sinks| sinks[head]), y, d),
                        OperatorKind::LayerNorm => layer_norm(x, e, y, d),
                        _ => rms_norm(x, e, y, d),
                    }
                }
            }
            if !kind.has_vector_of_heads() {
                gain_and_bias(&mut result, &vectors);
            }
            result
        }
        OperatorKind::BatchNorm => {
            let mut result = given[0].clone();
            gain_and_bias(&mut result, &vectors);
            result
        }
        OperatorKind::MaxPool | OperatorKind::AveragePool | OperatorKind::SumPool | OperatorKind::RestProduct => {
            pool(workload, operator, given[0])
        }
        OperatorKind::Bias => {
            let mut result = given[0].clone();
            if let [bias] = vectors.as_slice() {
                add_vector(&mut result, bias);
            }
            result
        }
        kind if kind.is_function() => {
            let mut result = given[0].clone();
            for (value, error) in result.value.values.iter_mut().zip(&mut result.error.values) {
                (*value, *error) = unary(*kind, *value, *error);
            }
            result
        }
        OperatorKind::Embedding | OperatorKind::Transpose | OperatorKind::EmbeddingGrad => given[0].clone(),
        _ => {
            if let Some(made) = recurrent_reference::apply(workload, operator, given, &vectors) {
                return made;
            }
            let indices = operator.indices.and_then(tensor).map(|i| whole_numbers(&i.value));
            let columns = workload.tensors[*output].columns as usize;
            row_reference::apply(workload, operator, given, indices.as_deref(), columns)
        }
    }
}

/// Of each window one number a channel; a window of one pixel is that pixel, and the product of its rest is one.
fn pool(workload: &Workload, operator: &Operator, given: &Bounded) -> Bounded {
    let rows = workload.tensors[operator.output].rows as usize;
    match workload.tensors[operator.inputs[0]].window() {
        Some(window) => pooled(operator.kind, &window.image, rows, given),
        None if operator.kind == OperatorKind::RestProduct => {
            Bounded::exact(Matrix::filled(given.value.rows, given.value.columns, 1.0))
        }
        None => given.clone(),
    }
}

/// Multiplies every row with a row vector, if there is one, and adds another, if there are two, in fp32.
fn gain_and_bias(result: &mut Bounded, vectors: &[&[f64]]) {
    if let [gain, ..] = vectors {
        let columns = result.value.columns;
        for (at, (value, error)) in result.value.values.iter_mut().zip(&mut result.error.values).enumerate() {
            *value *= gain[at % columns];
            *error = *error * gain[at % columns].abs() + FP32 * (value.abs() + *error * gain[at % columns].abs());
        }
    }
    if let [_, bias] = vectors {
        add_vector(result, bias);
    }
}

/// Adds a row vector to every row, in fp32.
fn add_vector(result: &mut Bounded, vector: &[f64]) {
    let columns = result.value.columns;
    for (at, (value, error)) in result.value.values.iter_mut().zip(&mut result.error.values).enumerate() {
        *value += vector[at % columns];
        *error += FP32 * (value.abs() + *error);
    }
}

/// One small product for every sequence and head. Of B, `b_heads` heads stand side by side; what causality leaves out of
/// a result is zero, and what it leaves out of a sum is not added.
fn gemm_by_heads(operator: &Operator, form: &GemmForm, a: &Bounded, b: &Bounded, whole: bool) -> Bounded {
    let (m, n, k) = (form.m as usize, form.n as usize, form.k as usize);
    let (heads, group) = (form.heads as usize, meaning::group(operator) as usize);
    let shared = heads / form.b_heads as usize;
    let length = b.value.rows / form.instances as usize;
    let depth = k / group;
    let options = &operator.options;
    let causal = Causal::of(operator, form);
    let mut result = Bounded::exact(Matrix::filled(form.instances as usize * m, heads * n, 0.0));
    for (sequence, head) in (0..form.instances as usize).flat_map(|s| (0..heads).map(move |h| (s, h))) {
        // B of this product: depth d of the g-th head of a group is depth d % depth of head `group * head + g`.
        let place = |d: usize, column: usize| {
            let of_b = head / shared * group + d / depth;
            let along = d % depth;
            if options.transpose_b {
                (sequence * length + column, of_b * depth + along)
            } else {
                (sequence * length + along, of_b * n + column)
            }
        };
        for row in 0..m {
            interrupt::check();
            let keeps = |axis, other: usize| causal.is_none_or(|c| c.axis != axis || c.keeps(row as u64, other as u64));
            let at = sequence * m + row;
            let (x, dx) = (&a.value.row(at)[head * k..(head + 1) * k], &a.error.row(at)[head * k..(head + 1) * k]);
            for column in (0..n).filter(|&column| keeps(CausalAxis::Columns, column)) {
                let (mut value, mut off, mut magnitudes) = (0.0, 0.0, 0.0);
                for d in (0..k).filter(|&d| keeps(CausalAxis::Depth, d)) {
                    let (row, column) = place(d, column);
                    let (y, dy) = (b.value.row(row)[column], b.error.row(row)[column]);
                    value += x[d] * y;
                    off += x[d].abs() * dy + dx[d] * (y.abs() + dy);
                    magnitudes += (x[d].abs() + dx[d]) * (y.abs() + dy);
                }
                result.value.row_mut(at)[head * n + column] = value;
                result.error.row_mut(at)[head * n + column] = off + growth(k, whole) * magnitudes;
            }
        }
    }
    result
}

/// `C = A B`. A sum of `k` products in fp32, in any order and with products rounded, is off by at most
/// `(k + 1) u / (1 - (k + 1) u)` of the sum of their magnitudes (Higham, Accuracy and Stability, 3.1); in integers by nothing.
fn gemm(a: &Bounded, b: &Bounded, whole: bool) -> Bounded {
    let (rows, inner, columns) = (a.value.rows, a.value.columns, b.value.columns);
    let growth = growth(inner, whole);
    let mut value = Matrix::filled(rows, columns, 0.0);
    let mut error = Matrix::filled(rows, columns, 0.0);
    let exact = a.error.values.iter().chain(&b.error.values).all(|&e| e == 0.0);
    for row in 0..rows {
        interrupt::check();
        let (sums, errors) = (value.row_mut(row), error.row_mut(row));
        for k in 0..inner {
            let (x, dx) = (a.value.row(row)[k], a.error.row(row)[k]);
            if x == 0.0 && dx == 0.0 {
                continue;
            }
            let (weights, off) = (b.value.row(k), b.error.row(k));
            if exact {
                for ((sum, error), y) in sums.iter_mut().zip(errors.iter_mut()).zip(weights) {
                    *sum += x * y;
                    *error += growth * (x * y).abs();
                }
                continue;
            }
            let most = x.abs() + dx;
            for (((sum, error), y), dy) in sums.iter_mut().zip(errors.iter_mut()).zip(weights).zip(off) {
                *sum += x * y;
                *error += dx * y.abs() + most * dy + growth * most * (y.abs() + dy);
            }
        }
    }
    Bounded { value, error }
}

fn binary(kind: OperatorKind, a: &Bounded, b: &Bounded) -> Bounded {
    let mut result = a.clone();
    let others = b.value.values.iter().zip(&b.error.values);
    for ((value, error), (y, dy)) in result.value.values.iter_mut().zip(&mut result.error.values).zip(others) {
        let off = match kind {
            OperatorKind::Mul => value.abs() * dy + y.abs() * *error + *error * dy,
            _ => *error + dy,
        };
        *value = match kind {
            OperatorKind::Mul => *value * y,
            OperatorKind::Sub => *value - y,
            _ => *value + y,
        };
        // Sums and products of small integers are exact in fp32.
        let whole = off == 0.0 && value.fract() == 0.0 && value.abs() < 16_777_216.0;
        *error = if whole { 0.0 } else { off + FP32 * (value.abs() + off) };
    }
    result
}

/// A function of one element: the value, and its error from the argument's (by the function's steepest slope) and from
/// fp32 with a polynomial of 1.5e-7 in the place of erf.
fn unary(kind: OperatorKind, x: f64, e: f64) -> (f64, f64) {
    let sigmoid = |x: f64| 1.0 / (1.0 + libm::exp(-x));
    let (value, slope, own) = match kind {
        OperatorKind::Gelu => {
            (0.5 * x * (1.0 + libm::erf(x / std::f64::consts::SQRT_2)), 1.13, 16.0 * FP32 * (x.abs() + e))
        }
        OperatorKind::Relu => (x.max(0.0), 1.0, 0.0),
        OperatorKind::Silu => (x * sigmoid(x), 1.1, 8.0 * FP32 * (x.abs() + e)),
        OperatorKind::Sigmoid => (sigmoid(x), 0.25, 8.0 * FP32),
        OperatorKind::Tanh => (libm::tanh(x), 1.0, 16.0 * FP32 * (x.abs() + e).min(1.0)),
        OperatorKind::Softplus => {
            (x.max(0.0) + libm::log1p(libm::exp(-x.abs())), 1.0, 16.0 * FP32 * (1.0 + x.abs() + e))
        }
        _ => (x, 1.0, 0.0),
    };
    // The argument is an fp32 number; where it was not before, it is rounded to one.
    let argument = if e == 0.0 { 0.0 } else { FP32 * x.abs() };
    (value, slope * (e + argument) + own)
}

/// Shares of exponentials in the sum of all, of which an exact sink is one.
fn softmax(x: &[f64], e: &[f64], sink: Option<f64>, y: &mut [f64], d: &mut [f64]) {
    let most = x.iter().copied().chain(sink).fold(f64::NEG_INFINITY, f64::max);
    let widest = e.iter().copied().fold(0.0, f64::max);
    let sum: f64 = x.iter().copied().chain(sink).map(|x| libm::exp(x - most)).sum();
    for (at, x) in x.iter().enumerate() {
        y[at] = libm::exp(x - most) / sum;
        // Every exponent may be off by the error of two arguments and the rounding of their difference.
        let exponent = 2.0 * widest + 2.0 * FP32 * (x - most).abs();
        let relative = libm::expm1(exponent.min(700.0)) + (x_count(d) + 17.0) * FP32;
        // A share is never above one, and in fp32 it is zero below the smallest number.
        d[at] = (y[at] * relative).min(1.0) + 1e-37;
    }
}

fn x_count(row: &[f64]) -> f64 {
    row.len() as f64
}

fn layer_norm(x: &[f64], e: &[f64], y: &mut [f64], d: &mut [f64]) {
    let count = x_count(x);
    let mean = x.iter().sum::<f64>() / count;
    let variance = x.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / count;
    let spread = (variance + EPSILON).sqrt();
    let mean_off = e.iter().sum::<f64>() / count + (count + 2.0) * FP32 * largest(x, e);
    // The spread is a norm of the deviations: it moves by no more than the root mean square of what they move by.
    let moved = (e.iter().map(|e| (e + mean_off) * (e + mean_off)).sum::<f64>() / count).sqrt();
    let spread_off = moved + (count + 8.0) * FP32 * spread;
    for at in 0..x.len() {
        y[at] = (x[at] - mean) / spread;
        d[at] = quotient_error(e[at] + mean_off + 2.0 * FP32 * (x[at] - mean).abs(), y[at], spread, spread_off, count);
    }
}

fn rms_norm(x: &[f64], e: &[f64], y: &mut [f64], d: &mut [f64]) {
    let count = x_count(x);
    let spread = (x.iter().map(|x| x * x).sum::<f64>() / count + EPSILON).sqrt();
    let moved = (e.iter().map(|e| e * e).sum::<f64>() / count).sqrt();
    let spread_off = moved + (count + 8.0) * FP32 * spread;
    for at in 0..x.len() {
        y[at] = x[at] / spread;
        d[at] = quotient_error(e[at] + FP32 * x[at].abs(), y[at], spread, spread_off, count);
    }
}

fn largest(x: &[f64], e: &[f64]) -> f64 {
    x.iter().zip(e).map(|(x, e)| x.abs() + e).fold(0.0, f64::max)
}

/// Error of `y = n / s` where n is off by `top` and s by `bottom`. No element of a norm is larger than the root of the
/// row's length.
fn quotient_error(top: f64, y: f64, spread: f64, bottom: f64, count: f64) -> f64 {
    let least = (spread - bottom).max(EPSILON.sqrt() * 0.99);
    let off = (top + y.abs() * bottom) / least + 4.0 * FP32 * y.abs();
    off.min(2.0 * count.sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A function of a row and its errors.
    type OfRow = fn(&[f64], &[f64], &mut [f64], &mut [f64]);

    fn row(values: &[f64]) -> Bounded {
        Bounded::exact(Matrix { rows: 1, columns: values.len(), values: values.to_vec() })
    }

    #[test]
    fn known_values() {
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a} is not {b}");
        near(unary(OperatorKind::Gelu, 1.0, 0.0).0, 0.841_344_746_068_543);
        near(unary(OperatorKind::Silu, 0.0, 0.0).0, 0.0);
        let (mut y, mut d) = (vec![0.0; 3], vec![0.0; 3]);
        softmax(&[0.0, 0.0, libm::log(2.0)], &[0.0; 3], None, &mut y, &mut d);
        near(y[0], 0.25);
        near(y[2], 0.5);
        softmax(&[0.0, 0.0, libm::log(2.0)], &[0.0; 3], Some(libm::log(4.0)), &mut y, &mut d);
        near(y[0], 0.125);
        near(y[2], 0.25);
        layer_norm(&[1.0, 2.0, 3.0], &[0.0; 3], &mut y, &mut d);
        near(y[2], 1.0 / (2.0f64 / 3.0 + EPSILON).sqrt());
        rms_norm(&[3.0, 4.0, 0.0], &[0.0; 3], &mut y, &mut d);
        near(y[1], 4.0 / (25.0f64 / 3.0 + EPSILON).sqrt());
        let product =
            gemm(&row(&[1.0, 2.0]), &Bounded::exact(Matrix { rows: 2, columns: 1, values: vec![3.0, 4.0] }), false);
        near(product.value.values[0], 11.0);
        near(product.error.values[0], 11.0 * 3.0 * FP32 / (1.0 - 3.0 * FP32));
    }

    #[test]
    fn a_bound_holds_what_a_changed_argument_gives() {
        let x = [0.3, -1.2, 2.0, 0.7];
        let e = [0.01, 0.0, 0.02, 0.005];
        let moved: Vec<f64> = x.iter().zip(&e).map(|(x, e)| x + e).collect();
        let functions: [OfRow; 4] =
            [|x, e, y, d| softmax(x, e, None, y, d), |x, e, y, d| softmax(x, e, Some(1.5), y, d), layer_norm, rms_norm];
        for function in functions {
            let (mut y, mut d, mut z, mut unused) = (vec![0.0; 4], vec![0.0; 4], vec![0.0; 4], vec![0.0; 4]);
            function(&x, &e, &mut y, &mut d);
            function(&moved, &[0.0; 4], &mut z, &mut unused);
            for at in 0..4 {
                assert!((y[at] - z[at]).abs() <= d[at] && d[at] < 0.2, "{at}: {} {}", (y[at] - z[at]).abs(), d[at]);
            }
        }
    }
}
