//! Links and ports: one flit a cycle each, shared by the streams that cross them.

use crate::arch::Chip;
use crate::compile::{Fabric, Flow, Resource, ResourceKind};

use super::time::{Ticks, cycles};

/// The state of every link and port of the chip during one section.
#[derive(Debug)]
pub struct Network {
    /// When each resource has served all it was given.
    free: Vec<Ticks>,
    /// Streams under way over each resource that take a notable part of it.
    active: Vec<Active>,
    /// Ticks a flit takes.
    flit_ticks: Vec<Ticks>,
    /// Flits moved.
    flits: Vec<u64>,
    kinds: Vec<ResourceKind>,
    /// Ticks between flits of one flow over a link: a FIFO returns its credit after a hop there and a hop back.
    credit_ticks: Ticks,
}

/// Streams under way over one resource that end at about the same time.
#[derive(Debug, Clone, Copy, Default)]
struct Group {
    until: Ticks,
    /// How many they are.
    streams: u32,
    /// Their part of the resource, of [`WHOLE`].
    rate: u32,
}

/// Groups of streams that a resource remembers apart.
const MOST_GROUPS: usize = 4;

/// The streams under way over one resource; kept in place, because every send looks at every resource on its way.
#[derive(Debug, Clone, Copy, Default)]
struct Active {
    count: usize,
    groups: [Group; MOST_GROUPS],
}

/// What a new stream meets at a resource.
struct Meeting {
    /// Streams, itself included.
    streams: u64,
    /// Rate that the others take, of [`WHOLE`].
    taken: u64,
    /// Ticks of work that the others still have.
    before: Ticks,
}

impl Active {
    /// Forgets what has ended by `at`, and sums up the rest.
    fn meet(&mut self, at: Ticks) -> Meeting {
        let mut meeting = Meeting { streams: 1, taken: 0, before: 0 };
        let mut kept = 0;
        for i in 0..self.count {
            let group = self.groups[i];
            if group.until > at {
                meeting.streams += u64::from(group.streams);
                meeting.taken += u64::from(group.rate);
                meeting.before += u64::from(group.rate) * (group.until - at) / WHOLE;
                self.groups[kept] = group;
                kept += 1;
            }
        }
        self.count = kept;
        meeting
    }

    /// Adds a stream, to others that end at about the same time where there are any or no group is free. Rates and
    /// what is still to be moved stay what they were.
    fn join(&mut self, at: Ticks, until: Ticks, rate: u64) {
        let full = self.count == MOST_GROUPS;
        let nearest = self.groups[..self.count].iter_mut().min_by_key(|group| group.until.abs_diff(until));
        match nearest {
            Some(group) if full || group.until.abs_diff(until) <= (until - at) / 16 => {
                let sum = u64::from(group.rate) + rate;
                let volume = u64::from(group.rate) * (group.until - at) + rate * (until - at);
                group.streams += 1;
                group.rate = sum as u32;
                group.until = at + volume.div_ceil(sum);
            }
            _ => {
                self.groups[self.count] = Group { until, streams: 1, rate: rate as u32 };
                self.count += 1;
            }
        }
    }
}

/// All of a resource's rate.
const WHOLE: u64 = 1 << 16;
/// Streams with less than this are not remembered: a 256th.
const NOTABLE: u64 = WHOLE / 256;

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
    pub fn new(chip: &Chip, fabric: &Fabric) -> Self {
        let resources = 0..fabric.count() as Resource;
        Self {
            free: vec![0; fabric.count()],
            active: vec![Active::default(); fabric.count()],
            flit_ticks: resources.clone().map(|r| cycles(fabric.cycles_per_flit(r))).collect(),
            flits: vec![0; fabric.count()],
            kinds: resources.map(|r| fabric.kind(r)).collect(),
            credit_ticks: cycles(2 * chip.network.hop_cycles).div_ceil(chip.network.fifo_depth_flits),
        }
    }

    /// Sends `flits` along a flow from time `at` on, at the earliest spread over `pace` ticks (the time its source or its
    /// receiver needs anyway); the time when the slowest link or port of its tree has passed them, hops not counted.
    ///
    /// Resources are shared as by packets in turn: a stream gets what the others leave, and never less than an equal
    /// part; nor does it wait for more than what the others still have to move.
    pub fn send(&mut self, flow: &Flow, flits: u64, at: Ticks, pace: Ticks, counts: &mut FlitCounts) -> Ticks {
        if flits == 0 {
            return at;
        }
        let mut duration = if flow.links > 0 { pace.max(flits * self.credit_ticks) } else { pace };
        for &resource in &flow.route {
            let r = resource as usize;
            let own = flits * self.flit_ticks[r];
            self.free[r] = self.free[r].max(at) + own;
            self.flits[r] += flits;
            let met = self.active[r].meet(at);
            let left = WHOLE.saturating_sub(met.taken).max(WHOLE / met.streams);
            duration = duration.max((own * WHOLE / left).min(own + met.before));
        }
        for &resource in &flow.route {
            let r = resource as usize;
            let rate = (flits * self.flit_ticks[r] * WHOLE).div_ceil(duration);
            if rate >= NOTABLE {
                self.active[r].join(at, at + duration, rate);
            }
        }
        counts.add(flow, flits);
        at + duration
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
