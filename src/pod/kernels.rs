//! A layer, the embedding and the logits as lists of kernels of a GPU stack, on the shapes of one chip.
//!
//! The lists are what the stack's source launches; bytes are those of its operands, elements of 2 bytes, masks of 1.

use super::choices::Context;
use super::parallel::Job;
use super::system::StackKind;
use crate::gpu::{AttentionCall, KernelCall};
use crate::model::{Activation, Position};
use crate::units::Dtype;

/// Kernels of a forward and a backward pass.
#[derive(Debug, Clone, Default)]
pub(super) struct Passes {
    /// Forward.
    pub forward: Vec<KernelCall>,
    /// Of these, the core of attention, which selective recomputation runs again.
    pub attention: Vec<KernelCall>,
    /// Backward.
    pub backward: Vec<KernelCall>,
    /// Of these, what only gradients of weights need.
    pub weights: Vec<KernelCall>,
}

/// Shapes on a chip.
struct Shape {
    /// Tokens of a micro-batch, and those of norms and dropout.
    rows: u64,
    own_rows: u64,
    hidden: u64,
    heads: u64,
    kv_heads: u64,
    head_dim: u64,
    inner: u64,
    sequences: u64,
    /// Of attention: steps one after the other, the tokens of each, and its heads.
    steps: u64,
    sequence: u64,
    own_heads: u64,
    own_kv_heads: u64,
}

impl Shape {
    fn new(job: &Job) -> Self {
        let (a, t) = (&job.architecture, job.parallel.tp);
        let rows = job.micro_batch * job.tokens();
        let (ring, shared) = match job.parallel.context {
            Context::Ring => (job.parallel.cp, 1),
            Context::Ulysses => (1, job.parallel.cp),
        };
        Self {
            rows,
            own_rows: if job.parallel.sp { rows / t } else { rows },
            hidden: a.hidden,
            heads: a.heads / t,
            kv_heads: a.kv_heads / t,
            head_dim: a.hidden / a.heads,
            inner: a.feed_forward / t,
            sequences: job.micro_batch,
            steps: ring,
            sequence: job.sequence / ring,
            own_heads: a.heads / t / shared,
            own_kv_heads: a.kv_heads / t / shared,
        }
    }

    /// Columns of queries, keys and values together.
    fn packed(&self) -> u64 {
        (self.heads + 2 * self.kv_heads) * self.head_dim
    }

    fn product(m: u64, n: u64, k: u64) -> KernelCall {
        KernelCall::Product { dtype: Dtype::Bf16, count: 1, shape: (m, n, k) }
    }

    /// One for each head of each sequence.
    fn of_heads(&self, m: u64, n: u64, k: u64) -> KernelCall {
        KernelCall::Product { dtype: Dtype::Bf16, count: self.sequences * self.own_heads, shape: (m, n, k) }
    }

    /// Moves `bytes` for each of rows x columns elements.
    fn stream(rows: u64, columns: u64, bytes: u64) -> KernelCall {
        let elements = rows as f64 * columns as f64;
        KernelCall::Stream { bytes: elements * bytes as f64, operations: 4.0 * elements }
    }

    /// On the scores.
    fn on_scores(&self, bytes: u64) -> KernelCall {
        Self::stream(self.sequences * self.own_heads * self.sequence, self.sequence, bytes)
    }

    fn attention(&self, flash: bool) -> Vec<KernelCall> {
        let (s, d) = (self.sequence, self.head_dim);
        if flash {
            return self.around(false);
        }
        vec![
            self.of_heads(s, s, d),
            // Scale, mask and softmax in one kernel; dropout with its mask.
            self.on_scores(4),
            self.on_scores(5),
            self.of_heads(s, d, s),
            Self::stream(self.rows, self.heads * d, 4),
        ]
    }

    fn attention_gradient(&self, flash: bool) -> Vec<KernelCall> {
        let (s, d) = (self.sequence, self.head_dim);
        if flash {
            return self.around(true);
        }
        vec![
            Self::stream(self.rows, self.heads * d, 4),
            self.of_heads(s, s, d),
            self.of_heads(s, d, s),
            self.on_scores(5),
            self.on_scores(6),
            self.of_heads(s, d, s),
            self.of_heads(s, d, s),
            Self::stream(self.rows, self.packed(), 4),
        ]
    }

    /// The steps of fused attention. What each gives is added to what those before have given, weighted by their sums.
    fn around(&self, gradient: bool) -> Vec<KernelCall> {
        let step = KernelCall::Attention { call: self.call(), gradient };
        let columns = if gradient { self.packed() } else { self.heads * self.head_dim };
        let added = Self::stream(self.rows, columns, 6);
        let behind = (1..self.steps).flat_map(|_| [step, added]);
        std::iter::once(step).chain(behind).collect()
    }

    fn call(&self) -> AttentionCall {
        AttentionCall {
            dtype: Dtype::Bf16,
            batch: self.sequences,
            tokens: self.sequence,
            heads: self.own_heads,
            kv_heads: self.own_kv_heads,
            head_dim: self.head_dim,
        }
    }
}

/// A step of a layer's attention, forward or backward: what exchanges between chips hide behind.
pub(super) fn attention_step(job: &Job, gradient: bool) -> KernelCall {
    KernelCall::Attention { call: Shape::new(job).call(), gradient }
}

/// A layer.
pub(super) fn layer(job: &Job, stack: StackKind) -> Passes {
    let shape = Shape::new(job);
    let flash = stack == StackKind::Flash;
    let Shape { rows, own_rows, hidden, inner, .. } = shape;
    let gated = job.architecture.activation == Activation::GatedSilu;
    let up = if gated { 2 * inner } else { inner };
    let (packed, wide) = (shape.packed(), shape.heads * shape.head_dim);
    let attention = shape.attention(flash);
    let rotary = (job.architecture.position == Position::Rotary).then(|| Shape::stream(rows, packed, 4));

    let mut forward = vec![Shape::stream(own_rows, hidden, 4), Shape::product(rows, packed, hidden)];
    forward.extend(rotary);
    forward.extend(attention.iter().copied());
    forward.extend([
        Shape::product(rows, hidden, wide),
        // Bias, dropout and residual in one kernel, then the norm.
        Shape::stream(own_rows, hidden, 7),
        Shape::stream(own_rows, hidden, 4),
        Shape::product(rows, up, hidden),
        Shape::stream(rows, up, 4),
        Shape::product(rows, hidden, inner),
        Shape::stream(own_rows, hidden, 7),
    ]);
    // A product's two gradients, and the sum of the rows for its bias.
    let of_product =
        |n: u64, k: u64| [Shape::product(rows, k, n), Shape::product(k, n, rows), Shape::stream(rows, n, 2)];
    let of_norm =
        [Shape::stream(own_rows, hidden, 6), Shape::stream(own_rows, hidden, 4), Shape::stream(own_rows, hidden, 6)];
    let mut backward = vec![Shape::stream(own_rows, hidden, 5)];
    backward.extend(of_product(hidden, inner));
    backward.push(Shape::stream(rows, up, 6));
    backward.extend(of_product(up, hidden));
    backward.extend(of_norm);
    backward.push(Shape::stream(own_rows, hidden, 5));
    backward.extend(of_product(hidden, wide));
    backward.extend(shape.attention_gradient(flash));
    backward.extend(rotary);
    backward.extend(of_product(packed, hidden));
    backward.extend(of_norm);
    // Gradients are added to those of the micro-batches before.
    backward.push(Shape::stream(job.layer_parameters(), 1, 6));
    // A product's second gradient and the sum of the rows for its bias, and adding gradients.
    let mut weights: Vec<KernelCall> = Vec::new();
    for (n, k) in [(hidden, inner), (up, hidden), (hidden, wide), (packed, hidden)] {
        weights.extend_from_slice(&of_product(n, k)[1..]);
    }
    weights.extend(backward.last());
    Passes { forward, attention, backward, weights }
}

/// Embedding of the tokens, on the first stage.
pub(super) fn embedding(job: &Job) -> Passes {
    let Shape { rows, hidden, .. } = Shape::new(job);
    let backward = vec![Shape::stream(rows, hidden, 5), Shape::stream(rows, hidden, 6)];
    Passes {
        forward: vec![Shape::stream(rows, hidden, 4), Shape::stream(rows, hidden, 6), Shape::stream(rows, hidden, 5)],
        attention: Vec::new(),
        weights: backward.clone(),
        backward,
    }
}

/// Last norm, logits and loss, on the last stage.
pub(super) fn logits(job: &Job) -> Passes {
    let Shape { rows, hidden, own_rows, .. } = Shape::new(job);
    let columns = job.architecture.vocabulary.div_ceil(job.parallel.tp);
    let product = |m, n, k| Shape::product(m, n, k);
    Passes {
        // To fp32, maximum, exponentials, sum; masked labels.
        forward: vec![
            Shape::stream(own_rows, hidden, 4),
            product(rows, columns, hidden),
            Shape::stream(rows, columns, 6),
            Shape::stream(rows, columns, 4),
            Shape::stream(rows, columns, 8),
            Shape::stream(rows, columns, 8),
        ],
        attention: Vec::new(),
        backward: vec![
            Shape::stream(rows, columns, 8),
            Shape::stream(rows, columns, 6),
            product(rows, hidden, columns),
            product(hidden, columns, rows),
            Shape::stream(own_rows, hidden, 10),
        ],
        weights: vec![product(hidden, columns, rows)],
    }
}
