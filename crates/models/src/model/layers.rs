//! The parts of a layer: attention, with or without latent keys, and the feed-forward block, with or without experts.

use super::experts::{Experts, Router};
use super::extras::Latent;
use super::options::Phase;
use super::preset::{Activation, Position};
use super::write::{Writer, with};
use rdusim_graph::workload::Kept;

impl Writer<'_> {
    pub(super) fn attention(&mut self, h: &str) -> String {
        if let Some(latent) = self.options.architecture.extras.latent {
            return self.latent_attention(h, &latent);
        }
        let a = self.options.architecture;
        let rotary = a.position == Position::Rotary;
        let width = self.query_width();
        // Keys and values first: queries can then go on with their scores.
        let (k, q) = if rotary { ("k_plain", "q_plain") } else { ("k", "q") };
        self.projected("key", (h, "hidden"), "kv_width", k);
        if rotary {
            self.operator("rotate_key", "rotary", &[k], "k", &with().heads("kv_heads"));
        }
        self.linear("value", h, "hidden", "kv_width", "v");
        self.projected("query", (h, "hidden"), width, q);
        if rotary {
            self.operator("rotate_query", "rotary", &[q], "q", &with().heads("heads"));
        }
        if self.keeps() {
            self.tensor("k", "tokens", "kv_width", "output", &Kept::default());
            self.tensor("v", "tokens", "kv_width", "output", &Kept::default());
        }
        if self.part.is_some_and(|part| part.has_no_attention) {
            self.linear("project", "q", width, "hidden", "attended");
            return self.dropped("attended");
        }
        let decoding = self.options.phase == Phase::Decode;
        if decoding && self.part.is_some_and(|part| part.heads_as_rows) {
            self.attention_by_rows("q", width);
            self.linear("project", "o", width, "hidden", "attended");
            return self.dropped("attended");
        }
        let (keys, values) = if decoding {
            // What a token adds is written to the cache, of which it reads the whole.
            self.cache("k_cache", "cached", "kv_width");
            self.cache("v_cache", "cached", "kv_width");
            ("k_cache", "v_cache")
        } else {
            ("k", "v")
        };
        let heads = with().batch("batch").heads("heads").kv_heads("kv_heads").causal(self.is_causal());
        self.operator("scores", "gemm", &["q", keys], "s", &with().transpose_b().and(&heads));
        let probabilities = self.probabilities("s");
        self.operator("mix", "gemm", &[&probabilities, values], "o", &heads);
        self.linear("project", "o", width, "hidden", "attended");
        self.dropped("attended")
    }

    /// Queries or keys, normed where the model does so.
    fn projected(&mut self, name: &str, from: (&str, &str), columns: &str, output: &str) {
        if !self.options.architecture.extras.head_norm {
            self.linear(name, from.0, from.1, columns, output);
            return;
        }
        let plain = format!("{output}_raw");
        self.linear(name, from.0, from.1, columns, &plain);
        self.norm_of(&plain, output, columns);
    }

    fn keeps(&self) -> bool {
        matches!(self.options.phase, Phase::Prefill | Phase::Decode)
    }

    /// Whether a query meets the keys before it alone.
    fn is_causal(&self) -> bool {
        // One new token meets all keys.
        let meets_all = self.options.phase == Phase::Decode && self.new_tokens() == 1;
        self.options.architecture.causal && !meets_all
    }

    /// From scores to probabilities.
    fn probabilities(&mut self, scores: &str) -> String {
        let a = &self.options.architecture;
        let capped = a.extras.capped_scores;
        let mask = if a.causal { ("mask", "causal_mask") } else { ("scale", "scale") };
        if capped {
            self.operator("cap", "tanh", &[scores], "s_capped", &with());
        }
        self.operator(mask.0, mask.1, &[if capped { "s_capped" } else { scores }], "s_masked", &with());
        self.operator("softmax", "softmax", &["s_masked"], "p", &with().heads("heads"));
        if self.part.is_some_and(|part| part.drops_scores) { self.dropped("p") } else { "p".to_owned() }
    }

    /// Latent attention: keys and values are made of a latent vector; when decoding, queries and results go through the
    /// matrices that would make them (DeepSeek-V2, arXiv:2405.04434), so that the cache stays latent.
    fn latent_attention(&mut self, h: &str, latent: &Latent) -> String {
        let decoding = self.options.phase == Phase::Decode;
        self.matrix("w_key_latent", "hidden", "key_latent");
        self.product("key_latent", h, "w_key_latent", "c_raw", None, &with());
        self.norm_of("c_raw", "c", "key_latent");
        self.matrix("w_key_rotated", "hidden", "rotated");
        self.product("key_rotated", h, "w_key_rotated", "kr_plain", None, &with());
        self.operator("rotate_key", "rotary", &["kr_plain"], "kr", &with());
        let (from, rows) = if latent.query.is_some() {
            self.matrix("w_query_latent", "hidden", "query_latent");
            self.product("query_latent", h, "w_query_latent", "cq_raw", None, &with());
            self.norm_of("cq_raw", "cq", "query_latent");
            ("cq", "query_latent")
        } else {
            (h, "hidden")
        };
        self.matrix("w_query", rows, "plain_width");
        self.product("query", from, "w_query", "qn", None, &with());
        self.matrix("w_query_rotated", rows, "rotated_width");
        self.product("query_rotated", from, "w_query_rotated", "qr_plain", None, &with());
        self.operator("rotate_query", "rotary", &["qr_plain"], "qr", &with().heads("heads"));
        if self.keeps() {
            self.tensor("c", "tokens", "key_latent", "output", &Kept::default());
            self.tensor("kr", "tokens", "rotated", "output", &Kept::default());
        }
        let heads = with().batch("batch").heads("heads").causal(self.is_causal());
        let shared = with().and(&heads).kv_heads(1u64);
        if decoding {
            self.cache("c_cache", "cached", "key_latent");
            self.cache("kr_cache", "cached", "rotated");
            self.matrix("w_key_up", "plain", "latent_width");
            self.product("absorb", "qn", "w_key_up", "qc", None, &with().heads("heads"));
            self.operator("scores_plain", "gemm", &["qc", "c_cache"], "s_plain", &with().transpose_b().and(&shared));
            self.operator(
                "scores_rotated",
                "gemm",
                &["qr", "kr_cache"],
                "s_rotated",
                &with().transpose_b().and(&shared),
            );
        } else {
            self.matrix("w_key_up", "key_latent", "plain_width");
            self.product("key_up", "c", "w_key_up", "kn", None, &with());
            self.operator("scores_plain", "gemm", &["qn", "kn"], "s_plain", &with().transpose_b().and(&heads));
            self.operator("scores_rotated", "gemm", &["qr", "kr"], "s_rotated", &with().transpose_b().and(&shared));
        }
        self.operator("add_scores", "add", &["s_plain", "s_rotated"], "s", &with());
        self.probabilities("s");
        if decoding {
            self.operator("mix", "gemm", &["p", "c_cache"], "oc", &shared);
            self.matrix("w_value_up", "key_latent", "value_width");
            self.product("value_up", "oc", "w_value_up", "o", None, &with().heads("heads"));
        } else {
            self.matrix("w_value_up", "key_latent", "value_width");
            self.product("value_up", "c", "w_value_up", "v", None, &with());
            self.operator("mix", "gemm", &["p", "v"], "o", &heads);
        }
        self.linear("project", "o", "value_width", "hidden", "attended");
        self.dropped("attended")
    }

    pub(super) fn feed_forward(&mut self, h: &str) -> String {
        if self.part.is_some_and(|part| part.has_no_feed_forward) {
            return h.to_owned();
        }
        if let Some(router) = self.part.and_then(|part| part.router) {
            return self.routed_block(h, router);
        }
        match self.options.architecture.extras.experts {
            Some(experts) if !self.is_dense_layer() => self.expert_block(h, &experts),
            _ => self.block_of("", h, "ffn"),
        }
    }

    /// A feed-forward block; `part` stands before the names of its tensors and operators.
    fn block_of(&mut self, part: &str, h: &str, width: &str) -> String {
        let named = |name: &str| format!("{part}{name}");
        let (f, g) = (named("f"), named("g"));
        match self.options.architecture.activation {
            Activation::Gelu | Activation::Relu | Activation::SquaredRelu => {
                let kind = if self.options.architecture.activation == Activation::Relu { "relu" } else { "gelu" };
                self.linear(&named("up"), h, "hidden", width, &f);
                self.operator(&named(kind), kind, &[&f], &g, &with());
            }
            Activation::GatedSilu | Activation::GatedGelu => {
                let is_gelu = self.options.architecture.activation == Activation::GatedGelu;
                let kind = if is_gelu { "gelu" } else { "silu" };
                let (gate, open) = (named("f_gate"), named("f_open"));
                self.linear(&named("gate"), h, "hidden", width, &gate);
                self.operator(&named(kind), kind, &[&gate], &open, &with());
                self.linear(&named("up"), h, "hidden", width, &f);
                self.operator(&named("gated"), "mul", &[&open, &f], &g, &with());
            }
        }
        let fed = named("fed");
        self.linear(&named("down"), &g, width, "hidden", &fed);
        self.dropped(&fed)
    }

    /// Experts: the router's logits, the rows of tokens gathered for each expert that a token meets, grouped products with a
    /// matrix an expert, and the rows gathered back and added up for each token.
    fn expert_block(&mut self, h: &str, experts: &Experts) -> String {
        let (met, _) = experts.met_by(self.tokens(), &self.options.expert_load);
        self.matrix("w_router", "hidden", "experts");
        self.operator("router", "gemm", &[h, "w_router"], "routes", &with());
        self.operator("routing", "softmax", &["routes"], "routed", &with());
        self.tensor("ids_experts", "expert_rows", "1", "input", &Kept::of_type("fp32"));
        self.operator("dispatch", "embedding", &["ids_experts", h], "x_experts", &with());
        // Of the rows of all experts, as many hold something as tokens choose one.
        let grouped = with().batch(met).filled_rows("visits");
        for (name, rows, columns) in [
            ("gate", "experts_by_hidden", "expert_width"),
            ("up", "experts_by_hidden", "expert_width"),
            ("down", "experts_by_width", "hidden"),
        ] {
            let weight = format!("w_expert_{name}");
            self.matrix(&weight, rows, columns);
            if met < experts.count {
                // Those that no token meets stay where they are.
                let part = format!("{weight}_met");
                let dtype = self.narrow_of(&weight).map_or_else(Kept::default, |narrow| Kept::of_type(&narrow.dtype));
                self.shaped(&part, &format!("met_{}", &rows["experts_".len()..]), columns, &dtype);
                self.operator(&format!("met_{name}"), "slice", &[&weight], &part, &with());
            }
        }
        let weight = |name: &str| format!("w_expert_{name}{}", if met < experts.count { "_met" } else { "" });
        self.product("expert_gate", "x_experts", &weight("gate"), "e_gate", None, &grouped);
        self.operator("expert_silu", "silu", &["e_gate"], "e_open", &with());
        self.product("expert_up", "x_experts", &weight("up"), "e_up", None, &grouped);
        self.operator("expert_gated", "mul", &["e_open", "e_up"], "e_mid", &with());
        self.product("expert_down", "e_mid", &weight("down"), "e_fed", None, &grouped);
        self.tensor("ids_tokens", "visits", "1", "input", &Kept::of_type("fp32"));
        self.operator("collect", "embedding", &["ids_tokens", "e_fed"], "t_fed", &with());
        let fed = self.combined(experts.each);
        if experts.shared == 0 {
            return fed;
        }
        let mut shared = self.block_of("shared_", h, "shared_width");
        if experts.shared_gate {
            self.matrix("w_shared_open", "hidden", "1");
            self.operator("shared_open", "gemm", &[h, "w_shared_open"], "shared_opening", &with());
            self.operator("shared_sigmoid", "sigmoid", &["shared_opening"], "shared_opened", &with());
            let more = with().heads(1u64);
            self.operator("shared_weigh", "head_scale", &[&shared, "shared_opened"], "shared_weighed", &more);
            "shared_weighed".clone_into(&mut shared);
        }
        self.operator("add_experts", "add", &[&shared, &fed], "fed_by_all", &with());
        "fed_by_all".to_owned()
    }

    /// What a layer with experts has around them where their rows go to other chips and come back: the router, the rows that leave, and
    /// those that come back; and the block that every token meets.
    fn routed_block(&mut self, h: &str, router: Router) -> String {
        self.matrix("w_router", "hidden", &router.experts.to_string());
        self.operator("router", "gemm", &[h, "w_router"], "routes", &with());
        self.operator("routing", "softmax", &["routes"], "routed", &with());
        self.operator("leave", "scale", &[h], "rows_out", &with());
        self.tensor("rows_back", "tokens", "hidden", "input", &Kept::default());
        if !router.has_shared {
            return "rows_back".to_owned();
        }
        let shared = self.block_of("shared_", h, "ffn");
        self.operator("add_experts", "add", &[&shared, "rows_back"], "fed_by_all", &with());
        "fed_by_all".to_owned()
    }
}
