//! Legal mappings at random, without any search: every choice is drawn from what the verifier accepts.
//!
//! A test of an engine, of the verifier or of a lower bound wants mappings of every kind, and not the best one: [`legal`] draws them
//! in the time that placing and routing takes. The result of a draw depends on chip, graph and seed alone.

mod path;
mod random;
mod section;
mod stage;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::compile::verified::after_all;
use rdusim_base::mode::Mode;
use rdusim_graph::arch::Chip;
use rdusim_graph::workload::Workload;
use rdusim_program::{Configuration, Fabric, SectionGraph, tensor_tiers};

use path::Path;
use section::SectionDraw;

/// Draws of a section's nest, mappings, residency and places before another section is taken, with half of its operators. The second
/// half of them asks for little: on small chips few mappings of a graph fit.
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
            let chip = &*of_section;
            let mut draw = |number: usize| {
                let is_frugal = number >= MOST_DRAWS / 2;
                SectionDraw { chip, fabric: &fabric, graph: &graph, tiers: &tiers, exchanges, is_frugal }
                    .section(&mut random)
            };
            if let Some(section) = (0..MOST_DRAWS).find_map(&mut draw) {
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
