//! Hops of what a lockstep group takes and gives, PCU by PCU: the operands of a near PCU come early, and its results leave
//! early, so that the longest way is one PCU's, from its operands to its results.

use rustc_hash::FxHashMap;

use crate::arch::{Chip, Coordinate};
use crate::index::Id;
use crate::program::{Fabric, Flow, PcuId, Port, cycles_to_sinks};

/// Hops on the ways through the PCUs of a lockstep group.
#[derive(Debug, Default)]
pub(super) struct GroupHops {
    /// Cycles of the hops until all operands of a PCU have come; in a chain also those of the PCUs before it.
    reached: FxHashMap<PcuId, u64>,
    /// The most of them.
    operands: u64,
    /// The most cycles of hops of one PCU's operands and results.
    through: u64,
}

impl GroupHops {
    /// Adds a flow of operands; those between the PCUs of a chain behind those of its first.
    pub(super) fn add_operands(&mut self, chip: &Chip, fabric: &Fabric, flow: &Flow) {
        let ports = &flow.route[..flow.route.len() - flow.links as usize];
        let [source, sinks @ ..] = ports else { return };
        let begins = match fabric.port_at(*source) {
            Some(Port::PcuOut(pcu, _)) => self.reached.get(&pcu).copied().unwrap_or(0),
            _ => 0,
        };
        let mut reach = |sink: u32, cycles: u64| {
            if let Some(Port::PcuIn(pcu, _)) = fabric.port_at(sink) {
                let reached = self.reached.entry(pcu).or_default();
                *reached = (begins + cycles).max(*reached);
            }
            self.operands = self.operands.max(begins + cycles);
        };
        match (sinks, site(chip, fabric, *source)) {
            ([], _) => {}
            (sinks @ [_, _, ..], Some(from)) => {
                let sites: Vec<Coordinate> = sinks.iter().filter_map(|&sink| site(chip, fabric, sink)).collect();
                let links = &flow.route[ports.len()..];
                // As all flows, also through the switch of the units.
                let own = chip.network.hop_cycles;
                let ways = cycles_to_sinks(chip, fabric, from, &sites, links);
                sinks.iter().zip(ways).for_each(|(&sink, cycles)| reach(sink, cycles + own));
            }
            (sinks, _) => sinks.iter().for_each(|&sink| reach(sink, flow.hop_cycles)),
        }
    }

    /// Adds a flow of results.
    pub(super) fn add_results(&mut self, fabric: &Fabric, flow: &Flow) {
        let before = match flow.route.first().and_then(|&source| fabric.port_at(source)) {
            Some(Port::PcuOut(pcu, _)) => self.reached.get(&pcu).copied().unwrap_or(0),
            _ => 0,
        };
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
