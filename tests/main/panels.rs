//! Nests whose product is cut into panels of columns: what they move, what they take, and what the search makes of them.

use rayon::prelude::*;
use rdusim::arch;
use rdusim::compile::{BaseCache, Effort, compile_with, legal};
use rdusim::input::Override;
use rdusim::mode::Mode;
use rdusim::outcome::{Fidelity, SectionOutcome};
use rdusim::program::{Configuration, Section};
use rdusim::sim::{check_size, run_section, simulate};
use rdusim::workload::{self, Workload};

use crate::legal::files;

/// Pairs of chips and graphs that are drawn from.
const PAIRS: usize = 600;
const MIB: u64 = 1 << 20;

/// A drawn mapping of which some section has panels.
fn drawn(number: usize) -> Option<(arch::Chip, Workload, Configuration)> {
    let (chip, workload) = files(number);
    let configuration = legal(&chip, &workload, number as u64 + 7)?;
    configuration.sections.iter().any(in_panels).then_some((chip, workload, configuration))
}

fn in_panels(section: &Section) -> bool {
    section.schedule.nest().has_panels()
}

/// Both engines agree on what nests with panels take, and what repeats is skipped to the cycle.
#[test]
fn the_engines_agree_on_panels() {
    let of_pair = |number: usize| -> Vec<(f64, u64)> {
        let Some((chip, workload, configuration)) = drawn(number) else { return Vec::new() };
        for section in configuration.sections.iter().filter(|section| in_panels(section)) {
            let chip = section.chip(&chip, &workload);
            let [skipped, all] = [true, false].map(|skip| run_section(&chip, &workload, section, skip));
            let [skipped, all] = [skipped, all].map(|run| run.map(|run| (run.cycles, run.tier_busy_cycles)));
            assert_eq!(skipped, all, "pair {number}, `{}`", section.name);
        }
        if check_size(&chip, &workload, &configuration).is_err() {
            return Vec::new();
        }
        let [event, cycle] =
            [Fidelity::Event, Fidelity::Cycle].map(|fidelity| simulate(&chip, &workload, &configuration, fidelity));
        let sections = configuration.sections.iter().zip(&event.sections).zip(&cycle.sections);
        // The reference model ends after a million cycles.
        let is_whole = |event: &SectionOutcome| event.cycles < 900_000;
        let of_panels = sections.filter(|((section, event), _)| in_panels(section) && is_whole(event));
        let compared = of_panels.map(|((section, event), cycle)| {
            assert_eq!(event.traffic, cycle.traffic, "pair {number}, `{}`", section.name);
            (event.cycles as f64 / cycle.cycles as f64 - 1.0, cycle.cycles)
        });
        compared.collect()
    };
    let all: Vec<(f64, u64)> = (0..PAIRS).into_par_iter().flat_map_iter(of_pair).collect();
    let mut long: Vec<f64> = all.iter().filter(|(_, cycles)| *cycles >= 5_000).map(|(error, _)| error.abs()).collect();
    long.sort_by(f64::total_cmp);
    assert!(all.len() >= 60 && long.len() >= 20, "{} sections, {} long ones", all.len(), long.len());
    let at = |share: f64| long[((long.len() - 1) as f64 * share) as usize];
    let (median, late, worst) = (at(0.5), at(0.95), at(1.0));
    // Draws of a row or two in a tile, which no search takes, are the worst: as far off as others that cut K.
    assert!(median < 0.005 && late < 0.12 && worst < 0.25, "median {median:.4}, 95th {late:.4}, worst {worst:.4}");
}

/// An operand is read once a panel, a weight once a row block, and a result is written once.
#[test]
fn traffic_is_that_of_the_nest() {
    let mut checked = 0;
    for number in 0..PAIRS {
        let Some((chip, workload, configuration)) = drawn(number) else { continue };
        for section in configuration.sections.iter().filter(|section| in_panels(section)) {
            let run = run_section(&section.chip(&chip, &workload), &workload, section, true).expect("a pipeline");
            let nest = section.schedule.nest();
            for (off_chip, moved) in section.streams.iter().zip(&run.streams) {
                let tensor = &workload.tensors[off_chip.stream.tensor];
                let times = match (off_chip.stream.weight, off_chip.stream.writes) {
                    // Of one product's operands, the second may stay on chip.
                    (true, _) => [nest.blocks(), 1],
                    (false, true) => [1, 1],
                    // What joins behind the product has its columns.
                    (false, false) => [nest.panels(), 1],
                };
                let bytes = tensor.stored_bytes();
                let is_right = times.iter().any(|times| times * bytes == moved.payload);
                let found = moved.payload;
                assert!(is_right, "pair {number}, `{}`: {found} of {bytes}, {times:?} times", tensor.name);
                checked += 1;
            }
        }
    }
    assert!(checked > 200, "{checked} streams");
}

/// GPT-13B's block on an SN10 whose scratchpads shrink from 40 to 10 MiB: MiB off chip, kernel by kernel and fused, are no more than
/// a nest without panels can reach by hand, and never rise with SRAM.
#[test]
fn short_sram_takes_panels() {
    let workload = workload::load("workloads/gpt13b-mlp.toml".as_ref(), &[], 0).expect("a workload");
    let mut before = [u64::MAX; 2];
    for (capacity, most) in [(16, [1_600, 1_440]), (32, [1_160, 1_000]), (64, [880, 720])] {
        let set = Override::parse(&format!("arch.pmu.capacity_bytes={}", capacity << 10)).expect("an override");
        let chip = arch::load("arch/sn10.toml".as_ref(), &[set]).expect("a chip");
        let modes = [Mode::Kbk, Mode::Fused];
        let compiled = compile_with(&chip, &workload, &modes, Effort::Low, &BaseCache::default()).expect("it fits");
        for ((of, most), before) in compiled.iter().zip(most).zip(&mut before) {
            let run = simulate(&chip, &workload, &of.configuration, Fidelity::Bound);
            let of_section = |run: &SectionOutcome| run.traffic.off_chip_read_bytes + run.traffic.off_chip_write_bytes;
            let moved: u64 = run.sections.iter().map(of_section).sum();
            assert!(moved <= most * MIB, "{capacity} KiB a PMU: {} MiB", moved / MIB);
            assert!(moved <= *before, "{capacity} KiB a PMU: {} MiB, before {}", moved / MIB, *before / MIB);
            *before = moved;
            assert!(of.configuration.sections.iter().any(in_panels), "{capacity} KiB a PMU");
        }
    }
}
