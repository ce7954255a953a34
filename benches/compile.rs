//! How long the compiler takes: `cargo bench --bench compile`.

mod common;

use common::{CASES, Case};
use divan::Bencher;
use rdusim::compile::{compile, compile_measured};
use rdusim::mode::Mode;
use rdusim::workload::{self, Workload};

fn main() {
    divan::main();
}

#[divan::bench(args = CASES, sample_count = 3, sample_size = 1)]
fn configuration(bencher: Bencher, case: Case) {
    let (chip, workload) = case.load();
    bencher.bench(|| compile(&chip, &workload, case.mode));
}

/// Equal blocks are compiled once: a stack of 96 takes about as long as one.
#[divan::bench(args = [1, 96], sample_count = 3, sample_size = 1)]
fn stack(bencher: Bencher, blocks: usize) {
    let (chip, _) = CASES[1].load();
    let workload = stack_of(blocks, 2048, 5120);
    bencher.bench(|| compile_measured(&chip, &workload, &[Mode::Fused]));
}

/// A stack of equal feed-forward blocks with skip connections: `x + gelu(x w) v`.
fn stack_of(blocks: usize, tokens: u64, width: u64) -> Workload {
    let mut tensors = format!("[[tensors]]\nname = \"x0\"\nshape = [{tokens}, {width}]\nrole = \"input\"\n");
    let mut operators = String::new();
    let ff = 4 * width;
    for b in 0..blocks {
        for (name, rows, columns) in [("up", width, ff), ("down", ff, width)] {
            tensors.extend(["[[tensors]]\nname = \"w_", name, &b.to_string(), "\"\nrole = \"weight\"\n"]);
            tensors.extend(["shape = [", &rows.to_string(), ", ", &columns.to_string(), "]\n"]);
        }
        for (kind, inputs, output) in [
            ("gemm", format!("\"x{b}\", \"w_up{b}\""), format!("h{b}")),
            ("gelu", format!("\"h{b}\""), format!("g{b}")),
            ("gemm", format!("\"g{b}\", \"w_down{b}\""), format!("y{b}")),
            ("add", format!("\"y{b}\", \"x{b}\""), format!("x{}", b + 1)),
        ] {
            operators.extend(["[[operators]]\nname = \"", &output, "\"\nkind = \"", kind, "\"\n"]);
            operators.extend(["inputs = [", &inputs, "]\noutput = \"", &output, "\"\n"]);
        }
    }
    let text = format!("schema = 1\nname = \"stack\"\ndtype = \"bf16\"\n{tensors}{operators}");
    workload::parse("stack", &text, &[], 0).unwrap_or_else(|e| panic!("{}", e.render(false)))
}
