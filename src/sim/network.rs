//! Links and ports: one flit a cycle each, shared by the streams that cross them.

use rustc_hash::FxHashMap;

use crate::arch::Chip;
use crate::cost::{Ticks, Usage, cycles};
use crate::index::IndexVec;
use crate::program::{Fabric, Flow, FlowId, shared};

use super::apart::own_ticks;
use super::clock::Clock;
use super::contention::Contention;
use super::peaks::{Peak, demand};
use super::sharing::{Load, Sharing, Slowed, WHOLE};
use super::transfer_group::Volley;

/// The state of every contended link and port of the chip during one section.
#[derive(Debug)]
pub struct Network<'a> {
    fabric: &'a Fabric,
    flows: &'a IndexVec<FlowId, Flow>,
    volleys: &'a [Volley],
    /// Amounts each volley has moved, and how often.
    sent: Vec<Vec<(u64, u64)>>,
    /// Where each amount stands in that list.
    place_of: Vec<FxHashMap<u64, usize>>,
    /// Which of its amounts each volley has moved last.
    latest: Vec<usize>,
    /// Where volleys can be in each other's way.
    contention: Contention,
    /// Streams under way over each contended resource that take a notable part of it.
    active: Vec<Sharing>,
    /// When the latest of each volley is through, others that came later included.
    late: Vec<Ticks>,
    slowed: Slowed,
    /// How far back what is sent may begin.
    look_back: Ticks,
    least: Ticks,
    /// Of the volley being sent: how long it lasts at each crossing.
    ends: Vec<Ticks>,
    /// Flits of the volley being sent, by share.
    parts: Vec<u64>,
}

/// Streams with less than this are not remembered: a 256th.
const NOTABLE: u64 = WHOLE / 256;

impl<'a> Network<'a> {
    /// All resources idle. `peaks` is the largest part of a link that each flow ever takes: a resource whose flows
    /// together stay within its rate is never waited for, and is not looked at again. `moved` is what each volley moves
    /// in the section.
    pub fn new(
        chip: &Chip,
        fabric: &'a Fabric,
        flows: &'a IndexVec<FlowId, Flow>,
        volleys: &'a [Volley],
        peaks: &IndexVec<FlowId, Peak>,
        moved: &[u64],
    ) -> Self {
        let resources = 0..fabric.count() as u32;
        let flit_ticks: Vec<Ticks> = resources.map(|r| cycles(fabric.cycles_per_flit(r))).collect();
        // A flit takes at least as long as at the slowest port, or as the return of a credit over the links.
        let credit = cycles(2 * chip.network.hop_cycles).div_ceil(chip.network.fifo_depth_flits);
        let slowest: IndexVec<FlowId, Ticks> =
            flows.iter().map(|f| slowest_port(f, &flit_ticks).max(if f.links > 0 { credit } else { 0 })).collect();
        let own = own_ticks(flows, volleys, &flit_ticks, &slowest);
        let demand = demand(flows, volleys, peaks, &flit_ticks, &own);
        let contention = Contention::new(flows, volleys, (&flit_ticks, &slowest, &own), &demand, moved);
        Self {
            fabric,
            flows,
            volleys,
            sent: vec![Vec::new(); volleys.len()],
            place_of: vec![FxHashMap::default(); volleys.len()],
            latest: vec![0; volleys.len()],
            active: vec![Sharing::default(); contention.resources()],
            late: vec![0; volleys.len()],
            slowed: Slowed::new(volleys.len()),
            look_back: 0,
            least: 0,
            contention,
            ends: Vec::new(),
            parts: Vec::new(),
        }
    }

    /// Sends `amount` flits, each flow its share, from time `at` on, at the earliest spread over `pace` ticks (the time
    /// their source or their receiver needs anyway); the time when the slowest link or port of their trees has passed
    /// them, hops not counted.
    ///
    /// Resources are shared as by packets in turn: a volley gets what the others leave, and never less than equal parts
    /// for each of its streams; nor does it wait for more than what the others still have to move.
    pub fn send(&mut self, volley: usize, amount: u64, now: Ticks, (at, pace): (Ticks, Ticks)) -> Ticks {
        self.least = 0;
        if amount == 0 || self.volleys[volley].flows.is_empty() {
            return at;
        }
        self.count(volley, amount);
        let paced = at + pace;
        let at = at.max(self.late[volley]).max(self.slowed.until[volley]);
        let mut least = self.contention.parts(volley, amount, &mut self.parts);
        // Who comes late catches up.
        let pace = paced.saturating_sub(at);
        let alone = least.max(pace);
        let crossed = self.contention.crossed_by(volley);
        self.ends.clear();
        for crossing in crossed {
            let active = &mut self.active[crossing.resource as usize];
            active.pass(now.saturating_sub(self.look_back));
            let lasts = active.lasts(volley, at, crossing.work(&self.parts), least);
            self.ends.push(lasts);
            least = least.max(lasts);
        }
        self.least = least;
        let duration = least.max(pace);
        for (crossing, &lasts) in crossed.iter().zip(&self.ends) {
            let work = crossing.work(&self.parts).ticks;
            if work * WHOLE <= (NOTABLE - 1) * duration {
                continue;
            }
            // Where it is held up it takes what it gets; elsewhere it comes as it gets it there.
            let ends = at
                + match crossing.rushes(work) {
                    Some(rush) => rush.min(duration),
                    None if lasts == duration => alone,
                    None => duration,
                };
            let holds = self.volleys[volley].holds_flits.map_or(Ticks::MAX, |flits| crossing.of_flits(flits));
            let load = Load { volley, span: (at, ends), work, flows: crossing.streams, holds };
            self.active[crossing.resource as usize].enter(load, &mut self.slowed);
        }
        self.late[volley] = self.late[volley].max(at + least);
        at + duration
    }

    /// What is sent may begin so long before it is known.
    pub fn look_back(&mut self, longest: Ticks) {
        self.look_back = longest;
    }

    /// When all of a volley that was slowed by others after it was sent is through.
    pub fn slowed_until(&self, volley: usize) -> Ticks {
        self.slowed.until[volley]
    }

    /// A volley that was slowed since it was last asked.
    pub fn next_slowed(&mut self) -> Option<usize> {
        self.slowed.fresh.pop()
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
        let (sent, latest) = (&mut self.sent[volley], &mut self.latest[volley]);
        let places = &mut self.place_of[volley];
        // Most often the next is like the latest, or like what came after that before.
        let is_known = |i: &usize| sent.get(*i).is_some_and(|&(known, _)| known == amount);
        let turn = [*latest, *latest + 1, 0].into_iter().find(is_known);
        *latest = turn.unwrap_or_else(|| *places.entry(amount).or_insert(sent.len()));
        match sent.get_mut(*latest) {
            Some((_, times)) => *times += 1,
            None => sent.push((amount, 1)),
        }
    }

    /// Writes down all that the rest of a run depends on.
    pub fn write_state(&self, clock: Clock, words: &mut Vec<u64>) {
        self.active.iter().for_each(|active| active.write_state(clock, words));
        words.extend(self.late.iter().chain(&self.slowed.until).map(|&at| clock.relative(at)));
    }

    /// What each volley has moved so far: amounts, and how often.
    pub fn sent(&self) -> &[Vec<(u64, u64)>] {
        &self.sent
    }

    /// Lets time pass and, `times` again, what was sent since `before`: the state, seen from then, is the same.
    pub fn shift(&mut self, before: &[Vec<(u64, u64)>], times: u64, time: Ticks) {
        for (sent, before) in self.sent.iter_mut().zip(before) {
            // What was sent is only ever added to: an amount keeps its place.
            for (place, (_, count)) in sent.iter_mut().enumerate() {
                *count += times * (*count - before.get(place).map_or(0, |&(_, count)| count));
            }
        }
        self.active.iter_mut().for_each(|active| active.shift(time));
        self.late.iter_mut().chain(&mut self.slowed.until).for_each(|at| *at += time);
    }

    /// What all flows have moved.
    pub fn usage(&self) -> Usage {
        let mut flits = IndexVec::filled(self.flows.len(), 0u64);
        for (volley, sent) in self.volleys.iter().zip(&self.sent) {
            // Many of its flows have the same share, one after the other.
            let mut known = ((0, 0), 0);
            for &f in &volley.flows {
                let share = self.flows[f].share;
                if known.0 != share {
                    let all = sent.iter().map(|&(amount, times)| times * shared(amount, share)).sum::<u64>();
                    known = (share, all);
                }
                flits[f] += known.1;
            }
        }
        Usage::new(self.fabric, self.flows, &flits)
    }
}

/// Ticks that a flit of a flow takes at its slowest port or link; all links are alike.
fn slowest_port(flow: &Flow, flit_ticks: &[Ticks]) -> Ticks {
    let ports = flow.route.len() - flow.links as usize;
    flow.route.iter().take(ports + 1).map(|&r| flit_ticks[r as usize]).max().unwrap_or(0)
}
