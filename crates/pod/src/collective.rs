//! Collectives: what each algorithm puts on which link, in how many steps, and the fastest protocol of a library.
//!
//! A collective is a list of phases, each a demand on the links that `fluid` solves and a number of steps at each level.
//! Closed forms (`ClosedForm`, doc/PERFORMANCE.md of nccl-tests) are lower bounds of the bytes.

use super::network::{Demand, Network, Traffic};
use super::system::{Algorithm, Protocol, Topology};
use rdusim_base::diagnostics::Diagnostic;

/// What a group does together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CollectiveKind {
    /// Everyone has the sum; `bytes` of each member's operand.
    AllReduce,
    /// Everyone has a part of the sum; `bytes` of each member's operand.
    ReduceScatter,
    /// Everyone has all parts; `bytes` of the whole.
    AllGather,
    /// Everyone has a part of everyone's; `bytes` of each member's operand.
    AllToAll,
    /// Everyone has what the first had; `bytes` of it.
    Broadcast,
    /// The last has what the first had.
    SendReceive,
}

impl CollectiveKind {
    /// Names in measurement files.
    pub const NAMES: [(&'static str, Self); 6] = [
        ("all_reduce", Self::AllReduce),
        ("reduce_scatter", Self::ReduceScatter),
        ("all_gather", Self::AllGather),
        ("all_to_all", Self::AllToAll),
        ("broadcast", Self::Broadcast),
        ("send_receive", Self::SendReceive),
    ];
}

/// A part of a collective that starts when the part before it has ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Phase {
    /// Bytes on links.
    pub demand: Demand,
    /// Steps by level, one after the other.
    pub steps: Vec<u64>,
}

/// Equal groups that run one collective at the same time.
#[derive(Debug, Clone, Copy)]
pub struct Call<'g> {
    /// What they do.
    pub kind: CollectiveKind,
    /// Chips of each group, in order.
    pub groups: &'g [Vec<u64>],
    /// Bytes, as the kind counts them.
    pub bytes: u64,
}

/// A collective as a library runs it.
#[derive(Debug, Clone)]
pub struct Planned {
    /// Its phases.
    pub phases: Vec<Phase>,
    /// Algorithm.
    pub algorithm: Algorithm,
    /// Name of the protocol.
    pub protocol: String,
    /// Share of the sustained rate of the links.
    pub rate_share: f64,
    /// Seconds of the call and all its steps beside the bytes.
    pub latency_s: f64,
    /// Seconds of the copy of what stays on each device.
    pub own_copy_s: f64,
    /// Seconds alone on the links.
    pub seconds: f64,
}

impl Planned {
    /// Bytes by level.
    pub fn by_level(&self) -> Vec<u64> {
        let mut all = Demand::default();
        self.phases.iter().for_each(|phase| all.add(&phase.demand));
        all.by_level
    }
}

/// Bytes that each member sends at least, whatever the algorithm by which members add (switches that add need fewer).
pub fn least_bytes(kind: CollectiveKind, members: u64, bytes: u64) -> f64 {
    let (n, s) = (members as f64, bytes as f64);
    if members < 2 {
        return 0.0;
    }
    match kind {
        CollectiveKind::AllReduce => 2.0 * (n - 1.0) / n * s,
        CollectiveKind::ReduceScatter | CollectiveKind::AllGather | CollectiveKind::AllToAll => (n - 1.0) / n * s,
        CollectiveKind::Broadcast | CollectiveKind::SendReceive => s,
    }
}

/// The phases of a call under an algorithm; `None` if the algorithm does not do this kind on these groups.
pub fn phases(network: &Network<'_>, call: &Call<'_>, algorithm: Algorithm) -> Option<Vec<Phase>> {
    let builder = Builder { network, kind: call.kind, bytes: call.bytes };
    together(call.groups.iter().map(|group| builder.phases(group, algorithm)))
}

/// The phases of all-to-alls of equal groups at the same time in which every member sends so many bytes to each other, by the place of
/// who receives them; `None` if the algorithm does not do this on these groups.
pub(super) fn exchanges(
    network: &Network<'_>,
    groups: &[Vec<u64>],
    to: &[u64],
    algorithm: Algorithm,
) -> Option<Vec<Phase>> {
    let builder = Builder { network, kind: CollectiveKind::AllToAll, bytes: 0 };
    together(groups.iter().map(|group| builder.all_to_all(group, to, algorithm)))
}

/// Phases of several groups at the same time.
fn together(groups: impl Iterator<Item = Option<Vec<Phase>>>) -> Option<Vec<Phase>> {
    let mut all: Vec<Phase> = Vec::new();
    for of_group in groups {
        let of_group = of_group?;
        if all.is_empty() {
            all = of_group;
        } else {
            for (phase, more) in all.iter_mut().zip(&of_group) {
                phase.demand.add(&more.demand);
            }
        }
    }
    Some(all)
}

struct Builder<'n> {
    network: &'n Network<'n>,
    kind: CollectiveKind,
    bytes: u64,
}

impl Builder<'_> {
    fn phases(&self, group: &[u64], algorithm: Algorithm) -> Option<Vec<Phase>> {
        let n = group.len() as u64;
        if n < 2 {
            return Some(Vec::new());
        }
        let one = |phase: Phase| Some(vec![phase]);
        match (self.kind, algorithm) {
            (CollectiveKind::SendReceive, _) => one(self.flows(&[(group[0], *group.last()?)], self.bytes, &[])),
            (CollectiveKind::AllToAll, Algorithm::InSwitch) => None,
            (CollectiveKind::AllToAll, _) => {
                self.all_to_all(group, &vec![self.bytes.div_ceil(n); group.len()], algorithm)
            }
            (CollectiveKind::Broadcast, Algorithm::Ring) => {
                let pairs: Vec<(u64, u64)> = group.windows(2).map(|pair| (pair[0], pair[1])).collect();
                one(self.flows(&pairs, self.bytes, &self.ring_steps(group, 1)))
            }
            (CollectiveKind::AllReduce, Algorithm::Ring | Algorithm::Direct) => {
                let steps = if algorithm == Algorithm::Ring { self.ring_steps(group, 2) } else { vec![2] };
                one(self.all_edges(group, algorithm, 2, &steps))
            }
            (CollectiveKind::ReduceScatter | CollectiveKind::AllGather, Algorithm::Ring | Algorithm::Direct) => {
                let steps = if algorithm == Algorithm::Ring { self.ring_steps(group, 1) } else { vec![1] };
                one(self.all_edges(group, algorithm, 1, &steps))
            }
            (CollectiveKind::AllReduce, Algorithm::InSwitch) => self.in_switch(group).map(|phase| vec![phase]),
            (CollectiveKind::AllReduce, Algorithm::OneShot) => {
                let pairs = group.iter().flat_map(|&a| group.iter().map(move |&b| (a, b))).filter(|(a, b)| a != b);
                one(self.flows(&pairs.collect::<Vec<_>>(), self.bytes, &[1]))
            }
            (CollectiveKind::AllReduce | CollectiveKind::Broadcast, Algorithm::Tree) => one(self.tree(group, false)),
            (CollectiveKind::AllReduce | CollectiveKind::Broadcast, Algorithm::DoubleTree) => {
                one(self.tree(group, true))
            }
            (CollectiveKind::AllReduce, Algorithm::RecursiveDoubling) if n.is_power_of_two() => {
                let distances = (0..n.ilog2()).map(|power| 1usize << power);
                Some(
                    distances
                        .map(|distance| {
                            let pairs: Vec<(u64, u64)> =
                                (0..group.len()).map(|i| (group[i], group[i ^ distance])).collect();
                            self.flows(&pairs, self.bytes, &self.one_step(&pairs))
                        })
                        .collect(),
                )
            }
            (
                CollectiveKind::AllReduce | CollectiveKind::ReduceScatter | CollectiveKind::AllGather,
                Algorithm::Hierarchical,
            ) => self.hierarchical(group),
            (CollectiveKind::AllReduce, Algorithm::Torus) => self.torus(group),
            _ => None,
        }
    }

    /// Flows of equal size at the same time.
    fn flows(&self, pairs: &[(u64, u64)], bytes: u64, steps: &[u64]) -> Phase {
        let mut demand = Demand::default();
        for &pair in pairs {
            self.network.flow(&mut demand, pair.0, pair.1, bytes);
        }
        Phase { demand, steps: steps.to_vec() }
    }

    /// Edges of a ring, or of all pairs, that together carry `times` x (n - 1) / n of the operand from each member.
    fn all_edges(&self, group: &[u64], algorithm: Algorithm, times: u64, steps: &[u64]) -> Phase {
        let n = group.len() as u64;
        let all = u128::from(self.bytes) * u128::from(times * (n - 1));
        if algorithm == Algorithm::Ring {
            let pairs: Vec<(u64, u64)> = (0..group.len()).map(|i| (group[i], group[(i + 1) % group.len()])).collect();
            return self.flows(&pairs, all.div_ceil(u128::from(n)) as u64, steps);
        }
        let pairs: Vec<(u64, u64)> =
            group.iter().flat_map(|&a| group.iter().map(move |&b| (a, b))).filter(|(a, b)| a != b).collect();
        self.flows(&pairs, all.div_ceil(u128::from(n * (n - 1))) as u64, steps)
    }

    /// Every member sends its operand to the switch and its part of the sum, and receives that part and then the whole sum: as many
    /// bytes each way as the operand and a part of it. Two steps: the sums of parts, and their multicast.
    /// `None` for members that no one switch has.
    fn in_switch(&self, group: &[u64]) -> Option<Phase> {
        let is_one = group.iter().all(|&chip| self.network.level_of(group[0], chip).is_none_or(|level| level == 0));
        if !is_one || self.network.levels().first()?.topology != Topology::Switch {
            return None;
        }
        let part = self.bytes.div_ceil(group.len() as u64);
        let pairs: Vec<(u64, u64)> = (0..group.len()).map(|i| (group[i], group[(i + 1) % group.len()])).collect();
        let steps: Vec<u64> = self.one_step(&pairs).iter().map(|steps| 2 * steps).collect();
        Some(self.flows(&pairs, self.bytes.saturating_add(part), &steps))
    }

    /// Steps around a ring, `times` over: at each level as many as there are borders between its members.
    fn ring_steps(&self, group: &[u64], times: u64) -> Vec<u64> {
        let mut steps = vec![0; self.network.levels().len()];
        for pair in group.windows(2) {
            if let Some(level) = self.network.level_of(pair[0], pair[1]) {
                steps[level] += times;
            }
        }
        steps
    }

    /// One step at the highest level that any pair needs.
    fn one_step(&self, pairs: &[(u64, u64)]) -> Vec<u64> {
        let level = pairs.iter().filter_map(|&(a, b)| self.network.level_of(a, b)).max().unwrap_or(0);
        let mut steps = vec![0; level + 1];
        steps[level] = 1;
        steps
    }

    /// A binary heap over the group, and for the second half of the data over the group in reverse. What is broadcast by two
    /// trees comes from a member outside both.
    fn tree(&self, group: &[u64], double: bool) -> Phase {
        let has_source = double && self.kind == CollectiveKind::Broadcast;
        let (source, group) = (group[0], if has_source { &group[1..] } else { group });
        let reversed: Vec<u64> = group.iter().rev().copied().collect();
        let trees = if double { vec![group, &reversed[..]] } else { vec![group] };
        let bytes = self.bytes.div_ceil(trees.len() as u64);
        let mut demand = Demand::default();
        for order in trees.iter().filter(|_| has_source) {
            self.network.flow(&mut demand, source, order[0], bytes);
        }
        for order in &trees {
            for child in 1..order.len() {
                let (down, up) = ((order[(child - 1) / 2], order[child]), (order[child], order[(child - 1) / 2]));
                self.network.flow(&mut demand, down.0, down.1, bytes);
                if self.kind == CollectiveKind::AllReduce {
                    self.network.flow(&mut demand, up.0, up.1, bytes);
                }
            }
        }
        // The longest way from the root to a leaf.
        let ways = if self.kind == CollectiveKind::AllReduce { 2 } else { 1 };
        let mut steps = vec![0; self.network.levels().len()];
        if let Some(level) = self.network.level_of(source, group[0]) {
            steps[level] += 1;
        }
        let mut at = group.len() - 1;
        while at > 0 {
            if let Some(level) = self.network.level_of(group[at], group[(at - 1) / 2]) {
                steps[level] += ways;
            }
            at = (at - 1) / 2;
        }
        Phase { demand, steps }
    }

    /// Members of a group by the member of the highest level that has them. `None` unless there are several equal parts of several:
    /// otherwise nothing is gained by two levels.
    fn by_node(&self, group: &[u64]) -> Option<Vec<Vec<u64>>> {
        let top = group.iter().filter_map(|&chip| self.network.level_of(group[0], chip)).max()?;
        let below = self.network.chips_below(top);
        let mut inner: Vec<Vec<u64>> = Vec::new();
        for &chip in group {
            match inner.last_mut().filter(|known| known[0] / below == chip / below) {
                Some(known) => known.push(chip),
                None => inner.push(vec![chip]),
            }
        }
        let size = inner[0].len();
        let is_equal = size > 1 && inner.len() > 1 && inner.iter().all(|members| members.len() == size);
        is_equal.then_some(inner)
    }

    /// Every member sends so many bytes to each other, by who receives them.
    fn all_to_all(&self, group: &[u64], to: &[u64], algorithm: Algorithm) -> Option<Vec<Phase>> {
        let mut first = Phase::default();
        match algorithm {
            Algorithm::Direct | Algorithm::Ring | Algorithm::Pairwise => {
                for (&receiver, &bytes) in group.iter().zip(to) {
                    for &from in group {
                        self.network.flow(&mut first.demand, from, receiver, bytes);
                    }
                }
                first.steps = self.ring_steps(group, 1);
                Some(vec![first])
            }
            Algorithm::TwoLevel => {
                let inner = self.by_node(group)?;
                let (size, mut second) = (inner[0].len(), Phase::default());
                // Each place within has what goes to that place of any node,
                let of_place: Vec<u64> = (0..size).map(|at| to.iter().skip(at).step_by(size).sum()).collect();
                for members in &inner {
                    for (&receiver, &bytes) in members.iter().zip(&of_place) {
                        for &from in members {
                            self.network.flow(&mut first.demand, from, receiver, bytes);
                        }
                    }
                }
                first.steps = self.ring_steps(&inner[0], 1);
                // and sends on what all members of its node have given it for the other nodes.
                for (receivers, bytes) in inner.iter().zip(to.chunks(size)) {
                    for (at, (&receiver, &bytes)) in receivers.iter().zip(bytes).enumerate() {
                        for senders in &inner {
                            self.network.flow(&mut second.demand, senders[at], receiver, bytes * size as u64);
                        }
                    }
                }
                let places: Vec<u64> = inner.iter().map(|members| members[0]).collect();
                second.steps = self.ring_steps(&places, 1);
                Some(vec![first, second])
            }
            _ => None,
        }
    }

    /// Reduce-scatter within, the rest between members of the highest level, all-gather within.
    fn hierarchical(&self, group: &[u64]) -> Option<Vec<Phase>> {
        let inner = self.by_node(group)?;
        let size = inner[0].len();
        let outer: Vec<Vec<u64>> = (0..size).map(|at| inner.iter().map(|members| members[at]).collect()).collect();
        let run = |kind: CollectiveKind, groups: &[Vec<u64>], bytes: u64| {
            phases(self.network, &Call { kind, groups, bytes }, Algorithm::Ring)
        };
        let part = self.bytes.div_ceil(size as u64);
        let mut list = Vec::new();
        if self.kind != CollectiveKind::AllGather {
            list.extend(run(CollectiveKind::ReduceScatter, &inner, self.bytes)?);
        }
        list.extend(run(self.kind, &outer, part)?);
        if self.kind != CollectiveKind::ReduceScatter {
            list.extend(run(CollectiveKind::AllGather, &inner, self.bytes)?);
        }
        Some(list)
    }

    /// Reduce-scatter along each dimension with what is left, and all-gather back; half of it each way round.
    fn torus(&self, group: &[u64]) -> Option<Vec<Phase>> {
        let top = group.iter().filter_map(|&chip| self.network.level_of(group[0], chip)).max()?;
        let level = &self.network.levels()[top];
        let sizes = match &level.topology {
            Topology::Torus(sizes) => sizes.clone(),
            Topology::Ring => vec![level.members],
            _ => return None,
        };
        // The whole torus, a chip at each place.
        if self.network.chips_below(top) != 1 || group.len() as u64 != level.members {
            return None;
        }
        let (mut left, mut stride, mut list) = (self.bytes, 1, Vec::new());
        for &size in &sizes {
            if size < 2 {
                continue;
            }
            let each = (u128::from(left) * u128::from(size - 1)).div_ceil(u128::from(2 * size)) as u64;
            let mut demand = Demand::default();
            for (at, &chip) in group.iter().enumerate() {
                let x = (at as u64 / stride) % size;
                for next in [(x + 1) % size, (x + size - 1) % size] {
                    let to = group[(at as u64 - x * stride + next * stride) as usize];
                    self.network.flow(&mut demand, chip, to, each);
                }
            }
            let mut steps = vec![0; top + 1];
            steps[top] = size - 1;
            list.push(Phase { demand, steps });
            left = left.div_ceil(size);
            stride *= size;
        }
        let back: Vec<Phase> = list.iter().rev().cloned().collect();
        list.extend(back);
        Some(list)
    }
}

/// The fastest of the protocols of a library alone on the links; `named` restricts it to an algorithm.
///
/// # Errors
/// No protocol of the library does this.
pub fn plan(
    network: &Network<'_>,
    protocols: &[Protocol],
    library: &str,
    named: Option<Algorithm>,
    call: &Call<'_>,
) -> Result<Planned, Diagnostic> {
    let mut best: Option<Planned> = None;
    // What an algorithm puts on the links is the same for all of its protocols.
    let mut known: Vec<(Algorithm, Option<Vec<Phase>>)> = Vec::new();
    // A library with sends and receives between pairs has no other all-to-all.
    let has_pairs = protocols.iter().any(|p| p.library == library && p.algorithm == Algorithm::Pairwise);
    let is_pairwise = call.kind == CollectiveKind::AllToAll && has_pairs && named.is_none();
    let offered = protocols.iter().filter(|protocol| {
        protocol.library == library
            && named.is_none_or(|algorithm| algorithm == protocol.algorithm)
            && (!is_pairwise || protocol.algorithm == Algorithm::Pairwise)
    });
    for protocol in offered {
        let algorithm = protocol.algorithm;
        if known.iter().all(|(of, _)| *of != algorithm) {
            known.push((algorithm, phases(network, call, algorithm)));
        }
        let found = known.iter().find(|(of, _)| *of == algorithm).and_then(|(_, phases)| phases.clone());
        let Some(phases) = found else { continue };
        let step_us = |level: usize| protocol.step_us.get(level).or(protocol.step_us.last()).copied().unwrap_or(0.0);
        let steps = phases.iter().flat_map(|phase| phase.steps.iter().enumerate());
        let latency_us = protocol.base_us + steps.map(|(level, &steps)| steps as f64 * step_us(level)).sum::<f64>();
        let moving: f64 = phases.iter().map(|phase| alone(network, phase, protocol.rate_share)).sum();
        let members = call.groups.first().map_or(0, Vec::len) as u64;
        let own_copy_s = own_copy_s(protocol, call.kind, members, call.bytes);
        let latency_s = if phases.is_empty() { 0.0 } else { latency_us / 1e6 };
        let planned = Planned {
            algorithm: protocol.algorithm,
            protocol: protocol.name.clone(),
            rate_share: protocol.rate_share,
            latency_s,
            own_copy_s,
            seconds: latency_s + own_copy_s + moving,
            phases,
        };
        if best.as_ref().is_none_or(|known| planned.seconds < known.seconds) {
            best = Some(planned);
        }
    }
    best.ok_or_else(|| {
        let kind = CollectiveKind::NAMES.iter().find(|(_, kind)| *kind == call.kind).map_or("", |(name, _)| name);
        let size = call.groups.first().map_or(0, Vec::len);
        Diagnostic::new(format!("no protocol of the library {library:?} does {kind} on groups of {size}"))
            .with_help("the system file's [[protocol]] tables say what its libraries offer")
    })
}

/// Seconds of the part of an operand that stays on its device: of gathers, of sums that are scattered, and of exchanges.
fn own_copy_s(protocol: &Protocol, kind: CollectiveKind, members: u64, bytes: u64) -> f64 {
    let keeps_part =
        matches!(kind, CollectiveKind::AllGather | CollectiveKind::ReduceScatter | CollectiveKind::AllToAll);
    let rate = protocol.own_copy_gb_per_s.filter(|_| keeps_part && members > 1);
    rate.map_or(0.0, |rate| bytes as f64 / members as f64 / (rate * 1e9))
}

/// Seconds of a phase alone, from the fluid model.
pub(super) fn alone(network: &Network<'_>, phase: &Phase, rate_share: f64) -> f64 {
    let mut traffic = Traffic::new(network.clone());
    let flow = traffic.add(&phase.demand, rate_share);
    if !traffic.start(&flow) {
        return 0.0;
    }
    traffic.fluid.next_completion().map_or(0.0, |completion| completion.at as f64 / 1e9)
}
