//! Second operands stored narrower than they are multiplied: integers, 8-bit floats and the formats of OCP Microscaling, with
//! scales for groups of elements.
//!
//! They lie so off chip and in PMUs, and are expanded to the data type of the product as they are read. Sources: FP8 formats,
//! Micikevicius et al. 2022, arXiv:2209.05433; MX formats, OCP Microscaling Formats (MX) Specification 1.0, 2023; NVFP4, NVIDIA Blackwell
//! whitepaper.

use rdusim_base::units::ElementFormat;

/// Vector operations that expand an element: a conversion, a multiplication by its scale (assumed).
pub const EXPANSION_STEPS: f64 = 2.0;

/// How scales are stored, and how one is chosen for the largest of its elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum ScaleFormat {
    /// bf16.
    Bf16,
    /// Of a whole tensor, fp32.
    Fp32,
    /// A power of two in eight bits.
    PowerOfTwo,
    /// E4M3, of a tensor whose own scale in fp32 is folded into the sums.
    Fp8,
}

impl ScaleFormat {
    fn bits(self) -> u64 {
        match self {
            Self::Bf16 => 16,
            Self::Fp32 => 32,
            Self::PowerOfTwo | Self::Fp8 => 8,
        }
    }
}

/// fp8 in blocks: as many rows as columns share a scale.
const FP8_BLOCK: &str = "fp8_block";

/// Columns that share a scale of a format.
fn columns_of_scale(format: &str) -> u64 {
    if format == FP8_BLOCK { 128 } else { 1 }
}

/// What a format is called in files, its elements and scales, and elements that share a scale where the format says.
pub(super) const FORMATS: [(&str, ElementFormat, ScaleFormat, Option<u64>); 8] = [
    ("int4", ElementFormat::Int(4), ScaleFormat::Bf16, None),
    ("int8", ElementFormat::Int(8), ScaleFormat::Bf16, None),
    ("fp8_e4m3", ElementFormat::E4M3, ScaleFormat::Fp32, None),
    ("fp8_e5m2", ElementFormat::E5M2, ScaleFormat::Fp32, None),
    ("mxfp8", ElementFormat::E4M3, ScaleFormat::PowerOfTwo, Some(32)),
    ("mxfp4", ElementFormat::Float { exponent: 2, mantissa: 1, most: 6 }, ScaleFormat::PowerOfTwo, Some(32)),
    ("nvfp4", ElementFormat::Float { exponent: 2, mantissa: 1, most: 6 }, ScaleFormat::Fp8, Some(16)),
    (FP8_BLOCK, ElementFormat::E4M3, ScaleFormat::Fp32, Some(128)),
];

/// How a second operand is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Packed {
    /// Its name in files.
    pub format: &'static str,
    /// Its elements.
    pub elements: ElementFormat,
    pub(super) scales: ScaleFormat,
    /// Elements one behind the other along the depth of the product that share a scale; all of a part where fp8 says no group.
    pub group: Option<u64>,
    /// The depth of the product lies along its rows; else, of a transposed operand, along its columns.
    pub depth_is_rows: bool,
    /// The depth: heads side by side each have their own.
    pub depth: u64,
    /// Rows of a part with scales of its own: a sequence or an expert has all of its own; else all rows.
    pub part_rows: u64,
    /// Of integers: each scale has a zero point, the integer that stands for zero, of as many bits as an element.
    pub has_zero_points: bool,
}

/// The grid that elements are stored on: value = (integer - zero) scale.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Grid {
    scale: f64,
    zero: f64,
}

impl Packed {
    /// Bytes of a matrix: elements and scales, part by part.
    pub fn bytes(&self, rows: u64, columns: u64) -> u64 {
        let part_rows = self.part_rows.clamp(1, rows.max(1));
        let bytes = u128::from(rows / part_rows) * self.bytes_of_part(part_rows, columns)
            + self.bytes_of_part(rows % part_rows, columns);
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    fn bytes_of_part(&self, rows: u64, columns: u64) -> u128 {
        let elements = u128::from(rows) * u128::from(columns) * u128::from(self.elements.bits());
        let count = u128::from(self.scales_of_part(rows, columns));
        let zeros = if self.has_zero_points { count * u128::from(self.elements.bits()) } else { 0 };
        let whole = if self.scales == ScaleFormat::Fp8 && rows > 0 { 4 } else { 0 };
        elements.div_ceil(8) + (count * u128::from(self.scales.bits())).div_ceil(8) + zeros.div_ceil(8) + whole
    }

    fn scales_of_part(&self, rows: u64, columns: u64) -> u64 {
        let Some(group) = self.group else { return u64::from(rows > 0) };
        let (along, others) = if self.depth_is_rows { (rows, columns) } else { (columns, rows) };
        let depth = self.depth.clamp(1, along.max(1));
        let others = others.div_ceil(columns_of_scale(self.format));
        (along / depth * depth.div_ceil(group) + (along % depth).div_ceil(group)).saturating_mul(others)
    }

    /// The scale of elements of which `largest` is the largest magnitude.
    fn scale(&self, largest: f64) -> f64 {
        if largest == 0.0 {
            return 1.0;
        }
        let exact = largest / self.elements.most();
        match self.scales {
            ScaleFormat::Bf16 => half::bf16::from_f64(exact).to_f64(),
            ScaleFormat::Fp32 => f64::from(exact as f32),
            ScaleFormat::Fp8 => match ElementFormat::E4M3.nearest(exact) {
                // Too small for E4M3: the tensor's scale brings it into range.
                0.0 => exact,
                scale => scale,
            },
            // The largest power of two of the elements is that of the largest element.
            ScaleFormat::PowerOfTwo => {
                (largest.log2().floor() - self.elements.most().log2().floor()).clamp(-127.0, 127.0).exp2()
            }
        }
    }

    /// The grid of elements from `least` to `most`.
    pub fn grid(&self, least: f64, most: f64) -> Grid {
        let ElementFormat::Int(bits) = self.elements else {
            return Grid { scale: self.scale(most.abs().max(least.abs())), zero: 0.0 };
        };
        if !self.has_zero_points {
            return Grid { scale: self.scale(most.abs().max(least.abs())), zero: 0.0 };
        }
        // All integers of so many bits, of which one is zero.
        let (least, most, steps) = (least.min(0.0), most.max(0.0), f64::from((1u32 << bits) - 1));
        let exact = (most - least) / steps;
        let scale = if exact == 0.0 { 1.0 } else { self.rounded_scale(exact) };
        Grid { scale, zero: (-least / scale).round_ties_even().clamp(0.0, steps) }
    }

    fn rounded_scale(&self, exact: f64) -> f64 {
        match self.scales {
            ScaleFormat::Fp32 => f64::from(exact as f32),
            _ => half::bf16::from_f64(exact).to_f64(),
        }
    }

    /// What an element is expanded to.
    pub fn expanded(&self, value: f64, grid: Grid) -> f64 {
        match self.elements {
            ElementFormat::Int(bits) if self.has_zero_points => {
                let steps = f64::from((1u32 << bits) - 1);
                ((value / grid.scale).round_ties_even() + grid.zero).clamp(0.0, steps) * grid.scale
                    - grid.zero * grid.scale
            }
            _ => self.elements.nearest(value / grid.scale) * grid.scale,
        }
    }
}

/// How a matrix is stored, as a file says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredAs<'a> {
    /// Name of the format.
    pub format: &'a str,
    /// Elements that share a scale, if not as usual.
    pub group: Option<u64>,
    /// Of integers: one scale for the matrix.
    pub has_one_scale: bool,
    /// Of integers: each scale has a zero point.
    pub has_zero_points: bool,
}

impl StoredAs<'_> {
    /// Bytes of a matrix of `rows`, the depth of its products, by `columns`; `None` of a format that is not known.
    pub fn bytes(&self, rows: u64, columns: u64) -> Option<u64> {
        let &(format, elements, scales, fixed) = FORMATS.iter().find(|(name, ..)| *name == self.format)?;
        let is_whole = scales == ScaleFormat::Fp32 || self.has_one_scale;
        let whole = if is_whole { None } else { Some(super::limits::MAX_DIM) };
        let scales = if self.group.is_some() { ScaleFormat::Bf16 } else { scales };
        let packed = Packed {
            format,
            elements,
            scales,
            group: fixed.or(self.group).or(whole),
            depth_is_rows: true,
            depth: rows,
            part_rows: rows,
            has_zero_points: self.has_zero_points,
        };
        Some(packed.bytes(rows, columns))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::limits::MAX_DIM;
    use super::*;

    fn format(name: &str, group: Option<u64>) -> Packed {
        let &(format, elements, scales, fixed) = FORMATS.iter().find(|(known, ..)| *known == name).unwrap();
        let (depth, part_rows) = (4096, 4096);
        let has_zero_points = false;
        Packed {
            format,
            elements,
            scales,
            group: fixed.or(group),
            depth_is_rows: true,
            depth,
            part_rows,
            has_zero_points,
        }
    }

    #[test]
    fn bytes_are_those_of_elements_and_scales() {
        // 4,096 x 1,024 at 4 bits, a bf16 scale for 128 rows of each column: 2 MiB and 32 x 1,024 x 2 B.
        assert_eq!(format("int4", Some(128)).bytes(4096, 1024), 2_097_152 + 65_536);
        assert_eq!(format("int8", Some(MAX_DIM)).bytes(4096, 1024), 4_194_304 + 2 * 1024);
        assert_eq!(format("fp8_e4m3", None).bytes(4096, 1024), 4_194_304 + 4);
        // 4.25 bits an element (OCP MX 1.0).
        assert_eq!(format("mxfp4", None).bytes(4096, 1024) * 8, 4096 * 1024 * 17 / 4);
        // 4.5 bits an element, and a scale of four bytes.
        assert_eq!(format("nvfp4", None).bytes(4096, 1024), 4096 * 1024 * 9 / 16 + 4);
        // 4,096 x 1,000 in blocks of 128 x 128: 32 x 8 scales of four bytes.
        assert_eq!(format("fp8_block", None).bytes(4096, 1000), 4_096_000 + 32 * 8 * 4);
        // Two heads of 50 side by side: two groups each, in every row.
        let keys = Packed { depth_is_rows: false, depth: 50, ..format("int4", Some(32)) };
        assert_eq!(keys.bytes(10, 100), 500 + 10 * 2 * 2 * 2);
        // Two sequences of 33 rows: 2 groups each, or one scale each.
        let of_sequences = |format: Packed| Packed { depth: 33, part_rows: 33, ..format };
        assert_eq!(of_sequences(format("mxfp4", None)).bytes(66, 20), 2 * (330 + 2 * 20));
        assert_eq!(of_sequences(format("fp8_e4m3", None)).bytes(66, 20), 2 * (660 + 4));
    }

    #[test]
    fn values_are_those_of_the_formats() {
        let e4m3 = format("fp8_e4m3", None).elements;
        for (value, nearest) in [
            (448.0, 448.0),
            (1e9, 448.0),
            (0.001_953_125, 0.001_953_125),
            (0.0009, 0.0),
            (17.0, 16.0),
            (19.0, 20.0),
            (f64::INFINITY, 448.0),
        ] {
            assert_eq!(e4m3.nearest(value).to_bits(), f64::to_bits(nearest), "{value}");
            assert_eq!(e4m3.nearest(-value).to_bits(), f64::to_bits(-nearest), "{value}");
        }
        let e5m2 = format("fp8_e5m2", None).elements;
        assert_eq!((e5m2.nearest(60000.0), e5m2.nearest(9.0)).0.to_bits(), 57344.0f64.to_bits());
        let e2m1: Vec<f64> =
            (0..=60).map(|tenth| format("mxfp4", None).elements.nearest(f64::from(tenth) / 10.0)).collect();
        let mut different = e2m1.clone();
        different.dedup();
        assert_eq!(different, [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]);
        assert_eq!(format("int4", None).elements.nearest(-8.0).to_bits(), (-7.0f64).to_bits());
    }

    #[test]
    fn zero_points_are_stored_and_shift_the_grid() {
        // A scale of 4 bytes and a zero point of one for each of 1,024 columns; of a whole tensor, one of each.
        let of_columns = Packed { has_zero_points: true, scales: ScaleFormat::Fp32, ..format("int8", Some(MAX_DIM)) };
        assert_eq!(of_columns.bytes(4096, 1024), 4_194_304 + 4 * 1024 + 1024);
        assert_eq!(Packed { group: None, ..of_columns }.bytes(4096, 1024), 4_194_304 + 5);
        // Two zero points of four bits share a byte.
        let narrow = Packed { has_zero_points: true, ..format("int4", Some(128)) };
        assert_eq!(narrow.bytes(4096, 1024), 2_097_152 + 65_536 + 32 * 1024 / 2);
        // From -1 to 3 in 255 steps: zero is exact, as is the step; beyond the range values saturate.
        let grid = of_columns.grid(-1.0, 3.0);
        assert_eq!(of_columns.expanded(0.0, grid).to_bits(), 0.0f64.to_bits());
        for value in [-1.0, -0.3, 0.77, 2.999] {
            assert!((of_columns.expanded(value, grid) - value).abs() <= 2.0 / 255.0 * 1.001, "{value}");
        }
        assert!(of_columns.expanded(9.0, grid) < 3.1 && of_columns.expanded(-9.0, grid) > -1.1);
    }

    proptest! {
        /// What is expanded differs from what was stored by half a step of the format at most: of integers half a scale, of floats
        /// a part of the value that the mantissa says, or half the smallest step.
        #[test]
        fn errors_stay_within_the_bounds_of_the_formats(values in prop::collection::vec(-3.0f64..3.0, 1..64), which in 0..FORMATS.len()) {
            let packed = format(FORMATS[which].0, None);
            let largest = values.iter().fold(0.0f64, |most, value| most.max(value.abs()));
            let scale = packed.scale(largest);
            let grid = packed.grid(-largest, largest);
            for value in values {
                let error = (packed.expanded(value, grid) - value).abs();
                let most = packed.elements.most() * scale;
                // A rounded scale, or one that is a power of two, may leave the largest beyond the range.
                let beyond = (value.abs() - most).max(0.0);
                let bound = match packed.elements {
                    ElementFormat::Int(_) => scale / 2.0,
                    ElementFormat::Float { exponent, mantissa, .. } => {
                        let relative = f64::from(-1 - mantissa).exp2() * value.abs();
                        relative.max(scale * f64::from(1 - (1 << (exponent - 1)) - mantissa + 1).exp2() / 2.0)
                    }
                };
                prop_assert!(error <= bound.max(beyond) * (1.0 + 1e-9), "{} {value}: {error} beyond {bound}", packed.format);
            }
        }
    }
}
