//! Legal mappings at random, without any search: every choice is drawn from what the verifier accepts.
//!
//! A test of an engine, of the verifier or of a lower bound wants mappings of every kind, and not the best one: [`legal`] draws them
//! in the time that placing and routing takes. The result of a draw depends on chip, graph and seed alone.

mod path;
mod section;
mod stage;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::arch::Chip;
use crate::compile::verified::after_all;
use crate::mode::Mode;
use crate::program::{Configuration, Fabric, SectionGraph, tensor_tiers};
use crate::workload::Workload;

use path::Path;
use section::SectionDraw;

/// Draws of a section's nest, mappings, residency and places before another section is taken, with half of its operators. Of
/// random small chips and graphs, nine sections in ten that fit do so within eight draws.
const MOST_DRAWS: usize = 64;

/// A legal mapping of a graph, drawn with `seed`: sections of operators that may share one, in an order in which every operator
/// follows those that it reads from; for each section an axis that is cut or none, a loop order, row tiles, column tiles, row blocks,
/// what stays on chip, and for each stage a split of K, a style, a multicast width, an orientation and a number of PCUs. Half of
/// the configurations have units that changed places at random, behind the constructive placement. `None` where a tensor fits no
/// memory tier, or an operator found no place in as many draws as it is given.
pub fn legal(chip: &Chip, workload: &Workload, seed: u64) -> Option<Configuration> {
    let tiers = tensor_tiers(chip, workload).ok()?;
    let fabric = Fabric::new(chip);
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let exchanges = random.random();
    let mut path = Path::new(workload);
    let mut sections = Vec::new();
    while let Some(mut grown) = path.grow(&mut random) {
        let section = loop {
            let mut operators = grown.clone();
            operators.sort_unstable();
            let graph = SectionGraph::new(workload, &operators, operators.len() > 1)?;
            let of_section = chip.in_section(graph.largest_off_chip_bytes());
            let draw = SectionDraw { chip: &of_section, fabric: &fabric, graph: &graph, tiers: &tiers, exchanges };
            if let Some(section) = (0..MOST_DRAWS).find_map(|_| draw.section(&mut random)) {
                break section;
            }
            if grown.len() == 1 {
                return None;
            }
            grown.truncate(grown.len() / 2);
        };
        path.follow(&grown);
        sections.push(section);
    }
    let configuration = Configuration { mode: Mode::Fused, sections, tiers, notes: Vec::new() };
    after_all("legal", chip, workload, &fabric, &configuration);
    Some(configuration)
}

/// A number from `least` to `most`, each power of two as likely as the next: small numbers and large ones come up alike.
fn log_uniform(random: &mut Pcg64Mcg, least: u64, most: u64) -> u64 {
    if least >= most {
        return least;
    }
    let (low, high) = ((least as f64).ln(), (most as f64 + 1.0).ln());
    let drawn = (low + random.random::<f64>() * (high - low)).exp();
    (drawn as u64).clamp(least, most)
}

/// One of a list's values; `None` of an empty list.
fn one_of<T: Copy>(random: &mut Pcg64Mcg, list: &[T]) -> Option<T> {
    (!list.is_empty()).then(|| list[random.random_range(0..list.len())])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_within_their_range_and_reach_its_ends() {
        let mut random = Pcg64Mcg::seed_from_u64(1);
        let mut seen = [false; 9];
        for _ in 0..1_000 {
            let drawn = log_uniform(&mut random, 2, 8);
            assert!((2..=8).contains(&drawn));
            seen[drawn as usize] = true;
        }
        assert!(seen[2..].iter().all(|&seen| seen));
        assert_eq!(log_uniform(&mut random, 3, 3), 3);
    }
}
