//! A flow's route as a tree: which switches it visits, from where, and where it leaves the network.

use std::collections::BTreeMap;

use rdusim_base::index::Id;
use rdusim_graph::arch::{Chip, Coordinate};
use rdusim_program::{Direction, Fabric, Flow, PcuId, PmuId, Resource};

/// Who stands behind every port of a chip.
#[derive(Debug)]
pub(super) struct Ports {
    site: Vec<Option<Coordinate>>,
    pcu: Vec<Option<PcuId>>,
}

impl Ports {
    /// Looks up every port of a chip.
    pub(super) fn new(chip: &Chip, fabric: &Fabric) -> Self {
        let mut ports = Self { site: vec![None; fabric.count()], pcu: vec![None; fabric.count()] };
        for (index, &site) in chip.grid.pmus.iter().enumerate() {
            let pmu = PmuId::from_index(index);
            for port in 0..chip.pmu.read_ports {
                ports.site[fabric.pmu_read(pmu, port) as usize] = Some(site);
            }
            for port in 0..chip.pmu.write_ports {
                ports.site[fabric.pmu_write(pmu, port) as usize] = Some(site);
            }
        }
        for (index, &site) in chip.grid.pcus.iter().enumerate() {
            let pcu = PcuId::from_index(index);
            let inputs = (0..chip.pcu.vector_inputs as u32).map(|port| fabric.pcu_in(pcu, port));
            let outputs = (0..chip.pcu.vector_outputs as u32).map(|port| fabric.pcu_out(pcu, port));
            for resource in inputs.chain(outputs) {
                ports.site[resource as usize] = Some(site);
                ports.pcu[resource as usize] = Some(pcu);
            }
        }
        for (index, agcu) in chip.grid.agcus.iter().enumerate() {
            for generator in 0..agcu.ags as u32 {
                ports.site[fabric.ag(index as u32, generator) as usize] = Some(agcu.site);
            }
        }
        ports
    }

    /// The PCU that a port belongs to.
    pub(super) fn pcu(&self, resource: Resource) -> Option<PcuId> {
        self.pcu[resource as usize]
    }
}

/// A way out of a switch: over a link into the FIFO of the next switch, or through a port into a unit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Leave {
    /// The link or port.
    pub(super) resource: Resource,
    /// Cycles from sending to arriving.
    pub(super) cycles: u64,
    /// Node it leads to; `None` for a sink, or where the route has come already on another way.
    pub(super) to: Option<usize>,
    /// Whether it leads to a unit's port.
    pub(super) is_sink: bool,
}

/// A flow's tree. Node 0 is the switch of the source.
#[derive(Debug)]
pub(super) struct Tree {
    /// The source's port.
    pub(super) source: Resource,
    /// Ways out of each node.
    pub(super) nodes: Vec<Vec<Leave>>,
}

impl Tree {
    /// The tree of a flow; `None` if its links do not lead to its sinks.
    pub(super) fn new(chip: &Chip, fabric: &Fabric, ports: &Ports, flow: &Flow) -> Option<Self> {
        let ends = flow.route.len() - flow.links as usize;
        let (source, sinks, links) = (flow.route[0], &flow.route[1..ends], &flow.route[ends..]);
        let hop = chip.network.hop_cycles;
        let mut leaving: BTreeMap<Coordinate, Vec<(Resource, Coordinate)>> = BTreeMap::new();
        for &link in links {
            let (from, direction, _) = fabric.link_at(link)?;
            leaving.entry(from).or_default().push((link, neighbour(from, direction)));
        }
        let root = ports.site[source as usize]?;
        let mut sites = vec![root];
        let mut nodes: Vec<Vec<Leave>> = vec![Vec::new()];
        let mut at = 0;
        while at < sites.len() {
            let from = sites[at];
            for &(resource, to) in leaving.get(&from).into_iter().flatten() {
                let cycles = if chip.grid.crosses_die(from, to) { chip.network.die_hop_cycles } else { hop };
                if sites.contains(&to) {
                    nodes[at].push(Leave { resource, cycles, to: None, is_sink: false });
                    continue;
                }
                nodes[at].push(Leave { resource, cycles, to: Some(sites.len()), is_sink: false });
                sites.push(to);
                nodes.push(Vec::new());
            }
            at += 1;
        }
        for &sink in sinks {
            let site = ports.site[sink as usize]?;
            let node = sites.iter().position(|&s| s == site)?;
            nodes[node].push(Leave { resource: sink, cycles: 1, to: None, is_sink: true });
        }
        let left: usize = nodes.iter().map(Vec::len).sum();
        (left == links.len() + sinks.len()).then_some(Self { source, nodes })
    }
}

fn neighbour(from: Coordinate, direction: Direction) -> Coordinate {
    let Coordinate { x, y } = from;
    match direction {
        Direction::East => Coordinate { x: x + 1, y },
        Direction::West => Coordinate { x: x.wrapping_sub(1), y },
        Direction::South => Coordinate { x, y: y + 1 },
        Direction::North => Coordinate { x, y: y.wrapping_sub(1) },
    }
}
