//! The part of a model that one RDU has, as a workload file: what `compile` takes.

use std::fmt::Write as _;

use super::parallel::{Job, Recompute};
use crate::model::{Activation, Norm, Position};

/// Which part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Piece {
    /// So many equal layers.
    Layers(u64),
    /// The embedding.
    Embedding,
    /// Last norm, logits and loss.
    Logits,
}

struct Text<'j> {
    job: &'j Job,
    tensors: String,
    operators: String,
    in_layer: bool,
    seed: u64,
}

/// The workload file of a part: forward, backward and update, with the sharded widths of one chip.
pub(super) fn workload(job: &Job, piece: Piece) -> String {
    let (a, t) = (&job.architecture, job.parallel.tp);
    let mut text = Text { job, tensors: String::new(), operators: String::new(), in_layer: false, seed: 0 };
    match piece {
        Piece::Layers(_) => {
            text.tensor("x", "tokens", "hidden", "input", "");
            text.in_layer = true;
            text.layer();
        }
        Piece::Embedding => {
            text.tensor("ids", "tokens", "1", "input", "\ndtype = \"fp32\"");
            text.tensor("w_tokens", "vocabulary", "hidden", "weight", "");
            text.operator("embed", "embedding", &["ids", "w_tokens"], "y", "");
        }
        Piece::Logits => {
            text.tensor("x", "tokens", "hidden", "input", "");
            text.norm("x", "x_final");
            text.tensor("w_logits", "hidden", "vocabulary", "weight", "");
            text.operator("logits", "gemm", &["x_final", "w_logits"], "logits", "");
            text.tensor("labels", "tokens", "1", "input", "\ndtype = \"fp32\"");
            text.operator("loss", "cross_entropy", &["logits", "labels"], "loss", "");
        }
    }
    let head = a.hidden / a.heads;
    let dims = [
        ("tokens", job.micro_batch * job.sequence),
        ("batch", job.micro_batch),
        ("hidden", a.hidden),
        ("heads", a.heads / t),
        ("kv_heads", a.kv_heads / t),
        ("width", a.heads / t * head),
        ("kv_width", a.kv_heads / t * head),
        ("ffn", a.feed_forward / t),
        ("vocabulary", a.vocabulary.div_ceil(t)),
    ];
    let mut file = String::from("schema = 1\nname = \"part\"\ndtype = \"bf16\"\n\n[dims]\n");
    let is_used =
        |name: &str| text.tensors.contains(&format!("{name:?}")) || text.operators.contains(&format!("{name:?}"));
    for (name, size) in dims.into_iter().filter(|(name, _)| is_used(name)) {
        let _ = writeln!(file, "{name} = {size}");
    }
    let saved = match job.parallel.recompute {
        Recompute::None => "saved",
        Recompute::Selective => "selective",
        Recompute::Full => "recomputed",
    };
    let _ = writeln!(file, "\n[training]\noptimizer = \"adam\"\nactivations = {saved:?}");
    let _ = writeln!(file, "micro_batches = {}", job.micro_batches());
    if let Piece::Layers(count) = piece {
        let _ = writeln!(file, "\n[[blocks]]\nname = \"layer\"\nrepeat = {count}");
    }
    file + &text.tensors + &text.operators
}

impl Text<'_> {
    fn tensor(&mut self, name: &str, rows: &str, columns: &str, role: &str, more: &str) {
        let extent = |e: &str| if e.parse::<u64>().is_ok() { e.to_owned() } else { format!("{e:?}") };
        let (rows, columns) = (extent(rows), extent(columns));
        let _ = writeln!(
            self.tensors,
            "\n[[tensors]]\nname = {name:?}\nshape = [{rows}, {columns}]\nrole = {role:?}{more}"
        );
    }

    fn operator(&mut self, name: &str, kind: &str, inputs: &[&str], output: &str, more: &str) {
        let block = if self.in_layer { "\nblock = \"layer\"" } else { "" };
        let more = if more.is_empty() { String::new() } else { format!("\n{more}") };
        let _ = writeln!(
            self.operators,
            "\n[[operators]]\nname = {name:?}\nkind = {kind:?}\ninputs = {inputs:?}\noutput = {output:?}{more}{block}"
        );
    }

    fn linear(&mut self, name: &str, (from, rows): (&str, &str), columns: &str, output: &str) {
        self.seed += 1;
        let sparsity = self.job.density.map_or_else(String::new, |density| {
            format!(
                "\nsparsity = {{ pattern = \"block\", density = {density:?}, block = [16, 16], seed = {} }}",
                self.seed
            )
        });
        let weight = format!("w_{name}");
        self.tensor(&weight, rows, columns, "weight", &sparsity);
        let mut more = String::new();
        if self.job.architecture.bias {
            let bias = format!("b_{name}");
            self.tensor(&bias, "1", columns, "weight", "");
            more = format!("vectors = [{bias:?}]");
        }
        self.operator(name, "gemm", &[from, &weight], output, &more);
    }

    fn norm(&mut self, from: &str, to: &str) {
        let (name, gain, bias) = (format!("norm_{to}"), format!("gain_{to}"), format!("bias_{to}"));
        self.tensor(&gain, "1", "hidden", "weight", "");
        if self.job.architecture.norm == Norm::Rms {
            self.operator(&name, "rms_norm", &[from], to, &format!("vectors = [{gain:?}]"));
        } else {
            self.tensor(&bias, "1", "hidden", "weight", "");
            self.operator(&name, "layer_norm", &[from], to, &format!("vectors = [{gain:?}, {bias:?}]"));
        }
    }

    fn layer(&mut self) {
        let rotary = self.job.architecture.position == Position::Rotary;
        self.norm("x", "x_attention");
        let (k, q) = if rotary { ("k_plain", "q_plain") } else { ("k", "q") };
        self.linear("key", ("x_attention", "hidden"), "kv_width", k);
        self.linear("value", ("x_attention", "hidden"), "kv_width", "v");
        self.linear("query", ("x_attention", "hidden"), "width", q);
        if rotary {
            self.operator("rotate_key", "rotary", &[k], "k", "heads = \"kv_heads\"");
            self.operator("rotate_query", "rotary", &[q], "q", "heads = \"heads\"");
        }
        let heads = "batch = \"batch\"\nheads = \"heads\"\nkv_heads = \"kv_heads\"\ncausal = true";
        self.operator("scores", "gemm", &["q", "k"], "s", &format!("transpose_b = true\n{heads}"));
        self.operator("mask", "causal_mask", &["s"], "s_masked", "");
        self.operator("softmax", "softmax", &["s_masked"], "p", "heads = \"heads\"");
        self.operator("mix", "gemm", &["p", "v"], "o", heads);
        self.linear("project", ("o", "width"), "hidden", "attended");
        self.operator("add_attention", "add", &["x", "attended"], "x_mid", "");
        self.norm("x_mid", "x_feed");
        if self.job.architecture.activation == Activation::GatedSilu {
            self.linear("gate", ("x_feed", "hidden"), "ffn", "f_gate");
            self.operator("silu", "silu", &["f_gate"], "f_open", "");
            self.linear("up", ("x_feed", "hidden"), "ffn", "f");
            self.operator("gated", "mul", &["f_open", "f"], "g", "");
        } else {
            self.linear("up", ("x_feed", "hidden"), "ffn", "f");
            self.operator("gelu", "gelu", &["f"], "g", "");
        }
        self.linear("down", ("g", "ffn"), "hidden", "fed");
        self.operator("add_feed", "add", &["x_mid", "fed"], "y", "");
    }
}
