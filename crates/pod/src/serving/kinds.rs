//! Layers of several kinds on a GPU, kind by kind, as lists of an inference library's kernels: a norm and what mixes tokens, a norm and
//! the feed-forward block or its experts.
//!
//! Every kind takes what its widths, its formats and the division of its experts say; equal kinds take the same time. Linear attention
//! runs as the kernels of Yang et al. 2024 (arXiv:2412.06464): token by token over a state, or in chunks in their WY form.

use super::library::{self, ExpertBlock, FeedShare, Kernels, LatentBlock, Sum};
use super::ranks::ExpertRanks;
use super::service::{ELEMENT, Service};
use super::work::{Pass, Work};
use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::units::Dtype;
use rdusim_graph::arch::{Gpu, LatentKernels};
use rdusim_graph::workload::ProductShape;
use rdusim_machines::gpu::{AttentionCall, Case, KernelCall, ProductFormat, Skew};
use rdusim_models::model::{Decay, DeltaNet, Feed, HeadAttention, LayerKind, Mixer, Stack, linear_chunk};

/// Bytes of an element of a state of linear attention, which engines keep in fp32 [P `mamba_ssm_dtype` of Qwen3.5's config.json].
const STATE_BYTES: u64 = 4;

/// Whether layers of a model are known as lists of kernels alone: latent and linear attention, and experts that chips share out in a
/// division of their own; others have graphs, which `run` times too.
pub(super) fn are_kernels(gpu: &Gpu, service: &Service, stack: &Stack) -> bool {
    let is_known = |kind: &LayerKind| match &kind.mixer {
        Mixer::None | Mixer::Matrix | Mixer::Delta(_) => true,
        Mixer::Heads(of) => of.key == of.value,
        Mixer::Latent(_) => gpu.serving.latent != LatentKernels::default(),
        Mixer::Compressed(_) | Mixer::Lightning(_) | Mixer::Recurrence(_) => false,
    };
    let needs_list = |kind: &LayerKind| {
        let is_shared_out = service.expert_ranks.is_some() && matches!(kind.feed, Feed::Experts(_));
        is_shared_out || matches!(kind.mixer, Mixer::Delta(_) | Mixer::Latent(_))
    };
    // Loads that were counted expert by expert are read by graphs alone.
    let has_draws = stack.experts().is_none() || service.skew().is_some();
    has_draws && stack.streams == 1 && stack.kinds.iter().all(is_known) && stack.kinds.iter().any(needs_list)
}

/// The layers of a stage on a chip, without the embedding and the logits.
///
/// # Errors
/// A format that the tensor cores lack.
pub(super) fn layers(gpu: &Gpu, service: &Service, stack: &Stack, pass: &Pass) -> Result<Sum, Diagnostic> {
    let part = service.layers_on_chip(stack, pass.stage);
    let mut sum = Sum::default();
    for (kind, count) in part.kinds.iter().zip(part.all_counts()).filter(|(_, count)| *count > 0) {
        let of = Layer { gpu, service, hidden: part.hidden, kind };
        for block in [of.mixed(pass)?, of.fed(pass)?] {
            sum.seconds += block.seconds * count as f64;
            sum.joules += block.joules * count as f64;
            sum.launches += block.launches * count;
        }
    }
    Ok(sum)
}

/// The share of a chip of a layer of one kind.
struct Layer<'l> {
    gpu: &'l Gpu,
    service: &'l Service,
    hidden: u64,
    kind: &'l LayerKind,
}

impl Layer<'_> {
    /// The format of the product with a matrix.
    fn format(&self, matrix: &str) -> ProductFormat {
        self.service.format_of_stored(self.kind.format_of(matrix).map(|format| format.format.as_str()))
    }

    /// Norms of a block: the residual stream is added to and normed, what a block makes is normed where the model does that.
    fn norms(&self, kernels: &mut Kernels<'_>, rows: u64) -> Result<(), Diagnostic> {
        kernels.stream(4 * rows * self.hidden, 8)?;
        if self.kind.norms.behind { kernels.stream(2 * rows * self.hidden, 8) } else { Ok(()) }
    }

    /// What mixes tokens, behind its norm.
    fn mixed(&self, pass: &Pass) -> Result<Sum, Diagnostic> {
        let rows = pass.work.rows(pass.users, pass.tokens);
        let mut kernels = Kernels::new(self.gpu);
        match &self.kind.mixer {
            Mixer::Matrix => {
                self.norms(&mut kernels, rows)?;
                kernels.product(self.format("w_linear"), ProductShape { m: rows, n: self.hidden, k: self.hidden })?;
            }
            Mixer::Heads(of) => self.heads(&mut kernels, of, pass)?,
            Mixer::Latent(of) => {
                let block = LatentBlock {
                    hidden: self.hidden,
                    heads: of.heads,
                    latent: of.latent,
                    indexer: of.indexer,
                    cache_bytes: self.service.cache_bits().div_ceil(8),
                    format: &|matrix| self.format(matrix),
                };
                return library::latent_attention(self.gpu, &block, pass);
            }
            Mixer::Delta(net) => self.delta_rule(&mut kernels, net, pass)?,
            // Layers with these have graphs.
            Mixer::None | Mixer::Compressed(_) | Mixer::Lightning(_) | Mixer::Recurrence(_) => {}
        }
        Ok(kernels.sum)
    }

    /// Attention with heads: one product makes queries, keys, values and gates; norms and rotation are a kernel, in
    /// prompts that of the call of attention.
    fn heads(&self, kernels: &mut Kernels<'_>, of: &HeadAttention, pass: &Pass) -> Result<(), Diagnostic> {
        let rows = pass.work.rows(pass.users, pass.tokens);
        let HeadAttention { heads, kv_heads, key, .. } = *of;
        self.norms(kernels, rows)?;
        let kept = if of.shares_cache { 0 } else { kv_heads * key * if of.key_is_value { 1 } else { 2 } };
        kernels.product(
            self.format("w_query"),
            ProductShape { m: rows, n: heads * key + kept + of.gate, k: self.hidden },
        )?;
        let call = |batch: u64, tokens: u64| AttentionCall {
            dtype: Dtype::Bf16,
            batch,
            tokens,
            heads,
            kv_heads,
            head_dim: key,
            window: of.window.map(|window| window.tokens).filter(|&window| window < tokens),
        };
        let turned = 2 * rows * (heads * key + kept);
        if of.head_norm || pass.work != Work::Prompts {
            kernels.stream(turned, 6)?;
        }
        let bytes = (2 * self.service.cache_bits() * kv_heads * key) as f64 / 8.0;
        let outside_us = self.gpu.serving.call_us;
        let attend = |kernels: &mut Kernels<'_>, case: &Case, pairs: u64, read: u64| {
            kernels.case(case, outside_us, 2.0 * pairs as f64 * (heads * key) as f64, read as f64 * bytes)
        };
        match pass.work {
            Work::Prompts => {
                let of = call(pass.users, pass.tokens);
                let pairs = rows * pass.tokens.div_ceil(2).min(of.window.unwrap_or(u64::MAX));
                attend(kernels, &Case::Prefill(of), pairs, rows)?;
            }
            Work::Tokens { new, .. } => {
                let of = call(pass.users, pass.tokens);
                let met = pass.users * pass.tokens.min(of.window.unwrap_or(u64::MAX));
                let case = if new == 1 { Case::Decode(of) } else { Case::Extend { call: of, new } };
                attend(kernels, &case, met * new, met)?;
            }
            Work::Mixed { chunk, before } => {
                let (tokens, part) = (call(pass.users, pass.tokens), call(1, before + chunk));
                let met = pass.users * pass.tokens.min(tokens.window.unwrap_or(u64::MAX));
                attend(kernels, &Case::Decode(tokens), met, met)?;
                let case = Case::Extend { call: part, new: chunk };
                attend(kernels, &case, chunk * (before + chunk), before + chunk)?;
            }
            Work::Rows { .. } => {}
        }
        if of.gate > 0 {
            kernels.stream(3 * rows * of.gate, 4)?;
        }
        kernels.product(self.format("w_project"), ProductShape { m: rows, n: self.hidden, k: heads * key })
    }

    /// A gated delta rule: one product makes queries, keys, values and the gate, a narrow one the rates; convolution, states, a gated
    /// norm, and the product back.
    fn delta_rule(&self, kernels: &mut Kernels<'_>, net: &DeltaNet, pass: &Pass) -> Result<(), Diagnostic> {
        let rows = pass.work.rows(pass.users, pass.tokens);
        let (keys, values, heads) = (net.keys(), net.values(), net.value_heads);
        self.norms(kernels, rows)?;
        let plain = ProductFormat::Plain(Dtype::Bf16);
        let gate = if net.decay == Decay::Head { values } else { 0 };
        kernels.product(self.format("w_query"), ProductShape { m: rows, n: net.convolved() + gate, k: self.hidden })?;
        match net.decay {
            Decay::Head => kernels.product(plain, ProductShape { m: rows, n: 2 * heads, k: self.hidden })?,
            Decay::Column => {
                kernels.product(plain, ProductShape { m: rows, n: heads + net.key + net.value, k: self.hidden })?;
                kernels.product(plain, ProductShape { m: rows, n: keys, k: net.key })?;
                kernels.product(plain, ProductShape { m: rows, n: values, k: net.value })?;
            }
        }
        // Convolutions keep the last rows of each sequence.
        let kept = (net.taps - 1) * net.convolved();
        kernels.stream(2 * rows * net.convolved() + 2 * pass.users * kept, 2 * net.taps + 4)?;
        let of_states = STATE_BYTES / ELEMENT * net.state();
        let stepped = 2 * keys + 2 * values;
        match pass.work {
            // Every state is read, corrected and written.
            Work::Tokens { new: 1, .. } => {
                kernels.stream(pass.users * (2 * of_states + stepped), 6)?;
            }
            Work::Mixed { chunk, .. } => {
                kernels.stream(pass.users * (2 * of_states + stepped), 6)?;
                in_chunks(kernels, net, 1, chunk)?;
            }
            Work::Prompts => in_chunks(kernels, net, pass.users, pass.tokens)?,
            Work::Tokens { new, .. } => in_chunks(kernels, net, pass.users, new)?,
            Work::Rows { .. } => {}
        }
        kernels.stream(3 * rows * values, 10)?;
        kernels.product(self.format("w_project"), ProductShape { m: rows, n: self.hidden, k: values })
    }

    /// The feed-forward block, behind its norm.
    fn fed(&self, pass: &Pass) -> Result<Sum, Diagnostic> {
        let rows = pass.work.rows(pass.users, pass.tokens);
        let share = |width, matrices, into, out| FeedShare {
            hidden: self.hidden,
            width,
            matrices,
            formats: [self.format(into), self.format(out)],
        };
        match &self.kind.feed {
            Feed::None => Ok(Sum::default()),
            Feed::Matrix => {
                let mut kernels = Kernels::new(self.gpu);
                self.norms(&mut kernels, rows)?;
                kernels
                    .product(self.format("w_feed_linear"), ProductShape { m: rows, n: self.hidden, k: self.hidden })?;
                Ok(kernels.sum)
            }
            Feed::Dense(block) => {
                library::feed(self.gpu, &share(block.width, block.activation.matrices(), "w_up", "w_down"), rows)
            }
            Feed::Experts(of) => {
                let whole = self.service.ranks_of_experts();
                let ranks = ExpertRanks { format: self.format("w_expert_up"), ..whole };
                let matrices = of.activation.matrices();
                let shared = of.experts.shared;
                // The chip's experts have their share of the columns already.
                let mut all = *of;
                all.experts.width *= ranks.tensor;
                let block = ExpertBlock {
                    hidden: self.hidden,
                    of: all,
                    ranks,
                    shared: (shared > 0).then(|| share(shared, matrices, "w_shared_up", "w_shared_down")),
                    replicas: self.service.replicas_of_experts(),
                    skew: self.service.skew().unwrap_or(Skew::Uniform),
                };
                library::experts(self.gpu, &block, rows)
            }
        }
    }
}

/// States of sequences of new tokens, chunk by chunk: products of a chunk's keys with themselves, their triangular inverse, what that
/// makes of keys and values, the states from chunk to chunk, and what each token reads of them and of its chunk.
fn in_chunks(kernels: &mut Kernels<'_>, net: &DeltaNet, users: u64, tokens: u64) -> Result<(), Diagnostic> {
    let chunk = linear_chunk(1 << 20);
    let (heads, key, value) = (net.value_heads, net.key, net.value);
    let count = users * heads * tokens.div_ceil(chunk);
    let dtype = Dtype::Bf16;
    let product = |kernels: &mut Kernels<'_>, m, n, k| {
        kernels.call(&KernelCall::Product { dtype, count, shape: ProductShape { m, n, k } })
    };
    // Decays are added up within chunks.
    kernels.stream(2 * users * tokens * heads * 2, 2)?;
    product(kernels, chunk, chunk, key)?;
    product(kernels, chunk, chunk, chunk)?;
    product(kernels, chunk, key + value, chunk)?;
    // A state of each chunk is written; chunks of a head follow one another.
    product(kernels, key, value, chunk)?;
    product(kernels, chunk, value, key)?;
    kernels.stream(users * tokens.div_ceil(chunk) * net.state(), 2)?;
    product(kernels, chunk, value, key)?;
    product(kernels, chunk, chunk + value, key.max(chunk))
}
