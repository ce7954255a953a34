//! What stands before and behind the layers of a model: embedding and logits.

use super::options::Phase;
use super::preset::Position;
use super::write::{Writer, with};
use rdusim_graph::workload::Kept;

impl Writer<'_> {
    /// What has logits in prefill: the first token to be generated follows from the last one of each prompt.
    pub(super) fn last_of_prompts(&mut self, y: String) -> String {
        if self.options.phase == Phase::Prefill && self.options.sequence > 1 {
            return self.last_rows(&y, "batch");
        }
        y
    }

    /// So many rows of `y`, which alone have logits.
    pub(super) fn last_rows(&mut self, y: &str, rows: &str) -> String {
        self.shaped("y_last", rows, "hidden", &Kept::default());
        self.operator("last_tokens", "slice", &[y], "y_last", &with());
        "y_last".to_owned()
    }

    /// The logits of `x`, and in training their loss.
    pub(super) fn logits(&mut self, x: &str) {
        if self.options.architecture.extras.patches.is_some() && self.part.is_none() {
            self.shaped("x_class", "batch", "hidden", &Kept::default());
            self.operator("class_tokens", "slice", &[x], "x_class", &with());
            return self.products_of_logits("x_class");
        }
        self.products_of_logits(x);
    }

    fn products_of_logits(&mut self, x: &str) {
        if self.options.architecture.tied {
            if self.part.is_some_and(|part| !part.has_embedding) {
                self.matrix("w_tokens", "vocabulary", "hidden");
            }
            self.operator("logits", "gemm", &[x, "w_tokens"], "logits", &with().transpose_b());
        } else {
            let format = self.options.stack.as_ref().and_then(|stack| stack.output_format.clone());
            let stored = Kept { storage: format.map(|format| format.stored_in()), ..Kept::default() };
            self.tensor("w_logits", "hidden", "vocabulary", "weight", &stored);
            self.operator("logits", "gemm", &[x, "w_logits"], "logits", &with());
        }
        if self.options.phase == Phase::Training {
            self.tensor("labels", "tokens", "1", "input", &Kept::of_type("fp32"));
            self.operator("loss", "cross_entropy", &["logits", "labels"], "loss", &with());
        }
    }

    pub(super) fn embedding(&mut self) -> String {
        let a = &self.options.architecture;
        if a.extras.patches.is_some() {
            // The class token is a row like those of patches.
            self.tensor("patches", "tokens", "patch", "input", &Kept::default());
            self.linear("patches", "patches", "patch", "hidden", "x_tokens");
        } else {
            self.tensor("ids", "tokens", "1", "input", &Kept::of_type("fp32"));
            self.matrix("w_tokens", "vocabulary", "hidden");
            self.operator("embed_tokens", "embedding", &["ids", "w_tokens"], "x_tokens", &with());
        }
        let mut x = "x_tokens".to_owned();
        let mut tables = Vec::new();
        if let Position::Learned(rows) = a.position {
            tables.push(("positions", rows));
        }
        if a.token_types > 0 {
            tables.push(("types", a.token_types));
        }
        for (name, rows) in tables {
            let (ids, table, part, sum) =
                (format!("ids_{name}"), format!("w_{name}"), format!("x_{name}"), format!("x_with_{name}"));
            self.tensor(&ids, "tokens", "1", "input", &Kept::of_type("fp32"));
            self.matrix(&table, &rows.to_string(), "hidden");
            self.operator(&format!("embed_{name}"), "embedding", &[&ids, &table], &part, &with());
            self.operator(&format!("add_{name}"), "add", &[&x, &part], &sum, &with());
            x = sum;
        }
        if a.embedding_norm {
            self.norm(&x, "x_embedded");
            "x_embedded".clone_into(&mut x);
        }
        x
    }
}
