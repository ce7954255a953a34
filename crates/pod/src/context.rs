//! Context parallelism: the tokens of a sequence lie on several chips, which share the work of its attention.
//!
//! - *ring* (Liu et al., *Ring Attention*, 2023): keys and values go around the chips while each works with those it has. Every chip
//!   has an early and a late piece of the sequence, so that all have as much below the diagonal (the zig-zag order): each of as many
//!   steps as there are chips costs as much as causal attention over one chip's tokens. What it sends hides behind a step.
//! - *Ulysses* (Jacobs et al., *`DeepSpeed` Ulysses*, 2023): queries, keys and values are exchanged so that each chip has all tokens
//!   of some heads, and what attention gives is exchanged back. Nothing hides.

use super::choices::Context;
use super::network::{Demand, Network};
use super::parallel::{Job, Parallel};
use super::system::System;

/// What moves in the attention of a layer for a micro-batch, all groups of a stage at the same time.
#[derive(Debug, Clone, Default)]
pub(super) struct ContextComm {
    /// Seconds of each exchange, forward and backward, and how many there are.
    each: [f64; 2],
    times: [u64; 2],
    /// Whether an exchange goes on beside a step of attention.
    hides: bool,
    /// Bytes by level of a forward and of a backward pass.
    pub by_level: [Vec<u64>; 2],
}

impl ContextComm {
    /// What a layer's attention exchanges on the first stage.
    pub(super) fn new(system: &System, job: &Job) -> Self {
        let p = &job.parallel;
        if p.cp == 1 {
            return Self::default();
        }
        let network = Network::new(system);
        let bytes = exchange_bytes(job);
        let exchange = |demand: &Demand| {
            let message_us = system.levels.iter().zip(&demand.by_level).filter(|(_, bytes)| **bytes > 0);
            message_us.map(|(level, _)| level.message_us / 1e6).fold(0.0, f64::max) + network.seconds(demand)
        };
        let scaled = |demand: &Demand, times: u64| demand.by_level.iter().map(|bytes| bytes * times).collect();
        if p.context == Context::Ring {
            let [forward, backward] = bytes.map(|bytes| around(&network, p, bytes));
            return Self {
                each: [exchange(&forward), exchange(&backward)],
                times: [p.cp - 1, p.cp],
                hides: true,
                by_level: [scaled(&forward, p.cp - 1), scaled(&backward, p.cp)],
            };
        }
        let [to, back] = bytes.map(|bytes| all_to_all(&network, p, bytes));
        let both: Vec<u64> = to.by_level.iter().zip(&back.by_level).map(|(to, back)| to + back).collect();
        let seconds = exchange(&to) + exchange(&back);
        Self { each: [seconds; 2], times: [1; 2], hides: false, by_level: [both.clone(), both] }
    }

    /// Seconds of a forward or backward pass of a layer that are not hidden, if a step of its attention takes so many.
    pub(super) fn exposed(&self, is_backward: bool, step: f64) -> f64 {
        let (each, times) = (self.each[usize::from(is_backward)], self.times[usize::from(is_backward)]);
        if !self.hides {
            return each * times as f64;
        }
        // Beside the last step nothing need be sent but, going back, the gradients of the last keys.
        let beside = times.min(self.times[0]);
        (each - step).max(0.0) * beside as f64 + each * (times - beside) as f64
    }

    /// Launches of a pass.
    pub(super) fn launches(&self, is_backward: bool) -> u64 {
        let times = self.times[usize::from(is_backward)];
        if self.hides { times } else { 2 * times }
    }
}

/// Bytes that a chip sends in an exchange of a layer's attention. Of a ring in a forward and in a backward pass: keys and values, and
/// going back their gradients too, which go on to where they belong. Of Ulysses on the way to the heads (queries, keys and values) and
/// back (what comes of them); gradients take the other way round.
pub(super) fn exchange_bytes(job: &Job) -> [u64; 2] {
    let (a, p) = (&job.architecture, &job.parallel);
    let rows = job.micro_batch * job.tokens();
    let bytes = |heads: u64| 2 * rows * a.head() * heads / p.tp;
    match p.context {
        Context::Ring => [2 * bytes(a.kv_heads), 4 * bytes(a.kv_heads)],
        Context::Ulysses => [bytes(a.heads + 2 * a.kv_heads), bytes(a.heads)],
    }
}

/// The groups of a stage: chips that have parts of one sequence.
pub(super) fn groups(p: &Parallel, stage: u64) -> impl Iterator<Item = Vec<u64>> {
    (0..p.dp).flat_map(move |replica| {
        (0..p.tp).map(move |rank| (0..p.cp).map(|part| p.chip(stage, replica * p.cp + part, rank)).collect())
    })
}

/// Every chip sends so many bytes to the next of its group.
fn around(network: &Network<'_>, p: &Parallel, bytes: u64) -> Demand {
    let mut demand = Demand::default();
    for group in groups(p, 0) {
        for (at, &from) in group.iter().enumerate() {
            network.flow(&mut demand, from, group[(at + 1) % group.len()], bytes);
        }
    }
    demand
}

/// Every chip has so many bytes, and sends an equal part to each other of its group.
fn all_to_all(network: &Network<'_>, p: &Parallel, bytes: u64) -> Demand {
    let mut demand = Demand::default();
    for group in groups(p, 0) {
        for &from in &group {
            for &to in group.iter().filter(|to| **to != from) {
                network.flow(&mut demand, from, to, bytes.div_ceil(p.cp));
            }
        }
    }
    demand
}
