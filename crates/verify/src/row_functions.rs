//! The functions of models as PCUs compute them, in fp32. The reference has its own.

use rdusim_graph::workload::{Operator, OperatorKind, Workload};

use super::functions::{erf, sigmoid};
use super::meaning::{self, Scores};
use super::number::round;
use super::windows;

/// Added to the variance or mean square of a norm.
const EPSILON: f32 = 1e-5;

/// Where a line of operands stands.
#[derive(Debug, Clone, Copy)]
pub(super) struct Line {
    /// Row of the tensor.
    pub(super) row: u64,
    /// First column of the result.
    pub(super) column: u64,
    /// Label of the row, where it has one.
    pub(super) label: u64,
    pub(super) scores: Scores,
}

/// An elementwise function that depends on where the element stands.
pub(super) fn placed(operator: &Operator, x: f32, row: u64, column: u64, scores: Scores) -> f32 {
    match operator.kind {
        OperatorKind::Scale => x * meaning::SCALE as f32,
        OperatorKind::CausalMask if scores.keeps(row, column) => x * meaning::SCALE as f32,
        OperatorKind::CausalMask if operator.is_gradient => 0.0,
        OperatorKind::CausalMask => f32::NEG_INFINITY,
        OperatorKind::Dropout if meaning::is_kept(row, column) => x * meaning::KEPT_SCALE as f32,
        OperatorKind::Dropout => 0.0,
        _ => x,
    }
}

/// A line of results from lines of operands: whole heads, or the elements that a pipeline was given.
pub(super) fn line(workload: &Workload, operator: &Operator, x: &[f32], y: &[f32], at: Line) -> Vec<f32> {
    let pairs = || x.iter().zip(y);
    let columns = workload.tensors[operator.inputs[0]].columns;
    let head = (columns / operator.heads.max(1)).max(1) as usize;
    match operator.kind {
        OperatorKind::Scale | OperatorKind::CausalMask | OperatorKind::Dropout => {
            let of = |(column, &x): (u64, &f32)| placed(operator, x, at.row, column, at.scores);
            (at.column..).zip(x).map(of).collect()
        }
        OperatorKind::Rotary => x.chunks(head).flat_map(|x| rotated(x, at.row, operator.is_gradient)).collect(),
        OperatorKind::Concat => [x, y].concat(),
        OperatorKind::RowSum => vec![x.iter().sum()],
        OperatorKind::RowScale => {
            let most = x.iter().fold(0.0f32, |most, x| most.max(x.abs()));
            vec![if most == 0.0 { 1.0 } else { most / workload.scaled_to(operator) as f32 }]
        }
        OperatorKind::Quantize => x.iter().map(|x| x / y[0]).collect(),
        OperatorKind::RowMax => vec![x.iter().copied().fold(f32::NEG_INFINITY, f32::max)],
        OperatorKind::CrossEntropy => {
            let (most, sum) = exponents(x);
            vec![libm::logf(sum) + (most - x[at.label as usize])]
        }
        OperatorKind::CrossEntropyGrad => {
            let (most, sum) = exponents(x);
            let mut shares: Vec<f32> = x.iter().map(|x| libm::expf(x - most) / sum).collect();
            shares[at.label as usize] -= 1.0;
            shares
        }
        OperatorKind::GeluGrad => pairs().map(|(&x, dy)| dy * gelu_slope(x)).collect(),
        OperatorKind::ReluGrad => pairs().map(|(&y, &dy)| if y > 0.0 { dy } else { 0.0 }).collect(),
        OperatorKind::SiluGrad => pairs()
            .map(|(&x, dy)| {
                let s = sigmoid(x);
                dy * (s * (1.0 + x * (1.0 - s)))
            })
            .collect(),
        OperatorKind::SoftplusGrad => pairs().map(|(&x, dy)| dy * sigmoid(x)).collect(),
        OperatorKind::SigmoidGrad => pairs().map(|(y, dy)| dy * (y * (1.0 - y))).collect(),
        OperatorKind::TanhGrad => pairs().map(|(y, dy)| dy * (1.0 - y * y)).collect(),
        OperatorKind::SoftmaxGrad => {
            let of_head = |(y, dy): (&[f32], &[f32])| -> Vec<f32> {
                let dot: f32 = y.iter().zip(dy).map(|(y, dy)| y * dy).sum();
                y.iter().zip(dy).map(|(y, dy)| y * (dy - dot)).collect()
            };
            x.chunks(head).zip(y.chunks(head)).flat_map(of_head).collect()
        }
        OperatorKind::LayerNormGrad => {
            let of_head = |(x, dy): (&[f32], &[f32])| {
                let mean = x.iter().sum::<f32>() / x.len() as f32;
                let moved: Vec<f32> = x.iter().map(|x| x - mean).collect();
                norm_gradient(&moved, dy, true)
            };
            x.chunks(head).zip(y.chunks(head)).flat_map(of_head).collect()
        }
        OperatorKind::RmsNormGrad => {
            x.chunks(head).zip(y.chunks(head)).flat_map(|(x, dy)| norm_gradient(x, dy, false)).collect()
        }
        OperatorKind::SgdUpdate => pairs().map(|(w, g)| w - meaning::SGD_RATE as f32 * g).collect(),
        OperatorKind::AdamUpdate => adam(workload, operator, x, y),
        OperatorKind::LocalNorm => (0..x.len())
            .map(|at| {
                let around = &x[at.saturating_sub(2)..(at + 3).min(x.len())];
                let root = (1.0 + around.iter().map(|x| x * x).sum::<f32>() / 5.0).sqrt();
                x[at] / (root * root.sqrt())
            })
            .collect(),
        OperatorKind::Select => largest(x, workload.tensors[operator.output].columns as usize),
        OperatorKind::MaxPool | OperatorKind::AveragePool | OperatorKind::SumPool | OperatorKind::RestProduct => {
            pooled(workload, operator, x, at.row)
        }
        OperatorKind::Reformat => {
            let mut line = x.to_vec();
            line.resize(workload.tensors[operator.output].columns as usize, 0.0);
            line
        }
        _ => x.to_vec(),
    }
}

/// Of a window, channel by channel, the greatest element, the sum (or that over how many are on the image), or the product of all but the
/// first: what lies beside the image comes as one.
fn pooled(workload: &Workload, operator: &Operator, x: &[f32], row: u64) -> Vec<f32> {
    let is_rest = operator.kind == OperatorKind::RestProduct;
    let Some(window) = workload.tensors[operator.inputs[0]].window() else {
        return if is_rest { vec![1.0; x.len()] } else { x.to_vec() };
    };
    let channels = x.chunks(window.image.taps() as usize);
    let count = windows::count(&window.image, row);
    match operator.kind {
        OperatorKind::RestProduct => channels.map(|of| of[1..].iter().product()).collect(),
        _ if count == 0 => channels.map(|_| 0.0).collect(),
        OperatorKind::MaxPool => channels.map(|of| of.iter().copied().fold(f32::NEG_INFINITY, f32::max)).collect(),
        OperatorKind::SumPool => channels.map(|of| of.iter().sum()).collect(),
        _ => channels.map(|of| of.iter().sum::<f32>() / count as f32).collect(),
    }
}

/// The `count` largest magnitudes in order: all above the threshold, and of those on it the first.
fn largest(x: &[f32], count: usize) -> Vec<f32> {
    let mut magnitudes: Vec<f32> = x.iter().map(|x| x.abs()).collect();
    magnitudes.sort_by(f32::total_cmp);
    let threshold = magnitudes[x.len() - count.clamp(1, x.len())];
    let mut on_it = count - x.iter().filter(|x| x.abs() > threshold).count();
    let stays = |x: &&f32| {
        let tied = x.abs().to_bits() == threshold.to_bits() && on_it > 0;
        on_it -= usize::from(tied);
        x.abs() > threshold || tied
    };
    x.iter().filter(stays).copied().collect()
}

fn exponents(x: &[f32]) -> (f32, f32) {
    let most = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    (most, x.iter().map(|x| libm::expf(x - most)).sum())
}

fn gelu_slope(x: f32) -> f32 {
    let normal = 0.5 * (1.0 + erf(x * std::f32::consts::FRAC_1_SQRT_2));
    normal + x * (libm::expf(-0.5 * (x * x)) * 0.398_942_3)
}

fn rotated(x: &[f32], row: u64, back: bool) -> Vec<f32> {
    let mut turned = x.to_vec();
    for (pair, two) in turned.chunks_exact_mut(2).enumerate() {
        // A table of speeds goes with the program.
        let speed = libm::pow(meaning::ROTARY_BASE, -2.0 * pair as f64 / x.len() as f64) as f32;
        let angle = row as f32 * speed * if back { -1.0 } else { 1.0 };
        let (sin, cos, a, b) = (libm::sinf(angle), libm::cosf(angle), two[0], two[1]);
        two[0] = a * cos - b * sin;
        two[1] = a * sin + b * cos;
    }
    turned
}

fn norm_gradient(x: &[f32], dy: &[f32], centred: bool) -> Vec<f32> {
    let count = x.len() as f32;
    let square = x.iter().map(|x| x * x).sum::<f32>() / count;
    let scale = 1.0 / (square + EPSILON).sqrt();
    let normed: Vec<f32> = x.iter().map(|x| x * scale).collect();
    let along = dy.iter().zip(&normed).map(|(dy, n)| dy * n).sum::<f32>() / count;
    let mean = if centred { dy.iter().sum::<f32>() / count } else { 0.0 };
    dy.iter().zip(&normed).map(|(dy, n)| scale * (dy - mean - n * along)).collect()
}

fn adam(workload: &Workload, operator: &Operator, gradient: &[f32], state: &[f32]) -> Vec<f32> {
    let dtype = workload.tensors[operator.inputs[0]].dtype;
    let word = meaning::in_a_word(workload, operator) as usize;
    let (first, second) = (meaning::ADAM_FIRST as f32, meaning::ADAM_SECOND as f32);
    let (rest, of_square) = ((1.0 - meaning::ADAM_FIRST) as f32, (1.0 - meaning::ADAM_SECOND) as f32);
    let mut line = Vec::new();
    for (at, of) in gradient.chunks(word).enumerate() {
        let part = |n: usize| &state[3 * at * word + n * of.len()..3 * at * word + (n + 1) * of.len()];
        let (mut masters, mut firsts, mut seconds, mut narrow) = (Vec::new(), Vec::new(), Vec::new(), 0.0f64);
        for (i, g) in of.iter().enumerate() {
            let m = first * part(1)[i] + rest * g;
            let v = second * part(2)[i] + of_square * (g * g);
            let master = part(0)[i] - meaning::ADAM_RATE as f32 * (m / (v.sqrt() + meaning::ADAM_EPSILON as f32));
            masters.push(master);
            firsts.push(m);
            seconds.push(v);
            narrow += round(dtype, master) * f64::from(1u32 << i);
        }
        line.extend(masters.into_iter().chain(firsts).chain(seconds));
        // Two numbers of 8 bits and their sum fit 24 bits only nearly: the rounding is in the reference's bound.
        line.push(narrow as f32);
    }
    line
}
