//! A line of a file of measurements: its columns by name, and errors that say where.

use std::collections::BTreeMap;

use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::units::Dtype;
use rdusim_machines::gpu::ProductFormat;

/// Columns of a time, and the microseconds of its unit.
pub(super) const TIMES: [(&str, f64); 5] =
    [("time_us", 1.0), ("latency_ms", 1e3), ("iteration_ms", 1e3), ("time_s", 1e6), ("latency_s", 1e6)];

/// A line of the file with its columns by name.
pub(super) struct Line<'a> {
    pub(super) path: &'a str,
    pub(super) number: u64,
    pub(super) cells: BTreeMap<&'a str, &'a str>,
}

impl Line<'_> {
    pub(super) fn error(&self, column: &str, found: &str, expected: &str) -> Diagnostic {
        Diagnostic::new(format!("{}:{}: `{column}` is {found:?}, expected {expected}", self.path, self.number))
    }

    pub(super) fn text(&self, column: &str) -> &str {
        self.cells.get(column).copied().unwrap_or_default()
    }

    pub(super) fn count(&self, column: &str) -> Result<u64, Diagnostic> {
        let found = self.text(column);
        let count = found.parse::<u64>().ok().filter(|count| (1..=1 << 32).contains(count));
        count.ok_or_else(|| self.error(column, found, "a whole number from 1 to 2^32"))
    }

    pub(super) fn dtype(&self) -> Result<Dtype, Diagnostic> {
        let found = self.cells.get("dtype").copied().unwrap_or("bf16");
        Ok(match found {
            "bf16" | "bfloat16" => Dtype::Bf16,
            "fp16" | "float16" | "half" => Dtype::Fp16,
            "fp32" | "float32" => Dtype::Fp32,
            "int8" => Dtype::Int8,
            "fp8" | "fp8_e4m3" => Dtype::Fp8E4m3,
            "fp8_e5m2" => Dtype::Fp8E5m2,
            _ => return Err(self.error("dtype", found, "bf16, fp16, fp32, int8, fp8_e4m3 or fp8_e5m2")),
        })
    }

    /// The format of operands that a column names; bf16 where there is no such column.
    pub(super) fn format(&self, column: &str) -> Result<ProductFormat, Diagnostic> {
        let found = self.cells.get(column).copied().unwrap_or("bf16");
        ProductFormat::named(found).ok_or_else(|| {
            self.error(column, found, "bf16, fp16, fp32, int8, fp8_e4m3, fp8_e5m2, fp8_block, nvfp4 or w4a16_mxfp4")
        })
    }

    /// Half of all lines, by a hash of their inputs (FNV-1a of the cells that are no times): constants may be fitted to one half, and
    /// lines with equal inputs are in the same.
    pub(super) fn is_in_second_half(&self) -> bool {
        self.is_in_second_half_without(&TIMES.map(|(time, _)| time))
    }

    /// The same of lines whose columns `measured` are no inputs.
    pub(super) fn is_in_second_half_without(&self, measured: &[&str]) -> bool {
        let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
        for (column, cell) in &self.cells {
            if measured.contains(column) {
                continue;
            }
            for byte in column.bytes().chain([b'=']).chain(cell.bytes()).chain([b',']) {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        }
        (hash >> 32) & 1 == 1
    }

    pub(super) fn microseconds(&self) -> Result<f64, Diagnostic> {
        let Some(&(column, unit)) = TIMES.iter().find(|(column, _)| self.cells.contains_key(column)) else {
            return Err(self.error("time_us", "", "a time"));
        };
        let found = self.text(column);
        let time = found.parse::<f64>().ok().filter(|time| time.is_finite() && *time > 0.0);
        time.map(|time| time * unit).ok_or_else(|| self.error(column, found, "a number above 0"))
    }
}
