//! Seconds of the passes of a part of the model on one chip, from the chip's own simulation, and of the collectives in them.

use super::choices::{Gradients, Optimizer};
use super::collective::{Call, CollectiveKind, plan};
use super::context::ContextComm;
use super::experts::ExpertComm;
use super::graph::{self, Piece};
use super::network::Network;
use super::on_gpu::on_gpu;
use super::parallel::{Job, Recompute, Schedule};
use super::pass::{PieceTime, Pieces};
use super::system::{Stack, StackKind, System};
use super::tiles;
use crate::arch::{AnyChip, Chip};
use crate::compile::{BaseCache, Effort, compile_with, simulate_measured};
use crate::diagnostics::Diagnostic;
use crate::mode::Mode;
use crate::outcome::{Fidelity, StopReason};
use crate::workload::{self, Phase};

/// Collectives of a micro-batch between the chips that share its layers or its tokens.
#[derive(Debug, Clone, Default)]
pub(super) struct TensorComm {
    /// Seconds of those of a layer's forward pass.
    pub forward: f64,
    /// Those of the backward pass, without what is computed again.
    pub backward: f64,
    /// Seconds of one on the whole activation: of embedding and logits.
    pub single: f64,
    /// Bytes by level of one on the whole activation.
    pub single_by_level: Vec<u64>,
    /// How many launches each pass has for them.
    pub launches: u64,
    /// Bytes by level of a forward pass of a layer, all groups of a stage.
    pub by_level: Vec<u64>,
    /// Passes' worth of them in a backward pass, over a forward pass.
    pub backward_ratio: f64,
    /// Seconds of gathering an activation from the parts that the ranks have received.
    pub received: f64,
    /// Its bytes by level.
    pub received_by_level: Vec<u64>,
    /// What chips that share a sequence exchange in a layer.
    pub context: ContextComm,
    /// What chips that share experts exchange in a layer.
    pub experts: ExpertComm,
}

/// The collectives of the tensor groups of the first stage, all at the same time, and of those that share a sequence.
///
/// # Errors
/// No protocol of the stack's library does them.
pub(super) fn tensor_comm(system: &System, stack: &Stack, job: &Job) -> Result<TensorComm, Diagnostic> {
    let p = &job.parallel;
    let (context, experts) = (ContextComm::new(system, job), ExpertComm::new(system, stack, job)?);
    if p.tp < 2 {
        return Ok(TensorComm { context, experts, ..TensorComm::default() });
    }
    let groups: Vec<Vec<u64>> =
        (0..p.replicas()).map(|replica| (0..p.tp).map(|rank| p.chip(0, replica, rank)).collect()).collect();
    let network = Network::new(system);
    let bytes = job.micro_batch * job.tokens() * job.architecture.hidden * 2;
    let run = |kind| plan(&network, &system.protocols, &stack.library, None, &Call { kind, groups: &groups, bytes });
    let all = run(CollectiveKind::AllReduce)?;
    if !p.sp {
        let received = stack.scatter_gather.then(|| run(CollectiveKind::AllGather)).transpose()?;
        let by_level = all.by_level().iter().map(|bytes| 2 * bytes).collect();
        let pass = 2.0 * all.seconds;
        return Ok(TensorComm {
            forward: pass,
            backward: pass,
            single: all.seconds,
            single_by_level: all.by_level(),
            launches: 2,
            by_level,
            backward_ratio: 1.0,
            received: received.as_ref().map_or(0.0, |gather| gather.seconds),
            received_by_level: received.map_or_else(Vec::new, |gather| gather.by_level()),
            context,
            experts,
        });
    }
    let (gather, scatter) = (run(CollectiveKind::AllGather)?, run(CollectiveKind::ReduceScatter)?);
    let by_level: Vec<u64> =
        gather.by_level().iter().zip(scatter.by_level()).map(|(gather, scatter)| 2 * (gather + scatter)).collect();
    let pass = 2.0 * (gather.seconds + scatter.seconds);
    // Inputs of the products are gathered again for the gradients of their weights.
    Ok(TensorComm {
        forward: pass,
        backward: pass + 2.0 * gather.seconds,
        single: all.seconds,
        single_by_level: all.by_level(),
        launches: 4,
        by_level,
        backward_ratio: 1.5,
        context,
        experts,
        ..TensorComm::default()
    })
}

/// Times of all pieces.
///
/// # Errors
/// What the chip's simulation refuses.
pub(super) fn pieces(system: &System, stack: &Stack, job: &Job, comm: &TensorComm) -> Result<Pieces, Diagnostic> {
    raw_pieces(system, stack, job, comm).map(|raw| finished(system, job, comm, &raw))
}

/// What the chip's simulation gives: of a GPU one layer with its collectives, of an RDU all layers of a part without them.
///
/// # Errors
/// What the chip's simulation refuses.
pub(super) fn raw_pieces(system: &System, stack: &Stack, job: &Job, comm: &TensorComm) -> Result<Pieces, Diagnostic> {
    match &system.chip {
        AnyChip::Bsp(_) | AnyChip::Rdu(_) if job.parallel.cp > 1 => {
            let title = format!("cp = {}: sequences are shared between GPUs only", job.parallel.cp);
            Err(Diagnostic::new(title).with_help("the graph of a section has the tokens of its queries and keys alike"))
        }
        AnyChip::Bsp(_) | AnyChip::Rdu(_) if job.experts().is_some() => {
            let title = format!("{} has experts, which are trained on GPUs only", job.model);
            Err(Diagnostic::new(title).with_help("gathering the tokens of an expert has no gradient in a graph"))
        }
        AnyChip::Bsp(_) | AnyChip::Rdu(_)
            if job.parallel.optimizer != Optimizer::Adam || job.parallel.gradients != Gradients::Bf16 =>
        {
            let title = "other optimisers than adam, and other gradients than bf16, are modelled on GPUs only";
            Err(Diagnostic::new(title).with_help("leave `optimizer` and `gradients` of `--parallel` out"))
        }
        AnyChip::Bsp(chip) => tiles::pieces(chip, stack, job),
        AnyChip::Gpu(_) | AnyChip::Rdu(_) if job.architecture.post_norm => {
            let title =
                format!("{}: layers with their norms behind them are modelled on chips of tiles only", job.model);
            Err(Diagnostic::new(title).with_help("use a pre-norm GPT or Llama model, or a system such as ipu-pod16"))
        }
        AnyChip::Gpu(gpu) => on_gpu(gpu, stack, job, comm),
        AnyChip::Rdu(chip) => on_rdu(chip, stack, job),
    }
}

/// The times of all pieces, from what the chip's simulation gave.
pub(super) fn finished(system: &System, job: &Job, comm: &TensorComm, raw: &Pieces) -> Pieces {
    let (mut of, count) = (*raw, job.layers_of_part());
    of.received = comm.received;
    if matches!(system.chip, AnyChip::Gpu(_)) {
        let (without, with) = job.mixed_layers();
        of.layers = raw.layers.scaled(without as f64);
        of.expert_layers = raw.expert_layers.scaled(with as f64);
        return of;
    }
    let again = if job.parallel.recompute == Recompute::Full { comm.forward } else { 0.0 };
    of.layers.forward.tensor_comm = comm.forward * count as f64;
    of.layers.backward.tensor_comm = (comm.backward + again) * count as f64;
    of.embedding.forward.tensor_comm = comm.single;
    of.logits.backward.tensor_comm = comm.single;
    of
}

fn on_rdu(chip: &Chip, stack: &Stack, job: &Job) -> Result<Pieces, Diagnostic> {
    if job.parallel.schedule == Schedule::ZeroBubble {
        let title =
            "schedule zb-h1 has passes for gradients of weights, which the sections of an RDU are not divided into";
        return Err(Diagnostic::new(title).with_help("use 1f1b or interleaved:PARTS"));
    }
    let mode = if stack.kind == StackKind::RduKbk { Mode::Kbk } else { Mode::Fused };
    let run = |piece: Piece| -> Result<PieceTime, Diagnostic> {
        let text = graph::workload(job, piece)?;
        let workload = workload::parse("the part of the model on one chip", &text, &[], 0)?;
        let compiled = compile_with(chip, &workload, &[mode], Effort::Low, &BaseCache::default())?;
        let outcome = simulate_measured(chip, &workload, &compiled[0], Fidelity::Event);
        if outcome.stop != StopReason::Drained {
            return Err(Diagnostic::new(format!("the part of the model on one {} did not end", chip.name)));
        }
        let of = |phase: Phase| -> f64 {
            let sections = outcome.sections.iter().filter(|section| section.phase == phase);
            sections.map(|section| chip.seconds(section.cycles)).sum::<f64>() * stack.kernel_factor
        };
        Ok(PieceTime::of_phases(job, piece, of))
    };
    Pieces::each(job, run)
}
