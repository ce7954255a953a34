//! Loops of credits: how slowly flows move that meet at several PCUs where FIFOs are shallow.
//!
//! Two operands that meet at a near and at a far PCU wait for each other. On its way to the far PCU a flit is behind by the
//! hops between; what goes to the near one can run ahead of it by no more than its FIFOs hold. So credits go around: forward
//! over the long way, back over the short one. The flows, their FIFOs and the PCUs are a marked graph, and its slowest loop
//! holds up all of them, as in latency-insensitive systems (Carloni and Sangiovanni-Vincentelli 2000). The loop of two hops
//! over one FIFO is the credit round trip.

use crate::sim::hops::site;
use rdusim_base::index::Id;
use rdusim_base::units::index;
use rdusim_graph::arch::Chip;
use rdusim_program::{Fabric, Flow, Port, TreeWalk};

use super::marked_graph::{Loop, MarkedGraph};

/// What an operand's flow brings in a firing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Operand<'a> {
    /// The flow.
    pub flow: &'a Flow,
    /// Mean flits of a firing.
    pub flits: f64,
}

/// The operands of one lockstep group after another, as marked graphs. Its lists are as long as the chip has units.
#[derive(Debug)]
pub(crate) struct CreditLoops<'a> {
    fabric: &'a Fabric,
    chip: &'a Chip,
    walk: TreeWalk<'a>,
    /// Flits that the input FIFO of a PCU holds.
    input_depth: u64,
    graph: MarkedGraph,
    /// The node of every PCU that the group uses.
    of_pcu: Vec<Option<u32>>,
}

impl<'a> CreditLoops<'a> {
    /// Without flows.
    pub(crate) fn new(chip: &'a Chip, fabric: &'a Fabric) -> Self {
        let widest = chip.pcu.lanes.values().copied().max().unwrap_or(1).max(chip.pcu.stages) * 4;
        Self {
            fabric,
            chip,
            walk: TreeWalk::new(chip, fabric),
            // A step of an operand fits twice.
            input_depth: chip.network.fifo_depth_flits.max(2 * widest.div_ceil(chip.network.flit_bytes)),
            graph: MarkedGraph::default(),
            of_pcu: vec![None; chip.grid.pcus.len()],
        }
    }

    /// The loop that holds firings up longest, if any makes one longer than `least` cycles.
    pub(crate) fn slowest(&mut self, operands: &[Operand<'a>], least: f64) -> Option<Loop> {
        if self.is_free(operands, least) {
            return None;
        }
        self.connect(operands);
        self.graph.slowest(least)
    }

    /// Whether FIFOs are so deep that no loop can matter: every one of them covers the longest way, there and back.
    fn is_free(&self, operands: &[Operand<'_>], least: f64) -> bool {
        let longest = operands.iter().map(|operand| operand.flow.hop_cycles).max().unwrap_or(0);
        let hop = self.chip.network.hop_cycles.max(self.chip.network.die_hop_cycles);
        let most = operands.iter().map(|operand| operand.flits).fold(1.0, f64::max);
        self.chip.network.fifo_depth_flits as f64 * least / most >= (longest + hop) as f64
    }

    /// Makes the graph: a node for each way out of a switch, and for each PCU.
    fn connect(&mut self, operands: &[Operand<'a>]) {
        self.graph.clear();
        self.of_pcu.fill(None);
        for &Operand { flow, flits } in operands {
            let (ports, links) = flow.route.split_at(flow.route.len() - index(flow.links));
            let [source, sinks @ ..] = ports else { continue };
            let Some(from) = site(self.chip, self.fabric, *source) else { continue };
            self.walk.follow(from, links);
            let firings = |depth: u64| depth as f64 / flits.max(1.0);
            let (fifo, input) = (firings(self.chip.network.fifo_depth_flits), firings(self.input_depth));
            let reached = self.walk.reached();
            // The way into each switch and its cycles; the source sends over each of its ways by itself.
            let mut ways: Vec<Option<(u32, f64)>> = vec![None];
            for &(to, before) in &reached[1..] {
                let way = self.graph.add();
                if let Some((into, cycles)) = ways[before] {
                    self.graph.add_fifo(into, way, cycles, cycles, fifo);
                }
                ways.push(Some((way, self.chip.hop_cycles(reached[before].0, to) as f64)));
            }
            for &sink in sinks {
                let Some(Port::PcuIn(pcu, _)) = self.fabric.port_at(sink) else { continue };
                let to = self.chip.grid.pcus[pcu.index()];
                let Some(at) = reached.iter().position(|&(site, _)| site == to) else { continue };
                let out = self.graph.add();
                if let Some((into, cycles)) = ways[at] {
                    self.graph.add_fifo(into, out, cycles, cycles, fifo);
                }
                let takes = *self.of_pcu[pcu.index()].get_or_insert_with(|| self.graph.add());
                self.graph.add_fifo(out, takes, 1.0, 0.0, input);
            }
        }
    }
}
