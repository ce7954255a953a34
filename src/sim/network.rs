//! Links and ports: one flit a cycle each, shared by the streams that cross them.

use crate::arch::Chip;
use crate::compile::{Fabric, Flow, shared};

use super::clock::Clock;
use super::contention::{Contention, Volley};
use super::time::{TICKS_PER_CYCLE, Ticks, cycles};
use super::usage::Usage;

/// The state of every contended link and port of the chip during one section.
#[derive(Debug)]
pub struct Network<'a> {
    fabric: &'a Fabric,
    flows: &'a [Flow],
    volleys: &'a [Volley],
    /// Amounts each volley has moved, and how often; the latest last.
    sent: Vec<Vec<(u64, u64)>>,
    /// Where volleys can be in each other's way.
    contention: Contention,
    /// Streams under way over each contended resource that take a notable part of it.
    active: Vec<Active>,
    /// Flits of the volley being sent, by share.
    parts: Vec<u64>,
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

/// What a new volley meets at a resource.
struct Meeting {
    /// Other streams.
    streams: u64,
    /// Rate that the others take, of [`WHOLE`].
    taken: u64,
    /// Ticks of work that the others still have.
    before: Ticks,
}

impl Active {
    /// Forgets what has ended by `at`, and sums up the rest.
    fn meet(&mut self, at: Ticks) -> Meeting {
        let mut meeting = Meeting { streams: 0, taken: 0, before: 0 };
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

    /// Adds streams, to others that end at about the same time where there are any or no group is free. Rates and
    /// what is still to be moved stay what they were.
    fn join(&mut self, at: Ticks, until: Ticks, rate: u64, streams: u32) {
        let full = self.count == MOST_GROUPS;
        let nearest = self.groups[..self.count].iter_mut().min_by_key(|group| group.until.abs_diff(until));
        match nearest {
            Some(group) if full || group.until.abs_diff(until) <= (until - at) / 16 => {
                let sum = u64::from(group.rate) + rate;
                let volume = u64::from(group.rate) * (group.until - at) + rate * (until - at);
                group.streams += streams;
                group.rate = sum as u32;
                group.until = at + volume.div_ceil(sum);
            }
            _ => {
                self.groups[self.count] = Group { until, streams, rate: rate as u32 };
                self.count += 1;
            }
        }
    }
}

/// All of a resource's rate.
pub const WHOLE: u64 = 1 << 16;
/// Streams with less than this are not remembered: a 256th.
const NOTABLE: u64 = WHOLE / 256;

impl<'a> Network<'a> {
    /// All resources idle. `peaks` is the largest part of a link, of [`WHOLE`], that each flow ever takes: a resource
    /// whose flows together stay within its rate is never waited for, and is not looked at again.
    pub fn new(chip: &Chip, fabric: &'a Fabric, flows: &'a [Flow], volleys: &'a [Volley], peaks: &[u64]) -> Self {
        let resources = 0..fabric.count() as u32;
        let flit_ticks: Vec<Ticks> = resources.map(|r| cycles(fabric.cycles_per_flit(r))).collect();
        let mut demand = vec![0u64; fabric.count()];
        for (flow, peak) in flows.iter().zip(peaks) {
            for &r in &flow.route {
                demand[r as usize] += (peak * flit_ticks[r as usize]).div_ceil(TICKS_PER_CYCLE).min(WHOLE);
            }
        }
        // A flit takes at least as long as at the slowest port, or as the return of a credit over the links.
        let credit = cycles(2 * chip.network.hop_cycles).div_ceil(chip.network.fifo_depth_flits);
        let slowest_port = |flow: &Flow| flow.route.iter().map(|&r| flit_ticks[r as usize]).max().unwrap_or(0);
        let slowest: Vec<Ticks> =
            flows.iter().map(|f| slowest_port(f).max(if f.links > 0 { credit } else { 0 })).collect();
        let contention = Contention::new(flows, volleys, &flit_ticks, &slowest, |r| demand[r as usize] > WHOLE);
        Self {
            fabric,
            flows,
            volleys,
            sent: vec![Vec::new(); volleys.len()],
            active: vec![Active::default(); contention.resources()],
            contention,
            parts: Vec::new(),
        }
    }

    /// Sends `amount` flits, each flow its share, from time `at` on, at the earliest spread over `pace` ticks (the time
    /// their source or their receiver needs anyway); the time when the slowest link or port of their trees has passed
    /// them, hops not counted.
    ///
    /// Resources are shared as by packets in turn: a volley gets what the others leave, and never less than equal parts
    /// for each of its streams; nor does it wait for more than what the others still have to move.
    pub fn send(&mut self, volley: usize, amount: u64, at: Ticks, pace: Ticks) -> Ticks {
        if amount == 0 || self.volleys[volley].flows.is_empty() {
            return at;
        }
        self.count(volley, amount);
        let mut duration = pace.max(self.contention.parts(volley, amount, &mut self.parts));
        let crossed = self.contention.crossed_by(volley);
        for crossing in crossed {
            let (own, streams) = (crossing.work(&self.parts), u64::from(crossing.streams));
            let met = self.active[crossing.resource as usize].meet(at);
            if met.streams == 0 {
                duration = duration.max(own);
                continue;
            }
            let left = WHOLE.saturating_sub(met.taken).max(WHOLE * streams / (streams + met.streams));
            duration = duration.max((own * WHOLE / left).min(own + met.before));
        }
        for crossing in crossed {
            let rate = (crossing.work(&self.parts) * WHOLE).div_ceil(duration);
            if rate >= NOTABLE {
                self.active[crossing.resource as usize].join(at, at + duration, rate, crossing.streams);
            }
        }
        at + duration
    }

    fn count(&mut self, volley: usize, amount: u64) {
        let sent = &mut self.sent[volley];
        match sent.iter().rposition(|&(known, _)| known == amount) {
            Some(i) => {
                sent[i].1 += 1;
                // Most often the next is like the latest.
                let last = sent.len() - 1;
                sent.swap(i, last);
            }
            None => sent.push((amount, 1)),
        }
    }

    /// Writes down all that the rest of a run depends on.
    pub fn write_state(&self, clock: Clock, words: &mut Vec<u64>) {
        for active in &self.active {
            let mut live = 0;
            for group in active.groups[..active.count].iter().filter(|group| !clock.is_past(group.until)) {
                words.extend([clock.relative(group.until), u64::from(group.streams) << 32 | u64::from(group.rate)]);
                live += 1;
            }
            words.push(live);
        }
    }

    /// What each volley has moved so far: amounts, and how often.
    pub fn sent(&self) -> &[Vec<(u64, u64)>] {
        &self.sent
    }

    /// Lets time pass and, `times` again, what was sent since `before`: the state, seen from then, is the same.
    pub fn shift(&mut self, before: &[Vec<(u64, u64)>], times: u64, time: Ticks) {
        for (sent, before) in self.sent.iter_mut().zip(before) {
            for (amount, count) in sent {
                let known = before.iter().find(|(known, _)| known == amount).map_or(0, |&(_, count)| count);
                *count += times * (*count - known);
            }
        }
        for group in self.active.iter_mut().flat_map(|active| &mut active.groups) {
            group.until += time;
        }
    }

    /// What all flows have moved.
    pub fn usage(&self) -> Usage {
        let mut flits = vec![0u64; self.flows.len()];
        for (volley, sent) in self.volleys.iter().zip(&self.sent) {
            for &f in &volley.flows {
                flits[f] +=
                    sent.iter().map(|&(amount, times)| times * shared(amount, self.flows[f].share)).sum::<u64>();
            }
        }
        Usage::new(self.fabric, self.flows, &flits)
    }
}
