//! How long the compiler takes: `cargo bench --bench compile`.

mod common;

use common::{CASES, Case};
use divan::Bencher;
use rdusim::compile::compile;
use rdusim::mode::Mode;
use rdusim::sim::compile_measured;

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
    let workload = common::stack(blocks, 2048, 5120);
    bencher.bench(|| compile_measured(&chip, &workload, &[Mode::Fused]));
}
