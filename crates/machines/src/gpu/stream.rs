//! Kernels that only move data past the vector lanes.

use rdusim_graph::arch::Gpu;

use super::time::{KernelTime, Limit};

/// Bytes a thread block moves at a time: 256 threads of 16 bytes (assumed).
const BLOCK_BYTES: f64 = 4096.0;
/// Bytes an SM has under way: 2048 threads of 16 bytes [M CUDA programming guide: threads of an SM].
const UNDER_WAY_BYTES: f64 = 32768.0;

/// A kernel that moves bytes to and from memory and the L2, and does so many vector operations.
pub(super) fn time(gpu: &Gpu, memory_bytes: f64, l2_bytes: f64, vector_operations: f64) -> KernelTime {
    let blocks = (l2_bytes / BLOCK_BYTES).ceil().max(1.0);
    let sms = blocks.min(gpu.sm.count as f64);
    let latency = gpu.latency_cycles();
    let asked = sms * UNDER_WAY_BYTES / latency.max(1.0);
    let memory = memory_bytes / gpu.memory_bytes_per_cycle().min(asked);
    let l2 = l2_bytes / (gpu.l2.bytes_per_cycle as f64).min(asked);
    let compute = vector_operations / (sms * gpu.sm.vector_lanes as f64);
    let mut longest = (memory, Limit::Memory);
    for limit in [(l2, Limit::L2), (compute, Limit::Compute)] {
        if limit.0 > longest.0 {
            longest = limit;
        }
    }
    // The first bytes come, the last ones go.
    let ends = 2.0 * latency;
    let limit = if ends > longest.0 { Limit::Latency } else { longest.1 };
    KernelTime {
        busiest: compute,
        mean: compute,
        sms: sms as u64,
        l2_bytes,
        shape: format!("{} SMs stream", sms as u64),
        ..KernelTime::of(longest.0 + ends, limit)
    }
}
