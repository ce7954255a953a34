//! Numbers as they lie in binary files.

use std::io::Read;

use super::error::ReadError;
use super::sink::Sink;

/// Bytes read at a time.
const CHUNK_BYTES: usize = 1 << 16;

/// How a number is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Number {
    /// A binary float with this many exponent and mantissa bits; with `special` the largest exponent holds infinities
    /// and what is no number, else only all ones do.
    Float { exponent: u32, mantissa: u32, special: bool },
    /// Two's complement.
    Signed,
    /// Without a sign; also truth values.
    Unsigned,
}

/// An element: its number, bytes, and order of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Element {
    pub(super) number: Number,
    pub(super) bytes: usize,
    pub(super) big_endian: bool,
}

pub(super) const F64: Number = Number::Float { exponent: 11, mantissa: 52, special: true };
pub(super) const F32: Number = Number::Float { exponent: 8, mantissa: 23, special: true };
pub(super) const F16: Number = Number::Float { exponent: 5, mantissa: 10, special: true };
pub(super) const BF16: Number = Number::Float { exponent: 8, mantissa: 7, special: true };
pub(super) const F8_E5M2: Number = Number::Float { exponent: 5, mantissa: 2, special: true };
pub(super) const F8_E4M3: Number = Number::Float { exponent: 4, mantissa: 3, special: false };

impl Element {
    /// The magnitude of the element in `bytes` (as many as it has).
    fn magnitude(self, bytes: &[u8]) -> f64 {
        let join = |sum: u64, &byte: &u8| sum << 8 | u64::from(byte);
        let bits = if self.big_endian { bytes.iter().fold(0, join) } else { bytes.iter().rev().fold(0, join) };
        match self.number {
            Number::Unsigned => bits as f64,
            Number::Signed => {
                let unused = 64 - 8 * self.bytes as u32;
                ((bits << unused).cast_signed() >> unused).unsigned_abs() as f64
            }
            Number::Float { exponent, mantissa, special } => float(bits, exponent, mantissa, special),
        }
    }
}

/// The magnitude of a binary float.
fn float(bits: u64, exponent_bits: u32, mantissa_bits: u32, special: bool) -> f64 {
    let mantissa = bits & ((1 << mantissa_bits) - 1);
    let largest = (1u64 << exponent_bits) - 1;
    let exponent = bits >> mantissa_bits & largest;
    let ones = mantissa == (1 << mantissa_bits) - 1;
    if exponent == largest && special {
        return if mantissa == 0 { f64::INFINITY } else { f64::NAN };
    }
    if exponent == largest && ones {
        return f64::NAN;
    }
    let bias = (largest / 2).cast_signed() as i32;
    // Below the least normal number the leading one is missing.
    let (leading, exponent) = if exponent == 0 { (0, 1) } else { (1u64 << mantissa_bits, exponent as i32) };
    let scale = exponent - bias - mantissa_bits.cast_signed();
    // In two steps: the least numbers of 64 bits have no power of two of their own.
    (leading | mantissa) as f64 * 2f64.powi(scale / 2) * 2f64.powi(scale - scale / 2)
}

/// Streams `rows` x `columns` elements, by rows or by columns, into a sink that knows the shape.
pub(super) fn stream(
    mut input: impl Read,
    element: Element,
    rows: u64,
    columns: u64,
    by_columns: bool,
    sink: &mut dyn Sink,
) -> Result<(), ReadError> {
    let (outer, inner) = if by_columns { (columns, rows) } else { (rows, columns) };
    let mut buffer = vec![0; CHUNK_BYTES];
    let most = (CHUNK_BYTES / element.bytes) as u64;
    for line in 0..outer {
        let mut at = 0;
        while at < inner {
            let count = most.min(inner - at);
            let part = &mut buffer[..count as usize * element.bytes];
            input.read_exact(part).map_err(|error| match error.kind() {
                std::io::ErrorKind::UnexpectedEof => {
                    let whole = u128::from(rows) * u128::from(columns) * element.bytes as u128;
                    ReadError::new(format!("the file ends early: {rows} x {columns} elements take {whole} bytes"))
                }
                _ => error.into(),
            })?;
            for bytes in part.chunks_exact(element.bytes) {
                let magnitude = element.magnitude(bytes);
                let (row, column) = if by_columns { (at, line) } else { (line, at) };
                sink.entry(row, column, magnitude)?;
                at += 1;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(number: Number, bytes: &[u8]) -> f64 {
        Element { number, bytes: bytes.len(), big_endian: false }.magnitude(bytes)
    }

    #[test]
    #[expect(clippy::float_cmp, reason = "conversions of binary floats are exact")]
    fn floats_are_what_they_are() {
        for value in [0.0f32, -1.5, 3.25e-41, f32::MAX, f32::MIN_POSITIVE] {
            assert_eq!(of(F32, &value.to_le_bytes()), f64::from(value.abs()));
        }
        for value in [0.0f64, -2.5, 5e-324, f64::MAX] {
            assert_eq!(of(F64, &value.to_le_bytes()), value.abs());
        }
        assert_eq!(of(F16, &0x3c00u16.to_le_bytes()), 1.0);
        assert_eq!(of(F16, &0x8001u16.to_le_bytes()), 2f64.powi(-24));
        assert_eq!(of(BF16, &0xc040u16.to_le_bytes()), 3.0);
        assert_eq!(of(F8_E4M3, &[0x7e]), 448.0);
        assert_eq!(of(F8_E5M2, &[0x7b]), 57344.0);
        assert!(of(F8_E4M3, &[0xff]).is_nan() && of(F16, &0x7e00u16.to_le_bytes()).is_nan());
        assert_eq!(of(F16, &0xfc00u16.to_le_bytes()), f64::INFINITY);
    }

    #[test]
    #[expect(clippy::float_cmp, reason = "small integers are exact")]
    fn integers_are_what_they_are() {
        assert_eq!(of(Number::Signed, &(-7i16).to_le_bytes()), 7.0);
        assert_eq!(of(Number::Signed, &i64::MIN.to_le_bytes()), 2f64.powi(63));
        assert_eq!(of(Number::Unsigned, &[200]), 200.0);
        let big = Element { number: Number::Signed, bytes: 2, big_endian: true };
        assert_eq!(big.magnitude(&(-300i16).to_be_bytes()), 300.0);
    }
}
