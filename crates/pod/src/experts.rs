//! Layers with experts: which parameters a chip has of them, how tokens fall on them, and what chips exchange for that.
//!
//! `ep` chips of dp x cp share the experts of a layer out; each keeps everything else whole, as every replica does. A token goes to
//! the chips of its experts and comes back (Lepikhin et al., *`GShard`*, 2020; Fedus et al., *Switch Transformers*, 2021). With a
//! capacity every expert has as many rows for the tokens of all senders; without one an expert has those of its tokens (Gale et al.,
//! *`MegaBlocks`*, 2022), and all wait for the chip that has most. The router's gradient and its loss for balance are no part of it.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::choices::Capacity;
use super::collective::{Call, CollectiveKind, alone, exchanges, plan};
use super::network::{Demand, Network};
use super::parallel::{Job, Parallel};
use super::system::{Algorithm, Stack, System};
use rdusim_base::diagnostics::Diagnostic;
use rdusim_machines::gpu::{KernelCall, kernel_cost};
use rdusim_models::model::{Activation, ExpertLoad, Experts, expected_above};

/// Draws of how tokens fall whose mean is taken: the error of a mean of so many is a quarter of a draw's.
const DRAWS: u64 = 16;
/// Binomial counts up to this mean are drawn trial by trial; above, normal ones are as good.
const MOST_COUNTED: f64 = 32.0;
/// Standard deviations above the mean of the fullest chip that memory has room for.
const DEVIATIONS: f64 = 3.0;

/// Matrices of an expert.
fn matrices(job: &Job) -> u64 {
    if job.architecture.activation == Activation::GatedSilu { 3 } else { 2 }
}

impl Job {
    /// The experts of the layers that have some.
    pub(super) fn experts(&self) -> Option<Experts> {
        self.architecture.extras.experts
    }

    /// Layers without and with experts of a part of a stage.
    pub fn mixed_layers(&self) -> (u64, u64) {
        let all = self.layers_of_part();
        let with = self.experts().map_or(0, |experts| all / experts.every.max(1));
        (all - with, with)
    }

    /// Parameters of a layer with experts on a chip: those that every replica has, and those of its experts.
    pub fn expert_layer_parameters(&self) -> [u64; 2] {
        let (a, p) = (&self.architecture, &self.parallel);
        let Some(experts) = self.experts() else { return [self.layer_parameters(), 0] };
        let router = a.hidden * (experts.count + u64::from(experts.shared_gate));
        let biases = if a.bias { experts.width / p.tp + a.hidden } else { 0 };
        let each = matrices(self) * a.hidden * experts.width / p.tp + biases;
        [self.parameters_with(experts.shared) + router, experts.count / p.experts.ep * each]
    }

    /// Parameters of the layers of a stage on a chip.
    pub(super) fn stage_layer_parameters(&self, stage: u64) -> u64 {
        let (without, with) = self.mixed_layers();
        if with == 0 {
            return (self.layers_of_stage(stage) * self.layer_parameters() as f64).ceil() as u64;
        }
        let of_part = without * self.layer_parameters() + with * self.expert_layer_parameters().iter().sum::<u64>();
        of_part * self.parallel.schedule.parts()
    }

    /// Parameters of a stage on a chip: those that every replica has, and those of its experts.
    pub fn stage_parts(&self, stage: u64) -> [u64; 2] {
        let experts = self.mixed_layers().1 * self.parallel.schedule.parts() * self.expert_layer_parameters()[1];
        [self.stage_parameters(stage) - experts, experts]
    }

    /// Chips that have the same experts and add up their gradients.
    pub fn holders(&self) -> u64 {
        self.parallel.replicas() / self.parallel.experts.ep
    }

    /// What a chip has of bytes that every replica has and of bytes of experts, if `of` replicas share them out.
    pub(super) fn divided(&self, [all, experts]: [u64; 2], of: u64) -> u64 {
        all.div_ceil(of) + experts.div_ceil((of / self.parallel.experts.ep).max(1))
    }

    /// Width of the feed-forward blocks that a token meets in a layer, in the mean of all layers.
    pub(super) fn mean_width(&self) -> f64 {
        let dense = self.architecture.feed_forward as f64;
        let Some(experts) = self.experts() else { return dense };
        let met = (experts.each * experts.width) as f64 * (1.0 - self.dropped_share()) + experts.shared as f64;
        dense + (met - dense) / experts.every as f64
    }

    /// Elements of the router's matrix, in the mean of all layers.
    pub(super) fn mean_router_products(&self) -> f64 {
        let elements = |experts: Experts| (self.architecture.hidden * experts.count) as f64 / experts.every as f64;
        self.experts().map_or(0.0, elements)
    }

    /// Rows of a layer that an expert has for the tokens of all chips that share the experts out, if experts have a capacity.
    fn room(&self) -> Option<u64> {
        let Capacity::Factor(thousandths) = self.parallel.experts.capacity else { return None };
        let experts = self.experts()?;
        let visits = u128::from(self.shared_tokens()) * u128::from(experts.each);
        Some((visits * u128::from(thousandths)).div_ceil(u128::from(experts.count) * 1000) as u64)
    }

    /// Tokens of a micro-batch on all chips that share the experts of a layer out.
    fn shared_tokens(&self) -> u64 {
        self.parallel.experts.ep * self.micro_batch * self.tokens()
    }

    /// Rows of a micro-batch that a chip sends to experts, with those that stay on it.
    pub(super) fn sent_rows(&self) -> u64 {
        let Some(experts) = self.experts() else { return 0 };
        let of_room = |room: u64| (experts.count * room).div_ceil(self.parallel.experts.ep);
        self.room().map_or(self.micro_batch * self.tokens() * experts.each, of_room)
    }

    /// Share of the visits of tokens to experts that find no room.
    pub fn dropped_share(&self) -> f64 {
        let Some((experts, room)) = self.experts().zip(self.room()) else { return 0.0 };
        let tokens = self.shared_tokens();
        let visits = (tokens * experts.each) as f64;
        if self.expert_load == ExpertLoad::Even {
            return (1.0 - (room * experts.count) as f64 / visits).max(0.0);
        }
        let mut chances = experts.chances_in_order(&self.expert_load);
        chances.sort_by(f64::total_cmp);
        let mut above = 0.0;
        for equal in chances.chunk_by(|a, b| a.total_cmp(b).is_eq()) {
            above += equal.len() as f64 * expected_above(tokens, equal[0], room);
        }
        (above / visits).clamp(0.0, 1.0)
    }

    /// Refuses experts that cannot be divided.
    pub(super) fn check_experts(&self) -> Result<(), Diagnostic> {
        let p = &self.parallel;
        let of = p.experts;
        let Some(experts) = self.experts() else {
            if of == super::choices::Mixture::default() {
                return Ok(());
            }
            let title = format!("{} has no experts: ep, capacity, exchange and experts have no effect", self.model);
            return Err(
                Diagnostic::new(title).with_help("leave them out of `--parallel`, or name a model with experts")
            );
        };
        if self.architecture.extras.dense_layers > 0 {
            let title = format!("{}: layers without experts at the front are not modelled on many chips", self.model);
            return Err(
                Diagnostic::new(title).with_help("use a model whose layers with and without experts take turns")
            );
        }
        if self.stage_layers.is_some() || self.density.is_some() {
            let title = format!("{}: `--stage-layers` and `--sparsity` are for models without experts", self.model);
            return Err(Diagnostic::new(title).with_help("leave them out"));
        }
        let near = |number: u64| {
            let divisors: Vec<String> =
                (1..=number.min(4096)).filter(|of| number.is_multiple_of(*of)).map(|of| of.to_string()).collect();
            format!(
                "ep must divide the {} experts of a layer and dp x cp = {}; the latter's divisors are {}",
                experts.count,
                p.replicas(),
                divisors.join(", ")
            )
        };
        let parts = p.pp.saturating_mul(p.schedule.parts());
        let pairs = [
            ("ep", of.ep, "chips of dp x cp", p.replicas()),
            ("ep", of.ep, "experts of a layer", experts.count),
            ("tp", p.tp, "columns of an expert", experts.width),
        ];
        for (what, divisor, whose, number) in pairs {
            if divisor == 0 || number == 0 || !number.is_multiple_of(divisor) {
                let title = format!("{what} = {divisor} does not divide the {number} {whose}");
                return Err(Diagnostic::new(title).with_help(near(p.replicas())));
            }
        }
        if !experts.shared.is_multiple_of(p.tp) {
            return Err(Diagnostic::new(format!(
                "tp = {} does not divide the {} columns of shared experts",
                p.tp, experts.shared
            )));
        }
        let layers = self.architecture.layers / parts.max(1);
        if experts.every == 0 || !layers.is_multiple_of(experts.every) {
            let title =
                format!("one of {} layers has experts, and a part of a stage has {layers} layers", experts.every);
            return Err(
                Diagnostic::new(title).with_help("choose pp and the parts of the schedule so that all parts are alike")
            );
        }
        if of.parts > 1 && of.ep == 1 {
            let title = format!("exchange={}: with ep = 1 nothing is exchanged", of.exchange_name());
            return Err(Diagnostic::new(title).with_help("leave `exchange` out, or give ep"));
        }
        Ok(())
    }
}

/// Rows of the experts' products.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Rows {
    /// Of each expert of the busiest chip, in each draw; with a capacity in the only one.
    pub draws: Vec<Vec<u64>>,
    /// Of each chip of a group, in the draw whose busiest chip is in the middle.
    pub members: Vec<u64>,
}

impl Rows {
    /// Those of a micro-batch in a layer.
    pub(super) fn new(job: &Job) -> Self {
        let Some(experts) = job.experts() else { return Self::default() };
        let ep = job.parallel.experts.ep;
        let local = (experts.count / ep) as usize;
        if let Some(room) = job.room() {
            return Self { draws: vec![vec![room; local]], members: vec![local as u64 * room; ep as usize] };
        }
        let tokens = ep * job.micro_batch * job.tokens();
        let visits = tokens * experts.each;
        if job.expert_load == ExpertLoad::Even {
            let rows: Vec<u64> =
                (0..experts.count).map(|at| visits / experts.count + u64::from(at < visits % experts.count)).collect();
            let members: Vec<u64> = rows.chunks(local).map(|of| of.iter().sum()).collect();
            return Self { draws: vec![rows[..local].to_vec()], members };
        }
        let chances = placed(job, experts);
        let mut rng = Pcg64Mcg::seed_from_u64(tokens ^ experts.count << 32);
        let mut draws: Vec<(u64, Vec<u64>, Vec<u64>)> = (0..DRAWS)
            .map(|_| {
                let rows: Vec<u64> = chances.iter().map(|chance| binomial(tokens, *chance, &mut rng)).collect();
                let rows = summed_to(visits, &rows, tokens);
                let members: Vec<u64> = rows.chunks(local).map(|of| of.iter().sum()).collect();
                let busiest = (0..members.len()).max_by_key(|at| members[*at]).unwrap_or(0);
                (members[busiest], rows[busiest * local..(busiest + 1) * local].to_vec(), members)
            })
            .collect();
        draws.sort();
        let members = draws[draws.len() / 2].2.clone();
        Self { draws: draws.into_iter().map(|(_, rows, _)| rows).collect(), members }
    }

    /// Rows of the busiest chip over those of all in the mean.
    pub(super) fn imbalance(&self) -> f64 {
        let mean = self.members.iter().sum::<u64>() as f64 / self.members.len().max(1) as f64;
        let busiest: u64 = self.draws.iter().flatten().sum();
        if mean > 0.0 { busiest as f64 / self.draws.len() as f64 / mean } else { 1.0 }
    }
}

/// Counts scaled so that they are as many together as there are visits, each in proportion.
fn summed_to(visits: u64, rows: &[u64], most: u64) -> Vec<u64> {
    let all = rows.iter().sum::<u64>().max(1);
    let (mut before, mut given) = (0, 0);
    let scaled = rows.iter().map(|&rows| {
        before += rows;
        let upto = ((u128::from(before) * u128::from(visits) + u128::from(all / 2)) / u128::from(all)) as u64;
        let own = (upto - given).min(most);
        given = upto;
        own
    });
    scaled.collect()
}

/// Rows that a chip has room for: those of the capacity; of the fullest chip's expected tokens and what they spread by.
pub(super) fn most_rows(job: &Job) -> u64 {
    let Some(experts) = job.experts() else { return 0 };
    let ep = job.parallel.experts.ep;
    if let Some(room) = job.room() {
        return experts.count / ep * room;
    }
    let tokens = ep * job.micro_batch * job.tokens();
    if job.expert_load == ExpertLoad::Even {
        return (tokens * experts.each).div_ceil(ep);
    }
    let of_chip = |chances: &[f64]| {
        let mean = tokens as f64 * chances.iter().sum::<f64>();
        let variance: f64 = chances.iter().map(|chance| tokens as f64 * chance * (1.0 - chance)).sum();
        mean + DEVIATIONS * variance.sqrt()
    };
    let chances = placed(job, experts);
    let most = chances.chunks((experts.count / ep) as usize).map(of_chip).fold(0.0, f64::max);
    (most.ceil() as u64).min(tokens * experts.each)
}

/// Chances of experts in the order in which chips have them: as measured; of a distribution in an order drawn once.
fn placed(job: &Job, experts: Experts) -> Vec<f64> {
    let mut chances = experts.chances_in_order(&job.expert_load);
    if matches!(job.expert_load, ExpertLoad::Zipf(_)) {
        let mut rng = Pcg64Mcg::seed_from_u64(experts.count);
        for at in (1..chances.len()).rev() {
            chances.swap(at, rng.random_range(0..=at));
        }
    }
    chances
}

/// A binomial count: trial by trial of what is rare, else by the sum of twelve uniform numbers, which is nearly normal.
fn binomial(tokens: u64, chance: f64, rng: &mut Pcg64Mcg) -> u64 {
    if chance <= 0.0 {
        return 0;
    }
    let mean = tokens as f64 * chance;
    if chance >= 1.0 {
        return tokens;
    }
    if mean < MOST_COUNTED {
        // Trials until the next success are geometric.
        let (mut at, mut count, scale) = (0.0, 0, f64::ln_1p(-chance));
        loop {
            let uniform: f64 = rng.random();
            at += (f64::ln_1p(-uniform) / scale).floor() + 1.0;
            if at > tokens as f64 {
                return count;
            }
            count += 1;
        }
    }
    let normal: f64 = (0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0;
    (mean + normal * (mean * (1.0 - chance)).sqrt()).round().clamp(0.0, tokens as f64) as u64
}

/// Chips of each group that shares the experts of a stage out; `holders` of those that have the same.
pub(super) fn groups(p: &Parallel, stage: u64, rank: u64, holders: bool) -> Vec<Vec<u64>> {
    let (ep, all) = (p.experts.ep, p.replicas());
    let apart = all / ep;
    // Consecutive replicas, or those that lie as far apart as there are groups.
    let (size, count) = if holders { (apart, ep) } else { (ep, apart) };
    let are_neighbours = holders == p.experts.is_far;
    let member = |group: u64, at: u64| if are_neighbours { group * size + at } else { at * count + group };
    (0..count).map(|group| (0..size).map(|at| p.chip(stage, member(group, at), rank)).collect()).collect()
}

/// What chips exchange so that tokens come to their experts, all groups of a stage at the same time; and back, which is as much.
#[derive(Debug, Clone, Default)]
pub(super) struct ExpertComm {
    /// Seconds of one way of all tokens of a micro-batch, and of these those before the bytes.
    seconds: f64,
    latency: f64,
    /// Bytes of the rows that a chip brings to one way, in the mean of all chips.
    pub bytes: u64,
    /// Bytes of one way by level.
    pub by_level: Vec<u64>,
    /// Launches of both ways.
    launches: u64,
}

impl ExpertComm {
    /// The exchange of a layer on the first stage: the fastest protocol, with what its chips copy for it.
    ///
    /// # Errors
    /// No protocol of the stack's library does it.
    pub(super) fn new(system: &System, stack: &Stack, job: &Job) -> Result<Self, Diagnostic> {
        let p = &job.parallel;
        let ep = p.experts.ep;
        if ep < 2 || job.experts().is_none() {
            return Ok(Self::default());
        }
        let network = Network::new(system);
        let groups: Vec<Vec<u64>> = (0..p.tp).flat_map(|rank| groups(p, 0, rank, false)).collect();
        let row = 2 * job.architecture.hidden;
        let members = Rows::new(job).members;
        let is_even = members.iter().all(|rows| *rows == members[0]);
        let bytes = if is_even { members[0] * row } else { members.iter().sum::<u64>() * row / ep };
        // Every sender has an equal part of the rows of every other chip.
        let to: Vec<u64> = members.iter().map(|rows| (rows * row).div_ceil(ep)).collect();
        let call = Call { kind: CollectiveKind::AllToAll, groups: &groups, bytes };
        let mut best: Option<Self> = None;
        for (_, algorithm) in Algorithm::NAMES {
            let named = plan(&network, &system.protocols, &stack.library, Some(algorithm), &call);
            let Ok(planned) = named else { continue };
            let mut of = Self { latency: planned.latency_s, bytes, launches: 2, ..Self::default() };
            if is_even {
                (of.seconds, of.by_level) = (planned.seconds, planned.by_level());
            } else {
                let mut demand = Demand::default();
                let phases = exchanges(&network, &groups, &to, algorithm).unwrap_or_default();
                for phase in &phases {
                    demand.add(&phase.demand);
                }
                let moving: f64 = phases.iter().map(|phase| alone(&network, phase, planned.rate_share)).sum();
                (of.seconds, of.by_level) = (planned.latency_s + planned.own_copy_s + moving, demand.by_level);
            }
            if algorithm == Algorithm::TwoLevel {
                // Two calls each way, and before each a kernel that puts rows in the order of who receives them.
                of.launches = 2 * (2 + 2);
                of.seconds += 2.0 * copied(system, stack, bytes)?;
            }
            if best.as_ref().is_none_or(|known| of.seconds < known.seconds) {
                best = Some(of);
            }
        }
        match best {
            Some(best) => Ok(best),
            None => plan(&network, &system.protocols, &stack.library, None, &call).map(|_| Self::default()),
        }
    }

    /// Seconds that both ways take longer than computing alone, which takes `each` for each part. All parts are sent on their way
    /// before the first comes back; one part is on its way at a time.
    pub(super) fn exposed(&self, parts: u64, each: f64) -> f64 {
        let part = self.latency + (self.seconds - self.latency) / parts as f64;
        let (mut computed, mut ends) = (0.0_f64, Vec::new());
        for at in 1..=parts {
            computed = computed.max(part * at as f64) + each;
            ends.push(computed);
        }
        let back = ends.iter().fold(part * parts as f64, |free, end| free.max(*end) + part);
        back - each * parts as f64
    }

    /// Launches of a part, both ways.
    pub(super) fn launches(&self) -> u64 {
        self.launches
    }
}

/// Seconds in which a chip copies so many bytes.
///
/// # Errors
/// What the chip's simulation refuses.
fn copied(system: &System, stack: &Stack, bytes: u64) -> Result<f64, Diagnostic> {
    let moved = 2.0 * bytes as f64;
    if let Some(gpu) = system.chip.gpu() {
        let cost = kernel_cost(gpu, &KernelCall::Stream { bytes: moved, operations: 0.0 })?;
        return Ok(cost.seconds * stack.kernel_factor + gpu.launch.gap_us / 1e6);
    }
    let fastest = system.chip.device().tiers().iter().map(|tier| tier.bandwidth_bytes_per_s).max();
    Ok(fastest.map_or(0.0, |rate| moved / rate as f64))
}

/// How the visits of tokens to experts end, of all layers, replicas and micro-batches of a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ExpertUse {
    /// Visits: experts of a token, times tokens and layers with experts.
    pub visits: f64,
    /// Those that find no room.
    pub dropped: f64,
    /// Rows of products that are no visit.
    pub padded: f64,
    /// Rows of the busiest chip over the mean.
    pub imbalance: f64,
}

/// The same of a job, if its model has experts.
pub(super) fn expert_use(job: &Job) -> Option<ExpertUse> {
    let experts = job.experts()?;
    let layers = (job.architecture.layers / experts.every) as f64;
    let visits = layers * (job.batch * job.sequence * experts.each) as f64;
    let dropped = visits * job.dropped_share();
    let groups = (job.passes() * job.holders()) as f64;
    let rows = job.room().map_or(visits, |room| layers * groups * (experts.count * room) as f64);
    Some(ExpertUse { visits, dropped, padded: rows - (visits - dropped), imbalance: Rows::new(job).imbalance() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_hide_what_computing_leaves_free() {
        let comm = ExpertComm { seconds: 8.0, latency: 0.0, bytes: 1, by_level: vec![1], launches: 2 };
        // Both ways one after the other.
        assert!((comm.exposed(1, 5.0) - 16.0).abs() < 1e-12);
        // Four parts of 2 each way beside computing of 10: the first way and the last way back are seen.
        assert!((comm.exposed(4, 10.0) - 4.0).abs() < 1e-12);
        // Nothing to hide behind.
        assert!((comm.exposed(4, 0.0) - 16.0).abs() < 1e-12);
        // Every part has its call.
        let called = ExpertComm { latency: 1.0, seconds: 9.0, ..comm };
        assert!((called.exposed(4, 0.0) - 24.0).abs() < 1e-12);
    }

    #[test]
    fn binomial_counts_have_their_mean_and_spread() {
        let mut rng = Pcg64Mcg::seed_from_u64(7);
        for (tokens, chance) in [(1000_u64, 0.003), (4000, 0.5), (64, 0.25)] {
            let draws: Vec<f64> = (0..20_000).map(|_| binomial(tokens, chance, &mut rng) as f64).collect();
            let mean = draws.iter().sum::<f64>() / draws.len() as f64;
            let variance = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / draws.len() as f64;
            let (expected, spread) = (tokens as f64 * chance, tokens as f64 * chance * (1.0 - chance));
            assert!(
                (mean / expected - 1.0).abs() < 0.03 && (variance / spread - 1.0).abs() < 0.06,
                "{mean} {variance}"
            );
        }
    }

    #[test]
    fn groups_and_holders_are_each_chip_once_and_cross_once() {
        for order in ["near", "far"] {
            let p = Parallel::parse(&format!("tp=2,pp=2,dp=4,cp=2,ep=4,experts={order}")).expect("a decomposition");
            let of = |holders| groups(&p, 1, 1, holders);
            let (shares, same) = (of(false), of(true));
            let mut all: Vec<u64> = shares.iter().flatten().copied().collect();
            all.sort_unstable();
            let mut expected: Vec<u64> = (0..8).map(|replica| p.chip(1, replica, 1)).collect();
            expected.sort_unstable();
            assert_eq!(all, expected);
            assert!(shares.len() == 2 && same.len() == 4);
            for (at, holders) in same.iter().enumerate() {
                let met: Vec<u64> = shares.iter().map(|group| group[at]).collect();
                assert_eq!(*holders, met, "{order}: the members at the same place of each group have the same experts");
            }
            assert_eq!(shares[0][1] - shares[0][0], if order == "near" { 2 } else { 4 });
        }
    }
}
