//! Graphs of attention: heads with windows and gates, latent keys, compressed keys, and what chooses the tokens that are seen.
//!
//! With all tokens at once, a window is written as blocks of as many queries as it has tokens, each over as many keys: the products of
//! a token are those of the window, though the first tokens of a sequence see fewer.

use super::super::extras::Latent;
use super::super::options::Phase;
use super::super::write::{Writer, shape, with};
use super::attention::{Compressed, HeadAttention, Indexer, LatentAttention, Window};
use super::write::number;
use rdusim_graph::workload::{Kept, OperatorOptions};

/// How the queries of a sequence meet keys.
struct Meeting {
    /// Instances of the products.
    batch: u64,
    /// Later keys are left out.
    causal: bool,
}

impl Meeting {
    fn options(&self) -> OperatorOptions {
        with().batch(self.batch).causal(self.causal)
    }
}

/// What stands between scores and their shares beside the mask.
#[derive(Clone, Copy, Default)]
struct Turns {
    /// Scores are bounded.
    capped: bool,
    /// Each head has a score of its own that takes part in the softmax.
    has_sinks: bool,
}

/// Heads of a product over keys.
#[derive(Clone, Copy)]
struct Sharing {
    heads: u64,
    kv_heads: u64,
}

impl Writer<'_> {
    /// Tokens that a sequence has in the cache.
    fn context(&self) -> u64 {
        self.options.context
    }

    fn is_decoding(&self) -> bool {
        self.options.phase == Phase::Decode
    }

    fn is_kept(&self) -> bool {
        matches!(self.options.phase, Phase::Prefill | Phase::Decode)
    }

    /// How queries meet the keys of their sequence, of which a window is seen.
    fn meeting(&self, window: Option<Window>) -> Meeting {
        let (batch, sequence) = (self.options.batch, self.options.sequence);
        if self.is_decoding() {
            return Meeting { batch, causal: self.new_tokens() > 1 && window.is_none() };
        }
        let blocks = |window: Window| {
            let most = sequence / window.tokens.max(1);
            let fits = (1..=most).rev().find(|&blocks| sequence.is_multiple_of(blocks));
            fits.filter(|&blocks| blocks > 1 && sequence / blocks < 2 * window.tokens).map(|blocks| (blocks, window))
        };
        match window.filter(|window| window.tokens < sequence).and_then(blocks) {
            Some((blocks, window)) => Meeting { batch: batch * blocks, causal: window.chunked },
            None => Meeting { batch, causal: true },
        }
    }

    /// From queries over keys to what their values make: scores, mask, softmax, mix.
    fn attended(
        &mut self,
        part: &str,
        (q, k, v): (&str, &str, &str),
        sharing: Sharing,
        meeting: &Meeting,
        turns: Turns,
    ) -> String {
        let named = |name: &str| format!("{part}{name}");
        let Sharing { heads, kv_heads } = sharing;
        let more = with().and(&meeting.options()).heads(heads).kv_heads(kv_heads);
        let (s, o) = (named("s"), named("o"));
        self.operator(&named("scores"), "gemm", &[q, k], &s, &with().transpose_b().and(&more));
        let p = self.softmaxed(part, &s, heads, meeting.causal, turns);
        self.operator(&named("mix"), "gemm", &[&p, v], &o, &more);
        o
    }

    fn softmaxed(&mut self, part: &str, scores: &str, heads: u64, causal: bool, turns: Turns) -> String {
        let named = |name: &str| format!("{part}{name}");
        let mut s = scores.to_owned();
        if turns.capped && !self.part.is_some_and(|part| part.has_fused_attention) {
            let bounded = named("s_capped");
            self.operator(&named("cap"), "tanh", &[&s], &bounded, &with());
            s = bounded;
        }
        let (masked, p) = (named("s_masked"), named("p"));
        let mask = if causal || self.is_decoding() { "causal_mask" } else { "scale" };
        self.operator(&named("mask"), mask, &[&s], &masked, &with());
        let mut more = with().heads(heads);
        if turns.has_sinks {
            let sinks = named("sinks");
            self.tensor(&sinks, "1", &number(heads), "weight", &Kept::default());
            more = more.vectors([self.named(&sinks)]);
        }
        self.operator(&named("softmax"), "softmax", &[&masked], &p, &more);
        p
    }

    /// A product of `h`, with a norm and a rotation behind it where asked for.
    fn turned(
        &mut self,
        name: &str,
        (h, rows): (&str, u64),
        (heads, head): (u64, u64),
        of: &HeadAttention,
        made: &str,
    ) {
        let columns = heads * head;
        let steps = [(of.head_norm, "raw"), (of.rotary, "plain")];
        let mut names: Vec<String> =
            steps.iter().filter(|(is_there, _)| *is_there).map(|(_, word)| format!("{made}_{word}")).collect();
        names.push(made.to_owned());
        self.numbered(name, (h, rows), columns, &names[0], of.bias);
        let mut at = 0;
        if of.head_norm {
            self.norm_of(&names[0], &names[1], &number(columns));
            at = 1;
        }
        if of.rotary {
            self.operator(&format!("rotate_{name}"), "rotary", &[&names[at]], made, &with().heads(heads));
        }
    }

    /// Attention with heads of queries, keys and values.
    pub(super) fn head_attention(&mut self, h: &str, of: &HeadAttention, hidden: u64) -> String {
        let HeadAttention { heads, kv_heads, key, value, .. } = *of;
        let tokens_of_window = of.window.map_or(self.context(), |window| window.tokens.min(self.context()));
        let cached = self.options.batch * tokens_of_window;
        let value_name = if of.key_is_value { "k" } else { "v" };
        if !of.shares_cache {
            self.turned("key", (h, hidden), (kv_heads, key), of, "k");
            if !of.key_is_value {
                self.numbered("value", (h, hidden), kv_heads * value, "v", of.bias);
            }
            if self.is_kept() {
                self.tensor("k", "tokens", &number(kv_heads * key), "output", &Kept::default());
                if !of.key_is_value {
                    self.tensor("v", "tokens", &number(kv_heads * value), "output", &Kept::default());
                }
            }
        }
        self.turned("query", (h, hidden), (heads, key), of, "q");
        let meeting = self.meeting(of.window);
        let (mut keys, mut values) = ("k", value_name);
        if self.is_decoding() || of.shares_cache {
            let rows = if self.is_decoding() { cached } else { self.tokens() };
            self.cache("k_cache", &number(rows), &number(kv_heads * key));
            keys = "k_cache";
            values = "k_cache";
            if !of.key_is_value {
                self.cache("v_cache", &number(rows), &number(kv_heads * value));
                values = "v_cache";
            }
        }
        let turns = Turns { capped: of.capped, has_sinks: of.sinks };
        let mut o = self.attended("", ("q", keys, values), Sharing { heads, kv_heads }, &meeting, turns);
        if of.gate > 0 {
            self.numbered("gate_out", (h, hidden), of.gate, "gate_plain", false);
            self.operator("sigmoid_gate", "sigmoid", &["gate_plain"], "gate_open", &with());
            let (kind, more) =
                if of.gate == heads * value { ("mul", with()) } else { ("head_scale", with().heads(of.gate)) };
            self.operator("open_heads", kind, &[&o, "gate_open"], "o_gated", &more);
            "o_gated".clone_into(&mut o);
        }
        self.numbered("project", (&o, heads * value), hidden, "attended", of.output_bias);
        self.dropped("attended")
    }

    /// Scores of index keys, and the tokens that each query chooses by them: its indices are an input, as those of experts are.
    fn chosen(&mut self, from: &str, rows: u64, h: &str, indexer: &Indexer, keys: (&str, u64)) {
        let Indexer { heads, head, top } = *indexer;
        self.matrix("w_index_query", &number(rows), &number(heads * head));
        self.product("index_query", from, "w_index_query", "iq", None, &with());
        self.matrix("w_index_weight", "hidden", &number(heads));
        self.product("index_weight", h, "w_index_weight", "index_weights", None, &with());
        let batch = self.options.batch;
        let (cache, entries) = keys;
        let more = with().transpose_b().batch(batch).heads(heads).kv_heads(1u64);
        self.operator("index_scores", "gemm", &["iq", cache], "is", &more);
        self.operator("index_relu", "relu", &["is"], "is_open", &with());
        self.operator("index_weigh", "head_scale", &["is_open", "index_weights"], "is_weighed", &with().heads(heads));
        self.sized("is_heads", shape(self.tokens() * heads, entries), &Kept::default());
        self.operator("index_heads", "reshape", &["is_weighed"], "is_heads", &with());
        let window = [1, heads];
        let pooled = with().pooled(window);
        self.operator("index_sum", "sum_pool", &["is_heads"], "is_sum", &pooled);
        if entries > top {
            self.sized("chosen", shape(self.tokens(), top), &Kept::default());
            self.operator("choose", "select", &["is_sum"], "chosen", &with());
        }
    }

    /// The rows of a cache that queries choose.
    fn rows_of(&mut self, cache: &str, rows: u64) -> String {
        let (ids, made) = (format!("ids_{cache}"), format!("{cache}_chosen"));
        self.tensor(&ids, &number(rows), "1", "input", &Kept::of_type("fp32"));
        self.operator(&format!("gather_{cache}"), "embedding", &[&ids, cache], &made, &with());
        made
    }

    /// Attention with latent keys and values; decoding, queries and results go through the matrices that would make them, so that the
    /// cache stays latent (DeepSeek-V2, arXiv:2405.04434).
    pub(super) fn latent_heads(&mut self, h: &str, of: &LatentAttention) -> String {
        let LatentAttention { heads, latent, indexer } = *of;
        let Latent { query, key, plain, rotated, value } = latent;
        let hidden = self.options.architecture.hidden;
        self.numbered("key_latent", (h, hidden), key, "c_raw", false);
        self.norm_of("c_raw", "c", &number(key));
        self.numbered("key_rotated", (h, hidden), rotated, "kr_plain", false);
        self.operator("rotate_key", "rotary", &["kr_plain"], "kr", &with());
        let mut from = (h, hidden);
        if let Some(query) = query {
            self.numbered("query_latent", (h, hidden), query, "cq_raw", false);
            self.norm_of("cq_raw", "cq", &number(query));
            from = ("cq", query);
        }
        self.numbered("query", from, heads * plain, "qn", false);
        self.numbered("query_rotated", from, heads * rotated, "qr_plain", false);
        self.operator("rotate_query", "rotary", &["qr_plain"], "qr", &with().heads(heads));
        if self.is_kept() {
            self.tensor("c", "tokens", &number(key), "output", &Kept::default());
            self.tensor("kr", "tokens", &number(rotated), "output", &Kept::default());
        }
        let (batch, context) = (self.options.batch, self.context());
        if let Some(indexer) = indexer {
            self.numbered("index_key", (h, hidden), indexer.head, "ik_raw", false);
            let gain = self.index_norm(indexer.head);
            self.operator("norm_ik", "layer_norm", &["ik_raw"], "ik", &gain);
            let entries = if self.is_decoding() { context } else { self.options.sequence };
            let mut keys = "ik";
            if self.is_kept() {
                self.tensor("ik", "tokens", &number(indexer.head), "output", &Kept::default());
            }
            if self.is_decoding() {
                self.cache("ik_cache", &number(batch * context), &number(indexer.head));
                keys = "ik_cache";
            }
            self.chosen(from.0, from.1, h, &indexer, (keys, entries));
        }
        let shared = Sharing { heads, kv_heads: 1 };
        if self.is_decoding() {
            self.latent_decode(of, shared);
        } else {
            let window = indexer.map(|indexer| Window { tokens: indexer.top, chunked: false });
            let meeting = self.meeting(window);
            let more =
                |sharing: Sharing| with().and(&meeting.options()).heads(sharing.heads).kv_heads(sharing.kv_heads);
            let own = Sharing { heads, kv_heads: heads };
            self.numbered("key_up", ("c", key), heads * plain, "kn", false);
            let turned = |sharing: Sharing| with().transpose_b().and(&more(sharing));
            self.operator("scores_plain", "gemm", &["qn", "kn"], "s_plain", &turned(own));
            self.operator("scores_rotated", "gemm", &["qr", "kr"], "s_rotated", &turned(shared));
            self.operator("add_scores", "add", &["s_plain", "s_rotated"], "s", &with());
            let p = self.softmaxed("", "s", heads, meeting.causal, Turns::default());
            self.numbered("value_up", ("c", key), heads * value, "v", false);
            self.operator("mix", "gemm", &[&p, "v"], "o", &more(own));
        }
        self.numbered("project", ("o", heads * value), hidden, "attended", false);
        self.dropped("attended")
    }

    fn index_norm(&mut self, head: u64) -> OperatorOptions {
        for name in ["gain_ik", "bias_ik"] {
            self.tensor(name, "1", &number(head), "weight", &Kept::default());
        }
        with().vectors([self.named("gain_ik"), self.named("bias_ik")])
    }

    /// Latent attention over the cache, or over the rows of it that each query chooses.
    fn latent_decode(&mut self, of: &LatentAttention, shared: Sharing) {
        let LatentAttention { heads, latent, indexer } = *of;
        let Latent { key, plain, rotated, value, .. } = latent;
        let (batch, context, tokens) = (self.options.batch, self.context(), self.tokens());
        self.cache("c_cache", &number(batch * context), &number(key));
        self.cache("kr_cache", &number(batch * context), &number(rotated));
        self.matrix("w_key_up", &number(plain), &number(heads * key));
        self.product("absorb", "qn", "w_key_up", "qc", None, &with().heads(heads));
        let top = indexer.map(|indexer| indexer.top).filter(|&top| top < context);
        let (mut c, mut kr, mut instances) = ("c_cache".to_owned(), "kr_cache".to_owned(), batch);
        if let Some(top) = top {
            c = self.rows_of("c_cache", tokens * top);
            kr = self.rows_of("kr_cache", tokens * top);
            instances = tokens;
        }
        let causal = self.new_tokens() > 1 && top.is_none();
        let meeting = Meeting { batch: instances, causal };
        let more = with().and(&meeting.options()).heads(shared.heads).kv_heads(shared.kv_heads);
        let turned = with().transpose_b().and(&more);
        self.operator("scores_plain", "gemm", &["qc", &c], "s_plain", &turned);
        self.operator("scores_rotated", "gemm", &["qr", &kr], "s_rotated", &turned);
        self.operator("add_scores", "add", &["s_plain", "s_rotated"], "s", &with());
        let p = self.softmaxed("", "s", heads, causal, Turns::default());
        self.operator("mix", "gemm", &[&p, &c], "oc", &more);
        self.matrix("w_value_up", &number(key), &number(heads * value));
        self.product("value_up", "oc", "w_value_up", "o", None, &with().heads(heads));
    }

    /// Attention over a window and over compressed keys.
    pub(super) fn compressed_attention(&mut self, h: &str, of: &Compressed) -> String {
        let Compressed { heads, head, query, groups, output, window, ratio, indexer } = *of;
        let hidden = self.options.architecture.hidden;
        self.numbered("query_latent", (h, hidden), query, "cq_raw", false);
        self.norm_of("cq_raw", "cq", &number(query));
        self.numbered("query", ("cq", query), heads * head, "q_plain", false);
        self.operator("rotate_query", "rotary", &["q_plain"], "q", &with().heads(heads));
        self.numbered("key", (h, hidden), head, "k_raw", false);
        self.norm_of("k_raw", "k_plain", &number(head));
        self.operator("rotate_key", "rotary", &["k_plain"], "k", &with());
        let (batch, context) = (self.options.batch, self.context());
        let mut keys = "k";
        if self.is_kept() {
            self.tensor("k", "tokens", &number(head), "output", &Kept::default());
        }
        if self.is_decoding() {
            self.cache("k_cache", &number(batch * context.min(window)), &number(head));
            keys = "k_cache";
        }
        let sharing = Sharing { heads, kv_heads: 1 };
        let meeting = self.meeting(Some(Window { tokens: window, chunked: false }));
        let mut o = self.attended("", ("q", keys, keys), sharing, &meeting, Turns::default());
        let tokens = if self.is_decoding() { context } else { self.options.sequence };
        let entries = tokens.checked_div(ratio).unwrap_or(0);
        if ratio > 0 {
            let made = self.compress("", h, of, head, entries);
            let keys = if self.is_decoding() { "kc_cache" } else { made.as_str() };
            if let Some(indexer) = indexer {
                let made = self.compress("index_", h, of, indexer.head, entries);
                let index = if self.is_decoding() { "index_kc_cache" } else { made.as_str() };
                if entries > 0 {
                    self.chosen("cq", query, h, &indexer, (index, entries));
                } else {
                    self.matrix("w_index_query", &number(query), &number(indexer.heads * indexer.head));
                    self.matrix("w_index_weight", "hidden", &number(indexer.heads));
                }
            }
            if entries > 0 {
                let top = indexer.map(|indexer| indexer.top).filter(|&top| top < entries);
                let (mut keys, mut instances) = (keys.to_owned(), batch);
                if let Some(top) = top.filter(|_| self.is_decoding()) {
                    keys = self.rows_of(&keys, self.tokens() * top);
                    instances = self.tokens();
                }
                let meeting = Meeting { batch: instances, causal: false };
                let of_entries = self.attended("far_", ("q", &keys, &keys), sharing, &meeting, Turns::default());
                self.operator("add_far", "add", &[&o, &of_entries], "o_all", &with());
                "o_all".clone_into(&mut o);
            }
        }
        self.matrix("w_group_out", &number(heads * head / groups), &number(groups * output));
        self.product("group_out", &o, "w_group_out", "o_groups", None, &with().heads(groups));
        self.numbered("project", ("o_groups", groups * output), hidden, "attended", false);
        self.dropped("attended")
    }

    /// Compressed keys of so many entries a sequence: products, weights by a softmax, the sum of a run of tokens, a norm.
    fn compress(&mut self, part: &str, h: &str, of: &Compressed, head: u64, entries: u64) -> String {
        let named = |name: &str| format!("{part}{name}");
        let hidden = self.options.architecture.hidden;
        let wide = of.halves() * head;
        let (raw, weights, shares, weighed) =
            (named("kc_raw"), named("kc_weights"), named("kc_shares"), named("kc_weighed"));
        self.numbered(&named("compress"), (h, hidden), wide, &raw, false);
        self.numbered(&named("compress_weight"), (h, hidden), wide, &weights, false);
        let (places, placed, gain) = (named("kc_places"), named("kc_placed"), named("gain_kc"));
        self.tensor(&places, "1", &number(wide), "weight", &Kept::default());
        let vectors = with().vectors([self.named(&places)]);
        self.operator(&named("place"), "bias", &[&weights], &placed, &vectors);
        self.operator(&named("share"), "softmax", &[&placed], &shares, &with());
        self.operator(&named("weigh_runs"), "mul", &[&raw, &shares], &weighed, &with());
        self.tensor(&gain, "1", &number(head), "weight", &Kept::default());
        if self.is_decoding() {
            // Every token adds to a sum, which is an entry once a run of them ends.
            let (own, kept, gain) = (named("kc_own"), named("kc_kept"), self.named(&gain));
            self.sized(&own, shape(self.tokens(), head), &Kept::default());
            self.operator(&named("own_part"), "slice", &[&weighed], &own, &with());
            self.tensor(&kept, "tokens", &number(head), "output", &Kept::default());
            self.operator(&named("norm_kc"), "rms_norm", &[&own], &kept, &with().vectors([&gain]));
            if entries > 0 {
                self.cache(&named("kc_cache"), &number(self.options.batch * entries), &number(head));
            }
            return weighed;
        }
        let made = named("kc");
        if entries > 0 {
            let rows = self.options.batch * entries;
            let folded = named("kc_runs");
            let window = [1, of.ratio * of.halves()];
            self.sized(&folded, shape(rows * of.ratio * of.halves(), head), &Kept::default());
            self.operator(&named("fold"), "reshape", &[&weighed], &folded, &with());
            let more = with().pooled(window);
            let pooled = named("kc_pooled");
            self.operator(&named("pool"), "average_pool", &[&folded], &pooled, &more);
            let gain = self.named(&gain);
            self.operator(&named("norm_kc"), "rms_norm", &[&pooled], &made, &with().vectors([&gain]));
        }
        made
    }
}
