//! How good the mappings are that the compiler finds. More of both: `cargo run --release --example search`.

use crate::random::{ChipValues, GraphValues, pair, small_pair};
use rdusim::compile::{BaseCache, Effort, compile_measured, compile_with, exhaust, simulate_measured};
use rdusim::mode::Mode;
use rdusim::outcome::Fidelity;

/// Seed of the pairs.
const SEED: u64 = 1;
/// Mappings of the largest space that is enumerated here.
const MOST_MAPPINGS: u64 = 5_000;

/// Cycles in both modes; `None` if the compiler refuses the pair.
fn cycles(chip: &ChipValues, graph: &GraphValues) -> Option<[u64; 2]> {
    let (chip, workload) = (chip.chip(), graph.workload());
    let measured = compile_measured(&chip, &workload, &[Mode::Kbk, Mode::Fused]).ok()?;
    let of = |index: usize| simulate_measured(&chip, &workload, &measured[index], Fidelity::Event).cycles;
    Some([of(0), of(1)])
}

#[test]
fn what_is_found_is_near_the_best_of_all_mappings() {
    near_the_best(16, 6);
}

#[test]
#[ignore = "depth: 40 small pairs"]
fn what_is_found_is_near_the_best_of_all_mappings_of_many_pairs() {
    near_the_best(40, 15);
}

/// Searches so many small pairs and enumerates the mappings of at least `least` of them.
fn near_the_best(pairs: usize, least: i32) {
    let (mut all, mut near, mut worst) = (0, 0, 0.0f64);
    for number in 0..pairs {
        let (chip, graph) = small_pair(SEED, number);
        let Some([_, found]) = cycles(&chip, &graph) else { continue };
        let Some(best) = exhaust(&chip.chip(), &graph.workload(), MOST_MAPPINGS) else { continue };
        // Both are measured in one way, and the search is free to find what the enumeration leaves out.
        let ratio = found as f64 / best.cycles as f64;
        all += 1;
        near += i32::from(ratio <= 1.03);
        worst = worst.max(ratio);
        assert!(ratio <= 1.10, "pair {number}: found {found} cycles, the best of all takes {}", best.cycles);
    }
    assert!(all >= least, "only {all} pairs are small enough");
    // 26 of 28 today; the aim is 95 %.
    assert!(f64::from(near) >= 0.90 * f64::from(all), "{near} of {all} within 3 % of the best, at worst {worst}");
}

/// As [`cycles`], with so much care, and what is known of the PCUs.
fn cycles_with(chip: &ChipValues, graph: &GraphValues, care: Effort, bases: &BaseCache) -> Option<[u64; 2]> {
    let (chip, workload) = (chip.chip(), graph.workload());
    let measured = compile_with(&chip, &workload, &[Mode::Kbk, Mode::Fused], care, bases).ok()?;
    let of = |index: usize| simulate_measured(&chip, &workload, &measured[index], Fidelity::Event).cycles;
    Some([of(0), of(1)])
}

#[test]
fn a_search_of_low_effort_finds_much_the_same() {
    finds_much_the_same(9);
}

#[test]
#[ignore = "depth: 30 pairs"]
fn a_search_of_low_effort_finds_much_the_same_for_many_pairs() {
    finds_much_the_same(30);
}

fn finds_much_the_same(pairs: usize) {
    let mut ratios: Vec<f64> = Vec::new();
    for number in 0..pairs {
        let (_, chip, graph) = pair(SEED, number);
        let full = cycles(&chip, &graph);
        let low = cycles_with(&chip, &graph, Effort::Low, &BaseCache::default());
        assert_eq!(full.is_some(), low.is_some(), "pair {number}: the one search finds what the other does not");
        let Some((full, low)) = full.zip(low) else { continue };
        assert!(low[1] <= low[0], "pair {number}: fused is slower than kernel by kernel");
        ratios.extend(low.iter().zip(full).map(|(&low, full)| low as f64 / full as f64));
    }
    ratios.sort_by(f64::total_cmp);
    let (median, worst) = (ratios[ratios.len() / 2], ratios[ratios.len() - 1]);
    // Pair 5 has so few links that routes decide: a search of low effort measures too few of them.
    assert!(ratios.len() >= pairs && median <= 1.02 && worst <= 2.2, "median {median}, worst {worst}");
}

#[test]
fn what_is_known_of_pcus_serves_other_memories() {
    for number in 0..3 {
        let (_, chip, graph) = pair(SEED, number);
        let known = BaseCache::default();
        cycles_with(&chip, &graph, Effort::Low, &known);
        let other = |what: &str| what.starts_with("bandwidth") || what == "bytes in a bank";
        for (what, richer) in chip.richer().into_iter().filter(|(what, _)| other(what)) {
            let alone = cycles_with(&richer, &graph, Effort::Low, &BaseCache::default());
            assert_eq!(cycles_with(&richer, &graph, Effort::Low, &known), alone, "pair {number}, more {what}");
        }
    }
}

#[test]
fn more_of_a_resource_seldom_makes_what_is_found_slower() {
    seldom_slower(3, 20);
}

#[test]
#[ignore = "depth: nine pairs"]
fn more_of_a_resource_seldom_makes_what_is_found_slower_for_more_pairs() {
    seldom_slower(9, 60);
}

/// Searches so many pairs again with more of each resource: more than `least` runs are compared.
fn seldom_slower(pairs: usize, least: usize) {
    let (mut compared, mut slower, mut worst) = (0, 0, 1.0f64);
    for number in 0..pairs {
        let (_, chip, graph) = pair(SEED, number);
        let Some(before) = cycles(&chip, &graph) else { continue };
        for (what, richer) in chip.richer() {
            let now = cycles(&richer, &graph);
            let now = now.unwrap_or_else(|| panic!("pair {number}: refused with more {what}"));
            for (before, now) in before.into_iter().zip(now) {
                let ratio = now as f64 / before as f64;
                compared += 1;
                if ratio > 1.01 {
                    slower += 1;
                }
                worst = worst.max(ratio);
            }
        }
    }
    assert!(compared > least, "only {compared} comparisons");
    assert!(12 * slower <= compared && worst <= 1.25, "{slower} of {compared} slower, at worst {worst:.4} times");
}
