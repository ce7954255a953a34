//! The network of a section: every link and port serves a flit a cycle, shared by the transfers that use it.
//!
//! A transfer of a group lasts as long as its slowest port, its credits, its nominal duration and its share of each resource
//! allow. Each shared resource is a processor-sharing server of its own. Invariant: no resource receives more work in an
//! interval than its rate times the interval.

pub(super) mod credit_loops;
pub(super) mod credits;
mod independent_flows;
mod marked_graph;
pub(super) mod peak_demand;
mod processor_sharing;
mod shared_resources;
pub(super) mod transfer_group;

use rdusim_base::units::{Flits, index, index_u32};
use rustc_hash::FxHashMap;

use rdusim_base::index::IndexVec;
use rdusim_cost::cost::{Ticks, Usage, cycles};
use rdusim_graph::arch::Chip;
use rdusim_program::{Fabric, Flow, FlowId, shared};

use super::clock::Clock;

use credits::Credits;
use independent_flows::own_ticks;
use peak_demand::{Peak, demand};
use processor_sharing::{CAPACITY, DelayedUntil, Demand, ProcessorSharing};
use shared_resources::SharedResources;
use transfer_group::TransferGroup;

pub(super) use shared_resources::Sink;

/// The state of every contended link and port of the chip during one section.
#[derive(Debug)]
pub(super) struct Network<'a> {
    fabric: &'a Fabric,
    flows: &'a IndexVec<FlowId, Flow>,
    groups: &'a [TransferGroup],
    /// Amounts that each group has moved, and how often.
    sent: Vec<Vec<(u64, u64)>>,
    /// Place of each amount in that list.
    place_of: Vec<FxHashMap<u64, usize>>,
    /// Place of the amount that each group has moved last.
    latest: Vec<usize>,
    /// The resources at which transfers compete.
    shared: SharedResources,
    /// The transfers under way over each of them, but for those with a negligible rate.
    servers: Vec<ProcessorSharing>,
    /// When the latest transfer of each group ends, as known when it was sent.
    sent_until: Vec<Ticks>,
    /// Credits of the flows of each group.
    credits: Vec<Credits>,
    /// When each group has all its credits back.
    credits_full_at: Vec<Ticks>,
    delayed_until: DelayedUntil,
    /// How long before it is known a transfer may begin.
    look_back: Ticks,
    least: Ticks,
    /// Resources visited by transfers, and rows served there.
    visits: u64,
    rows: u64,
    /// How long the transfer being sent lasts at each resource.
    lasts: Vec<Ticks>,
    /// Flits of the transfer being sent, by distinct share.
    parts: Vec<u64>,
}

/// Rates below this are not kept: a 256th of the capacity.
const NEGLIGIBLE: u64 = CAPACITY / 256;

impl<'a> Network<'a> {
    /// All resources idle. `peaks` are the peak demands of the flows: a resource whose peaks add up to no more than its rate
    /// delays no transfer and is left out. `moved` are the flits that each group moves in the section.
    pub(super) fn new(
        chip: &Chip,
        fabric: &'a Fabric,
        flows: &'a IndexVec<FlowId, Flow>,
        groups: &'a [TransferGroup],
        peaks: &IndexVec<FlowId, Peak>,
        moved: &[u64],
    ) -> Self {
        // A section without places has no flows, and uses no link or port.
        let resources = 0..if flows.is_empty() { 0 } else { index_u32(fabric.count()) };
        let flit_ticks: Vec<Ticks> = resources.map(|r| cycles(fabric.cycles_per_flit(r))).collect();
        let slowest: IndexVec<FlowId, Ticks> = flows.iter().map(|f| slowest_port(f, &flit_ticks)).collect();
        let own = own_ticks(flows, groups, &flit_ticks, &slowest);
        let demand = demand(flows, groups, peaks, &flit_ticks, &own);
        let shared = SharedResources::new(flows, groups, &flit_ticks, &slowest, &own, &demand, moved);
        Self {
            fabric,
            flows,
            groups,
            sent: vec![Vec::new(); groups.len()],
            place_of: vec![FxHashMap::default(); groups.len()],
            latest: vec![0; groups.len()],
            servers: vec![ProcessorSharing::default(); shared.count()],
            sent_until: vec![0; groups.len()],
            credits: vec![Credits::new(chip); groups.len()],
            credits_full_at: vec![0; groups.len()],
            delayed_until: DelayedUntil::none(groups.len()),
            look_back: 0,
            least: 0,
            visits: 0,
            rows: 0,
            shared,
            lasts: Vec::new(),
            parts: Vec::new(),
        }
    }

    /// Flows of a group.
    pub(super) fn flows_of(&self, group: usize) -> impl Iterator<Item = &'a Flow> {
        let (flows, groups) = (self.flows, self.groups);
        groups[group].flows.iter().map(|&flow| &flows[flow])
    }

    /// Slows the flows of a group to a loop of credits.
    pub(super) fn limit(&mut self, group: usize, to: Credits) {
        self.credits[group] = to;
    }

    /// Sends an amount of flits, each flow its share, from time `at` on, over at least `nominal` ticks (the time that their source
    /// or receiver takes anyway). Returns when the slowest link or port of their trees has passed them, without hops.
    ///
    /// Packets are served round-robin: a transfer receives what the others leave, at least an equal share for each of its
    /// flows, and waits for no more than the others still have to move.
    pub(super) fn send(&mut self, group: usize, Flits(amount): Flits, now: Ticks, at: Ticks, nominal: Ticks) -> Ticks {
        self.least = 0;
        if amount == 0 || self.groups[group].flows.is_empty() {
            return at;
        }
        self.count(group, amount);
        let at = at.max(self.ends_at(group));
        let largest = self.shared.parts(group, amount, &mut self.parts);
        let full_at = &mut self.credits_full_at[group];
        let mut least = self.credits[group].take(full_at, at, largest.linked_flits, largest.ticks);
        let alone = least.max(nominal);
        let uses = self.shared.used_by(group);
        self.lasts.clear();
        self.visits += uses.len() as u64;
        for resource in uses {
            let server = &mut self.servers[resource.resource as usize];
            self.rows += server.advance(now.saturating_sub(self.look_back));
            let lasts = server.lasts(group, at, resource.work(&self.parts), least);
            self.lasts.push(lasts);
            least = least.max(lasts);
        }
        self.least = least;
        let duration = least.max(nominal);
        for (resource, &lasts) in uses.iter().zip(&self.lasts) {
            let work = resource.work(&self.parts).ticks;
            if work * CAPACITY <= (NEGLIGIBLE - 1) * duration {
                continue;
            }
            // At its bottleneck it demands its own rate, at other resources the rate that the bottleneck leaves it.
            let ends = at
                + match resource.burst_ticks(work) {
                    Some(burst) => burst.min(duration),
                    None if lasts == duration => alone,
                    None => duration,
                };
            let demand = Demand { group, span: (at, ends), work, flows: resource.flows };
            self.rows += self.servers[resource.resource as usize].enter(demand, &mut self.delayed_until);
        }
        self.sent_until[group] = self.sent_until[group].max(at + least);
        at + duration
    }

    /// Steps that sending has taken so far: visits of resources, and rows served there in each interval.
    pub(super) fn steps(&self) -> (u64, u64) {
        (self.visits, self.rows)
    }

    /// Sets how long before it is known a transfer may begin.
    pub(super) fn look_back(&mut self, longest: Ticks) {
        self.look_back = longest;
    }

    /// When the latest transfer of a group ends, with the delays by transfers that were sent after it.
    pub(super) fn ends_at(&self, group: usize) -> Ticks {
        self.sent_until[group].max(self.delayed_until.0[group])
    }

    /// When the latest transfer of a group ends that was delayed after it was sent.
    pub(super) fn delayed_until(&self, group: usize) -> Ticks {
        self.delayed_until.0[group]
    }

    /// How long the latest transfer takes at least, whatever its nominal duration.
    pub(super) fn least(&self) -> Ticks {
        self.least
    }

    /// Flits of the largest flow of a transfer of an amount of flits, and the ticks they take at least.
    pub(super) fn longest(&self, group: usize, Flits(amount): Flits) -> (u64, Ticks) {
        let largest = self.shared.largest(group, amount);
        (largest.flits, self.credits[group].rested(largest.linked_flits, largest.ticks))
    }

    /// The ticks that a transfer of an amount of flits takes at least at the ports that it leaves from, with its credits.
    pub(super) fn leaves(&self, group: usize, Flits(amount): Flits) -> Ticks {
        let ticks = self.shared.source_ticks(group, amount);
        self.credits[group].rested(self.shared.largest(group, amount).linked_flits, ticks)
    }

    /// What a transfer of an amount of flits brings to the port that most of its flows end at.
    pub(super) fn sink(&self, group: usize, Flits(amount): Flits) -> Sink {
        self.shared.sink(group, amount)
    }

    /// Flits of the smallest flow of a transfer of an amount of flits, but one at least.
    pub(super) fn fewest(&self, group: usize, Flits(amount): Flits) -> u64 {
        self.shared.smallest(group, amount).max(1)
    }

    fn count(&mut self, group: usize, amount: u64) {
        let (sent, latest) = (&mut self.sent[group], &mut self.latest[group]);
        let places = &mut self.place_of[group];
        // Most often the next amount is the latest, or the one that followed it before.
        let is_known = |i: &usize| sent.get(*i).is_some_and(|&(known, _)| known == amount);
        let turn = [*latest, *latest + 1, 0].into_iter().find(is_known);
        *latest = turn.unwrap_or_else(|| *places.entry(amount).or_insert(sent.len()));
        match sent.get_mut(*latest) {
            Some((_, times)) => *times += 1,
            None => sent.push((amount, 1)),
        }
    }

    /// Appends all that the rest of a run depends on, relative to the clock's now.
    pub(super) fn write_state(&self, clock: Clock, words: &mut Vec<u64>) {
        self.servers.iter().for_each(|server| server.write_state(clock, words));
        let times = self.sent_until.iter().chain(&self.delayed_until.0).chain(&self.credits_full_at);
        words.extend(times.map(|&at| clock.relative(at)));
    }

    /// Amounts that each group has moved so far, and how often.
    pub(super) fn sent(&self) -> &[Vec<(u64, u64)>] {
        &self.sent
    }

    /// Moves the state to a later time, relative to which it is the same, and counts `times` again what was sent since `before`.
    pub(super) fn shift(&mut self, before: &[Vec<(u64, u64)>], times: u64, time: Ticks) {
        for (sent, before) in self.sent.iter_mut().zip(before) {
            // What was sent is only ever added to: an amount keeps its place.
            for (place, (_, count)) in sent.iter_mut().enumerate() {
                *count += times * (*count - before.get(place).map_or(0, |&(_, count)| count));
            }
        }
        self.servers.iter_mut().for_each(|server| server.shift(time));
        let times = self.sent_until.iter_mut().chain(&mut self.delayed_until.0).chain(&mut self.credits_full_at);
        times.for_each(|at| *at += time);
    }

    /// Flits of every flow, and what follows from them.
    pub(super) fn usage(&self) -> Usage {
        let mut flits = IndexVec::filled(self.flows.len(), 0u64);
        for (group, sent) in self.groups.iter().zip(&self.sent) {
            // Many of its flows have the same share, one after the other.
            let mut known = ((0, 0), 0);
            for &f in &group.flows {
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

/// Ticks of a flit of a flow at its slowest port or link; all links take a flit the same time.
fn slowest_port(flow: &Flow, flit_ticks: &[Ticks]) -> Ticks {
    let ports = flow.route.len() - index(flow.links);
    flow.route.iter().take(ports + 1).map(|&r| flit_ticks[r as usize]).max().unwrap_or(0)
}

/// A flow over some resources with a share of its transfers.
#[cfg(test)]
fn flow(share: (u64, u64), route: &[rdusim_program::Resource]) -> Flow {
    use rdusim_base::index::Id;
    use rdusim_program::{Amount, BufferId, FlowKind};
    Flow {
        kind: FlowKind::Copy { resident: BufferId::from_index(0) },
        amount: Amount::SlotBytes,
        share,
        reads: None,
        writes: None,
        route: route.to_vec(),
        links: 0,
        hop_cycles: 0,
        pmu_sinks: 0,
        from_pmu: false,
    }
}
