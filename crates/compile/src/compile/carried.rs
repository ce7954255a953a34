//! A configuration handed on to a chip that has more of something: bandwidth, a shorter latency, a faster clock, larger PMUs, links,
//! ports, units.
//!
//! Where units and links of the same names are on the other chip, everything stays verbatim: places, routes, ports, depths. Buffers keep
//! their banks, which may be larger. So it takes no longer than before, but for timing anomalies. Else its mappings are placed and routed
//! anew ([`recompiled`](super::recompile::recompiled)).

use rdusim_cost::cost::{GatherPorts, Stop};
use rdusim_graph::arch::Chip;
use rdusim_graph::workload::Workload;
use rdusim_program::verifier::violations;
use rdusim_program::{Buffer, Configuration, Fabric, Flow, Mapping, Port, Resource, Section, Style, tensor_tiers};

use super::compiled::Compiled;
use super::recompile::recompiled;

/// The configuration `of`, found for the chip `from`, on `chip`: verbatim, else its mappings; `None` if neither is legal there.
pub fn handed_on(
    from: &Chip,
    chip: &Chip,
    workload: &Workload,
    of: &Configuration,
    stop: Stop<'_>,
) -> Option<Compiled> {
    let verbatim = carried(from, chip, workload, of)
        .map(|configuration| Compiled { runs: vec![None; configuration.sections.len()], configuration });
    verbatim.or_else(|| recompiled(chip, workload, of, stop))
}

/// The configuration `of` on `chip`, with the same units, links and ports; `None` if it breaks a rule of that chip, if tensors lie in
/// other tiers there, or if its stages would take other times.
pub fn carried(from: &Chip, chip: &Chip, workload: &Workload, of: &Configuration) -> Option<Configuration> {
    if from.grid.units != chip.grid.units || from.grid.columns != chip.grid.columns || !has_same_work(from, chip, of) {
        return None;
    }
    if tensor_tiers(chip, workload).ok()? != of.tiers {
        return None;
    }
    let names = Names { from, of: &Fabric::new(from), chip, on: &Fabric::new(chip) };
    let sections = of.sections.iter().map(|section| names.section(workload, section)).collect::<Option<_>>()?;
    let configuration = Configuration { sections, ..of.clone() };
    violations(chip, workload, names.on, &configuration).is_empty().then_some(configuration)
}

/// Whether all that the work of its stages is counted from is the same: a configuration holds cycles and flits of their passes.
fn has_same_work(one: &Chip, other: &Chip, of: &Configuration) -> bool {
    let arrays = |chip: &Chip| {
        let pcu = &chip.pcu;
        (pcu.lanes.clone(), [pcu.stages, pcu.accumulator_sets, pcu.tail_elements], pcu.simd_stages.clone())
    };
    let gathers = |mapping: &Mapping| matches!(mapping, Mapping::Gemm(gemm) if gemm.style == Style::Gather);
    let mut mappings = of.sections.iter().flat_map(|section| &section.stages).map(|stage| &stage.mapping);
    arrays(one) == arrays(other)
        && one.emulated == other.emulated
        && one.network.flit_bytes == other.network.flit_bytes
        && (GatherPorts::new(one) == GatherPorts::new(other) || !mappings.any(gathers))
}

/// Two chips of the same grid, each with its numbers of links and ports.
struct Names<'a> {
    from: &'a Chip,
    of: &'a Fabric,
    chip: &'a Chip,
    on: &'a Fabric,
}

impl Names<'_> {
    /// A section on the other chip, with the bytes of that chip's banks; `None` if that has no unit or link of some name.
    fn section(&self, workload: &Workload, section: &Section) -> Option<Section> {
        let mut section = section.clone();
        for flow in &mut section.flows {
            self.rename(flow)?;
        }
        for stream in &mut section.streams {
            for ag in &mut stream.ags {
                ag.0 = self.agcu(ag.0)?;
            }
        }
        let chip = &*section.chip(self.chip, workload);
        let sram_bytes = section.taken_banks(chip).iter().sum::<u64>() * chip.pmu.bank_bytes();
        let of_slots = |buffer: &Buffer| buffer.pieces.len() as u64 * buffer.spec.slot_bytes * buffer.spec.depth;
        let payload_bytes: u64 = section.buffers.iter().map(of_slots).sum();
        for prefetch in &mut section.prefetches {
            prefetch.bank_bytes = prefetch.bank_bytes / self.from.pmu.bank_bytes().max(1) * self.chip.pmu.bank_bytes();
        }
        Some(Section { sram_bytes, sram_bank_loss_bytes: sram_bytes.saturating_sub(payload_bytes), ..section })
    }

    fn rename(&self, flow: &mut Flow) -> Option<()> {
        for resource in &mut flow.route {
            *resource = self.resource(*resource)?;
        }
        Some(())
    }

    fn resource(&self, resource: Resource) -> Option<Resource> {
        if let Some((site, direction, lane)) = self.of.link_at(resource) {
            return (lane < self.on.lanes()).then(|| self.on.link(site, direction, lane));
        }
        let (pmu, pcu) = (&self.chip.pmu, &self.chip.pcu);
        let has = |port: u32, ports: u64| u64::from(port) < ports;
        match self.of.port_at(resource)? {
            Port::PmuRead(unit, port) => has(port, pmu.read_ports).then(|| self.on.pmu_read(unit, u64::from(port))),
            Port::PmuWrite(unit, port) => has(port, pmu.write_ports).then(|| self.on.pmu_write(unit, u64::from(port))),
            Port::PcuIn(unit, port) => has(port, pcu.vector_inputs).then(|| self.on.pcu_in(unit, port)),
            Port::PcuOut(unit, port) => has(port, pcu.vector_outputs).then(|| self.on.pcu_out(unit, port)),
            Port::Ag(agcu, generator) => {
                let agcu = self.agcu(agcu)?;
                has(generator, self.chip.grid.agcus[agcu as usize].ags).then(|| self.on.ag(agcu, generator))
            }
        }
    }

    /// The other chip's AGCU at the same site.
    fn agcu(&self, agcu: u32) -> Option<u32> {
        let site = self.from.grid.agcus[agcu as usize].site;
        let at = self.chip.grid.agcus.iter().position(|other| other.site == site)?;
        u32::try_from(at).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::carried;
    use crate::compile::{BaseCache, Effort, compile_with};
    use rdusim_base::input::Override;
    use rdusim_base::mode::Mode;
    use rdusim_base::units::Dtype;
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
        let more = [
            vec![format!("arch.pmu.capacity_bytes={}", 2 * bytes)],
            vec![format!("arch.memory.{tier}.latency_ns=1.0")],
            vec![format!("arch.network.links_per_direction={}", poor.network.links_per_direction + 1)],
            vec![format!("arch.network.fifo_depth_flits={}", poor.network.fifo_depth_flits * 2)],
            vec![format!("arch.pmu.read_ports={}", poor.pmu.read_ports + 1)],
            vec![format!("arch.pmu.write_ports={}", poor.pmu.write_ports + 1)],
            vec![format!("arch.pcu.vector_inputs={}", poor.pcu.vector_inputs + 1)],
            vec![format!("arch.pcu.vector_outputs={}", poor.pcu.vector_outputs + 1)],
            vec!["arch.grid.agcus.top={ first = 3, count = 1, ags = 1 }".to_owned()],
        ];
        for sets in &more {
            let rich = chip(&sets.iter().map(String::as_str).collect::<Vec<_>>());
            let carried =
                carried(&poor, &rich, &graph, of).unwrap_or_else(|| panic!("a legal configuration: {sets:?}"));
            assert!(simulate(&rich, &graph, &carried, Fidelity::Event).cycles <= before, "{sets:?}");
        }
        // With less SRAM its slots take more banks than they have; links, ports or generators that it uses may be missing; arrays that
        // are slower take longer than its passes say.
        let lanes = poor.pcu.lanes[&Dtype::Fp32];
        let less = [
            format!("arch.pmu.capacity_bytes={}", bytes / 64),
            format!("arch.network.links_per_direction={}", poor.network.links_per_direction - 1),
            "arch.grid.agcus.left={ first = 0, count = 1, ags = 1 }".to_owned(),
            format!("arch.pcu.lanes.fp32={}", lanes / 2),
            format!("arch.pcu.tail_elements={}", poor.pcu.tail_elements / 2),
            "arch.pcu.accumulator_sets=1".to_owned(),
            format!("arch.network.flit_bytes={}", poor.network.flit_bytes / 2),
            "arch.grid.rows=16".to_owned(),
        ];
        for set in &less {
            assert!(super::carried(&poor, &chip(&[set]), &graph, of).is_none(), "{set}");
        }
    }
}
