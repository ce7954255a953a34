//! What memory loses beside its rate: it acts, in both engines alike, and no bound counts on it.

use std::path::PathBuf;

use crate::random::{ChipValues, pair};
use rdusim::arch::{self, Chip};
use rdusim::compile::compile_measured;
use rdusim::input::Override;
use rdusim::mode::Mode;
use rdusim::outcome::{Fidelity, StopReason};
use rdusim::sim::{check_size, run_section, simulate};

const SEED: u64 = 11;
const PAIRS: usize = 30;
/// Shorter sections are not judged.
const LONG: u64 = 5_000;

/// What a tier is made to lose: (turnaround ns, non-sequential ns).
const LOSSES: [(f64, f64); 3] = [(40.0, 0.0), (0.0, 25.0), (15.0, 10.0)];

/// A chip all of whose tiers lose so much.
fn losing(values: &ChipValues, turnaround_ns: f64, non_sequential_ns: f64) -> Chip {
    let set = |tier: usize, key: &str, ns: f64| format!("arch.memory.tier{tier}.{key}={ns:?}");
    let sets = (0..values.tiers.len()).flat_map(|tier| {
        [set(tier, "turnaround_ns", turnaround_ns), set(tier, "non_sequential_ns", non_sequential_ns)]
    });
    let parsed = |set: String| Override::parse(&set).unwrap_or_else(|error| panic!("{}", error.render(false)));
    let sets: Vec<Override> = sets.map(parsed).collect();
    arch::parse("random chip", &values.text(), &sets).unwrap_or_else(|error| panic!("{}", error.render(false)))
}

#[test]
fn penalties_act_in_both_engines_alike_and_below_no_bound() {
    let mut errors = Vec::new();
    let mut slower = [0; LOSSES.len()];
    for number in 0..PAIRS {
        let (family, values, graph) = pair(SEED, number);
        let about = format!("pair {number} of seed {SEED} ({family}){values:?}{graph:?}");
        let (chip, workload) = (values.chip(), graph.workload());
        let Ok(configurations) = compile_measured(&chip, &workload, &Mode::ALL) else { continue };
        for measured in &configurations {
            let configuration = &measured.configuration;
            if check_size(&chip, &workload, configuration).is_err() {
                continue;
            }
            let free = simulate(&chip, &workload, configuration, Fidelity::Event);
            for (which, (turnaround_ns, non_sequential_ns)) in LOSSES.into_iter().enumerate() {
                let chip = losing(&values, turnaround_ns, non_sequential_ns);
                let [bound, event, cycle] = [Fidelity::Bound, Fidelity::Event, Fidelity::Cycle]
                    .map(|fidelity| simulate(&chip, &workload, configuration, fidelity));
                for section in &configuration.sections {
                    // Repeats are skipped exactly, whatever channels remember.
                    let [skipped, all] = [true, false].map(|skip| run_section(&chip, &workload, section, skip));
                    let [skipped, all] = [skipped, all].map(|run| run.map(|run| (run.cycles, run.tier_busy_cycles)));
                    assert_eq!(skipped, all, "{about}");
                }
                assert_eq!((&event.stop, &cycle.stop), (&StopReason::Drained, &StopReason::Drained), "{about}");
                assert!(event.bound_cycles <= bound.cycles, "{about}");
                slower[which] += u32::from(event.cycles > free.cycles);
                for ((bound, event), cycle) in bound.sections.iter().zip(&event.sections).zip(&cycle.sections) {
                    assert!(bound.cycles <= event.cycles.min(cycle.cycles), "{about}");
                    assert_eq!(event.traffic, cycle.traffic, "{about}");
                    let [event_cycles, cycle_cycles] = [event, cycle].map(|s| (s.cycles - s.launch_cycles) as f64);
                    if cycle_cycles >= LONG as f64 {
                        errors.push((event_cycles / cycle_cycles - 1.0).abs());
                    }
                }
            }
        }
    }
    errors.sort_by(f64::total_cmp);
    let (median, worst) = (errors[errors.len() / 2], errors[errors.len() - 1]);
    println!("{} long sections, {slower:?} runs slower, median {median:.4}, worst {worst:.4}", errors.len());
    assert!(slower.iter().all(|&runs| runs > 10), "{slower:?}");
    assert!(median <= 0.02 && worst <= 0.25, "median {median}, worst {worst}");
}

#[test]
fn a_gpu_has_no_use_for_penalties() {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "arch", "a100.toml"].iter().collect();
    for key in ["turnaround_ns", "write_batch_bytes", "non_sequential_ns"] {
        let set = Override::parse(&format!("arch.memory.hbm.{key}=20")).expect("an override");
        let Err(refused) = arch::open(&path, &[set]) else { panic!("{key} was accepted") };
        assert!(refused.title().ends_with("has no effect on a GPU"), "{}", refused.title());
    }
}
