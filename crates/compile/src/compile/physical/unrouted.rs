//! Flows with their ports, which want links.

use rdusim_base::index::IndexVec;
use rdusim_graph::arch::Chip;
use rdusim_program::{Fabric, Flow, FlowId, Tree};

use super::route::Requests;

/// Flows with their ports, but without links.
pub(crate) struct Unrouted {
    /// The flows; each route holds the source port and then the sinks'.
    pub flows: IndexVec<FlowId, Flow>,
    /// Where each begins and ends, and what it moves a cycle at its busiest.
    pub requests: Requests,
    /// Flits a cycle of each, over the whole section.
    pub(super) mean_rates: IndexVec<FlowId, f64>,
}

impl Unrouted {
    /// Flits a cycle of each flow, over the whole section.
    pub(crate) fn mean_rates(&self) -> &IndexVec<FlowId, f64> {
        &self.mean_rates
    }

    /// The flows over the links that those of another section take between the same ports; `None` where a port differs.
    pub(crate) fn along(mut self, routed: &IndexVec<FlowId, Flow>) -> Option<IndexVec<FlowId, Flow>> {
        if self.flows.len() != routed.len() {
            return None;
        }
        for (flow, other) in self.flows.iter_mut().zip(routed) {
            let (ports, links) = other.route.split_at(other.route.len() - other.links as usize);
            if flow.route != ports {
                return None;
            }
            flow.route.extend(links);
            (flow.links, flow.hop_cycles) = (other.links, other.hop_cycles);
        }
        Some(self.flows)
    }

    /// The flows over the links of `trees`, and the fullest link's or port's share of the time in which the busiest
    /// stage works.
    pub(crate) fn with_trees(
        mut self,
        chip: &Chip,
        fabric: &Fabric,
        trees: Vec<Tree>,
    ) -> (IndexVec<FlowId, Flow>, f64) {
        for (flow, tree) in self.flows.iter_mut().zip(trees) {
            flow.links = tree.links.len() as u64;
            // The unit's own switch is a hop too.
            flow.hop_cycles = tree.hop_cycles + chip.network.hop_cycles;
            flow.route.extend(tree.links);
        }
        let mut load = vec![0.0; fabric.count()];
        for (flow, rate) in self.flows.iter().zip(&self.mean_rates) {
            for &resource in &flow.route {
                load[resource as usize] += rate * fabric.cycles_per_flit(resource) as f64;
            }
        }
        let fullest = load.into_iter().fold(0.0, f64::max);
        (self.flows, fullest)
    }
}
