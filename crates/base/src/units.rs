//! Number formats (FP8: Micikevicius et al. 2022, arXiv:2209.05433), data types, exact rates, and conversions to narrower integers, shared by every module.

use serde::{Deserialize, Serialize};

/// A whole number with commas: `5,767,168`.
pub fn whole(value: u64) -> String {
    let plain = value.to_string();
    let mut text = String::with_capacity(plain.len() + plain.len() / 3);
    for (at, digit) in plain.chars().enumerate() {
        if at > 0 && (plain.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// One mebibyte in bytes.
pub const MIB: u64 = 1 << 20;

/// A size in bytes as messages print it: in the largest binary unit that leaves a whole part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteSize(pub u64);

impl std::fmt::Display for ByteSize {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const UNITS: [(u64, &str); 4] = [(1 << 40, "TiB"), (1 << 30, "GiB"), (MIB, "MiB"), (1 << 10, "KiB")];
        match UNITS.iter().find(|(size, _)| self.0 >= *size) {
            Some((size, unit)) => write!(f, "{:.2} {unit}", self.0 as f64 / *size as f64),
            None => write!(f, "{} bytes", self.0),
        }
    }
}

/// An amount of data in bytes. A type of its own where bytes and flits meet: one becomes the other by [`Bytes::flits`] alone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

impl Bytes {
    /// Flits of `flit_bytes` that carry it; the last may be partly empty.
    #[inline]
    pub const fn flits(self, flit_bytes: u64) -> Flits {
        Flits(self.0.div_ceil(flit_bytes))
    }
}

/// An amount of data in flits of the chip's vector network.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Flits(pub u64);

/// A count as an index. Hosts have 64-bit words (`lib.rs` refuses others), so that nothing is lost.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "lossless on 64-bit hosts")]
pub const fn index(count: u64) -> usize {
    count as usize
}

/// A product of two counts, or the largest count if it is larger.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "within the range that is asked for before")]
pub const fn saturating_u64(count: u128) -> u64 {
    if count > u64::MAX as u128 { u64::MAX } else { count as u64 }
}

/// A count, or the largest of 32 bits if it is larger.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "within the range that is asked for before")]
pub const fn saturating_u32(count: u64) -> u32 {
    if count > u32::MAX as u64 { u32::MAX } else { count as u32 }
}

/// An index of a table that has fewer than 2^32 places.
#[inline]
pub const fn index_u32(index: usize) -> u32 {
    saturating_u32(index as u64)
}

/// An index of a table that has fewer than 256 places.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "within the range that is asked for before")]
pub const fn index_u8(index: usize) -> u8 {
    if index > u8::MAX as usize { u8::MAX } else { index as u8 }
}

/// The largest count that is no larger than a number; 0 of negative numbers and of what is no number.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "conversions from floating point saturate")]
pub const fn floor_u64(number: f64) -> u64 {
    number as u64
}

/// Element type of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// bfloat16: 8 exponent bits, 7 mantissa bits.
    Bf16,
    /// IEEE half precision.
    Fp16,
    /// IEEE single precision.
    Fp32,
    /// Signed 8-bit integer.
    Int8,
    /// 8-bit float with 4 exponent and 3 mantissa bits, no infinities, at most 448 (Micikevicius et al. 2022, arXiv:2209.05433).
    #[serde(rename = "fp8_e4m3")]
    Fp8E4m3,
    /// 8-bit float with 5 exponent and 2 mantissa bits, at most 57,344.
    #[serde(rename = "fp8_e5m2")]
    Fp8E5m2,
}

impl Dtype {
    /// Every data type, in a fixed order.
    pub const ALL: [Self; 6] = [Self::Bf16, Self::Fp16, Self::Fp32, Self::Int8, Self::Fp8E4m3, Self::Fp8E5m2];

    /// Size of one element in bytes.
    pub fn bytes(self) -> u64 {
        match self {
            Self::Bf16 | Self::Fp16 => 2,
            Self::Fp32 => 4,
            Self::Int8 | Self::Fp8E4m3 | Self::Fp8E5m2 => 1,
        }
    }

    /// Whether numbers beyond its range become its largest: of the types of 8 bits.
    pub fn saturates(self) -> bool {
        self.bytes() == 1
    }

    /// The format of its elements if it has 8 bits.
    pub fn element(self) -> Option<ElementFormat> {
        match self {
            Self::Bf16 | Self::Fp16 | Self::Fp32 => None,
            Self::Int8 => Some(ElementFormat::Int(8)),
            Self::Fp8E4m3 => Some(ElementFormat::E4M3),
            Self::Fp8E5m2 => Some(ElementFormat::E5M2),
        }
    }

    /// Whether it has every number of another type: significands as wide, exponents as far.
    pub fn holds(self, other: Self) -> bool {
        match self {
            Self::Fp32 => true,
            Self::Bf16 | Self::Fp16 => other == self || other.saturates(),
            Self::Int8 | Self::Fp8E4m3 | Self::Fp8E5m2 => other == self,
        }
    }

    /// The name used in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bf16 => "bf16",
            Self::Fp16 => "fp16",
            Self::Fp32 => "fp32",
            Self::Int8 => "int8",
            Self::Fp8E4m3 => "fp8_e4m3",
            Self::Fp8E5m2 => "fp8_e5m2",
        }
    }
}

impl std::fmt::Display for Dtype {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// How a number of few bits is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ElementFormat {
    /// A signed integer of so many bits; the least is left out, so that the range is symmetric.
    Int(u32),
    /// A float: bits of exponent and mantissa, and the largest finite value.
    Float {
        /// Bits of the exponent; its bias is half its range.
        exponent: i32,
        /// Bits of the mantissa.
        mantissa: i32,
        /// The largest value.
        most: u32,
    },
}

impl ElementFormat {
    /// Of `fp8_e4m3`.
    pub const E4M3: Self = Self::Float { exponent: 4, mantissa: 3, most: 448 };
    /// Of `fp8_e5m2`.
    pub const E5M2: Self = Self::Float { exponent: 5, mantissa: 2, most: 57344 };

    /// Bits of an element.
    pub fn bits(self) -> u64 {
        u64::from(match self {
            Self::Int(bits) => bits,
            Self::Float { exponent, mantissa, .. } => (1 + exponent + mantissa).unsigned_abs(),
        })
    }

    /// The largest value; of integers the range is taken to be symmetric.
    pub fn most(self) -> f64 {
        match self {
            Self::Int(bits) => f64::from((1u32 << (bits - 1)) - 1),
            Self::Float { most, .. } => f64::from(most),
        }
    }

    /// The nearest value that can be stored, ties to even, saturating.
    pub fn nearest(self, value: f64) -> f64 {
        let most = self.most();
        match self {
            Self::Int(_) => value.round_ties_even().clamp(-most, most),
            Self::Float { exponent, mantissa, .. } => {
                let value = value.clamp(-most, most);
                let least_power = 2 - (1 << (exponent - 1));
                let power =
                    if value == 0.0 { least_power } else { (value.abs().log2().floor() as i32).max(least_power) };
                let step = f64::from(power - mantissa).exp2();
                (value / step).round_ties_even() * step
            }
        }
    }
}

/// An exact transfer rate: `bytes` every `cycles`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Bytes moved ...
    pub bytes: u64,
    /// ... in this many cycles.
    pub cycles: u64,
}

impl Rate {
    /// The rate of a link of `bytes_per_s` seen from a clock of `clock_hz`.
    pub fn from_bandwidth(bytes_per_s: u64, clock_hz: u64) -> Self {
        Self { bytes: bytes_per_s, cycles: clock_hz }
    }

    /// Whole time units (of which a cycle has `ticks_per_cycle`) that `bytes` take, rounded up.
    pub fn ticks(self, bytes: u64, ticks_per_cycle: u64) -> u64 {
        let work = u128::from(bytes) * u128::from(self.cycles) * u128::from(ticks_per_cycle);
        u64::try_from(work.div_ceil(u128::from(self.bytes))).unwrap_or(u64::MAX)
    }

    /// Cycles that `bytes` take, rounded up.
    pub fn cycles_for(self, bytes: u64) -> u64 {
        self.ticks(bytes, 1)
    }

    /// Bytes a cycle, for printing.
    pub fn bytes_per_cycle(self) -> f64 {
        self.bytes as f64 / self.cycles as f64
    }
}

#[cfg(test)]
mod tests {
    use super::ByteSize;

    #[test]
    fn sizes_have_a_unit_that_leaves_a_whole_part() {
        let text = |bytes| ByteSize(bytes).to_string();
        assert_eq!(text(0), "0 bytes");
        assert_eq!(text(1023), "1023 bytes");
        assert_eq!(text(1536), "1.50 KiB");
        assert_eq!(text(412 << 20), "412.00 MiB");
        assert_eq!(text(u64::MAX), "16777216.00 TiB");
    }
}
