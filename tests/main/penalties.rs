//! What memory loses beside its rate: it acts, in both engines, and no bound counts on it.

use std::path::PathBuf;

use crate::legal::found_quickly;
use crate::random::{ChipValues, pair};
use rdusim::arch::{self, Chip};
use rdusim::input::Override;
use rdusim::mode::Mode;
use rdusim::outcome::{Fidelity, StopReason};
use rdusim::sim::{check_size, run_section, simulate};

const SEED: u64 = 11;
/// Shorter sections are not compared.
const LONG: u64 = 5_000;
/// Of fewer sections a median says nothing.
const MANY: usize = 30;

/// What tiers are made to lose.
#[derive(Debug, Clone, Copy)]
enum Losses {
    /// Nanoseconds of a turnaround, and before an access that does not follow.
    Times(f64, f64),
    /// Those of a part.
    Part(&'static str),
    /// What more bursts under way for each address generator would bring.
    Outstanding(u64),
}

const LOSSES: [Losses; 7] = [
    Losses::Times(40.0, 0.0),
    Losses::Times(0.0, 25.0),
    Losses::Times(15.0, 10.0),
    Losses::Part("ddr4-2666"),
    Losses::Part("hbm2e"),
    Losses::Outstanding(2),
    Losses::Outstanding(8),
];

/// What a channel of any of the parts sustains at least, GB/s.
const CHANNEL_GB_PER_S: f64 = 20.0;

/// A chip all of whose tiers lose so much.
fn losing(values: &ChipValues, losses: Losses) -> Chip {
    let of_tier = |tier: usize| match losses {
        Losses::Times(turnaround_ns, non_sequential_ns) => vec![
            format!("arch.memory.tier{tier}.turnaround_ns={turnaround_ns:?}"),
            format!("arch.memory.tier{tier}.non_sequential_ns={non_sequential_ns:?}"),
        ],
        Losses::Part(part) => vec![format!("arch.memory.tier{tier}.part=\"{part}\"")],
        Losses::Outstanding(accesses) => vec![format!("arch.ag.outstanding={accesses}")],
    };
    let parsed = |set: String| Override::parse(&set).unwrap_or_else(|error| panic!("{}", error.render(false)));
    let sets: Vec<Override> = (0..values.tiers.len()).flat_map(of_tier).map(parsed).collect();
    arch::parse("random chip", &values.text(), &sets).unwrap_or_else(|error| panic!("{}", error.render(false)))
}

#[test]
fn penalties_act_in_both_engines_and_below_no_bound() {
    act_in_both_engines(8, 5);
}

#[test]
#[ignore = "depth: 30 pairs"]
fn penalties_act_in_both_engines_and_below_no_bound_in_many_pairs() {
    act_in_both_engines(30, 10);
}

/// Runs so many pairs, more than `least` of their runs slower for every loss.
fn act_in_both_engines(pairs: usize, least: u32) {
    let mut errors = [const { Vec::new() }; LOSSES.len()];
    let mut slower = [0; LOSSES.len()];
    for number in 0..pairs {
        let (family, mut values, graph) = pair(SEED, number);
        values.tiers.iter_mut().for_each(|tier| tier.fit_parts(CHANNEL_GB_PER_S));
        let about = format!("pair {number} of seed {SEED} ({family}){values:?}{graph:?}");
        let (chip, workload) = (values.chip(), graph.workload());
        let Ok(configurations) = found_quickly(&chip, &workload, &[Mode::Kbk, Mode::Fused]) else { continue };
        for measured in &configurations {
            let configuration = &measured.configuration;
            if check_size(&chip, &workload, configuration).is_err() {
                continue;
            }
            let free = simulate(&chip, &workload, configuration, Fidelity::Event);
            for (which, losses) in LOSSES.into_iter().enumerate() {
                let chip = losing(&values, losses);
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
                if let Losses::Outstanding(accesses) = losses {
                    let more = losing(&values, Losses::Outstanding(2 * accesses));
                    let more = simulate(&more, &workload, configuration, Fidelity::Bound);
                    assert!(more.cycles <= bound.cycles, "{about}");
                }
                slower[which] += u32::from(event.cycles > free.cycles);
                for ((bound, event), cycle) in bound.sections.iter().zip(&event.sections).zip(&cycle.sections) {
                    assert!(bound.cycles <= event.cycles.min(cycle.cycles), "{about}");
                    assert_eq!(event.traffic, cycle.traffic, "{about}");
                    let [event_cycles, cycle_cycles] = [event, cycle].map(|s| (s.cycles - s.launch_cycles) as f64);
                    if cycle_cycles >= LONG as f64 {
                        errors[which].push((event_cycles / cycle_cycles - 1.0).abs());
                    }
                }
            }
        }
    }
    for ((losses, errors), slower) in LOSSES.iter().zip(&mut errors).zip(slower) {
        errors.sort_by(f64::total_cmp);
        let (median, worst) = (errors[errors.len() / 2], errors[errors.len() - 1]);
        assert!(slower > least, "{losses:?}");
        // Limited accesses are those of single bursts in the reference model, a rate in the event engine.
        let most = if matches!(losses, Losses::Outstanding(_)) { (0.035, 0.35) } else { (0.01, 0.25) };
        let is_near = errors.len() < MANY || median <= most.0;
        assert!(is_near && worst <= most.1, "{losses:?}: median {median}, worst {worst}");
    }
}

#[test]
fn a_gpu_has_no_use_for_penalties() {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "arch", "a100.toml"].iter().collect();
    for set in ["turnaround_ns=20", "write_batch_bytes=20", "non_sequential_ns=20", "part=\"hbm2e\""] {
        let key = set;
        let set = Override::parse(&format!("arch.memory.hbm.{set}")).expect("an override");
        let Err(refused) = arch::open(&path, &[set]) else { panic!("{key} was accepted") };
        assert!(refused.title().ends_with("has no effect on a GPU"), "{}", refused.title());
    }
}
