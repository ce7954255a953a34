//! Partial sums of slices of K that come together in a tree, also where column tiles cut K over time.

use crate::splits::{SPARSE, chip, compiled, product, with, working_cycles};
use rdusim::arch::Chip;
use rdusim::compile::retargeted_section;
use rdusim::mode::Mode;
use rdusim::outcome::Fidelity;
use rdusim::program::{Configuration, GemmMapping, LoopOrder, Reduction, SectionGraph, TiledAxis};
use rdusim::saved;
use rdusim::sim::simulate;
use rdusim::verify::verify;
use rdusim::workload::Workload;

/// The fidelities agree: bytes and flits the same, no fidelity below the bound, and event and reference close.
fn agree(chip: &Chip, workload: &Workload, of: &Configuration, within: f64, about: &str) -> [u64; 2] {
    let [bound, event, cycle] =
        [Fidelity::Bound, Fidelity::Event, Fidelity::Cycle].map(|fidelity| simulate(chip, workload, of, fidelity));
    for (e, c) in event.sections.iter().zip(&cycle.sections) {
        assert_eq!(e.traffic, c.traffic, "{about}");
    }
    let [bound, event, cycle] = [&bound, &event, &cycle].map(working_cycles);
    assert!(bound <= event, "{about}: bound {bound}, event {event}");
    let error = event as f64 / cycle as f64 - 1.0;
    assert!(error.abs() < within, "{about}: event {event}, cycle {cycle}");
    [event, cycle]
}

#[test]
fn all_fidelities_agree_on_trees() {
    let chip = chip();
    for (sparsity, columns) in [("", 24), (SPARSE, 48)] {
        let workload = product(96, 1000, columns, sparsity);
        let found = compiled(&chip, &workload);
        for (pk, pn, share) in [(2, 2, 2), (3, 4, 2), (4, 2, 2), (5, 2, 1), (8, 1, 1)] {
            for tile_rows in [6, 24] {
                let tree = with(&chip, &workload, &found, tile_rows, |m| {
                    *m = GemmMapping {
                        rows_on_lanes: tile_rows > 6,
                        pm: 1,
                        pn,
                        pk,
                        multicast_width: share,
                        aligned: false,
                        ..*m
                    };
                    m.reduction = Reduction::Tree;
                });
                let about =
                    format!("{sparsity} {pk} slices, {pn} columns in multicasts of {share}, row tiles of {tile_rows}");
                agree(&chip, &workload, &tree, 0.05, &about);
            }
        }
    }
}

/// K in column tiles, and each of them in slices on PCUs of their own.
fn over_both(
    chip: &Chip,
    workload: &Workload,
    tile: u64,
    order: LoopOrder,
    change: impl Fn(&mut GemmMapping),
) -> Configuration {
    let mut other = compiled(chip, workload);
    let section = &mut other.sections[0];
    let graph = SectionGraph::new(workload, &section.operators, false).expect("a pipeline");
    let axis = graph.column_axis(graph.stages.iter().next().expect("a stage").activations[0]).expect("an axis");
    section
        .change_nest(|nest| {
            (nest.tile_rows, nest.block_tiles, nest.order) = (12, 4, order);
            nest.tiled_axis = Some(TiledAxis::new(axis, 1000, tile));
        })
        .expect("tiles have elements");
    *section = retargeted_section(chip, workload, section, change).unwrap_or_else(|why| panic!("{why}"));
    other
}

#[test]
fn k_is_cut_over_pcus_and_over_time_at_once() {
    let chip = chip();
    for (sparsity, columns) in [("", 24), (SPARSE, 48)] {
        let workload = product(96, 1000, columns, sparsity);
        for order in [LoopOrder::ColumnTileOuter, LoopOrder::RowTileOuter] {
            for (pk, pn, share) in [(1, 2, 2), (2, 2, 2), (3, 4, 2), (4, 2, 1)] {
                let both = over_both(&chip, &workload, 320, order, |m| {
                    *m = GemmMapping {
                        rows_on_lanes: false,
                        pm: 1,
                        pn,
                        pk,
                        multicast_width: share,
                        aligned: false,
                        ..*m
                    };
                    m.reduction = if pk > 1 { Reduction::Tree } else { Reduction::Chain };
                });
                let about = format!("{sparsity} {order:?} {pk} slices, {pn} columns in multicasts of {share}");
                agree(&chip, &workload, &both, 0.08, &about);
                for run in verify(&chip, &workload, [&both], 3) {
                    assert!(run.passed, "{about}: {:?} {:?}", run.fault, run.end_to_end);
                }
            }
        }
    }
}

#[test]
fn a_tree_is_saved_and_a_chain_over_time_is_refused() {
    let chip = chip();
    let workload = product(96, 1000, 24, "");
    let both = over_both(&chip, &workload, 320, LoopOrder::ColumnTileOuter, |m| {
        *m = GemmMapping { rows_on_lanes: false, pm: 1, pn: 2, pk: 3, multicast_width: 2, aligned: false, ..*m };
        m.reduction = Reduction::Tree;
    });
    let text = saved::to_toml(&chip, &workload, [&both]);
    let read = |text: &str| saved::parse("saved.toml", text, &chip, &workload, &[Mode::Kbk]);
    let again = read(&text).unwrap_or_else(|error| panic!("{}", error.render(false)));
    assert_eq!(format!("{:?}", again[0]), format!("{both:?}"));
    for (to, told) in [
        ("", "`reduction` is `chain`"),
        (", reduction = \"star\"", "reduction"),
        (", reduction = \"chain\"", "expected `tree`: K is cut over time too"),
    ] {
        let spoiled = text.replacen(", reduction = \"tree\"", to, 1);
        assert_ne!(spoiled, text, "{text}");
        let error = read(&spoiled).expect_err(told).render(false);
        assert!(error.contains(told), "{told}: {error}");
    }
}

/// A product of few rows and columns and a deep K, which one PCU in eight can work on with K whole: every slice begins at once
/// in a tree, and behind the one before it in a chain.
#[test]
fn a_tree_makes_a_single_row_tile_faster() {
    let chip = chip();
    let workload = product(6, 8192, 16, "");
    let found = compiled(&chip, &workload);
    let cycles = |pk: u64, reduction: Reduction| {
        let split = with(&chip, &workload, &found, 6, |m| {
            *m = GemmMapping { rows_on_lanes: false, pm: 1, pn: 1, pk, multicast_width: 1, aligned: false, ..*m };
            m.reduction = reduction;
        });
        let [event, _] = agree(&chip, &workload, &split, 0.05, &format!("{reduction:?} of {pk}"));
        event as f64
    };
    let (whole, chain, tree) = (cycles(1, Reduction::Chain), cycles(8, Reduction::Chain), cycles(8, Reduction::Tree));
    assert!(chain > 0.9 * whole && tree < 0.3 * whole, "whole {whole}, chain {chain}, tree {tree}");
}
