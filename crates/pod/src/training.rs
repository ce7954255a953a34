//! A step of training: stages' times, the schedule on stages and links, and what the step is made of.

use std::collections::BTreeMap;

use super::collective::{Call, CollectiveKind, Planned, plan};
use super::energy::{pass_joules, static_joules};
use super::engine::{Actor, Plan, Reduction, Simulated, Spent, simulate};
use super::experts::{self, ExpertUse, expert_use};
use super::goodput::Goodput;
use super::memory::{self, Memory};
use super::network::{Demand, Network};
use super::on_chips::member;
use super::optimizer::{gradient_parts, notes as optimizer_notes, state_parts, update};
use super::parallel::{Job, Schedule};
use super::pass::{Pass, Pieces};
use super::phased;
use super::schedule::{StageOf, Work, in_chunks, with_updates};
use super::sharded::{self, Sharers, StagePart, ns, pass_times};
use super::stage::pieces;
use super::stragglers::Slowest;
use super::system::{Stack, System};
use super::tensor_comm::{TensorComm, tensor_comm};
use super::unit_calls::UnitCalls;
use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::units::Dtype;
use rdusim_machines::gpu::KernelCost;

/// Whether the chips of a stage are simulated as one, or each on its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// A stage is one actor with the demand of all its chips.
    Grouped,
    /// Every chip is an actor.
    Flat,
}

/// Seconds of the critical chip; they add up to the step.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct StepTime {
    /// Forward and backward passes.
    pub compute: f64,
    /// What is computed again.
    pub recompute: f64,
    /// Tensor collectives.
    pub tensor_comm: f64,
    /// What chips that share a sequence exchange.
    pub context_comm: f64,
    /// What chips that share experts exchange.
    pub expert_comm: f64,
    /// Transfers between stages that it waits for.
    pub pipeline_comm: f64,
    /// Waiting for other stages.
    pub bubble: f64,
    /// Reduction of gradients, and gathering of weights.
    pub data_comm: f64,
    /// The optimiser's step.
    pub optimizer: f64,
    /// What the optimiser's step takes longer because its state comes from the host and goes back, and waiting for activations and
    /// weights that move between chip and host.
    pub offload: f64,
    /// Waiting for the host, and what a step takes beside its passes, collectives and updates.
    pub other: f64,
}

/// A step.
#[derive(Debug, Clone)]
pub struct TrainingStep {
    /// Seconds.
    pub step_s: f64,
    /// What they are made of on the chip that works most.
    pub time: StepTime,
    /// Its stage.
    pub critical: usize,
    /// FLOP of the model over what the chips could do.
    pub mfu: f64,
    /// The same with what is computed again.
    pub hfu: f64,
    /// Memory of the fullest chip.
    pub memory: Memory,
    /// Bytes by level of all chips.
    pub traffic: Vec<(String, u64)>,
    /// No step on so many chips is shorter.
    pub bound_s: f64,
    /// The schedule in time.
    pub simulated: Simulated,
    /// One sentence each.
    pub notes: Vec<String>,
    /// How visits of tokens to experts end, if the model has some.
    pub experts: Option<ExpertUse>,
    /// Joules of all chips: passes, updates and static power.
    pub energy_j: f64,
    /// What the slowest chip makes of it, if that was asked for.
    pub slowest: Option<Slowest>,
    /// What failures leave of a run of such steps, if that was asked for.
    pub goodput: Option<Goodput>,
}

/// A step on stages whose chips go in lockstep.
///
/// # Errors
/// What cannot be divided, more chips than the system can have, or what the chip's simulation refuses.
pub fn step(system: &System, stack: &Stack, job: &Job, detail: Detail) -> Result<TrainingStep, Diagnostic> {
    job.check()?;
    let chips = job.parallel.chips();
    if chips > system.most_chips() {
        let title = format!("{chips} chips are asked for, {} has at most {}", system.name, system.most_chips());
        return Err(
            Diagnostic::new(title).with_help("chips are tp x pp x dp x cp; the system file's levels say how many")
        );
    }
    member(&system.chip).check_keys(job)?;
    let comm = tensor_comm(system, stack, job)?;
    let pieces = pieces(system, stack, job, &comm)?;
    step_of(system, stack, job, detail, &comm, &pieces)
}

/// A step whose passes are known.
///
/// # Errors
/// No protocol of the stack's library does its collectives.
pub(super) fn step_of(
    system: &System,
    stack: &Stack,
    job: &Job,
    detail: Detail,
    comm: &TensorComm,
    pieces: &Pieces,
) -> Result<TrainingStep, Diagnostic> {
    let builder = Builder { system, stack, job, pieces, network: Network::new(system) };
    let run = |micro: u64| -> Result<(Simulated, Vec<u64>), Diagnostic> {
        let (plan, reduce_bytes) = builder.plan(detail, micro)?;
        Ok((simulate(&plan, &builder.network), reduce_bytes))
    };
    let micro = job.micro_batches();
    if !job.parallel.schedule.never_drains() {
        let (simulated, reduce_bytes) = run(micro)?;
        let period = Period::all(&simulated);
        return Ok(builder.finished(comm, &reduce_bytes, simulated, &period));
    }
    // A pipeline that never drains: as many micro-batches more, once it is full.
    let filling = job.parallel.pp.next_multiple_of(micro) + micro;
    let ((before, _), (simulated, reduce_bytes)) = (run(filling)?, run(filling + micro)?);
    let period = Period::all(&simulated).without(&Period::all(&before));
    Ok(builder.finished(comm, &reduce_bytes, simulated, &period))
}

/// What a step is of a simulation: all of it, or the end of one that has no end.
struct Period {
    end: u64,
    spent: Vec<Spent>,
    transfer_bytes: Vec<u64>,
}

impl Period {
    fn all(simulated: &Simulated) -> Self {
        let Simulated { end, spent, transfer_bytes, .. } = simulated;
        Self { end: *end, spent: spent.clone(), transfer_bytes: transfer_bytes.clone() }
    }

    /// What it has more than a shorter simulation.
    fn without(mut self, shorter: &Self) -> Self {
        self.end = self.end.saturating_sub(shorter.end);
        for (own, less) in self.spent.iter_mut().zip(&shorter.spent) {
            own.work = own.work.saturating_sub(less.work);
            own.optimizer = own.optimizer.saturating_sub(less.optimizer);
            own.reduce = own.reduce.saturating_sub(less.reduce);
            let left = self.end.saturating_sub(own.work + own.optimizer + own.reduce);
            own.transfer = own.transfer.saturating_sub(less.transfer).min(left);
            own.bubble = left - own.transfer;
        }
        for (own, less) in self.transfer_bytes.iter_mut().zip(&shorter.transfer_bytes) {
            *own = own.saturating_sub(*less);
        }
        self
    }
}

/// Seconds of the optimiser's step of a stage, with what its state takes from the host and back.
///
/// # Errors
/// What the chip's simulation refuses.
pub(super) fn update_seconds(
    system: &System,
    stack: &Stack,
    job: &Job,
    pieces: &Pieces,
    stage: u64,
) -> Result<f64, Diagnostic> {
    let builder = Builder { system, stack, job, pieces, network: Network::new(system) };
    Ok(builder.optimizer(stage, builder.optimizer_share())?.seconds + builder.offload(stage)?)
}

/// Seconds that a transfer of a micro-batch from each stage to the next takes at least.
pub(super) fn hops(system: &System, stack: &Stack, job: &Job) -> Vec<f64> {
    let p = &job.parallel;
    let none = Pieces::default();
    let builder = Builder { system, stack, job, pieces: &none, network: Network::new(system) };
    let chips: Vec<(u64, u64)> =
        (0..p.replicas()).flat_map(|replica| (0..p.tp).map(move |rank| (replica, rank))).collect();
    let message_us = system.levels.iter().map(|level| level.message_us).fold(f64::INFINITY, f64::min);
    let hop = |stage: u64| {
        let demand = builder.transfer(stage, (stage + 1) % p.pp, &chips);
        if demand.is_empty() { 0.0 } else { message_us / 1e6 + builder.network.seconds(&demand) }
    };
    (0..p.pp).map(hop).collect()
}

/// Bytes that a chip sends to the next stage.
pub(super) fn transfer_bytes(job: &Job, stack: &Stack) -> u64 {
    let whole = 2 * job.micro_batch * job.tokens() * job.architecture.hidden;
    let is_part = job.parallel.sp || stack.scatter_gather;
    if is_part { whole.div_ceil(job.parallel.tp) } else { whole }
}

struct Builder<'s> {
    system: &'s System,
    stack: &'s Stack,
    job: &'s Job,
    pieces: &'s Pieces,
    network: Network<'s>,
}

impl TrainingStep {
    /// Seconds that a chip computes, again too.
    pub fn computing_s(&self) -> f64 {
        self.time.compute + self.time.recompute + self.time.optimizer
    }
}

impl Builder<'_> {
    /// What a chip does of the update of its stage, and the whole; nothing where it does all of it.
    fn update_note(&self, stage: u64) -> Vec<String> {
        let share = self.optimizer_share();
        if share <= 1.0 || self.job.experts().is_some() {
            return Vec::new();
        }
        let times = self.optimizer(stage, share).ok().zip(self.optimizer(stage, 1.0).ok());
        let told = |(own, whole): (KernelCost, KernelCost)| {
            let (own, whole) = (own.seconds * 1e3, whole.seconds * 1e3);
            format!(
                "the update of a chip takes {own:.2} ms for its 1/{share} of its stage's weights; the whole takes {whole:.2} ms"
            )
        };
        times.map(told).into_iter().collect()
    }

    /// Chips that share out the update of their weights.
    fn optimizer_share(&self) -> f64 {
        self.job.parallel.sharding()[0] as f64
    }

    /// The optimiser's step of a stage on a chip, if `share` chips share its weights out.
    fn optimizer(&self, stage: u64, share: f64) -> Result<KernelCost, Diagnostic> {
        let (p, of) = (&self.job.parallel, self.pieces);
        let Some(gpu) = self.system.chip.gpu() else {
            let parts = p.schedule.parts() as f64;
            let layers = of.layers.scaled(self.job.layers_share(stage)).plus(of.expert_layers);
            let mut all = layers.scaled(parts);
            if stage == 0 {
                all = all.plus(of.embedding);
            }
            if stage + 1 == p.pp {
                all = all.plus(of.logits);
            }
            // Fewer chips have the same experts.
            let of_experts = parts / (share / p.experts.ep as f64).max(1.0);
            let (own, experts) = (all.scaled(1.0 / share).update, of.expert_update);
            return Ok(KernelCost {
                seconds: own.seconds + experts.seconds * of_experts,
                joules: own.joules + experts.joules * of_experts,
            });
        };
        update(gpu, self.job, stage, share)
    }

    /// Joules of a step of so many seconds.
    fn energy(&self, step_s: f64) -> f64 {
        let (job, p) = (self.job, &self.job.parallel);
        let updates = if p.schedule.updates_each() { job.micro_batches() } else { 1 };
        let of_stage = |stage| self.optimizer(stage, self.optimizer_share()).map_or(0.0, |cost| cost.joules);
        let updates = (0..p.pp).map(of_stage).sum::<f64>() * (p.tp * p.replicas() * updates) as f64;
        pass_joules(job, self.pieces) + updates + static_joules(self.system, job, step_s)
    }

    /// Seconds that the optimiser's step takes longer if its state lies with the host: 12 bytes a parameter come over the
    /// chip's link to it and as many go back at the same time, beside the step.
    fn offload(&self, stage: u64) -> Result<f64, Diagnostic> {
        let p = &self.job.parallel;
        let state =
            if p.offload.optimizer { self.job.divided(state_parts(self.job, stage), p.sharding()[0]) } else { 0 };
        // New weights go to the host where they lie.
        let weights = if p.offload.weights { 2 * self.job.stage_parameters(stage) } else { 0 };
        let bytes = state + weights;
        if bytes == 0 {
            return Ok(0.0);
        }
        let moving = bytes as f64 / (self.system.host.link_gb_per_s * 1e9);
        Ok((moving - self.optimizer(stage, self.optimizer_share())?.seconds).max(0.0))
    }

    /// The demand of transfers of all chips of a stage, or of one of them, to the next stage or the one before.
    fn transfer(&self, from: u64, to: u64, chips: &[(u64, u64)]) -> Demand {
        let (p, bytes) = (&self.job.parallel, transfer_bytes(self.job, self.stack));
        let mut demand = Demand::default();
        for &(replica, rank) in chips {
            self.network.flow(&mut demand, p.chip(from, replica, rank), p.chip(to, replica, rank), bytes);
        }
        demand
    }

    fn plan(&self, detail: Detail, micro: u64) -> Result<(Plan, Vec<u64>), Diagnostic> {
        let p = &self.job.parallel;
        let everyone: Vec<(u64, u64)> =
            (0..p.replicas()).flat_map(|replica| (0..p.tp).map(move |rank| (replica, rank))).collect();
        let sets: Vec<Vec<(u64, u64)>> = match detail {
            Detail::Grouped => vec![everyone],
            Detail::Flat => everyone.into_iter().map(|chip| vec![chip]).collect(),
        };
        let per_stage = sets.len();
        let groups = Self::replica_groups(&sets);
        let calls = UnitCalls::new(self.system, self.stack, self.job)?;
        let (mut actors, mut streams) = (Vec::new(), Vec::new());
        for stage in 0..p.pp {
            let update_ns = ns(self.optimizer(stage, self.optimizer_share())?.seconds) + ns(self.offload(stage)?);
            let passes = sharded::passes(self.job, self.pieces, stage, update_ns);
            // With an update after every micro-batch none is left for the end.
            let optimizer_ns = if p.schedule.never_drains() { 0 } else { update_ns };
            let (next, previous) = ((stage + 1) % p.pp, (stage + p.pp - 1) % p.pp);
            for (at, chips) in sets.iter().enumerate() {
                actors.push(Actor {
                    order: self.order(stage, micro),
                    passes: passes.clone(),
                    gathers: None,
                    scatters: None,
                    next: (next as usize * per_stage + at, self.transfer(stage, next, chips)),
                    previous: (previous as usize * per_stage + at, self.transfer(stage, previous, chips)),
                    is_first: stage == 0,
                    is_last: stage + 1 == p.pp,
                    optimizer_ns,
                });
            }
            for (members, groups) in groups.iter().filter(|_| p.shards_passes()) {
                let members: Vec<usize> = members.iter().map(|at| stage as usize * per_stage + at).collect();
                let holders = self.holders(stage, groups);
                let replicas = self.replicas(stage, groups);
                let sharers = Sharers { replicas: &replicas, holders: &holders, actors: &members };
                let list = sharded::streams(self.job, &calls, sharers, |call| self.collective(call))?;
                for &member in &members {
                    actors[member].scatters = Some(streams.len());
                    actors[member].gathers = (list.len() > 1).then_some(streams.len() + 1);
                }
                streams.extend(list);
            }
        }
        let (reductions, bytes) = self.reductions(&sets)?;
        let levels = self.network.levels();
        // A message between stages crosses the highest level that any needs.
        let used = actors.iter().flat_map(|actor| actor.next.1.by_level.iter().enumerate());
        let highest = used.filter(|(_, bytes)| **bytes > 0).map(|(level, _)| level).max().unwrap_or(0);
        let message_ns = ns(levels[highest].message_us / 1e6);
        let (parts, blocking, sharding) = (p.schedule.parts(), self.stack.blocking, self.stack.sharding);
        Ok((
            Plan {
                actors,
                reductions,
                streams,
                prefetch: if sharding.waits { 0 } else { p.prefetch },
                waits: sharding.waits,
                slowdown_thousandths: (sharding.compute_share * 1e3).round() as u64,
                parts,
                message_ns,
                blocking,
                is_v: p.schedule.is_v(),
            },
            bytes,
        ))
    }

    /// The order of passes and updates on a stage.
    fn order(&self, stage: u64, micro: u64) -> Vec<Work> {
        let p = &self.job.parallel;
        // In phases all micro-batches have gone forward before the first goes back.
        let schedule = if p.tiled.is_phased() { Schedule::GPipe } else { p.schedule };
        let order = in_chunks(schedule, StageOf { stage, stages: p.pp }, micro, p.seq_chunks);
        if p.schedule == Schedule::PipeDream2Bw { with_updates(order, self.job.micro_batches()) } else { order }
    }

    /// Actors of a stage that share the collectives of their replicas, with their tensor ranks: in a flat simulation those
    /// of one rank.
    fn replica_groups(sets: &[Vec<(u64, u64)>]) -> Vec<(Vec<usize>, Vec<u64>)> {
        let mut ranks: BTreeMap<Vec<u64>, Vec<usize>> = BTreeMap::new();
        for (at, chips) in sets.iter().enumerate() {
            let mut of: Vec<u64> = chips.iter().map(|(_, rank)| *rank).collect();
            of.sort_unstable();
            of.dedup();
            ranks.entry(of).or_default().push(at);
        }
        ranks.into_iter().map(|(ranks, actors)| (actors, ranks)).collect()
    }

    /// The replicas of each of these tensor ranks of a stage.
    fn replicas(&self, stage: u64, ranks: &[u64]) -> Vec<Vec<u64>> {
        let p = &self.job.parallel;
        ranks.iter().map(|&rank| (0..p.replicas()).map(|replica| p.chip(stage, replica, rank)).collect()).collect()
    }

    /// Those of each of these tensor ranks of a stage that have the same experts.
    fn holders(&self, stage: u64, ranks: &[u64]) -> Vec<Vec<u64>> {
        ranks.iter().flat_map(|&rank| experts::groups(&self.job.parallel, stage, rank, true)).collect()
    }

    /// Reductions of gradients over the replicas, and of the token table between the stages that have it; bytes by level.
    fn reductions(&self, sets: &[Vec<(u64, u64)>]) -> Result<(Vec<Reduction>, Vec<u64>), Diagnostic> {
        let p = &self.job.parallel;
        let (mut list, mut bytes) = (Vec::new(), vec![0; self.network.levels().len()]);
        let kinds = sharded::end_collectives(self.stack.kind, p);
        for stage in (0..p.pp).filter(|_| !kinds.is_empty()) {
            let (weights, gradients) = (self.job.stage_parts(stage), gradient_parts(self.job, stage));
            for (members, ranks) in Self::replica_groups(sets) {
                let groups = [self.replicas(stage, &ranks), self.holders(stage, &ranks)];
                let actors = members.iter().map(|at| stage as usize * sets.len() + at).collect();
                let parts = if weights[1] > 0 && self.job.holders() > 1 { 2 } else { 1 };
                let plans =
                    (0..parts).flat_map(|part| kinds.iter().map(move |&kind| (part, kind))).map(|(part, kind)| {
                        let is_gather = kind == CollectiveKind::AllGather;
                        let bytes = if is_gather { 2 * weights[part] } else { gradients[part] };
                        self.collective(&Call { kind, groups: &groups[part], bytes })
                    });
                list.push(reduction(actors, &plans.collect::<Result<Vec<_>, _>>()?, &mut bytes));
            }
        }
        if let Some(size) = sharded::tied_bytes(self.job) {
            for (at, chips) in sets.iter().enumerate() {
                let groups: Vec<Vec<u64>> = chips
                    .iter()
                    .map(|&(replica, rank)| vec![p.chip(0, replica, rank), p.chip(p.pp - 1, replica, rank)])
                    .collect();
                let actors = vec![at, (p.pp as usize - 1) * sets.len() + at];
                let call = Call { kind: CollectiveKind::AllReduce, groups: &groups, bytes: size };
                list.push(reduction(actors, &[self.collective(&call)?], &mut bytes));
            }
        }
        Ok((list, bytes))
    }

    fn collective(&self, call: &Call<'_>) -> Result<Planned, Diagnostic> {
        plan(&self.network, &self.system.protocols, &self.stack.library, None, call)
    }

    fn finished(&self, comm: &TensorComm, reduce: &[u64], simulated: Simulated, period: &Period) -> TrainingStep {
        let (job, p) = (self.job, &self.job.parallel);
        let micro = job.micro_batches();
        let beside_us = self.stack.beside_us(p.chips());
        let beside_s = beside_us / 1e6;
        let step_s = period.end as f64 / 1e9 + beside_s;
        // The chip that waits least.
        let actors = period.spent.iter().copied().enumerate();
        let (actor, spent) = actors.min_by_key(|(_, spent)| spent.bubble).unwrap_or((0, Spent::default()));
        let stage = actor / (simulated.spent.len() / p.pp as usize).max(1);
        let mut all = Pass::default();
        for part in 0..p.schedule.parts() {
            for pass in pass_times(job, &self.pieces.mean(p.seq_chunks), StagePart { stage: stage as u64, part }) {
                all = all.plus(pass.times(job.passes()));
            }
        }
        let s = |ns: u64| ns as f64 / 1e9;
        // What is left after rounding to nanoseconds goes to computing, so that all adds up.
        let comm_s = all.tensor_comm + all.context_comm + all.expert_comm;
        let compute = s(spent.work) - all.recompute - comm_s - all.offload - all.waiting;
        let updates = if p.schedule == Schedule::PipeDream { micro } else { 1 };
        let offload = s(ns(self.offload(stage as u64).unwrap_or(0.0)) * updates);
        let time = StepTime {
            compute,
            recompute: all.recompute,
            tensor_comm: all.tensor_comm,
            context_comm: all.context_comm,
            expert_comm: all.expert_comm,
            pipeline_comm: s(spent.transfer),
            bubble: s(spent.bubble),
            data_comm: s(spent.reduce),
            optimizer: s(spent.optimizer) - offload,
            offload: offload + all.offload,
            other: all.waiting + beside_s,
        };
        let device = self.system.chip.device();
        let peak = device.peak_flops(Dtype::Bf16).or_else(|| device.peak_flops(Dtype::Fp16)).unwrap_or(f64::INFINITY);
        let able = peak * p.chips() as f64 * step_s;
        let model_flops = 3.0 * job.forward_flops() * job.batch as f64;
        let again = job.recomputed_flops() * job.batch as f64;
        let bound_s = model_flops / (peak * p.chips() as f64);
        let memory = memory::of_job(job, self.stack.kind);
        let mut notes = self.update_note(stage as u64);
        notes.extend(optimizer_notes(job, self.stack.kind));
        notes.extend(phased::note(self.system, job, self.pieces.streamed));
        notes.extend(self.pieces.swapped.note(job));
        notes.extend(job.stale_note());
        notes.extend(self.stack.beside_note(beside_us));
        let gradients = if self.stack.kind.reduces_on_the_way() {
            "gradients are added up on their way to the memory outside"
        } else if p.shards_passes() && self.stack.sharding.waits {
            "the passes wait for weights that are gathered and gradients that are scattered"
        } else if p.shards_passes() {
            "gradients are scattered beside the backward passes"
        } else {
            "gradients are reduced after the last backward pass"
        };
        notes.push(format!(
            "stack {}: {}; tensor collectives are exposed, {gradients}",
            self.stack.kind.name(),
            if self.stack.blocking { "a sender waits for its transfer" } else { "transfers run beside computing" }
        ));
        if job.density.is_some() {
            notes.push("mfu, hfu and the lower bound count stored elements of sparse matrices; memory leaves out their indices".to_owned());
        }
        TrainingStep {
            step_s,
            time,
            critical: stage,
            mfu: model_flops / able,
            hfu: (model_flops + again) / able,
            memory,
            traffic: self.traffic(comm, reduce, period, &simulated.stream_bytes),
            bound_s,
            simulated,
            notes,
            experts: expert_use(job),
            energy_j: self.energy(step_s),
            slowest: None,
            goodput: None,
        }
    }

    /// Bytes by level of all chips: tensor collectives, transfers, reductions, gathers and scatters.
    fn traffic(&self, comm: &TensorComm, reduce: &[u64], period: &Period, streams: &[u64]) -> Vec<(String, u64)> {
        let (job, p) = (self.job, &self.job.parallel);
        let again = if p.recompute == super::parallel::Recompute::Full { 1.0 } else { 0.0 };
        let attended_again = if p.recompute == super::parallel::Recompute::None { 0.0 } else { 1.0 };
        let passes = 1.0 + comm.backward_ratio + again;
        let layers = (job.architecture.layers * job.passes()) as f64;
        // Tokens go to their experts and come back, in each pass.
        let mixed = job.experts().map_or(0.0, |experts| layers / experts.every as f64) * 2.0 * (2.0 + again);
        let of_level = |list: &[u64], level: usize| list.get(level).copied().unwrap_or(0);
        // Passes that begin with what another stage has sent.
        let turn = u64::from(p.schedule.is_v());
        let received = 2 * (p.pp * p.schedule.parts() - 1 - turn) * job.passes() * u64::from(p.pp > 1);
        let levels = self.network.levels().iter().enumerate();
        levels
            .map(|(at, level)| {
                let tensor = of_level(&comm.by_level, at) as f64 * layers * passes;
                let [forward, backward] = [0, 1].map(|pass| of_level(&comm.context.by_level[pass], at) as f64);
                let exchanged = of_level(&comm.experts.by_level, at) as f64 * mixed;
                let attended = layers * (forward * (1.0 + attended_again) + backward);
                // Of the embedding's output, and of the gradient of what the logits read.
                let ends = job.passes()
                    * (2 * of_level(&comm.single_by_level, at) + of_level(&comm.logits_by_level, at))
                    + received * of_level(&comm.received_by_level, at);
                let sharded = of_level(streams, at);
                let rest = ends + sharded + of_level(reduce, at) + of_level(&period.transfer_bytes, at);
                (level.name.clone(), tensor.round() as u64 + attended.round() as u64 + exchanged.round() as u64 + rest)
            })
            .collect()
    }
}

/// A reduction as the engine takes it: the collectives one after the other.
fn reduction(actors: Vec<usize>, plans: &[Planned], bytes: &mut [u64]) -> Reduction {
    let mut phases = Vec::new();
    for plan in plans {
        phases.extend(sharded::phases_of(plan));
        for (sum, of_level) in bytes.iter_mut().zip(plan.by_level()) {
            *sum += of_level;
        }
    }
    Reduction { actors, phases }
}

#[cfg(test)]
mod tests {
    use super::super::system::Algorithm;
    use super::*;

    #[test]
    fn each_collective_of_a_reduction_has_its_own_rate() {
        let planned = |rate_share: f64, latency_s: f64| Planned {
            phases: vec![super::super::collective::Phase::default()],
            algorithm: Algorithm::Ring,
            protocol: String::new(),
            rate_share,
            latency_s,
            own_copy_s: 0.0,
            seconds: latency_s,
        };
        let both = reduction(vec![0], &[planned(0.5, 1e-6), planned(0.9, 2e-6)], &mut [0]);
        let of: Vec<(u64, f64)> = both.phases.iter().map(|phase| (phase.delay_ns, phase.rate_share)).collect();
        assert_eq!(of, [(1000, 0.5), (2000, 0.9)]);
    }
}
