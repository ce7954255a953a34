//! Passes of a part of the model on chips whose kernels follow one another: systolic arrays and wafers.
//!
//! A step is one program, so that nothing is started anew. On systolic arrays a stage's layers, embedding and logits are graphs of their
//! own, as on RDUs. A wafer has the whole model as one graph: weights stream in for every pass and gradients leave; the fabric
//! between the memory outside and the wafers copies the former and adds up the latter on the way (Lie, *Cerebras Architecture Deep
//! Dive*, Hot Chips 34), so that replicas share no collectives and see a longer way to the memory.

use super::choices::Offload;
use super::graph::{self, Piece};
use super::on_chips::{Member, check_adam, check_unphased, check_whole_sequences, graphs_lack};
use super::parallel::{Job, Recompute, Schedule};
use super::pass::{PieceTime, Pieces};
use super::system::{Stack, System};
use super::tensor_comm::TensorComm;
use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::mode::Mode;
use rdusim_graph::arch::{Device, Systolic, Wafer};
use rdusim_graph::workload::{Graph, Phase, Workload};
use rdusim_machines::gpu::KernelCost;
use rdusim_machines::{systolic, wafer};
use rdusim_models::model::Architecture;

/// Members that a node of the fabric copies to (Cerebras, `SwarmX`: 1:4).
const FABRIC_FANOUT: u64 = 4;

impl Member for Systolic {
    fn check_layers(&self, _: &str, architecture: &Architecture) -> Result<(), Diagnostic> {
        check_plain_layers(self, architecture)
    }
    fn check_keys(&self, job: &Job) -> Result<(), Diagnostic> {
        check_plain_layers(self, &job.architecture)?;
        check(job, self)
    }
    fn pieces(&self, _: &System, stack: &Stack, job: &Job, _: &TensorComm) -> Result<Pieces, Diagnostic> {
        check_training(job)?;
        on_systolic(self, stack, job)
    }
}

impl Member for Wafer {
    fn check_layers(&self, _: &str, architecture: &Architecture) -> Result<(), Diagnostic> {
        check_plain_layers(self, architecture)?;
        if architecture.extras.patches.is_some() {
            return Err(logits_of_some(self).with_help("name a model of text"));
        }
        Ok(())
    }
    fn check_keys(&self, job: &Job) -> Result<(), Diagnostic> {
        self.check_layers(&job.model, &job.architecture)?;
        check_wafers(self, job)
    }
    fn pieces(&self, system: &System, stack: &Stack, job: &Job, _: &TensorComm) -> Result<Pieces, Diagnostic> {
        check_training(job)?;
        on_wafer(system, self, stack, job)
    }
}

/// Refuses what graphs of whole layers do not train.
fn check_training(job: &Job) -> Result<(), Diagnostic> {
    check_whole_sequences(job)?;
    check_adam(job)?;
    check_unphased(job)
}

/// Refuses layers with experts, and norms behind them.
fn check_plain_layers(chip: &dyn Device, architecture: &Architecture) -> Result<(), Diagnostic> {
    if architecture.extras.experts.is_some() {
        return Err(graphs_lack(chip, "experts", "`rdusim pod dgx-a100` trains them"));
    }
    if architecture.post_norm {
        return Err(graphs_lack(chip, "norms behind the layers", "use a pre-norm GPT or Llama model"));
    }
    Ok(())
}

/// The error of a wafer's graph that has logits of some tokens alone.
fn logits_of_some(chip: &Wafer) -> Diagnostic {
    let name = &chip.name;
    Diagnostic::new(format!(
        "{name} has the whole model as one graph: logits of some tokens alone are not modelled there"
    ))
}

/// Times of all pieces on systolic arrays.
///
/// # Errors
/// What is not modelled on them.
fn on_systolic(chip: &Systolic, stack: &Stack, job: &Job) -> Result<Pieces, Diagnostic> {
    check(job, chip)?;
    // What a stage keeps in memory is counted as on every chip: a piece's graph would count all of its intermediates at once.
    let mut chip = chip.clone();
    chip.memory.iter_mut().for_each(|tier| tier.capacity_bytes = u64::MAX);
    Pieces::each(job, |piece| {
        let workload = workload_of(&graph::workload(job, piece)?)?;
        let outcome = systolic::run(&chip, &workload, &[Mode::Fused])?.remove(0);
        Ok(PieceTime::of_program(job, piece, stack, chip.clock_hz, &outcome))
    })
}

/// Times of the whole model on a wafer.
///
/// # Errors
/// What is not modelled on wafers, and activations that they have no room for.
fn on_wafer(system: &System, chip: &Wafer, stack: &Stack, job: &Job) -> Result<Pieces, Diagnostic> {
    check_wafers(chip, job)?;
    let message_us = system.levels.iter().map(|level| level.message_us).fold(0.0, f64::max);
    let mut chip = chip.clone();
    let way_ns = 1e3 * message_us * levels(job.parallel.replicas()) as f64;
    chip.memory.iter_mut().for_each(|tier| tier.latency_ns += way_ns);
    let workload = workload_of(&graph::whole(job)?)?;
    let outcome = wafer::run(&chip, &workload, &[Mode::Fused])?.remove(0);
    let piece = Piece::Layers(job.layers_of_part());
    let mut layers = PieceTime::of_program(job, piece, stack, chip.clock_hz, &outcome);
    // The optimiser's step is done outside.
    layers.update = KernelCost::default();
    if job.parallel.recompute == Recompute::Full {
        let of_layers =
            outcome.sections.iter().filter(|of| of.phase == Phase::Forward && of.repeat == job.architecture.layers);
        let cycles: u64 = of_layers.map(|section| section.cycles - section.launch_cycles).sum();
        let again = cycles as f64 / chip.clock_hz as f64 * stack.kernel_factor;
        let both = layers.backward.compute + layers.backward.recompute;
        (layers.backward.recompute, layers.backward.compute) = (again.min(both), both - again.min(both));
    }
    Ok(Pieces { layers, ..Pieces::default() })
}

/// Refuses what wafers do not divide.
fn check_wafers(chip: &Wafer, job: &Job) -> Result<(), Diagnostic> {
    check(job, chip)?;
    let p = &job.parallel;
    if job.predicted.is_some() {
        return Err(logits_of_some(chip).with_help("leave `--predicted-tokens` out"));
    }
    if p.tp > 1 || p.pp > 1 || p.zero > 0 || p.schedule.parts() > 1 || p.offload != Offload::default() {
        let title = format!("{} trains data parallel: a wafer has all layers, and no part of the weights", chip.name);
        let help = "leave tp, pp, zero, offload and schedules with parts out of `--parallel`; dp counts wafers";
        return Err(Diagnostic::new(title).with_help(help));
    }
    Ok(())
}

/// Levels of a tree of the fabric with so many wafers.
fn levels(wafers: u64) -> u64 {
    let mut levels = 0;
    let mut reached = 1_u64;
    while reached < wafers {
        reached = reached.saturating_mul(FABRIC_FANOUT);
        levels += 1;
    }
    levels
}

fn workload_of(graph: &Graph) -> Result<Workload, Diagnostic> {
    graph.workload("the part of the model on one chip", 0)
}

/// Refuses what graphs of kernels do not say.
fn check(job: &Job, chip: &dyn Device) -> Result<(), Diagnostic> {
    let p = &job.parallel;
    let refused = [
        (p.schedule.splits_weights(), "zb-h1 and zb-v", "use 1f1b or interleaved:PARTS"),
        (matches!(p.schedule, Schedule::PipeDream | Schedule::PipeDream2Bw), "pipedream", "use 1f1b"),
        (p.seq_chunks > 1, "parts of sequences", "leave seq_chunks out of `--parallel`"),
        (job.has_uneven_blocks(), "stages with halves of layers", "give whole layers to `--stage-layers`"),
        (p.tiled.is_chosen(), "tp2, io_tiles, memory_share and score_dropout", "leave them out of `--parallel`"),
        (p.recompute == Recompute::Selective, "recompute=selective", "use none or full"),
    ];
    match refused.into_iter().find(|(is_so, ..)| *is_so) {
        Some((_, what, help)) => Err(graphs_lack(chip, what, help)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::levels;

    #[test]
    fn a_tree_has_as_many_levels_as_its_nodes_need() {
        assert_eq!([1, 2, 4, 5, 16, 17, 192].map(levels), [0, 1, 1, 2, 2, 3, 4]);
    }
}
