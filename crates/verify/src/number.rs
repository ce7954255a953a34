//! Number formats as the chip rounds to them.

use half::{bf16, f16};

use rdusim_base::units::{Dtype, ElementFormat};

/// Rounds to a data type, to nearest, ties to even; integers saturate.
pub(super) fn round(dtype: Dtype, value: f32) -> f64 {
    match dtype {
        Dtype::Bf16 => bf16::from_f32(value).to_f64(),
        Dtype::Fp16 => f16::from_f32(value).to_f64(),
        Dtype::Fp32 => f64::from(value),
        Dtype::Int8 => round_int8(f64::from(value)),
        Dtype::Fp8E4m3 => ElementFormat::E4M3.nearest(f64::from(value)),
        Dtype::Fp8E5m2 => ElementFormat::E5M2.nearest(f64::from(value)),
    }
}

/// The nearest 8-bit integer, ties to even, saturating.
pub(super) fn round_int8(value: f64) -> f64 {
    value.round_ties_even().clamp(-128.0, 127.0)
}

/// Unit roundoff of a data type: half the distance of neighbours, relative. Integers: none, see [`int8_error`].
pub(super) fn roundoff(dtype: Dtype) -> f64 {
    match dtype {
        Dtype::Bf16 => exp2(-8),
        Dtype::Fp16 => exp2(-11),
        Dtype::Fp32 => exp2(-24),
        Dtype::Int8 => 0.0,
        Dtype::Fp8E4m3 => exp2(-4),
        Dtype::Fp8E5m2 => exp2(-3),
    }
}

/// Half the distance of the smallest numbers.
fn underflow(dtype: Dtype) -> f64 {
    match dtype {
        Dtype::Bf16 => exp2(-134),
        Dtype::Fp16 => exp2(-25),
        Dtype::Fp32 => exp2(-150),
        Dtype::Int8 => 0.0,
        Dtype::Fp8E4m3 => exp2(-10),
        Dtype::Fp8E5m2 => exp2(-17),
    }
}

/// Two to a power, from -1022 to 1023.
pub(super) fn exp2(power: i32) -> f64 {
    f64::from_bits(((1023 + i64::from(power)) as u64) << 52)
}

/// How far a number may be off after rounding to `dtype`, if it is `value` and off by `error` before.
pub(super) fn rounded_error(dtype: Dtype, value: f64, error: f64) -> f64 {
    match dtype {
        Dtype::Int8 => int8_error(error),
        // A masked score.
        _ if value.is_infinite() => 0.0,
        _ => error + roundoff(dtype) * (value.abs() + error) + underflow(dtype),
    }
}

/// Both sides round to the same integer if nothing is off before; else they may fall on two sides of a half.
fn int8_error(error: f64) -> f64 {
    if error == 0.0 { 0.0 } else { error + 1.0 }
}

/// The power of two by which the tail divides an `int8` GEMM's 32-bit sums over `k` products before they become `int8`:
/// about 134 sqrt(k), so that products of uniform numbers use a third of the range.
pub(super) fn requantisation_shift(k: u64) -> i32 {
    let bits = u64::BITS - k.saturating_sub(1).leading_zeros();
    7 + bits.div_ceil(2).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_stays_within_its_bound() {
        for dtype in Dtype::ALL.into_iter().filter(|dtype| *dtype != Dtype::Int8) {
            for i in 1..2000 {
                let value = 0.013 * f64::from(i) - 11.0;
                let off = (round(dtype, value as f32) - f64::from(value as f32)).abs();
                assert!(off <= rounded_error(dtype, value, 0.0), "{dtype} {value}");
            }
        }
        assert_eq!([2.5, 3.5, 300.0, -300.0].map(|x| round_int8(x) as i32), [2, 4, 127, -128]);
    }

    #[test]
    fn shifts_grow_with_the_root_of_k() {
        assert_eq!([1, 2, 4, 5, 16, 1024].map(requantisation_shift), [7, 8, 8, 9, 9, 12]);
    }
}
