//! K of a GEMM split over PCUs: what the search makes of it, and that all fidelities agree on it.

use crate::random::pair;
use rdusim::arch::{self, Chip};
use rdusim::compile::{compile_measured, retargeted_section};
use rdusim::input::Override;
use rdusim::mode::Mode;
use rdusim::outcome::{Fidelity, Outcome, StopReason};
use rdusim::program::{Configuration, GemmMapping, LoopOrder, Mapping, Nest, Reduction};
use rdusim::saved;
use rdusim::sim::simulate;
use rdusim::workload::{self, Workload};

/// Of the pairs of seed 1, one by one and fused.
const PAIRS: [usize; 2] = [21, 307];

/// A grid of 8 x 8 sites and a memory that is never in the way.
pub(crate) fn chip() -> Chip {
    let text = include_str!("../../arch/plasticine.toml");
    let sets = ["arch.memory.ddr.bandwidth_gb_per_s=4000", "arch.memory.ddr.channels=16"]
        .map(|set| Override::parse(set).expect("an override"));
    arch::parse("plasticine", text, &sets).unwrap_or_else(|error| panic!("{}", error.render(false)))
}

/// `m` rows by a weight of `k` rows and `n` columns.
pub(crate) fn product(m: u64, k: u64, n: u64, sparsity: &str) -> Workload {
    let text = format!(
        "schema = 1\nname = \"product\"\ndtype = \"fp32\"\n\
         [[tensors]]\nname = \"a\"\nshape = [{m}, {k}]\nrole = \"input\"\n\
         [[tensors]]\nname = \"b\"\nshape = [{k}, {n}]\nrole = \"weight\"\n{sparsity}\n\
         [[operators]]\nname = \"gemm\"\nkind = \"gemm\"\ninputs = [\"a\", \"b\"]\noutput = \"c\"\n"
    );
    workload::parse("product", &text, &[], 0).unwrap_or_else(|error| panic!("{}\n{text}", error.render(false)))
}

pub(crate) const SPARSE: &str = "sparsity = { pattern = \"block\", block = [8, 8], density = 0.25, seed = 5 }";

pub(crate) fn compiled(chip: &Chip, workload: &Workload) -> Configuration {
    let mut list = compile_measured(chip, workload, &[Mode::Kbk]).unwrap_or_else(|e| panic!("{}", e.render(false)));
    list.remove(0).configuration
}

/// The configuration with K whole over time, in row tiles of `tile_rows`, and another mapping.
pub(crate) fn with(
    chip: &Chip,
    workload: &Workload,
    of: &Configuration,
    tile_rows: u64,
    change: impl Fn(&mut GemmMapping) + Copy,
) -> Configuration {
    let mut other = of.clone();
    for section in &mut other.sections {
        let tokens = section.schedule.tiling().rows.div_ceil(tile_rows);
        let order = LoopOrder::ColumnTileOuter;
        let one_block =
            |nest: &mut Nest| *nest = Nest { tile_rows, block_tiles: tokens, tiled_axis: None, order, ..*nest };
        section.change_nest(one_block).expect("tiles have elements");
        *section = retargeted_section(chip, workload, section, change).unwrap_or_else(|why| panic!("{why}"));
    }
    other
}

fn splits(configuration: &Configuration) -> Vec<u64> {
    let stages = configuration.sections.iter().flat_map(|section| &section.stages);
    stages.map(|stage| if let Mapping::Gemm(m) = stage.mapping { m.pk } else { 1 }).collect()
}

pub(crate) fn working_cycles(outcome: &Outcome) -> u64 {
    assert_eq!(outcome.stop, StopReason::Drained);
    outcome.sections.iter().map(|section| section.cycles - section.launch_cycles).sum()
}

/// Two column tiles, a row tile at a time: two PCUs have work, unless each has a part of the depth.
#[test]
fn slices_of_k_work_side_by_side() {
    let chip = chip();
    let workload = product(240, 4096, 32, "");
    let found = compiled(&chip, &workload);
    let cycles = |pk: u64| {
        let split = with(&chip, &workload, &found, 6, |m| {
            *m = GemmMapping {
                reduction: Reduction::Chain,
                rows_on_lanes: false,
                pm: 1,
                pn: 2,
                pk,
                multicast_width: 2,
                aligned: false,
                ..*m
            };
        });
        working_cycles(&simulate(&chip, &workload, &split, Fidelity::Event)) as f64
    };
    let whole = cycles(1);
    for pk in [2, 4] {
        let gain = whole / cycles(pk);
        assert!(gain > 0.75 * pk as f64, "{pk} slices are {gain} times as fast as one");
    }
}

/// Pairs in which a split of K is the best that the search finds.
#[test]
fn the_search_splits_k_where_that_pays() {
    for number in PAIRS {
        let (_, chip, graph) = pair(1, number);
        let list = compile_measured(&chip.chip(), &graph.workload(), &[Mode::Kbk, Mode::Fused]).unwrap();
        let most = list.iter().flat_map(|c| splits(&c.configuration)).max();
        assert!(most > Some(1), "pair {number}");
    }
}

#[test]
fn all_fidelities_agree_on_slices_of_k() {
    let chip = chip();
    for (sparsity, columns) in [("", 24), (SPARSE, 48)] {
        let workload = product(96, 1000, columns, sparsity);
        let found = compiled(&chip, &workload);
        for (pk, pn, share) in [(1, 2, 2), (2, 2, 2), (3, 4, 2), (5, 2, 1), (7, 1, 1)] {
            let split = with(&chip, &workload, &found, 24, |m| {
                *m = GemmMapping {
                    reduction: Reduction::Chain,
                    rows_on_lanes: true,
                    pm: 1,
                    pn,
                    pk,
                    multicast_width: share,
                    aligned: false,
                    ..*m
                };
            });
            let [bound, event, cycle] = [Fidelity::Bound, Fidelity::Event, Fidelity::Cycle]
                .map(|fidelity| simulate(&chip, &workload, &split, fidelity));
            let about = format!("{sparsity} {pk} slices, {pn} columns in lockstep groups of {share}");
            for (e, c) in event.sections.iter().zip(&cycle.sections) {
                assert_eq!(e.traffic, c.traffic, "{about}");
            }
            let [bound, event_cycles, cycle] = [&bound, &event, &cycle].map(working_cycles);
            assert!(bound <= event_cycles, "{about}: bound {bound}, event {event_cycles}");
            let error = event_cycles as f64 / cycle as f64 - 1.0;
            assert!(error.abs() < 0.05, "{about}: event {event_cycles}, cycle {cycle}");
        }
    }
}

/// Of one tile a token: a slot of sums is free again when its one tile has begun.
#[test]
fn sums_of_one_tile_free_their_slot_early() {
    let chip = chip();
    let workload = product(480, 1000, 24, "");
    let found = compiled(&chip, &workload);
    for pk in [2, 3] {
        let split = with(&chip, &workload, &found, 6, |m| {
            *m = GemmMapping {
                reduction: Reduction::Chain,
                rows_on_lanes: false,
                pm: 1,
                pn: 2,
                pk,
                multicast_width: 2,
                aligned: false,
                ..*m
            };
        });
        let [event, cycle] = [Fidelity::Event, Fidelity::Cycle]
            .map(|fidelity| working_cycles(&simulate(&chip, &workload, &split, fidelity)));
        let error = event as f64 / cycle as f64 - 1.0;
        assert!(error.abs() < 0.02, "{pk} slices: event {event}, cycle {cycle}");
    }
}

#[test]
fn a_split_is_saved_and_what_cannot_be_is_refused() {
    let chip = chip();
    let workload = product(64, 4096, 16, "");
    let found = with(&chip, &workload, &compiled(&chip, &workload), 16, |m| {
        *m = GemmMapping {
            reduction: Reduction::Chain,
            rows_on_lanes: true,
            pm: 1,
            pn: 1,
            pk: 3,
            multicast_width: 1,
            aligned: false,
            ..*m
        };
    });
    let text = saved::to_toml(&chip, &workload, [&found]);
    assert!(text.contains("role = \"partial_fifo\"") && text.contains("k_slice = 0"), "{text}");
    let read = |text: &str| saved::parse("saved.toml", text, &chip, &workload, &[Mode::Kbk]);
    let again = read(&text).unwrap_or_else(|error| panic!("{}", error.render(false)));
    assert_eq!(format!("{:?}", again[0]), format!("{found:?}"));
    for (from, to, told) in [
        ("pk = 3", "pk = 0", "`pk` is 0"),
        ("pk = 3", "pk = 5000", "`pk` is 5000"),
        ("streams = 1", "streams = 0", "`streams` is 0"),
        ("pm = 1", "pm = 9223372036854775807", "`pm` is 9223372036854775807"),
        ("k_slice = 0", "", "a partial-sum FIFO has no `k_slice`"),
        ("role = \"operand\"", "k_slice = 1\nrole = \"operand\"", "only a partial-sum FIFO has a `k_slice`"),
        ("k_slice = 0", "k_slice = 77", "expected a partial-sum FIFO of `gemm` with `k_slice = 0`"),
    ] {
        let edited = text.replacen(from, to, 1);
        assert_ne!(edited, text);
        let refused = read(&edited).map(|_| ()).unwrap_err().render(false);
        assert!(refused.contains(told) && refused.contains("saved.toml:"), "{to}: {refused}");
    }
}
