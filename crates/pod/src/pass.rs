//! What the passes of a part of the model take: seconds by what they are spent on. The parts of a pass add up to it.

use super::choices::Offload;
use super::graph::Piece;
use super::parallel::{Job, Recompute, Schedule};
use super::swapped::Swapped;
use super::system::Stack;
use rdusim_base::diagnostics::Diagnostic;
use rdusim_graph::workload::Phase;
use rdusim_machines::gpu::KernelCost;
use rdusim_outcome::Outcome;

/// Seconds of a pass.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Pass {
    /// Kernels or sections.
    pub compute: f64,
    /// What is computed again.
    pub recompute: f64,
    /// Collectives of the tensor group.
    pub tensor_comm: f64,
    /// What chips that share a sequence exchange and does not hide.
    pub context_comm: f64,
    /// What chips that share experts exchange and does not hide.
    pub expert_comm: f64,
    /// Waiting for activations and weights that move between chip and host.
    pub offload: f64,
    /// Joules of the chip beside its static power.
    pub joules: f64,
    /// Waiting for the host to launch what follows; in phases on chips of tiles, for what comes from off the chip and goes there.
    pub waiting: f64,
}

impl Pass {
    /// Several times over.
    #[must_use]
    pub(super) fn times(self, count: u64) -> Self {
        self.scaled(count as f64)
    }

    /// A share of it, or several.
    #[must_use]
    pub(super) fn scaled(self, n: f64) -> Self {
        Self {
            compute: self.compute * n,
            recompute: self.recompute * n,
            tensor_comm: self.tensor_comm * n,
            context_comm: self.context_comm * n,
            expert_comm: self.expert_comm * n,
            offload: self.offload * n,
            joules: self.joules * n,
            waiting: self.waiting * n,
        }
    }

    /// One after the other.
    #[must_use]
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            compute: self.compute + other.compute,
            recompute: self.recompute + other.recompute,
            tensor_comm: self.tensor_comm + other.tensor_comm,
            context_comm: self.context_comm + other.context_comm,
            expert_comm: self.expert_comm + other.expert_comm,
            offload: self.offload + other.offload,
            joules: self.joules + other.joules,
            waiting: self.waiting + other.waiting,
        }
    }

    /// Seconds on the chip.
    pub(super) fn seconds(&self) -> f64 {
        let comm = self.tensor_comm + self.context_comm + self.expert_comm;
        self.compute + self.recompute + comm + self.offload + self.waiting
    }

    /// The same with what the chip waits for if the host takes `host` seconds to launch it: the host runs ahead where the
    /// chip is slower, and the chip never ends before the host has launched the last kernel.
    #[must_use]
    pub(super) fn launched(self, host: f64) -> Self {
        Self { waiting: (host - self.seconds()).max(0.0), ..self }
    }
}

/// Forward and backward pass of a piece, and the optimiser's step on its weights.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct PieceTime {
    /// Forward.
    pub forward: Pass,
    /// Backward, without the pass for gradients of weights if the schedule has one.
    pub backward: Pass,
    /// The pass for gradients of weights.
    pub weights: Pass,
    /// The optimiser's step, where the chip's simulation has one.
    pub update: KernelCost,
}

/// Times of the pieces that stages are made of.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pieces {
    /// All layers of a part that have no experts.
    pub layers: PieceTime,
    /// All that have some.
    pub expert_layers: PieceTime,
    /// The embedding.
    pub embedding: PieceTime,
    /// The logits and the loss.
    pub logits: PieceTime,
    /// Gathering what the tensor ranks of another stage have each sent a part of.
    pub received: f64,
    /// Share of the layers' time that is attention, where stages have other numbers of those blocks than of feed-forward blocks.
    pub attention: f64,
    /// In phases on chips of tiles: bytes that a chip moves to and from its memory off the chip in all passes of a step, and the most
    /// that a tile holds.
    pub streamed: [f64; 2],
    /// What layers without and with experts take longer in the last part of a sequence than in the first.
    pub later: [PieceTime; 2],
    /// What moves between chip and host.
    pub moving: Moving,
    /// What phases swap with the host.
    pub swapped: Swapped,
    /// Of a layer on GPUs that share its sequences: seconds of attention itself, forward and backward.
    pub core: [f64; 2],
    /// Of a layer: seconds of its experts' products, forward and backward.
    pub products: [f64; 2],
    /// Of all layers of a part on an RDU: the update of experts' weights, which is no part of `expert_layers`.
    pub expert_update: KernelCost,
}

impl PieceTime {
    /// One after the other.
    #[must_use]
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            forward: self.forward.plus(other.forward),
            backward: self.backward.plus(other.backward),
            weights: self.weights.plus(other.weights),
            update: KernelCost {
                seconds: self.update.seconds + other.update.seconds,
                joules: self.update.joules + other.update.joules,
            },
        }
    }

    /// A share of it.
    #[must_use]
    pub(super) fn scaled(self, n: f64) -> Self {
        let [forward, backward, weights] = [self.forward, self.backward, self.weights].map(|pass| pass.scaled(n));
        let update = KernelCost { seconds: self.update.seconds * n, joules: self.update.joules * n };
        Self { forward, backward, weights, update }
    }

    /// From an outcome of one program of such a graph, whose sections start nothing anew.
    pub(super) fn of_program(job: &Job, piece: Piece, stack: &Stack, clock_hz: u64, outcome: &Outcome) -> Self {
        let of = |phase: Phase| -> f64 {
            let sections = outcome.sections.iter().filter(|section| section.phase == phase);
            let cycles: u64 = sections.map(|section| section.cycles - section.launch_cycles).sum();
            cycles as f64 / clock_hz as f64 * stack.kernel_factor
        };
        Self::of_phases(job, piece, of, |phase| dynamic_joules(outcome, phase))
    }

    /// From the seconds of each phase of a graph that holds forward and backward pass and the update of a micro-batch, and its joules
    /// beside static power. Of layers that are computed again the backward sections do that too: as much of them as a forward pass
    /// takes.
    pub(super) fn of_phases(
        job: &Job,
        piece: Piece,
        seconds: impl Fn(Phase) -> f64,
        joules: impl Fn(Phase) -> f64,
    ) -> Self {
        let (forward, backward) = (seconds(Phase::Forward), seconds(Phase::Backward));
        let is_layer = matches!(piece, Piece::Layers(_) | Piece::Routed);
        let is_again = job.parallel.recompute == Recompute::Full && is_layer;
        let again = if is_again { forward.min(backward) } else { 0.0 };
        Self {
            forward: Pass { compute: forward, joules: joules(Phase::Forward), ..Pass::default() },
            backward: Pass {
                compute: backward - again,
                recompute: again,
                joules: joules(Phase::Backward),
                ..Pass::default()
            },
            weights: Pass::default(),
            update: KernelCost {
                seconds: seconds(Phase::Update) * job.micro_batches() as f64,
                joules: joules(Phase::Update) * job.micro_batches() as f64,
            },
        }
    }
}

impl Pieces {
    /// All pieces of a job, each as `run` gives it.
    ///
    /// # Errors
    /// Those of `run`.
    pub(super) fn each(job: &Job, run: impl Fn(Piece) -> Result<PieceTime, Diagnostic>) -> Result<Self, Diagnostic> {
        Ok(Self {
            layers: run(Piece::Layers(job.layers_of_part()))?,
            embedding: run(Piece::Embedding)?,
            logits: run(Piece::Logits)?,
            ..Self::default()
        })
    }
}

/// Bytes of a pass that move: kept activations of a micro-batch of a part, and the weights of a part.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Moving {
    /// Bytes a second of the link, each direction.
    pub rate: f64,
    pub activations: f64,
    pub weights: f64,
    /// Weights of the next layers come while one computes.
    pub reads_ahead: bool,
}

impl Moving {
    pub(super) fn new(offload: Offload, rate: f64, bytes: [u64; 2], reads_ahead: bool) -> Self {
        let of = |is_there: bool, bytes: u64| if is_there { bytes as f64 } else { 0.0 };
        let [activations, weights] = bytes;
        let (activations, weights) = (of(offload.activations, activations), of(offload.weights, weights));
        Self { rate, activations, weights, reads_ahead }
    }

    /// The forward and the backward pass with what they wait for the host's link. `behind` is the pass for gradients of weights.
    pub(super) fn exposed(&self, schedule: Schedule, [forward, backward]: [Pass; 2], behind: f64) -> [Pass; 2] {
        if self.rate <= 0.0 {
            return [forward, backward];
        }
        let seconds = |bytes: f64| bytes / self.rate;
        let with = |pass: Pass, seconds: f64| Pass { offload: seconds.max(0.0), ..pass };
        if matches!(schedule, Schedule::Naive | Schedule::GPipe) {
            let weights = if self.reads_ahead { 0.0 } else { seconds(self.weights) };
            let forward_s = seconds(self.weights.max(self.activations));
            let backward_s = seconds(self.weights + self.activations);
            return [
                with(forward, (forward_s - forward.seconds()).max(weights)),
                with(backward, (backward_s - backward.seconds() - behind).max(weights)),
            ];
        }
        // Weights come no earlier than a few layers ahead: those of a pass beside that pass. Activations go and come beside both.
        let (weights, activations) = (seconds(self.weights), seconds(self.activations));
        let (computes, computes_back) = (forward.seconds(), backward.seconds() + behind);
        let beside = if self.reads_ahead { [computes, computes_back] } else { [0.0, 0.0] };
        let first = (weights - beside[0]).max(0.0);
        let second = (weights - beside[1]).max(0.0);
        let free = computes + computes_back + first + second - 2.0 * weights;
        let inward = second + (activations - free).max(0.0);
        let outward = activations - computes - computes_back - first;
        [with(forward, first), with(backward, inward.max(outward))]
    }
}

/// Joules of the sections of a phase beside static power.
pub(super) fn dynamic_joules(outcome: &Outcome, phase: Phase) -> f64 {
    let sections = outcome.sections.iter().filter(|section| section.phase == phase);
    sections.map(|section| section.energy.total() - section.energy.static_).sum()
}
