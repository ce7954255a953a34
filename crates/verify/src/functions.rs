//! The functions of the PCU's tail and SIMD pipeline, in the chip's fp32. The reference has its own.

use rdusim_graph::workload::OperatorKind;

/// Added to the variance or mean square of a norm.
const EPSILON: f32 = 1e-5;

/// An elementwise function of one operand.
pub(super) fn unary(kind: OperatorKind, x: f32) -> f32 {
    match kind {
        OperatorKind::Gelu => 0.5 * x * (1.0 + erf(x * std::f32::consts::FRAC_1_SQRT_2)),
        OperatorKind::Relu => x.max(0.0),
        OperatorKind::Silu => x * sigmoid(x),
        OperatorKind::Sigmoid => sigmoid(x),
        OperatorKind::Tanh => tanh(x),
        OperatorKind::Softplus => x.max(0.0) + libm::log1pf(libm::expf(-x.abs())),
        _ => x,
    }
}

/// An elementwise function of two operands.
pub(super) fn binary(kind: OperatorKind, a: f32, b: f32) -> f32 {
    match kind {
        OperatorKind::Mul => a * b,
        OperatorKind::Sub => a - b,
        _ => a + b,
    }
}

/// A function along a row, or a head of it, whose sink takes part in a softmax if it has one.
pub(super) fn along_row(kind: OperatorKind, row: &mut [f32], sink: Option<f32>) {
    let count = row.len() as f32;
    match kind {
        OperatorKind::Softmax => {
            let most = row.iter().copied().fold(sink.unwrap_or(f32::NEG_INFINITY), f32::max);
            let mut sum = sink.map_or(0.0, |sink| libm::expf(sink - most));
            for x in row.iter_mut() {
                *x = libm::expf(*x - most);
                sum += *x;
            }
            let share = 1.0 / sum;
            for x in row.iter_mut() {
                *x *= share;
            }
        }
        OperatorKind::LayerNorm => {
            let mean = row.iter().sum::<f32>() / count;
            let variance = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f32>() / count;
            let scale = 1.0 / (variance + EPSILON).sqrt();
            for x in row.iter_mut() {
                *x = (*x - mean) * scale;
            }
        }
        OperatorKind::RmsNorm => {
            let square = row.iter().map(|x| x * x).sum::<f32>() / count;
            let scale = 1.0 / (square + EPSILON).sqrt();
            for x in row.iter_mut() {
                *x *= scale;
            }
        }
        _ => {}
    }
}

pub(super) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + libm::expf(-x))
}

fn tanh(x: f32) -> f32 {
    // Small arguments would cancel.
    if x.abs() < 0.1 {
        let square = x * x;
        return x * (1.0 - square * (1.0 / 3.0 - square * (2.0 / 15.0 - square * (17.0 / 315.0))));
    }
    2.0 * sigmoid(2.0 * x) - 1.0
}

/// Abramowitz and Stegun, 7.1.26: a fifth-order polynomial and one exponential, off by at most 1.5e-7.
pub(super) fn erf(x: f32) -> f32 {
    let t = 1.0 / (1.0 + 0.327_591_1 * x.abs());
    let poly = ((((1.061_405_4 * t - 1.453_152) * t) + 1.421_413_8) * t - 0.284_496_72) * t + 0.254_829_6;
    (1.0 - poly * t * libm::expf(-x * x)).copysign(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_near_those_of_double_precision() {
        for i in -4000..4000 {
            let x = 0.0025 * f64::from(i);
            let near = |kind, exact: f64, within: f64| {
                let off = (f64::from(unary(kind, x as f32)) - exact).abs();
                assert!(off <= within, "{kind:?}({x}) is off by {off}");
            };
            near(OperatorKind::Gelu, 0.5 * x * (1.0 + libm::erf(x / 2f64.sqrt())), 3e-7 * (1.0 + x.abs()));
            near(OperatorKind::Tanh, x.tanh(), 3e-7);
            near(OperatorKind::Softplus, x.exp().ln_1p(), 3e-7 * (1.0 + x.abs()));
            near(OperatorKind::Silu, x / (1.0 + (-x).exp()), 5e-7 * (1.0 + x.abs()));
        }
    }
}
