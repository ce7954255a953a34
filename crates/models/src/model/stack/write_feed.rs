//! Graphs of feed-forward blocks: dense, and experts with what stands around them.

use super::super::preset::Activation;
use super::super::write::{Writer, shape, with};
use super::feed::{Expertise, Feed, FeedBlock};
use super::write::number;
use crate::model::experts::Experts;
use rdusim_graph::workload::Kept;

impl Writer<'_> {
    /// What a feed-forward block makes of the rows `h`.
    pub(super) fn stack_feed(&mut self, hidden: u64, feed: &Feed, h: &str) -> String {
        match feed {
            Feed::None => h.to_owned(),
            Feed::Matrix => {
                self.matrix("w_feed_linear", "hidden", "hidden");
                self.product("feed_linear", h, "w_feed_linear", "fed", None, &with());
                "fed".to_owned()
            }
            Feed::Dense(block) => self.feed_block("", (h, hidden), block),
            Feed::Experts(of) => self.stack_experts(hidden, of, h),
        }
    }

    /// A product with a matrix and its bias, if it has one.
    pub(super) fn numbered(&mut self, name: &str, from: (&str, u64), columns: u64, made: &str, has_bias: bool) {
        let weight = format!("w_{name}");
        self.matrix(&weight, &number(from.1), &number(columns));
        let mut bias = None;
        if has_bias {
            let vector = format!("b_{name}");
            self.tensor(&vector, "1", &number(columns), "weight", &Kept::default());
            bias = Some(self.named(&vector));
        }
        self.product(name, from.0, &weight, made, bias.as_deref(), &with());
    }

    /// The nonlinear part of a block: what its gate opens, or what stands between its two matrices.
    fn activated(&mut self, part: &str, activation: Activation, from: &str, made: &str) {
        let kind = match activation {
            Activation::Gelu | Activation::GatedGelu => "gelu",
            Activation::Relu | Activation::SquaredRelu => "relu",
            Activation::GatedSilu => "silu",
        };
        if activation == Activation::SquaredRelu {
            let open = format!("{made}_open");
            self.operator(&format!("{part}relu"), kind, &[from], &open, &with());
            self.operator(&format!("{part}square"), "mul", &[&open, &open], made, &with());
        } else {
            self.operator(&format!("{part}{kind}"), kind, &[from], made, &with());
        }
    }

    fn feed_block(&mut self, part: &str, from: (&str, u64), block: &FeedBlock) -> String {
        let named = |name: &str| format!("{part}{name}");
        let (f, g, fed) = (named("f"), named("g"), named("fed"));
        if block.activation.matrices() == 3 {
            let (gate, open) = (named("f_gate"), named("f_open"));
            self.numbered(&named("gate"), from, block.width, &gate, block.bias);
            self.activated(part, block.activation, &gate, &open);
            self.numbered(&named("up"), from, block.width, &f, block.bias);
            self.operator(&named("gated"), "mul", &[&open, &f], &g, &with());
        } else {
            self.numbered(&named("up"), from, block.width, &f, block.bias);
            self.activated(part, block.activation, &f, &g);
        }
        self.numbered(&named("down"), (&g, block.width), from.1, &fed, block.bias);
        fed
    }

    /// Experts: the router, rows gathered for each expert that is met, grouped products, rows gathered back and added up.
    fn stack_experts(&mut self, hidden: u64, of: &Expertise, h: &str) -> String {
        let Experts { count, shared, shared_gate, .. } = of.experts;
        self.numbered("router", (h, hidden), count, "routes", of.bias);
        self.operator("routing", "softmax", &["routes"], "routed", &with());
        let inner = of.latent.unwrap_or(hidden);
        let mut rows = h.to_owned();
        if of.latent.is_some() {
            self.numbered("latent_down", (h, hidden), inner, "x_latent", false);
            "x_latent".clone_into(&mut rows);
        }
        self.routed_products(&of.experts, of, inner, &rows);
        let mut fed = self.combined(of.experts.each);
        if of.latent.is_some() {
            self.numbered("latent_up", (&fed, inner), hidden, "fed_by_latent", false);
            "fed_by_latent".clone_into(&mut fed);
        }
        if shared == 0 {
            return fed;
        }
        let block = FeedBlock { width: shared, activation: of.activation, bias: false };
        let mut beside = self.feed_block("shared_", (h, hidden), &block);
        if shared_gate {
            self.numbered("shared_open", (h, hidden), 1, "shared_opening", false);
            self.operator("shared_sigmoid", "sigmoid", &["shared_opening"], "shared_opened", &with());
            let opened = "shared_weighed";
            self.operator("shared_weigh", "head_scale", &[&beside, "shared_opened"], opened, &with().heads(1u64));
            opened.clone_into(&mut beside);
        }
        self.operator("add_experts", "add", &[&beside, &fed], "fed_by_all", &with());
        "fed_by_all".to_owned()
    }

    /// What the chosen experts made of each token, `t_fed`, times the largest shares of the router's softmax (`DeepSeekMoE`,
    /// arXiv:2401.06066): a token's experts are neighbours, in the order of the experts. Which those are is an input, as in `ids_experts`.
    pub(in crate::model) fn combined(&mut self, each: u64) -> String {
        let (tokens, visits) = (self.tokens(), self.tokens().saturating_mul(each));
        self.sized("shares_by_token", shape(tokens, each), &Kept::default());
        self.operator("choose_experts", "select", &["routed"], "shares_by_token", &with());
        self.sized("shares", shape(visits, 1), &Kept::default());
        self.operator("part_shares", "reshape", &["shares_by_token"], "shares", &with());
        self.operator("weigh", "head_scale", &["t_fed", "shares"], "t_weighed", &with().heads(1u64));
        if each == 1 {
            return "t_weighed".to_owned();
        }
        self.operator("combine", "sum_pool", &["t_weighed"], "fed_by_experts", &with().pooled([1, each]));
        "fed_by_experts".to_owned()
    }

    fn routed_products(&mut self, experts: &Experts, of: &Expertise, inner: u64, rows: &str) {
        let (met, most) = experts.met_by(self.tokens(), &self.options.expert_load);
        let (all, visits) = (met.saturating_mul(most), self.tokens().saturating_mul(experts.each));
        self.tensor("ids_experts", &number(all), "1", "input", &Kept::of_type("fp32"));
        self.operator("dispatch", "embedding", &["ids_experts", rows], "x_experts", &with());
        // Of the rows of all experts, as many hold something as tokens choose one.
        let grouped = with().batch(met).filled_rows(visits);
        let product = |writer: &mut Self, name: &str, from: &str, (depth, columns): (u64, u64), made: &str| {
            let weight = format!("w_expert_{name}");
            writer.matrix(&weight, &number(experts.count * depth), &number(columns));
            let mut read = weight.clone();
            if met < experts.count {
                // Those that no token meets stay where they are.
                read = format!("{weight}_met");
                let dtype = writer.narrow_of(&weight).map_or_else(Kept::default, |narrow| Kept::of_type(&narrow.dtype));
                writer.sized(&read, shape(met * depth, columns), &dtype);
                writer.operator(&format!("met_{name}"), "slice", &[&weight], &read, &with());
            }
            writer.product(&format!("expert_{name}"), from, &read, made, None, &grouped);
        };
        let width = experts.width;
        if of.activation.matrices() == 3 {
            product(self, "gate", "x_experts", (inner, width), "e_gate");
            self.activated("expert_", of.activation, "e_gate", "e_open");
            product(self, "up", "x_experts", (inner, width), "e_up");
            self.operator("expert_gated", "mul", &["e_open", "e_up"], "e_mid", &with());
        } else {
            product(self, "up", "x_experts", (inner, width), "e_up");
            self.activated("expert_", of.activation, "e_up", "e_mid");
        }
        product(self, "down", "e_mid", (width, inner), "e_fed");
        self.tensor("ids_tokens", &number(visits), "1", "input", &Kept::of_type("fp32"));
        self.operator("collect", "embedding", &["ids_tokens", "e_fed"], "t_fed", &with());
    }
}
