//! What the engine is given, and what it gives back.

use super::super::network::Demand;
use super::super::schedule::{PassKind, Work};
use super::streams::{ReductionPhase, Stream};

/// What happens in a span of time on an actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SpanKind {
    /// A forward pass.
    Forward,
    /// A backward pass, with what it computes again.
    Backward,
    /// Gradients of weights, where the schedule has passes of their own for them.
    Weights,
    /// Waits for a transfer that is under way.
    Transfer,
    /// Gradients are reduced over the replicas.
    Reduce,
    /// Waits for weights that are gathered from the replicas, or for gradients that are scattered to them.
    Sharded,
    /// The optimiser's step.
    Optimizer,
}

/// A span of time on an actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Actor.
    pub actor: usize,
    /// What it does.
    pub kind: SpanKind,
    /// Start and end, nanoseconds.
    pub time: (u64, u64),
    /// Micro-batch.
    pub micro: u64,
    /// Part of the stage.
    pub part: u64,
}

/// What a pass computes without a pause: all of a part, or, where weights or gradients are divided over the replicas, a
/// layer, the embedding or the logits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Unit {
    /// Nanoseconds.
    pub ns: u64,
    /// The collective of the gathers that must be done before it.
    pub gather: Option<usize>,
    /// The collective of the scatters that follows it.
    pub scatter: Option<usize>,
}

/// Units of each part of a stage, or of a sequence, by kind of pass.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Passes {
    /// Forward passes.
    pub forward: Vec<Vec<Unit>>,
    /// Backward passes.
    pub backward: Vec<Vec<Unit>>,
    /// Passes for gradients of weights; empty unless the schedule has them.
    pub weights: Vec<Vec<Unit>>,
    /// Optimiser's steps of micro-batches; empty unless the schedule has them.
    pub update: Vec<Vec<Unit>>,
    /// Parts of a sequence, of which each has units of its own; of stages of one part.
    pub chunks: u64,
}

impl Passes {
    pub(super) fn units(&self, work: Work) -> &[Unit] {
        let of = match work.pass {
            PassKind::Forward => &self.forward,
            PassKind::Backward => &self.backward,
            PassKind::Weights => &self.weights,
            PassKind::Update => &self.update,
        };
        let at = if self.chunks > 1 { work.micro % self.chunks } else { work.part };
        of.get(at as usize).map_or(&[], Vec::as_slice)
    }
}

/// One actor.
#[derive(Debug, Clone)]
pub struct Actor {
    /// What it does, in order.
    pub order: Vec<Work>,
    /// What its passes take.
    pub passes: Passes,
    /// The streams of its gathers and of its scatters.
    pub gathers: Option<usize>,
    /// See there.
    pub scatters: Option<usize>,
    /// The actors before and after it in the pipeline (both are itself without one), and the demand of a transfer there.
    pub next: (usize, Demand),
    /// See there.
    pub previous: (usize, Demand),
    /// The first stage; its next but one part lies on the last of them.
    pub is_first: bool,
    /// The last stage.
    pub is_last: bool,
    /// Nanoseconds of the optimiser's step.
    pub optimizer_ns: u64,
}

/// A reduction of gradients: it starts when all its actors have done their last backward pass.
#[derive(Debug, Clone)]
pub struct Reduction {
    /// Actors, each once.
    pub actors: Vec<usize>,
    /// Its phases, of one collective after the other.
    pub phases: Vec<ReductionPhase>,
}

/// What is simulated.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Actors, the stages in order.
    pub actors: Vec<Actor>,
    /// Reductions.
    pub reductions: Vec<Reduction>,
    /// Collectives beside computing.
    pub streams: Vec<Stream>,
    /// Units whose weights are gathered ahead of the one that computes.
    pub prefetch: u64,
    /// Nothing is computed beside a collective of a stream, and no two of an actor's streams run at the same time.
    pub waits: bool,
    /// Thousandths of its rate that an actor computes slower while a collective of one of its streams runs.
    pub slowdown_thousandths: u64,
    /// Parts of each stage.
    pub parts: u64,
    /// Nanoseconds of a transfer beside its bytes.
    pub message_ns: u64,
    /// A sender waits for the receiver.
    pub blocking: bool,
    /// The second part of each stage takes the stages in reverse: the last stage has two parts that follow each other.
    pub is_v: bool,
}

/// What an actor did, nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spent {
    /// Forward and backward passes.
    pub work: u64,
    /// Waiting for transfers under way.
    pub transfer: u64,
    /// Waiting for other stages.
    pub bubble: u64,
    /// Reducing gradients, and waiting for what replicas gather and scatter.
    pub reduce: u64,
    /// The optimiser's step.
    pub optimizer: u64,
}

/// The result.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Simulated {
    /// When the last actor has ended.
    pub end: u64,
    /// By actor.
    pub spent: Vec<Spent>,
    /// In the order of their ends.
    pub spans: Vec<Span>,
    /// Bytes of transfers between stages by level.
    pub transfer_bytes: Vec<u64>,
    /// Bytes of collectives beside computing by level.
    pub stream_bytes: Vec<u64>,
}
