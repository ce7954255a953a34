//! Where volleys can be in each other's way: of the links and ports they cross, those that tell anything the others
//! do not.

use crate::cost::Ticks;
use crate::index::IndexVec;
use crate::program::{Flow, FlowId, shared};

use super::apart::{ByTicks, GRAIN, weight};
use super::sharing::WHOLE;
use super::transfer_group::{Volley, Work};

/// A resource that a volley meets others at.
#[derive(Debug, Clone, Copy)]
pub struct Crossing {
    /// Number among the contended resources.
    pub resource: u32,
    /// Which of the volley's shares its flows carry here ...
    share: u32,
    /// ... and ticks that a flit of that share takes all of them together.
    flit_ticks: u32,
    /// Flows of the volley.
    pub streams: u32,
    /// Ticks that a flit takes each of them, if that is the same whole number for all; else 0.
    stream_ticks: u32,
    /// The part of the resource, of [`WHOLE`], that they take of themselves if they go apart; else 0.
    rush: u32,
}

/// What one volley needs to know of the network.
#[derive(Debug, Default)]
struct Way {
    /// Distinct shares of its flows, with ticks a flit of each takes at least.
    shares: Vec<((u64, u64), Ticks)>,
    crossings: Vec<Crossing>,
}

/// The contended resources of a section, by volley.
#[derive(Debug)]
pub struct Contention {
    resources: usize,
    ways: Vec<Way>,
}

/// How one volley loads one resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Load {
    volley: u32,
    /// Ticks that a 2^20th of the volley's amount takes.
    weight: u64,
    streams: u32,
    share: u32,
    flit_ticks: u32,
    /// The part of the resource, of [`WHOLE`], that the flows take of themselves if they go apart; else 0.
    rush: u64,
}

/// Resources that a volley is looked at, should others not be looked at for it.
const MOST_CROSSED: u32 = 8;

/// The loads of one resource, by volley.
type Loads = Vec<Load>;

/// A resource where volleys meet.
#[derive(Debug)]
struct Meeting {
    loads: Loads,
    /// Ticks that all it moves in the section take it.
    busy: u64,
}

/// Whether whoever waits at a resource with `loads` waits no less at one with `others`.
fn is_covered(loads: &Loads, others: &Loads) -> bool {
    let mut others = others.iter();
    loads.iter().all(|load| {
        others.by_ref().find(|other| other.volley >= load.volley).is_some_and(|other| {
            other.volley == load.volley && other.weight >= load.weight && other.streams >= load.streams
        })
    })
}

impl Contention {
    /// Sums up `volleys` over the resources that more than [`WHOLE`] may be asked of, and forgets every one whose loads
    /// another has as well. A flit takes `flit_ticks` at each resource, and `slowest` at least of each flow, `own` of
    /// itself; `demand` is what is asked of each resource at most, `moved` what each volley moves in the section.
    pub fn new(
        flows: &IndexVec<FlowId, Flow>,
        volleys: &[Volley],
        (flit_ticks, slowest, own): (&[Ticks], &IndexVec<FlowId, Ticks>, &[Vec<Ticks>]),
        demand: &[u64],
        moved: &[u64],
    ) -> Self {
        let mut ways: Vec<Way> = Vec::with_capacity(volleys.len());
        let mut loads: Vec<Loads> = vec![Vec::new(); flit_ticks.len()];
        for (v, (volley, own)) in volleys.iter().zip(own).enumerate() {
            let mut way = Way::default();
            for (i, &f) in volley.flows.iter().enumerate() {
                let flow = &flows[f];
                let known = way.shares.iter_mut().position(|(share, _)| *share == flow.share);
                let share = known.unwrap_or(way.shares.len());
                if known.is_none() {
                    way.shares.push((flow.share, 0));
                }
                way.shares[share].1 = way.shares[share].1.max(slowest[f]);
                let mut weights = ByTicks::new(|ticks| weight(flow.share, ticks));
                let own = own.get(i).map_or(u64::MAX, |&own| own.max(1));
                let mut rushes = ByTicks::new(|ticks| weight(flow.share, ticks) * WHOLE / own);
                for r in flow.route.iter().map(|&r| r as usize).filter(|&r| demand[r] > WHOLE) {
                    let flit_ticks = flit_ticks[r];
                    let new = Load {
                        volley: v as u32,
                        weight: weights.at(flit_ticks),
                        streams: 1,
                        share: share as u32,
                        flit_ticks: flit_ticks as u32,
                        rush: rushes.at(flit_ticks),
                    };
                    add(&mut loads[r], new, flow.share, &way);
                }
            }
            ways.push(way);
        }
        let mut contended: Vec<Meeting> = Vec::new();
        for loads in loads.into_iter().filter(|loads| !loads.is_empty()) {
            match loads[..] {
                // Nobody else comes here.
                [Load { volley, share, flit_ticks, .. }] if volleys[volley as usize].serial => {
                    let least = &mut ways[volley as usize].shares[share as usize].1;
                    *least = (*least).max(Ticks::from(flit_ticks));
                }
                _ => {
                    let of = |load: &Load| u128::from(load.weight) * u128::from(moved[load.volley as usize]);
                    let busy = loads.iter().map(of).sum::<u128>() / u128::from(GRAIN);
                    contended.push(Meeting { loads, busy: busy as u64 });
                }
            }
        }
        let kept = fullest(uncovered(contended, volleys.len()), volleys.len());
        for (resource, Meeting { loads, .. }) in (0..).zip(&kept) {
            for &Load { volley, share, flit_ticks, streams, rush, .. } in loads {
                let stream_ticks = if flit_ticks.is_multiple_of(streams) { flit_ticks / streams } else { 0 };
                let crossing = Crossing { resource, share, flit_ticks, streams, stream_ticks, rush: rush as u32 };
                ways[volley as usize].crossings.push(crossing);
            }
        }
        Self { resources: kept.len(), ways }
    }

    /// How many resources are left.
    pub fn resources(&self) -> usize {
        self.resources
    }

    /// Resources that a volley crosses.
    pub fn crossed_by(&self, volley: usize) -> &[Crossing] {
        &self.ways[volley].crossings
    }

    /// Flits of a volley's flows, by share, if it moves `amount`, and the ticks they take at least.
    pub fn shares(&self, volley: usize, amount: u64) -> impl Iterator<Item = (u64, Ticks)> {
        self.ways[volley].shares.iter().map(move |&(share, ticks)| {
            let flits = shared(amount, share);
            (flits, flits * ticks)
        })
    }

    /// Writes down the flits of a volley's flows, by share, if it moves `amount`; the ticks they take at least.
    pub fn parts(&self, volley: usize, amount: u64, parts: &mut Vec<u64>) -> Ticks {
        let mut least = 0;
        parts.clear();
        parts.extend(self.ways[volley].shares.iter().map(|&(share, ticks)| {
            let flits = shared(amount, share);
            least = least.max(flits * ticks);
            flits
        }));
        least
    }
}

impl Crossing {
    /// How long work takes the volley here of itself, if its flows go apart.
    pub fn rushes(self, work: Ticks) -> Option<Ticks> {
        (self.rush > 0).then(|| work.max(work * WHOLE / u64::from(self.rush)))
    }

    /// What so many flits of each flow take here.
    pub fn of_flits(self, flits: u64) -> Ticks {
        flits * Ticks::from(self.flit_ticks)
    }

    /// What a volley of these parts has to move here.
    pub fn work(self, parts: &[u64]) -> Work {
        let flits = parts[self.share as usize];
        let each = flits * Ticks::from(self.stream_ticks);
        Work { ticks: flits * Ticks::from(self.flit_ticks), each, flows: self.streams }
    }
}

/// Adds what a flow with a share of a volley loads a resource with.
fn add(loads: &mut Loads, new: Load, portion: (u64, u64), way: &Way) {
    match loads.last_mut() {
        Some(load) if load.volley == new.volley => {
            load.streams += 1;
            load.weight += new.weight;
            load.rush += new.rush;
            if load.share == new.share {
                load.flit_ticks += new.flit_ticks;
            } else {
                // Told by the larger share: as many of its flits as take the same time.
                let known = way.shares[load.share as usize].0;
                if weight(portion, 1) > weight(known, 1) {
                    load.share = new.share;
                }
                let larger = way.shares[load.share as usize].0;
                load.flit_ticks = load.weight.div_ceil(weight(larger, 1).max(1)) as u32;
            }
        }
        _ => loads.push(new),
    }
}

/// Those of `contended` that no other covers, one of equals.
fn uncovered(mut contended: Vec<Meeting>, volleys: usize) -> Vec<Meeting> {
    contended.sort_unstable_by(|a, b| a.loads.cmp(&b.loads));
    contended.dedup_by(|a, b| a.loads == b.loads);
    // What covers a resource has as many loads and more weight.
    contended.sort_by_cached_key(|Meeting { loads, .. }| {
        std::cmp::Reverse((loads.len(), loads.iter().map(|load| load.weight).sum::<u64>()))
    });
    let mut kept_by: Vec<Vec<usize>> = vec![Vec::new(); volleys];
    let mut kept: Vec<Meeting> = Vec::new();
    for meeting in contended {
        // Every volley that comes here goes there: look where the fewest are.
        let fewest = meeting.loads.iter().map(|load| &kept_by[load.volley as usize]).min_by_key(|there| there.len());
        if fewest.is_some_and(|there| there.iter().any(|&other| is_covered(&meeting.loads, &kept[other].loads))) {
            continue;
        }
        for load in &meeting.loads {
            kept_by[load.volley as usize].push(kept.len());
        }
        kept.push(meeting);
    }
    kept
}

/// Of those that a volley crosses as many as have the most to move: it waits for the slowest only.
fn fullest(mut meetings: Vec<Meeting>, volleys: usize) -> Vec<Meeting> {
    let mut kept_of = vec![0u32; volleys];
    // Stable: of equals the first stays first.
    meetings.sort_by_key(|meeting| std::cmp::Reverse(meeting.busy));
    meetings.retain(|Meeting { loads, .. }| {
        let is_kept = loads.iter().any(|load| kept_of[load.volley as usize] < MOST_CROSSED);
        if is_kept {
            for load in loads {
                kept_of[load.volley as usize] += 1;
            }
        }
        is_kept
    });
    meetings
}

#[cfg(test)]
mod tests {
    use super::super::apart::own_ticks;
    use super::*;
    use crate::index::Id;
    use crate::program::{Amount, BufferId, FlowKind, Resource};

    fn flow(share: (u64, u64), route: &[Resource]) -> Flow {
        Flow {
            kind: FlowKind::Copy { home: BufferId::from_index(0) },
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

    fn contention(flows: &[Flow], volleys: &[&[usize]]) -> Contention {
        of_volleys(flows, volleys, false)
    }

    fn of_volleys(flows: &[Flow], volleys: &[&[usize]], apart: bool) -> Contention {
        let flows: &IndexVec<FlowId, Flow> = &flows.iter().cloned().collect();
        let ids = |volley: &[usize]| volley.iter().map(|&f| FlowId::from_index(f)).collect();
        let volley = |flows: &&[usize]| Volley { flows: ids(flows), serial: true, apart, holds_flits: None };
        let volleys: Vec<Volley> = volleys.iter().map(volley).collect();
        let ticks = (&[64; 4][..], &IndexVec::filled(flows.len(), 64));
        let own = own_ticks(flows, &volleys, ticks.0, ticks.1);
        Contention::new(flows, &volleys, (ticks.0, ticks.1, &own), &[2 * WHOLE; 4], &vec![10; volleys.len()])
    }

    #[test]
    fn what_the_same_volleys_cross_is_looked_at_once() {
        let flows = [flow((1, 1), &[0, 1, 2]), flow((1, 1), &[1, 2, 3])];
        let both = contention(&flows, &[&[0], &[1]]);
        // 1 and 2 are alike; 0 and 3 are crossed by one volley only.
        assert_eq!((both.resources(), both.crossed_by(0).len(), both.crossed_by(1).len()), (1, 1, 1));
        assert_eq!(both.crossed_by(0)[0].work(&[10]).ticks, 640);
    }

    #[test]
    fn flows_of_a_volley_take_their_time_one_after_the_other() {
        let flows = [flow((1, 2), &[0, 1]), flow((1, 2), &[0, 2]), flow((1, 1), &[0])];
        let met = contention(&flows, &[&[0, 1], &[2]]);
        let mut parts = Vec::new();
        // Halves of 10 flits, both over resource 0.
        assert_eq!(met.parts(0, 10, &mut parts), 5 * 64);
        let crossing = met.crossed_by(0)[0];
        assert_eq!((crossing.work(&parts).ticks, crossing.streams), (10 * 64, 2));
        // Alone, nobody is met, and it takes as long.
        let alone = contention(&flows[..2], &[&[0, 1]]);
        assert_eq!((alone.resources(), alone.parts(0, 10, &mut parts)), (0, 10 * 64));
    }

    #[test]
    fn flows_that_go_apart_are_as_fast_as_their_own_way() {
        // Three quarters of a copy leave by port 0; half of it meets another volley at 1.
        let flows = [flow((1, 2), &[0, 1]), flow((1, 4), &[0]), flow((1, 4), &[2]), flow((1, 1), &[1])];
        let rush = |apart| {
            let met = of_volleys(&flows, &[&[0, 1, 2], &[3]], apart);
            let mut parts = Vec::new();
            met.parts(0, 400, &mut parts);
            let [crossing] = met.crossed_by(0) else { panic!("{:?}", met.crossed_by(0)) };
            let work = crossing.work(&parts).ticks;
            assert_eq!(work, 200 * 64);
            crossing.rushes(work).map(|ticks| ticks.div_ceil(64))
        };
        assert_eq!(rush(false), None);
        // All 300 of the port take as long.
        assert_eq!(rush(true), Some(300));
    }
}
