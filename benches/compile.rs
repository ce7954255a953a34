//! How long the compiler takes: `cargo bench --bench compile`.

mod common;

use common::{CASES, Case};
use divan::Bencher;
use rdusim::compile::compile;

fn main() {
    divan::main();
}

#[divan::bench(args = CASES, sample_count = 3, sample_size = 1)]
fn configuration(bencher: Bencher, case: Case) {
    let (chip, workload) = case.load();
    bencher.bench(|| compile(&chip, &workload, case.mode));
}
