//! The closed-form cost of a plan that the search compares.

use crate::arch::{Chip, TierId};
use crate::index::Id;
use crate::workload::TensorId;

use super::allocate::Candidate;
use super::buffers::{BufferRole, BufferSpec};
use super::nest::{Cadence, LoopOrder, Nest};
use super::section_graph::SectionGraph;

/// What a plan is expected to cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Estimate {
    /// Cycles, launch included.
    pub cycles: u64,
    /// Off-chip bytes read.
    pub read_bytes: u64,
    /// Off-chip bytes written.
    pub write_bytes: u64,
}

/// An off-chip stream of a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stream {
    /// Tensor.
    pub tensor: TensorId,
    /// How often a part of it moves.
    pub cadence: Cadence,
    /// Written off chip (else read).
    pub writes: bool,
    /// Whether the tensor is a weight in this section.
    pub weight: bool,
    /// Bytes of the whole tensor that one pass moves.
    pub tensor_bytes: u64,
    /// Passes over the tensor.
    pub passes: u64,
}

/// The off-chip streams that a list of buffers asks for: one a tensor and cadence, in order of the buffers.
pub fn streams(graph: &SectionGraph<'_>, nest: &Nest, buffers: &[BufferSpec]) -> Vec<Stream> {
    let mut list: Vec<Stream> = Vec::new();
    let workload = graph.workload;
    for buffer in buffers {
        let stream = match buffer.role {
            BufferRole::Operand { stage, tensor } | BufferRole::Home { stage, tensor } => {
                let from_home = matches!(buffer.role, BufferRole::Operand { .. })
                    && buffers.iter().any(|b| b.role == BufferRole::Home { stage, tensor });
                if from_home || graph.producer(tensor).is_some() {
                    continue;
                }
                let cut = nest.chunking.is_some_and(|c| graph.column_axis(tensor) == Some(c.axis));
                let passes = if buffer.cadence == Cadence::Firing && !cut { nest.chunks() } else { 1 };
                let tensor_bytes = workload.tensors[tensor].dense_bytes();
                Stream { tensor, cadence: buffer.cadence, writes: false, weight: false, tensor_bytes, passes }
            }
            BufferRole::Weight { tensor, .. } => {
                let passes = if buffer.cadence == Cadence::BlockChunk { nest.blocks() } else { 1 };
                let tensor_bytes = workload.tensors[tensor].stored_bytes();
                Stream { tensor, cadence: buffer.cadence, writes: false, weight: true, tensor_bytes, passes }
            }
            BufferRole::Store { tensor, .. } => {
                let tensor_bytes = workload.tensors[tensor].dense_bytes();
                Stream { tensor, cadence: buffer.cadence, writes: true, weight: false, tensor_bytes, passes: 1 }
            }
            BufferRole::Partial { .. } => continue,
        };
        if !list.contains(&stream) {
            list.push(stream);
        }
    }
    list
}

/// Cycles to hand a token from stage to stage: skew and drain of an array, and a walk across part of the grid.
/// Deep buffers hide most of it; charging it keeps the search from tokens too small to be worth their hand-over.
fn hand_over_cycles(chip: &Chip) -> f64 {
    let lanes = chip.pcu.lanes.values().max().copied().unwrap_or(1);
    let walk = u64::from(chip.grid.columns + chip.grid.rows) / 4 * chip.network.hop_cycles;
    (lanes + 2 * chip.pcu.stages + walk) as f64
}

/// Costs a plan: compute, memory and what cannot overlap of them.
pub fn estimate(
    chip: &Chip,
    graph: &SectionGraph<'_>,
    nest: &Nest,
    buffers: &[BufferSpec],
    picked: &[Candidate],
    tiers: &[TierId],
) -> Estimate {
    let streams = streams(graph, nest, buffers);
    let mut per_tier = vec![0u64; chip.memory.len()];
    let (mut reads, mut writes, mut weights, mut first_block, mut late_writes) = (0u64, 0u64, 0u64, 0u64, 0u64);
    let cut_outside = nest.chunks() > 1 && nest.order == LoopOrder::ChunkOuter;
    for stream in &streams {
        let bytes = stream.tensor_bytes.saturating_mul(stream.passes);
        let tier = &mut per_tier[tiers[stream.tensor.index()].index()];
        *tier = tier.saturating_add(bytes);
        if stream.writes {
            writes = writes.saturating_add(bytes);
            if cut_outside && stream.cadence == Cadence::Token {
                late_writes += bytes / nest.blocks();
            }
            continue;
        }
        reads = reads.saturating_add(bytes);
        if stream.weight {
            weights = weights.saturating_add(bytes);
        } else if stream.cadence == Cadence::Token {
            first_block += stream.tensor_bytes / nest.blocks();
        }
    }
    let rate = streams.first().map_or(1.0, |s| chip.tier_rate(tiers[s.tensor.index()]).bytes_per_cycle());
    let memory = per_tier
        .iter()
        .enumerate()
        .map(|(t, &bytes)| bytes as f64 / chip.tier_rate(TierId::from_index(t)).bytes_per_cycle())
        .fold(0.0, f64::max);
    let firings = nest.count(Cadence::Firing) as f64;
    let slowest = picked.iter().map(|c| c.cycles).max().unwrap_or(0) as f64 + firings * hand_over_cycles(chip);
    let all: f64 = picked.iter().map(|c| c.cycles as f64).sum();
    let fill = (all - slowest) / firings;
    let firing = slowest / firings;
    let chunk_parts = (nest.blocks() * nest.chunks()) as f64;
    let first_token = (reads - weights) as f64 / nest.tokens() as f64 / rate;
    let weight_chunk = weights as f64 / chunk_parts / rate;
    let mut compute = slowest + fill;
    let mut after_reads = firing;
    match nest.order {
        LoopOrder::ChunkOuter => {
            // The first chunk's compute must cover the loading of a block of activations and of the first weights.
            let opening = first_block as f64 / rate + weight_chunk;
            compute += (opening - slowest / chunk_parts).max(first_token + weight_chunk * 0.1).max(0.0);
            if weights > 0 {
                after_reads = slowest / chunk_parts + fill;
            }
        }
        LoopOrder::TokenOuter => {
            compute += (weights as f64 / rate - slowest / nest.tokens() as f64).max(first_token);
        }
    }
    let tail = after_reads.max(late_writes as f64 / rate);
    let read_time = reads as f64 / rate + tail;
    let cycles = chip.launch_cycles() as f64 + compute.max(memory + firing).max(read_time);
    Estimate { cycles: cycles.min(1e18) as u64, read_bytes: reads, write_bytes: writes }
}
