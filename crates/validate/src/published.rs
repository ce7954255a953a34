//! The published measurements, and the chips they were made on.

use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::input::{Override, Root};
use rdusim_base::mode::Mode;
use rdusim_graph::arch::{self, AnyChip, Chip};
use rdusim_graph::workload::{self, Workload};

const GEMM: &str = include_str!("../../../workloads/gemm-square.toml");
const TRAINING: &str = include_str!("../../../workloads/gpt2-xl-training.toml");
const RELU: &str = include_str!("../../../workloads/relu.toml");

/// Elements of a row of the streaming workload.
const STREAM_COLUMNS: u64 = 1024;

/// A chip file that is part of the program.
#[derive(Debug, Clone, Copy)]
pub struct ChipSource {
    /// Name of the chip, as in the file.
    pub name: &'static str,
    /// Path in the repository, for messages.
    pub path: &'static str,
    /// The file.
    pub text: &'static str,
}

impl ChipSource {
    /// Reads the chip, with the `arch.` overrides among `sets` applied.
    pub fn load(&self, sets: &[Override]) -> Result<Chip, Diagnostic> {
        arch::parse(self.path, self.text, sets)
    }
}

/// Chips that measurements were made on.
pub const CHIPS: [ChipSource; 2] = [
    ChipSource { name: "SN10", path: "arch/sn10.toml", text: include_str!("../../../arch/sn10.toml") },
    ChipSource { name: "SN30-half", path: "arch/sn30-half.toml", text: include_str!("../../../arch/sn30-half.toml") },
];

/// The GPU that comes with the program.
///
/// # Errors
/// Overrides that do not apply to it.
pub fn gpu_chip(sets: &[Override]) -> Result<AnyChip, Diagnostic> {
    arch::parse_any("arch/a100.toml", include_str!("../../../arch/a100.toml"), sets)
}

/// What was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measured {
    /// FLOP/s of a square GEMM; the point is its side.
    Gemm,
    /// Elements a second of a `relu`; the point is their number.
    Relu,
    /// Seconds of a GPT-2 training step; the point is the number of layers.
    Training(Mode),
}

impl Measured {
    /// The workload of a point.
    pub(super) fn workload(self, point: f64) -> Result<Workload, Diagnostic> {
        let (text, dim, value) = match self {
            Self::Gemm => (GEMM, "n", point as u64),
            Self::Relu => (RELU, "rows", (point as u64).div_ceil(STREAM_COLUMNS)),
            Self::Training(_) => (TRAINING, "layers", point as u64),
        };
        let set = Override::parse(&format!("workload.dims.{dim}={value}"))?;
        debug_assert_eq!(set.root(), Root::Workload);
        workload::parse("the workload of a published set", text, &[set], 0)
    }

    /// The quantity of a point that took so many seconds, in the set's unit.
    pub(super) fn quantity(self, point: f64, seconds: f64) -> f64 {
        match self {
            Self::Gemm => 2.0 * point.powi(3) / seconds / 1e12,
            Self::Relu => point / seconds / 1e9,
            Self::Training(_) => seconds,
        }
    }

    /// How it is run: measurements of one operator are one section either way.
    pub(super) fn mode(self) -> Mode {
        match self {
            Self::Gemm | Self::Relu => Mode::Kbk,
            Self::Training(mode) => mode,
        }
    }

    /// Whether the quantity is linear in the point by construction, so that two points give all.
    pub(super) fn is_linear(self) -> bool {
        matches!(self, Self::Training(_))
    }
}

/// A set of published measurements.
#[derive(Debug, Clone)]
pub struct PublishedSet {
    /// Name, for `--only`.
    pub name: &'static str,
    /// Name of the chip.
    pub chip: &'static str,
    /// What was measured.
    pub measured: Measured,
    /// What a point is.
    pub point: &'static str,
    /// What is compared, with its unit.
    pub quantity: &'static str,
    /// Where the figures come from.
    pub source: &'static str,
    /// Points and their measurements.
    pub points: Vec<(f64, f64)>,
}

/// Every set, as its file in `tests/data/published` gives it.
///
/// # Errors
/// A file that cannot be read as two columns of numbers.
pub fn published_sets() -> Result<Vec<PublishedSet>, Diagnostic> {
    let digitised = "digitised from arXiv:2311.04417";
    let training = |name, mode, column| -> Result<PublishedSet, Diagnostic> {
        Ok(PublishedSet {
            name,
            chip: "SN30-half",
            measured: Measured::Training(mode),
            point: "layers",
            quantity: "seconds a step",
            source: "DABench-LLM artifact",
            points: points(include_str!("../../../tests/data/published/sn30_gpt2_training.csv"), column)?,
        })
    };
    Ok(vec![
        PublishedSet {
            name: "sn10-gemm-square",
            chip: "SN10",
            measured: Measured::Gemm,
            point: "n",
            quantity: "TFLOP/s",
            source: digitised,
            points: points(include_str!("../../../tests/data/published/sn10_gemm_square.csv"), 1)?,
        },
        PublishedSet {
            name: "sn10-relu",
            chip: "SN10",
            measured: Measured::Relu,
            point: "elements",
            quantity: "Gelement/s",
            source: digitised,
            points: points(include_str!("../../../tests/data/published/sn10_relu.csv"), 1)?,
        },
        training("sn30-gpt2-kbk", Mode::Kbk, 1)?,
        training("sn30-gpt2-fused", Mode::Fused, 2)?,
    ])
}

/// The first column and another of a CSV file with a header; lines that start with `#` are comments.
fn points(text: &str, column: usize) -> Result<Vec<(f64, f64)>, Diagnostic> {
    let mut reader = csv::ReaderBuilder::new().comment(Some(b'#')).from_reader(text.as_bytes());
    let bad = |what: &dyn std::fmt::Display| Diagnostic::new(format!("a file of published figures is broken: {what}"));
    let row = |record: Result<csv::StringRecord, csv::Error>| {
        let record = record.map_err(|error| bad(&error))?;
        let number = |at: usize| record.get(at).and_then(|text| text.trim().parse::<f64>().ok());
        match (number(0), number(column)) {
            (Some(point), Some(value)) => Ok((point, value)),
            _ => Err(bad(&"expected two numbers a line")),
        }
    };
    reader.records().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_hold_their_points() {
        let sets = published_sets().unwrap();
        let count: Vec<usize> = sets.iter().map(|set| set.points.len()).collect();
        assert_eq!(count, [9, 34, 4, 4]);
        assert_eq!(sets[0].points[7], (4096.0, 40.899));
        assert_eq!((sets[2].points[3], sets[3].points[3]), ((24.0, 6.603), (24.0, 1.934)));
        for set in &sets {
            assert!(CHIPS.iter().any(|chip| chip.name == set.chip), "{}", set.name);
            assert!(set.points.iter().all(|&(point, value)| point > 0.0 && value > 0.0));
        }
    }

    #[test]
    fn chips_have_the_names_they_are_found_by() {
        for chip in CHIPS {
            assert_eq!(chip.load(&[]).unwrap().name, chip.name);
        }
    }

    #[test]
    fn quantities() {
        // 2 x 4096^3 FLOP in a millisecond.
        assert!((Measured::Gemm.quantity(4096.0, 1e-3) - 137.438_953_472).abs() < 1e-9);
        assert!((Measured::Relu.quantity(31e6, 4e-3) - 7.75).abs() < 1e-12);
        let relu = Measured::Relu.workload(65_525.0).unwrap();
        assert_eq!(relu.dims["rows"], 64);
        assert!(points("a,b\n1,x\n", 1).is_err());
    }
}
