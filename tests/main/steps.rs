//! Steps of optimisers in the tail of the product that makes their gradient: numbers, bytes, bounds, and the reference model.

use crate::kinds::hold;
use crate::sums;
use proptest::prelude::*;
use rdusim::arch::Chip;
use rdusim::compile::{compile, compile_measured, retargeted_section};
use rdusim::mode::Mode;
use rdusim::outcome::Fidelity;
use rdusim::program::verifier::Verifier;
use rdusim::program::{
    BufferRole, Configuration, Fabric, FlowKind, GemmMapping, LoopOrder, Section, SectionGraph, TiledAxis, tensor_tiers,
};
use rdusim::sim::simulate;
use rdusim::verify::verify;
use rdusim::workload::{self, Workload};

/// Two layers, trained: rows, columns between them, columns behind the second.
#[derive(Debug, Clone, Copy)]
struct Layers {
    /// `adam`, `sgd`, or `sum`: SGD behind eight micro-batches, of whose gradients a running sum is kept.
    optimizer: &'static str,
    dtype: &'static str,
    shape: [u64; 3],
}

const ADAM: Layers = Layers { optimizer: "adam", dtype: "bf16", shape: [96, 64, 128] };

/// The gradient's product and the step on the second weight in one section, and in two.
const JOINED: &[&[&str]] = &[&["pre", "up"], &["up.dx", "up.dw", "update_w1"], &["pre.dw"], &["update_w0"]];
const APART: &[&[&str]] = &[&["pre", "up"], &["up.dx", "up.dw"], &["pre.dw"], &["update_w0"], &["update_w1"]];

impl Layers {
    fn workload(self, sections: &[&[&str]]) -> Workload {
        let Self { optimizer, dtype, shape: [rows, inner, columns] } = self;
        let mut sections: Vec<Vec<&str>> = sections.iter().map(|list| list.to_vec()).collect();
        let (optimizer, micro_batches) = if optimizer == "sum" { ("sgd", 8) } else { (optimizer, 1) };
        if micro_batches > 1 && !sections.is_empty() {
            // What the steps are otherwise, the running sums are, and the steps come behind all.
            for name in sections.iter_mut().flatten() {
                *name = match *name {
                    "update_w0" => "accumulate_w0",
                    "update_w1" => "accumulate_w1",
                    other => other,
                };
            }
            sections.extend([vec!["update_w0"], vec!["update_w1"]]);
        }
        let pinned = sections.iter().map(|list| format!("[[sections]]\noperators = {list:?}\n"));
        let pinned = pinned.collect::<Vec<_>>().concat();
        let tensor = |name: &str, rows: u64, columns: u64, role: &str| {
            format!("[[tensors]]\nname = \"{name}\"\nshape = [{rows}, {columns}]\nrole = \"{role}\"\n")
        };
        let text = [
            format!(
                "schema = 1\nname = \"layers\"\ndtype = \"{dtype}\"\n[training]\noptimizer = \"{optimizer}\"\n\
                 micro_batches = {micro_batches}\n{}",
                tensor("x", rows, inner, "input")
            ),
            tensor("w0", inner, inner, "weight"),
            tensor("w1", inner, columns, "weight"),
            "[[operators]]\nname = \"pre\"\nkind = \"gemm\"\ninputs = [\"x\", \"w0\"]\noutput = \"a\"\n[[operators]]\n\
             name = \"up\"\nkind = \"gemm\"\ninputs = [\"a\", \"w1\"]\noutput = \"y\"\n"
                .to_owned(),
            pinned,
        ]
        .concat();
        workload::parse("layers", &text, &[], 0).unwrap_or_else(|error| panic!("{}\n{text}", error.render(false)))
    }
}

fn has_step(section: &Section) -> bool {
    section.stages.iter().any(|stage| stage.spec.update.is_some())
}

/// The place of the section with a step in a tail.
fn joined(configuration: &Configuration) -> usize {
    configuration.sections.iter().position(has_step).expect("a step in a tail")
}

/// Sections with a step in a tail, for tests of what holds of all sections.
pub(crate) fn sections() -> Vec<Section> {
    let chip = sums::chip(&[]);
    let of = |optimizer| {
        let workload = Layers { optimizer, ..ADAM }.workload(JOINED);
        let configuration = compile(&chip, &workload, Mode::Fused).expect("a mapping");
        configuration.sections.into_iter().filter(has_step).collect::<Vec<_>>()
    };
    ["adam", "sgd", "sum"].into_iter().flat_map(of).collect()
}

/// The program is accepted, the engines agree, and the numbers are those of the graph.
fn prove(chip: &Chip, workload: &Workload, configuration: &Configuration, about: &str, most: f64) {
    let section = &configuration.sections[joined(configuration)];
    let graph = SectionGraph::new(workload, &section.operators, true).expect("a pipeline");
    let (fabric, tiers) = (Fabric::new(chip), tensor_tiers(chip, workload).expect("room"));
    let violations = Verifier { chip, fabric: &fabric, graph: &graph, tiers: &tiers }.violations(section);
    assert!(violations.is_empty(), "{about}: {violations:?}");
    hold(chip, workload, configuration, about, most);
    for run in verify(chip, workload, [configuration], 7) {
        assert!(run.passed, "{about}: {:?} {:?} {:?}", run.fault, run.by_stage, run.end_to_end);
    }
    let outcome = simulate(chip, workload, configuration, Fidelity::Event);
    let moved = &outcome.traffic().by_tensor;
    assert!(moved.get("d_w1").is_none_or(|bytes| bytes.off_chip_read_bytes + bytes.off_chip_write_bytes == 0));
}

#[test]
fn steps_in_tails_give_the_numbers() {
    let chip = sums::chip(&[]);
    for of in [
        ADAM,
        Layers { optimizer: "sgd", ..ADAM },
        Layers { optimizer: "sum", ..ADAM },
        Layers { dtype: "fp32", ..ADAM },
        Layers { shape: [130, 50, 90], ..ADAM },
        Layers { optimizer: "sgd", dtype: "fp32", shape: [77, 41, 63] },
    ] {
        let workload = of.workload(JOINED);
        let configuration = compile(&chip, &workload, Mode::Fused).unwrap_or_else(|error| panic!("{of:?}: {error:?}"));
        prove(&chip, &workload, &configuration, &format!("{of:?}"), 0.08);
    }
}

/// Row tiles, column tiles along each axis in both orders, and arrays that the search does not choose.
#[test]
fn steps_follow_any_nest() {
    let chip = sums::chip(&[]);
    let changes: [fn(&mut GemmMapping); 3] =
        [|_| {}, |m| m.rows_on_lanes = !m.rows_on_lanes, |m| (m.pm, m.pn, m.multicast_width) = (2, 2, 2)];
    for optimizer in ["adam", "sgd", "sum"] {
        let workload = Layers { optimizer, ..ADAM }.workload(JOINED);
        let configuration = compile(&chip, &workload, Mode::Fused).expect("a mapping");
        let at = joined(&configuration);
        let section = &configuration.sections[at];
        let graph = SectionGraph::new(&workload, &section.operators, true).expect("a pipeline");
        let cuts: Vec<Option<TiledAxis>> = std::iter::once(None)
            .chain(graph.axes.iter().enumerate().map(|(axis, of)| Some(TiledAxis::new(axis, of.extent, 48))))
            .collect();
        assert_eq!(cuts.len(), 3, "rows and columns of the weight");
        let mut tried = 0;
        for (c, cut) in cuts.into_iter().enumerate() {
            for (tile_rows, order) in
                [(16, LoopOrder::ColumnTileOuter), (40, LoopOrder::ColumnTileOuter), (24, LoopOrder::RowTileOuter)]
            {
                for (n, change) in changes.into_iter().enumerate() {
                    let mut other = configuration.clone();
                    let changed = other.sections[at].change_nest(|nest| {
                        (nest.tile_rows, nest.block_tiles) = (tile_rows, 96u64.div_ceil(tile_rows));
                        (nest.tiled_axis, nest.order) = (cut, if cut.is_some() { order } else { nest.order });
                    });
                    changed.expect("a nest");
                    let Ok(section) = retargeted_section(&chip, &workload, &other.sections[at], change) else {
                        continue;
                    };
                    other.sections[at] = section;
                    tried += 1;
                    let about = format!("{optimizer}, cut {c}, row tiles of {tile_rows}, {order:?}, change {n}");
                    prove(&chip, &workload, &other, &about, 0.25);
                }
            }
        }
        assert!(tried >= 15, "{tried} mappings");
    }
}

/// 96 rows, 64 x 128 weights in bf16, Adam: the section reads dY, X and the weight, of two bytes an element, and 12 bytes of
/// state an element of the weight; it writes dX and 14 bytes an element of the weight. Apart, the gradient is written and read.
#[test]
fn a_joined_step_moves_what_it_must() {
    let chip = sums::chip(&[]);
    let run = |sections| {
        let workload = ADAM.workload(sections);
        let configuration = compile(&chip, &workload, Mode::Fused).expect("a mapping");
        simulate(&chip, &workload, &configuration, Fidelity::Event)
    };
    let (together, apart) = (run(JOINED), run(APART));
    let of = together.sections.iter().find(|section| section.name.contains("up.dw")).expect("the section");
    let (rows, inner, columns) = (96, 64, 128);
    let weight = inner * columns;
    assert_eq!(of.traffic.off_chip_read_bytes, 2 * (rows * columns + rows * inner + weight) + 12 * weight);
    assert_eq!(of.traffic.off_chip_write_bytes, 2 * rows * inner + 14 * weight);
    assert_eq!(apart.traffic().off_chip_bytes() - together.traffic().off_chip_bytes(), 2 * 2 * weight);
    assert!(together.cycles < apart.cycles, "{} {}", together.cycles, apart.cycles);
    // The same graph: a bound that joining does not change, and the same useful work.
    assert_eq!(together.bound_cycles, apart.bound_cycles);
    assert!(together.bound_cycles <= together.cycles);
}

/// The search joins them by itself, where the weight is read no more; not where two products add up to a gradient.
#[test]
fn the_search_joins_steps_behind_the_last_reader_of_their_weight() {
    let chip = sums::chip(&[]);
    let workload = Layers { shape: [256, 128, 512], ..ADAM }.workload(&[]);
    let compiled = compile_measured(&chip, &workload, &[Mode::Kbk, Mode::Fused]).expect("a mapping");
    let [kbk, fused] = [0, 1].map(|at| &compiled[at].configuration);
    assert!(!kbk.sections.iter().any(has_step));
    let steps = fused.sections.iter().flat_map(|section| section.stages.iter()).filter(|s| s.spec.update.is_some());
    assert_eq!(steps.count(), 2, "both gradients have one maker");
    let place = |name: &str| {
        let holds = |section: &Section| section.operators.iter().any(|&op| workload.operators[op].name == name);
        fused.sections.iter().position(holds).expect("the operator")
    };
    assert!(place("up.dx") <= place("update_w1"));
    prove(&chip, &workload, fused, "chosen", 0.08);

    let tied = "schema = 1\nname = \"tied\"\ndtype = \"bf16\"\n[training]\noptimizer = \"adam\"\n[[tensors]]\nname = \"x\"\n\
        shape = [96, 64]\nrole = \"input\"\n[[tensors]]\nname = \"w\"\nshape = [64, 64]\nrole = \"weight\"\n[[operators]]\n\
        name = \"one\"\nkind = \"gemm\"\ninputs = [\"x\", \"w\"]\noutput = \"h\"\n[[operators]]\nname = \"two\"\n\
        kind = \"gemm\"\ninputs = [\"h\", \"w\"]\noutput = \"y\"\n";
    let tied = workload::parse("tied", tied, &[], 0).expect("a graph");
    let configuration = compile(&chip, &tied, Mode::Fused).expect("a mapping");
    assert!(!configuration.sections.iter().any(has_step), "a sum of two gradients has no single maker");
    assert!(verify(&chip, &tied, [&configuration], 3).iter().all(|run| run.passed));
}

/// With several micro-batches the running sum is read and written in the section that makes the gradient, and the step, which
/// runs once in all of them, stays apart.
#[test]
fn a_running_sum_is_read_and_written() {
    let chip = sums::chip(&[]);
    let workload = Layers { optimizer: "sum", ..ADAM }.workload(JOINED);
    let configuration = compile(&chip, &workload, Mode::Fused).expect("a mapping");
    let outcome = simulate(&chip, &workload, &configuration, Fidelity::Event);
    let of = &outcome.sections[joined(&configuration)];
    let (rows, inner, columns) = (96, 64, 128);
    let weight = inner * columns;
    assert_eq!(of.traffic.off_chip_read_bytes, 2 * (rows * columns + rows * inner + 2 * weight));
    assert_eq!(of.traffic.off_chip_write_bytes, 2 * (rows * inner + weight));
    let step = outcome.sections.iter().find(|section| section.name == "update_w1").expect("the step");
    // The old weight and the sum, once in eight micro-batches.
    assert_eq!(step.traffic.off_chip_read_bytes, 2 * 2 * weight / 8);
    let free = Layers { optimizer: "sum", shape: [256, 128, 512], ..ADAM }.workload(&[]);
    let configuration = compile(&chip, &free, Mode::Fused).expect("a mapping");
    for section in configuration.sections.iter().filter(|section| has_step(section)) {
        let names: Vec<&str> = section.operators.iter().map(|&op| free.operators[op].name.as_str()).collect();
        assert!(!names.iter().any(|name| name.starts_with("update")), "{names:?}");
    }
}

#[test]
fn state_that_does_not_come_is_missed() {
    let chip = sums::chip(&[]);
    let workload = ADAM.workload(JOINED);
    let configuration = compile(&chip, &workload, Mode::Fused).expect("a mapping");
    let at = joined(&configuration);
    let graph = SectionGraph::new(&workload, &configuration.sections[at].operators, true).expect("a pipeline");
    let (fabric, tiers) = (Fabric::new(&chip), tensor_tiers(&chip, &workload).expect("room"));
    let verifier = Verifier { chip: &chip, fabric: &fabric, graph: &graph, tiers: &tiers };
    let mut without = configuration.clone();
    let flow = without.sections[at].flows.position(|flow| matches!(flow.kind, FlowKind::State { .. })).expect("state");
    without.sections[at].flows.remove(flow);
    assert!(!verifier.violations(&without.sections[at]).is_empty());
    let fault = verify(&chip, &workload, [&without], 7)[0].fault.clone().expect("a fault");
    assert!(fault.to_string().contains("never arrived"), "{fault}");
    // Two PCUs are given the state of each other.
    let mut swapped = configuration.clone();
    let of_state: Vec<_> = {
        let flows = &swapped.sections[at].flows;
        flows.ids().filter(|&f| matches!(flows[f].kind, FlowKind::State { .. })).collect()
    };
    let ends = [of_state[0], *of_state.last().expect("state")].map(|f| swapped.sections[at].flows[f].reads);
    assert_ne!(ends[0], ends[1], "several PCUs");
    swapped.sections[at].flows[of_state[0]].reads = ends[1];
    assert!(!verifier.violations(&swapped.sections[at]).is_empty());
    let beside = swapped.sections[at].buffers.iter().filter(|b| matches!(b.spec.role, BufferRole::State { .. }));
    assert_eq!(beside.count(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    /// Any shape and optimiser. Adam steps of bf16 weights of odd width (9, 5, 3) were cut within a word.
    #[test]
    fn every_step_in_a_tail_holds_its_laws(rows in 9u64..150, inner in 4u64..70, halves in 3u64..60, adam: bool, wide: bool) {
        let chip = sums::chip(&[]);
        let of = Layers {
            optimizer: if adam { "adam" } else { "sgd" },
            dtype: if wide { "fp32" } else { "bf16" },
            shape: [rows, inner, 2 * halves],
        };
        let workload = of.workload(JOINED);
        let configuration = compile(&chip, &workload, Mode::Fused).unwrap_or_else(|error| panic!("{of:?}: {error:?}"));
        prove(&chip, &workload, &configuration, &format!("{of:?}"), 0.5);
    }
}
