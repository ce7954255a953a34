//! Seconds of the passes of a part of the model on an RDU: the sections of its graph, compiled and simulated.
//!
//! Layers without experts are one graph. Of a layer with experts the rows go to other chips in its middle: what is around the experts,
//! their products and what puts rows in order are graphs of their own. Experts' products have as many rows each, in a program that does
//! not change from batch to batch: those of the busiest, in the mean of all draws of how tokens fall.

use super::experts::Rows;
use super::graph::{self, Piece};
use super::on_chips::{
    Member, check_adam, check_no_tiles, check_norms_in_front, check_sequences_at_once, check_unphased,
    check_whole_sequences,
};
use super::parallel::{Job, Recompute};
use super::pass::{PieceTime, Pieces, dynamic_joules};
use super::system::{Stack, StackKind, System};
use super::tensor_comm::TensorComm;
use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::mode::Mode;
use rdusim_compile::compile::{BaseCache, Effort, compile_with, simulate_measured};
use rdusim_graph::arch::Chip;
use rdusim_graph::workload::{Graph, Phase};
use rdusim_machines::gpu::KernelCost;
use rdusim_models::model::{Architecture, Experts};
use rdusim_outcome::{Fidelity, StopReason};

impl Member for Chip {
    fn check_layers(&self, model: &str, architecture: &Architecture) -> Result<(), Diagnostic> {
        check_norms_in_front(model, architecture)
    }
    fn pieces(&self, _: &System, stack: &Stack, job: &Job, _: &TensorComm) -> Result<Pieces, Diagnostic> {
        check_whole_sequences(job)?;
        check_sequences_at_once(job)?;
        check_adam(job)?;
        check_no_tiles(job)?;
        check_unphased(job)?;
        on_rdu(self, stack, job)
    }
}

/// Times of all layers of a part, the embedding and the logits.
///
/// # Errors
/// What is not modelled on RDUs, and what the chip's simulation refuses.
fn on_rdu(chip: &Chip, stack: &Stack, job: &Job) -> Result<Pieces, Diagnostic> {
    if job.parallel.schedule.splits_weights() {
        let title = format!(
            "schedule {} has passes for gradients of weights, which the sections of an RDU are not divided into",
            job.parallel.schedule.name()
        );
        return Err(Diagnostic::new(title).with_help("use 1f1b or interleaved:PARTS"));
    }
    let sections = Sections { chip, stack, job };
    let Some(experts) = job.experts() else { return Pieces::each(job, |piece| sections.piece(piece)) };
    let (without, with) = job.mixed_layers();
    let layers = if without > 0 { sections.piece(Piece::Layers(without))? } else { PieceTime::default() };
    let products = sections.products(&experts)?;
    let routed = sections.piece(Piece::Routed)?.plus(sections.rows(&experts)?);
    Ok(Pieces {
        layers,
        expert_layers: routed.plus(PieceTime { update: KernelCost::default(), ..products }).scaled(with as f64),
        expert_update: products.scaled(with as f64).update,
        embedding: sections.piece(Piece::Embedding)?,
        logits: sections.piece(Piece::Logits)?,
        products: [products.forward.compute, products.backward.compute],
        ..Pieces::default()
    })
}

struct Sections<'a> {
    chip: &'a Chip,
    stack: &'a Stack,
    job: &'a Job,
}

impl Sections<'_> {
    /// Passes of a graph, which has a forward pass, and a backward pass and an update if it trains.
    fn run(&self, piece: Piece, graph: &Graph) -> Result<PieceTime, Diagnostic> {
        let (chip, stack) = (self.chip, self.stack);
        let mode = if stack.kind == StackKind::RduKbk { Mode::Kbk } else { Mode::Fused };
        let workload = graph.workload("the part of the model on one chip", 0)?;
        let compiled = compile_with(chip, &workload, &[mode], Effort::Low, &BaseCache::default())?;
        let outcome = simulate_measured(chip, &workload, &compiled[0], Fidelity::Event);
        if outcome.stop != StopReason::Drained {
            return Err(Diagnostic::new(format!("the part of the model on one {} did not end", chip.name)));
        }
        let of = |phase: Phase| -> f64 {
            let sections = outcome.sections.iter().filter(|section| section.phase == phase);
            sections.map(|section| chip.seconds(section.cycles)).sum::<f64>() * stack.kernel_factor
        };
        let joules = |phase| dynamic_joules(&outcome, phase);
        Ok(PieceTime::of_phases(self.job, piece, of, joules))
    }

    fn piece(&self, piece: Piece) -> Result<PieceTime, Diagnostic> {
        self.run(piece, &graph::workload(self.job, piece)?)
    }

    /// Products of the experts of a layer, in as many parts as are exchanged.
    fn products(&self, experts: &Experts) -> Result<PieceTime, Diagnostic> {
        let parts = self.job.parallel.experts.parts;
        let each = busiest(&Rows::new(self.job)).div_ceil(parts).max(1);
        let part = self.run(Piece::Layers(1), &graph::expert_products(self.job, experts, each))?;
        Ok(PieceTime { update: part.update, ..part.scaled(parts as f64) })
    }

    /// What puts rows in order, forward and backward, and forward again where layers are computed again.
    fn rows(&self, experts: &Experts) -> Result<PieceTime, Diagnostic> {
        let (job, ep) = (self.job, self.job.parallel.experts.ep);
        let rows = Rows::new(job);
        let came = experts.count / ep * busiest(&rows);
        let sent = job.sent_rows();
        let forward = self.run(Piece::Routed, &graph::expert_rows(job, experts, sent, came))?.forward;
        let mut backward = forward;
        if job.parallel.recompute == Recompute::Full {
            backward.recompute = forward.compute;
            backward.joules += forward.joules;
        }
        Ok(PieceTime { forward, backward, ..PieceTime::default() })
    }
}

/// Rows of the busiest expert of the busiest chip, in the mean of all draws.
fn busiest(rows: &Rows) -> u64 {
    let most = rows.draws.iter().map(|rows| rows.iter().copied().max().unwrap_or(0));
    most.sum::<u64>().div_ceil(rows.draws.len().max(1) as u64)
}
