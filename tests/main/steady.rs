//! Skipping what repeats changes nothing but the time it takes.

use std::cell::Cell;
use std::path::PathBuf;

use crate::laws::for_all;
use proptest::prelude::*;
use rdusim::arch::{self, Chip};
use rdusim::compile::compile;
use rdusim::cost::{SectionRun, SkippedPeriods};
use rdusim::mode::Mode;
use rdusim::program::Section;
use rdusim::sim::run_section;
use rdusim::workload::{self, Workload};

/// Nests made from one that was compiled: tokens cut by the first, row blocks of the second, rows times the third.
const NESTS: [(u64, u64, u64); 6] = [(1, 64, 1), (2, 64, 3), (3, 2, 9), (1, 1, 7), (5, 7, 40), (4, 3, 101)];

/// Most rows of a case, for the sake of the run without skipping.
const MOST_ROWS: u64 = 20_000;

/// Both ways of running a section, without the counts of events and work; and the events.
fn runs(chip: &Chip, workload: &Workload, section: &Section) -> [(SectionRun, u64); 2] {
    [true, false].map(|skip| {
        let mut run = run_section(chip, workload, section, skip).expect("a section of the workload");
        let events = std::mem::take(&mut run.events);
        run.work = 0;
        run.skipped = SkippedPeriods::default();
        (run, events)
    })
}

#[test]
fn skipped_periods_leave_every_count_as_it_was() {
    let (ran, skipped, saved, all) = (Cell::new(0u64), Cell::new(0u64), Cell::new(0u64), Cell::new(0u64));
    for_all(12, |chip, graph| {
        let (chip, workload) = (chip.chip(), graph.workload());
        for mode in Mode::ALL {
            let Ok(configuration) = compile(&chip, &workload, mode) else { continue };
            for (section, (cut, block, rows)) in configuration.sections.iter().flat_map(|s| NESTS.map(|n| (s, n))) {
                let mut section = section.clone();
                let changed = section.change_nest(|nest| {
                    nest.tile_rows = (nest.tile_rows / cut).max(1);
                    nest.rows = (nest.rows * rows).min(MOST_ROWS).min(nest.tile_rows * 1_000);
                    nest.block_tiles = block.min(nest.block_tiles);
                });
                prop_assert_eq!(changed, Ok(()));
                let [(fast, few), (slow, many)] = runs(&chip, &workload, &section);
                prop_assert_eq!(&fast, &slow, "{} {:?}", &section.name, section.schedule.nest());
                prop_assert!(few <= many);
                ran.set(ran.get() + 1);
                skipped.set(skipped.get() + u64::from(few < many));
                saved.set(saved.get() + (many - few));
                all.set(all.get() + many);
            }
        }
        Ok(())
    });
    println!("{} runs, {} with periods skipped, {} of {} events", ran.get(), skipped.get(), saved.get(), all.get());
    // Where slots lie on other channels every time, a period may be longer than the run.
    assert!(4 * skipped.get() > ran.get(), "hardly anything was skipped");
    assert!(2 * saved.get() > all.get(), "few events were saved");
}

/// Whatever the chip: streams of one of SN40L's tiers say nothing of the other, and the channels of SN10, which are always
/// busy with the dense block, keep in step. On SN10 slots of
/// the sparse block lie in the same place again after 96 row blocks only, and on an SN40L after many as well.
#[test]
fn rows_of_one_nest_cost_hardly_more_events() {
    let cases = [
        ("sn10", "gpt13b-mlp", 2),
        ("sn40l", "gpt13b-mlp", 2),
        ("sn40l", "gpt13b-mlp-sparse", 6),
        ("sn10", "gpt13b-mlp-sparse", 6),
    ];
    for (arch, workload, most) in cases {
        let file = |directory: &str, name: &str| -> PathBuf {
            [env!("CARGO_MANIFEST_DIR"), directory, &format!("{name}.toml")].iter().collect()
        };
        let chip = arch::load(&file("arch", arch), &[]).unwrap_or_else(|error| panic!("{}", error.render(false)));
        let ffn = workload::load(&file("workloads", workload), &[], 0);
        let ffn = ffn.unwrap_or_else(|error| panic!("{}", error.render(false)));
        let configuration = compile(&chip, &ffn, Mode::Fused).unwrap_or_else(|error| panic!("{}", error.render(false)));
        let mut section = configuration.sections[0].clone();
        let mut events = |rows: u64| {
            section.change_nest(|nest| nest.rows = rows).expect("tiles have elements");
            run_section(&chip, &ffn, &section, true).map_or(u64::MAX, |run| run.events)
        };
        let (few, many) = (events(1 << 16), events(1 << 21));
        println!("{arch} {workload}: {few} events of 65,536 rows, {many} of 2,097,152");
        assert!(many < few * most, "{arch} {workload}: {many} events of 32 times the rows, {few} of fewer");
    }
}
