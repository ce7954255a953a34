//! Links and ports as servers: one flit a cycle each, shared by the flows whose routes cross them.

use crate::arch::Chip;
use crate::compile::{Fabric, Flow, Resource, ResourceKind};

use super::time::{Ticks, cycles};

/// The state of every link and port of the chip during one section.
#[derive(Debug)]
pub struct Network {
    /// When each resource has served all it was given.
    free: Vec<Ticks>,
    /// Flows over each resource.
    sharers: Vec<u32>,
    /// Ticks a flit takes.
    flit_ticks: Vec<Ticks>,
    /// Flits moved.
    flits: Vec<u64>,
    kinds: Vec<ResourceKind>,
    /// Ticks between flits of one flow over a link: a FIFO returns its credit after a hop there and a hop back.
    credit_ticks: Ticks,
}

/// What flows have moved so far, in flits.
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

impl Network {
    /// All resources idle.
    pub fn new(chip: &Chip, fabric: &Fabric, flows: &[Flow]) -> Self {
        let mut sharers = vec![0; fabric.count()];
        for &resource in flows.iter().flat_map(|f| &f.route) {
            sharers[resource as usize] += 1;
        }
        let resources = 0..fabric.count() as Resource;
        Self {
            free: vec![0; fabric.count()],
            sharers,
            flit_ticks: resources.clone().map(|r| cycles(fabric.cycles_per_flit(r))).collect(),
            flits: vec![0; fabric.count()],
            kinds: resources.map(|r| fabric.kind(r)).collect(),
            credit_ticks: cycles(2 * chip.network.hop_cycles).div_ceil(chip.network.fifo_depth_flits),
        }
    }

    /// Sends `flits` along a flow from time `at` on; the time when the slowest link or port of its tree has passed
    /// them, hops not counted.
    ///
    /// A resource works through what it was given in order of arrival, but serves its flows packet by packet in turn,
    /// so that a flow never waits for more than its own flits times the flows that share the resource.
    pub fn send(&mut self, flow: &Flow, flits: u64, at: Ticks, counts: &mut FlitCounts) -> Ticks {
        if flits == 0 {
            return at;
        }
        let mut done = if flow.links > 0 { at + flits * self.credit_ticks } else { at };
        for &resource in &flow.route {
            let r = resource as usize;
            let own = flits * self.flit_ticks[r];
            self.free[r] = self.free[r].max(at) + own;
            self.flits[r] += flits;
            let fair = at + own * Ticks::from(self.sharers[r]);
            done = done.max(self.free[r].min(fair));
        }
        counts.add(flow, flits);
        done
    }

    /// Counts flits without giving them a time.
    pub fn count(&mut self, flow: &Flow, flits: u64, counts: &mut FlitCounts) {
        for &resource in &flow.route {
            self.flits[resource as usize] += flits;
        }
        counts.add(flow, flits);
    }

    /// When the last resource is idle again.
    pub fn idle_at(&self) -> Ticks {
        self.free.iter().copied().max().unwrap_or(0)
    }

    /// Busy ticks of the busiest resource of a kind.
    pub fn busiest(&self, kind: ResourceKind) -> Ticks {
        self.flits
            .iter()
            .zip(&self.flit_ticks)
            .zip(&self.kinds)
            .filter(|(_, k)| **k == kind)
            .map(|((flits, ticks), _)| flits * ticks)
            .max()
            .unwrap_or(0)
    }
}
