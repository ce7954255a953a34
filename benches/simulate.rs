//! How long a run of a compiled configuration takes: `cargo bench --bench simulate`.

mod common;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use common::{CASES, Case};
use divan::Bencher;
use divan::counter::ItemsCount;
use rdusim::compile::compile;
use rdusim::mode::Mode;
use rdusim::outcome::Fidelity;
use rdusim::program::{Configuration, Nest, Section};
use rdusim::sim::{run_section, simulate};
use rdusim_testing::pipeline::Pipeline;

fn main() {
    divan::main();
}

#[divan::bench(args = CASES, sample_count = 5, sample_size = 1)]
fn event(bencher: Bencher, case: Case) {
    run(bencher, case, Fidelity::Event);
}

#[divan::bench(args = CASES, sample_count = 5, sample_size = 1)]
fn bound(bencher: Bencher, case: Case) {
    run(bencher, case, Fidelity::Bound);
}

fn run(bencher: Bencher, case: Case, fidelity: Fidelity) {
    let (chip, workload) = case.load();
    let configuration = compiled(case);
    bencher.bench(|| simulate(&chip, &workload, &configuration, fidelity));
}

fn compiled(case: Case) -> Configuration {
    let (chip, workload) = case.load();
    compile(&chip, &workload, case.mode).unwrap_or_else(|refused| panic!("{}", refused.render(false)))
}

/// The fused block on SN10, dense and sparse, and on SN40L, sparse.
const FUSED: [Case; 3] = [CASES[1], CASES[3], CASES[7]];

/// The only section of a fused case.
fn fused(case: Case) -> Section {
    assert!(case.mode == Mode::Fused);
    compiled(case).sections.remove(0)
}

/// The same loop nest over more and more rows: tokens and row blocks of the fused dense block, on one memory tier and on two.
#[divan::bench(args = [2_048, 65_536, 2_097_152], consts = [1, 5], sample_count = 10, sample_size = 1)]
fn rows_of_one_nest<const CASE: usize>(bencher: Bencher, rows: u64) {
    let case = CASES[CASE];
    let (chip, workload) = case.load();
    let mut section = fused(case);
    section.change_nest(|nest| nest.rows = rows).expect("tiles have elements");
    bencher.bench(|| run_section(&chip, &workload, &section, true).map(|run| run.cycles));
}

/// The same with row blocks of at most 100 rows, or of one token, so that 2,048 rows are several.
#[divan::bench(args = [2_048, 2_097_152], consts = [1, 5], sample_count = 10, sample_size = 1)]
fn rows_of_short_blocks<const CASE: usize>(bencher: Bencher, rows: u64) {
    let case = CASES[CASE];
    let (chip, workload) = case.load();
    let mut section = fused(case);
    let shorten = |nest: &mut Nest| (nest.rows, nest.block_tiles) = (rows, (100 / nest.tile_rows).max(1));
    section.change_nest(shorten).expect("tiles have elements");
    bencher.bench(|| run_section(&chip, &workload, &section, true).map(|run| run.cycles));
}

/// Firings of single PCUs a second, every event simulated.
#[divan::bench(args = FUSED, sample_count = 10, sample_size = 1)]
fn unit_firings(bencher: Bencher, case: Case) {
    let (chip, workload) = case.load();
    let section = fused(case);
    let firings = |stage: &rdusim::program::Stage| stage.pcus.len() as u64 * section.schedule.count(stage.level);
    let all: u64 = section.stages.iter().map(firings).sum();
    bencher.counter(ItemsCount::new(all)).bench(|| run_section(&chip, &workload, &section, false));
}

/// Events a second of the same runs ...
#[divan::bench(args = FUSED, sample_count = 10, sample_size = 1)]
fn events(bencher: Bencher, case: Case) {
    let (chip, workload) = case.load();
    let section = fused(case);
    let events = run_section(&chip, &workload, &section, false).map_or(0, |run| run.events);
    bencher.counter(ItemsCount::new(events)).bench(|| run_section(&chip, &workload, &section, false));
}

/// ... and of a bare loop that takes an event from the same kind of queue, as full, and puts a later one in.
#[divan::bench(sample_count = 10, sample_size = 1)]
fn bare_queue(bencher: Bencher) {
    const EVENTS: u64 = 1_000_000;
    const PENDING: u64 = 64;
    bencher.counter(ItemsCount::new(EVENTS)).bench(|| {
        let mut queue: BinaryHeap<Reverse<(u64, [u64; 3])>> = (0..PENDING).map(|n| Reverse((n, [n; 3]))).collect();
        let mut state = 1u64;
        for _ in 0..EVENTS {
            let Some(Reverse((at, event))) = queue.pop() else { break };
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            queue.push(Reverse((at + (state >> 52), event)));
        }
        queue.len()
    });
}

/// Channel transfers a second of seven nodes in a row, every token simulated.
#[divan::bench(args = [2, 64], sample_count = 5, sample_size = 1)]
fn pipeline(bencher: Bencher, capacity: u64) {
    const TOKENS: u64 = 1_000_000;
    let mut pipeline = Pipeline::default();
    for (node, service) in [3, 4, 100, 80, 100, 20, 3].into_iter().enumerate() {
        pipeline.node("", service, 5);
        if node > 0 {
            pipeline.channel(node - 1, node, capacity);
        }
    }
    bencher.counter(ItemsCount::new(6 * TOKENS)).bench(|| pipeline.run(TOKENS, false).cycles);
}
