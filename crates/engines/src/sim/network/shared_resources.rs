//! The links and ports at which transfers compete: of all that the groups of a section use, those that can delay a transfer
//! and that no other one covers.

use rdusim_base::index::IndexVec;
use rdusim_base::units::{index, index_u32, saturating_u32, saturating_u64};
use rdusim_cost::cost::Ticks;
use rdusim_program::{Flow, FlowId, Resource as Place, shared};
use rustc_hash::FxHashMap;

use super::independent_flows::{OfFlitTicks, scaled, work_of};
use super::processor_sharing::CAPACITY;
use super::transfer_group::{TransferGroup, Work};

/// How a transfer group uses one shared resource.
#[derive(Debug, Clone, Copy)]
pub(super) struct ResourceUse {
    /// Number among the shared resources.
    pub resource: u32,
    /// Which of the group's distinct shares its flows carry here.
    share: u32,
    /// Ticks that all of its flows here take together for each flit of that share.
    flit_ticks: u32,
    /// Flows of the group here.
    pub flows: u32,
    /// Ticks of a flit of each of them, if that is the same whole number for all; else 0.
    ticks_each: u32,
    /// The rate, of [`CAPACITY`], at which independent flows arrive here; 0 of others.
    burst_rate: u32,
}

/// Flows of one transfer group that carry the same share of its flits.
#[derive(Debug, Clone, Copy)]
struct Share {
    /// The share, as a fraction.
    of: (u64, u64),
    /// Ticks of a flit at the slowest port or link of their routes.
    flit_ticks: Ticks,
    /// Whether one of them crosses a link, so that it needs credits.
    is_linked: bool,
}

/// What a transfer moves in its largest flows, whatever else is under way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Largest {
    /// Flits of its largest flow.
    pub flits: u64,
    /// Flits of the largest of those that need credits.
    pub linked_flits: u64,
    /// Ticks that the slowest needs at the ports and links of its route.
    pub ticks: Ticks,
}

impl Largest {
    fn add(&mut self, share: &Share, flits: u64) {
        self.flits = self.flits.max(flits);
        self.ticks = self.ticks.max(flits * share.flit_ticks);
        if share.is_linked {
            self.linked_flits = self.linked_flits.max(flits);
        }
    }
}

/// What a transfer brings to the port that most of its flows end at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Sink {
    /// How many of its flows end there.
    pub flows: u64,
    /// Ticks of all their flits.
    pub ticks: Ticks,
    /// Ticks of a flit.
    pub flit_ticks: Ticks,
}

/// The ports at which the flows of a group begin and end.
#[derive(Debug, Clone, Copy, Default)]
struct Ends {
    /// Ticks of a transfer of the reference size at the fullest port that its flows begin at ([`work_of`]).
    source_work: u64,
    /// The port that most of its flows end at, with the ticks of a transfer of the reference size.
    sink: Sink,
}

impl Ends {
    fn new(group: &TransferGroup, flows: &IndexVec<FlowId, Flow>, flit_ticks: &[Ticks]) -> Self {
        let mut sources: FxHashMap<Place, u64> = FxHashMap::default();
        let mut sinks: FxHashMap<Place, Sink> = FxHashMap::default();
        for flow in group.flows.iter().map(|&f| &flows[f]) {
            let [source, behind @ ..] = &flow.route[..] else { continue };
            *sources.entry(*source).or_default() += work_of(flow.share, flit_ticks[*source as usize]);
            for &sink in behind.iter().take(behind.len() - index(flow.links)) {
                let flit_ticks = flit_ticks[sink as usize];
                let Sink { flows, ticks, .. } = sinks.get(&sink).copied().unwrap_or_default();
                sinks.insert(
                    sink,
                    Sink { flows: flows + 1, ticks: ticks + work_of(flow.share, flit_ticks), flit_ticks },
                );
            }
        }
        let fullest = |of: FxHashMap<Place, u64>| of.into_values().max().unwrap_or(0);
        Self { source_work: fullest(sources), sink: sinks.into_values().max().unwrap_or_default() }
    }
}

/// What a transfer of one group needs to know of the network.
#[derive(Debug, Default)]
struct GroupUse {
    /// Distinct shares of its flows.
    shares: Vec<Share>,
    ends: Ends,
    uses: Vec<ResourceUse>,
}

/// The shared resources of a section, by transfer group.
#[derive(Debug)]
pub(super) struct SharedResources {
    count: usize,
    groups: Vec<GroupUse>,
}

/// Demand of one transfer group at one resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Demand {
    group: u32,
    /// Ticks of a transfer of the reference size ([`work_of`]).
    work: u64,
    flows: u32,
    share: u32,
    flit_ticks: u32,
    /// The rate, of [`CAPACITY`], at which independent flows arrive; 0 of others.
    burst_rate: u64,
}

/// Shared resources that are kept for each group: a transfer waits for the slowest only. On congested sections of 1,040 PCUs
/// this changes cycles by up to 0.4 % and saves a third to a half of the time.
const MOST_USES: u32 = 8;

/// Demands at one resource, by group.
type Demands = Vec<Demand>;

/// A resource that several groups use.
#[derive(Debug)]
struct Resource {
    demands: Demands,
    /// Ticks of all it moves in the section.
    busy: u64,
}

impl Resource {
    /// A bit for each group of a class that uses it: one that covers another has all its bits (a Bloom filter of one hash).
    fn groups(&self) -> u64 {
        self.demands.iter().fold(0, |bits, demand| bits | 1 << (demand.group % u64::BITS))
    }
}

/// Whether every transfer that waits at a resource with `demands` waits no less at one with `others`.
fn is_covered(demands: &Demands, others: &Demands) -> bool {
    let mut others = others.iter();
    demands.iter().all(|demand| {
        others.by_ref().find(|other| other.group >= demand.group).is_some_and(|other| {
            other.group == demand.group && other.work >= demand.work && other.flows >= demand.flows
        })
    })
}

impl SharedResources {
    /// Those of `groups` among the resources whose peak `demand` exceeds [`CAPACITY`], without those that another covers. A
    /// flit takes `flit_ticks` at each resource and at least `slowest` of each flow; `own` are the ticks of independent
    /// flows, `moved` the flits that each group moves in the section.
    pub(super) fn new(
        flows: &IndexVec<FlowId, Flow>,
        groups: &[TransferGroup],
        flit_ticks: &[Ticks],
        slowest: &IndexVec<FlowId, Ticks>,
        own: &[Vec<Ticks>],
        demand: &[u64],
        moved: &[u64],
    ) -> Self {
        let mut uses: Vec<GroupUse> = Vec::with_capacity(groups.len());
        let mut at: Vec<Demands> = vec![Vec::new(); flit_ticks.len()];
        for (g, (group, own)) in groups.iter().zip(own).enumerate() {
            let mut of_group = GroupUse { ends: Ends::new(group, flows, flit_ticks), ..GroupUse::default() };
            for (i, &f) in group.flows.iter().enumerate() {
                let flow = &flows[f];
                let known = of_group.shares.iter().position(|share| share.of == flow.share);
                let share = known.unwrap_or(of_group.shares.len());
                if known.is_none() {
                    of_group.shares.push(Share { of: flow.share, flit_ticks: 0, is_linked: false });
                }
                let known = &mut of_group.shares[share];
                known.flit_ticks = known.flit_ticks.max(slowest[f]);
                known.is_linked |= flow.links > 0;
                let mut work = OfFlitTicks::new(|ticks| work_of(flow.share, ticks));
                let own = own.get(i).map_or(u64::MAX, |&own| own.max(1));
                let mut burst_rate = OfFlitTicks::new(|ticks| work_of(flow.share, ticks) * CAPACITY / own);
                for r in flow.route.iter().map(|&r| r as usize).filter(|&r| demand[r] > CAPACITY) {
                    let flit_ticks = flit_ticks[r];
                    let new = Demand {
                        group: index_u32(g),
                        work: work.at(flit_ticks),
                        flows: 1,
                        share: index_u32(share),
                        flit_ticks: saturating_u32(flit_ticks),
                        burst_rate: burst_rate.at(flit_ticks),
                    };
                    add(&mut at[r], new, flow.share, &of_group);
                }
            }
            uses.push(of_group);
        }
        let mut shared: Vec<Resource> = Vec::new();
        for demands in at.into_iter().filter(|demands| !demands.is_empty()) {
            match demands[..] {
                // No other group uses it.
                [Demand { group, share, flit_ticks, .. }] if groups[group as usize].serial => {
                    let least = &mut uses[group as usize].shares[share as usize].flit_ticks;
                    *least = (*least).max(Ticks::from(flit_ticks));
                }
                _ => {
                    let of = |demand: &Demand| scaled(demand.work, moved[demand.group as usize]);
                    let busy = demands.iter().map(of).sum::<u128>();
                    shared.push(Resource { demands, busy: saturating_u64(busy) });
                }
            }
        }
        let kept = fullest(uncovered(shared, groups.len()), groups.len());
        for (resource, Resource { demands, .. }) in (0..).zip(&kept) {
            for &Demand { group, share, flit_ticks, flows, burst_rate, .. } in demands {
                let ticks_each = if flit_ticks.is_multiple_of(flows) { flit_ticks / flows } else { 0 };
                let burst_rate = saturating_u32(burst_rate);
                let of_group = ResourceUse { resource, share, flit_ticks, flows, ticks_each, burst_rate };
                uses[group as usize].uses.push(of_group);
            }
        }
        Self { count: kept.len(), groups: uses }
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Those that a group uses.
    #[inline]
    pub(super) fn used_by(&self, group: usize) -> &[ResourceUse] {
        &self.groups[group].uses
    }

    /// What a transfer of `amount` flits moves in its largest flows.
    #[inline]
    pub(super) fn largest(&self, group: usize, amount: u64) -> Largest {
        let mut largest = Largest::default();
        self.groups[group].shares.iter().for_each(|share| largest.add(share, shared(amount, share.of)));
        largest
    }

    /// Ticks of a transfer of `amount` flits at the fullest port that its flows begin at.
    pub(super) fn source_ticks(&self, group: usize, amount: u64) -> Ticks {
        saturating_u64(scaled(self.groups[group].ends.source_work, amount))
    }

    /// What a transfer of `amount` flits brings to the port that most of its flows end at.
    pub(super) fn sink(&self, group: usize, amount: u64) -> Sink {
        let sink = self.groups[group].ends.sink;
        Sink { ticks: saturating_u64(scaled(sink.ticks, amount)), ..sink }
    }

    /// Flits of the smallest flow of a transfer of `amount` flits.
    pub(super) fn smallest(&self, group: usize, amount: u64) -> u64 {
        self.groups[group].shares.iter().map(|share| shared(amount, share.of)).min().unwrap_or(1)
    }

    /// Replaces `parts` by the flits of each distinct share of a transfer of `amount` flits; returns its largest flows.
    #[inline]
    pub(super) fn parts(&self, group: usize, amount: u64, parts: &mut Vec<u64>) -> Largest {
        let mut largest = Largest::default();
        parts.clear();
        parts.extend(self.groups[group].shares.iter().map(|share| {
            let flits = shared(amount, share.of);
            largest.add(share, flits);
            flits
        }));
        largest
    }
}

impl ResourceUse {
    /// How long independent flows take for work here at their own rates; `None` of others.
    #[inline]
    pub(super) fn burst_ticks(self, work: Ticks) -> Option<Ticks> {
        (self.burst_rate > 0).then(|| work.max(work * CAPACITY / u64::from(self.burst_rate)))
    }

    /// Work of a transfer of these parts here.
    #[inline]
    pub(super) fn work(self, parts: &[u64]) -> Work {
        let flits = parts[self.share as usize];
        let each = flits * Ticks::from(self.ticks_each);
        Work { ticks: flits * Ticks::from(self.flit_ticks), each, flows: self.flows }
    }
}

/// Adds the demand of one flow, with share `share`, to that of its group at a resource.
fn add(demands: &mut Demands, new: Demand, share: (u64, u64), of_group: &GroupUse) {
    match demands.last_mut() {
        Some(demand) if demand.group == new.group => {
            demand.flows += 1;
            demand.work += new.work;
            demand.burst_rate += new.burst_rate;
            if demand.share == new.share {
                demand.flit_ticks += new.flit_ticks;
            } else {
                // In flits of the larger share: as many as take the same time.
                let known = of_group.shares[demand.share as usize].of;
                if work_of(share, 1) > work_of(known, 1) {
                    demand.share = new.share;
                }
                let larger = of_group.shares[demand.share as usize].of;
                demand.flit_ticks = saturating_u32(demand.work.div_ceil(work_of(larger, 1).max(1)));
            }
        }
        _ => demands.push(new),
    }
}

/// Those of `resources` that no other one covers; of equals one.
fn uncovered(mut resources: Vec<Resource>, groups: usize) -> Vec<Resource> {
    resources.sort_unstable_by(|a, b| a.demands.cmp(&b.demands));
    resources.dedup_by(|a, b| a.demands == b.demands);
    // A resource that covers another has as many demands and more work.
    resources.sort_by_cached_key(|Resource { demands, .. }| {
        std::cmp::Reverse((demands.len(), demands.iter().map(|demand| demand.work).sum::<u64>()))
    });
    // With the groups of each, so that few are compared in full.
    let mut kept_by: Vec<Vec<(u64, usize)>> = vec![Vec::new(); groups];
    let mut kept: Vec<Resource> = Vec::new();
    for resource in resources {
        // Every group that uses this one uses the other: enough to search those of the group with the fewest.
        let of_group = |demand: &Demand| &kept_by[demand.group as usize];
        let fewest = resource.demands.iter().map(of_group).min_by_key(|list| list.len());
        let groups = resource.groups();
        let covers = |&(of_other, other): &(u64, usize)| {
            groups & !of_other == 0 && is_covered(&resource.demands, &kept[other].demands)
        };
        if fewest.is_some_and(|list| list.iter().any(covers)) {
            continue;
        }
        for demand in &resource.demands {
            kept_by[demand.group as usize].push((groups, kept.len()));
        }
        kept.push(resource);
    }
    kept
}

/// The [`MOST_USES`] resources of each group that have the most to move.
fn fullest(mut resources: Vec<Resource>, groups: usize) -> Vec<Resource> {
    let mut kept_of = vec![0u32; groups];
    // Stable: of equals the first stays first.
    resources.sort_by_key(|resource| std::cmp::Reverse(resource.busy));
    resources.retain(|Resource { demands, .. }| {
        let is_kept = demands.iter().any(|demand| kept_of[demand.group as usize] < MOST_USES);
        if is_kept {
            for demand in demands {
                kept_of[demand.group as usize] += 1;
            }
        }
        is_kept
    });
    resources
}

#[cfg(test)]
mod tests {
    use super::super::independent_flows::own_ticks;
    use super::*;
    use crate::sim::network::flow;
    use rdusim_base::index::Id;

    fn of_dependent(flows: &[Flow], groups: &[&[usize]]) -> SharedResources {
        of_groups(flows, groups, false)
    }

    fn of_groups(flows: &[Flow], groups: &[&[usize]], independent: bool) -> SharedResources {
        let flows: &IndexVec<FlowId, Flow> = &flows.iter().cloned().collect();
        let ids = |group: &[usize]| group.iter().map(|&f| FlowId::from_index(f)).collect();
        let group = |flows: &&[usize]| TransferGroup { flows: ids(flows), serial: true, independent };
        let groups: Vec<TransferGroup> = groups.iter().map(group).collect();
        let ticks = (&[64; 4][..], &IndexVec::filled(flows.len(), 64));
        let own = own_ticks(flows, &groups, ticks.0, ticks.1);
        SharedResources::new(flows, &groups, ticks.0, ticks.1, &own, &[2 * CAPACITY; 4], &vec![10; groups.len()])
    }

    #[test]
    fn resources_of_the_same_groups_are_kept_once() {
        let flows = [flow((1, 1), &[0, 1, 2]), flow((1, 1), &[1, 2, 3])];
        let both = of_dependent(&flows, &[&[0], &[1]]);
        // 1 and 2 have the same demands; 0 and 3 are used by one group only.
        assert_eq!((both.count(), both.used_by(0).len(), both.used_by(1).len()), (1, 1, 1));
        assert_eq!(both.used_by(0)[0].work(&[10]).ticks, 640);
    }

    #[test]
    fn flows_of_a_group_add_their_work() {
        let flows = [flow((1, 2), &[0, 1]), flow((1, 2), &[0, 2]), flow((1, 1), &[0])];
        let met = of_dependent(&flows, &[&[0, 1], &[2]]);
        let mut parts = Vec::new();
        // Halves of 10 flits, both over resource 0.
        assert_eq!(met.parts(0, 10, &mut parts).ticks, 5 * 64);
        let resource = met.used_by(0)[0];
        assert_eq!((resource.work(&parts).ticks, resource.flows), (10 * 64, 2));
        // Both leave by port 0.
        assert_eq!(met.source_ticks(0, 10), 10 * 64);
        // Alone the group shares nothing, and takes as long.
        let alone = of_dependent(&flows[..2], &[&[0, 1]]);
        assert_eq!((alone.count(), alone.parts(0, 10, &mut parts).ticks), (0, 10 * 64));
    }

    #[test]
    fn independent_flows_have_the_rate_of_their_own_route() {
        // Three quarters of a copy leave by port 0; half of it competes with another group at 1.
        let flows = [flow((1, 2), &[0, 1]), flow((1, 4), &[0]), flow((1, 4), &[2]), flow((1, 1), &[1])];
        let burst = |independent| {
            let met = of_groups(&flows, &[&[0, 1, 2], &[3]], independent);
            let mut parts = Vec::new();
            met.parts(0, 400, &mut parts);
            let [resource] = met.used_by(0) else { panic!("{:?}", met.used_by(0)) };
            let work = resource.work(&parts).ticks;
            assert_eq!(work, 200 * 64);
            resource.burst_ticks(work).map(|ticks| ticks.div_ceil(64))
        };
        assert_eq!(burst(false), None);
        // All 300 of the port take as long.
        assert_eq!(burst(true), Some(300));
    }
}
