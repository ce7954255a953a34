//! What flows moved, and how busy that kept every link and port.

use std::sync::Arc;

use rdusim_base::index::IndexVec;
use rdusim_program::{Fabric, Flow, FlowId, ResourceKind};

use super::time::{Ticks, cycles};

/// Flits moved, by place.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FlitCounts {
    /// Injected at sources.
    pub injected: u64,
    /// Times links.
    pub hops: u64,
    /// Read from PMUs.
    pub sram_reads: u64,
    /// Written to PMUs.
    pub sram_writes: u64,
}

impl FlitCounts {
    fn add(&mut self, flow: &Flow, flits: u64) {
        self.injected += flits;
        self.hops += flits * flow.links;
        self.sram_reads += flits * u64::from(flow.from_pmu);
        self.sram_writes += flits * flow.pmu_sinks;
    }
}

/// What a section's flows have moved, and how busy that kept the network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage {
    /// Flits moved.
    pub counts: FlitCounts,
    /// Flits over every link and port, in the fabric's numbering; isomorphic sections share them.
    pub resource_flits: Arc<[u64]>,
    busy: [Ticks; 4],
}

impl Usage {
    /// Adds up what each flow has `sent`, in flits.
    pub fn new(fabric: &Fabric, flows: &IndexVec<FlowId, Flow>, sent: &IndexVec<FlowId, u64>) -> Self {
        let (mut counts, mut resource_flits, mut busy) = (FlitCounts::default(), vec![0; fabric.count()], [0; 4]);
        for (flow, &sent) in flows.iter().zip(sent) {
            counts.add(flow, sent);
            for &resource in &flow.route {
                resource_flits[resource as usize] += sent;
            }
        }
        for (resource, &flits) in (0..).zip(&resource_flits).filter(|&(_, &flits)| flits > 0) {
            let busiest: &mut Ticks = &mut busy[fabric.kind(resource) as usize];
            *busiest = (*busiest).max(flits * cycles(fabric.cycles_per_flit(resource)));
        }
        Self { counts, resource_flits: resource_flits.into(), busy }
    }

    /// Busy ticks of the busiest resource of a kind.
    pub fn busiest(&self, kind: ResourceKind) -> Ticks {
        self.busy[kind as usize]
    }

    /// Busy ticks of the busiest resource of all.
    pub fn most(&self) -> Ticks {
        self.busy.into_iter().max().unwrap_or(0)
    }
}
