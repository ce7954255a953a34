//! Nests whose product is cut into panels of columns: what they move, what they take, and what the search makes of them.

use rayon::prelude::*;
use rdusim::arch;
use rdusim::compile::legal;
use rdusim::input::Override;
use rdusim::mode::Mode;
use rdusim::outcome::{Fidelity, SectionOutcome};
use rdusim::program::{Configuration, LoopLevel, LoopOrder, Nest, Panels, Section, SectionGraph, TiledAxis};
use rdusim::proof::floor_of;
use rdusim::sim::{check_size, run_section, simulate};
use rdusim::workload::{self, Workload};

use crate::legal::{files, found_quickly};

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

/// What [`product`] may have behind it.
pub(crate) const GELU: &str = "[[operators]]\nname = \"gelu\"\nkind = \"gelu\"\ninputs = [\"y\"]\noutput = \"z\"\n";

/// A product of so many rows, depth and columns, with what stands behind it.
pub(crate) fn product([rows, depth, columns]: [u64; 3], behind: &str) -> Workload {
    let text = format!(
        "schema = 1\nname = \"w\"\ndtype = \"bf16\"\n[[tensors]]\nname = \"x\"\nshape = [{rows}, {depth}]\nrole = \"input\"\n\
         [[tensors]]\nname = \"w\"\nshape = [{depth}, {columns}]\nrole = \"weight\"\n\
         [[operators]]\nname = \"up\"\nkind = \"gemm\"\ninputs = [\"x\", \"w\"]\noutput = \"y\"\n{behind}"
    );
    workload::parse("w", &text, &[], 0).expect("a product")
}

/// An SN10 with some fields set.
pub(crate) fn sn10(sets: &[&str]) -> arch::Chip {
    let set = |set: &&str| Override::parse(&format!("arch.{set}")).expect("an override");
    let sets: Vec<Override> = sets.iter().map(set).collect();
    arch::load("arch/sn10.toml".as_ref(), &sets).expect("a chip")
}

/// A weight that stays on chip is read once, however many row blocks the sums need: no floor counts it again.
#[test]
fn a_weight_that_stays_is_read_once_by_the_floor_too() {
    // 640 x 640 weights of bf16 are 800 KiB, and 10,000 x 640 sums 24.4 MiB: with 1.25 MiB of SRAM they take 20 blocks or panels.
    let workload = product([10_000, 640, 640], "");
    let chip = sn10(&["pmu.capacity_bytes=2048"]);
    let of = workload.operators.ids().collect::<Vec<_>>();
    let graph = SectionGraph::new(&workload, &of, false).expect("a pipeline");
    let axes = graph.panel_axes().expect("one product");
    let panels = Some(Panels { axis: axes.columns, extent: 640, width: 320 });
    let cut = TiledAxis { panels, ..TiledAxis::new(axes.depth, 640, 320) };
    let order = LoopOrder::ColumnTileOuter;
    let nest = Nest { rows: 10_000, tile_rows: 100, block_tiles: 1, tiled_axis: Some(cut), order };
    let floor = floor_of(&chip, &workload, &of, &nest).expect("a section");
    // The operand twice, weight and result once, at 100 GB/s and 1.25 GHz: 80 bytes a cycle.
    let bytes = 2 * 10_000 * 640 * 2 + 640 * 640 * 2 + 10_000 * 640 * 2;
    let memory = bytes / 80;
    assert!((memory..memory + memory / 100).contains(&floor), "floor {floor}, memory {memory}");
}

/// The operand is read once a panel, the weight once a row block unless it stays on chip, and all else once.
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
                let is_operand = section.stages.iter().any(|stage| {
                    stage.spec.weight.is_some() && stage.spec.activations.contains(&off_chip.stream.tensor)
                });
                let times = match off_chip.stream.level {
                    _ if is_operand => nest.panels(),
                    LoopLevel::BLOCK_COLUMN => nest.blocks(),
                    _ => 1,
                };
                let bytes = tensor.stored_bytes();
                assert_eq!(moved.payload, times * bytes, "pair {number}, `{}`: {times} times {bytes}", tensor.name);
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
        let chip = sn10(&[&format!("pmu.capacity_bytes={}", capacity << 10)]);
        let modes = [Mode::Kbk, Mode::Fused];
        let compiled = found_quickly(&chip, &workload, &modes).expect("it fits");
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

/// Products of a range of sizes on grids of 96 PCUs of an SN10 with less SRAM than their sums need, as the search maps them.
fn found_on_short_sram(sizes: [u64; 3]) -> (arch::Chip, Workload, Configuration) {
    let workload = product(sizes, GELU);
    let sets =
        ["pmu.capacity_bytes=4096", "grid.columns=16", "grid.rows=12", "grid.tile_columns=16", "grid.tile_rows=12"];
    let chip = sn10(&sets);
    let compiled = found_quickly(&chip, &workload, &[Mode::Fused]).expect("it fits").pop().expect("a mode");
    (chip, workload, compiled.configuration)
}

/// What the search takes on short SRAM runs nearly as in the reference model.
#[test]
fn the_engines_agree_on_panels_that_are_found() {
    let of_sizes = |sizes: &[u64; 3]| -> f64 {
        let (chip, workload, configuration) = found_on_short_sram(*sizes);
        assert!(configuration.sections.iter().any(in_panels), "{sizes:?}: no panels");
        let [event, cycle] =
            [Fidelity::Event, Fidelity::Cycle].map(|fidelity| simulate(&chip, &workload, &configuration, fidelity));
        (event.cycles as f64 / cycle.cycles as f64 - 1.0).abs()
    };
    let sizes = [[512, 512, 768], [512, 768, 1_100], [640, 640, 768]];
    let mut all: Vec<f64> = sizes.par_iter().map(of_sizes).collect();
    all.sort_by(f64::total_cmp);
    assert!(all[1] < 0.02 && all[2] < 0.05, "{all:?}");
}
