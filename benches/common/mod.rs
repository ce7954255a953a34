//! The inputs of the benchmarks: the shipped chips and workloads, by name.

use std::path::PathBuf;

use rdusim::arch::{self, Chip};
use rdusim::mode::Mode;
use rdusim::workload::{self, Workload};

/// A chip, a workload and a way of running it.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    arch: &'static str,
    workload: &'static str,
    /// How the graph is cut.
    pub mode: Mode,
}

/// The GPT-13B feed-forward block, dense and sparse, on two chips, both ways.
pub const CASES: [Case; 8] = [
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
    pub fn load(&self) -> (Chip, Workload) {
        let file = |directory: &str, name: &str| -> PathBuf {
            [env!("CARGO_MANIFEST_DIR"), directory, &format!("{name}.toml")].iter().collect()
        };
        let chip = arch::load(&file("arch", self.arch), &[]).unwrap_or_else(|e| panic!("{}", e.render(false)));
        let workload =
            workload::load(&file("workloads", self.workload), &[], 0).unwrap_or_else(|e| panic!("{}", e.render(false)));
        (chip, workload)
    }
}

/// A stack of equal feed-forward blocks with skip connections: `x + gelu(x w) v`.
pub fn stack(blocks: usize, tokens: u64, width: u64) -> Workload {
    let mut tensors = format!("[[tensors]]\nname = \"x0\"\nshape = [{tokens}, {width}]\nrole = \"input\"\n");
    let mut operators = String::new();
    let ff = 4 * width;
    for b in 0..blocks {
        for (name, rows, columns) in [("up", width, ff), ("down", ff, width)] {
            tensors +=
                &format!("[[tensors]]\nname = \"w_{name}{b}\"\nshape = [{rows}, {columns}]\nrole = \"weight\"\n");
        }
        for (kind, inputs, output) in [
            ("gemm", format!("\"x{b}\", \"w_up{b}\""), format!("h{b}")),
            ("gelu", format!("\"h{b}\""), format!("g{b}")),
            ("gemm", format!("\"g{b}\", \"w_down{b}\""), format!("y{b}")),
            ("add", format!("\"y{b}\", \"x{b}\""), format!("x{}", b + 1)),
        ] {
            operators += &format!(
                "[[operators]]\nname = \"{output}\"\nkind = \"{kind}\"\ninputs = [{inputs}]\noutput = \"{output}\"\n"
            );
        }
    }
    let text = format!("schema = 1\nname = \"stack\"\ndtype = \"bf16\"\n{tensors}{operators}");
    workload::parse("stack", &text, &[], 0).unwrap_or_else(|e| panic!("{}", e.render(false)))
}
