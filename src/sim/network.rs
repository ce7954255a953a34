//! Links and ports: one flit a cycle each, shared by the streams that cross them.

use crate::arch::Chip;
use crate::compile::{Fabric, Flow, Resource, ResourceKind};

use super::time::{TICKS_PER_CYCLE, Ticks, cycles};

/// The state of every link and port of the chip during one section.
#[derive(Debug)]
pub struct Network<'a> {
    flows: &'a [Flow],
    /// Flits each flow has moved.
    sent: Vec<u64>,
    /// Resources of each flow where others can be in its way.
    contended: Vec<Box<[Resource]>>,
    /// Ticks a flit of each flow takes at least: its slowest port, or the return of a credit over its links.
    slowest: Vec<Ticks>,
    /// When each contended resource has served all it was given.
    free: Vec<Ticks>,
    /// Streams under way over each contended resource that take a notable part of it.
    active: Vec<Active>,
    /// Ticks a flit takes.
    flit_ticks: Vec<Ticks>,
    kinds: Vec<ResourceKind>,
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
pub const WHOLE: u64 = 1 << 16;
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

impl<'a> Network<'a> {
    /// All resources idle. `peaks` is the largest part of a link, of [`WHOLE`], that each flow ever takes: a resource
    /// whose flows together stay within its rate is never waited for, and is not looked at again.
    pub fn new(chip: &Chip, fabric: &Fabric, flows: &'a [Flow], peaks: &[u64]) -> Self {
        let resources = 0..fabric.count() as Resource;
        let flit_ticks: Vec<Ticks> = resources.clone().map(|r| cycles(fabric.cycles_per_flit(r))).collect();
        let mut demand = vec![0u64; fabric.count()];
        for (flow, peak) in flows.iter().zip(peaks) {
            for &r in &flow.route {
                demand[r as usize] += (peak * flit_ticks[r as usize]).div_ceil(TICKS_PER_CYCLE).min(WHOLE);
            }
        }
        let credit = cycles(2 * chip.network.hop_cycles).div_ceil(chip.network.fifo_depth_flits);
        let slowest_port = |flow: &Flow| flow.route.iter().map(|&r| flit_ticks[r as usize]).max().unwrap_or(0);
        Self {
            flows,
            sent: vec![0; flows.len()],
            contended: flows
                .iter()
                .map(|flow| flow.route.iter().copied().filter(|&r| demand[r as usize] > WHOLE).collect())
                .collect(),
            slowest: flows.iter().map(|f| slowest_port(f).max(if f.links > 0 { credit } else { 0 })).collect(),
            free: vec![0; fabric.count()],
            active: vec![Active::default(); fabric.count()],
            flit_ticks,
            kinds: resources.map(|r| fabric.kind(r)).collect(),
        }
    }

    /// Sends `flits` along flow `flow` from time `at` on, at the earliest spread over `pace` ticks (the time its source
    /// or its receiver needs anyway); the time when the slowest link or port of its tree has passed them, hops not
    /// counted.
    ///
    /// Resources are shared as by packets in turn: a stream gets what the others leave, and never less than an equal
    /// part; nor does it wait for more than what the others still have to move.
    pub fn send(&mut self, flow: usize, flits: u64, at: Ticks, pace: Ticks) -> Ticks {
        if flits == 0 {
            return at;
        }
        self.sent[flow] += flits;
        let mut duration = pace.max(flits * self.slowest[flow]);
        for &resource in &self.contended[flow] {
            let r = resource as usize;
            let own = flits * self.flit_ticks[r];
            self.free[r] = self.free[r].max(at) + own;
            let met = self.active[r].meet(at);
            let left = WHOLE.saturating_sub(met.taken).max(WHOLE / met.streams);
            duration = duration.max((own * WHOLE / left).min(own + met.before));
        }
        for &resource in &self.contended[flow] {
            let r = resource as usize;
            let rate = (flits * self.flit_ticks[r] * WHOLE).div_ceil(duration);
            if rate >= NOTABLE {
                self.active[r].join(at, at + duration, rate);
            }
        }
        at + duration
    }

    /// Counts flits of a flow without giving them a time.
    pub fn count(&mut self, flow: usize, flits: u64) {
        self.sent[flow] += flits;
    }

    /// When the last contended resource is idle again.
    pub fn idle_at(&self) -> Ticks {
        self.free.iter().copied().max().unwrap_or(0)
    }

    /// What all flows have moved.
    pub fn usage(&self) -> Usage {
        let mut usage = Usage { counts: FlitCounts::default(), busy: [0; 4] };
        let mut flits = vec![0u64; self.flit_ticks.len()];
        for (flow, &sent) in self.flows.iter().zip(&self.sent) {
            usage.counts.add(flow, sent);
            for &resource in &flow.route {
                flits[resource as usize] += sent;
            }
        }
        for ((flits, ticks), &kind) in flits.iter().zip(&self.flit_ticks).zip(&self.kinds) {
            let busiest = &mut usage.busy[kind as usize];
            *busiest = (*busiest).max(flits * ticks);
        }
        usage
    }
}

/// What a section's flows have moved, and how busy that kept the network.
#[derive(Debug, Clone, Copy)]
pub struct Usage {
    /// Flits moved.
    pub counts: FlitCounts,
    busy: [Ticks; 4],
}

impl Usage {
    /// Busy ticks of the busiest resource of a kind.
    pub fn busiest(&self, kind: ResourceKind) -> Ticks {
        self.busy[kind as usize]
    }

    /// Busy ticks of the busiest resource of all.
    pub fn most(&self) -> Ticks {
        self.busy.into_iter().max().unwrap_or(0)
    }
}
