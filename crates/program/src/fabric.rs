//! The chip's network as numbered resources: links between switches, and the ports of units.

use rdusim_base::index::Id;
use rdusim_base::units::{index_u32, saturating_u32};
use rdusim_graph::arch::{Chip, Coordinate};

use super::ids::{PcuId, PmuId};

/// A link or port, numbered over the chip; each moves one flit a cycle (PMU ports: see [`Fabric::cycles_per_flit`]).
pub type Resource = u32;

/// What a resource is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResourceKind {
    /// A vector link between two switches.
    Link,
    /// A PMU read or write port.
    PmuPort,
    /// A PCU input or output port.
    PcuPort,
    /// An address generator's port.
    AgPort,
}

/// A direction out of a switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Towards larger x.
    East,
    /// Towards smaller x.
    West,
    /// Towards larger y.
    South,
    /// Towards smaller y.
    North,
}

impl Direction {
    /// All four, as links are numbered.
    pub const ALL: [Self; 4] = [Self::East, Self::West, Self::South, Self::North];
}

/// A port of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Port {
    /// A read port.
    PmuRead(PmuId, u32),
    /// A write port.
    PmuWrite(PmuId, u32),
    /// An input.
    PcuIn(PcuId, u32),
    /// An output.
    PcuOut(PcuId, u32),
    /// An address generator: AGCU, and number in it.
    Ag(u32, u32),
}

/// Numbering of a chip's links and ports.
#[derive(Debug, Clone)]
pub struct Fabric {
    columns: u32,
    lanes: u32,
    pmu_read: u32,
    pmu_write: u32,
    pcu_in: u32,
    pcu_out: u32,
    ag: u32,
    end: u32,
    read_ports: u32,
    write_ports: u32,
    inputs: u32,
    outputs: u32,
    ag_base: Vec<u32>,
    port_cycles_per_flit: u64,
    ag_cycles_per_flit: u64,
}

impl Fabric {
    /// Numbers the resources of a chip.
    pub fn new(chip: &Chip) -> Self {
        let count = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        let (lanes, read_ports) = (count(chip.network.links_per_direction), count(chip.pmu.read_ports));
        let (write_ports, inputs) = (count(chip.pmu.write_ports), count(chip.pcu.vector_inputs));
        let outputs = count(chip.pcu.vector_outputs);
        let sites = index_u32(chip.grid.units.len());
        let pmu_read = sites * 4 * lanes;
        let pmu_write = pmu_read + count(chip.pmus()) * read_ports;
        let pcu_in = pmu_write + count(chip.pmus()) * write_ports;
        let pcu_out = pcu_in + count(chip.pcus()) * inputs;
        let ag = pcu_out + count(chip.pcus()) * outputs;
        let mut ag_base = Vec::new();
        let mut end = ag;
        for agcu in &chip.grid.agcus {
            ag_base.push(end);
            end += count(agcu.ags);
        }
        Self {
            columns: chip.grid.columns,
            lanes,
            pmu_read,
            pmu_write,
            pcu_in,
            pcu_out,
            ag,
            end,
            read_ports,
            write_ports,
            inputs,
            outputs,
            ag_base,
            port_cycles_per_flit: chip.network.flit_bytes.div_ceil(chip.pmu.port_bytes),
            ag_cycles_per_flit: chip.network.flit_bytes.div_ceil(chip.ag_bytes_per_cycle),
        }
    }

    /// Number of resources.
    pub fn count(&self) -> usize {
        self.end as usize
    }

    /// Parallel links a direction.
    pub fn lanes(&self) -> u32 {
        self.lanes
    }

    /// The link `lane` out of a site.
    pub fn link(&self, from: Coordinate, direction: Direction, lane: u32) -> Resource {
        ((from.y * self.columns + from.x) * 4 + direction as u32) * self.lanes + lane
    }

    /// The site, direction and lane of a link; `None` for a port.
    #[inline]
    pub fn link_at(&self, resource: Resource) -> Option<(Coordinate, Direction, u32)> {
        let (edge, lane) = (resource / self.lanes, resource % self.lanes);
        let site = edge / 4;
        let from = Coordinate { x: site % self.columns, y: site / self.columns };
        (resource < self.pmu_read).then(|| (from, Direction::ALL[(edge % 4) as usize], lane))
    }

    /// The number, row by row, of the site that a link begins at, and its direction; `None` for a port.
    #[inline]
    pub fn start_of(&self, resource: Resource) -> Option<(usize, Direction)> {
        let edge = resource / self.lanes;
        (resource < self.pmu_read).then(|| ((edge / 4) as usize, Direction::ALL[(edge % 4) as usize]))
    }

    /// A PMU read port.
    pub fn pmu_read(&self, pmu: PmuId, port: u64) -> Resource {
        self.pmu_read + index_u32(pmu.index()) * self.read_ports + saturating_u32(port)
    }

    /// A PMU write port.
    pub fn pmu_write(&self, pmu: PmuId, port: u64) -> Resource {
        self.pmu_write + index_u32(pmu.index()) * self.write_ports + saturating_u32(port)
    }

    /// A PCU input port; with too few ports, later operands share the last.
    pub fn pcu_in(&self, pcu: PcuId, operand: u32) -> Resource {
        self.pcu_in + index_u32(pcu.index()) * self.inputs + operand.min(self.inputs - 1)
    }

    /// A PCU output port; with too few ports, later results share the last.
    pub fn pcu_out(&self, pcu: PcuId, result: u32) -> Resource {
        self.pcu_out + index_u32(pcu.index()) * self.outputs + result.min(self.outputs - 1)
    }

    /// The port of an address generator.
    pub fn ag(&self, agcu: u32, generator: u32) -> Resource {
        self.ag_base[agcu as usize] + generator
    }

    /// The port a resource is; `None` for a link.
    #[inline]
    pub fn port_at(&self, resource: Resource) -> Option<Port> {
        let of = |first: u32, each: u32| ((resource - first) / each, (resource - first) % each);
        let port = if resource < self.pmu_read {
            return None;
        } else if resource < self.pmu_write {
            let (unit, port) = of(self.pmu_read, self.read_ports);
            Port::PmuRead(PmuId::from_index(unit as usize), port)
        } else if resource < self.pcu_in {
            let (unit, port) = of(self.pmu_write, self.write_ports);
            Port::PmuWrite(PmuId::from_index(unit as usize), port)
        } else if resource < self.pcu_out {
            let (unit, port) = of(self.pcu_in, self.inputs);
            Port::PcuIn(PcuId::from_index(unit as usize), port)
        } else if resource < self.ag {
            let (unit, port) = of(self.pcu_out, self.outputs);
            Port::PcuOut(PcuId::from_index(unit as usize), port)
        } else {
            let agcu = self.ag_base.partition_point(|&base| base <= resource) - 1;
            Port::Ag(index_u32(agcu), resource - self.ag_base[agcu])
        };
        Some(port)
    }

    /// What a resource is.
    #[inline]
    pub fn kind(&self, resource: Resource) -> ResourceKind {
        if resource < self.pmu_read {
            ResourceKind::Link
        } else if resource < self.pcu_in {
            ResourceKind::PmuPort
        } else if resource < self.ag {
            ResourceKind::PcuPort
        } else {
            ResourceKind::AgPort
        }
    }

    /// Cycles a flit occupies a resource.
    pub fn cycles_per_flit(&self, resource: Resource) -> u64 {
        match self.kind(resource) {
            ResourceKind::PmuPort => self.port_cycles_per_flit,
            ResourceKind::AgPort => self.ag_cycles_per_flit,
            ResourceKind::Link | ResourceKind::PcuPort => 1,
        }
    }
}

/// The site across a link; `None` beyond the edge of the grid.
pub fn beyond(chip: &Chip, from: Coordinate, direction: Direction) -> Option<Coordinate> {
    let Coordinate { x, y } = from;
    match direction {
        Direction::East => (x + 1 < chip.grid.columns).then_some(Coordinate { x: x + 1, y }),
        Direction::West => x.checked_sub(1).map(|x| Coordinate { x, y }),
        Direction::South => (y + 1 < chip.grid.rows).then_some(Coordinate { x, y: y + 1 }),
        Direction::North => y.checked_sub(1).map(|y| Coordinate { x, y }),
    }
}
