//! The graph of a stack: a block for each kind of layer, those of one kind after those of another.

use super::super::write::{Writer, with};
use super::feed::Feed;
use super::kinds::{LayerKind, Mixer, Stack};
use rdusim_graph::workload::{Extent, Kept};

/// A number as the writer takes extents.
pub(super) fn number(count: u64) -> String {
    count.to_string()
}

/// The name of the block of a kind of layers.
fn block_name(at: usize) -> String {
    format!("layer{at}")
}

impl Stack {
    /// The blocks of layers, and how often each is repeated.
    pub(in crate::model) fn blocks(&self) -> impl Iterator<Item = (String, Extent)> {
        let counts = self.all_counts().into_iter().enumerate();
        counts.filter(|(_, count)| *count > 0).map(|(at, count)| (block_name(at), count.into()))
    }
}

impl Writer<'_> {
    /// All layers; returns what they make.
    pub(in crate::model) fn stack(&mut self, stack: &Stack, x: String) -> String {
        let mut x = if stack.streams > 1 && self.is_the_first() { self.spread(stack, &x) } else { x };
        for (at, count) in stack.all_counts().into_iter().enumerate() {
            if count > 0 {
                let kind = &stack.kinds[at];
                self.open_block(&block_name(at), &format!("l{at}_"), &x, &kind.formats);
                let made = self.stack_layer(stack, kind, &x);
                x = self.close_block(&made);
            }
        }
        if stack.streams > 1 && self.is_the_last() { self.gathered(stack, &x) } else { x }
    }

    /// Copies of the residual stream side by side, element by element.
    fn spread(&mut self, stack: &Stack, x: &str) -> String {
        let mut x = x.to_owned();
        let mut copies = 1;
        while copies < stack.streams {
            copies *= 2;
            let wide = format!("x_{copies}_streams");
            self.operator(&format!("spread_{copies}"), "concat", &[&x, &x], &wide, &with());
            x = wide;
        }
        x
    }

    /// The residual streams brought together.
    fn gathered(&mut self, stack: &Stack, x: &str) -> String {
        self.matrix("w_streams", &number(stack.streams * stack.hidden), &number(stack.streams));
        self.operator("weigh_streams", "gemm", &[x, "w_streams"], "stream_weights", &with());
        self.operator("sigmoid_streams", "sigmoid", &["stream_weights"], "stream_shares", &with());
        self.operator(
            "gather_streams",
            "contract",
            &[x, "stream_shares"],
            "x_gathered",
            &with().heads(1u64).kv_heads(1u64),
        );
        "x_gathered".to_owned()
    }

    fn stack_layer(&mut self, stack: &Stack, kind: &LayerKind, x: &str) -> String {
        let norms = kind.norms;
        let streams = stack.streams > 1;
        let (read, of_mixer) =
            if streams { self.read_streams(stack, x, "mixer") } else { (x.to_owned(), String::new()) };
        let has_feed = kind.feed != Feed::None;
        if kind.mixer == Mixer::None {
            let h = self.normed(norms.before, &read, "x_feed");
            let fed = self.fed(stack, kind, &h, norms.behind);
            return if streams {
                self.write_streams(stack, x, &fed, &of_mixer, "y")
            } else {
                self.sum("add_feed", x, &fed, "y")
            };
        }
        let h = self.normed(norms.before, &read, "x_attention");
        let mixed = self.mixed(stack, kind, &h);
        let mixed = self.normed(norms.behind, &mixed, "attended_normed");
        if norms.parallel && has_feed {
            let fed = self.fed(stack, kind, &h, norms.behind);
            let both = self.sum("add_blocks", &mixed, &fed, "x_blocks");
            return self.sum("add_residual", x, &both, "y");
        }
        if !has_feed {
            return if streams {
                self.write_streams(stack, x, &mixed, &of_mixer, "y")
            } else {
                self.sum("add_attention", x, &mixed, "y")
            };
        }
        if streams {
            let mid = self.write_streams(stack, x, &mixed, &of_mixer, "x_mid");
            let (read, of_feed) = self.read_streams(stack, &mid, "feed");
            let h = self.normed(norms.before, &read, "x_feed");
            let fed = self.fed(stack, kind, &h, norms.behind);
            return self.write_streams(stack, &mid, &fed, &of_feed, "y");
        }
        let mid = self.sum("add_attention", x, &mixed, "x_mid");
        let h = self.normed(norms.before, &mid, "x_feed");
        let fed = self.fed(stack, kind, &h, norms.behind);
        self.sum("add_feed", &mid, &fed, "y")
    }

    fn sum(&mut self, name: &str, a: &str, b: &str, made: &str) -> String {
        self.operator(name, "add", &[a, b], made, &with());
        made.to_owned()
    }

    fn normed(&mut self, is_normed: bool, x: &str, made: &str) -> String {
        if is_normed {
            self.norm(x, made);
            return made.to_owned();
        }
        x.to_owned()
    }

    fn fed(&mut self, stack: &Stack, kind: &LayerKind, h: &str, is_normed: bool) -> String {
        let fed = self.stack_feed(stack.hidden, &kind.feed, h);
        self.normed(is_normed, &fed, "fed_normed")
    }

    /// What mixes tokens.
    fn mixed(&mut self, stack: &Stack, kind: &LayerKind, h: &str) -> String {
        let hidden = stack.hidden;
        match &kind.mixer {
            Mixer::None => h.to_owned(),
            Mixer::Matrix => {
                self.matrix("w_linear", "hidden", "hidden");
                self.product("linear", h, "w_linear", "attended", None, &with());
                "attended".to_owned()
            }
            Mixer::Heads(of) => self.head_attention(h, of, hidden),
            Mixer::Latent(of) => self.latent_heads(h, of),
            Mixer::Compressed(of) => self.compressed_attention(h, of),
            Mixer::Delta(net) => self.delta_rule(h, net),
            Mixer::Lightning(of) => self.lightning(h, of),
            Mixer::Recurrence(mamba) => self.recurrence(h, mamba),
        }
    }

    /// What a block reads of several residual streams, and the weights that it writes them with.
    fn read_streams(&mut self, stack: &Stack, x: &str, block: &str) -> (String, String) {
        let named = |name: &str| format!("{name}_{block}");
        let (weight, made) = (named("w_streams"), named("stream_weights"));
        let (wide, count) = (stack.streams * stack.hidden, stack.stream_weights());
        self.matrix(&weight, &number(wide), &number(count));
        self.operator(&named("weigh_streams"), "gemm", &[x, &weight], &made, &with());
        let shares = named("stream_shares");
        self.operator(&named("sigmoid_streams"), "sigmoid", &[&made], &shares, &with());
        let (to_read, to_write) = (named("read_shares"), named("write_shares"));
        for (name, part) in [("read", &to_read), ("write", &to_write)] {
            self.shaped(part, "tokens", &number(stack.streams), &Kept::default());
            self.operator(&named(&format!("shares_to_{name}")), "slice", &[&shares], part, &with());
        }
        let read = named("x_read");
        self.operator(&named("read_streams"), "contract", &[x, &to_read], &read, &with().heads(1u64).kv_heads(1u64));
        (read, to_write)
    }

    /// The residual streams with what a block made added to each.
    fn write_streams(&mut self, stack: &Stack, x: &str, made: &str, shares: &str, sum: &str) -> String {
        let (out, kept) = (format!("{sum}_written"), format!("{sum}_kept"));
        self.operator(
            &format!("write_streams_{sum}"),
            "outer",
            &[made, shares],
            &out,
            &with().heads(1u64).kv_heads(1u64),
        );
        let heads = with().heads(stack.streams);
        self.operator(&format!("mix_streams_{sum}"), "head_scale", &[x, shares], &kept, &heads);
        self.sum(&format!("add_streams_{sum}"), &kept, &out, sum)
    }
}
