//! The functions of models in f64 with error bounds: rows, heads of rows, gradients, optimisers.

use rdusim_graph::workload::{Operator, OperatorKind, Workload};

use super::bounded::{FP32, Real};
use super::bounded_matrix::Bounded;
use super::matrix::Matrix;
use super::meaning::{self, Scores};

/// Added to the variance or mean square of a norm.
const EPSILON: f64 = 1e-5;

/// One operator other than a GEMM or a function of the plain kind on whole matrices, not yet rounded to the output's type.
/// `indices` are those of its indices or labels.
pub(super) fn apply(
    workload: &Workload,
    operator: &Operator,
    given: &[&Bounded],
    indices: Option<&[u64]>,
    columns: usize,
) -> Bounded {
    let rows = given[0].value.rows;
    let mut result = Bounded::exact(Matrix::filled(rows, columns, 0.0));
    let scores = meaning::scores(workload, operator);
    for row in 0..rows {
        let operands: Vec<Vec<Real>> = given.iter().map(|operand| reals(operand, row)).collect();
        let label = indices.map_or(0, |indices| indices[row]);
        let line = of_row(workload, operator, &operands, row as u64, label, scores);
        for (column, number) in line.iter().enumerate().take(columns) {
            result.value.row_mut(row)[column] = number.value;
            result.error.row_mut(row)[column] = number.error;
        }
    }
    result
}

fn reals(operand: &Bounded, row: usize) -> Vec<Real> {
    operand.value.row(row).iter().zip(operand.error.row(row)).map(|(&v, &e)| Real::new(v, e)).collect()
}

/// A function of a head of each of two operands.
type OfHead<'f> = &'f dyn Fn(&[Real], &[Real]) -> Vec<Real>;

/// Scores of a row, those that are left out at minus infinity; of their gradients, at zero.
fn masked(x: &[Real], row: u64, operator: &Operator, scores: Scores) -> Vec<Real> {
    let of = |(column, &x): (u64, &Real)| match (scores.keeps(row, column), operator.is_gradient) {
        (true, _) => x * Real::exact(meaning::SCALE),
        (false, true) => Real::exact(0.0),
        (false, false) => Real::exact(f64::NEG_INFINITY),
    };
    (0u64..).zip(x).map(of).collect()
}

/// A row of which some elements are dropped.
fn dropped(x: &[Real], row: u64) -> Vec<Real> {
    let of = |(column, &x): (u64, &Real)| {
        if meaning::is_kept(row, column) { x * Real::constant(meaning::KEPT_SCALE) } else { Real::exact(0.0) }
    };
    (0u64..).zip(x).map(of).collect()
}

/// So many elements of a row, of the greatest magnitudes.
fn selected(x: &[Real], count: usize) -> Vec<Real> {
    let mut order: Vec<usize> = (0..x.len()).collect();
    order.sort_by(|&a, &b| x[b].value.abs().total_cmp(&x[a].value.abs()).then(a.cmp(&b)));
    order.truncate(count);
    order.sort_unstable();
    let most = x.iter().map(|x| x.value.abs() + x.error).fold(0.0, f64::max);
    // Where magnitudes are not sure, neither is which are chosen.
    let sure = x.iter().all(|x| x.error == 0.0);
    order.iter().map(|&at| if sure { x[at] } else { Real::new(x[at].value, 2.0 * most) }).collect()
}

/// The largest magnitude of a row over `most`; of zeros, 1.
fn row_scale(x: &[Real], most: f64) -> Real {
    let largest = Real::greatest(x.iter().map(|x| Real::new(x.value.abs(), x.error)));
    if largest.value == 0.0 { Real::exact(1.0) } else { largest.over(Real::exact(most)) }
}

fn of_row(
    workload: &Workload,
    operator: &Operator,
    operands: &[Vec<Real>],
    row: u64,
    label: u64,
    scores: Scores,
) -> Vec<Real> {
    let x = &operands[0];
    let y = operands.last().unwrap_or(x);
    let pairs = || x.iter().zip(y);
    let one = Real::exact(1.0);
    let by_heads = |function: OfHead<'_>| -> Vec<Real> {
        let width = (x.len() / operator.heads.max(1) as usize).max(1);
        x.chunks(width).zip(y.chunks(width)).flat_map(|(x, y)| function(x, y)).collect()
    };
    match operator.kind {
        OperatorKind::Scale => x.iter().map(|&x| x * Real::exact(meaning::SCALE)).collect(),
        OperatorKind::CausalMask => masked(x, row, operator, scores),
        OperatorKind::Dropout => dropped(x, row),
        OperatorKind::Rotary => by_heads(&|x, _| rotated(x, row, operator.is_gradient)),
        OperatorKind::Concat => x.iter().chain(y).copied().collect(),
        OperatorKind::RowSum => vec![Real::sum(x.iter().copied())],
        OperatorKind::RowScale => vec![row_scale(x, workload.scaled_to(operator))],
        OperatorKind::Quantize => x.iter().map(|x| x.over(y[0])).collect(),
        OperatorKind::RowMax => vec![Real::greatest(x.iter().copied())],
        OperatorKind::CrossEntropy => {
            let (most, sum) = exponents(x);
            vec![sum.ln() + (most - x[label as usize])]
        }
        OperatorKind::CrossEntropyGrad => {
            let (most, sum) = exponents(x);
            let share = |(at, &x): (u64, &Real)| {
                let share = (x - most).exp().over(sum);
                if at == label { share - one } else { share }
            };
            (0u64..).zip(x).map(share).collect()
        }
        OperatorKind::SoftplusGrad => pairs().map(|(&x, &dy)| dy * x.sigmoid()).collect(),
        OperatorKind::GeluGrad => pairs().map(|(&x, &dy)| dy * gelu_slope(x)).collect(),
        OperatorKind::ReluGrad => pairs()
            .map(|(&y, &dy)| {
                let value = if y.value > 0.0 { dy.value } else { 0.0 };
                // On either side of the bend.
                Real::new(value, if y.value.abs() <= y.error { dy.value.abs() + dy.error } else { dy.error })
            })
            .collect(),
        OperatorKind::SiluGrad => pairs()
            .map(|(&x, &dy)| {
                let s = x.sigmoid();
                dy * (s * (one + x * (one - s)))
            })
            .collect(),
        OperatorKind::SigmoidGrad => pairs().map(|(&y, &dy)| dy * (y * (one - y))).collect(),
        OperatorKind::TanhGrad => pairs().map(|(&y, &dy)| dy * (one - y * y)).collect(),
        OperatorKind::SoftmaxGrad => by_heads(&|y, dy| {
            let dot = Real::sum(y.iter().zip(dy).map(|(&y, &dy)| y * dy));
            y.iter().zip(dy).map(|(&y, &dy)| y * (dy - dot)).collect()
        }),
        OperatorKind::LayerNormGrad => by_heads(&|x, dy| {
            let mean = Real::mean(x.iter().copied());
            let moved: Vec<Real> = x.iter().map(|&x| x - mean).collect();
            norm_gradient(&moved, dy, true)
        }),
        OperatorKind::RmsNormGrad => by_heads(&|x, dy| norm_gradient(x, dy, false)),
        OperatorKind::SgdUpdate => pairs().map(|(&w, &g)| w - Real::constant(meaning::SGD_RATE) * g).collect(),
        OperatorKind::AdamUpdate => adam(x, y, meaning::in_a_word(workload, operator), |x| {
            let dtype = workload.tensors[operator.inputs[0]].dtype;
            let error = super::number::rounded_error(dtype, x.value, x.error);
            Real::new(x.value, error)
        }),
        OperatorKind::LocalNorm => (0..x.len())
            .map(|at| {
                let around = &x[at.saturating_sub(2)..(at + 3).min(x.len())];
                let sum = Real::sum(around.iter().map(|&x| x * x));
                let root = (one + sum.over(Real::exact(5.0))).sqrt();
                x[at].over(root * root.sqrt())
            })
            .collect(),
        OperatorKind::Select => selected(x, workload.tensors[operator.output].columns as usize),
        OperatorKind::Reformat => {
            let mut line = x.clone();
            line.resize(workload.tensors[operator.output].columns as usize, Real::exact(0.0));
            line
        }
        _ => x.clone(),
    }
}

/// The greatest of a row, and the sum of exponentials of what the others are below it.
fn exponents(x: &[Real]) -> (Real, Real) {
    let most = Real::greatest(x.iter().copied());
    (most, Real::sum(x.iter().map(|&x| (x - most).exp())))
}

fn gelu_slope(x: Real) -> Real {
    let density = (Real::constant(-0.5) * (x * x)).exp() * Real::constant(0.398_942_280_401_432_7);
    x.normal() + x * density
}

/// Pairs of elements turned by an angle of the row and of their place; back, for a gradient.
fn rotated(x: &[Real], row: u64, back: bool) -> Vec<Real> {
    let width = x.len() as f64;
    let mut turned = x.to_vec();
    for (pair, two) in turned.chunks_exact_mut(2).enumerate() {
        let speed = libm::pow(meaning::ROTARY_BASE, -2.0 * pair as f64 / width);
        let angle = row as f64 * speed * if back { -1.0 } else { 1.0 };
        // The chip has the speed in fp32, and its product with the row.
        let angle = Real::new(angle, 3.0 * FP32 * angle.abs());
        let (sin, cos, a, b) = (angle.sin(), angle.cos(), two[0], two[1]);
        two[0] = a * cos - b * sin;
        two[1] = a * sin + b * cos;
    }
    turned
}

/// Of a norm over what is left of x: dx = (dy - mean(dy) - n mean(dy n)) / s, n = x / s; without the second for a
/// root-mean-square norm.
fn norm_gradient(x: &[Real], dy: &[Real], centred: bool) -> Vec<Real> {
    let square = Real::mean(x.iter().map(|&x| x * x));
    let scale = Real::exact(1.0).over((square + Real::constant(EPSILON)).sqrt());
    let normed: Vec<Real> = x.iter().map(|&x| x * scale).collect();
    let along = Real::mean(dy.iter().zip(&normed).map(|(&dy, &n)| dy * n));
    let mean = if centred { Real::mean(dy.iter().copied()) } else { Real::exact(0.0) };
    dy.iter().zip(&normed).map(|(&dy, &n)| scale * (dy - mean - n * along)).collect()
}

/// A step of Adam on a row: gradient; master weights, first and second moments side by side. All three new, then the
/// weights to compute with, several in a word: its number here is the sum of them, the n-th times 2^n.
fn adam(gradient: &[Real], state: &[Real], in_a_word: u64, narrowed: impl Fn(Real) -> Real) -> Vec<Real> {
    let c = Real::constant;
    let mut line = Vec::new();
    // A word's worth of elements lies together: they are worked on together.
    for (at, of) in gradient.chunks(in_a_word as usize).enumerate() {
        let first = 3 * at * in_a_word as usize;
        let part = |n: usize, i: usize| state[first + n * of.len() + i];
        let moments: Vec<(Real, Real, Real)> = (0..of.len())
            .map(|i| {
                let (master, m, v, g) = (part(0, i), part(1, i), part(2, i), of[i]);
                let m = c(meaning::ADAM_FIRST) * m + c(1.0 - meaning::ADAM_FIRST) * g;
                let v = c(meaning::ADAM_SECOND) * v + c(1.0 - meaning::ADAM_SECOND) * (g * g);
                let step = m.over(v.sqrt() + c(meaning::ADAM_EPSILON));
                (master - c(meaning::ADAM_RATE) * step, m, v)
            })
            .collect();
        line.extend(moments.iter().map(|m| m.0));
        line.extend(moments.iter().map(|m| m.1));
        line.extend(moments.iter().map(|m| m.2));
        let word = moments.iter().rev().fold(Real::exact(0.0), |word, m| {
            let narrow = narrowed(m.0);
            Real::new(2.0 * word.value + narrow.value, 2.0 * word.error + narrow.error)
        });
        line.push(word);
    }
    line
}
