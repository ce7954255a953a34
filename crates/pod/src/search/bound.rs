//! Lower bounds of a step, and what candidates share: passes, collectives and transfers that are computed once.
//!
//! No stage starts before the first micro-batch has passed the stages before it, works less than all its passes, or ends
//! before its last backward pass has gone back through those stages; then gradients are reduced and the optimiser steps.
//! For equal stages these are the textbook bubbles of `GPipe`, 1F1B and interleaved schedules.

use std::collections::BTreeMap;

use rayon::prelude::*;

use super::super::collective::{Call, CollectiveKind, plan};
use super::super::energy::{pass_joules, static_joules};
use super::super::network::Network;
use super::super::optimizer::{gradient_parts, matrices};
use super::super::parallel::{Job, Recompute, Schedule};
use super::super::pass::{Pass, PieceTime, Pieces};
use super::super::sharded::{end_collectives, ns};
use super::super::stage::{finished, raw_pieces};
use super::super::system::Stack;
use super::super::tensor_comm::{TensorComm, tensor_comm};
use super::super::tiles::least_pieces;
use super::super::training::{hops, update_seconds};
use super::super::unit_calls::{BACKWARD, LAYER, UnitCalls};
use super::space::Search;
use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::units::Dtype;

/// What the passes of a job depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PieceKey {
    shape: (u64, u64, bool),
    recompute: u64,
    launches: [u64; 2],
    ep: u64,
    is_split: bool,
    /// Layers and micro-batches that are compiled into a section of an RDU.
    compiled: (u64, u64),
    /// Replicas, if collectives are in it.
    dp: u64,
    /// What is divided, the schedule and the stages: they decide what waits on a chip of tiles, and what streams.
    of_tiles: Option<([u64; 3], Schedule, u64)>,
}

/// Tensor collectives: tensor ranks, replicas, sequences of a micro-batch, sequence parallelism, chips that share experts.
type CommKey = (u64, u64, u64, bool, u64);
/// Reductions of replicas: tensor ranks, replicas, bytes, kind.
type ReduceKey = (u64, u64, u64, CollectiveKind);
/// Collectives with how often each is done in a step.
type Repeated = Vec<(u64, ReduceKey)>;
/// Transfers: tensor ranks, replicas, stages, micro-batch, sequence parallelism.
type HopKey = (u64, u64, u64, u64, bool);

/// A pass may be rounded down by half a nanosecond, as a whole and in its pieces.
const ROUNDING_NS: u64 = 2;
/// Bounds are lowered by this share, for rounding of sums.
const SLACK: f64 = 1e-6;

/// Bounds, with all that is shared.
pub(super) struct Bounds<'s> {
    search: &'s Search<'s>,
    pieces: BTreeMap<PieceKey, Result<Pieces, String>>,
    comms: BTreeMap<CommKey, Result<TensorComm, String>>,
    reduces: BTreeMap<ReduceKey, f64>,
    hops: BTreeMap<HopKey, Vec<f64>>,
    nothing: TensorComm,
}

/// Times of a candidate that its bound is made of, nanoseconds.
struct Times {
    layers: [u64; 3],
    /// The same in the mean of all parts of a sequence.
    mean: [u64; 3],
    embedding: [u64; 3],
    logits: [u64; 3],
    /// From each stage to the next.
    hops: Vec<u64>,
    /// Reduction of gradients of the first stage, and what gathers and scatters take at least.
    reduce: u64,
    streams: u64,
    /// Gathers and scatters of the layers of a stage for which its passes wait.
    waits: u64,
    /// The optimiser's step on the first and the last stage.
    updates: [u64; 2],
}

impl<'s> Bounds<'s> {
    pub(super) fn new(search: &'s Search<'s>) -> Self {
        Self {
            search,
            pieces: BTreeMap::new(),
            comms: BTreeMap::new(),
            reduces: BTreeMap::new(),
            hops: BTreeMap::new(),
            nothing: TensorComm::default(),
        }
    }

    fn is_gpu(&self) -> bool {
        self.search.system.chip.gpu().is_some()
    }

    /// Whether layers have a time that no stage of tiles goes below.
    fn has_least(&self, job: &Job) -> bool {
        self.search.system.chip.bsp().is_some() && !job.parallel.tiled.is_phased()
    }

    fn piece_key(&self, job: &Job, exposed: bool) -> PieceKey {
        let p = &job.parallel;
        let is_gpu = self.is_gpu();
        let is_least = !exposed && self.has_least(job);
        PieceKey {
            shape: (p.tp, job.micro_batch, p.sp),
            recompute: Recompute::NAMES.iter().position(|(_, kind)| *kind == p.recompute).unwrap_or(0) as u64,
            launches: if is_least { [0, 0] } else { p.sharding_launches() },
            ep: p.experts.ep,
            is_split: p.schedule.splits_weights(),
            compiled: if is_gpu || is_least { (0, 0) } else { (job.layers_of_part(), job.micro_batches()) },
            of_tiles: (self.search.system.chip.bsp().is_some() && !is_least).then(|| (p.sharding(), p.schedule, p.pp)),
            dp: if exposed && is_gpu && p.tp * p.cp * p.experts.ep > 1 { p.replicas() } else { 0 },
        }
    }

    fn comm_key(job: &Job) -> CommKey {
        (
            job.parallel.tp,
            if job.parallel.tp * job.parallel.cp * job.parallel.experts.ep > 1 { job.parallel.replicas() } else { 0 },
            job.micro_batch,
            job.parallel.sp,
            job.parallel.experts.ep,
        )
    }

    fn hop_key(job: &Job) -> HopKey {
        let p = &job.parallel;
        (p.tp, p.replicas(), p.pp, job.micro_batch, p.sp)
    }

    /// Collectives of replicas in a step, with how often each is done: those of streams, and those after the last pass.
    fn reductions(stack: &Stack, job: &Job) -> (Repeated, Repeated) {
        let p = &job.parallel;
        let key = |kind, bytes: u64| (p.tp, p.replicas(), bytes, kind);
        // Of experts, which fewer chips have, nothing is counted.
        let of_stage = |kind| {
            let is_gather = kind == CollectiveKind::AllGather;
            if is_gather { 2 * job.stage_parts(0)[0] } else { gradient_parts(job, 0)[0] }
        };
        let after = end_collectives(stack.kind, p).iter().map(|kind| (1, key(*kind, of_stage(*kind)))).collect();
        let layers = job.passes() * job.layers_of_part() * p.schedule.parts();
        let layer = job.layer_parameters().min(job.expert_layer_parameters()[0]);
        // What stays whole on every replica is not gathered.
        let matrices: u64 = matrices(job).into_iter().map(|(rows, columns)| rows * columns).sum();
        let gathered = if stack.kind.shards_by_parameter() { layer.min(matrices) } else { layer };
        let scattered = job.gradients().bytes() * layer;
        let kinds: &[(u64, CollectiveKind)] = match p.zero {
            _ if !p.shards_passes() => &[],
            2 => &[(1, CollectiveKind::ReduceScatter)],
            _ => &[(1, CollectiveKind::ReduceScatter), (2, CollectiveKind::AllGather)],
        };
        let of = |kind| if kind == CollectiveKind::AllGather { 2 * gathered } else { scattered };
        (kinds.iter().map(|(times, kind)| (times * layers, key(*kind, of(*kind)))).collect(), after)
    }

    /// Computes what these candidates need and is not known yet, on all threads.
    pub(super) fn prepare(&mut self, jobs: &[&Job], exposed: bool) {
        let Search { system, stack, .. } = *self.search;
        if exposed {
            let keys = missing(&self.comms, jobs.iter().map(|job| Self::comm_key(job)));
            let of: Vec<(CommKey, &Job)> = representatives(keys, jobs, Self::comm_key);
            let run = |(key, job): &(CommKey, &Job)| {
                (*key, tensor_comm(system, stack, job).map_err(|error| error.title().to_owned()))
            };
            self.comms.extend(of.par_iter().map(run).collect::<Vec<_>>());

            let keys = missing(&self.hops, jobs.iter().map(|job| Self::hop_key(job)));
            let of = representatives(keys, jobs, Self::hop_key);
            self.hops.extend(of.par_iter().map(|(key, job)| (*key, hops(system, stack, job))).collect::<Vec<_>>());

            let all = jobs.iter().flat_map(|job| {
                let (streams, after) = Self::reductions(self.search.stack, job);
                streams.into_iter().chain(after).map(|(_, key)| key)
            });
            let keys = missing(&self.reduces, all);
            let found: Vec<(ReduceKey, f64)> = keys.par_iter().map(|key| (*key, self.reduced(key))).collect();
            self.reduces.extend(found);
        } else if !self.is_gpu() && !jobs.iter().any(|job| self.has_least(job)) {
            return;
        }
        let keys = missing(&self.pieces, jobs.iter().map(|job| self.piece_key(job, exposed)));
        let of = representatives(keys, jobs, |job| self.piece_key(job, exposed));
        let run = |(key, job): &(PieceKey, &Job)| {
            let told = |error: Diagnostic| error.title().to_owned();
            if let (false, Some(chip)) = (exposed, system.chip.bsp()) {
                return (*key, least_pieces(chip, stack, job).map_err(told));
            }
            let comm = if exposed { self.comm(job) } else { Ok(&self.nothing) };
            (*key, comm.and_then(|comm| raw_pieces(system, stack, job, comm).map_err(told)))
        };
        let found: Vec<(PieceKey, Result<Pieces, String>)> = of.par_iter().map(run).collect();
        self.pieces.extend(found);
    }

    /// Seconds of a collective of replicas on the first stage alone on the links, at their whole rate.
    fn reduced(&self, (tp, dp, bytes, kind): &ReduceKey) -> f64 {
        let (system, library) = (self.search.system, &self.search.stack.library);
        let network = Network::new(system);
        let groups: Vec<Vec<u64>> =
            (0..*tp).map(|rank| (0..*dp).map(|replica| replica * tp + rank).collect()).collect();
        let call = Call { kind: *kind, groups: &groups, bytes: *bytes };
        plan(&network, &system.protocols, library, None, &call).map_or(0.0, |planned| {
            planned.latency_s + planned.phases.iter().map(|phase| network.seconds(&phase.demand)).sum::<f64>()
        })
    }

    fn comm(&self, job: &Job) -> Result<&TensorComm, String> {
        match self.comms.get(&Self::comm_key(job)) {
            Some(known) => known.as_ref().map_err(Clone::clone),
            None => Ok(&self.nothing),
        }
    }

    /// What a simulation of the candidate takes; it must have been prepared.
    pub(super) fn exact(&self, job: &Job) -> Result<(&TensorComm, Pieces), String> {
        let comm = self.comm(job)?;
        let raw = self.pieces.get(&self.piece_key(job, true)).ok_or("its passes are not known")?.clone()?;
        Ok((comm, finished(self.search.system, self.search.stack, job, comm, &raw)))
    }

    /// Nanoseconds of host and chip beside the gathers and scatters of the layers of a stage without experts.
    fn beside(&self, job: &Job) -> u64 {
        let Ok(calls) = UnitCalls::new(self.search.system, self.search.stack, job) else { return 0 };
        let (without, _) = job.mixed_layers();
        let gathers = [LAYER, LAYER + BACKWARD].into_iter().flat_map(|kind| &calls.gathers[kind]);
        let gathers = gathers.filter(|_| job.parallel.zero >= 3);
        let seconds: f64 = gathers.chain(&calls.scatters[LAYER]).map(|call| call.beside_s).sum();
        ns(seconds * (job.passes() * without * job.parallel.schedule.parts()) as f64)
    }

    /// Passes that take as long as their products at the chip's peak.
    fn at_peak(&self, job: &Job) -> Pieces {
        let device = self.search.system.chip.device();
        let peak = device.peak_flops(Dtype::Bf16).or_else(|| device.peak_flops(Dtype::Fp16)).unwrap_or(f64::INFINITY);
        let (a, p) = (&job.architecture, &job.parallel);
        let rows = (job.micro_batch * job.sequence) as f64;
        let per_flop = 1.0 / (peak * p.tp as f64);
        let predicted = (job.micro_batch * job.predicted_tokens()) as f64;
        let logits = 2.0 * predicted * (a.hidden * a.vocabulary) as f64 * per_flop;
        let parts = (p.pp * p.schedule.parts()) as f64;
        let whole = job.forward_flops() * job.micro_batch as f64 * per_flop;
        let forward = (whole - logits) / parts;
        // Products on scores are left out: those of tokens that come later need not be computed.
        let products = forward - 4.0 * rows * (job.sequence * a.hidden * a.layers) as f64 * per_flop / parts;
        let again = if p.recompute == Recompute::Full { products } else { 0.0 };
        let of = |forward: f64, again: f64| {
            let pass = |seconds: f64| Pass { compute: seconds.max(0.0), ..Pass::default() };
            PieceTime { forward: pass(forward), backward: pass(2.0 * forward + again), ..PieceTime::default() }
        };
        Pieces { layers: of(products, again), logits: of(logits, 0.0), ..Pieces::default() }
    }

    /// Passes of the candidate as a level knows them.
    fn pieces_for(&self, job: &Job, exposed: bool) -> Result<Pieces, String> {
        if exposed {
            return Ok(self.exact(job)?.1);
        }
        let has_least = self.has_least(job);
        if !self.is_gpu() && !has_least {
            return Ok(self.at_peak(job));
        }
        let mut raw = self.pieces.get(&self.piece_key(job, false)).ok_or("its passes are not known")?.clone()?;
        if has_least {
            raw.layers = raw.layers.scaled(job.layers_of_part() as f64);
        }
        Ok(finished(self.search.system, self.search.stack, job, &self.nothing, &raw))
    }

    /// No step of the candidate of at least so many seconds takes fewer joules.
    pub(super) fn joules(&self, job: &Job, seconds: f64, exposed: bool) -> f64 {
        let passes = self.pieces_for(job, exposed).map_or(0.0, |pieces| pass_joules(job, &pieces));
        (passes + static_joules(self.search.system, job, seconds)) * (1.0 - SLACK)
    }

    /// No step of the candidate takes fewer seconds.
    pub(super) fn seconds(&self, job: &Job, exposed: bool) -> Result<f64, String> {
        let pieces = self.pieces_for(job, exposed)?;
        let of = |piece: &PieceTime| {
            [piece.forward, piece.backward, piece.weights].map(|pass| ns(pass.seconds()).saturating_sub(ROUNDING_NS))
        };
        let mut times = Times {
            layers: of(&all_layers(&pieces)),
            mean: of(&all_layers(&pieces.mean(job.parallel.seq_chunks))),
            embedding: of(&pieces.embedding),
            logits: of(&pieces.logits),
            hops: vec![0; job.parallel.pp as usize],
            reduce: 0,
            streams: 0,
            waits: 0,
            updates: [0, 0],
        };
        if exposed {
            let sum = |list: &[(u64, ReduceKey)]| -> f64 {
                list.iter().map(|(times, key)| *times as f64 * self.reduces.get(key).copied().unwrap_or(0.0)).sum()
            };
            let (streams, after) = Self::reductions(self.search.stack, job);
            times.reduce = ns(sum(&after));
            // Gathers and scatters are streams of their own, or on the way of the passes.
            if self.search.stack.sharding.waits {
                times.waits = ns(sum(&streams)) + self.beside(job);
            } else {
                times.streams = streams.iter().map(|of| ns(sum(std::slice::from_ref(of)))).max().unwrap_or(0);
            }
            if let Some(known) = self.hops.get(&Self::hop_key(job)) {
                times.hops = known.iter().map(|seconds| ns(*seconds)).collect();
            }
            let search = self.search;
            times.updates = [0, job.parallel.pp - 1]
                .map(|stage| update_seconds(search.system, search.stack, job, &pieces, stage).map_or(0, ns));
        }
        let least = least_ns(job, &times, self.search.stack.blocking);
        Ok(least as f64 / 1e9 * (1.0 - SLACK))
    }
}

/// Layers of a part without and with experts.
fn all_layers(pieces: &Pieces) -> PieceTime {
    pieces.layers.plus(pieces.expert_layers)
}

/// The keys that are not known yet, each once.
fn missing<K: Ord + Clone, V>(known: &BTreeMap<K, V>, keys: impl Iterator<Item = K>) -> Vec<K> {
    let mut list: Vec<K> = keys.filter(|key| !known.contains_key(key)).collect();
    list.sort();
    list.dedup();
    list
}

/// The first of the jobs that has each key.
fn representatives<'j, K: Ord + Copy>(keys: Vec<K>, jobs: &[&'j Job], key: impl Fn(&Job) -> K) -> Vec<(K, &'j Job)> {
    let mut first: BTreeMap<K, &'j Job> = BTreeMap::new();
    for &job in jobs {
        first.entry(key(job)).or_insert(job);
    }
    keys.into_iter().filter_map(|key| first.get(&key).map(|job| (key, *job))).collect()
}

/// Nanoseconds that the first, the second and the last stage need, and so the step.
fn least_ns(job: &Job, times: &Times, blocking: bool) -> u64 {
    let p = &job.parallel;
    let (parts, micro, last) = (p.schedule.parts(), job.passes(), p.pp - 1);
    let hop = |stage: u64| times.hops.get(stage as usize).copied().unwrap_or(0);
    let mut most = times.streams;
    for stage in [0, 1, last].into_iter().filter(|stage| *stage <= last) {
        let mut pass = times.mean.iter().sum::<u64>() * parts;
        if stage == 0 {
            pass += times.embedding.iter().sum::<u64>();
        }
        if job.has_logits(stage) {
            pass += times.logits.iter().sum::<u64>();
        }
        if blocking && p.pp > 1 && !p.schedule.is_v() {
            // To the next stage, and to the one before; around the ends only between parts.
            let to_next = if stage == last { parts - 1 } else { parts };
            let to_previous = if stage == 0 { parts - 1 } else { parts };
            pass += to_next * hop(stage) + to_previous * hop((stage + last) % p.pp);
        }
        let between: u64 = (0..stage).map(hop).sum();
        let fill = stage * times.layers[0] + if stage > 0 { times.embedding[0] } else { 0 } + between;
        // A blocking sender has counted its own transfer.
        let back = if blocking { (0..stage.saturating_sub(1)).map(hop).sum() } else { between };
        let is_whole = parts == 1 && stage > 0;
        let drain = stage * times.layers[1] + if is_whole { times.embedding[1] } else { 0 } + back;
        let own = times.updates[usize::from(stage == last && last > 0)];
        let own = if stage == 0 || stage == last { own } else { 0 };
        let work = micro * pass + times.waits;
        let end = match p.schedule {
            Schedule::Naive | Schedule::GPipe | Schedule::OneForwardOneBackward | Schedule::Interleaved(_) => {
                fill + work + (drain + times.reduce + times.updates[0]).max(own)
            }
            // The last gradients of weights may be computed while earlier stages go on.
            Schedule::ZeroBubble if stage == 0 => work + times.reduce + own,
            Schedule::ZeroBubble => fill + work + own,
            Schedule::ZeroBubbleV | Schedule::PipeDream2Bw => work + own,
            Schedule::PipeDream => micro * (pass + own),
        };
        most = most.max(end);
    }
    most
}
