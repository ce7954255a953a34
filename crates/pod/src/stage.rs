//! Seconds of the passes of a part of the model on one chip, from the chip's own simulation.

use super::choices::{Gradients, Optimizer};
use super::memory::waiting_of_one;
use super::on_chips::check_trained;
use super::on_gpu::on_gpu;
use super::on_kernels::{on_systolic, on_wafer};
use super::on_rdu::on_rdu;
use super::parallel::{Job, Recompute};
use super::pass::{Moving, Pieces};
use super::swapped::Swapped;
use super::system::{Stack, System};
use super::tensor_comm::TensorComm;
use super::tiles;
use rdusim_base::diagnostics::Diagnostic;
use rdusim_graph::arch::AnyChip;

/// Times of all pieces.
///
/// # Errors
/// What the chip's simulation refuses.
pub(super) fn pieces(system: &System, stack: &Stack, job: &Job, comm: &TensorComm) -> Result<Pieces, Diagnostic> {
    raw_pieces(system, stack, job, comm).map(|raw| finished(system, stack, job, comm, &raw))
}

/// What the chip's simulation gives: of a GPU one layer with its collectives, of an RDU all layers of a part without them.
///
/// # Errors
/// What the chip's simulation refuses.
pub(super) fn raw_pieces(system: &System, stack: &Stack, job: &Job, comm: &TensorComm) -> Result<Pieces, Diagnostic> {
    check_trained(&system.chip, &job.model, &job.architecture)?;
    match &system.chip {
        AnyChip::Bsp(_) | AnyChip::Rdu(_) | AnyChip::Systolic(_) | AnyChip::Wafer(_) if job.parallel.cp > 1 => {
            let title = format!("cp = {}: sequences are shared between GPUs only", job.parallel.cp);
            Err(Diagnostic::new(title).with_help("the graph of a section has the tokens of its queries and keys alike"))
        }
        AnyChip::Bsp(_) | AnyChip::Rdu(_) if job.parallel.seq_chunks > 1 => {
            let title =
                format!("seq_chunks = {}: parts of sequences are modelled on GPUs only", job.parallel.seq_chunks);
            Err(Diagnostic::new(title).with_help("the graph of a section has the tokens of its queries and keys alike"))
        }
        AnyChip::Bsp(_) if job.parallel.offload.moves_in_passes() => {
            let title =
                "offload of activations and weights is not modelled on chips of tiles, which stream them themselves";
            Err(Diagnostic::new(title).with_help("use offload=optimizer, or none"))
        }
        AnyChip::Bsp(_) | AnyChip::Rdu(_) | AnyChip::Systolic(_) | AnyChip::Wafer(_)
            if job.parallel.optimizer != Optimizer::Adam
                || job.parallel.gradients.is_some_and(|of| of != Gradients::Bf16)
                || job.parallel.gist =>
        {
            let title =
                "other optimisers than adam, other gradients than bf16, and stash=gist are modelled on GPUs only";
            Err(Diagnostic::new(title).with_help("leave `optimizer`, `gradients` and `stash` of `--parallel` out"))
        }
        AnyChip::Bsp(chip) => tiles::pieces(system, chip, stack, job),
        AnyChip::Gpu(_) | AnyChip::Rdu(_) if job.has_uneven_blocks() => {
            let title = "stages of other numbers of attention blocks than of feed-forward blocks are modelled on chips of tiles only";
            Err(Diagnostic::new(title).with_help("give layers in halves to `--stage-layers`"))
        }
        AnyChip::Gpu(_) | AnyChip::Rdu(_) if job.parallel.tiled.is_chosen() => {
            let title = "tp2, io_tiles, memory_share and score_dropout are modelled on chips of tiles only";
            Err(Diagnostic::new(title).with_help("leave them out of `--parallel`"))
        }
        AnyChip::Rdu(_) | AnyChip::Systolic(_) | AnyChip::Wafer(_) if job.parallel.tiled.is_phased() => {
            let title = "schedule=phased:LAYERS is modelled on GPUs and chips of tiles only";
            Err(Diagnostic::new(title).with_help("use 1f1b or interleaved:PARTS"))
        }
        AnyChip::Gpu(gpu) => {
            job.check_swapped()?;
            on_gpu(gpu, stack, job, comm)
        }
        AnyChip::Rdu(chip) => on_rdu(chip, stack, job),
        AnyChip::Systolic(chip) => on_systolic(chip, stack, job),
        AnyChip::Wafer(chip) => on_wafer(system, chip, stack, job),
    }
}

/// What moves between a chip of the stage that has most and its host in the passes of a part.
fn moving(system: &System, stack: &Stack, job: &Job) -> Moving {
    let offload = job.parallel.offload;
    if !offload.moves_in_passes() || job.parallel.tiled.is_phased() {
        return Moving::default();
    }
    let p = &job.parallel;
    let most = (0..p.pp).map(|stage| job.stage_parameters(stage)).max().unwrap_or(0);
    let weights = 2 * most / p.schedule.parts();
    let bytes = [waiting_of_one(job, stack.kind, 0), weights];
    Moving::new(offload, system.host.link_gb_per_s * 1e9, bytes, p.prefetch > 0)
}

/// The times of all pieces, from what the chip's simulation gave.
pub(super) fn finished(system: &System, stack: &Stack, job: &Job, comm: &TensorComm, raw: &Pieces) -> Pieces {
    let mut of = *raw;
    of.received = comm.received;
    of.moving = moving(system, stack, job);
    of.swapped = Swapped::new(system, job);
    if matches!(system.chip, AnyChip::Gpu(_)) {
        let (without, with) = job.mixed_layers();
        of.layers = raw.layers.scaled(without as f64);
        of.expert_layers = raw.expert_layers.scaled(with as f64);
        of.later = [raw.later[0].scaled(without as f64), raw.later[1].scaled(with as f64)];
        return of;
    }
    let again = if job.parallel.recompute == Recompute::Full { 1.0 } else { 0.0 };
    let (without, with) = job.mixed_layers();
    for (piece, count) in [(&mut of.layers, without), (&mut of.expert_layers, with)] {
        piece.forward.tensor_comm = comm.forward * count as f64;
        piece.backward.tensor_comm = (comm.backward + again * comm.forward) * count as f64;
    }
    if with > 0 {
        let parts = job.parallel.experts.parts;
        let exposed = raw.products.map(|seconds| comm.experts.exposed(parts, seconds / parts as f64) * with as f64);
        of.expert_layers.forward.expert_comm = exposed[0];
        of.expert_layers.backward.expert_comm = exposed[1] + again * exposed[0];
    }
    of.embedding.forward.tensor_comm = comm.single;
    of.logits.forward.tensor_comm = comm.logits;
    of.logits.backward.tensor_comm = comm.single;
    of
}
