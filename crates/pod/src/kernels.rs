//! A layer, the embedding and the logits as lists of kernels of a GPU stack, on the shapes of one chip.
//!
//! The lists are what the stack's source launches; bytes are those of its operands, elements of 2 bytes, masks of 1.

use std::sync::Arc;

use super::choices::{Capacity, Context};
use super::memory::layer_bytes;
use super::parallel::{Job, Parallel};
use super::system::StackKind;
use rdusim_base::units::Dtype;
use rdusim_graph::workload::ProductShape;
use rdusim_machines::gpu::{AttentionCall, KernelCall};
use rdusim_models::model::{Activation, Experts, Position};

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
    /// Tokens whose keys and values are there from parts of the sequence before.
    before: u64,
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
            head_dim: a.head(),
            inner: a.feed_forward / t,
            sequences: job.micro_batch,
            steps: ring,
            sequence: job.sequence / ring / job.parallel.seq_chunks,
            before: 0,
            own_heads: a.heads / t / shared,
            own_kv_heads: a.kv_heads / t / shared,
        }
    }

    /// Columns of queries, keys and values together.
    fn packed(&self) -> u64 {
        (self.heads + 2 * self.kv_heads) * self.head_dim
    }

    fn product(m: u64, n: u64, k: u64) -> KernelCall {
        KernelCall::Product { dtype: Dtype::Bf16, count: 1, shape: ProductShape { m, n, k } }
    }

    /// One for each head of each sequence.
    fn of_heads(&self, m: u64, n: u64, k: u64) -> KernelCall {
        KernelCall::Product {
            dtype: Dtype::Bf16,
            count: self.sequences * self.own_heads,
            shape: ProductShape { m, n, k },
        }
    }

    /// Moves `bytes` for each of rows x columns elements.
    fn stream(rows: u64, columns: u64, bytes: u64) -> KernelCall {
        let elements = rows as f64 * columns as f64;
        KernelCall::Stream { bytes: elements * bytes as f64, operations: 4.0 * elements }
    }

    /// On the scores.
    fn on_scores(&self, bytes: u64) -> KernelCall {
        Self::stream(self.sequences * self.own_heads * self.sequence, self.before + self.sequence, bytes)
    }

    fn attention(&self, flash: bool) -> Vec<KernelCall> {
        let (s, keys, d) = (self.sequence, self.before + self.sequence, self.head_dim);
        if flash {
            return self.around(false);
        }
        vec![
            self.of_heads(s, keys, d),
            // Scale, mask and softmax in one kernel; dropout with its mask.
            self.on_scores(4),
            self.on_scores(5),
            self.of_heads(s, d, keys),
            Self::stream(self.rows, self.heads * d, 4),
        ]
    }

    fn attention_gradient(&self, flash: bool) -> Vec<KernelCall> {
        let (s, keys, d) = (self.sequence, self.before + self.sequence, self.head_dim);
        // Gradients of keys and values of parts before are added to what those have.
        let added = Self::stream(self.sequences * self.before, 2 * self.kv_heads * d, 6);
        let added = (self.before > 0).then_some(added);
        if flash {
            return self.around(true).into_iter().chain(added).collect();
        }
        let mut list = vec![
            Self::stream(self.rows, self.heads * d, 4),
            self.of_heads(s, keys, d),
            self.of_heads(keys, d, s),
            self.on_scores(5),
            self.on_scores(6),
            self.of_heads(s, d, keys),
            self.of_heads(keys, d, s),
            Self::stream(self.rows, self.packed(), 4),
        ];
        list.extend(added);
        list
    }

    /// The steps of fused attention. What each gives is added to what those before have given, weighted by their sums.
    fn around(&self, gradient: bool) -> Vec<KernelCall> {
        let step = KernelCall::Attention { call: self.call(), before: self.before, gradient };
        let columns = if gradient { self.packed() } else { self.heads * self.head_dim };
        let added = Self::stream(self.rows, columns, 6);
        let behind = (1..self.steps).flat_map(|_| [step.clone(), added.clone()]);
        std::iter::once(step.clone()).chain(behind).collect()
    }

    fn call(&self) -> AttentionCall {
        AttentionCall {
            dtype: Dtype::Bf16,
            batch: self.sequences,
            tokens: self.sequence,
            heads: self.own_heads,
            kv_heads: self.own_kv_heads,
            head_dim: self.head_dim,
            window: None,
        }
    }
}

/// A step of a layer's attention, forward or backward: what exchanges between chips hide behind.
pub(super) fn attention_step(job: &Job, gradient: bool) -> KernelCall {
    KernelCall::Attention { call: Shape::new(job).call(), before: 0, gradient }
}

/// A layer's attention between the products around it, forward and backward.
pub(super) fn attention_core(job: &Job, stack: StackKind) -> [Vec<KernelCall>; 2] {
    let (shape, flash) = (Shape::new(job), stack == StackKind::Flash);
    [shape.attention(flash), shape.attention_gradient(flash)]
}

/// A product's two gradients, and the sum of the rows for its bias.
fn of_product(rows: u64, n: u64, k: u64) -> [KernelCall; 3] {
    [Shape::product(rows, k, n), Shape::product(k, n, rows), Shape::stream(rows, n, 2)]
}

/// A layer of a part of a sequence, which is the how-manieth.
pub(super) fn layer(job: &Job, stack: StackKind, chunk: u64) -> Passes {
    let shape = Shape::new(job);
    around(job, stack, chunk, &feed(job, shape.rows, shape.inner), job.layer_parameters())
}

/// A feed-forward block of this width over so many rows, without what surrounds it.
fn feed(job: &Job, rows: u64, inner: u64) -> Passes {
    let (hidden, up) = (job.architecture.hidden, columns_up(job, inner));
    let forward =
        vec![Shape::product(rows, up, hidden), Shape::stream(rows, up, 4), Shape::product(rows, hidden, inner)];
    let (down, first) = (of_product(rows, hidden, inner), of_product(rows, up, hidden));
    let mut backward = down.to_vec();
    backward.push(Shape::stream(rows, up, 6));
    backward.extend_from_slice(&first);
    let weights = [&down[1..], &first[1..]].concat();
    Passes { forward, attention: Vec::new(), backward, weights }
}

/// Columns of the first product of a feed-forward block: with a gate twice its width.
fn columns_up(job: &Job, inner: u64) -> u64 {
    if job.architecture.activation == Activation::GatedSilu { 2 * inner } else { inner }
}

/// A layer around a feed-forward block, and the addition of the gradients of so many parameters.
fn around(job: &Job, stack: StackKind, chunk: u64, feed: &Passes, parameters: u64) -> Passes {
    let shape = Shape::new(job);
    let shape = Shape { before: chunk * shape.sequence, ..shape };
    let flash = stack == StackKind::Flash;
    let Shape { rows, own_rows, hidden, .. } = shape;
    let (packed, wide) = (shape.packed(), shape.heads * shape.head_dim);
    let attention = shape.attention(flash);
    let rotary = (job.architecture.position == Position::Rotary).then(|| Shape::stream(rows, packed, 4));

    let mut forward = vec![Shape::stream(own_rows, hidden, 4), Shape::product(rows, packed, hidden)];
    forward.extend(rotary.clone());
    forward.extend(attention.iter().cloned());
    forward.extend([
        Shape::product(rows, hidden, wide),
        // Bias, dropout and residual in one kernel, then the norm.
        Shape::stream(own_rows, hidden, 7),
        Shape::stream(own_rows, hidden, 4),
    ]);
    forward.extend_from_slice(&feed.forward);
    forward.push(Shape::stream(own_rows, hidden, 7));
    let of_norm =
        [Shape::stream(own_rows, hidden, 6), Shape::stream(own_rows, hidden, 4), Shape::stream(own_rows, hidden, 6)];
    let mut backward = vec![Shape::stream(own_rows, hidden, 5)];
    backward.extend_from_slice(&feed.backward);
    backward.extend_from_slice(&of_norm);
    backward.push(Shape::stream(own_rows, hidden, 5));
    backward.extend(of_product(rows, hidden, wide));
    backward.extend(shape.attention_gradient(flash));
    backward.extend(rotary);
    backward.extend(of_product(rows, packed, hidden));
    backward.extend(of_norm);
    if job.parallel.gist {
        // What is kept is read and written as half as much; and back.
        let plain = Job { parallel: Parallel { gist: false, ..job.parallel }, ..job.clone() };
        let (kept, scores) = layer_bytes(&plain, stack);
        let bytes = 1.5 * (kept as f64 + scores as f64);
        let encoded = KernelCall::Stream { bytes, operations: bytes / 3.0 };
        forward.push(encoded.clone());
        backward.insert(0, encoded);
    }
    // Gradients are added to those of the micro-batches before, unless their products do.
    let added = (!job.fuses_accumulation(stack)).then(|| Shape::stream(parameters, 1, 6));
    backward.extend(added.clone());
    // A product's second gradient and the sum of the rows for its bias, and adding gradients.
    let mut weights = feed.weights.clone();
    for (n, k) in [(hidden, wide), (packed, hidden)] {
        weights.extend_from_slice(&of_product(rows, n, k)[1..]);
    }
    weights.extend(added);
    Passes { forward, attention, backward, weights }
}

/// A layer with experts without their products.
pub(super) fn expert_layer(job: &Job, stack: StackKind, chunk: u64, experts: &Experts) -> Passes {
    around(job, stack, chunk, &expert_feed(job, experts), job.expert_layer_parameters().iter().sum())
}

/// The feed-forward block of a layer with experts without their products: the router and what orders tokens by expert and puts them
/// together again, with the block that every token meets.
pub(super) fn expert_feed(job: &Job, experts: &Experts) -> Passes {
    let Shape { rows, hidden, .. } = Shape::new(job);
    let mut feed = match experts.shared / job.parallel.tp {
        0 => Passes::default(),
        shared => feed(job, rows, shared),
    };
    let (count, visits) = (experts.count, rows * experts.each);
    feed.forward.extend([
        Shape::product(rows, count, hidden),
        // Softmax and the largest; then rows go to their places, and come back and are added up by their weights.
        Shape::stream(rows, count, 8),
        Shape::stream(visits, hidden, 4),
        Shape::stream(visits + rows, hidden, 2),
    ]);
    feed.backward.extend([Shape::stream(visits, hidden, 6), Shape::stream(visits + rows, hidden, 2)]);
    feed.backward.push(Shape::stream(rows, count, 8));
    let router = of_product(rows, count, hidden);
    feed.backward.extend_from_slice(&router[..2]);
    feed.weights.push(router[1].clone());
    feed
}

/// The products of the experts of a chip on a part of the rows of each, forward and backward. Experts with equal rows are a batch of
/// products, others a grouped product. What their second gradients sum over has the mean of the rows.
pub(super) fn expert_products(job: &Job, experts: &Experts, rows: &[u64], parts: u64) -> Passes {
    let inner = experts.width / job.parallel.tp;
    let (hidden, up) = (job.architecture.hidden, columns_up(job, inner));
    let each: Arc<[u64]> = rows.iter().map(|rows| rows.div_ceil(parts)).collect();
    let (all, count) = (each.iter().sum::<u64>(), each.len() as u64);
    let is_batch = job.parallel.experts.capacity != Capacity::Dropless;
    let dtype = Dtype::Bf16;
    let product = |n: u64, k: u64| match each.first() {
        Some(&rows) if is_batch => KernelCall::Product { dtype, count, shape: ProductShape { m: rows, n, k } },
        _ => KernelCall::Grouped { dtype, rows: Arc::clone(&each), shape: (n, k) },
    };
    let gradient = |n: u64, k: u64| {
        let summed = KernelCall::Product { dtype, count, shape: ProductShape { m: k, n, k: all.div_ceil(count) } };
        [product(k, n), summed, Shape::stream(all, n, 2)]
    };
    // Rows from several senders are ordered by expert, and back.
    let is_ordered = job.parallel.experts.ep > 1 && count > 1;
    let ordered = || is_ordered.then(|| Shape::stream(all, hidden, 4));
    let mut forward: Vec<KernelCall> = ordered().into_iter().collect();
    forward.extend([product(up, hidden), Shape::stream(all, up, 4), product(hidden, inner)]);
    forward.extend(ordered());
    let (down, first) = (gradient(hidden, inner), gradient(up, hidden));
    let mut backward: Vec<KernelCall> = ordered().into_iter().collect();
    backward.extend_from_slice(&down);
    backward.push(Shape::stream(all, up, 6));
    backward.extend_from_slice(&first);
    backward.extend(ordered());
    let weights = [&down[1..], &first[1..]].concat();
    Passes { forward, attention: Vec::new(), backward, weights }
}

/// Embedding of the tokens, on the first stage.
pub(super) fn embedding(job: &Job) -> Passes {
    let Shape { rows, hidden, .. } = Shape::new(job);
    let (mut first, mut backward) = (Shape::stream(rows, hidden, 4), Shape::stream(rows, hidden, 6));
    if let Some(values) = job.architecture.extras.patches.map(u64::from) {
        // The product and its bias; the gradients of both.
        (first, backward) = (Shape::product(rows, hidden, values), Shape::product(hidden, values, rows));
    }
    let backward = vec![Shape::stream(rows, hidden, 5), backward];
    Passes {
        forward: vec![first, Shape::stream(rows, hidden, 6), Shape::stream(rows, hidden, 5)],
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
