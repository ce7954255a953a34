//! A configuration carried over to a chip on which its units, links and ports are what they were: one with more bandwidth, a shorter
//! latency, a faster clock or larger PMUs.
//!
//! Everything stays verbatim: places, routes, ports, depths. Buffers keep their banks, which may be larger. So it takes no longer than
//! before, but for timing anomalies.

use rdusim_graph::arch::Chip;
use rdusim_graph::workload::Workload;
use rdusim_program::verifier::violations;
use rdusim_program::{Buffer, Configuration, Fabric, Section, tensor_tiers};

/// The configuration `of` on `chip`; `None` if it breaks a rule of that chip, or if tensors lie in other tiers there.
pub fn carried(chip: &Chip, workload: &Workload, of: &Configuration) -> Option<Configuration> {
    if tensor_tiers(chip, workload).ok()? != of.tiers {
        return None;
    }
    let sections = of.sections.iter().map(|section| with_banks_of(chip, workload, section)).collect();
    let configuration = Configuration { sections, ..of.clone() };
    violations(chip, workload, &Fabric::new(chip), &configuration).is_empty().then_some(configuration)
}

/// A section whose figures of SRAM are those of another chip's banks.
fn with_banks_of(chip: &Chip, workload: &Workload, section: &Section) -> Section {
    let chip = &*section.chip(chip, workload);
    let sram_bytes = section.taken_banks(chip).iter().sum::<u64>() * chip.pmu.bank_bytes();
    let of_slots = |buffer: &Buffer| buffer.pieces.len() as u64 * buffer.spec.slot_bytes * buffer.spec.depth;
    let payload_bytes: u64 = section.buffers.iter().map(of_slots).sum();
    Section { sram_bytes, sram_bank_loss_bytes: sram_bytes.saturating_sub(payload_bytes), ..section.clone() }
}

#[cfg(test)]
mod tests {
    use super::carried;
    use crate::compile::{BaseCache, Effort, compile_with};
    use rdusim_base::input::Override;
    use rdusim_base::mode::Mode;
    use rdusim_engines::sim::simulate;
    use rdusim_graph::arch;
    use rdusim_graph::workload;
    use rdusim_outcome::Fidelity;

    #[test]
    fn what_is_carried_to_a_richer_chip_is_legal_and_not_slower() {
        let chip = |sets: &[&str]| {
            let sets: Vec<Override> = sets.iter().map(|set| Override::parse(set).expect("an override")).collect();
            arch::load("plasticine".as_ref(), &sets).expect("a chip")
        };
        let graph = workload::load("tiny-mlp".as_ref(), &[], 0).expect("a graph");
        let poor = chip(&[]);
        let found = compile_with(&poor, &graph, &[Mode::Fused], Effort::Low, &BaseCache::default()).expect("it fits");
        let of = &found[0].configuration;
        let before = simulate(&poor, &graph, of, Fidelity::Event).cycles;
        let bytes = poor.pmu.capacity_bytes;
        let tier = &poor.memory.iter().next().expect("a tier").name;
        let more = [format!("arch.pmu.capacity_bytes={}", 2 * bytes), format!("arch.memory.{tier}.latency_ns=1.0")];
        for set in &more {
            let rich = chip(&[set]);
            let carried = carried(&rich, &graph, of).expect("a legal configuration");
            assert!(simulate(&rich, &graph, &carried, Fidelity::Event).cycles <= before, "{set}");
        }
        // With half of the SRAM its slots take more banks than they have.
        let poorer = chip(&[&format!("arch.pmu.capacity_bytes={}", bytes / 64)]);
        assert!(super::carried(&poorer, &graph, of).is_none());
    }
}
