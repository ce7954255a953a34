//! Layers of models that no graph of a chip's part has, as lists of an inference library's kernels: latent attention (DeepSeek-V2,
//! arXiv:2405.04434), and experts that all chips which serve together share out, whatever divides the attention.

use super::ranks::ExpertRanks;
use super::service::{ELEMENT, Service};
use super::work::{Pass, Work};
use crate::arch::Gpu;
use crate::diagnostics::Diagnostic;
use crate::gpu::{self, Case, Experts, KernelCall, LatentCall, ProductFormat, Skew, kernel_cost, product_seconds};
use crate::model::Latent;
use crate::units::Dtype;

/// Seconds and joules without static power, kernel by kernel.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sum {
    pub(super) seconds: f64,
    pub(super) joules: f64,
    pub(super) launches: u64,
}

/// Adds up kernels of a GPU.
struct Kernels<'g> {
    gpu: &'g Gpu,
    gap: f64,
    sum: Sum,
}

impl<'g> Kernels<'g> {
    fn new(gpu: &'g Gpu) -> Self {
        let gap = if gpu.fusion.graphs { gpu.launch.graph_gap_us } else { gpu.launch.gap_us } / 1e6;
        Self { gpu, gap, sum: Sum::default() }
    }

    fn add(&mut self, seconds: f64, macs: f64, bytes: f64) {
        let per_mac = self.gpu.energy.mac_pj.get(&Dtype::Bf16).copied().unwrap_or(0.0);
        let off_chip = self.gpu.memory.iter().next().map_or(0.0, |tier| tier.energy.joules(bytes));
        self.sum.seconds += seconds;
        self.sum.joules += macs * per_mac * 1e-12 + off_chip;
        self.sum.launches += 1;
    }

    /// A product with a matrix in a format; what narrows its activations is part of the kernel before it.
    fn product(&mut self, format: ProductFormat, (m, n, k): (u64, u64, u64)) -> Result<(), Diagnostic> {
        let bytes = (k * n) as f64 * format.weight_bytes() + (m * (k + n) * ELEMENT) as f64;
        let seconds = product_seconds(self.gpu, format, (m, n, k))?;
        self.add(seconds, m as f64 * n as f64 * k as f64, bytes);
        Ok(())
    }

    /// A kernel of training's lists, with its gap.
    fn call(&mut self, call: &KernelCall) -> Result<(), Diagnostic> {
        let cost = kernel_cost(self.gpu, call)?;
        self.sum.seconds += cost.seconds + self.gap;
        self.sum.joules += cost.joules;
        self.sum.launches += 1;
        Ok(())
    }

    /// A kernel that reads and writes so many elements.
    fn stream(&mut self, elements: u64, operations: u64) -> Result<(), Diagnostic> {
        let bytes = (elements * ELEMENT) as f64;
        self.call(&KernelCall::Stream { bytes, operations: (elements * operations) as f64 })
    }

    /// A call of a library; the call outside its kernels is the stack's to count.
    fn case(&mut self, case: &Case, outside_us: f64, (macs, bytes): (f64, f64)) -> Result<(), Diagnostic> {
        let seconds = (gpu::seconds(self.gpu, case)? - outside_us / 1e6).max(0.0);
        self.add(seconds, macs, bytes);
        Ok(())
    }
}

/// Norms and latent attention of a layer on a chip.
///
/// # Errors
/// A chip that lacks the kernels.
pub(super) fn latent_attention(gpu: &Gpu, service: &Service, of: &Latent, pass: &Pass) -> Result<Sum, Diagnostic> {
    let share = service.share();
    let (hidden, heads, rows) = (share.hidden, share.heads, pass.work.rows(pass.users, pass.tokens));
    let format = service.product_format();
    let from = of.query.unwrap_or(0);
    let mut kernels = Kernels::new(gpu);
    // The residual stream is added to and normed.
    kernels.stream(4 * rows * hidden, 8)?;
    kernels.product(format, (rows, from + of.key + of.rotated, hidden))?;
    kernels.stream(2 * rows * (from + of.key), 8)?;
    let depth = of.query.unwrap_or(hidden);
    kernels.product(format, (rows, heads * (of.plain + of.rotated), depth))?;
    let cache_bytes = service.cache_bits().div_ceil(8);
    let call = |batch: u64, tokens: u64| LatentCall { batch, tokens, heads, cache_bytes };
    let kernel = gpu.serving.latent;
    let width = (of.key + of.rotated) as f64;
    match pass.work {
        Work::Prompts | Work::Tokens { new: 2.., .. } => {
            let (new, before) = match pass.work {
                Work::Tokens { new, .. } => (new, pass.tokens.saturating_sub(new)),
                _ => (pass.tokens, 0),
            };
            // Keys and values of the prompt, and of what of it came before.
            let held = pass.users * (before + new);
            kernels.product(format, (held, heads * (of.plain + of.value), of.key))?;
            let scored = |tokens: u64| -> Result<f64, Diagnostic> {
                let seconds = gpu::seconds(gpu, &Case::LatentPrefill(call(pass.users, tokens.max(1))))?;
                Ok((seconds - kernel.prompt_call_us / 1e6).max(0.0))
            };
            let alone = scored(new)?;
            let seconds = if before > 0 { alone.max(scored(before + new)? - scored(before)?) } else { alone };
            let pairs = (pass.users * new) as f64 * (before as f64 + new as f64 / 2.0);
            kernels.add(seconds, pairs * (heads * (of.plain + of.rotated + of.value)) as f64, held as f64 * width);
        }
        Work::Tokens { .. } | Work::Mixed { .. } => {
            let dtype = Dtype::Bf16;
            kernels.call(&KernelCall::Product { dtype, count: heads, shape: (rows, of.key, of.plain) })?;
            let cache = (pass.users * pass.tokens) as f64 * width;
            let cost = (2.0 * cache * heads as f64, cache * cache_bytes as f64);
            kernels.case(&Case::LatentDecode(call(pass.users, pass.tokens)), kernel.cache_call_us, cost)?;
            kernels.call(&KernelCall::Product { dtype, count: heads, shape: (rows, of.value, of.key) })?;
        }
        // What is around attention alone.
        Work::Rows { .. } => {
            let dtype = Dtype::Bf16;
            kernels.call(&KernelCall::Product { dtype, count: heads, shape: (rows, of.key, of.plain) })?;
            kernels.call(&KernelCall::Product { dtype, count: heads, shape: (rows, of.value, of.key) })?;
        }
    }
    kernels.product(format, (rows, hidden, heads * of.value))?;
    Ok(kernels.sum)
}

/// Norm and feed-forward block of a layer without experts on a chip.
///
/// # Errors
/// A format that the tensor cores lack.
pub(super) fn feed(gpu: &Gpu, service: &Service, rows: u64) -> Result<Sum, Diagnostic> {
    let share = service.share();
    let mut kernels = Kernels::new(gpu);
    kernels.stream(4 * rows * share.hidden, 8)?;
    block(&mut kernels, service, rows, share.feed_forward)?;
    Ok(kernels.sum)
}

fn block(kernels: &mut Kernels<'_>, service: &Service, rows: u64, width: u64) -> Result<(), Diagnostic> {
    let (hidden, format) = (service.architecture.hidden, service.product_format());
    let up = service.architecture.feed_matrices() - 1;
    kernels.product(format, (rows, up * width, hidden))?;
    kernels.stream((up + 1) * rows * width, 4)?;
    kernels.product(format, (rows, hidden, width))
}

/// Norm, router, the block that every token meets and experts of a layer, on the busiest chip.
///
/// # Errors
/// A format that the tensor cores lack.
pub(super) fn experts(gpu: &Gpu, service: &Service, ranks: &ExpertRanks, rows: u64) -> Result<Sum, Diagnostic> {
    let Some(experts) = service.experts() else { return Ok(Sum::default()) };
    let hidden = service.architecture.hidden;
    let mut kernels = Kernels::new(gpu);
    kernels.stream(4 * rows * hidden, 8)?;
    kernels.product(ProductFormat::Plain(Dtype::Bf16), (rows, experts.count, hidden))?;
    let shared = experts.shared / service.parallel.tp;
    if shared > 0 {
        block(&mut kernels, service, rows, shared)?;
    }
    let gated = service.architecture.feed_matrices() == 3;
    let of = Experts {
        format: ranks.format,
        tokens: rows * service.parallel.dp,
        hidden,
        inner: experts.width,
        gated,
        chosen: experts.each,
        experts: experts.count,
        tensor_parallel: ranks.tensor,
        expert_parallel: ranks.groups,
        skew: Skew::Uniform,
    };
    let each = (service.architecture.feed_matrices() * hidden * experts.width / ranks.tensor) as f64;
    let visits = (of.tokens * experts.each) as f64 / ranks.groups as f64;
    let met = visits.min((experts.count / ranks.groups) as f64);
    kernels.case(&Case::Experts(of), gpu.serving.call_us, (visits * each, met * each * ranks.format.weight_bytes()))?;
    Ok(kernels.sum)
}
