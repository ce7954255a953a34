//! Every configuration of every random graph on every random chip computes what the graph says.
//!
//! The full run, of 300 pairs and more: `PROPTEST_CASES=400 cargo test --release --test main numbers`.

use std::cell::Cell;
use std::path::PathBuf;

use proptest::prelude::*;
use rdusim::arch::{self, AnyChip};
use rdusim::input::Override;
use rdusim::mode::Mode;
use rdusim::sim::compile_measured;
use rdusim::verify::{graph_flops, scaled, verify};
use rdusim::workload;

use crate::laws::for_all;

/// Pairs where `PROPTEST_CASES` asks for no other number.
const CASES: u32 = 40;
/// Operations of a graph that a test build does in no time.
const MAX_FLOPS: u64 = 10_000_000;

/// The TOML files of a directory of the repository, by name.
fn files(directory: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).expect("a directory of the repository");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("a file").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    paths.sort();
    assert!(paths.len() >= 4, "{directory} has {} files", paths.len());
    paths
}

#[test]
fn what_comes_with_rdusim_computes_what_it_says() {
    for chip in files("arch") {
        // A GPU has no configurations.
        let AnyChip::Rdu(chip) = arch::open(&chip, &[]).expect("a chip") else { continue };
        for path in files("workloads") {
            let name = path.display();
            let load = |sets: &[Override]| workload::load(&path, sets, 0);
            if load(&[]).expect("a workload").first_of_a_model().is_some() {
                // The command refuses these: see `cli/configured.rs`.
                continue;
            }
            let (workload, _) = scaled(&chip, MAX_FLOPS, load).expect("a workload that can be made small");
            assert!(graph_flops(&workload) <= MAX_FLOPS);
            let compiled = compile_measured(&chip, &workload, &[Mode::Kbk, Mode::Fused]).expect("a pair that fits");
            for run in verify(&chip, &workload, compiled.iter().map(|c| &c.configuration), 0) {
                let of = format!("{name} on {}, {}", chip.name, run.mode);
                assert!(run.passed, "{of}: {:?} {:?} {:?}", run.fault, run.by_stage, run.end_to_end);
            }
        }
    }
}

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
