//! Every configuration of every random graph on every random chip computes what the graph says.
//!
//! The full run, of 300 pairs and more: `PROPTEST_CASES=400 cargo test --release --test main numbers`.

use std::cell::Cell;

use proptest::prelude::*;
use rdusim::mode::Mode;
use rdusim::sim::compile_measured;
use rdusim::verify::verify;

use crate::laws::for_all;

/// Pairs where `PROPTEST_CASES` asks for no other number.
const CASES: u32 = 40;

#[test]
fn random_configurations_compute_what_their_graphs_say() {
    let (ran, numbers, strain) = (Cell::new(0u32), Cell::new(0u64), Cell::new(0.0f64));
    for_all(CASES, |chip, graph| {
        let (chip, workload) = (chip.chip(), graph.workload());
        let Ok(configurations) = compile_measured(&chip, &workload, &[Mode::Kbk, Mode::Fused]) else { return Ok(()) };
        for run in verify(&chip, &workload, configurations.iter().map(|c| &c.configuration), 1) {
            let fault = run.fault.as_ref().map_or(String::new(), ToString::to_string);
            prop_assert!(run.passed, "{}: {fault} {:?} {:?}", run.mode, run.by_stage, run.end_to_end);
            numbers.set(numbers.get() + run.compared);
            if let Some(worst) = run.by_stage.filter(|worst| worst.tolerance > 0.0) {
                strain.set(strain.get().max(worst.rel_error / worst.tolerance));
            }
        }
        ran.set(ran.get() + 1);
        Ok(())
    });
    println!("{} pairs, {} numbers, at worst {:.3} of the tolerance", ran.get(), numbers.get(), strain.get());
    assert!(ran.get() > 0 && numbers.get() > 0);
}
