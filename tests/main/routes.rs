//! What every compiled configuration's routes must be: trees that a chip could hold, and links and ports that could
//! carry their flits in the time the section takes.

use std::collections::BTreeSet;

use crate::laws::for_all;
use crate::legal::found_quickly;
use proptest::prelude::*;
use rdusim::arch::{Chip, Coordinate};
use rdusim::compile::simulate_measured;
use rdusim::cost::section_load;
use rdusim::index::Id;
use rdusim::mode::Mode;
use rdusim::outcome::Fidelity;
use rdusim::program::{Direction, Fabric, Port, ResourceKind};

fn beyond(from: Coordinate, direction: Direction) -> Coordinate {
    let Coordinate { x, y } = from;
    match direction {
        Direction::East => Coordinate { x: x + 1, y },
        Direction::West => Coordinate { x: x - 1, y },
        Direction::South => Coordinate { x, y: y + 1 },
        Direction::North => Coordinate { x, y: y - 1 },
    }
}

fn site(chip: &Chip, port: Port) -> Coordinate {
    match port {
        Port::PmuRead(pmu, _) | Port::PmuWrite(pmu, _) => chip.grid.pmus[pmu.index()],
        Port::PcuIn(pcu, _) | Port::PcuOut(pcu, _) => chip.grid.pcus[pcu.index()],
        Port::Ag(agcu, _) => chip.grid.agcus[agcu as usize].site,
    }
}

#[test]
fn routes_are_trees_to_their_sinks_and_nothing_carries_more_than_it_could() {
    for_all(24, |chip, graph| {
        let (chip, workload) = (chip.chip(), graph.workload());
        let fabric = Fabric::new(&chip);
        let Ok(measured) = found_quickly(&chip, &workload, &[Mode::Fused]) else { return Ok(()) };
        let outcome = simulate_measured(&chip, &workload, &measured[0], Fidelity::Event);
        for (section, ran) in measured[0].configuration.sections.iter().zip(&outcome.sections) {
            let load = section_load(&chip, &workload, &fabric, section).expect("a pipeline");
            for flow in &section.flows {
                let ports: Vec<Port> = flow.route.iter().filter_map(|&resource| fabric.port_at(resource)).collect();
                let source = site(&chip, ports[0]);
                let mut reached = BTreeSet::from([source]);
                let links = flow.route.iter().filter_map(|&resource| fabric.link_at(resource));
                for (from, direction, _) in links {
                    prop_assert!(
                        reached.contains(&from),
                        "{:?}: a link from {from:?}, which nothing leads to",
                        flow.kind
                    );
                    let end = beyond(from, direction);
                    prop_assert!(reached.insert(end), "{:?} comes to {end:?} twice", flow.kind);
                }
                for port in &ports[1..] {
                    prop_assert!(reached.contains(&site(&chip, *port)), "{:?} does not reach {port:?}", flow.kind);
                }
            }
            let cycles = ran.cycles - ran.launch_cycles;
            for (resource, flits) in (0..).zip(&load.resource_flits) {
                let kind = fabric.kind(resource);
                let busy = flits * fabric.cycles_per_flit(resource);
                prop_assert!(
                    busy <= cycles,
                    "{}: {kind:?} {resource} moves flits for {busy} of {cycles} cycles",
                    section.name
                );
                let told = ran.links.iter().find(|link| link.resource == resource).map_or(0, |link| link.flits);
                prop_assert!(kind != ResourceKind::Link || told == *flits, "link loads are reported");
            }
        }
        Ok(())
    });
}
