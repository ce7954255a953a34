//! Layers of models that no graph of a chip's part has, as lists of an inference library's kernels: latent attention (DeepSeek-V2,
//! arXiv:2405.04434), and experts that all chips which serve together share out, whatever divides the attention.

use super::ranks::ExpertRanks;
use super::service::ELEMENT;
use super::work::{Pass, Work};
use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::units::Dtype;
use rdusim_graph::arch::Gpu;
use rdusim_graph::workload::ProductShape;
use rdusim_machines::gpu::{
    self, Case, Experts, KernelCall, LatentCall, LatentWidths, ProductFormat, Skew, kernel_cost, product_seconds,
};
use rdusim_models::model::{Expertise, Indexer, Latent};

/// Seconds and joules without static power, kernel by kernel.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sum {
    pub(super) seconds: f64,
    pub(super) joules: f64,
    pub(super) launches: u64,
}

/// Adds up kernels of a GPU.
pub(super) struct Kernels<'g> {
    pub(super) gpu: &'g Gpu,
    gap: f64,
    pub(super) sum: Sum,
}

impl<'g> Kernels<'g> {
    pub(super) fn new(gpu: &'g Gpu) -> Self {
        let gap = if gpu.fusion.graphs { gpu.launch.graph_gap_us } else { gpu.launch.gap_us } / 1e6;
        Self { gpu, gap, sum: Sum::default() }
    }

    pub(super) fn add(&mut self, seconds: f64, macs: f64, bytes: f64) {
        let per_mac = self.gpu.energy.mac_pj.get(&Dtype::Bf16).copied().unwrap_or(0.0);
        let off_chip = self.gpu.memory.iter().next().map_or(0.0, |tier| tier.energy.joules(bytes));
        self.sum.seconds += seconds;
        self.sum.joules += macs * per_mac * 1e-12 + off_chip;
        self.sum.launches += 1;
    }

    /// A product with a matrix in a format; what narrows its activations is part of the kernel before it.
    pub(super) fn product(
        &mut self,
        format: ProductFormat,
        ProductShape { m, n, k }: ProductShape,
    ) -> Result<(), Diagnostic> {
        let bytes = (k * n) as f64 * format.weight_bytes() + (m * (k + n) * ELEMENT) as f64;
        let seconds = product_seconds(self.gpu, format, ProductShape { m, n, k })?;
        self.add(seconds, m as f64 * n as f64 * k as f64, bytes);
        Ok(())
    }

    /// A kernel of training's lists, with its gap.
    pub(super) fn call(&mut self, call: &KernelCall) -> Result<(), Diagnostic> {
        let cost = kernel_cost(self.gpu, call)?;
        self.sum.seconds += cost.seconds + self.gap;
        self.sum.joules += cost.joules;
        self.sum.launches += 1;
        Ok(())
    }

    /// A kernel that reads and writes so many elements.
    pub(super) fn stream(&mut self, elements: u64, operations: u64) -> Result<(), Diagnostic> {
        let bytes = (elements * ELEMENT) as f64;
        self.call(&KernelCall::Stream { bytes, operations: (elements * operations) as f64 })
    }

    /// A call of a library; the call outside its kernels is the stack's to count.
    pub(super) fn case(&mut self, case: &Case, outside_us: f64, macs: f64, bytes: f64) -> Result<(), Diagnostic> {
        let seconds = (gpu::seconds(self.gpu, case)? - outside_us / 1e6).max(0.0);
        self.add(seconds, macs, bytes);
        Ok(())
    }
}

/// Latent attention of a layer on a chip.
pub(super) struct LatentBlock<'f> {
    /// Width of the residual stream.
    pub(super) hidden: u64,
    /// Heads of the chip.
    pub(super) heads: u64,
    /// Widths of its compressed keys, values and queries.
    pub(super) latent: Latent,
    /// What chooses tokens, if something does.
    pub(super) indexer: Option<Indexer>,
    /// Bytes of an element of the cache.
    pub(super) cache_bytes: u64,
    /// The format of the product with a matrix of this name.
    pub(super) format: &'f dyn Fn(&str) -> ProductFormat,
}

impl LatentBlock<'_> {
    /// A call over `tokens` tokens, of which an indexer leaves some.
    fn call(&self, batch: u64, tokens: u64) -> LatentCall {
        let Latent { key, plain, rotated, value, .. } = self.latent;
        let widths = LatentWidths { latent: key, rotated, plain, value };
        LatentCall { batch, tokens, heads: self.heads, cache_bytes: self.cache_bytes, widths }
    }

    /// Tokens that a query meets.
    fn met(&self, tokens: u64) -> u64 {
        self.indexer.map_or(tokens, |indexer| tokens.min(indexer.top))
    }
}

/// Norms and latent attention of a layer on a chip.
///
/// # Errors
/// A chip that lacks the kernels.
pub(super) fn latent_attention(gpu: &Gpu, of: &LatentBlock<'_>, pass: &Pass) -> Result<Sum, Diagnostic> {
    let (hidden, heads, rows) = (of.hidden, of.heads, pass.work.rows(pass.users, pass.tokens));
    let Latent { query, key, plain, rotated, value } = of.latent;
    let from = query.unwrap_or(0);
    let mut kernels = Kernels::new(gpu);
    // The residual stream is added to and normed.
    kernels.stream(4 * rows * hidden, 8)?;
    kernels.product((of.format)("w_key_latent"), ProductShape { m: rows, n: from + key + rotated, k: hidden })?;
    kernels.stream(2 * rows * (from + key), 8)?;
    let depth = query.unwrap_or(hidden);
    kernels.product((of.format)("w_query"), ProductShape { m: rows, n: heads * (plain + rotated), k: depth })?;
    if let Some(indexer) = &of.indexer {
        indexed(&mut kernels, of, indexer, pass)?;
    }
    let constants = gpu.serving.latent;
    let width = (key + rotated) as f64;
    match pass.work {
        Work::Prompts | Work::Tokens { new: 2.., .. } => {
            let (new, before) = match pass.work {
                Work::Tokens { new, .. } => (new, pass.tokens.saturating_sub(new)),
                _ => (pass.tokens, 0),
            };
            // Keys and values of the prompt, and of what of it came before.
            let held = pass.users * (before + new);
            kernels.product((of.format)("w_key_up"), ProductShape { m: held, n: heads * (plain + value), k: key })?;
            let scored = |tokens: u64| -> Result<f64, Diagnostic> {
                let seconds = gpu::seconds(gpu, &Case::LatentPrefill(of.call(pass.users, tokens.max(1))))?;
                Ok((seconds - constants.prompt_call_us / 1e6).max(0.0))
            };
            // Queries that an indexer chooses tokens for meet so many at most, in proportion.
            let (all, chosen) = (keys_met(new, before, None), keys_met(new, before, of.indexer.as_ref()));
            let alone = scored(new)?;
            let seconds = if before > 0 { alone.max(scored(before + new)? - scored(before)?) } else { alone };
            let pairs = pass.users as f64 * chosen;
            let macs = pairs * (heads * (plain + rotated + value)) as f64;
            kernels.add(seconds * (chosen / all), macs, held as f64 * width);
        }
        Work::Tokens { .. } | Work::Mixed { .. } => {
            let dtype = Dtype::Bf16;
            kernels.call(&KernelCall::Product {
                dtype,
                count: heads,
                shape: ProductShape { m: rows, n: key, k: plain },
            })?;
            let met = of.met(pass.tokens);
            let cache = (pass.users * met) as f64 * width;
            let cost = (2.0 * cache * heads as f64, cache * of.cache_bytes as f64);
            kernels.case(&Case::LatentDecode(of.call(pass.users, met)), constants.cache_call_us, cost.0, cost.1)?;
            kernels.call(&KernelCall::Product {
                dtype,
                count: heads,
                shape: ProductShape { m: rows, n: value, k: key },
            })?;
        }
        // What is around attention alone.
        Work::Rows { .. } => {
            let dtype = Dtype::Bf16;
            kernels.call(&KernelCall::Product {
                dtype,
                count: heads,
                shape: ProductShape { m: rows, n: key, k: plain },
            })?;
            kernels.call(&KernelCall::Product {
                dtype,
                count: heads,
                shape: ProductShape { m: rows, n: value, k: key },
            })?;
        }
    }
    kernels.product((of.format)("w_project"), ProductShape { m: rows, n: hidden, k: heads * value })?;
    Ok(kernels.sum)
}

/// Pairs of `new` queries of a sequence and the keys that they meet, behind `before` others.
fn keys_met(new: u64, before: u64, indexer: Option<&Indexer>) -> f64 {
    let top = indexer.map_or(u64::MAX, |indexer| indexer.top);
    // Queries that meet all tokens before them.
    let whole = top.saturating_sub(before).min(new);
    let rising = whole as f64 * (before as f64 + (whole + 1) as f64 / 2.0);
    rising + (new - whole) as f64 * if new > whole { top as f64 } else { 0.0 }
}

/// What chooses tokens (DeepSeek-V3.2): index queries, keys and weights of every new token, their scores over the index keys of all
/// tokens, which every rank has whole, and the largest of them.
fn indexed(kernels: &mut Kernels<'_>, of: &LatentBlock<'_>, indexer: &Indexer, pass: &Pass) -> Result<(), Diagnostic> {
    let Indexer { heads, head, .. } = *indexer;
    let rows = pass.work.rows(pass.users, pass.tokens);
    let depth = of.latent.query.unwrap_or(of.hidden);
    kernels.product((of.format)("w_index_query"), ProductShape { m: rows, n: heads * head, k: depth })?;
    kernels.product((of.format)("w_index_key"), ProductShape { m: rows, n: head + heads, k: of.hidden })?;
    kernels.stream(2 * rows * (heads + 1) * head, 8)?;
    let (queries, keys) = match pass.work {
        Work::Prompts => (pass.tokens, pass.tokens.div_ceil(2)),
        Work::Tokens { new, .. } => (new, pass.tokens),
        Work::Rows { .. } => return Ok(()),
        Work::Mixed { .. } => (1, pass.tokens),
    };
    if pass.tokens <= indexer.top {
        // All tokens are seen: no scores are made.
        return Ok(());
    }
    let dtype = Dtype::Bf16;
    kernels.call(&KernelCall::Product {
        dtype,
        count: pass.users,
        shape: ProductShape { m: queries * heads, n: keys, k: head },
    })?;
    // Scores are weighed and added up over the heads as they are made; one of four bytes for each query and token is read.
    kernels.stream(2 * pass.users * queries * keys, 4)
}

/// A feed-forward block on a chip: its width there, its matrices, and formats of the products into and out of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct FeedShare {
    /// Width of the residual stream.
    pub(super) hidden: u64,
    /// Columns of the chip.
    pub(super) width: u64,
    /// Two, or three with a gate.
    pub(super) matrices: u64,
    /// Formats of the products into it and out of it.
    pub(super) formats: [ProductFormat; 2],
}

/// Norm and feed-forward block of a layer without experts on a chip.
///
/// # Errors
/// A format that the tensor cores lack.
pub(super) fn feed(gpu: &Gpu, of: &FeedShare, rows: u64) -> Result<Sum, Diagnostic> {
    let mut kernels = Kernels::new(gpu);
    kernels.stream(4 * rows * of.hidden, 8)?;
    block(&mut kernels, of, rows)?;
    Ok(kernels.sum)
}

fn block(kernels: &mut Kernels<'_>, of: &FeedShare, rows: u64) -> Result<(), Diagnostic> {
    let FeedShare { hidden, width, matrices, formats } = *of;
    let up = matrices - 1;
    kernels.product(formats[0], ProductShape { m: rows, n: up * width, k: hidden })?;
    kernels.stream((up + 1) * rows * width, 4)?;
    kernels.product(formats[1], ProductShape { m: rows, n: hidden, k: width })
}

/// Experts of a layer on the busiest chip.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExpertBlock {
    /// Width of the residual stream.
    pub(super) hidden: u64,
    /// Experts of the model.
    pub(super) of: Expertise,
    /// How chips share them out, and their format.
    pub(super) ranks: ExpertRanks,
    /// The block that every token meets, if there is one.
    pub(super) shared: Option<FeedShare>,
    /// Replicas whose tokens meet the same experts.
    pub(super) replicas: u64,
    /// How unevenly tokens fall on experts.
    pub(super) skew: Skew,
}

/// Norm, router, the block that every token meets and experts of a layer, on the busiest chip.
///
/// # Errors
/// A format that the tensor cores lack.
pub(super) fn experts(gpu: &Gpu, block_of: &ExpertBlock, rows: u64) -> Result<Sum, Diagnostic> {
    let ExpertBlock { hidden, of, ranks, shared, replicas, skew } = *block_of;
    let (experts, matrices) = (of.experts, of.activation.matrices());
    let inner = of.latent.unwrap_or(hidden);
    let plain = ProductFormat::Plain(Dtype::Bf16);
    let mut kernels = Kernels::new(gpu);
    kernels.stream(4 * rows * hidden, 8)?;
    kernels.product(plain, ProductShape { m: rows, n: experts.count, k: hidden })?;
    if of.latent.is_some() {
        kernels.product(plain, ProductShape { m: rows, n: inner, k: hidden })?;
        kernels.product(plain, ProductShape { m: rows, n: hidden, k: inner })?;
    }
    if let Some(shared) = &shared {
        block(&mut kernels, shared, rows)?;
    }
    let call = Experts {
        format: ranks.format,
        tokens: rows * replicas,
        hidden: inner,
        inner: experts.width,
        gated: matrices == 3,
        chosen: experts.each,
        experts: experts.count,
        tensor_parallel: ranks.tensor,
        expert_parallel: ranks.groups,
        skew,
    };
    let each = (matrices * inner * experts.width / ranks.tensor) as f64;
    let visits = (call.tokens * experts.each) as f64 / ranks.groups as f64;
    let met = visits.min((experts.count / ranks.groups) as f64);
    let cost = (visits * each, met * each * ranks.format.weight_bytes());
    kernels.case(&Case::Experts(call), gpu.serving.call_us, cost.0, cost.1)?;
    Ok(kernels.sum)
}
