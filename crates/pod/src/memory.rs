//! Memory of a chip by kind.

use super::experts::most_rows;
use super::offload::RESIDENT;
use super::optimizer::{left_out_bytes, matrices, state_parts};
use super::parallel::{Job, Recompute, Schedule};
use super::schedule::{StageOf, held};
use super::swapped::resident_parameters;
use super::system::{StackKind, System};

/// Bytes of a chip.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Memory {
    /// Weights, 2 bytes each, divided over the replicas with ZeRO-3.
    pub weights: u64,
    /// Their gradients, 2 bytes each or 4 in fp32, divided over the replicas from ZeRO-2.
    pub gradients: u64,
    /// Master weights and what else the optimiser keeps, 12 bytes a parameter of Adam, divided over the replicas from ZeRO-1; none if they lie with
    /// the host.
    pub optimizer: u64,
    /// What is kept for the backward pass, at the moment of the peak.
    pub activations: u64,
    /// Activations and gradients on their way between stages, a gathered operand, gathered weights, and gradients that
    /// are not scattered yet.
    pub buffers: u64,
    /// Micro-batches, counted in parts of a stage, whose activations are held at the peak.
    pub held: u64,
    /// The stage.
    pub stage: u64,
}

impl Memory {
    /// All of it.
    pub fn peak(&self) -> u64 {
        let state = self.weights + self.gradients + self.optimizer;
        state.saturating_add(self.activations).saturating_add(self.buffers)
    }
}

/// Bytes that a layer keeps of a micro-batch (Korthikanti et al., 2022, table 2): of norms, dropout and the inputs of
/// products; and of scores, their softmax and its dropout.
pub(super) fn layer_bytes(job: &Job, stack: StackKind) -> (u64, u64) {
    let (a, t, columns) = (&job.architecture, job.parallel.tp1(), job.parallel.tiled.tp2);
    let sbh = job.tokens() * job.micro_batch * a.hidden;
    // 34 with a feed-forward block of four times the width: 18 and 4 a unit of its width (Megatron-LM).
    let wide = 4 * job.tokens() * job.micro_batch * a.feed_forward;
    // Of the 18, queries and what the projection reads are 4 bytes an element of the heads.
    let of_heads = 4 * job.tokens() * job.micro_batch * a.query_width();
    let whole = 14 * sbh + of_heads + wide;
    let kept = if job.parallel.sp { whole / t } else { 10 * sbh / columns + (whole - 10 * sbh) / t };
    // Saturates where no memory would do.
    let scores = (5.0 * (job.micro_batch * a.heads / t) as f64 * (job.sequence * job.tokens()) as f64) as u64;
    let scores = if matches!(stack, StackKind::Megatron | StackKind::Popart | StackKind::Xla) { scores } else { 0 };
    if !job.parallel.gist {
        return (kept, scores);
    }
    // Two of the bytes of an element of the stream are masks; of a score two elements of two bytes and a mask.
    let share = ((whole - 2 * sbh) as f64 / 2.0 + 2.0 * sbh as f64 / 8.0) / whole as f64;
    ((kept as f64 * share) as u64, (scores as f64 * (2.0 + 0.125) / 5.0) as u64)
}

/// Whether phases are those of tiles, which stream what they keep.
fn streams_phases(job: &Job, stack: StackKind) -> bool {
    job.parallel.tiled.is_phased() && stack == StackKind::Popart
}

/// Bytes of what enters a layer; between phases on tiles each tensor rank keeps a part.
fn layer_input(job: &Job, stack: StackKind) -> u64 {
    let p = &job.parallel;
    let parts = if p.sp || streams_phases(job, stack) { p.tp } else { p.tiled.tp2 };
    2 * job.tokens() * job.micro_batch * job.architecture.hidden / parts
}

/// Micro-batches whose activations a stage holds at most.
fn held_of(job: &Job, stage: u64) -> u64 {
    let p = &job.parallel;
    if p.tiled.is_phased() {
        return job.micro_batches();
    }
    held(p.schedule, StageOf { stage, stages: p.pp }, job.micro_batches(), p.seq_chunks)
}

/// Memory of a stage at its peak.
pub(super) fn of_stage(job: &Job, stack: StackKind, stage: u64) -> Memory {
    let p = &job.parallel;
    let parts = job.stage_parts(stage);
    let held = held_of(job, stage);
    let streams = streams_phases(job, stack);
    // With the host are those that neither compute nor move.
    let on_chip = if p.offload.activations { held.min(RESIDENT) } else { held };
    let (kept, scores) = layer_bytes(job, stack);
    let sbh = job.tokens() * job.micro_batch * job.architecture.hidden;
    let input = layer_input(job, stack);
    let layers = (job.layers_share(stage) * job.layers_of_part() as f64).ceil() as u64;
    // Beyond what as many layers without experts keep; less where an expert's rows are narrower.
    let (with, more) = (job.mixed_layers().1, expert_bytes(job));
    let beside = if with > 0 { more.max(0) } else { 0 };
    let of_layers = |each: u64| (i128::from(layers.saturating_mul(each)) + i128::from(with) * more).max(0) as u64;
    let mut activations = match p.recompute {
        Recompute::None => on_chip.saturating_mul(of_layers(kept.saturating_add(scores))),
        Recompute::Selective => on_chip.saturating_mul(of_layers(kept)).saturating_add(scores),
        // In phases a micro-batch under way is on the tiles.
        Recompute::Full if streams => (held * layers).saturating_mul(input),
        // With the host: all but those of a phase that compute or move.
        Recompute::Full if p.tiled.is_phased() && p.offload.activations => {
            let one = kept.saturating_add(scores);
            (on_chip * p.tiled.phase_layers).saturating_mul(input).saturating_add(one)
        }
        Recompute::Full => {
            let one = kept.saturating_add(scores).saturating_add(beside as u64);
            (on_chip * layers).saturating_mul(input).saturating_add(one)
        }
    };
    if job.has_logits(stage) && !streams {
        // Logits in 2 bytes and in fp32.
        let logits = (job.predicted_tokens() / p.cp / p.seq_chunks * job.micro_batch)
            .saturating_mul(job.architecture.vocabulary.div_ceil(p.tp1()) * 6);
        activations = activations.saturating_add(logits);
    }
    let between = if p.pp > 1 { 4 * 2 * sbh } else { 0 };
    let [of_state, of_gradients, of_weights] = p.sharding();
    let of_gradient = job.gradient_bytes(stack);
    // Every micro-batch under way keeps the weights of its forward pass.
    let versions = match p.schedule {
        Schedule::PipeDream => held,
        Schedule::PipeDream2Bw => 2,
        _ => 1,
    };
    Memory {
        weights: if p.offload.weights {
            coming_bytes(job)
        } else {
            job.divided(parts.map(|parameters| 2 * parameters * versions), of_weights)
        },
        // In phases those of the one that computes, and of the one whose gradients leave.
        gradients: if p.offload.weights && p.tiled.is_phased() {
            of_gradient * resident_parameters(job, 2)
        } else {
            job.divided(parts.map(|parameters| of_gradient * parameters), of_gradients)
        },
        optimizer: if p.offload.optimizer { 0 } else { job.divided(state_parts(job, stage), of_state) },
        activations,
        buffers: between
            + if p.tp > 1 && !streams { 2 * sbh } else { 0 }
            + whole_units(job, stack, stage)
            + around(job)
            + exchanged_bytes(job)
            + job.chunk_bytes(stage)
            + left_out_bytes(job, stage),
        held,
        stage,
    }
}

/// Bytes that a layer with experts keeps of a micro-batch beyond one without: rows as they came to the experts, what their products
/// read and give, and the router's weights in fp32, in place of what the feed-forward block keeps.
fn expert_bytes(job: &Job) -> i128 {
    let (a, t) = (&job.architecture, job.parallel.tp);
    let Some(experts) = job.experts() else { return 0 };
    let (tokens, rows) = (job.tokens() * job.micro_batch, most_rows(job));
    let block = i128::from(4 * tokens * a.feed_forward / t);
    let of_experts = rows * (4 * a.hidden + 4 * experts.width / t);
    let others = tokens * (4 * experts.shared / t + 4 * experts.count);
    i128::from(of_experts) + i128::from(others) - block
}

/// Bytes of rows that are sent and received while tokens go to their experts, or come back.
fn exchanged_bytes(job: &Job) -> u64 {
    if job.parallel.experts.ep > 1 { 2 * 2 * most_rows(job) * job.architecture.hidden } else { 0 }
}

/// Bytes of keys and values, with their gradients, that come around from other chips while their own are read.
fn around(job: &Job) -> u64 {
    let (a, p) = (&job.architecture, &job.parallel);
    let columns = a.kv_width() / p.tp;
    if p.cp > 1 { 2 * 2 * 4 * job.micro_batch * job.tokens() * columns } else { 0 }
}

/// Bytes of a stage's activations that wait for their backward pass while another micro-batch is computed.
pub(super) fn waiting(job: &Job, stack: StackKind, stage: u64) -> u64 {
    let p = &job.parallel;
    let held = held(p.schedule, StageOf { stage, stages: p.pp }, job.micro_batches(), p.seq_chunks);
    held.saturating_sub(1).saturating_mul(waiting_of_one(job, stack, stage))
}

/// The same of one micro-batch.
pub(super) fn waiting_of_one(job: &Job, stack: StackKind, stage: u64) -> u64 {
    let p = &job.parallel;
    let (kept, scores) = layer_bytes(job, stack);
    let input = layer_input(job, stack);
    let each = match p.recompute {
        Recompute::None => kept.saturating_add(scores),
        Recompute::Selective => kept,
        Recompute::Full => input,
    };
    let layers = (job.layers_share(stage) * job.layers_of_part() as f64).ceil() as u64;
    let with = if p.recompute == Recompute::Full { 0 } else { job.mixed_layers().1 };
    let all = i128::from(layers.saturating_mul(each)) + i128::from(with) * expert_bytes(job);
    all.max(0) as u64
}

/// Bytes of the units that are whole at one time although their stage is divided over the replicas: with ZeRO-3 the
/// weights of the one that computes and of those gathered ahead; from ZeRO-2 the gradients of the one that computes, and
/// of one that is being scattered. Where each parameter is gathered alone they are the weights of two parameters, the gradients of one,
/// and the list that a collective of one takes.
fn whole_units(job: &Job, stack: StackKind, stage: u64) -> u64 {
    let p = &job.parallel;
    if !p.shards_passes() {
        return 0;
    }
    let of_gradient = job.gradient_bytes(stack);
    let mut units = units(job, stage);
    units.sort_unstable_by(|a, b| b.cmp(a));
    if p.zero >= 3 && stack.shards_by_parameter() && job.experts().is_none() {
        let of_layer = matrices(job).into_iter().map(|(rows, columns)| rows * columns);
        let ends = [job.embedding_parameters(), job.logits_parameters()];
        let is_there = [stage == 0, job.has_logits(stage)];
        let ends = ends.into_iter().zip(is_there).filter(|(_, is_there)| *is_there).map(|(count, _)| count);
        let largest = of_layer.chain(ends).max().unwrap_or(0);
        return (2 * 2 + of_gradient + of_gradient.max(2)) * largest;
    }
    let largest = |count: u64| units.iter().take(count as usize).sum::<u64>();
    of_gradient * largest(2) + if p.zero >= 3 { 2 * largest(1 + p.prefetch) } else { 0 }
}

/// Bytes of weights on a chip whose weights lie with the host: the largest units of any stage, as many as compute and come.
fn coming_bytes(job: &Job) -> u64 {
    let p = &job.parallel;
    if p.tiled.is_phased() {
        return 2 * resident_parameters(job, 1 + p.prefetch as usize);
    }
    let of_stage = |stage| {
        let mut units = units(job, stage);
        units.sort_unstable_by(|a, b| b.cmp(a));
        2 * units.iter().take(1 + p.prefetch as usize).sum::<u64>()
    };
    (0..p.pp).map(of_stage).max().unwrap_or(0)
}

/// Parameters of the layers, the embedding and the logits of a stage.
fn units(job: &Job, stage: u64) -> Vec<u64> {
    let p = &job.parallel;
    let (without, with) = job.mixed_layers();
    let mut units = vec![job.layer_parameters(); (without * p.schedule.parts()) as usize];
    let of_experts = job.expert_layer_parameters().iter().sum();
    units.resize(units.len() + (with * p.schedule.parts()) as usize, of_experts);
    if stage == 0 {
        units.push(job.embedding_parameters());
    }
    if job.has_logits(stage) {
        units.push(job.logits_parameters());
    }
    units
}

/// Bytes of the hosts' memory that the chips of one host take.
pub fn of_host(system: &System, job: &Job, stack: StackKind) -> u64 {
    let p = &job.parallel;
    let of_stage = |stage| {
        let state = if p.offload.optimizer { job.divided(state_parts(job, stage), p.sharding()[0]) } else { 0 };
        // Of phases the gradients too.
        let each = if p.tiled.is_phased() { 2 + job.gradient_bytes(stack) } else { 2 };
        let weights = if p.offload.weights { each * job.stage_parameters(stage) } else { 0 };
        let held = held_of(job, stage).saturating_sub(RESIDENT);
        let kept = if p.offload.activations { held.saturating_mul(waiting_of_one(job, stack, stage)) } else { 0 };
        state.saturating_add(weights).saturating_add(kept)
    };
    let most = (0..p.pp).map(of_stage).max().unwrap_or(0);
    let chips = system.levels.first().map_or(1, |level| level.members).min(p.chips());
    most.saturating_mul(chips)
}

/// Memory of the fullest stage.
pub fn of_job(job: &Job, stack: StackKind) -> Memory {
    let stages = (0..job.parallel.pp).map(|stage| of_stage(job, stack, stage));
    stages.max_by_key(Memory::peak).unwrap_or_default()
}
