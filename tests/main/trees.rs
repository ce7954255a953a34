//! Partial sums of slices of K that come together in a tree, also where column tiles cut K over time.

use crate::splits::{SPARSE, chip, compiled, product, with, working_cycles};
use rdusim::arch::Chip;
use rdusim::compile::retargeted_section;
use rdusim::outcome::Fidelity;
use rdusim::program::{Configuration, GemmMapping, LoopOrder, Reduction, SectionGraph, TiledAxis};
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
    println!("{about}: bound {bound}, event {event}, cycle {cycle}: {:+.2} %", error * 100.0);
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
                    format!("{sparsity} {pk} slices, {pn} columns in bundles of {share}, row tiles of {tile_rows}");
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
            nest.tiled_axis = Some(TiledAxis { axis, extent: 1000, tile });
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
                let about = format!("{sparsity} {order:?} {pk} slices, {pn} columns in bundles of {share}");
                agree(&chip, &workload, &both, 0.08, &about);
                for run in verify(&chip, &workload, [&both], 3) {
                    assert!(run.passed, "{about}: {:?} {:?}", run.fault, run.end_to_end);
                }
            }
        }
    }
}
