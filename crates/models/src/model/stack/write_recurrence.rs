//! Graphs of linear attention: gated delta rules and lightning attention, in chunks of a sequence, or token by token over a state.
//!
//! In chunks a delta rule is written in its WY form (Yang et al. 2024, arXiv:2406.06484): products of a chunk's keys with themselves
//! under the decays between them, the inverse of that triangle and the identity by doubling, and what it makes of values. A sequence of
//! one chunk, and a decoded token, are the rule itself. Of several chunks the products that carry states from one to the next have
//! their shapes, but not their numbers: the transition between chunks is a matrix, which no operator here carries.

use super::super::options::Phase;
use super::super::write::{Writer, shape, with};
use super::recurrence::{Decay, DeltaNet, Lightning, chunk_of};
use super::write::number;
use rdusim_graph::workload::{Kept, OperatorOptions};

/// Heads and widths of states in chunks.
struct InChunks {
    rows: u64,
    batch: u64,
    chunks: u64,
    chunk: u64,
    heads: u64,
    key: u64,
    value: u64,
}

impl Writer<'_> {
    fn chunks(&self, heads: u64, key: u64, value: u64) -> InChunks {
        let (batch, sequence) = (self.options.batch, self.options.sequence);
        let chunk = chunk_of(sequence);
        InChunks { rows: self.tokens(), batch, chunks: batch * (sequence / chunk), chunk, heads, key, value }
    }

    /// A projection, the convolution of its last rows, and its activation.
    fn short_convolved(&mut self, name: &str, from: (&str, u64), net: &DeltaNet) {
        let (heads, columns, taps) = match name {
            "v" => (net.value_heads, net.values(), net.taps),
            _ => (net.key_heads, net.keys(), net.taps),
        };
        let (plain, conv) = (format!("{name}_plain"), format!("{name}_conv"));
        let weight = match name {
            "q" => "query",
            "k" => "key",
            _ => "value",
        };
        self.numbered(weight, from, columns, &plain, false);
        let vector = format!("taps_{name}");
        self.tensor(&vector, "1", &number(columns * taps), "weight", &Kept::default());
        let vectors = with().vectors([self.named(&vector)]);
        if self.options.phase == Phase::Decode && taps > 1 {
            let cache = format!("{name}_cache");
            let rows = number(self.tokens());
            self.tensor(&cache, &rows, &number(columns * (taps - 1)), "input", &Kept::default());
            self.tensor(&plain, &rows, &number(columns), "output", &Kept::default());
            self.operator(&format!("convolve_{name}"), "conv_step", &[&plain, &cache], &conv, &vectors);
        } else {
            let more = with().batch(self.options.batch).and(&vectors);
            self.operator(&format!("convolve_{name}"), "causal_conv", &[&plain], &conv, &more);
        }
        if name == "v" {
            self.operator("silu_v", "silu", &[&conv], name, &with());
            return;
        }
        let open = format!("{name}_open");
        self.operator(&format!("silu_{name}"), "silu", &[&conv], &open, &with());
        self.unit(name, &open, heads);
    }

    /// Heads of queries or keys of length 1, those of queries scaled by the root of their width: a norm times a constant.
    fn unit(&mut self, name: &str, from: &str, heads: u64) {
        let (even, unit) = (format!("{name}_even"), format!("{name}_unit"));
        let is_query = name == "q";
        self.operator(&format!("norm_{name}"), "rms_norm", &[from], &even, &with().heads(heads));
        self.operator(&format!("unit_{name}"), "scale", &[&even], if is_query { &unit } else { name }, &with());
        if is_query {
            self.operator("scale_q", "scale", &[&unit], name, &with());
        }
    }

    /// What a gated delta rule makes of the normed rows `h`.
    pub(super) fn delta_rule(&mut self, h: &str, net: &DeltaNet) -> String {
        let hidden = self.options.architecture.hidden;
        let heads = net.value_heads;
        for name in ["q", "k", "v"] {
            self.short_convolved(name, (h, hidden), net);
        }
        self.numbered("learn", (h, hidden), heads, "learn_plain", false);
        self.operator("learn_rate", "sigmoid", &["learn_plain"], "beta", &with());
        let rates = match net.decay {
            Decay::Head => {
                self.numbered("decay", (h, hidden), heads, "step_plain", false);
                heads
            }
            Decay::Column => {
                self.numbered("decay_latent", (h, hidden), net.key, "decay_narrow", false);
                self.numbered("decay", ("decay_narrow", net.key), net.keys(), "step_plain", false);
                net.keys()
            }
        };
        self.tensor("step_bias", "1", &number(rates), "weight", &Kept::default());
        let bias = self.named("step_bias");
        self.operator("add_step_bias", "bias", &["step_plain"], "step_biased", &with().vectors([bias]));
        self.operator("softplus", "softplus", &["step_biased"], "dt", &with());
        self.tensor("a_log", "1", &number(rates), "weight", &Kept::default());
        let log = self.named("a_log");
        self.operator("decay_factor", "exp_decay", &["dt"], "a_all", &with().vectors([&log]));
        let mut a = "a_all";
        if net.decay == Decay::Column {
            // Factors of columns act on keys and states element by element, as one of each head would.
            self.sized("a_heads", shape(self.tokens(), heads), &Kept::default());
            self.operator("first_factors", "slice", &["a_all"], "a_heads", &with());
            a = "a_heads";
        }
        if self.options.phase == Phase::Decode {
            self.delta_step(net, a);
        } else {
            self.delta_chunks(net, a);
        }
        let values = net.values();
        self.tensor("gain_o_normed", "1", &number(values), "weight", &Kept::default());
        let gain = self.named("gain_o_normed");
        self.operator("norm_o_normed", "rms_norm", &["o_state"], "o_normed", &with().heads(heads).vectors([gain]));
        match net.decay {
            Decay::Head => self.numbered("gate_out", (h, hidden), values, "z", false),
            Decay::Column => {
                self.numbered("gate_latent", (h, hidden), net.value, "z_narrow", false);
                self.numbered("gate_out", ("z_narrow", net.value), values, "z", false);
            }
        }
        self.operator("open_gate", "silu", &["z"], "z_open", &with());
        self.operator("gated_state", "mul", &["o_normed", "z_open"], "o_gated", &with());
        self.numbered("project", ("o_gated", values), hidden, "attended", false);
        self.dropped("attended")
    }

    /// One token of each sequence: the state decays, is asked for the key's value, and learns the difference.
    fn delta_step(&mut self, net: &DeltaNet, a: &str) {
        let (heads, groups) = (net.value_heads, net.key_heads);
        let (by_head, grouped) = (with().heads(heads), with().heads(heads).kv_heads(groups));
        let (rows, columns) = (number(self.tokens()), number(net.state()));
        self.tensor("state_cache", &rows, &columns, "input", &Kept::default());
        self.tensor("state", &rows, &columns, "output", &Kept::default());
        self.operator("decay_state", "head_scale", &["state_cache", a], "state_kept", &by_head);
        self.operator("ask_state", "contract", &["state_kept", "k"], "v_known", &grouped);
        self.operator("difference", "sub", &["v", "v_known"], "v_new", &with());
        self.operator("learned", "head_scale", &["v_new", "beta"], "v_learned", &by_head);
        self.operator("put_in", "outer", &["v_learned", "k"], "u", &grouped);
        self.operator("step_state", "add", &["state_kept", "u"], "state", &with());
        self.operator("take_out", "contract", &["state", "q"], "o_state", &grouped);
    }

    /// All tokens of the sequences, in chunks.
    fn delta_chunks(&mut self, net: &DeltaNet, a: &str) {
        let of = self.chunks(net.value_heads, net.key, net.value);
        let (heads, groups) = (net.value_heads, net.key_heads);
        let causal = with().batch(of.chunks).causal(true);
        let (by_head, grouped) = (with().heads(heads), with().heads(heads).kv_heads(groups));
        let (pairs, of_decay) = (with().heads(groups).transpose_b().and(&causal), grouped.clone().batch(of.chunks));
        let within = with().and(&by_head).and(&causal);
        self.operator("pair_keys", "gemm", &["k", "k"], "kk", &pairs);
        self.operator("decay_pairs", "decay_before", &["kk", a], "kk_before", &of_decay);
        self.operator("learn_pairs", "head_scale", &["kk_before", "beta"], "e_2", &by_head);
        let lost = self.inverted(&of, &within);
        self.operator("learned", "head_scale", &["v", "beta"], "v_beta", &by_head);
        self.operator("lose_values", "gemm", &[&lost, "v_beta"], "v_lost", &within);
        self.operator("new_values", "sub", &["v_beta", "v_lost"], "u", &with());
        let mut new = "u";
        if of.chunks > of.batch {
            self.operator("new_keys", "gemm", &[&lost, "k"], "w", &with().and(&grouped).and(&causal));
            self.states(&of, a, "u", "w");
            let by_chunk = with().and(&by_head).transpose_b().batch(of.chunks);
            self.operator("correct", "gemm", &["w", "s_in"], "u_known", &by_chunk);
            self.operator("add_correction", "sub", &["u", "u_known"], "u_new", &with());
            self.operator("read_state", "gemm", &["w", "s_in"], "o_before", &by_chunk);
            new = "u_new";
        } else if self.options.phase == Phase::Prefill {
            self.state_of_one_chunk(&of, a, groups);
        }
        self.operator("pair_queries", "gemm", &["q", "k"], "qk", &pairs);
        self.operator("decay_queries", "decay_mask", &["qk", a], "qm", &of_decay);
        let made = if of.chunks > of.batch { "o_chunk" } else { "o_state" };
        self.operator("mix_in_chunk", "gemm", &["qm", new], made, &within);
        if of.chunks > of.batch {
            self.operator("add_chunk", "add", &["o_chunk", "o_before"], "o_state", &with());
        }
    }

    /// Of a strictly lower triangle A, which is `e_2`, `1 - inverse(1 + A)`. `1 - e_n` is the sum of all powers of `-A` below n, so
    /// that `e_2n = e_n - A^n + A^n e_n`, and the n-th power of a chunk of n rows is zero.
    fn inverted(&mut self, of: &InChunks, within: &OperatorOptions) -> String {
        let (mut lost, mut power, mut below) = ("e_2".to_owned(), "e_2".to_owned(), 2);
        while below < of.chunk {
            let (square, known, less) = (format!("power_{below}"), format!("known_{below}"), format!("less_{below}"));
            below *= 2;
            let next = format!("e_{below}");
            self.operator(&format!("square_{below}"), "gemm", &[&power, &power], &square, within);
            self.operator(&format!("apply_{below}"), "gemm", &[&square, &lost], &known, within);
            self.operator(&format!("subtract_{below}"), "sub", &[&lost, &square], &less, &with());
            self.operator(&format!("double_{below}"), "add", &[&less, &known], &next, &with());
            (lost, power) = (next, square);
        }
        lost
    }

    /// The state that a sequence of one chunk leaves: each new value, decayed to the chunk's end, with its key.
    fn state_of_one_chunk(&mut self, of: &InChunks, a: &str, groups: u64) {
        let InChunks { rows, chunks, chunk, heads, key, value, .. } = *of;
        let window = with().image([1, chunk]).kernel([1, chunk]).padding([0, 0, 0, chunk - 1]);
        self.sized("a_rest", shape(rows, heads), &Kept::default());
        self.operator("decay_to_end", "rest_product", &[a], "a_rest", &window);
        self.operator("values_to_end", "head_scale", &["u", "a_rest"], "u_end", &with().heads(heads));
        let by_group = with().heads(groups).batch(chunks);
        let each = heads / groups * value;
        self.sized("s_groups", shape(chunks * each, groups * key), &Kept::default());
        let turned = with().heads(groups).transpose_a().batch(chunks);
        self.operator("state_of_chunk", "gemm", &["u_end", "k"], "s_groups", &turned);
        self.sized("s_apart", shape(chunks * groups, each * key), &Kept::default());
        self.operator("group_states", "head_transpose", &["s_groups"], "s_apart", &by_group);
        self.sized("s_flat", shape(chunks, heads * value * key), &Kept::default());
        self.operator("flatten_states", "reshape", &["s_apart"], "s_flat", &with());
        self.tensor("state", &number(chunks), &number(heads * value * key), "output", &Kept::default());
        self.operator("keep_state", "reformat", &["s_flat"], "state", &with());
    }

    /// The state that enters each chunk, from the keys and values that each adds.
    fn states(&mut self, of: &InChunks, a: &str, values: &str, keys: &str) {
        let InChunks { batch, chunks, chunk, heads, key, value, .. } = *of;
        let (fp32, by_chunk) = (&Kept::of_type("fp32"), with().batch(chunks));
        let dtype = Kept::of_type(&self.options.dtype);
        self.sized("s", shape(chunks * value, heads * key), fp32);
        let turned = with().heads(heads).transpose_a().and(&by_chunk);
        self.operator("state_of_chunk", "gemm", &[values, keys], "s", &turned);
        self.sized("a_flat", shape(chunks, chunk * heads), &Kept::default());
        self.operator("flatten_decay", "reshape", &[a], "a_flat", &with());
        self.sized("a_chunk", shape(chunks, heads), &Kept::default());
        self.operator("decay_of_chunk", "slice", &["a_flat"], "a_chunk", &with());
        let by_heads = shape(chunks * heads, value * key);
        self.sized("s_grouped", by_heads, fp32);
        self.operator("group_states", "head_transpose", &["s"], "s_grouped", &with().heads(heads).and(&by_chunk));
        self.sized("s_flat", shape(chunks, heads * value * key), fp32);
        self.operator("flatten_states", "reshape", &["s_grouped"], "s_flat", &with());
        self.sized("s_before", shape(chunks, heads * value * key), &dtype);
        self.operator("scan", "scan_before", &["s_flat", "a_chunk"], "s_before", &with().heads(heads).batch(batch));
        self.sized("s_apart", by_heads, &dtype);
        self.operator("unflatten_states", "reshape", &["s_before"], "s_apart", &with());
        self.sized("s_in", shape(chunks * value, heads * key), &dtype);
        self.operator("ungroup_states", "head_transpose", &["s_apart"], "s_in", &with().heads(value).and(&by_chunk));
        if self.options.phase == Phase::Prefill {
            let state = shape(batch, heads * value * key);
            self.sized("before_last", state, &dtype);
            self.operator("last_before", "slice", &["s_before"], "before_last", &with());
            self.sized("s_last", state, fp32);
            self.operator("last_added", "slice", &["s_flat"], "s_last", &with());
            self.sized("state", state, &dtype);
            self.sized("a_last", shape(batch, heads), &Kept::default());
            self.operator("last_decay", "slice", &["a_chunk"], "a_last", &with());
            self.sized("kept_last", state, fp32);
            self.operator("decay_last", "head_scale", &["before_last", "a_last"], "kept_last", &with().heads(heads));
            self.operator("add_last", "add", &["kept_last", "s_last"], "state", &with());
        }
    }

    /// What lightning attention makes of the normed rows `h`.
    pub(super) fn lightning(&mut self, h: &str, of: &Lightning) -> String {
        let Lightning { heads, head } = *of;
        let hidden = self.options.architecture.hidden;
        let wide = heads * head;
        for (name, made) in [("query", "q"), ("key", "k"), ("value", "v")] {
            let plain = format!("{made}_plain");
            self.numbered(name, (h, hidden), wide, &plain, false);
            self.operator(&format!("silu_{made}"), "silu", &[&plain], made, &with());
        }
        let by_head = with().heads(heads);
        // Factors of heads are constants, which come with the tokens.
        self.tensor("a", &number(self.tokens()), &number(heads), "input", &Kept::default());
        if self.options.phase == Phase::Decode {
            let (rows, columns) = (number(self.tokens()), number(wide * head));
            let grouped = with().heads(heads).kv_heads(heads);
            self.tensor("state_cache", &rows, &columns, "input", &Kept::default());
            self.tensor("state", &rows, &columns, "output", &Kept::default());
            self.operator("decay_state", "head_scale", &["state_cache", "a"], "state_kept", &by_head);
            self.operator("put_in", "outer", &["v", "k"], "u", &grouped);
            self.operator("step_state", "add", &["state_kept", "u"], "state", &with());
            self.operator("take_out", "contract", &["state", "q"], "o_state", &grouped);
        } else {
            let of = self.chunks(heads, head, head);
            let causal = with().batch(of.chunks).causal(true);
            self.operator("pair", "gemm", &["q", "k"], "qk", &with().and(&by_head).transpose_b().and(&causal));
            self.operator("decay_pairs", "decay_mask", &["qk", "a"], "m", &with().and(&by_head).batch(of.chunks));
            self.operator("mix_in_chunk", "gemm", &["m", "v"], "o_chunk", &with().and(&by_head).and(&causal));
            self.states(&of, "a", "v", "k");
            let by_chunk = with().and(&by_head).transpose_b().batch(of.chunks);
            self.operator("read_state", "gemm", &["q", "s_in"], "o_before", &by_chunk);
            self.operator("add_chunk", "add", &["o_chunk", "o_before"], "o_state", &with());
        }
        self.norm_of("o_state", "o_normed", &number(wide));
        self.numbered("gate_out", (h, hidden), wide, "z", false);
        self.operator("open_gate", "sigmoid", &["z"], "z_open", &with());
        self.operator("gated_state", "mul", &["o_normed", "z_open"], "o_gated", &with());
        self.numbered("project", ("o_gated", wide), hidden, "attended", false);
        self.dropped("attended")
    }
}
