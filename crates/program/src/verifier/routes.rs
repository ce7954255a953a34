//! Checks of routes: ports first, then links that are a tree from the source to every sink.

use crate::configuration::Section;
use crate::fabric::{Port, Resource, ResourceKind};
use crate::flow::Flow;
use crate::tree::{TreeWalk, tree_over};
use rdusim_base::index::Id;
use rdusim_base::units::index;
use rdusim_graph::arch::Coordinate;

use super::context::Verifier;
use super::fault::{Fault, Place};

/// The parts of a flow's route: port of the source, ports of the sinks, links.
pub(super) fn parts(flow: &Flow) -> Option<(Resource, &[Resource], &[Resource])> {
    let ports = flow.route.len().checked_sub(index(flow.links))?;
    let (ports, links) = flow.route.split_at(ports);
    let (&source, sinks) = ports.split_first()?;
    (!sinks.is_empty()).then_some((source, sinks, links))
}

/// Where the unit of a port stands; `None` if the chip has no such unit.
fn site(verifier: &Verifier<'_>, port: Resource) -> Option<Coordinate> {
    let grid = &verifier.chip.grid;
    match verifier.fabric.port_at(port)? {
        Port::PmuRead(pmu, _) | Port::PmuWrite(pmu, _) => grid.pmus.get(pmu.index()).copied(),
        Port::PcuIn(pcu, _) | Port::PcuOut(pcu, _) => grid.pcus.get(pcu.index()).copied(),
        Port::Ag(agcu, _) => grid.agcus.get(agcu as usize).map(|agcu| agcu.site),
    }
}

/// Every route is a source port, sink ports, and links, all of which the chip has.
pub(super) fn resources(verifier: &Verifier<'_>, section: &Section) -> Result<(), Fault> {
    let (fabric, count) = (verifier.fabric, verifier.fabric.count());
    for (f, flow) in section.flows.iter_enumerated() {
        let Some((source, sinks, links)) = parts(flow) else {
            let title = format!("a route of {} resources, {} of them links", flow.route.len(), flow.links);
            return Err(Fault::new(Place::Route(f), title, "expected a source port and a sink port besides the links"));
        };
        let exists = |resource: Resource| (resource as usize) < count;
        let is_link = |resource: Resource| fabric.kind(resource) == ResourceKind::Link;
        let is_port = |resource: Resource| exists(resource) && !is_link(resource);
        if !is_port(source) || !sinks.iter().all(|&sink| is_port(sink)) {
            let title = "a route does not begin with the ports of its units";
            return Err(Fault::new(Place::Route(f), title, "expected a source port, then sink ports"));
        }
        if let Some(link) = links.iter().position(|&link| !exists(link) || !is_link(link)) {
            return Err(Fault::new(Place::Link(f, link), "the chip has no such link", "expected a link of the grid"));
        }
    }
    Ok(())
}

/// The links of every route are a tree from its source to all its sinks, and what the flow says of them is true.
pub(super) fn trees(verifier: &Verifier<'_>, section: &Section) -> Result<(), Fault> {
    let (chip, fabric) = (verifier.chip, verifier.fabric);
    let (mut walk, mut sites) = (TreeWalk::new(chip, fabric), Vec::new());
    for (f, flow) in section.flows.iter_enumerated() {
        let Some((source, sinks, links)) = parts(flow) else { continue };
        sites.clear();
        sites.extend(sinks.iter().filter_map(|&sink| site(verifier, sink)));
        let from = site(verifier, source).filter(|_| sites.len() == sinks.len());
        let Some(from) = from else {
            let title = "a route ends at a unit that is not on the grid";
            return Err(Fault::new(Place::Route(f), title, "expected units of the chip"));
        };
        let tree = tree_over(&mut walk, from, &sites, links).map_err(|broken| match broken.link {
            Some(link) => Fault::new(Place::Link(f, link), broken.title, broken.expected),
            None => Fault::new(Place::Route(f), broken.title, broken.expected),
        })?;
        let is_pmu = |port: &&Resource| fabric.kind(**port) == ResourceKind::PmuPort;
        // The unit's own switch is a hop too.
        let hops = tree.hop_cycles + chip.network.hop_cycles;
        let counted = (hops, sinks.iter().filter(is_pmu).count() as u64, is_pmu(&&source));
        if (flow.hop_cycles, flow.pmu_sinks, flow.from_pmu) != counted {
            let title = format!(
                "a flow says {} cycles to its farthest sink, {} PMUs written, from a PMU: {}",
                flow.hop_cycles, flow.pmu_sinks, flow.from_pmu
            );
            let expected = format!("its route has {}, {}, {}", counted.0, counted.1, counted.2);
            return Err(Fault::new(Place::Route(f), title, expected));
        }
    }
    Ok(())
}
