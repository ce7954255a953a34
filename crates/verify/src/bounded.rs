//! Numbers with a bound on how far fp32 may be off: the arithmetic that the reference's functions along rows are written in.
//!
//! Every operation gives the exact result of the exact operands, and carries forward what the chip's operands may be off
//! by, with the rounding of its own result to fp32.

use std::ops::{Add, Mul, Sub};

/// Unit roundoff of fp32, in which sums are kept and functions computed.
pub(super) const FP32: f64 = 5.960_464_477_539_063e-8;
/// Half the distance of the smallest fp32 numbers.
const TINY: f64 = 7.1e-46;
/// Ulps that a function of the chip's library may be off by.
const ULPS: f64 = 4.0;

/// By how much of its magnitudes a sum of `k` products may be off.
pub(super) fn growth(k: usize, whole: bool) -> f64 {
    let count = (k + 1) as f64 * FP32;
    if whole { 0.0 } else { count / (1.0 - count) }
}

/// A number of the reference, and how far the chip's may be off from it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Real {
    pub(super) value: f64,
    pub(super) error: f64,
}

impl Real {
    /// The product of numbers, one if there are none.
    pub(super) fn product(numbers: impl Iterator<Item = Self>) -> Self {
        numbers.reduce(|product, number| product * number).unwrap_or(Self::exact(1.0))
    }

    pub(super) fn new(value: f64, error: f64) -> Self {
        Self { value, error }
    }

    /// A number that both sides have.
    pub(super) fn exact(value: f64) -> Self {
        Self { value, error: 0.0 }
    }

    /// A constant that the chip has rounded to fp32.
    pub(super) fn constant(value: f64) -> Self {
        Self { value, error: FP32 * value.abs() }
    }

    fn rounded(value: f64, error: f64) -> Self {
        Self { value, error: error + FP32 * (value.abs() + error) + TINY }
    }

    /// The largest magnitude the chip's number can have.
    fn most(self) -> f64 {
        self.value.abs() + self.error
    }

    /// A sum, in any order.
    pub(super) fn sum(terms: impl Iterator<Item = Self> + Clone) -> Self {
        let count = terms.clone().count() as f64;
        let value = terms.clone().map(|t| t.value).sum();
        let error = terms.clone().map(|t| t.error).sum::<f64>();
        let magnitudes: f64 = terms.map(Self::most).sum();
        Self { value, error: error + count * FP32 * magnitudes * (1.0 + count * FP32) + TINY }
    }

    /// A mean, in any order.
    pub(super) fn mean(terms: impl Iterator<Item = Self> + Clone) -> Self {
        let count = terms.clone().count() as f64;
        Self::sum(terms).over(Self::exact(count))
    }

    /// A quotient; a divisor that may be zero gives an unbounded error.
    pub(super) fn over(self, by: Self) -> Self {
        let value = self.value / by.value;
        let least = by.value.abs() - by.error;
        let error = if least > 0.0 { (self.error + value.abs() * by.error) / least } else { f64::INFINITY };
        Self::rounded(value, error)
    }

    pub(super) fn exp(self) -> Self {
        let value = libm::exp(self.value);
        let error = value * (libm::expm1(self.error.min(700.0)) + ULPS * FP32);
        Self::rounded(value, error)
    }

    pub(super) fn ln(self) -> Self {
        let value = libm::log(self.value);
        let least = self.value - self.error;
        let error = if least > 0.0 { self.error / least } else { f64::INFINITY };
        Self::rounded(value, error + ULPS * FP32 * value.abs())
    }

    /// A root; of what may be zero by rounding, at most as far off as the root of that.
    pub(super) fn sqrt(self) -> Self {
        let value = self.value.max(0.0).sqrt();
        let least = (self.value - self.error).max(0.0).sqrt();
        let error = if value + least > 0.0 { (self.error / (value + least)).min(self.error.sqrt()) } else { 0.0 };
        Self::rounded(value, error.max(0.0))
    }

    /// The logistic function.
    pub(super) fn sigmoid(self) -> Self {
        let value = 1.0 / (1.0 + libm::exp(-self.value));
        Self::rounded(value, 0.25 * self.error + 2.0 * ULPS * FP32)
    }

    /// The normal distribution function, on the chip with a polynomial for erf that is 1.5e-7 off.
    pub(super) fn normal(self) -> Self {
        let value = 0.5 * (1.0 + libm::erf(self.value / std::f64::consts::SQRT_2));
        Self::rounded(value, 0.4 * self.error + 1.5e-7 + ULPS * FP32)
    }

    pub(super) fn sin(self) -> Self {
        Self::rounded(libm::sin(self.value), self.error.min(2.0) + ULPS * FP32)
    }

    pub(super) fn cos(self) -> Self {
        Self::rounded(libm::cos(self.value), self.error.min(2.0) + ULPS * FP32)
    }

    /// The greatest: as far off as the one that is farthest off.
    pub(super) fn greatest(terms: impl Iterator<Item = Self>) -> Self {
        terms.fold(Self::exact(f64::NEG_INFINITY), |a, b| Self {
            value: a.value.max(b.value),
            error: if b.value == f64::NEG_INFINITY { a.error } else { a.error.max(b.error) },
        })
    }
}

impl Add for Real {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self::rounded(self.value + other.value, self.error + other.error)
    }
}

impl Sub for Real {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self::rounded(self.value - other.value, self.error + other.error)
    }
}

impl Mul for Real {
    type Output = Self;
    fn mul(self, other: Self) -> Self {
        let error = self.value.abs() * other.error + other.value.abs() * self.error + self.error * other.error;
        Self::rounded(self.value * other.value, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_bound_holds_what_fp32_gives(a in -30.0f32..30.0, b in 0.01f32..30.0, off in -1e-3f32..1e-3) {
            let (x, y) = (Real::new(f64::from(a), f64::from(off.abs())), Real::exact(f64::from(b)));
            // The chip's argument is off, and rounded.
            let c = a + off;
            let x = Real { error: x.error + FP32 * x.most(), ..x };
            let near = |bound: Real, got: f32| (f64::from(got) - bound.value).abs() <= bound.error;
            prop_assert!(near(x + y, c + b) && near(x - y, c - b) && near(x * y, c * b) && near(x.over(y), c / b));
            prop_assert!(near(y.ln(), libm::logf(b)) && near(y.sqrt(), b.sqrt()) && near(x.exp(), libm::expf(c)));
            prop_assert!(near(x.sigmoid(), 1.0 / (1.0 + libm::expf(-c))) && near(x.sin(), libm::sinf(c)));
            let terms = [x, y, x, y];
            prop_assert!(near(Real::sum(terms.into_iter()), c + b + c + b) && near(x.cos(), libm::cosf(c)));
        }
    }
}
