//! What a pod asks of a chip that trains, whatever its kind, and what kinds refuse alike. What a kind does stands beside its passes.

use super::choices::{Gradients, Optimizer};
use super::parallel::Job;
use super::pass::Pieces;
use super::system::{Stack, System};
use super::tensor_comm::TensorComm;
use rdusim_base::diagnostics::Diagnostic;
use rdusim_graph::arch::{AnyChip, Device};
use rdusim_models::model::{Architecture, Position};

/// A chip as a member of a pod that trains: what of a step it does, and how long its part takes.
pub(super) trait Member: Device {
    /// Refuses layers that this kind of chip does not train.
    ///
    /// # Errors
    /// What the layers have that is not modelled.
    fn check_layers(&self, model: &str, architecture: &Architecture) -> Result<(), Diagnostic>;

    /// Refuses keys of `--parallel` before anything is simulated, where a search would try them in vain.
    ///
    /// # Errors
    /// The keys to leave out.
    fn check_keys(&self, _job: &Job) -> Result<(), Diagnostic> {
        Ok(())
    }

    /// Seconds of the passes of a part of the model, from the chip's own simulation.
    ///
    /// # Errors
    /// What is not modelled on this kind of chip, and what its simulation refuses.
    fn pieces(&self, system: &System, stack: &Stack, job: &Job, comm: &TensorComm) -> Result<Pieces, Diagnostic>;

    /// Whether pieces are one layer with its collectives, else all layers of a part without them.
    fn times_single_layers(&self) -> bool {
        false
    }
}

/// The chip as a member of a pod.
pub(super) fn member(chip: &AnyChip) -> &dyn Member {
    match chip {
        AnyChip::Rdu(chip) => &**chip,
        AnyChip::Gpu(gpu) => &**gpu,
        AnyChip::Bsp(bsp) => &**bsp,
        AnyChip::Systolic(systolic) => &**systolic,
        AnyChip::Wafer(wafer) => &**wafer,
    }
}

/// Refuses a training step of layers that a kind of chip does not have.
///
/// # Errors
/// What the layers have that is not modelled.
pub fn check_trained(chip: &AnyChip, model: &str, architecture: &Architecture) -> Result<(), Diagnostic> {
    member(chip).check_layers(model, architecture)
}

/// The error of what graphs of whole layers do not say.
pub(super) fn graphs_lack(chip: &dyn Device, what: &str, help: &str) -> Diagnostic {
    Diagnostic::new(format!("{what}: not modelled on {}, whose passes are graphs of whole layers", chip.name()))
        .with_help(help)
}

/// Refuses norms behind the layers, which chips of tiles alone have.
///
/// # Errors
/// A model with such norms.
pub(super) fn check_norms_in_front(model: &str, architecture: &Architecture) -> Result<(), Diagnostic> {
    if architecture.post_norm {
        let title = format!("{model}: layers with their norms behind them are modelled on chips of tiles only");
        return Err(
            Diagnostic::new(title).with_help("use a pre-norm GPT or Llama model, or a system such as ipu-pod16")
        );
    }
    Ok(())
}

/// Refuses sequences that several chips share.
///
/// # Errors
/// A job with `cp` above 1.
pub(super) fn check_whole_sequences(job: &Job) -> Result<(), Diagnostic> {
    if job.parallel.cp > 1 {
        let title = format!("cp = {}: sequences are shared between GPUs only", job.parallel.cp);
        return Err(Diagnostic::new(title).with_help(TOKENS_ALIKE));
    }
    Ok(())
}

/// Refuses parts of sequences.
///
/// # Errors
/// A job with `seq_chunks` above 1.
pub(super) fn check_sequences_at_once(job: &Job) -> Result<(), Diagnostic> {
    if job.parallel.seq_chunks > 1 {
        let title = format!("seq_chunks = {}: parts of sequences are modelled on GPUs only", job.parallel.seq_chunks);
        return Err(Diagnostic::new(title).with_help(TOKENS_ALIKE));
    }
    Ok(())
}

/// Why graphs have whole sequences.
const TOKENS_ALIKE: &str = "the graph of a section has the tokens of its queries and keys alike";

/// Refuses optimisers, gradients and stashes that GPUs alone have.
///
/// # Errors
/// The keys to leave out.
pub(super) fn check_adam(job: &Job) -> Result<(), Diagnostic> {
    let p = &job.parallel;
    if p.optimizer != Optimizer::Adam || p.gradients.is_some_and(|of| of != Gradients::Bf16) || p.gist {
        let title = "other optimisers than adam, other gradients than bf16, and stash=gist are modelled on GPUs only";
        return Err(Diagnostic::new(title).with_help("leave `optimizer`, `gradients` and `stash` of `--parallel` out"));
    }
    Ok(())
}

/// Refuses stages in halves of layers, and what chips of tiles alone do.
///
/// # Errors
/// The keys to leave out.
pub(super) fn check_no_tiles(job: &Job) -> Result<(), Diagnostic> {
    if job.has_uneven_blocks() {
        let title = "stages of other numbers of attention blocks than of feed-forward blocks are modelled on chips of tiles only";
        return Err(Diagnostic::new(title).with_help("give layers in halves to `--stage-layers`"));
    }
    if job.parallel.tiled.is_chosen() {
        let title = "tp2, io_tiles, memory_share and score_dropout are modelled on chips of tiles only";
        return Err(Diagnostic::new(title).with_help("leave them out of `--parallel`"));
    }
    Ok(())
}

/// Refuses stages that are phases.
///
/// # Errors
/// A phased schedule.
pub(super) fn check_unphased(job: &Job) -> Result<(), Diagnostic> {
    if job.parallel.tiled.is_phased() {
        let title = "schedule=phased:LAYERS is modelled on GPUs and chips of tiles only";
        return Err(Diagnostic::new(title).with_help("use 1f1b or interleaved:PARTS"));
    }
    Ok(())
}

/// Refuses layers that no pass of serving has.
///
/// # Errors
/// A model of other layers, or without an output.
pub fn check_served_layers(model: &str, architecture: &Architecture) -> Result<(), Diagnostic> {
    let a = architecture;
    // Hybrids have no positions where their attention has no rotation.
    let has_distances = a.position == Position::Alibi && a.extras.mamba.is_none();
    if has_distances || a.post_norm || a.parallel || a.embedding_norm || !a.causal || !a.output {
        return Err(Diagnostic::new(format!("{model}: only pre-norm GPT and Llama layers are modelled")));
    }
    Ok(())
}
