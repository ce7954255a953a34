//! Latent attention (DeepSeek-V2, arXiv:2405.04434) as an inference stack runs it: prompts with keys and values of their own for
//! every head, new tokens over a cache of latent vectors that all heads share.

use rdusim_base::diagnostics::Diagnostic;
use rdusim_graph::arch::{AttentionKernel, Gpu, LatentKernels};

use super::attention::{self, Scores};
use super::serving::{Part, part};
use super::stream;

/// Bytes of an element of queries, of keys and values of prompts, and of results.
const ELEMENT: u64 = 2;
/// Rows of an instruction of the tensor cores: fewer queries take as long [M PTX wgmma.m64n256k16].
const LEAST_ROWS: u64 = 64;
/// Keys of the least part of a cache: a tile.
const PART_KEYS: u64 = 64;

/// Widths of latent attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LatentWidths {
    /// Of the latent vector, that values are read from.
    pub latent: u64,
    /// Of a head's rotated part.
    pub rotated: u64,
    /// Of a head without its rotated part.
    pub plain: u64,
    /// Of a head's values.
    pub value: u64,
}

impl LatentWidths {
    /// Those of DeepSeek-V3 [P arXiv:2412.19437].
    pub const DEEPSEEK: Self = Self { latent: 512, rotated: 64, plain: 128, value: 128 };

    /// Elements of a token in the cache.
    fn cached(&self) -> u64 {
        self.latent + self.rotated
    }
}

/// Latent attention without the products around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LatentCall {
    /// Sequences.
    pub batch: u64,
    /// Tokens of a prompt, or of a sequence's cache, the new one among them.
    pub tokens: u64,
    /// Heads of the device.
    pub heads: u64,
    /// Bytes of an element of the cache.
    pub cache_bytes: u64,
    /// Of heads and of the cache.
    pub widths: LatentWidths,
}

/// The chip's constants of latent attention.
fn kernels(gpu: &Gpu) -> Result<LatentKernels, Diagnostic> {
    let kernels = gpu.serving.latent;
    if kernels == LatentKernels::default() {
        return Err(Diagnostic::new(format!("{} has no kernels of latent attention", gpu.name))
            .with_help("the table `[serving.latent]` of its file gives them"));
    }
    Ok(kernels)
}

/// Prompts: heads with a rotated part for scores and without one for values, behind the kernel that rotates queries and keys and fills the cache.
pub(super) fn prefill(gpu: &Gpu, of: &LatentCall, macs_per_cycle: f64) -> Result<Vec<Part>, Diagnostic> {
    let kernels = kernels(gpu)?;
    let rows = of.batch * of.tokens;
    let (scored, value) = (of.widths.plain + of.widths.rotated, of.widths.value);
    let read = rows * of.heads * (2 * scored + value) * ELEMENT;
    let written = rows * of.heads * value * ELEMENT;
    // Rotated parts of queries are read and written, those of keys copied to every head; the latent vectors go to the cache.
    let rotated = rows * of.heads * 3 * of.widths.rotated * ELEMENT;
    let packed = (rotated + rows * of.widths.cached() * (ELEMENT + of.cache_bytes)) as f64;
    let rotate = stream::time(gpu, packed, packed, packed / ELEMENT as f64);
    let scores = Scores {
        instances: of.batch * of.heads,
        queries: of.tokens,
        keys: of.tokens,
        // Scores and their product with the values have other depths: the mean of both.
        head_dim: u64::midpoint(scored, value),
        causal: true,
        window: None,
    };
    let rate = macs_per_cycle * kernels.prompt_share;
    // `prompt_share` is this kernel's own share of the rate.
    let kernel = AttentionKernel { tensor_share: 1.0, ..gpu.serving.prefill };
    let flash = attention::forward(gpu, &kernel, &scores, rate, (read + written) as f64);
    Ok(vec![
        ("call", gpu.cycles_of_us(kernels.prompt_call_us)),
        part(gpu, "rotary and cache", rotate.cycles),
        part(gpu, "latent attention", flash.cycles),
    ])
}

/// A new token of each sequence: a thread block has heads of a sequence, which share each latent vector as key and as value; where
/// blocks are fewer than SMs, each has a part of the cache, and another kernel adds the parts up.
pub(super) fn decode(gpu: &Gpu, of: &LatentCall, macs_per_cycle: f64) -> Result<Vec<Part>, Diagnostic> {
    let kernels = kernels(gpu)?;
    let blocks = of.batch * of.heads.div_ceil(kernels.cache_tile);
    let parts = (gpu.sm.count / blocks.max(1)).clamp(1, of.tokens.div_ceil(PART_KEYS));
    let keys = of.tokens.div_ceil(parts) as f64;
    let LatentWidths { latent, .. } = of.widths;
    let width = of.widths.cached() as f64;
    let rows = of.heads.min(kernels.cache_tile).max(LEAST_ROWS) as f64;
    let products = rows * keys * (width + latent as f64) / (macs_per_cycle * kernels.cache_share);
    let of_sm = gpu.serving.sm_gb_per_s * 1e9 / gpu.clock_hz as f64;
    let fixed = gpu.cycles_of_us(kernels.cache_block_us);
    let each = fixed + products.max(keys * width * of.cache_bytes as f64 / of_sm);
    let waves = (blocks * parts).div_ceil(gpu.sm.count) as f64;
    let cache = (of.batch * of.tokens) as f64 * width * of.cache_bytes as f64;
    let rows_moved = (of.batch * of.heads * (latent + of.widths.cached()) * ELEMENT) as f64;
    let memory = (cache + rows_moved) / gpu.memory_bytes_per_cycle() + gpu.latency_cycles();
    let kernel = (waves * each).max(memory + fixed);
    let mut list =
        vec![("call", gpu.cycles_of_us(kernels.cache_call_us)), part(gpu, "latent attention over the cache", kernel)];
    if parts > 1 {
        let partial = (of.batch * of.heads * parts * latent * 4) as f64;
        list.push(part(gpu, "sum of the parts", stream::time(gpu, 0.0, partial, partial / 4.0).cycles));
    }
    Ok(list)
}
