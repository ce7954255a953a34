//! The fused attention kernel: scores of a tile of queries and keys stay in the SM.

use rdusim_graph::arch::{AttentionKernel, Gpu};
use rdusim_graph::workload::GemmForm;

use super::time::{KernelTime, Limit};

/// Products of a tile: scores and their product with the values.
const FORWARD_PRODUCTS: f64 = 2.0;
/// Scores again, and the gradients of values, probabilities, queries and keys.
const BACKWARD_PRODUCTS: f64 = 5.0;

/// The scores of all heads and sequences.
pub(super) struct Scores {
    /// Heads of all sequences.
    pub(super) instances: u64,
    pub(super) queries: u64,
    pub(super) keys: u64,
    pub(super) head_dim: u64,
    pub(super) causal: bool,
    /// Keys before a query that it meets, itself among them; all of them if not given.
    pub(super) window: Option<u64>,
}

impl Scores {
    pub(super) fn of(form: &GemmForm) -> Self {
        Self {
            instances: form.instances * form.heads,
            queries: form.m,
            keys: form.n,
            head_dim: form.k,
            causal: form.causal.is_some(),
            window: None,
        }
    }
}

/// Mean and most steps of a tile of queries that each meet the keys of a window, and the steps that cut off its ends.
fn windowed(of: &Scores, kernel: &AttentionKernel, window: u64) -> (f64, f64) {
    let (queries, keys) = (kernel.tile_queries, kernel.tile_keys);
    let before = of.keys.saturating_sub(of.queries);
    let (mut sum, mut most) = (0, 0);
    let tiles = of.queries.div_ceil(queries);
    for tile in 0..tiles {
        let last = (before + (tile + 1) * queries).min(of.keys);
        let first = (before + tile * queries + 1).saturating_sub(window);
        let steps = last.div_ceil(keys) - first / keys;
        sum += steps;
        most = most.max(steps);
    }
    (sum as f64 / tiles.max(1) as f64 + kernel.window_steps, most as f64 + kernel.window_steps)
}

/// Time of a forward kernel; `moved_bytes` to and from memory.
pub(super) fn forward(
    gpu: &Gpu,
    kernel: &AttentionKernel,
    scores: &Scores,
    macs_per_cycle: f64,
    moved_bytes: f64,
) -> KernelTime {
    time(gpu, kernel, scores, macs_per_cycle, false, moved_bytes, false)
}

/// Time of the kernel, or of its gradient's; `moved_bytes` to and from memory. With `by_head` a thread block has all queries of
/// a head of a sequence, as in `FlashAttention` 1: few heads leave SMs idle.
pub(super) fn time(
    gpu: &Gpu,
    kernel: &AttentionKernel,
    of: &Scores,
    macs_per_cycle: f64,
    by_head: bool,
    moved_bytes: f64,
    gradient: bool,
) -> KernelTime {
    let (queries, keys) = (kernel.tile_queries, kernel.tile_keys);
    let (products, operations) = if gradient {
        (BACKWARD_PRODUCTS, kernel.backward_operations)
    } else {
        (FORWARD_PRODUCTS, kernel.forward_operations)
    };
    let row_tiles = of.queries.div_ceil(queries);
    let all = of.keys.div_ceil(keys) as f64;
    // Tiles beyond the diagonal are skipped: the last tile of queries sees all keys, the first what is before it.
    let (mean_steps, most_steps) = if let Some(window) = of.window.filter(|window| *window < of.keys) {
        windowed(of, kernel, window)
    } else if of.causal {
        let first = (of.keys.saturating_sub(of.queries) + queries).min(of.keys).div_ceil(keys) as f64;
        (f64::midpoint(first, all), all)
    } else {
        (all, all)
    };
    let scores = (queries * keys) as f64;
    let tensor =
        products * scores * of.head_dim as f64 / (macs_per_cycle * kernel.tensor_share) / gpu.gemm.sustained_share;
    let vector = scores * operations / gpu.sm.vector_lanes as f64 + scores / gpu.sm.special_lanes as f64;
    // Tensor cores and vector lanes are busy at once as far as they overlap.
    let hidden = (vector * kernel.overlap_share).min(tensor);
    let step = tensor + vector - hidden;
    let tiles = of.instances * row_tiles;
    let mean = tiles as f64 / gpu.sm.count as f64 * mean_steps * step;
    let sms = if by_head { of.instances } else { tiles }.min(gpu.sm.count);
    // Long and short tiles even out over many of them, but for the last one.
    // A thread block fetches its queries and first keys before its first step, and writes its results after its last.
    let ends = tiles.div_ceil(gpu.sm.count) as f64 * gpu.cycles_of_us(kernel.block_us);
    let longest_block = if by_head {
        of.instances.div_ceil(gpu.sm.count) as f64 * row_tiles as f64 * mean_steps * step
    } else {
        most_steps * step
    };
    let busiest = mean.max(longest_block) + ends + 2.0 * gpu.latency_cycles();
    let step_bytes = 2.0 * (keys * of.head_dim) as f64 * 2.0;
    let l2_bytes = tiles as f64 * mean_steps * step_bytes * products / FORWARD_PRODUCTS + moved_bytes;
    let l2 = l2_bytes / gpu.l2.bytes_per_cycle as f64;
    let memory = moved_bytes / gpu.memory_bytes_per_cycle() + gpu.latency_cycles();
    let compute = if mean < 0.9 * busiest { Limit::Imbalance } else { Limit::Compute };
    let mut longest = (busiest, compute);
    for limit in [(l2, Limit::L2), (memory, Limit::Memory)] {
        if limit.0 > longest.0 {
            longest = limit;
        }
    }
    let shape = format!("{tiles} tiles of {queries} queries, {mean_steps:.1} steps of {keys} keys");
    KernelTime { busiest, mean, sms, l2_bytes, shape, ..KernelTime::of(longest.0, longest.1) }
}
