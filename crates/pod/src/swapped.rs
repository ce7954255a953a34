//! Phases of GPUs whose weights lie with the host (Pudipeddi et al., *Training Large Neural Networks with Constant Memory using a New
//! Execution Algorithm*, L2L, 2020): all micro-batches go through some layers before the next come, so that weights come once a pass of
//! a step and not once a micro-batch.
//!
//! While a phase computes, the weights of the next come and the gradients of the one before leave; inputs of its layers go to the host
//! beside its forward pass and come back beside its backward pass, if they lie there. Both directions of the link work at the same time.

use super::parallel::Job;
use super::system::System;
use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::units::ByteSize;

/// What is swapped, bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Swapped {
    /// Bytes a second of the link, each direction; 0 where nothing is swapped.
    pub rate: f64,
    /// Phases of layers.
    pub phases: u64,
    /// Micro-batches that go through each.
    pub micro_batches: f64,
    /// Of the weights of a phase of layers, the embedding and the logits.
    pub weights: [f64; 3],
    /// Bytes of gradients over those of weights.
    pub gradients: f64,
    /// Of the inputs of a phase's layers in a micro-batch, if they go to the host.
    pub kept: f64,
    /// The weights of the next phase come while one computes.
    pub reads_ahead: bool,
}

/// A phase of one direction.
#[derive(Debug, Clone, Copy, Default)]
struct Step {
    /// Seconds of all micro-batches.
    compute: f64,
    /// Bytes of weights that it needs and that are not there; of what comes and goes beside it; of gradients that it leaves.
    weights: f64,
    reads: f64,
    writes: f64,
    gradients: f64,
}

impl Swapped {
    /// What a job swaps, if it runs in phases whose weights lie with the host.
    pub(super) fn new(system: &System, job: &Job) -> Self {
        let p = &job.parallel;
        if !p.tiled.is_phased() || !p.offload.weights {
            return Self::default();
        }
        let [layers, embedding, logits] = phase_parameters(job).map(|count| 2.0 * count as f64);
        let input = 2 * job.tokens() * job.micro_batch * job.architecture.hidden / if p.sp { p.tp } else { 1 };
        Self {
            rate: system.host.link_gb_per_s * 1e9,
            phases: job.architecture.layers / p.tiled.phase_layers,
            micro_batches: job.micro_batches() as f64,
            weights: [layers, embedding, logits],
            gradients: p.gradients.map_or(1.0, |of| of.bytes() as f64 / 2.0),
            kept: if p.offload.activations { (p.tiled.phase_layers * input) as f64 } else { 0.0 },
            reads_ahead: p.prefetch > 0,
        }
    }

    /// The phases of a step in order, and which of them go forward. `passes` are seconds of the forward and the backward pass of a
    /// micro-batch through all layers, the embedding and the logits.
    fn steps(&self, passes: [[f64; 2]; 3]) -> (Vec<Step>, usize) {
        let of = |pass: usize, piece: usize| passes[piece][pass] * self.micro_batches;
        let [layers, embedding, logits] = self.weights;
        let kept = self.kept * self.micro_batches;
        let mut list = vec![Step { compute: of(0, 1), weights: embedding, ..Step::default() }];
        let each = |pass: usize| of(pass, 0) / self.phases as f64;
        let forward = Step { compute: each(0), weights: layers, writes: kept, ..Step::default() };
        list.extend((0..self.phases).map(|_| forward));
        let count = list.len();
        // Forward and backward pass of a micro-batch follow each other.
        let compute = of(0, 2) + of(1, 2);
        list.push(Step { compute, weights: logits, gradients: logits * self.gradients, ..Step::default() });
        let gradients = layers * self.gradients;
        let backward = Step { compute: each(1), weights: layers, reads: kept, writes: 0.0, gradients };
        // The last phase's weights are still there where there is room for two.
        let first = if self.reads_ahead { Step { weights: 0.0, ..backward } } else { backward };
        list.extend((0..self.phases).map(|at| if at == 0 { first } else { backward }));
        // The gradient of a table needs no row of it.
        list.push(Step { compute: of(1, 1), gradients: embedding * self.gradients, ..Step::default() });
        (list, count)
    }

    /// Seconds that a micro-batch waits for the link in its forward and in its backward pass: its share of what all wait.
    pub(super) fn exposed(&self, passes: [[f64; 2]; 3]) -> [f64; 2] {
        let (steps, count) = self.steps(passes);
        let seconds = |bytes: f64| bytes / self.rate;
        let mut waits = [0.0; 2];
        for (at, step) in steps.iter().enumerate() {
            let (comes, goes) = (seconds(step.reads), seconds(step.writes));
            let is_last = at + 1 == steps.len();
            let own = if self.reads_ahead {
                let next = steps.get(at + 1).map_or(0.0, |next| seconds(next.weights));
                let left = at.checked_sub(1).map_or(0.0, |before| seconds(steps[before].gradients));
                let beside = step.compute.max(comes + next).max(goes + left);
                // Nothing computes before the first weights have come, or behind the last pass.
                let ends = if at == 0 { seconds(step.weights) } else { 0.0 };
                beside + ends + if is_last { seconds(step.gradients) } else { 0.0 }
            } else {
                seconds(step.weights) + step.compute.max(comes).max(goes) + seconds(step.gradients)
            };
            waits[usize::from(at >= count)] += own - step.compute;
        }
        waits.map(|wait| wait.max(0.0) / self.micro_batches)
    }

    /// What comes and goes, in a sentence.
    pub(super) fn note(&self, job: &Job) -> Option<String> {
        if self.rate <= 0.0 {
            return None;
        }
        let (steps, _) = self.steps([[0.0; 2]; 3]);
        let sum = |of: fn(&Step) -> f64| ByteSize(steps.iter().map(of).sum::<f64>() as u64);
        Some(format!(
            "{} phases of {} layers, which all {} micro-batches go through: {} of weights and kept inputs come from the host of a chip in \
             the passes of a step, {} of gradients and inputs go there; weights come {}",
            self.phases,
            job.parallel.tiled.phase_layers,
            self.micro_batches,
            sum(|step| step.weights + step.reads),
            sum(|step| step.gradients + step.writes),
            if self.reads_ahead { "while the phase before computes" } else { "before their phase" },
        ))
    }
}

/// Parameters of a phase of layers, the embedding and the logits on a chip.
pub(super) fn phase_parameters(job: &Job) -> [u64; 3] {
    let layers = job.parallel.tiled.phase_layers * job.layer_parameters();
    [layers, job.embedding_parameters(), job.logits_parameters()]
}

/// Parameters of the largest phases that are on a chip at one time.
pub(super) fn resident_parameters(job: &Job, phases: usize) -> u64 {
    let p = &job.parallel;
    let [layers, embedding, logits] = phase_parameters(job);
    let mut units = vec![layers; (job.architecture.layers / p.tiled.phase_layers.max(1)) as usize];
    units.extend([embedding, logits]);
    units.sort_unstable_by(|a, b| b.cmp(a));
    units.iter().take(phases).sum()
}

impl Job {
    /// Refuses phases whose weights do not lie with the host, and what is not modelled in phases on GPUs.
    ///
    /// # Errors
    /// The key, and what to change.
    pub(super) fn check_swapped(&self) -> Result<(), Diagnostic> {
        let p = &self.parallel;
        if !p.tiled.is_phased() {
            return Ok(());
        }
        let wrong = |why: &str, help: &str| {
            Err(Diagnostic::new(format!("schedule={}: {why}", p.schedule_name())).with_help(help))
        };
        if !p.offload.weights {
            return wrong(
                "phases of GPUs swap their weights with the host",
                "give offload=weights, or use schedule=1f1b",
            );
        }
        if self.experts().is_some() || p.seq_chunks > 1 {
            return wrong("experts and seq_chunks are not modelled in phases", "leave them out, or use schedule=1f1b");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two phases, four micro-batches; bytes are seconds.
    fn swapped(reads_ahead: bool) -> Swapped {
        Swapped {
            rate: 1.0,
            phases: 2,
            micro_batches: 4.0,
            weights: [3.0, 1.0, 1.0],
            gradients: 1.0,
            kept: 0.0,
            reads_ahead,
        }
    }

    #[test]
    fn what_the_link_takes_longer_than_a_phase_is_waited_for() {
        // Of all micro-batches: embedding 0, layers 2 x 2 forward and 2 x 4 backward, logits 1.
        let passes = [[1.0, 2.0], [0.0, 0.0], [0.125, 0.125]];
        let check = |of: Swapped, expected: [f64; 2]| {
            let found = of.exposed(passes);
            assert!((0..2).all(|at| (found[at] - expected[at] / 4.0).abs() < 1e-12), "{found:?} {expected:?}");
        };
        // Before their phase: 1 + 3 + 3 forward; 1 and 1 of the logits, 2 x (3 + 3), and 1 of the embedding's gradient.
        check(swapped(false), [7.0, 15.0]);
        // Ahead: 1 and 3 before the first phase, 1 longer beside it, none beside the second, where the logits come; nothing beside the
        // logits; 4 are longer than the 3 that come for the second phase backward; 3 leave beside no computing, and 1 behind it.
        check(swapped(true), [1.0 + 3.0 + 1.0, 3.0 + 1.0]);
        // What lies there of inputs comes and goes beside the phases.
        let kept = Swapped { kept: 1.0, ..swapped(true) };
        check(kept, [1.0 + 3.0 + 2.0 + 2.0, 3.0 + 3.0 + 1.0]);
    }

    #[test]
    fn waiting_is_no_longer_than_the_link_takes_and_no_shorter_than_it_must() {
        for reads_ahead in [false, true] {
            for compute in [0.0, 0.3, 1.0, 5.0] {
                let of = Swapped { kept: 0.5, ..swapped(reads_ahead) };
                let passes = [[compute, 2.0 * compute], [0.1, 0.1], [0.2, 0.4]];
                let (steps, _) = of.steps(passes);
                let computed: f64 = steps.iter().map(|step| step.compute).sum();
                let inward: f64 = steps.iter().map(|step| step.weights + step.reads).sum();
                let outward: f64 = steps.iter().map(|step| step.gradients + step.writes).sum();
                let waits: f64 = of.exposed(passes).iter().sum::<f64>() * of.micro_batches;
                assert!(waits + computed >= inward.max(outward) - 1e-9 && waits <= inward + outward + 1e-9);
            }
        }
    }
}
