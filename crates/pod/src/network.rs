//! The links of a system, routes over them, and the time of demands that share them.
//!
//! A flow between two chips uses the links of the lowest level that has both: a message between nodes leaves its chip
//! beside the node's own links. Rates are max-min fair ([`rdusim_engines::fluid`]); a tick is a nanosecond.

use std::collections::BTreeMap;

use super::dragonfly::Channel;
use super::system::{Level, System, Topology};
use rdusim_engines::fluid::{ActivityId, Fluid, Rate, ResourceId, Usage};

/// Weight of the link that an activity uses most: other weights are rounded to a thousandth of it.
const WEIGHT: u64 = 1000;

/// A directed link, or all links of a member in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Link {
    /// Level.
    pub level: usize,
    /// Which group of members of this level.
    group: u64,
    /// The member that sends; of what a switch sends to a member, that member; of routers, the router.
    member: u64,
    /// Which of its links.
    port: u64,
}

/// Ports of a member on a switch or a router.
const OUT: u64 = 0;
const IN: u64 = 1;
/// The first port of a router to others of its group; those to other groups follow.
const ROUTERS: u64 = 2;

/// Bytes over links.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Demand {
    /// Bytes by link.
    pub bytes: BTreeMap<Link, u64>,
    /// Bytes by level, each hop counted once.
    pub by_level: Vec<u64>,
}

impl Demand {
    /// The bytes of the other as well.
    pub fn add(&mut self, other: &Self) {
        for (link, bytes) in &other.bytes {
            *self.bytes.entry(*link).or_default() += bytes;
        }
        self.by_level.resize(self.by_level.len().max(other.by_level.len()), 0);
        for (own, bytes) in self.by_level.iter_mut().zip(&other.by_level) {
            *own += bytes;
        }
    }

    /// Whether nothing moves.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// Routes and rates of a system.
#[derive(Debug, Clone)]
pub struct Network<'s> {
    levels: &'s [Level],
}

impl<'s> Network<'s> {
    /// The links of a system.
    pub fn new(system: &'s System) -> Self {
        Self { levels: &system.levels }
    }

    /// How many levels there are.
    pub fn levels(&self) -> &'s [Level] {
        self.levels
    }

    /// Chips of one member of a level.
    pub fn chips_below(&self, level: usize) -> u64 {
        self.levels[..level].iter().map(|level| level.members).product()
    }

    /// The lowest level that has both chips; `None` for one and the same.
    pub fn level_of(&self, a: u64, b: u64) -> Option<usize> {
        let mut below = 1;
        (a != b).then(|| {
            self.levels
                .iter()
                .position(|level| {
                    below *= level.members;
                    a / below == b / below
                })
                .unwrap_or(self.levels.len() - 1)
        })
    }

    /// Adds a flow between chips.
    pub fn flow(&self, demand: &mut Demand, from: u64, to: u64, bytes: u64) {
        let Some(at) = self.level_of(from, to) else { return };
        let (level, below) = (&self.levels[at], self.chips_below(at));
        let group = from / below / level.members;
        let (a, b) = ((from / below) % level.members, (to / below) % level.members);
        demand.by_level.resize(demand.by_level.len().max(at + 1), 0);
        let mut hop = |member: u64, port: u64| {
            *demand.bytes.entry(Link { level: at, group, member, port }).or_default() += bytes;
        };
        let hops = match &level.topology {
            Topology::Switch => {
                hop(a, OUT);
                hop(b, IN);
                1
            }
            Topology::FullyConnected => {
                hop(a, b);
                1
            }
            Topology::Ring => ring_hops(a, b, level.members, |from, forward| hop(from, u64::from(forward))),
            Topology::Torus(sizes) => {
                let (mut at, mut stride, mut hops) = (a, 1, 0);
                for (dimension, &size) in sizes.iter().enumerate() {
                    let (x, y) = ((at / stride) % size, (b / stride) % size);
                    let base = at - x * stride;
                    hops += ring_hops(x, y, size, |x, forward| {
                        hop(base + x * stride, 2 * dimension as u64 + u64::from(forward));
                    });
                    at = base + y * stride;
                    stride *= size;
                }
                hops
            }
            Topology::Dragonfly(of) => {
                hop(a, OUT);
                hop(b, IN);
                let mut between = 0;
                of.route(a, b, bytes, |router, channel, bytes| {
                    let port = match channel {
                        Channel::Local(peer) => ROUTERS + peer,
                        Channel::Global(link) => ROUTERS + of.routers + link,
                    };
                    *demand.bytes.entry(Link { level: at, group, member: router, port }).or_default() += bytes;
                    between += bytes;
                });
                demand.by_level[at] += between;
                1
            }
        };
        demand.by_level[at] += bytes * hops;
    }

    /// 10^9 bytes a second of a link.
    fn gb_per_s(&self, link: Link) -> f64 {
        let level = &self.levels[link.level];
        let all = level.member_gb_per_s();
        match &level.topology {
            Topology::Switch => all,
            Topology::FullyConnected => all / (level.members - 1).max(1) as f64,
            Topology::Ring => all / 2.0,
            Topology::Torus(sizes) => all / (2 * sizes.len()) as f64,
            Topology::Dragonfly(_) if link.port < ROUTERS => all,
            Topology::Dragonfly(of) => {
                let links = if link.port < ROUTERS + of.routers { of.local_links } else { 1 };
                level.link_gb_per_s * links as f64 * level.sustained_share
            }
        }
    }

    /// Seconds of a demand alone: its busiest link.
    pub fn seconds(&self, demand: &Demand) -> f64 {
        demand.bytes.iter().map(|(&link, &bytes)| bytes as f64 / (self.gb_per_s(link) * 1e9)).fold(0.0, f64::max)
    }
}

/// The hops of the shorter way around a ring: their number.
fn ring_hops(from: u64, to: u64, size: u64, mut hop: impl FnMut(u64, bool)) -> u64 {
    let forward = (to + size - from) % size;
    let (hops, is_forward) = if 2 * forward <= size { (forward, true) } else { (size - forward, false) };
    let mut at = from;
    for _ in 0..hops {
        hop(at, is_forward);
        at = if is_forward { (at + 1) % size } else { (at + size - 1) % size };
    }
    hops
}

/// Activities over the links of a network.
#[derive(Debug)]
pub struct Traffic<'s> {
    network: Network<'s>,
    links: BTreeMap<Link, ResourceId>,
    /// The shared links in time.
    pub fluid: Fluid,
}

/// A demand that can be started.
#[derive(Debug, Clone, Copy)]
pub struct Flow {
    /// The activity; `None` if nothing moves.
    activity: Option<ActivityId>,
    /// Bytes over the link that it uses most.
    amount: u64,
    cap: Option<Rate>,
}

impl Flow {
    /// The activity.
    pub fn activity(&self) -> Option<ActivityId> {
        self.activity
    }
}

impl<'s> Traffic<'s> {
    /// No activities yet.
    pub fn new(network: Network<'s>) -> Self {
        Self { network, links: BTreeMap::new(), fluid: Fluid::default() }
    }

    /// Makes a demand an activity that reaches at most `rate_share` of what its links give it alone.
    pub fn add(&mut self, demand: &Demand, rate_share: f64) -> Flow {
        let time = self.network.seconds(demand);
        let Some(amount) = demand.bytes.values().copied().max().filter(|&amount| amount > 0) else {
            return Flow { activity: None, amount: 0, cap: None };
        };
        let mut usages = Vec::with_capacity(demand.bytes.len());
        for (&link, &bytes) in &demand.bytes {
            let capacity = (self.network.gb_per_s(link) * WEIGHT as f64).round().max(1.0) as u32;
            let fluid = &mut self.fluid;
            let resource = *self.links.entry(link).or_insert_with(|| fluid.add_resource(capacity));
            let weight = (u128::from(bytes) * u128::from(WEIGHT)).div_ceil(u128::from(amount)) as u32;
            usages.push(Usage { resource, weight });
        }
        let ticks = (time / rate_share * 1e9).ceil() as u64;
        let cap = (rate_share < 1.0).then(|| Rate::to_finish(amount, ticks));
        Flow { activity: self.fluid.add_activity(&usages).ok(), amount, cap }
    }

    /// Starts a flow now; whether anything moves.
    pub fn start(&mut self, flow: &Flow) -> bool {
        flow.activity.is_some_and(|activity| self.fluid.start(activity, flow.amount, flow.cap).is_ok())
    }
}
