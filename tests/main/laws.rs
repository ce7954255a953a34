//! Laws that hold for every graph on every chip: one configuration, the same bytes at three fidelities, and bounds in order.
//!
//! Random small chips and graphs; a failure prints both files. More of them: `PROPTEST_CASES=2000 cargo test --release
//! --test main laws`.

use std::cell::Cell;
use std::collections::BTreeSet;

use crate::legal::found_quickly;
use crate::random::wide::wide_pair;
use crate::random::{ChipValues, GraphValues, chips, graphs};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use rdusim::arch::Chip;
use rdusim::compile::simulate_measured;
use rdusim::cost::bound_cycles;
use rdusim::mode::Mode;
use rdusim::outcome::{Fidelity, Outcome, StopReason};
use rdusim::report::Document;
use rdusim::sim::simulate;
use rdusim::workload::{OperatorKind, TensorRole, Workload};

/// Cases where `PROPTEST_CASES` asks for no other number.
const CASES: u32 = 64;
/// Modes in the order of outcomes.
const MODES: [Mode; 3] = Mode::ALL;
/// How much slower a fused run may be than kernel by kernel: of plans about as fast, the one that moves less is taken.
const FUSED_SLACK: f64 = 1.10;
/// Address generators with which every single operator can be placed: three streams in, one out.
const ENOUGH_AGS: u64 = 4;

/// Runs a law on random chips and graphs: always the same ones, or new ones if `PROPTEST_CASES` says how many.
pub(crate) fn for_all(cases: u32, law: impl Fn(ChipValues, GraphValues) -> Result<(), TestCaseError>) {
    for_all_of(file!(), cases, (chips(), graphs()), |(chip, graph)| law(chip, graph));
}

/// The same of anything; seeds of failures are kept with the `file` whose cases they are.
pub(crate) fn for_all_of<S: Strategy>(
    file: &'static str,
    cases: u32,
    all: S,
    law: impl Fn(S::Value) -> Result<(), TestCaseError>,
) {
    let mut config = Config { source_file: Some(file), ..Config::default() };
    let mut runner = if std::env::var_os("PROPTEST_CASES").is_some() {
        TestRunner::new(config)
    } else {
        config.cases = cases;
        TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha))
    };
    if let Err(failure) = runner.run(&all, law) {
        panic!("{failure}");
    }
}

/// Every mode at a fidelity; `None` if the compiler refuses the pair.
fn outcomes(chip: &Chip, workload: &Workload, fidelity: Fidelity) -> Option<Vec<Outcome>> {
    let configurations = found_quickly(chip, workload, &MODES).ok()?;
    Some(configurations.iter().map(|c| simulate_measured(chip, workload, c, fidelity)).collect())
}

/// Bytes that a list of operators must move off chip if they share a section.
fn compulsory_bytes(workload: &Workload, operators: &[String]) -> u64 {
    let inside: Vec<_> = workload.operators.iter_enumerated().filter(|(_, op)| operators.contains(&op.name)).collect();
    let mut moved = BTreeSet::new();
    for (_, operator) in &inside {
        let made_here = |tensor| inside.iter().any(|(_, other)| other.output == tensor);
        moved.extend(operator.inputs.iter().copied().filter(|&tensor| !made_here(tensor)));
        let leaves = workload.tensors[operator.output].role == TensorRole::Output
            || workload.consumers(operator.output).any(|op| inside.iter().all(|(id, _)| *id != op));
        if leaves {
            moved.insert(operator.output);
        }
    }
    moved.into_iter().map(|tensor| workload.tensors[tensor].stored_bytes()).sum()
}

/// Joules of all arithmetic, whatever the mapping.
fn arithmetic_joules(chip: &Chip, workload: &Workload) -> f64 {
    let of = |(id, op): (_, &rdusim::workload::Operator)| {
        let input = &workload.tensors[op.inputs[0]];
        let work = if op.kind == OperatorKind::Gemm {
            workload.stored_macs(id) as f64
        } else {
            (input.rows * input.columns * chip.pcu.simd_stages[op.kind.name()]) as f64
        };
        work * chip.energy.mac_pj[&input.dtype] * 1e-12
    };
    workload.operators.iter_enumerated().map(of).sum()
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
}

/// Everything that must be true of one run at both fidelities.
fn check_run(chip: &Chip, workload: &Workload, bound: &Outcome, event: &Outcome) -> Result<(), TestCaseError> {
    let mode = event.mode.name();
    prop_assert_eq!(&event.stop, &StopReason::Drained, "{}", mode);
    prop_assert!(
        event.bound_cycles <= bound.cycles,
        "{mode}: bound_cycles {} > bound {}",
        event.bound_cycles,
        bound.cycles
    );
    prop_assert_eq!(bound.sections.len(), event.sections.len());
    for (b, e) in bound.sections.iter().zip(&event.sections) {
        prop_assert!(b.cycles <= e.cycles, "{mode} {}: bound {} > event {}", e.name, b.cycles, e.cycles);
        prop_assert_eq!(&b.traffic, &e.traffic, "{} {}: traffic of bound and event", mode, e.name);
        for (b, e) in b.stages.iter().zip(&e.stages) {
            prop_assert_eq!(b.busiest_cycles, e.busiest_cycles, "{} {:?}", mode, e.operators);
            prop_assert!(near(b.mean_cycles, e.mean_cycles), "{mode} {:?}", e.operators);
        }
        let least = compulsory_bytes(workload, &e.operators);
        let moved = e.traffic.off_chip_bytes();
        prop_assert!(moved >= least, "{mode} {}: {moved} B off chip, compulsory {least} B", e.name);
        let told = event.notes.iter().any(|note| note.contains(&e.name) && note.contains("times"));
        prop_assert!(moved == least || told, "{mode} {}: {moved} B off chip, compulsory {least} B, no note", e.name);
        let by_tensor: u64 = e.traffic.by_tensor.values().map(|t| t.off_chip_read_bytes + t.off_chip_write_bytes).sum();
        prop_assert_eq!(by_tensor, moved);
        prop_assert!(e.pcus <= chip.pcus() && e.pmus <= chip.pmus() && e.sram_peak_bytes <= chip.sram_bytes());
        prop_assert!(e.stages.iter().all(|s| s.busiest_cycles <= e.cycles), "{mode} {}: busier than long", e.name);
    }
    prop_assert_eq!(event.cycles, event.sections.iter().map(|s| s.cycles).sum::<u64>());
    let mut ran: Vec<&String> = event.sections.iter().flat_map(|s| &s.operators).collect();
    let mut all: Vec<&String> = workload.operators.iter().map(|op| &op.name).collect();
    if event.mode == Mode::Epilogue {
        // An epilogue runs with its GEMM, before operators that stand between them.
        ran.sort_unstable();
        all.sort_unstable();
    }
    prop_assert_eq!(ran, all, "{}", mode);
    for outcome in [bound, event] {
        let energy = outcome.energy();
        let (spent, needed) = (energy.compute - energy.zeros, arithmetic_joules(chip, workload));
        // Stages of a fused section may compute again what would else stay on chip.
        let recomputes = event.mode == Mode::Fused && spent > needed;
        prop_assert!(near(spent, needed) || recomputes, "{mode}: {spent} J of arithmetic, the graph needs {needed} J");
    }
    let (a, b) = (bound.energy().zeros, event.energy().zeros);
    prop_assert!(near(a, b), "{mode}: bound {a} J and event {b} J of multiplications by zeros");
    Ok(())
}

#[test]
fn bounds_traffic_and_energy_agree_and_every_run_drains() {
    let (ran, refused, slower, worst) = (Cell::new(0u32), Cell::new(0u32), Cell::new(0u32), Cell::new(0.0f64));
    let (worse, worse_fused) = (Cell::new(0u32), Cell::new(0u32));
    for_all(CASES / 2, |chip, graph| {
        let (chip, workload) = (chip.chip(), graph.workload());
        let configurations = match found_quickly(&chip, &workload, &MODES) {
            Ok(configurations) => configurations,
            Err(why) => {
                let unplaceable = why.title().contains("cannot be placed");
                prop_assert!(!unplaceable || chip.grid.ags() < ENOUGH_AGS, "{}", why.render(false));
                refused.set(refused.get() + 1);
                return Ok(());
            }
        };
        let (mut cycles, mut bytes) = (Vec::new(), Vec::new());
        for measured in &configurations {
            let run = |fidelity| simulate(&chip, &workload, &measured.configuration, fidelity);
            let [bound, event] = [Fidelity::Bound, Fidelity::Event].map(run);
            // The run by which a section was chosen is the run that is reported.
            let reported = simulate_measured(&chip, &workload, measured, Fidelity::Event);
            prop_assert_eq!(format!("{event:?}"), format!("{reported:?}"));
            check_run(&chip, &workload, &bound, &event)?;
            cycles.push(event.cycles as f64);
            // What is read again, because it does not fit, depends on the mapping.
            let is_compulsory = !event.notes.iter().any(|note| note.contains("times"));
            bytes.push(is_compulsory.then(|| event.traffic().off_chip_bytes()));
        }
        let [kbk, epilogue, fused] = cycles[..] else { panic!("three modes") };
        if let [Some(kbk), Some(epilogue), _] = bytes[..] {
            prop_assert!(epilogue <= kbk, "epilogues move {epilogue} B, kernel by kernel {kbk} B");
        }
        worse.set(worse.get() + u32::from(epilogue > kbk));
        worse_fused.set(worse_fused.get() + u32::from(fused > epilogue));
        let ratio = fused / kbk;
        ran.set(ran.get() + 1);
        slower.set(slower.get() + u32::from(ratio > 1.0));
        worst.set(worst.get().max(ratio));
        prop_assert!(ratio <= FUSED_SLACK, "fused {fused} cycles, kbk {kbk}");
        Ok(())
    });
    println!(
        "{} ran, {} were refused; fused was slower than kbk in {}, at worst {:.3} times its cycles",
        ran.get(),
        refused.get(),
        slower.get(),
        worst.get()
    );
    println!("epilogue was slower than kbk in {}, and faster than fused in {}", worse.get(), worse_fused.get());
    assert!(ran.get() > refused.get(), "too few of the random pairs fit");
}

#[test]
fn two_runs_give_the_same_bytes_on_any_number_of_threads() {
    for_all(CASES / 8, |chip, graph| {
        let (chip, workload) = (chip.chip(), graph.workload());
        let run = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a thread pool");
            let all = pool.install(|| outcomes(&chip, &workload, Fidelity::Event));
            all.map(|all| Document::new(&chip, &workload, &all).to_json())
        };
        let once = run(1);
        prop_assert_eq!(&once, &run(1));
        prop_assert_eq!(&once, &run(2));
        // Outcomes know no gap: that is the caller's to add.
        let numbers = once.as_deref().unwrap_or_default().replace("\"gap\": null", "");
        prop_assert!(!numbers.contains("null") && !numbers.contains("NaN"), "{numbers}");
        Ok(())
    });
}

/// The capacity of a memory tier is left out: it decides which tier holds a tensor, and the bound takes that as given.
#[test]
fn more_of_a_resource_never_raises_the_bound() {
    for_all(CASES, |values, graph| {
        let workload = graph.workload();
        let bounds = |values: &ChipValues| MODES.map(|mode| bound_cycles(&values.chip(), &workload, mode));
        let least = bounds(&values);
        let with = |change: &dyn Fn(&mut ChipValues)| {
            let mut values = values.clone();
            change(&mut values);
            values
        };
        let richer = [
            ("PCUs", with(&|v| v.grid.0 *= 2)),
            ("address generators", with(&|v| v.ags.0 += 1)),
            ("PMU bytes", with(&|v| v.bank_bytes *= 2)),
            ("bandwidth", with(&|v| v.tiers[0].gb_per_s *= 1.5)),
            ("bandwidth of all tiers", with(&|v| v.tiers.iter_mut().for_each(|t| t.gb_per_s *= 3.0))),
        ];
        for (what, values) in richer {
            let now = bounds(&values);
            prop_assert!(
                now.iter().zip(&least).all(|(now, least)| now <= least),
                "more {what}: {least:?} became {now:?}"
            );
        }
        Ok(())
    });
}

/// Over wide ranges of every field: no run ends before its bound, and no memory moves more than its rate allows.
#[test]
fn no_run_is_faster_than_its_resources() {
    const SEED: u64 = 3;
    let mut sections = 0;
    for number in 0..20 {
        let (family, chip, graph) = wide_pair(SEED, number);
        let about = format!("wide pair {number} of seed {SEED} ({family}){chip:?}{graph:?}");
        let (chip, workload) = (chip.chip(), graph.workload());
        let Ok(configurations) = found_quickly(&chip, &workload, &MODES) else { continue };
        for measured in &configurations {
            let [bound, event] = [Fidelity::Bound, Fidelity::Event]
                .map(|fidelity| simulate(&chip, &workload, &measured.configuration, fidelity));
            assert_eq!(event.stop, StopReason::Drained, "{about}");
            assert!(event.bound_cycles <= bound.cycles, "{about}");
            for (bound, event) in bound.sections.iter().zip(&event.sections) {
                let (name, cycles) = (&event.name, event.cycles);
                assert!(bound.cycles <= cycles, "{name}: bound {}, event {cycles} of {about}", bound.cycles);
                for (tier, busy) in &event.busy.tiers {
                    assert!(*busy <= cycles - event.launch_cycles, "{name}: {tier} busy for {busy} of {about}");
                }
                sections += 1;
            }
        }
    }
    assert!(sections > 60, "only {sections} sections");
}
