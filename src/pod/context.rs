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
        let (p, a) = (&job.parallel, &job.architecture);
        if p.cp == 1 {
            return Self::default();
        }
        let network = Network::new(system);
        let head = a.hidden / a.heads;
        let rows = job.micro_batch * job.tokens();
        let bytes = |heads: u64| 2 * rows * head * heads / p.tp;
        let exchange = |demand: &Demand| {
            let message_us = system.levels.iter().zip(&demand.by_level).filter(|(_, bytes)| **bytes > 0);
            message_us.map(|(level, _)| level.message_us / 1e6).fold(0.0, f64::max) + network.seconds(demand)
        };
        let scaled = |demand: &Demand, times: u64| demand.by_level.iter().map(|bytes| bytes * times).collect();
        if p.context == Context::Ring {
            // Keys and values; of a backward pass their gradients too, which go on to where they belong.
            let (forward, backward) =
                (around(&network, p, 2 * bytes(a.kv_heads)), around(&network, p, 4 * bytes(a.kv_heads)));
            return Self {
                each: [exchange(&forward), exchange(&backward)],
                times: [p.cp - 1, p.cp],
                hides: true,
                by_level: [scaled(&forward, p.cp - 1), scaled(&backward, p.cp)],
            };
        }
        // Queries, keys and values to where their heads are, and what comes of them back; gradients the other way round.
        let to = all_to_all(&network, p, bytes(a.heads + 2 * a.kv_heads));
        let back = all_to_all(&network, p, bytes(a.heads));
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

/// The groups of the first stage: chips that have parts of one sequence.
fn groups(p: &Parallel) -> impl Iterator<Item = Vec<u64>> {
    (0..p.dp).flat_map(move |replica| {
        (0..p.tp).map(move |rank| (0..p.cp).map(|part| p.chip(0, replica * p.cp + part, rank)).collect())
    })
}

/// Every chip sends so many bytes to the next of its group.
fn around(network: &Network<'_>, p: &Parallel, bytes: u64) -> Demand {
    let mut demand = Demand::default();
    for group in groups(p) {
        for (at, &from) in group.iter().enumerate() {
            network.flow(&mut demand, (from, group[(at + 1) % group.len()]), bytes);
        }
    }
    demand
}

/// Every chip has so many bytes, and sends an equal part to each other of its group.
fn all_to_all(network: &Network<'_>, p: &Parallel, bytes: u64) -> Demand {
    let mut demand = Demand::default();
    for group in groups(p) {
        for &from in &group {
            for &to in group.iter().filter(|to| **to != from) {
                network.flow(&mut demand, (from, to), bytes.div_ceil(p.cp));
            }
        }
    }
    demand
}
