//! Mappings that are drawn and not searched for: what they cover, that they are legal, and that none is faster than its floor.

use std::collections::BTreeMap;

use rayon::prelude::*;
use rdusim::arch::{self, Chip};
use rdusim::compile::{BaseCache, Compiled, Effort, compile_with, legal};
use rdusim::diagnostics::Diagnostic;
use rdusim::input::Override;
use rdusim::mode::Mode;
use rdusim::outcome::Fidelity;
use rdusim::program::verifier::violations;
use rdusim::program::{
    Configuration, Fabric, LoopOrder, MOST_GATHERED_COLUMNS, Mapping, Reduction, Section, SectionGraph, StageId,
    StageSpec, Style,
};
use rdusim::proof::{floor_of, least_bytes};
use rdusim::saved;
use rdusim::sim::{run_section, simulate};
use rdusim::workload::{self, Workload};

use crate::random::wide::wide_pair;
use crate::random::{pair, small_pair};

const SEED: u64 = 20_261_201;
const DRAWS: usize = 1_000;
/// Pairs that the compiler is asked for where nothing is drawn: most are refused as too small, and that takes longest.
const COMPILED: usize = 300;

/// Six pairs in ten are tiny, the others of random and of wide families.
pub(crate) fn files(number: usize) -> (Chip, Workload) {
    let (chip, graph) = match number % 10 {
        0..6 => small_pair(SEED, number),
        6 | 7 => {
            let (_, chip, graph) = pair(SEED, number);
            (chip, graph)
        }
        _ => {
            let (_, chip, graph) = wide_pair(SEED, number);
            (chip, graph)
        }
    };
    (chip.chip(), graph.workload())
}

/// The first `count` mappings that are drawn of four times as many seeds: for tests of what holds of any mapping.
pub(crate) fn draws(chip: &Chip, workload: &Workload, count: usize) -> Vec<Configuration> {
    (0..4 * count as u64).filter_map(|seed| legal(chip, workload, seed)).take(count).collect()
}

/// Mappings of some modes at low effort: for tests of what holds of any mapping that a search may choose.
pub(crate) fn found_quickly(chip: &Chip, workload: &Workload, modes: &[Mode]) -> Result<Vec<Compiled>, Diagnostic> {
    compile_with(chip, workload, modes, Effort::Low, &BaseCache::default())
}

fn graph_of<'w>(workload: &'w Workload, section: &Section) -> SectionGraph<'w> {
    SectionGraph::new(workload, &section.operators, section.operators.len() > 1).expect("operators of a section")
}

/// A choice of a section's mapping: whether its graph admits it, and whether it was drawn.
struct Choice {
    name: &'static str,
    is_admitted: fn(&Chip, &SectionGraph<'_>) -> bool,
    is_drawn: fn(&SectionGraph<'_>, &Section) -> bool,
}

/// The axes that may be cut into two column tiles.
fn axes(graph: &SectionGraph<'_>) -> Vec<usize> {
    let axes = graph.axes.iter().enumerate();
    axes.filter(|(axis, of)| of.extent > of.grain && graph.may_cut(*axis)).map(|(axis, _)| axis).collect()
}

fn is_cut_along(
    graph: &SectionGraph<'_>,
    section: &Section,
    of: fn(&SectionGraph<'_>, StageId) -> Option<usize>,
) -> bool {
    let Some(cut) = section.schedule.tiled_axis() else { return false };
    graph.stages.ids().any(|stage| of(graph, stage) == Some(cut.axis))
}

fn k_axis(graph: &SectionGraph<'_>, stage: StageId) -> Option<usize> {
    graph.stages[stage].weight.and_then(|_| graph.column_axis(graph.stages[stage].activations[0]))
}

fn result_axis(graph: &SectionGraph<'_>, stage: StageId) -> Option<usize> {
    graph.column_axis(graph.stages[stage].output)
}

fn has_axis(graph: &SectionGraph<'_>, of: fn(&SectionGraph<'_>, StageId) -> Option<usize>) -> bool {
    let axes = axes(graph);
    graph.stages.ids().filter_map(|stage| of(graph, stage)).any(|axis| axes.contains(&axis))
}

fn has_order(graph: &SectionGraph<'_>) -> bool {
    !axes(graph).is_empty() && graph.sequences() <= 1
}

/// Whether a stage may lie across a cut that all that take its result lie along.
fn may_recompute(graph: &SectionGraph<'_>) -> bool {
    axes(graph).into_iter().filter(|_| has_order(graph)).any(|axis| {
        let is_along = |stage: &StageSpec| {
            stage.activations.iter().chain([&stage.output]).any(|&tensor| graph.column_axis(tensor) == Some(axis))
        };
        graph.stages.iter().any(|stage| {
            let mut takers = graph.stages.iter().filter(|taker| taker.activations.contains(&stage.output)).peekable();
            let is_made_once = stage.sums.is_none() && stage.sequence.is_none() && !graph.leaves_section(stage.output);
            is_made_once && !is_along(stage) && takers.peek().is_some() && takers.all(is_along)
        })
    })
}

/// Whether the columns and the depth of the section's product may both be cut.
fn may_have_panels(graph: &SectionGraph<'_>) -> bool {
    let axes = axes(graph);
    graph.panel_axes().is_some_and(|of| axes.contains(&of.depth) && axes.contains(&of.columns))
}

fn reduces_in(section: &Section, reduction: Reduction) -> bool {
    section.stages.iter().any(|stage| stage.mapping.pk() > 1 && stage.mapping.reduction() == reduction)
}

const CHOICES: [Choice; 11] = [
    Choice { name: "no cut", is_admitted: |_, _| true, is_drawn: |_, section| section.schedule.tiled_axis().is_none() },
    Choice {
        name: "columns of a result cut",
        is_admitted: |_, graph| has_axis(graph, result_axis),
        is_drawn: |graph, section| is_cut_along(graph, section, result_axis),
    },
    Choice {
        name: "K cut",
        is_admitted: |_, graph| has_axis(graph, k_axis),
        is_drawn: |graph, section| is_cut_along(graph, section, k_axis),
    },
    Choice {
        name: "column tiles outermost",
        is_admitted: |_, graph| has_order(graph),
        is_drawn: |_, section| {
            let nest = section.schedule.nest();
            nest.tiled_axis.is_some() && nest.order == LoopOrder::ColumnTileOuter
        },
    },
    Choice {
        name: "columns in panels",
        is_admitted: |_, graph| may_have_panels(graph),
        is_drawn: |_, section| section.schedule.nest().has_panels(),
    },
    Choice {
        name: "row tiles outermost",
        is_admitted: |_, graph| has_order(graph),
        is_drawn: |_, section| section.schedule.nest().order == LoopOrder::RowTileOuter,
    },
    Choice {
        name: "several row blocks",
        is_admitted: |_, graph| has_order(graph) && graph.rows > 1,
        is_drawn: |graph, section| graph.sequences() <= 1 && section.schedule.blocks() > 1,
    },
    Choice {
        name: "K split in a chain",
        is_admitted: |chip, graph| may_split_k(chip, graph, Reduction::Chain),
        is_drawn: |_, section| reduces_in(section, Reduction::Chain),
    },
    Choice {
        name: "K split in a tree",
        is_admitted: |chip, graph| may_split_k(chip, graph, Reduction::Tree),
        is_drawn: |_, section| reduces_in(section, Reduction::Tree),
    },
    Choice {
        name: "gathered rows",
        is_admitted: |chip, graph| {
            graph.stages.ids().any(|s| graph.mask(s).is_some()) && chip.pcu.stages <= MOST_GATHERED_COLUMNS
        },
        is_drawn: |_, section| {
            section.stages.iter().any(|stage| matches!(stage.mapping, Mapping::Gemm(m) if m.style == Style::Gather))
        },
    },
    Choice {
        name: "recomputed",
        is_admitted: |_, graph| may_recompute(graph),
        is_drawn: |_, section| section.stages.iter().any(|stage| stage.recomputed),
    },
];

/// Whether K of a stage may be split over PCUs, of which each other stage leaves two at least.
fn may_split_k(chip: &Chip, graph: &SectionGraph<'_>, reduction: Reduction) -> bool {
    let may = |s: StageId| graph.may_split_k(None, s, reduction) && graph.most_k_slices(None, s) > 1;
    chip.pcus() > graph.stages.len() as u64 && graph.stages.ids().any(may)
}

/// What a draw showed.
enum Drawn {
    /// For each choice whether a section's graph admits it, and whether it was drawn.
    Mapping([(bool, bool); CHOICES.len()]),
    /// Nothing was drawn; whether the compiler maps the pair, where it is asked.
    None(bool),
}

fn drawn(number: usize) -> Drawn {
    let (chip, workload) = files(number);
    let Some(configuration) = legal(&chip, &workload, number as u64) else {
        let compiles = || compile_with(&chip, &workload, &[Mode::Kbk], Effort::Low, &BaseCache::default()).is_ok();
        return Drawn::None(number < COMPILED && compiles());
    };
    let found = violations(&chip, &workload, &Fabric::new(&chip), &configuration);
    assert!(found.is_empty(), "pair {number}: {}", found[0]);
    let mut seen = [(false, false); CHOICES.len()];
    for section in &configuration.sections {
        let graph = graph_of(&workload, section);
        for (choice, seen) in CHOICES.iter().zip(&mut seen) {
            let (is_admitted, is_drawn) = ((choice.is_admitted)(&chip, &graph), (choice.is_drawn)(&graph, section));
            assert!(is_admitted || !is_drawn, "pair {number}, `{}`: {} is not admitted", section.name, choice.name);
            (seen.0, seen.1) = (seen.0 || is_admitted, seen.1 || is_drawn);
        }
    }
    Drawn::Mapping(seen)
}

/// Legal mappings are found where there are any, and every choice is among them.
#[test]
fn draws_are_legal_and_cover_every_choice() {
    let all: Vec<Drawn> = (0..DRAWS).into_par_iter().map(drawn).collect();
    let missed = all.iter().filter(|of| matches!(of, Drawn::None(true))).count();
    let mut admitted: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    let mut mapped = 0;
    for of in &all {
        let Drawn::Mapping(seen) = of else { continue };
        mapped += 1;
        for (choice, &(is_admitted, is_drawn)) in CHOICES.iter().zip(seen) {
            let counts = admitted.entry(choice.name).or_default();
            counts.0 += usize::from(is_admitted);
            counts.1 += usize::from(is_drawn);
        }
    }
    // The others of the pairs are too small for the graph: the compiler refuses them, too.
    assert!(mapped > 800 && missed * 30 < COMPILED, "{mapped} drawn, of the first {COMPILED} {missed} missed");
    for (choice, (admitted, drawn)) in admitted {
        assert!(admitted >= 50 && drawn * 20 >= admitted, "{choice}: drawn {drawn} of {admitted} times");
    }
}

/// A draw depends on chip, graph and seed alone, and seeds differ.
#[test]
fn a_draw_is_the_same_for_a_seed() {
    let (chip, workload) = files(6);
    let text = |seed: u64| {
        let configuration = legal(&chip, &workload, seed).expect("the pair can be mapped");
        saved::to_toml(&chip, &workload, [&configuration])
    };
    let texts: Vec<String> = (0..8).map(text).collect();
    assert_eq!(texts, (0..8).map(text).collect::<Vec<_>>());
    assert!(texts.iter().skip(1).any(|other| *other != texts[0]));
}

/// The event engine, launch excluded, is never faster than the floor of the class that a section's nest lies in: floors prune the
/// search, and one that is too high would hide what shows it.
#[test]
fn no_draw_beats_the_floor_of_its_class() {
    let sections: usize = (0..DRAWS).into_par_iter().map(sections_above_their_floors).sum();
    assert!(sections > DRAWS, "{sections} sections");
}

/// The sections of a draw that were compared.
fn sections_above_their_floors(number: usize) -> usize {
    let (chip, workload) = files(number);
    let Some(Configuration { sections, .. }) = legal(&chip, &workload, number as u64) else { return 0 };
    for section in &sections {
        let nest = section.schedule.nest();
        let run = run_section(&section.chip(&chip, &workload), &workload, section, true).expect("a pipeline");
        let floor = floor_of(&chip, &workload, &section.operators, &nest);
        let floor = floor.unwrap_or_else(|| panic!("pair {number}, `{}`: no floor of {nest:?}", section.name));
        assert!(run.stopped.is_none(), "pair {number}, `{}`: {:?}", section.name, run.stopped);
        let cycles = run.cycles;
        assert!(floor <= cycles, "pair {number}, `{}`: floor {floor}, measured {cycles}, {nest:?}", section.name);
    }
    sections.len()
}

/// No mapping moves less off chip than the floor in bytes, which is above nothing but what must be moved.
#[test]
fn no_draw_moves_less_than_the_least() {
    none_moves_less(DRAWS / 5);
}

#[test]
#[ignore = "depth: a thousand draws"]
fn none_of_many_draws_moves_less_than_the_least() {
    none_moves_less(DRAWS);
}

fn none_moves_less(draws: usize) {
    let compared = |number: usize| {
        let (chip, workload) = files(number);
        let Some(drawn) = legal(&chip, &workload, number as u64) else { return [0, 0] };
        let least =
            least_bytes(&chip, &workload, &[drawn.mode])[0].unwrap_or_else(|| panic!("pair {number}: no floor"));
        let moved = simulate(&chip, &workload, &drawn, Fidelity::Bound).traffic().off_chip_bytes();
        assert!(least <= moved, "pair {number}: {moved} B moved, at least {least}");
        [1, usize::from(least == moved)]
    };
    let all: Vec<[usize; 2]> = (0..draws).into_par_iter().map(compared).collect();
    let [drawn, reached]: [usize; 2] = [0, 1].map(|at| all.iter().map(|of| of[at]).sum());
    assert!(drawn > draws / 2 && reached > draws / 20, "{reached} of {drawn} draws move no more");
}

/// Shipped chips and the feed-forward block of GPT-13B: draws are found, dense and sparse.
#[test]
fn large_blocks_are_drawn() {
    for chip in ["sn10", "sn40l"] {
        let chip = arch::load(format!("arch/{chip}.toml").as_ref(), &[]).expect("a chip");
        for file in ["gpt13b-mlp", "gpt13b-mlp-sparse"] {
            let tokens = Override::parse("workload.dims.tokens=2048").expect("an override");
            let workload = workload::load(format!("workloads/{file}.toml").as_ref(), &[tokens], 0).expect("a workload");
            let configuration = legal(&chip, &workload, SEED).expect("it fits");
            let operators: usize = configuration.sections.iter().map(|section| section.operators.len()).sum();
            assert_eq!(operators, workload.operators.len());
        }
    }
}
