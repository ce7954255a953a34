//! Routes hop by hop: which unit stands at a port, and which ports a flow's links really reach.

use std::fmt;

use rdusim_base::index::Id;
use rdusim_graph::arch::{Chip, Coordinate};
use rdusim_program::{Direction, Fabric, Flow, PcuId, PmuId, Resource};

/// A unit with a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Pcu(PcuId),
    Pmu(PmuId),
    /// AGCU, and generator in it.
    Ag(u32, u32),
}

/// What stands behind every port of a chip.
#[derive(Debug)]
pub(super) struct Wires<'a> {
    chip: &'a Chip,
    fabric: Fabric,
    /// Unit of each resource; links have none.
    units: Vec<Option<Unit>>,
}

impl<'a> Wires<'a> {
    pub(super) fn new(chip: &'a Chip) -> Self {
        let fabric = Fabric::new(chip);
        let mut units = vec![None; fabric.count()];
        let mut place = |port: Resource, unit| units[port as usize] = Some(unit);
        for pcu in (0..chip.grid.pcus.len()).map(PcuId::from_index) {
            (0..chip.pcu.vector_inputs).for_each(|port| place(fabric.pcu_in(pcu, port as u32), Unit::Pcu(pcu)));
            (0..chip.pcu.vector_outputs).for_each(|port| place(fabric.pcu_out(pcu, port as u32), Unit::Pcu(pcu)));
        }
        for pmu in (0..chip.grid.pmus.len()).map(PmuId::from_index) {
            (0..chip.pmu.read_ports).for_each(|port| place(fabric.pmu_read(pmu, port), Unit::Pmu(pmu)));
            (0..chip.pmu.write_ports).for_each(|port| place(fabric.pmu_write(pmu, port), Unit::Pmu(pmu)));
        }
        for (agcu, entry) in chip.grid.agcus.iter().enumerate() {
            let agcu = agcu as u32;
            (0..entry.ags).for_each(|ag| place(fabric.ag(agcu, ag as u32), Unit::Ag(agcu, ag as u32)));
        }
        Self { chip, fabric, units }
    }

    /// Where a unit stands.
    pub(super) fn site(&self, unit: Unit) -> Coordinate {
        match unit {
            Unit::Pcu(pcu) => self.chip.grid.pcus[pcu.index()],
            Unit::Pmu(pmu) => self.chip.grid.pmus[pmu.index()],
            Unit::Ag(agcu, _) => self.chip.grid.agcus[agcu as usize].site,
        }
    }

    /// A unit for a message.
    pub(super) fn name(&self, unit: Unit) -> String {
        let place = ShownCoordinate(self.site(unit));
        match unit {
            Unit::Pcu(_) => format!("PCU {place}"),
            Unit::Pmu(_) => format!("PMU {place}"),
            Unit::Ag(_, ag) => format!("AG {ag} at {place}"),
        }
    }

    /// Follows a flow's links from its source.
    pub(super) fn trace(&self, flow: &Flow) -> Trace {
        let ports = flow.route.len().saturating_sub(flow.links as usize);
        let unit = |port: &Resource| self.units.get(*port as usize).copied().flatten();
        let (ends, links) = flow.route.split_at(ports);
        let source = ends.first().and_then(unit);
        let mut reached = source.map(|unit| self.site(unit)).into_iter().collect::<Vec<_>>();
        let mut hops: Vec<(Coordinate, Coordinate)> = links.iter().filter_map(|&link| self.hop(link)).collect();
        let mut next = 0;
        while let Some(&site) = reached.get(next) {
            next += 1;
            hops.retain(|&(from, to)| {
                let follows = from == site;
                if follows && !reached.contains(&to) {
                    reached.push(to);
                }
                !follows
            });
        }
        let sinks =
            ends.iter().skip(1).map(|port| unit(port).filter(|&unit| reached.contains(&self.site(unit)))).collect();
        Trace { source, sinks }
    }

    /// The sites a link joins.
    fn hop(&self, link: Resource) -> Option<(Coordinate, Coordinate)> {
        let (from, direction, _) = self.fabric.link_at(link)?;
        let Coordinate { x, y } = from;
        let to = match direction {
            Direction::East => Coordinate { x: x + 1, y },
            Direction::West => Coordinate { x: x.checked_sub(1)?, y },
            Direction::South => Coordinate { x, y: y + 1 },
            Direction::North => Coordinate { x, y: y.checked_sub(1)? },
        };
        Some((from, to))
    }
}

/// Where a flow really goes.
#[derive(Debug, Clone)]
pub(super) struct Trace {
    /// The unit at the source port.
    pub(super) source: Option<Unit>,
    /// The unit at each sink's port, in the order of the route; `None` where the links do not lead there.
    pub(super) sinks: Vec<Option<Unit>>,
}

/// A coordinate for people.
#[derive(Debug)]
pub(super) struct ShownCoordinate(pub(super) Coordinate);

impl fmt::Display for ShownCoordinate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({}, {})", self.0.x, self.0.y)
    }
}
