//! The inputs of the benchmarks: the shipped chips and workloads, by name.

use std::path::PathBuf;

use rdusim::arch::{self, Chip};
use rdusim::mode::Mode;
use rdusim::workload::{self, Workload};

/// A chip, a workload and a way of running it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case {
    arch: &'static str,
    workload: &'static str,
    /// How the graph is cut.
    pub mode: Mode,
}

/// The GPT-13B feed-forward block, dense and sparse, on two chips, both ways.
pub(crate) const CASES: [Case; 8] = [
    case("sn10", "gpt13b-mlp", Mode::Kbk),
    case("sn10", "gpt13b-mlp", Mode::Fused),
    case("sn10", "gpt13b-mlp-sparse", Mode::Kbk),
    case("sn10", "gpt13b-mlp-sparse", Mode::Fused),
    case("sn40l", "gpt13b-mlp", Mode::Kbk),
    case("sn40l", "gpt13b-mlp", Mode::Fused),
    case("sn40l", "gpt13b-mlp-sparse", Mode::Kbk),
    case("sn40l", "gpt13b-mlp-sparse", Mode::Fused),
];

const fn case(arch: &'static str, workload: &'static str, mode: Mode) -> Case {
    Case { arch, workload, mode }
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {}", self.arch, self.workload, self.mode.name())
    }
}

impl Case {
    /// The files, read and checked.
    pub(crate) fn load(&self) -> (Chip, Workload) {
        let file = |directory: &str, name: &str| -> PathBuf {
            [env!("CARGO_MANIFEST_DIR"), directory, &format!("{name}.toml")].iter().collect()
        };
        let chip = arch::load(&file("arch", self.arch), &[]).unwrap_or_else(|e| panic!("{}", e.render(false)));
        let workload =
            workload::load(&file("workloads", self.workload), &[], 0).unwrap_or_else(|e| panic!("{}", e.render(false)));
        (chip, workload)
    }
}
