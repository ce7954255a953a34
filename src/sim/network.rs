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
    /// When the latest of each volley is through, others that came later included.
    late: Vec<Ticks>,
    /// Flits of the volley being sent, by share.
    parts: Vec<u64>,
}

/// A volley under way over one resource.
#[derive(Debug, Clone, Copy, Default)]
struct Stream {
    until: Ticks,
    volley: u32,
    /// How many of its flows cross.
    flows: u32,
    /// Their part of the resource, of [`WHOLE`].
    rate: u32,
}

/// Volleys that a resource remembers apart.
const MOST_STREAMS: usize = 6;

/// The volleys under way over one resource; kept in place, because every send looks at every resource on its way.
#[derive(Debug, Clone, Copy, Default)]
struct Active {
    count: usize,
    streams: [Stream; MOST_STREAMS],
}

/// What a new volley meets at a resource.
#[derive(Debug, Clone, Copy)]
struct Meeting {
    /// Flows of others.
    flows: u64,
    /// Rate that the others take, of [`WHOLE`].
    taken: u64,
    /// Ticks of work that the others still have.
    before: Ticks,
}

impl Active {
    /// Forgets what has ended by `at` and what went before in the same flows, and sums up the rest.
    fn meet(&mut self, volley: usize, at: Ticks) -> Meeting {
        let mut meeting = Meeting { flows: 0, taken: 0, before: 0 };
        let mut kept = 0;
        for i in 0..self.count {
            let stream = self.streams[i];
            if stream.until > at && stream.volley as usize != volley {
                meeting.flows += u64::from(stream.flows);
                meeting.taken += u64::from(stream.rate);
                meeting.before += u64::from(stream.rate) * (stream.until - at) / WHOLE;
                self.streams[kept] = stream;
                kept += 1;
            }
        }
        self.count = kept;
        meeting
    }

    /// Slows those under way that have more than an equal part, so far as a new stream leaves them no more: they move
    /// the same later. Tells `late` each that is slowed, and when it ends.
    fn yield_to(&mut self, at: Ticks, new: Stream, late: &mut [Ticks]) {
        let streams = &mut self.streams[..self.count];
        let flows: u64 = streams.iter().map(|stream| u64::from(stream.flows)).sum::<u64>() + u64::from(new.flows);
        let taken = streams.iter().map(|stream| u64::from(stream.rate)).sum::<u64>() + u64::from(new.rate);
        let equal = WHOLE / flows;
        let above = |stream: &Stream| u64::from(stream.rate).saturating_sub(equal * u64::from(stream.flows));
        let all_above: u64 = streams.iter().map(above).sum();
        let excess = (taken - WHOLE).min(all_above);
        for stream in streams {
            let rate = u64::from(stream.rate);
            let loses = excess * above(stream) / all_above.max(1);
            let left = stream.until - at;
            let delay = loses * left.min(new.until - at) / rate.max(1);
            if delay > 0 {
                stream.rate = (rate * left / (left + delay)) as u32;
                stream.until += delay;
                let late = &mut late[stream.volley as usize];
                *late = stream.until.max(*late);
            }
        }
    }

    /// Adds a stream, to the one that ends at about the same time if there is no room. Rates and what is still to be
    /// moved stay what they were.
    fn join(&mut self, at: Ticks, new: Stream) {
        if self.count < MOST_STREAMS {
            self.streams[self.count] = new;
            self.count += 1;
            return;
        }
        let nearest = self.streams.iter_mut().min_by_key(|stream| stream.until.abs_diff(new.until));
        if let Some(stream) = nearest {
            let sum = u64::from(stream.rate) + u64::from(new.rate);
            let volume = u64::from(stream.rate) * (stream.until - at) + u64::from(new.rate) * (new.until - at);
            if new.rate > stream.rate {
                stream.volley = new.volley;
            }
            stream.flows += new.flows;
            stream.rate = sum as u32;
            stream.until = at + volume.div_ceil(sum);
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
            late: vec![0; volleys.len()],
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
        let at = at.max(self.late[volley]);
        let mut least = self.contention.parts(volley, amount, &mut self.parts);
        let crossed = self.contention.crossed_by(volley);
        for crossing in crossed {
            let (own, flows) = (crossing.work(&self.parts), u64::from(crossing.streams));
            let met = self.active[crossing.resource as usize].meet(volley, at);
            if met.flows == 0 {
                least = least.max(own);
                continue;
            }
            let left = WHOLE.saturating_sub(met.taken).max(WHOLE * flows / (flows + met.flows));
            least = least.max((own * WHOLE / left).min(own + met.before));
        }
        let duration = pace.max(least);
        for crossing in crossed {
            let rate = (crossing.work(&self.parts) * WHOLE).div_ceil(duration).min(WHOLE);
            if rate >= NOTABLE {
                let active = &mut self.active[crossing.resource as usize];
                let (until, flows) = (at + duration, crossing.streams);
                let new = Stream { until, volley: volley as u32, flows, rate: rate as u32 };
                let taken = active.streams[..active.count].iter().map(|stream| u64::from(stream.rate)).sum::<u64>();
                if taken + rate > WHOLE && active.count > 0 {
                    active.yield_to(at, new, &mut self.late);
                }
                active.join(at, new);
            }
        }
        self.late[volley] = self.late[volley].max(at + least);
        at + duration
    }

    /// Flits of the largest flow of a volley that moves `amount`, and the ticks they take at least.
    pub fn longest(&mut self, volley: usize, amount: u64) -> (u64, Ticks) {
        let least = self.contention.parts(volley, amount, &mut self.parts);
        (self.parts.iter().copied().max().unwrap_or(0), least)
    }

    /// Flits of the smallest flow of a volley that moves `amount`, but one at least.
    pub fn fewest(&mut self, volley: usize, amount: u64) -> u64 {
        self.contention.parts(volley, amount, &mut self.parts);
        self.parts.iter().copied().min().unwrap_or(1).max(1)
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
            for stream in active.streams[..active.count].iter().filter(|stream| !clock.is_past(stream.until)) {
                let Stream { until, volley, flows, rate } = *stream;
                words.extend([clock.relative(until), u64::from(flows) << 32 | u64::from(rate), u64::from(volley)]);
                live += 1;
            }
            words.push(live);
        }
        words.extend(self.late.iter().map(|&at| clock.relative(at)));
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
        for stream in self.active.iter_mut().flat_map(|active| &mut active.streams) {
            stream.until += time;
        }
        self.late.iter_mut().for_each(|at| *at += time);
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
