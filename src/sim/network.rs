//! Links and ports: one flit a cycle each, shared by the streams that cross them.

use crate::arch::Chip;
use crate::compile::{Fabric, Flow, shared};

use super::clock::Clock;
use super::contention::{Contention, Volley, Work};
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
    least: Ticks,
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

/// Volleys that a resource remembers apart, ...
const MOST_STREAMS: usize = 6;
/// ... and groups of further ones.
const MOST_GROUPS: usize = 2;
/// The volley of a group: none.
const GROUP: u32 = u32::MAX;

/// The volleys under way over one resource; kept in place, because every send looks at every resource on its way.
#[derive(Debug, Clone, Copy)]
struct Active {
    /// None has ended before.
    first_end: Ticks,
    count: u32,
    /// How many of them are groups.
    groups: u32,
    streams: [Stream; MOST_STREAMS + MOST_GROUPS],
}

impl Default for Active {
    fn default() -> Self {
        Self { first_end: Ticks::MAX, count: 0, groups: 0, streams: Default::default() }
    }
}

impl Active {
    fn streams(&self) -> &[Stream] {
        &self.streams[..self.count as usize]
    }

    fn streams_mut(&mut self) -> &mut [Stream] {
        &mut self.streams[..self.count as usize]
    }

    /// Forgets what has ended by `at`.
    fn forget(&mut self, at: Ticks) {
        if self.first_end > at {
            return;
        }
        let (mut kept, mut groups, mut first_end) = (0, 0, Ticks::MAX);
        for i in 0..self.count as usize {
            let stream = self.streams[i];
            if stream.until > at {
                self.streams[kept] = stream;
                kept += 1;
                groups += u32::from(stream.volley == GROUP);
                first_end = first_end.min(stream.until);
            }
        }
        (self.count, self.groups, self.first_end) = (kept as u32, groups, first_end);
    }

    /// How long the work of a volley at a crossing lasts from `at` on, among the others, but `least` at least: packets
    /// take turns, so that another takes as much for each of its flows, unless it has less to move or is slower by itself.
    fn lasts(&self, volley: usize, at: Ticks, own: Work, least: Ticks) -> Ticks {
        let among = |most: Ticks| {
            let taken = self.streams().iter().map(|stream| {
                let left = u64::from(stream.rate) * stream.until.saturating_sub(at).min(most) / WHOLE;
                let is_other = stream.volley as usize != volley;
                left.min(if is_other { own.of_flows(u64::from(stream.flows)) } else { 0 })
            });
            own.ticks + taken.sum::<Ticks>()
        };
        // With less time others take no more.
        let most = among(Ticks::MAX);
        if most <= least { least } else { least.max(among(most)) }
    }

    /// A volley begins to send at `at`, and those under way make way. What it sends while it is still under way follows
    /// what it sent before.
    fn enter(&mut self, now: Ticks, at: Ticks, new: Stream, late: &mut [Ticks]) {
        let lasts = new.until - at;
        let (mut flows, mut volume) = (u64::from(new.flows), u64::from(new.rate) * lasts);
        let mut own = None;
        for (i, stream) in self.streams().iter().enumerate() {
            if stream.volley == new.volley {
                own = Some(i);
                continue;
            }
            let left = stream.until.saturating_sub(at);
            flows += if left > 0 { u64::from(stream.flows) } else { 0 };
            volume += u64::from(stream.rate) * lasts.min(left);
        }
        // Who is slowed among groups is not known.
        if self.groups == 0 && volume > WHOLE * lasts {
            self.yield_to(at, new, (flows, volume - WHOLE * lasts), late);
        }
        match own {
            Some(own) => self.streams[own].follow(now, at, new),
            None => self.join(at, new),
        }
    }

    /// Slows those under way that have more than an equal part of all `flows`, so far as a new stream leaves them less than
    /// they would move while it lasts: they move that `excess` later. Tells `late` each that is slowed, and when it ends.
    fn yield_to(&mut self, at: Ticks, new: Stream, (flows, excess): (u64, u64), late: &mut [Ticks]) {
        let lasts = new.until - at;
        let equal = WHOLE / flows;
        let is_other = |stream: &Stream| stream.volley != new.volley && stream.until > at;
        let mut above = [0; MOST_STREAMS + MOST_GROUPS];
        for (stream, above) in self.streams().iter().zip(&mut above).filter(|(stream, _)| is_other(stream)) {
            let rate = u64::from(stream.rate).saturating_sub(equal * u64::from(stream.flows));
            *above = rate * lasts.min(stream.until - at);
        }
        let all_above: u64 = above.iter().sum();
        let excess = excess.min(all_above);
        for (stream, above) in self.streams_mut().iter_mut().zip(above).filter(|&(_, above)| above > 0) {
            let rate = u64::from(stream.rate);
            let loses = match excess.checked_mul(above) {
                Some(product) => product / all_above,
                None => (u128::from(excess) * u128::from(above) / u128::from(all_above)) as u64,
            };
            let left = stream.until - at;
            let delay = loses / rate;
            if delay > 0 {
                stream.rate = (rate * left / (left + delay)) as u32;
                stream.until += delay;
                if let Some(late) = late.get_mut(stream.volley as usize) {
                    *late = stream.until.max(*late);
                }
            }
        }
    }

    /// Adds a stream; to the group that ends at about the same time, if there is no room for it. Rates and what is still
    /// to be moved stay what they were.
    fn join(&mut self, at: Ticks, mut new: Stream) {
        let is_group = (self.count - self.groups) as usize >= MOST_STREAMS;
        if is_group {
            new.volley = GROUP;
        }
        if !is_group || (self.groups as usize) < MOST_GROUPS {
            self.streams[self.count as usize] = new;
            self.count += 1;
            self.groups += u32::from(is_group);
            self.first_end = self.first_end.min(new.until);
            return;
        }
        let groups = self.streams.iter_mut().filter(|stream| stream.volley == GROUP);
        if let Some(group) = groups.min_by_key(|group| group.until.abs_diff(new.until)) {
            let sum = u64::from(group.rate) + u64::from(new.rate);
            let left = u64::from(group.rate) * group.until.saturating_sub(at);
            group.until = at + (left + u64::from(new.rate) * (new.until - at)).div_ceil(sum).max(1);
            group.flows += new.flows;
            group.rate = sum as u32;
            self.first_end = self.first_end.min(group.until);
        }
    }
}

impl Stream {
    /// What a volley that is still under way sends next follows what it sent before: one stream from `now` on.
    fn follow(&mut self, now: Ticks, at: Ticks, new: Self) {
        let volume = u64::from(self.rate) * (self.until - now) + u64::from(new.rate) * (new.until - at);
        self.until = new.until.max(self.until);
        self.rate = (volume / (self.until - now)).min(WHOLE) as u32;
        self.flows = new.flows;
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
            least: 0,
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
        self.least = 0;
        if amount == 0 || self.volleys[volley].flows.is_empty() {
            return at;
        }
        self.count(volley, amount);
        let (now, paced) = (at, at + pace);
        let at = at.max(self.late[volley]);
        let mut least = self.contention.parts(volley, amount, &mut self.parts);
        let crossed = self.contention.crossed_by(volley);
        for crossing in crossed {
            let active = &mut self.active[crossing.resource as usize];
            active.forget(now);
            least = active.lasts(volley, at, crossing.work(&self.parts), least);
        }
        self.least = least;
        // Who comes late catches up.
        let duration = least.max(paced.saturating_sub(at));
        // Crossings in a row are mostly of the same work.
        let (mut known, mut rate) = (0, 0);
        for crossing in crossed {
            let work = crossing.work(&self.parts).ticks;
            if work * WHOLE <= (NOTABLE - 1) * duration {
                continue;
            }
            if work != known {
                (known, rate) = (work, (work * WHOLE).div_ceil(duration).min(WHOLE) as u32);
            }
            let new = Stream { until: at + duration, volley: volley as u32, flows: crossing.streams, rate };
            self.active[crossing.resource as usize].enter(now, at, new, &mut self.late);
        }
        self.late[volley] = self.late[volley].max(at + least);
        at + duration
    }

    /// How long what was sent last takes at least, whatever its pace.
    pub fn least(&self) -> Ticks {
        self.least
    }

    /// Flits of the largest flow of a volley that moves `amount`, and the ticks they take at least.
    pub fn longest(&self, volley: usize, amount: u64) -> (u64, Ticks) {
        let of_shares = self.contention.shares(volley, amount);
        of_shares.fold((0, 0), |(most, least), (flits, ticks)| (flits.max(most), ticks.max(least)))
    }

    /// Flits of the smallest flow of a volley that moves `amount`, but one at least.
    pub fn fewest(&self, volley: usize, amount: u64) -> u64 {
        self.contention.shares(volley, amount).map(|(flits, _)| flits).min().unwrap_or(1).max(1)
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
            for stream in active.streams().iter().filter(|stream| !clock.is_past(stream.until)) {
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
        for active in self.active.iter_mut().filter(|active| active.count > 0) {
            active.first_end += time;
            active.streams_mut().iter_mut().for_each(|stream| stream.until += time);
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
