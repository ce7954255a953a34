//! Memory of a chip by kind, and what would make a step fit.

use super::parallel::{Job, Recompute, Schedule};
use super::schedule::{most_held, order};
use super::system::{StackKind, System};

/// Bytes of a chip.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Memory {
    /// Weights, 2 bytes each.
    pub weights: u64,
    /// Their gradients, 2 bytes each.
    pub gradients: u64,
    /// Master weights and two moments, 12 bytes a parameter, divided over the replicas with ZeRO-1.
    pub optimizer: u64,
    /// What is kept for the backward pass, at the moment of the peak.
    pub activations: u64,
    /// Activations and gradients on their way between stages, and a gathered operand.
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
fn layer_bytes(job: &Job, stack: StackKind) -> (u64, u64) {
    let (a, t) = (&job.architecture, job.parallel.tp);
    let sbh = job.sequence * job.micro_batch * a.hidden;
    // 34 with a feed-forward block of four times the width: 18 and 4 a unit of its width (Megatron-LM).
    let wide = 4 * job.sequence * job.micro_batch * a.feed_forward;
    let whole = 18 * sbh + wide;
    let kept = if job.parallel.sp { whole / t } else { 10 * sbh + (whole - 10 * sbh) / t };
    // Saturates where no memory would do.
    let scores = (5.0 * (job.micro_batch * a.heads / t) as f64 * (job.sequence as f64).powi(2)) as u64;
    (kept, if stack == StackKind::Megatron { scores } else { 0 })
}

/// Memory of a stage at its peak.
pub(super) fn of_stage(job: &Job, stack: StackKind, stage: u64) -> Memory {
    let p = &job.parallel;
    let parameters = job.stage_parameters(stage);
    let held = most_held(&order(p.schedule, (stage, p.pp), job.micro_batches()));
    let (kept, scores) = layer_bytes(job, stack);
    let sbh = job.sequence * job.micro_batch * job.architecture.hidden;
    let input = 2 * sbh / if p.sp { p.tp } else { 1 };
    let layers = job.layers_of_part();
    let mut activations = match p.recompute {
        Recompute::None => (held * layers).saturating_mul(kept.saturating_add(scores)),
        Recompute::Selective => (held * layers).saturating_mul(kept).saturating_add(scores),
        Recompute::Full => (held * layers).saturating_mul(input).saturating_add(kept.saturating_add(scores)),
    };
    if stage + 1 == p.pp {
        // Logits in 2 bytes and in fp32.
        let logits = (job.sequence * job.micro_batch).saturating_mul(job.architecture.vocabulary.div_ceil(p.tp) * 6);
        activations = activations.saturating_add(logits);
    }
    let between = if p.pp > 1 { 4 * 2 * sbh } else { 0 };
    Memory {
        weights: 2 * parameters,
        gradients: 2 * parameters,
        optimizer: (12 * parameters).div_ceil(if p.zero { p.dp } else { 1 }),
        activations,
        buffers: between + if p.tp > 1 { 2 * sbh } else { 0 },
        held,
        stage,
    }
}

/// Memory of the fullest stage.
pub fn of_job(job: &Job, stack: StackKind) -> Memory {
    let stages = (0..job.parallel.pp).map(|stage| of_stage(job, stack, stage));
    stages.max_by_key(Memory::peak).unwrap_or_default()
}

/// Changes that would make a step fit, each on its own, those that cost least first.
pub fn remedies(system: &System, job: &Job, stack: StackKind) -> Vec<String> {
    let p = &job.parallel;
    let capacity = system.chip_memory_bytes();
    let mut list = Vec::new();
    let consider = |list: &mut Vec<String>, what: String, changed: Job| {
        let chips = changed.parallel.chips();
        if changed.check().is_ok() && chips <= system.most_chips() {
            let peak = of_job(&changed, stack).peak();
            if peak <= capacity {
                list.push(format!("{what}: {:.1} GiB", peak as f64 / f64::from(1 << 30)));
            }
        }
    };
    let with = |change: &dyn Fn(&mut Job)| {
        let mut changed = job.clone();
        change(&mut changed);
        changed
    };
    if !p.zero && p.dp > 1 {
        consider(
            &mut list,
            "zero=1 (the optimiser's state over the replicas)".to_owned(),
            with(&|job| job.parallel.zero = true),
        );
    }
    if !p.sp && p.tp > 1 {
        consider(
            &mut list,
            "sp=1 (norms and dropout along the sequence)".to_owned(),
            with(&|job| job.parallel.sp = true),
        );
    }
    if p.schedule == Schedule::GPipe {
        let schedule = Schedule::OneForwardOneBackward;
        consider(
            &mut list,
            "schedule=1f1b (fewer micro-batches held)".to_owned(),
            with(&|job| job.parallel.schedule = schedule),
        );
    }
    for recompute in [Recompute::Selective, Recompute::Full] {
        if p.recompute == Recompute::None || (p.recompute == Recompute::Selective && recompute == Recompute::Full) {
            let what = format!("recompute={} (of activations)", recompute.name());
            consider(&mut list, what, with(&|job| job.parallel.recompute = recompute));
        }
    }
    let mut micro = job.micro_batch / 2;
    while micro >= 1 {
        consider(&mut list, format!("--micro-batch {micro}"), with(&|job| job.micro_batch = micro));
        micro /= 2;
    }
    for factor in [2, 4, 8] {
        consider(
            &mut list,
            format!("pp={} ({factor} times the chips)", p.pp * factor),
            with(&|job| job.parallel.pp *= factor),
        );
        consider(
            &mut list,
            format!("tp={} ({factor} times the chips)", p.tp * factor),
            with(&|job| job.parallel.tp *= factor),
        );
    }
    if list.is_empty() {
        let all = |job: &mut Job| {
            (job.parallel.zero, job.parallel.recompute) = (job.parallel.dp > 1, Recompute::Full);
            (job.micro_batch, job.parallel.sp) = (1, job.parallel.tp > 1);
        };
        consider(&mut list, "zero=1, sp=1, recompute=full and --micro-batch 1 together".to_owned(), with(&all));
        for factor in [2, 4, 8, 16, 32, 64] {
            let more = |job: &mut Job| {
                all(job);
                job.parallel.pp *= factor;
            };
            consider(&mut list, format!("the same with pp={}", p.pp * factor), with(&more));
        }
    }
    list.truncate(6);
    list
}
