//! How long a run of a compiled configuration takes: `cargo bench --bench simulate`.

mod common;

use common::{CASES, Case};
use divan::Bencher;
use rdusim::compile::compile;
use rdusim::sim::{Fidelity, simulate};

fn main() {
    divan::main();
}

#[divan::bench(args = CASES, sample_count = 5, sample_size = 1)]
fn event(bencher: Bencher, case: Case) {
    run(bencher, case, Fidelity::Event);
}

#[divan::bench(args = CASES, sample_count = 5, sample_size = 1)]
fn bound(bencher: Bencher, case: Case) {
    run(bencher, case, Fidelity::Bound);
}

fn run(bencher: Bencher, case: Case, fidelity: Fidelity) {
    let (chip, workload) = case.load();
    let configuration =
        compile(&chip, &workload, case.mode).unwrap_or_else(|refused| panic!("{}", refused.render(false)));
    bencher.bench(|| simulate(&chip, &workload, &configuration, fidelity));
}
