//! Seconds of the passes of a part of the model on one chip, from the chip's own simulation, and of the collectives in them.

use super::choices::{Context, Gradients, Optimizer};
use super::collective::{Call, CollectiveKind, plan};
use super::context::ContextComm;
use super::graph::{self, Piece};
use super::kernels;
use super::network::Network;
use super::parallel::{Job, Recompute, Schedule};
use super::pass::{Pass, PieceTime, Pieces};
use super::phased;
use super::system::{Stack, StackKind, System};
use super::tiles;
use crate::arch::{AnyChip, Chip, Gpu};
use crate::compile::{BaseCache, Effort, compile_with, simulate_measured};
use crate::diagnostics::Diagnostic;
use crate::gpu::{KernelCall, kernel_seconds};
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
    /// Seconds of those of the logits' forward pass, where tensor ranks share the columns of the model.
    pub logits: f64,
    /// Their bytes by level.
    pub logits_by_level: Vec<u64>,
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
}

/// The collectives of the tensor groups of the first stage, all at the same time, and of those that share a sequence.
///
/// # Errors
/// No protocol of the stack's library does them.
pub(super) fn tensor_comm(system: &System, stack: &Stack, job: &Job) -> Result<TensorComm, Diagnostic> {
    let p = &job.parallel;
    let context = ContextComm::new(system, job);
    if p.tp < 2 {
        return Ok(TensorComm { context, ..TensorComm::default() });
    }
    if p.tiled.tp2 > 1 {
        let of = phased::two_axes(system, stack, job)?;
        return Ok(TensorComm {
            forward: of.forward.seconds,
            backward: of.backward.seconds,
            single: of.single.seconds,
            single_by_level: of.single.by_level,
            logits: of.logits.seconds,
            logits_by_level: of.logits.by_level,
            launches: 4,
            backward_ratio: of.backward.bytes() / of.forward.bytes().max(1.0),
            by_level: of.forward.by_level,
            received: of.received.seconds,
            received_by_level: of.received.by_level,
            context,
        });
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
            ..TensorComm::default()
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
        AnyChip::Bsp(_) | AnyChip::Rdu(_) | AnyChip::Systolic(_) | AnyChip::Wafer(_) if job.parallel.cp > 1 => {
            let title = format!("cp = {}: sequences are shared between GPUs only", job.parallel.cp);
            Err(Diagnostic::new(title).with_help("the graph of a section has the tokens of its queries and keys alike"))
        }
        AnyChip::Bsp(_) | AnyChip::Rdu(_) | AnyChip::Systolic(_) | AnyChip::Wafer(_)
            if job.parallel.optimizer != Optimizer::Adam || job.parallel.gradients != Gradients::Bf16 =>
        {
            let title = "other optimisers than adam, and other gradients than bf16, are modelled on GPUs only";
            Err(Diagnostic::new(title).with_help("leave `optimizer` and `gradients` of `--parallel` out"))
        }
        AnyChip::Bsp(chip) => tiles::pieces(system, chip, stack, job),
        AnyChip::Gpu(_) | AnyChip::Rdu(_) if job.has_uneven_blocks() => {
            let title = "stages of other numbers of attention blocks than of feed-forward blocks are modelled on chips of tiles only";
            Err(Diagnostic::new(title).with_help("give layers in halves to `--stage-layers`"))
        }
        AnyChip::Gpu(_) | AnyChip::Rdu(_) if job.parallel.tiled.is_chosen() => {
            let title = "tp2, io_tiles, memory_share, score_dropout and schedule=phased:LAYERS are modelled on chips of tiles only";
            Err(Diagnostic::new(title).with_help("leave them out of `--parallel`"))
        }
        AnyChip::Gpu(_) | AnyChip::Rdu(_) if job.architecture.post_norm => {
            let title =
                format!("{}: layers with their norms behind them are modelled on chips of tiles only", job.model);
            Err(Diagnostic::new(title).with_help("use a pre-norm GPT or Llama model, or a system such as ipu-pod16"))
        }
        AnyChip::Gpu(gpu) => on_gpu(gpu, stack, job, comm),
        AnyChip::Rdu(chip) => on_rdu(chip, stack, job),
        chip @ (AnyChip::Systolic(_) | AnyChip::Wafer(_)) => {
            let (name, kind) = (chip.device().name(), chip.device().kind());
            let title = format!("{name} is a chip of kind {kind:?}: systems of such chips are not modelled");
            Err(Diagnostic::new(title).with_help("`run`, `compare`, `explain` and `sweep` take the chip alone"))
        }
    }
}

/// The times of all pieces, from what the chip's simulation gave.
pub(super) fn finished(system: &System, job: &Job, comm: &TensorComm, raw: &Pieces) -> Pieces {
    let (mut of, count) = (*raw, job.layers_of_part());
    of.received = comm.received;
    if matches!(system.chip, AnyChip::Gpu(_)) {
        (of.layers.forward, of.layers.backward) = (raw.layers.forward.times(count), raw.layers.backward.times(count));
        of.layers.weights = raw.layers.weights.times(count);
        return of;
    }
    let again = if job.parallel.recompute == Recompute::Full { comm.forward } else { 0.0 };
    of.layers.forward.tensor_comm = comm.forward * count as f64;
    of.layers.backward.tensor_comm = (comm.backward + again) * count as f64;
    of.embedding.forward.tensor_comm = comm.single;
    of.logits.forward.tensor_comm = comm.logits;
    of.logits.backward.tensor_comm = comm.single;
    of
}

fn on_gpu(gpu: &Gpu, stack: &Stack, job: &Job, comm: &TensorComm) -> Result<Pieces, Diagnostic> {
    if job.density.is_some() {
        return Err(Diagnostic::new("sparse weights are modelled on systems of RDUs only"));
    }
    if job.parallel.cp > 1 && job.parallel.context == Context::Ring && stack.kind != StackKind::Flash {
        let title = format!("keys and values go around fused attention only, which {} has not", stack.kind.name());
        return Err(Diagnostic::new(title).with_help("use `--stack flash`, or context=ulysses"));
    }
    let gap = gpu.launch.gap_us / 1e6;
    let seconds = |calls: &[KernelCall]| -> Result<f64, Diagnostic> {
        let times =
            calls.iter().map(|call| kernel_seconds(gpu, call).map(|seconds| seconds * stack.kernel_factor + gap));
        times.sum()
    };
    let forward_host = |launches: u64| launches as f64 * stack.host_us / 1e6;
    let backward_host = |launches: u64| launches as f64 * stack.backward_host_us / 1e6;
    let layer = kernels::layer(job, stack.kind);
    let forward_s = seconds(&layer.forward)?;
    let attention_s = seconds(&layer.attention)?;
    let exchanged = |is_backward: bool| -> Result<f64, Diagnostic> {
        let step = seconds(&[kernels::attention_step(job, is_backward)])?;
        Ok(comm.context.exposed(is_backward, step))
    };
    let context_comm = [exchanged(false)?, exchanged(true)?];
    let exchanges = [comm.context.launches(false), comm.context.launches(true)];
    let forward =
        Pass { compute: forward_s, tensor_comm: comm.forward, context_comm: context_comm[0], ..Pass::default() };
    let [gathers, scatters] = job.parallel.sharding_launches();
    let launches = layer.forward.len() as u64 + comm.launches + exchanges[0];
    let (again, again_launches) = match job.parallel.recompute {
        Recompute::None => (Pass::default(), 0),
        Recompute::Selective => {
            let again = Pass { recompute: attention_s, context_comm: context_comm[0], ..Pass::default() };
            (again, layer.attention.len() as u64 + exchanges[0])
        }
        Recompute::Full => (Pass { compute: 0.0, recompute: forward_s, ..forward }, launches),
    };
    let forward = forward.launched(forward_host(launches + gathers));
    let again = again.launched(forward_host(again_launches));
    let is_split = job.parallel.schedule == Schedule::ZeroBubble;
    // What a backward pass computes, in how many launches, and its pass for gradients of weights.
    let parts = |passes: &kernels::Passes| -> Result<(f64, u64, Pass), Diagnostic> {
        let (all, launches) = (seconds(&passes.backward)?, passes.backward.len() as u64);
        if !is_split {
            return Ok((all, launches, Pass::default()));
        }
        let (compute, of_weights) = (seconds(&passes.weights)?, passes.weights.len() as u64);
        let weights = Pass { compute, ..Pass::default() }.launched(backward_host(of_weights));
        Ok(((all - compute).max(0.0), launches - of_weights, weights))
    };
    let (compute, launches, weights) = parts(&layer)?;
    let backward = Pass { compute, tensor_comm: comm.backward, context_comm: context_comm[1], ..Pass::default() };
    let launches = launches + comm.launches + exchanges[1] + scatters;
    let backward = again.plus(backward.launched(backward_host(launches)));
    let plain = |passes: &kernels::Passes, forward_comm: f64, backward_comm: f64| -> Result<PieceTime, Diagnostic> {
        let pass = |calls: &[KernelCall], comm: f64, host: f64| -> Result<Pass, Diagnostic> {
            Ok(Pass { compute: seconds(calls)?, tensor_comm: comm, ..Pass::default() }.launched(host))
        };
        let forward = pass(&passes.forward, forward_comm, forward_host(passes.forward.len() as u64))?;
        let (compute, launches, weights) = parts(passes)?;
        let backward = Pass { compute, tensor_comm: backward_comm, ..Pass::default() };
        let backward = backward.launched(backward_host(launches));
        Ok(PieceTime { forward, backward, weights, update: 0.0 })
    };
    Ok(Pieces {
        layers: PieceTime { forward, backward, weights, update: 0.0 },
        embedding: plain(&kernels::embedding(job), comm.single, 0.0)?,
        logits: plain(&kernels::logits(job), 0.0, comm.single)?,
        ..Pieces::default()
    })
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
