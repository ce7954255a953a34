//! Seconds of the passes of a part of the model on one chip, from the chip's own simulation.

use super::memory::waiting_of_one;
use super::on_chips::member;
use super::parallel::{Job, Recompute};
use super::pass::{Moving, Pieces};
use super::swapped::Swapped;
use super::system::{Stack, System};
use super::tensor_comm::TensorComm;
use rdusim_base::diagnostics::Diagnostic;

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
    let chip = member(&system.chip);
    chip.check_layers(&job.model, &job.architecture)?;
    chip.pieces(system, stack, job, comm)
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
    if member(&system.chip).times_single_layers() {
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
