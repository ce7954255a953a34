//! Blocks that carry a state from token to token, gated delta nets and Mamba-2: references token by token, as the papers have them.

use std::collections::BTreeMap;

use rdusim::verify::drawn;

use crate::blocks::{EPSILON, Layer, Row, Rows, SCALE, dot, gained, graph, mapped, near, rms, sigmoid, silu};

/// The last three inputs of each convolution, the oldest first, as the caches of a decoded row hold them: tap beside tap.
fn held_before<const N: usize>(layer: &Layer, row: usize, names: [&'static str; N]) -> BTreeMap<&'static str, Rows> {
    let of_name = |name: &'static str| {
        let held = &layer.rows(&format!("{name}_cache"))[row];
        (name, (0..3).map(|k| (0..held.len() / 3).map(|c| held[3 * c + k]).collect()).collect())
    };
    names.map(of_name).into()
}

/// The same at the start of a sequence: zeros of so many columns.
fn none_before<const N: usize>(columns: [(&'static str, usize); N]) -> BTreeMap<&'static str, Rows> {
    columns.map(|(name, width)| (name, vec![vec![0.0; width]; 3])).into()
}

const DELTA: &str = r#"{"architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next", "hidden_size": 64,
    "num_hidden_layers": 1, "layer_types": ["linear_attention"], "num_attention_heads": 2, "num_key_value_heads": 1,
    "head_dim": 64, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 64,
    "linear_value_head_dim": 16, "linear_conv_kernel_dim": 4, "intermediate_size": 48, "num_experts": 0,
    "mlp_only_layers": [0], "moe_intermediate_size": 32, "num_experts_per_tok": 2, "shared_expert_intermediate_size": 0,
    "decoder_sparse_step": 1, "vocab_size": 40, "rms_norm_eps": 1e-5, "tie_word_embeddings": false}"#;

/// The gated delta rule (Yang et al. 2024, arXiv:2412.06464, equation 10), token by token from a state:
/// `S = a S (1 - b k k^T) + b v k^T`, `o = S q`, with keys and queries of length 1.
struct DeltaRule<'a> {
    layer: &'a Layer,
    /// Of each head, value by value, the row of its state.
    states: Vec<Rows>,
    /// The last three inputs of each convolution, the oldest first.
    before: BTreeMap<&'static str, Rows>,
}

impl DeltaRule<'_> {
    fn convolved(&mut self, name: &'static str, x: &[f64], weight: &str) -> Row {
        let mut rows = self.before[name].clone();
        rows.push(self.layer.times(x, weight));
        let taps = self.layer.row(&format!("taps_{name}"));
        let made: Row = (0..rows[0].len()).map(|c| (0..4).map(|k| rows[k][c] * taps[4 * c + k]).sum()).collect();
        self.before.insert(name, rows[1..].to_vec());
        silu(&made)
    }

    fn step(&mut self, x: &[f64]) -> Row {
        let (heads, groups, key, value) = (4, 2, 64, 16);
        let q = self.convolved("q", x, "query");
        let k = self.convolved("k", x, "key");
        let v = self.convolved("v", x, "value");
        let unit = |x: &[f64]| -> Row {
            // The norm's constant stands in the mean square.
            let length = (dot(x, x) + key as f64 * EPSILON).sqrt();
            x.iter().map(|x| x / length).collect()
        };
        let beta = self.layer.times(x, "learn");
        let steps = self.layer.times(x, "decay");
        let (bias, log) = (self.layer.row("step_bias"), self.layer.row("a_log"));
        let mut o = Vec::new();
        for head in 0..heads {
            let group = head / (heads / groups);
            let of = group * key..(group + 1) * key;
            let (q, k) = (unit(&q[of.clone()]), unit(&k[of]));
            let a = (-log[head].exp() * (steps[head] + bias[head]).exp().ln_1p()).exp();
            let b = sigmoid(beta[head]);
            for (n, row) in self.states[head].iter_mut().enumerate() {
                let known = dot(row, &k);
                for (s, k) in row.iter_mut().zip(&k) {
                    *s = a * (*s - b * known * k) + b * v[head * value + n] * k;
                }
            }
            o.extend(rms(&self.states[head].iter().map(|row| SCALE * dot(row, &q)).collect::<Row>()));
        }
        let gain = self.layer.row("gain_o_normed");
        let z = silu(&self.layer.times(x, "gate_out"));
        let o: Row = (0..o.len()).map(|c| o[c] * gain[c] * z[c]).collect();
        self.layer.times(&o, "project")
    }

    /// The states side by side, as the cache has them.
    fn flat(&self) -> Row {
        self.states.iter().flatten().flatten().copied().collect()
    }
}

#[test]
fn a_gated_delta_net_is_its_formula() {
    let (heads, key, value) = (4, 64, 16);
    let workload = graph("decode", DELTA, &["--phase", "decode", "--context", "20", "--batch", "3"]);
    let layer = Layer::of(&workload, &drawn(&workload, 3));
    let (mut attended, mut states) = (Vec::new(), Vec::new());
    for (row, x) in layer.rows("x_attention").iter().enumerate() {
        let cache = &layer.rows("state_cache")[row];
        let mut rule = DeltaRule {
            layer: &layer,
            states: cache.chunks(key * value).map(|s| s.chunks(key).map(<[f64]>::to_vec).collect()).collect(),
            before: held_before(&layer, row, ["q", "k", "v"]),
        };
        attended.push(rule.step(x));
        states.push(rule.flat());
    }
    near("decode", &layer.rows("attended"), &attended);
    near("state", &layer.rows("state"), &states);
    mapped("delta decode", &workload);

    for sequence in [1, 4, 16] {
        let tokens = sequence.to_string();
        let workload = graph("prefill", DELTA, &["--phase", "prefill", "--sequence", &tokens, "--batch", "2"]);
        let layer = Layer::of(&workload, &drawn(&workload, 5));
        let (mut attended, mut states) = (Vec::new(), Vec::new());
        for sequence in layer.rows("x_attention").chunks(sequence) {
            let mut rule = DeltaRule {
                layer: &layer,
                states: vec![vec![vec![0.0; key]; value]; heads],
                before: none_before([("q", 128), ("k", 128), ("v", 64)]),
            };
            attended.extend(sequence.iter().map(|x| rule.step(x)));
            states.push(rule.flat());
        }
        near(&format!("prefill of {sequence}"), &layer.rows("attended"), &attended);
        near(&format!("state after {sequence}"), &layer.rows("state"), &states);
    }
    let workload = graph("prefill", DELTA, &["--phase", "prefill", "--sequence", "4", "--batch", "2"]);
    mapped("delta prefill", &workload);
}

const MAMBA: &str = r#"{"architectures": ["Mamba2ForCausalLM"], "model_type": "mamba2", "hidden_size": 64,
    "num_hidden_layers": 1, "num_heads": 4, "head_dim": 32, "expand": 2, "state_size": 16, "n_groups": 2, "conv_kernel": 4,
    "chunk_size": 4, "vocab_size": 40, "use_conv_bias": true, "use_bias": false, "tie_word_embeddings": true}"#;

/// The recurrence of Mamba-2 (Dao and Gu 2024, arXiv:2405.21060, section 2): h = exp(-exp(A) dt) h + dt x B^T, y = h C + D x.
struct StateSpace<'a> {
    layer: &'a Layer,
    states: Vec<Rows>,
    before: BTreeMap<&'static str, Rows>,
}

impl StateSpace<'_> {
    fn convolved(&mut self, name: &'static str, x: &[f64]) -> Row {
        let mut rows = self.before[name].clone();
        rows.push(self.layer.times(x, &format!("{name}_in")));
        let (taps, bias) = (self.layer.row(&format!("taps_{name}")), self.layer.row(&format!("conv_bias_{name}")));
        let sum = |c: usize| bias[c] + (0..4).map(|k| rows[k][c] * taps[4 * c + k]).sum::<f64>();
        let made: Row = (0..rows[0].len()).map(sum).collect();
        self.before.insert(name, rows[1..].to_vec());
        silu(&made)
    }

    fn step(&mut self, h: &[f64]) -> Row {
        let (heads, groups, width, state) = (4, 2, 32, 16);
        let (x, b, c) = (self.convolved("x", h), self.convolved("b", h), self.convolved("c", h));
        let (steps, bias, log) = (self.layer.times(h, "step"), self.layer.row("step_bias"), self.layer.row("a_log"));
        let (skip, z) = (self.layer.row("d_skip"), silu(&self.layer.times(h, "z")));
        let mut y = Vec::new();
        for head in 0..heads {
            let group = head / (heads / groups);
            let of = group * state..(group + 1) * state;
            let dt = (steps[head] + bias[head]).exp().ln_1p();
            let a = (-log[head].exp() * dt).exp();
            for (p, row) in self.states[head].iter_mut().enumerate() {
                let x = x[head * width + p];
                row.iter_mut().zip(&b[of.clone()]).for_each(|(s, b)| *s = a * *s + dt * x * b);
                y.push(dot(row, &c[of.clone()]) + skip[head * width + p] * x);
            }
        }
        let gated: Row = y.iter().zip(&z).map(|(y, z)| y * z).collect();
        self.layer.times(&gained(&gated, &self.layer.row("gain_y_normed_state")), "out")
    }
}

#[test]
fn mamba_2_is_its_formula() {
    let (heads, width, state) = (4, 32, 16);
    let none = || vec![vec![vec![0.0; state]; width]; heads];
    let workload = graph("decode", MAMBA, &["--phase", "decode", "--context", "20", "--batch", "3"]);
    let layer = Layer::of(&workload, &drawn(&workload, 3));
    let mut expected = Vec::new();
    for (row, h) in layer.rows("x_attention").iter().enumerate() {
        let cache = &layer.rows("state_cache")[row];
        let mut space = StateSpace {
            layer: &layer,
            states: cache.chunks(width * state).map(|s| s.chunks(state).map(<[f64]>::to_vec).collect()).collect(),
            before: held_before(&layer, row, ["x", "b", "c"]),
        };
        expected.push(space.step(h));
    }
    near("decode", &layer.rows("recurred"), &expected);
    mapped("mamba decode", &workload);

    let workload = graph("prefill", MAMBA, &["--phase", "prefill", "--sequence", "12", "--batch", "2"]);
    let layer = Layer::of(&workload, &drawn(&workload, 5));
    let mut expected = Vec::new();
    for sequence in layer.rows("x_attention").chunks(12) {
        let before = none_before([("x", 128), ("b", 32), ("c", 32)]);
        let mut space = StateSpace { layer: &layer, states: none(), before };
        expected.extend(sequence.iter().map(|h| space.step(h)));
    }
    near("prefill", &layer.rows("recurred"), &expected);
    mapped("mamba prefill", &workload);
}
