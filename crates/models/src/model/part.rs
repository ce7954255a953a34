//! The part of a model that one chip of many has, as a graph: some layers, with or without what stands before and
//! behind them. The caller gives the widths of the chip's share.

use super::chip_part::Part;
use super::options::{Options, Phase, checked};
use super::write::{Writer, with};
use rdusim_base::diagnostics::Diagnostic;
use rdusim_graph::workload::{Graph, Kept};

/// The graph of a part.
///
/// # Errors
/// As [`super::describe`].
pub fn part_of(options: &Options, part: Part) -> Result<Graph, Diagnostic> {
    checked(options)?;
    let mut writer = Writer::new(options, Some(part));
    writer.part(part);
    Ok(writer.graph())
}

impl Writer<'_> {
    fn part(&mut self, part: Part) {
        let x = if part.has_embedding {
            self.embedding()
        } else {
            // Several residual streams come side by side.
            let streams = self.options.stack.as_ref().map_or(1, |stack| stack.streams);
            let wide = (self.options.architecture.hidden * streams).to_string();
            self.tensor("x", "tokens", if streams > 1 { &wide } else { "hidden" }, "input", &Kept::default());
            "x".to_owned()
        };
        let mut y = if part.has_no_layers { x } else { self.all_layers(x) };
        if !part.has_logits {
            return;
        }
        y = self.last_of_prompts(y);
        if self.options.phase == Phase::Decode && part.sampled.is_some() {
            y = self.last_rows(&y, "sampled");
        }
        self.norm(&y, "x_final");
        self.logits("x_final");
    }

    /// Attention of new tokens `q` over the cache, the queries of a group as rows: returns what the projection reads.
    pub(super) fn attention_by_rows(&mut self, q: &str, width: &str) {
        self.cache("k_cache", "cached_rows", "head");
        self.cache("v_cache", "cached_rows", "head");
        self.shaped("q_rows", "query_rows", "head", &Kept::default());
        self.operator("rows_of_heads", "reshape", &[q], "q_rows", &with());
        let instances = with().batch("instances");
        self.operator("scores", "gemm", &["q_rows", "k_cache"], "s", &with().transpose_b().and(&instances));
        let mask = if self.options.architecture.causal { ("mask", "causal_mask") } else { ("scale", "scale") };
        self.operator(mask.0, mask.1, &["s"], "s_masked", &with());
        self.operator("softmax", "softmax", &["s_masked"], "p", &with());
        self.operator("mix", "gemm", &["p", "v_cache"], "o_rows", &instances);
        self.shaped("o", "tokens", width, &Kept::default());
        self.operator("heads_of_rows", "reshape", &["o_rows"], "o", &with());
    }

    /// Sizes of attention by rows.
    pub(super) fn dims_of_rows(&self) -> [(&'static str, u64); 5] {
        let Options { architecture: a, batch, context, .. } = self.options;
        [
            ("query_rows", self.tokens() * a.heads),
            ("instances", batch * a.kv_heads),
            ("cached_rows", batch * a.kv_heads * context),
            ("head", a.head()),
            ("sampled", self.part.and_then(|part| part.sampled).unwrap_or_default()),
        ]
    }
}
