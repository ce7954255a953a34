//! Hops of what a lockstep group takes and gives, PCU by PCU: the operands of a near PCU come early, and its results leave
//! early, so that the longest way is one PCU's, from its operands to its results.

use rdusim_base::index::Id;
use rdusim_base::units::index;
use rdusim_graph::arch::{Chip, Coordinate};
use rdusim_program::{Fabric, Flow, PcuId, Port, TreeWalk};

/// Hops on the ways through the PCUs of a lockstep group. Its lists are as long as the chip has units: it is made once and
/// begun again for each group.
#[derive(Debug)]
pub(super) struct GroupHops<'a> {
    chip: &'a Chip,
    fabric: &'a Fabric,
    walk: TreeWalk<'a>,
    /// Cycles of the hops until all operands of a PCU have come; in a chain also those of the PCUs before it.
    reached: Vec<u64>,
    /// PCUs that are reached.
    pcus: Vec<PcuId>,
    /// The most cycles of hops of operands.
    operands: u64,
    /// The most cycles of hops of one PCU's operands and results.
    through: u64,
}

impl<'a> GroupHops<'a> {
    /// Of a group without flows.
    pub(super) fn new(chip: &'a Chip, fabric: &'a Fabric) -> Self {
        let reached = vec![0; chip.grid.pcus.len()];
        Self { chip, fabric, walk: TreeWalk::new(chip, fabric), reached, pcus: Vec::new(), operands: 0, through: 0 }
    }

    /// Forgets the flows of one group, for the next.
    pub(super) fn begin(&mut self) {
        for pcu in self.pcus.drain(..) {
            self.reached[pcu.index()] = 0;
        }
        (self.operands, self.through) = (0, 0);
    }

    /// Adds a flow of operands; those between the PCUs of a chain behind those of its first.
    pub(super) fn add_operands(&mut self, flow: &Flow) {
        let (ports, links) = flow.route.split_at(flow.route.len() - index(flow.links));
        let [source, sinks @ ..] = ports else { return };
        let begins = self.before(*source);
        match (sinks, site(self.chip, self.fabric, *source)) {
            (sinks @ [_, _, ..], Some(from)) => {
                self.walk.follow(from, links);
                for &sink in sinks {
                    let Some(at) = site(self.chip, self.fabric, sink) else { continue };
                    // As all flows, also through the switch of the units.
                    let cycles = self.walk.cycles_to(at).unwrap_or(0) + self.chip.network.hop_cycles;
                    self.reach(sink, begins + cycles);
                }
            }
            (sinks, _) => sinks.iter().for_each(|&sink| self.reach(sink, begins + flow.hop_cycles)),
        }
    }

    fn reach(&mut self, sink: u32, cycles: u64) {
        if let Some(Port::PcuIn(pcu, _)) = self.fabric.port_at(sink) {
            let reached = &mut self.reached[pcu.index()];
            if *reached == 0 {
                self.pcus.push(pcu);
            }
            *reached = cycles.max(*reached);
        }
        self.operands = self.operands.max(cycles);
    }

    /// Cycles of the hops until the operands of the PCU at a port have come.
    fn before(&self, source: u32) -> u64 {
        match self.fabric.port_at(source) {
            Some(Port::PcuOut(pcu, _)) => self.reached[pcu.index()],
            _ => 0,
        }
    }

    /// Adds a flow of results.
    pub(super) fn add_results(&mut self, flow: &Flow) {
        let before = flow.route.first().map_or(0, |&source| self.before(source));
        self.through = self.through.max(before + flow.hop_cycles);
    }

    /// The most cycles of hops of operands.
    pub(super) fn operands(&self) -> u64 {
        self.operands
    }

    /// The cycles of hops of results behind those of the operands.
    pub(super) fn results(&self) -> u64 {
        self.through.saturating_sub(self.operands)
    }
}

/// Where the unit of a port stands, if it is a PMU that is read, or a PCU.
pub(super) fn site(chip: &Chip, fabric: &Fabric, port: u32) -> Option<Coordinate> {
    match fabric.port_at(port) {
        Some(Port::PmuRead(pmu, _)) => Some(chip.grid.pmus[pmu.index()]),
        Some(Port::PcuIn(pcu, _) | Port::PcuOut(pcu, _)) => Some(chip.grid.pcus[pcu.index()]),
        _ => None,
    }
}
