//! What a kind of layer holds and computes: matrices, vectors, caches, states, FLOP.

use super::super::extras::Latent;
use super::super::preset::Norm;
use super::attention::{Compressed, HeadAttention, Indexer, LatentAttention};
use super::feed::{Expertise, Feed, FeedBlock};
use super::kinds::{LayerKind, Mixer, Stack};
use super::recurrence::{Decay, DeltaNet, Lightning};

/// A matrix of a layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Matrix {
    /// Its name in a workload.
    pub name: &'static str,
    /// The depth of its products.
    pub rows: u64,
    /// Columns of what it makes.
    pub columns: u64,
    /// So many of them lie side by side, one for each expert; 1 of all others.
    pub copies: u64,
    /// Of these, those that a token meets.
    pub met: u64,
    /// Whether tensor ranks divide it; else each has all of it.
    pub is_divided: bool,
    /// Length of its bias, 0 without one.
    pub bias: u64,
}

impl Matrix {
    fn divided(name: &'static str, rows: u64, columns: u64) -> Self {
        Self { name, rows, columns, copies: 1, met: 1, is_divided: true, bias: 0 }
    }

    fn copied(name: &'static str, rows: u64, columns: u64) -> Self {
        Self { is_divided: false, ..Self::divided(name, rows, columns) }
    }

    fn with_bias(self, has_one: bool) -> Self {
        Self { bias: if has_one { self.columns } else { 0 }, ..self }
    }

    fn of_experts(self, copies: u64, met: u64) -> Self {
        Self { copies, met, ..self }
    }

    /// Elements of all copies.
    pub fn elements(&self) -> u64 {
        self.rows.saturating_mul(self.columns).saturating_mul(self.copies)
    }
}

/// What a layer keeps of each token of a sequence, or of the last ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cache {
    /// Elements of an entry.
    pub elements: u64,
    /// Tokens that an entry stands for.
    pub ratio: u64,
    /// Most entries that are kept.
    pub most: Option<u64>,
    /// Most entries that a token reads; all that are kept if not given.
    pub read: Option<u64>,
}

impl Cache {
    /// Entries of a sequence of so many tokens.
    pub fn entries(&self, tokens: u64) -> u64 {
        let all = tokens / self.ratio;
        self.most.map_or(all, |most| all.min(most))
    }

    /// Elements that a sequence of so many tokens holds.
    pub fn held(&self, tokens: u64) -> u64 {
        self.elements.saturating_mul(self.entries(tokens))
    }

    /// Elements that a new token of such a sequence reads.
    pub fn read(&self, tokens: u64) -> u64 {
        let entries = self.entries(tokens);
        self.elements.saturating_mul(self.read.map_or(entries, |most| entries.min(most)))
    }
}

impl LayerKind {
    /// Every matrix of the layer.
    pub fn matrices(&self, hidden: u64) -> Vec<Matrix> {
        let mut list = match &self.mixer {
            Mixer::None => Vec::new(),
            Mixer::Matrix => vec![Matrix::copied("w_linear", hidden, hidden)],
            Mixer::Heads(attention) => of_heads(attention, hidden),
            Mixer::Latent(attention) => of_latent(attention, hidden),
            Mixer::Compressed(attention) => of_compressed(attention, hidden),
            Mixer::Delta(net) => of_delta(net, hidden),
            Mixer::Lightning(Lightning { heads, head }) => {
                let wide = heads * head;
                let name = ["w_query", "w_key", "w_value", "w_gate_out"];
                let mut list: Vec<Matrix> = name.map(|name| Matrix::divided(name, hidden, wide)).into();
                list.push(Matrix::divided("w_project", wide, hidden));
                list
            }
            Mixer::Recurrence(m) => {
                let of_groups = m.of_groups();
                vec![
                    Matrix::divided("w_z", hidden, m.width()),
                    Matrix::divided("w_x_in", hidden, m.width()),
                    Matrix::divided("w_b_in", hidden, of_groups),
                    Matrix::divided("w_c_in", hidden, of_groups),
                    Matrix::divided("w_step", hidden, m.heads.into()),
                    Matrix::divided("w_out", m.width(), hidden),
                ]
            }
        };
        match &self.feed {
            Feed::None => {}
            Feed::Matrix => list.push(Matrix::copied("w_feed_linear", hidden, hidden)),
            Feed::Dense(block) => list.extend(of_block(block, hidden, ["w_gate", "w_up", "w_down"])),
            Feed::Experts(experts) => list.extend(of_experts(experts, hidden)),
        }
        list
    }

    /// Elements of vectors that no matrix has: gains, taps, rates; not norms that are as wide as the model.
    pub fn vectors(&self) -> u64 {
        match &self.mixer {
            Mixer::None | Mixer::Matrix => 0,
            Mixer::Heads(a) => {
                let norms = if a.head_norm { a.heads * a.key + of_keys(a) } else { 0 };
                norms + if a.sinks { a.heads } else { 0 }
            }
            Mixer::Latent(a) => {
                let of_indexer = a.indexer.map_or(0, |indexer| 2 * indexer.head);
                a.latent.key + a.latent.query.unwrap_or(0) + of_indexer
            }
            Mixer::Compressed(a) => {
                let of_key = |head: u64| if a.ratio > 0 { a.halves() * head + head } else { 0 };
                let of_indexer = a.indexer.map_or(0, |indexer| of_key(indexer.head));
                a.query + a.head + of_key(a.head) + of_indexer
            }
            Mixer::Delta(net) => {
                let rates = match net.decay {
                    Decay::Head => net.value_heads,
                    Decay::Column => net.keys(),
                };
                net.taps * net.convolved() + 2 * rates + net.values()
            }
            Mixer::Lightning(of) => of.heads * of.head,
            Mixer::Recurrence(m) => m.vectors(),
        }
    }

    /// What the layer keeps of tokens.
    pub fn caches(&self) -> Vec<Cache> {
        match &self.mixer {
            Mixer::Heads(a) if !a.shares_cache => {
                let values = if a.key_is_value { 0 } else { a.kv_heads * a.value };
                let most = a.window.map(|window| window.tokens);
                vec![Cache { elements: a.kv_heads * a.key + values, ratio: 1, most, read: None }]
            }
            Mixer::Latent(a) => {
                let read = a.indexer.map(|indexer| indexer.top);
                let mut list = vec![Cache { elements: a.latent.key + a.latent.rotated, ratio: 1, most: None, read }];
                list.extend(a.indexer.map(|indexer| of_index(&indexer, 1)));
                list
            }
            Mixer::Compressed(a) => {
                let mut list = vec![Cache { elements: a.head, ratio: 1, most: Some(a.window), read: None }];
                if a.ratio > 0 {
                    let read = a.indexer.map(|indexer| indexer.top);
                    list.push(Cache { elements: a.head, ratio: a.ratio, most: None, read });
                    list.extend(a.indexer.map(|indexer| of_index(&indexer, a.ratio)));
                }
                list
            }
            _ => Vec::new(),
        }
    }

    /// Elements that a sequence holds whatever its length: states, and inputs of convolutions.
    pub fn state(&self) -> u64 {
        match &self.mixer {
            Mixer::Delta(net) => net.state() + (net.taps - 1) * net.convolved(),
            Mixer::Lightning(of) => of.heads * of.head * of.head,
            Mixer::Recurrence(m) => m.held(),
            _ => 0,
        }
    }

    /// Multiplications of a token that sees so many keys, itself included, beyond those with matrices.
    pub fn mixed(&self, keys: f64) -> f64 {
        match &self.mixer {
            Mixer::Heads(a) => {
                let seen = a.window.map_or(keys, |window| keys.min(window.tokens as f64));
                seen * (a.heads * (a.key + a.value)) as f64
            }
            Mixer::Latent(a) => {
                let Latent { key, rotated, .. } = a.latent;
                let seen = a.indexer.map_or(keys, |indexer| keys.min(indexer.top as f64));
                let of_indexer = a.indexer.map_or(0.0, |indexer| keys * (indexer.heads * indexer.head) as f64);
                seen * (a.heads * (2 * key + rotated)) as f64 + of_indexer
            }
            Mixer::Compressed(a) => {
                let compressed = if a.ratio > 0 { (keys / a.ratio as f64).floor() } else { 0.0 };
                let seen = a.indexer.map_or(compressed, |indexer| compressed.min(indexer.top as f64));
                let of_indexer = a.indexer.map_or(0.0, |indexer| compressed * (indexer.heads * indexer.head) as f64);
                (keys.min(a.window as f64) + seen) * (2 * a.heads * a.head) as f64 + of_indexer
            }
            // What the state says of a key, what it learns, what it gives.
            Mixer::Delta(net) => 3.0 * net.state() as f64,
            Mixer::Lightning(of) => (2 * of.heads * of.head * of.head) as f64,
            Mixer::Recurrence(m) => (2 * m.width() * u64::from(m.state)) as f64,
            Mixer::None | Mixer::Matrix => 0.0,
        }
    }

    /// Multiplications of a token with matrices: those that it meets.
    pub fn products(&self, hidden: u64) -> u64 {
        self.matrices(hidden).iter().map(|matrix| matrix.rows * matrix.columns * matrix.met).sum()
    }

    /// Norms as wide as the model.
    pub fn wide_norms(&self) -> u64 {
        let blocks = self.blocks();
        let before =
            if self.norms.parallel { u64::from(self.norms.before) } else { u64::from(self.norms.before) * blocks };
        before + u64::from(self.norms.behind) * blocks
    }
}

/// Columns of the keys of a token that are normed.
fn of_keys(a: &HeadAttention) -> u64 {
    if a.shares_cache { 0 } else { a.kv_heads * a.key }
}

fn of_index(indexer: &Indexer, ratio: u64) -> Cache {
    Cache { elements: indexer.head, ratio, most: None, read: None }
}

fn of_heads(a: &HeadAttention, hidden: u64) -> Vec<Matrix> {
    let divided = |name, columns| Matrix::divided(name, hidden, columns).with_bias(a.bias);
    let mut list = Vec::new();
    if !a.shares_cache {
        list.push(divided("w_key", a.kv_heads * a.key));
        if !a.key_is_value {
            list.push(divided("w_value", a.kv_heads * a.value));
        }
    }
    list.push(divided("w_query", a.heads * a.key));
    if a.gate > 0 {
        list.push(Matrix::divided("w_gate_out", hidden, a.gate));
    }
    list.push(Matrix::divided("w_project", a.heads * a.value, hidden).with_bias(a.output_bias));
    list
}

fn of_latent(a: &LatentAttention, hidden: u64) -> Vec<Matrix> {
    let (heads, Latent { query, key, plain, rotated, value }) = (a.heads, a.latent);
    let mut list = vec![Matrix::copied("w_key_latent", hidden, key), Matrix::copied("w_key_rotated", hidden, rotated)];
    list.extend(query.map(|query| Matrix::copied("w_query_latent", hidden, query)));
    let from = query.unwrap_or(hidden);
    list.push(Matrix::divided("w_query", from, heads * plain));
    list.push(Matrix::divided("w_query_rotated", from, heads * rotated));
    list.push(Matrix::divided("w_key_up", key, heads * plain));
    list.push(Matrix::divided("w_value_up", key, heads * value));
    list.push(Matrix::divided("w_project", heads * value, hidden));
    if let Some(indexer) = a.indexer {
        list.push(Matrix::copied("w_index_query", from, indexer.heads * indexer.head));
        list.push(Matrix::copied("w_index_key", hidden, indexer.head));
        list.push(Matrix::copied("w_index_weight", hidden, indexer.heads));
    }
    list
}

fn of_compressed(a: &Compressed, hidden: u64) -> Vec<Matrix> {
    let mut list = vec![
        Matrix::copied("w_query_latent", hidden, a.query),
        Matrix::divided("w_query", a.query, a.heads * a.head),
        Matrix::copied("w_key", hidden, a.head),
        Matrix::divided("w_group_out", a.heads * a.head / a.groups, a.output).of_experts(a.groups, a.groups),
        Matrix::divided("w_project", a.groups * a.output, hidden),
    ];
    if a.ratio > 0 {
        let made = a.halves();
        list.push(Matrix::copied("w_compress", hidden, made * a.head));
        list.push(Matrix::copied("w_compress_weight", hidden, made * a.head));
        if let Some(indexer) = a.indexer {
            list.push(Matrix::copied("w_index_query", a.query, indexer.heads * indexer.head));
            list.push(Matrix::copied("w_index_weight", hidden, indexer.heads));
            list.push(Matrix::copied("w_index_compress", hidden, made * indexer.head));
            list.push(Matrix::copied("w_index_compress_weight", hidden, made * indexer.head));
        }
    }
    list
}

fn of_delta(net: &DeltaNet, hidden: u64) -> Vec<Matrix> {
    let mut list = vec![
        Matrix::divided("w_query", hidden, net.keys()),
        Matrix::divided("w_key", hidden, net.keys()),
        Matrix::divided("w_value", hidden, net.values()),
        Matrix::divided("w_learn", hidden, net.value_heads),
    ];
    match net.decay {
        Decay::Head => {
            list.push(Matrix::divided("w_decay", hidden, net.value_heads));
            list.push(Matrix::divided("w_gate_out", hidden, net.values()));
        }
        Decay::Column => {
            list.push(Matrix::copied("w_decay_latent", hidden, net.key));
            list.push(Matrix::divided("w_decay", net.key, net.keys()));
            list.push(Matrix::copied("w_gate_latent", hidden, net.value));
            list.push(Matrix::divided("w_gate_out", net.value, net.values()));
        }
    }
    list.push(Matrix::divided("w_project", net.values(), hidden));
    list
}

fn of_block(block: &FeedBlock, hidden: u64, names: [&'static str; 3]) -> Vec<Matrix> {
    let [gate, up, down] = names;
    let mut list = vec![
        Matrix::divided(up, hidden, block.width).with_bias(block.bias),
        Matrix::divided(down, block.width, hidden).with_bias(block.bias),
    ];
    if block.activation.matrices() == 3 {
        list.insert(0, Matrix::divided(gate, hidden, block.width).with_bias(block.bias));
    }
    list
}

fn of_experts(of: &Expertise, hidden: u64) -> Vec<Matrix> {
    let experts = of.experts;
    let inner = of.latent.unwrap_or(hidden);
    let mut list = vec![Matrix::copied("w_router", hidden, experts.count).with_bias(of.bias)];
    if of.latent.is_some() {
        list.push(Matrix::copied("w_latent_down", hidden, inner));
        list.push(Matrix::copied("w_latent_up", inner, hidden));
    }
    let block = FeedBlock { width: experts.width, activation: of.activation, bias: false };
    let names = ["w_expert_gate", "w_expert_up", "w_expert_down"];
    let routed = of_block(&block, inner, names).into_iter();
    list.extend(routed.map(|matrix| matrix.of_experts(experts.count, experts.each)));
    if experts.shared > 0 {
        let block = FeedBlock { width: experts.shared, ..block };
        list.extend(of_block(&block, hidden, ["w_shared_gate", "w_shared_up", "w_shared_down"]));
        if experts.shared_gate {
            list.push(Matrix::copied("w_shared_open", hidden, 1));
        }
    }
    list
}

/// Parameters of a model or a part of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Elements {
    /// That tensor ranks divide.
    pub divided: u64,
    /// Of which each rank has a copy.
    pub copied: u64,
}

impl Stack {
    /// Elements of a norm as wide as the model.
    pub fn norm_elements(&self) -> u64 {
        self.hidden * if self.norm == Norm::Layer { 2 } else { 1 }
    }

    /// Elements of the matrices that read and write several residual streams in a layer.
    pub fn stream_elements(&self, kind: &LayerKind) -> u64 {
        if self.streams < 2 { 0 } else { kind.blocks() * self.streams * self.hidden * self.stream_weights() }
    }

    /// Weights of a token for each block: to read the streams, to write them, and to mix them.
    pub fn stream_weights(&self) -> u64 {
        self.streams * (2 + self.streams)
    }

    /// Elements of a layer.
    pub fn layer_elements(&self, kind: &LayerKind) -> Elements {
        let mut sum = Elements {
            divided: 0,
            copied: kind.vectors() + kind.wide_norms() * self.norm_elements() + self.stream_elements(kind),
        };
        for matrix in kind.matrices(self.hidden) {
            let all = matrix.elements() + matrix.bias;
            if matrix.is_divided {
                sum.divided += all;
            } else {
                sum.copied += all;
            }
        }
        sum
    }

    /// Parameters of the model: embeddings, layers, the last norm and the output.
    pub fn parameters(&self) -> u64 {
        let layers = self.kinds.iter().zip(self.all_counts()).map(|(kind, count)| {
            let Elements { divided, copied } = self.layer_elements(kind);
            count * (divided + copied)
        });
        let tables = self.hidden * (self.vocabulary * if self.tied { 1 } else { 2 } + self.positions.unwrap_or(0));
        layers.sum::<u64>() + tables + self.norm_elements() + self.last_streams()
    }

    /// Elements of what brings several streams together behind the layers.
    pub fn last_streams(&self) -> u64 {
        if self.streams < 2 { 0 } else { self.streams * self.streams * self.hidden }
    }
}
