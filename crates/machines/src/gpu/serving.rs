//! Calls of an inference stack: attention over a prompt or a cache, each as a list of kernels.

use std::fmt::Write as _;

use rdusim_base::units::Dtype;
use rdusim_graph::arch::Gpu;

use super::attention::{self, Scores};
use super::stream;
use super::time::{KernelTime, Limit};

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
    /// Keys before a query that it meets, itself among them; all of them if not given.
    pub window: Option<u64>,
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
            window: self.window,
        }
    }
}

/// One kernel of a call: its name, and its cycles with ramp and gap.
pub(super) type Part = (&'static str, f64);

pub(super) fn part(gpu: &Gpu, name: &'static str, cycles: f64) -> Part {
    (name, cycles + gpu.launch_cycles())
}

/// Cycles of a call outside its kernels.
pub(super) fn call(gpu: &Gpu) -> Part {
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
    let mut list = vec![call(gpu)];
    list.extend((0..gpu.serving.prompt_kernels).map(|_| part(gpu, "offsets", 2.0 * gpu.latency_cycles())));
    list.push(part(gpu, "rotary and cache", rotate.cycles));
    list.push(part(gpu, "flash attention", flash.cycles));
    list
}

/// Attention of new tokens, the last of each sequence, over the keys and values that a cache holds.
#[derive(Debug, Clone, Copy)]
pub(super) struct OverCache {
    /// Multiply-accumulates of an SM a cycle.
    pub(super) macs_per_cycle: f64,
    /// Sequences, each with a cache of its own.
    pub(super) sequences: u64,
    /// New tokens of a sequence.
    pub(super) new: u64,
    /// Tokens of a cache, the new ones among them.
    pub(super) keys: u64,
    /// Heads of the queries.
    pub(super) heads: u64,
    /// Heads of keys and values.
    pub(super) kv_heads: u64,
    /// Width of a head.
    pub(super) head_dim: u64,
    /// Bytes of a key and a value of one head, as the cache stores them.
    pub(super) pair_bytes: f64,
    /// Bytes from and to memory.
    pub(super) moved_bytes: f64,
    /// Keys that the new tokens meet, the last ones of a cache; all of them if not given.
    pub(super) window: Option<u64>,
}

impl OverCache {
    /// A call whose queries, caches and results lie in memory.
    pub(super) fn of(call: &AttentionCall, new: u64, macs_per_cycle: f64) -> Self {
        let met = call.window.map_or(call.tokens, |window| (window + new - 1).min(call.tokens));
        Self {
            macs_per_cycle,
            sequences: call.batch,
            new,
            keys: call.tokens,
            heads: call.heads,
            kv_heads: call.kv_heads,
            head_dim: call.head_dim,
            pair_bytes: 2.0 * (call.head_dim * call.dtype.bytes()) as f64,
            moved_bytes: 2.0 * call.bytes(met, call.kv_heads) + 2.0 * call.bytes(new, call.heads + call.kv_heads),
            window: call.window,
        }
    }

    /// The kernel that a library runs: with one new token that of decoding; with several the faster of that and of tiles of
    /// queries that pass over the keys (flash attention).
    pub(super) fn time(&self, gpu: &Gpu) -> KernelTime {
        let decoded = self.decode(gpu);
        if self.new == 1 {
            return decoded;
        }
        let scores = Scores {
            instances: self.sequences * self.heads,
            queries: self.new,
            keys: self.keys,
            head_dim: self.head_dim,
            causal: true,
            window: self.window,
        };
        let tiled = attention::forward(gpu, &gpu.serving.prefill, &scores, self.macs_per_cycle, self.moved_bytes);
        if tiled.cycles < decoded.cycles { tiled } else { decoded }
    }

    /// Whether the grouped kernel has thread blocks for a quarter of the SMs, with parts of the cache counted; else libraries take the
    /// kernel of single queries [M TensorRT-LLM, `decoderXQARunner`: a factor of 4, and 128 tokens a block at least].
    fn groups_fill(&self, gpu: &Gpu) -> bool {
        let Some(least) = gpu.serving.group_least_keys else { return true };
        let parts = (self.keys / least).max(1).min(gpu.sm.count);
        self.sequences.saturating_mul(self.kv_heads).saturating_mul(parts).saturating_mul(4) >= gpu.sm.count
    }

    /// The kernel of decoding (flash-decoding). A thread block has queries that share a head of keys, or one query where more share
    /// a head than the grouped kernel takes; where blocks are fewer than the chip holds, each has a part of the cache, and
    /// another kernel adds the parts up.
    fn decode(&self, gpu: &Gpu) -> KernelTime {
        let stack = &gpu.serving;
        let group = self.heads / self.kv_heads;
        let grouped = group > 1 && group <= stack.most_grouped && self.groups_fill(gpu);
        let (blocks, block_us, most_resident) = if grouped {
            let blocks = self.sequences * self.kv_heads * (group * self.new).div_ceil(stack.group_tile);
            (blocks, stack.group_block_us, stack.groups_per_sm)
        } else {
            (self.sequences * self.heads * self.new, stack.head_block_us, stack.heads_per_sm)
        };
        let sms = gpu.sm.count;
        let filled = sms * stack.parts_per_sm.unwrap_or(most_resident);
        let parts = (filled / blocks).clamp(1, self.keys.div_ceil(stack.part_keys));
        let resident = (blocks * parts).div_ceil(sms).min(most_resident);
        let met = self.window.map_or(self.keys, |window| (window + self.new - 1).min(self.keys)) as f64;
        let of_block = met * self.pair_bytes;
        let rate = (stack.sm_gb_per_s / resident as f64).min(stack.block_gb_per_s) * 1e9 / gpu.clock_hz as f64;
        let fixed = gpu.cycles_of_us(block_us);
        // Parts outside a window have nothing to read; the longest part has as many of its keys as it can.
        let of_part = self.keys as f64 / parts as f64;
        let read = met.min(of_part);
        let by_keys = if grouped { gpu.cycles_of_us(stack.group_key_ns / 1e3) * read } else { 0.0 };
        // The kernel of single queries begins where the window does.
        let passed_over = if grouped { of_part - read } else { 0.0 };
        let skipped = gpu.cycles_of_us(stack.skipped_key_ns / 1e3) * passed_over;
        let each = fixed + (read * self.pair_bytes / rate).max(by_keys) + skipped;
        let waves = (blocks * parts).div_ceil(sms * resident) as f64;
        let busiest = waves * each;
        let memory = self.moved_bytes / gpu.memory_bytes_per_cycle() + gpu.latency_cycles() + fixed;
        let l2_bytes = blocks as f64 * of_block + self.moved_bytes;
        let l2 = blocks as f64 * of_block / gpu.l2.bytes_per_cycle as f64 + gpu.latency_cycles() + fixed;
        let mut longest = (busiest, Limit::Compute);
        for limit in [(l2, Limit::L2), (memory, Limit::Memory)] {
            if limit.0 > longest.0 {
                longest = limit;
            }
        }
        let mut time = KernelTime::of(longest.0, longest.1);
        time.busiest = busiest;
        time.mean = (blocks * parts) as f64 / (sms * resident) as f64 * each;
        time.sms = (blocks * parts).min(sms);
        time.l2_bytes = l2_bytes;
        time.over_cache = true;
        time.shape = format!("{blocks} thread blocks over a cache");
        if parts > 1 {
            let partial = (blocks * parts * self.head_dim * 4) as f64;
            let sum = stream::time(gpu, 0.0, partial, partial / 4.0);
            time.cycles += sum.cycles + gpu.launch_cycles();
            time.l2_bytes += 2.0 * partial;
            let _ = write!(time.shape, ", each in {parts} parts of the keys");
        }
        time
    }
}

/// New tokens of a sequence, one or a few, over its cache.
pub(super) fn decode(gpu: &Gpu, of: &AttentionCall, new: u64, macs_per_cycle: f64) -> Vec<Part> {
    let time = OverCache::of(of, new, macs_per_cycle).time(gpu);
    vec![call(gpu), part(gpu, "attention over the cache", time.cycles)]
}
