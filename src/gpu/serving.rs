//! Calls of an inference stack: attention over a prompt or a cache, and a layer of experts, each as a list of kernels.

use crate::arch::Gpu;
use crate::units::Dtype;

use super::attention::{self, Scores};
use super::experts::{Experts, loads};
use super::gemm::{self, Product};
use super::stream;

/// Vector operations an element that rotates a position into queries and keys.
const ROTARY_OPERATIONS: f64 = 6.0;

/// Attention alone, without the products around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttentionCall {
    /// Data type of queries, keys and values.
    pub dtype: Dtype,
    /// Sequences.
    pub batch: u64,
    /// Tokens of a prompt, or of a sequence's cache.
    pub tokens: u64,
    /// Heads of the queries.
    pub heads: u64,
    /// Heads of keys and values.
    pub kv_heads: u64,
    /// Width of a head.
    pub head_dim: u64,
}

impl AttentionCall {
    fn bytes(&self, tokens: u64, heads: u64) -> f64 {
        (self.batch * tokens * heads * self.head_dim * self.dtype.bytes()) as f64
    }

    /// Causal products over all tokens.
    pub(super) fn prompt_scores(&self) -> Scores {
        Scores {
            instances: self.batch * self.heads,
            queries: self.tokens,
            keys: self.tokens,
            head_dim: self.head_dim,
            causal: true,
        }
    }
}

/// One kernel of a call: its name, and its cycles with ramp and gap.
pub(super) type Part = (&'static str, f64);

fn part(gpu: &Gpu, name: &'static str, cycles: f64) -> Part {
    (name, cycles + gpu.cycles_of_us(gpu.launch.ramp_us + gpu.launch.graph_gap_us))
}

/// Cycles of a call outside its kernels.
fn call(gpu: &Gpu) -> Part {
    ("call", gpu.cycles_of_us(gpu.serving.call_us))
}

/// A prompt: positions are rotated and keys and values written to the cache; then causal flash attention.
pub(super) fn prefill(gpu: &Gpu, of: &AttentionCall, macs_per_cycle: f64) -> Vec<Part> {
    let packed = of.bytes(of.tokens, of.heads + 2 * of.kv_heads);
    let elements = packed / of.dtype.bytes() as f64;
    let rotate = stream::time(gpu, 2.0 * packed, 2.0 * packed, elements * ROTARY_OPERATIONS);
    let moved = packed + of.bytes(of.tokens, of.heads);
    let scores = of.prompt_scores();
    let flash = attention::forward(gpu, &gpu.serving.prefill, &scores, macs_per_cycle, moved);
    vec![call(gpu), part(gpu, "rotary and cache", rotate.cycles), part(gpu, "flash attention", flash.cycles)]
}

/// Several new tokens of each sequence, the last of its cache, as tiles of queries that pass over the keys: flash attention.
pub(super) fn extend(gpu: &Gpu, of: &AttentionCall, new: u64, macs_per_cycle: f64) -> Vec<Part> {
    let moved = 2.0 * of.bytes(of.tokens, of.kv_heads) + 2.0 * of.bytes(new, of.heads);
    let scores = Scores { queries: new, ..of.prompt_scores() };
    let flash = attention::forward(gpu, &gpu.serving.prefill, &scores, macs_per_cycle, moved);
    vec![call(gpu), part(gpu, "flash attention", flash.cycles)]
}

/// New tokens of a sequence, one or a few. A thread block has queries that share a head of keys, or one query where more share a
/// head than the grouped kernel takes; where blocks are fewer than the chip holds, each has a part of the cache.
pub(super) fn decode(gpu: &Gpu, of: &AttentionCall, new: u64) -> Vec<Part> {
    let stack = &gpu.serving;
    let group = of.heads / of.kv_heads;
    let grouped = group > 1 && group <= stack.most_grouped;
    let (blocks, block_us, most_resident) = if grouped {
        (of.batch * of.kv_heads * (group * new).div_ceil(stack.group_tile), stack.group_block_us, stack.groups_per_sm)
    } else {
        (of.batch * of.heads * new, stack.head_block_us, stack.heads_per_sm)
    };
    let parts = (gpu.sm.count * most_resident / blocks).clamp(1, of.tokens.div_ceil(stack.part_keys));
    let resident = (blocks * parts).div_ceil(gpu.sm.count).min(most_resident);
    let of_block = 2.0 * of.bytes(of.tokens, 1) / of.batch as f64;
    let rate = stack.sm_gb_per_s * 1e9 / gpu.clock_hz as f64 / resident as f64;
    let fixed = gpu.cycles_of_us(block_us);
    let each = fixed + of_block / parts as f64 / rate;
    let waves = (blocks * parts).div_ceil(gpu.sm.count * resident) as f64;
    let moved = 2.0 * of.bytes(of.tokens, of.kv_heads) + 2.0 * of.bytes(new, of.heads + of.kv_heads);
    let memory = moved / gpu.memory_bytes_per_cycle() + gpu.latency_cycles();
    let l2 = blocks as f64 * of_block / gpu.l2.bytes_per_cycle as f64 + gpu.latency_cycles();
    let kernel = (waves * each).max(memory.max(l2) + fixed);
    let mut list = vec![call(gpu), part(gpu, "attention over the cache", kernel)];
    if parts > 1 {
        let partial = (blocks * parts * of.head_dim * 4) as f64;
        list.push(part(gpu, "sum of the parts", stream::time(gpu, 0.0, partial, partial / 4.0).cycles));
    }
    list
}

/// A layer of experts: tokens are sorted by expert and gathered, two grouped products with a gated function between them,
/// and the results are added up. The time is that of the busiest device.
pub(super) fn experts(gpu: &Gpu, of: &Experts, macs_per_cycle: f64) -> Vec<Part> {
    let stack = &gpu.serving;
    let draws = loads(of);
    let element = of.dtype.bytes() as f64;
    let inner = (of.inner / of.tensor_parallel).max(1);
    let mut sums = [0.0; 4];
    for rows in &draws {
        let routed: u64 = rows.iter().sum();
        let groups: Vec<u64> = rows.iter().copied().filter(|&rows| rows > 0).collect();
        let bytes = |columns: u64| (routed * columns) as f64 * element;
        let stream = |bytes: f64| stream::time(gpu, bytes, bytes, bytes / element).cycles;
        let product = |n: u64, k: u64| Product {
            count: groups.len() as u64,
            m: groups.iter().copied().max().unwrap_or(1),
            n,
            k,
            element_bytes: of.dtype.bytes(),
            b_element_bytes: of.dtype.bytes() as f64,
            macs_per_cycle: macs_per_cycle * stack.grouped_share,
            a_bytes: bytes(k),
            b_bytes: (groups.len() as u64 * k * n) as f64 * element,
            epilogue_read_bytes: 0.0,
            write_bytes: bytes(n),
            groups: groups.clone(),
        };
        let idle = groups.is_empty();
        let time = |n: u64, k: u64| if idle { 0.0 } else { gemm::fastest(gpu, &product(n, k)).cycles };
        sums[0] += stream(2.0 * bytes(of.hidden));
        sums[1] += time(2 * inner, of.hidden);
        sums[2] += stream(3.0 * bytes(inner)) + time(of.hidden, inner);
        sums[3] += stream(bytes(of.hidden) + (of.tokens * of.hidden) as f64 * element);
    }
    let mean = |sum: f64| sum / draws.len() as f64;
    let mut list = vec![call(gpu)];
    list.extend((0..stack.routing_kernels).map(|_| part(gpu, "routing", 2.0 * gpu.latency_cycles())));
    list.push(part(gpu, "gather", mean(sums[0])));
    list.push(part(gpu, "grouped product, in", mean(sums[1])));
    list.push(part(gpu, "gate", 0.0));
    list.push(part(gpu, "grouped product, out", mean(sums[2])));
    list.push(part(gpu, "sum", mean(sums[3])));
    list
}
