//! The part of a model that one RDU has, as a workload file: what `compile` takes.

use std::fmt::Write as _;

use super::parallel::Job;
use rdusim_base::diagnostics::Diagnostic;
use rdusim_models::model::{
    Activation, Architecture, Experts, Extras, Options, Part, Phase, Position, Router, Sparsity, write_part,
};

/// Which part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Piece {
    /// So many equal layers.
    Layers(u64),
    /// A layer with experts without their products, whose rows leave and come back.
    Routed,
    /// The embedding.
    Embedding,
    /// Last norm, logits and loss.
    Logits,
}

/// The workload file of a part: forward, backward and update, with the sharded widths of one chip.
///
/// # Errors
/// As [`write_part`].
pub(super) fn workload(job: &Job, piece: Piece) -> Result<String, Diagnostic> {
    written(job, piece, false)
}

/// The same for a chip of tiles: in fp16, with dropout.
///
/// # Errors
/// As [`write_part`].
pub(super) fn workload_on_tiles(job: &Job, piece: Piece) -> Result<String, Diagnostic> {
    written(job, piece, true)
}

/// The whole model as one graph, for a chip that has all of it.
///
/// # Errors
/// As [`write_part`].
pub(super) fn whole(job: &Job) -> Result<String, Diagnostic> {
    let options = Options {
        sparsity: job.density.map(|density| Sparsity { density, block: 16 }),
        recompute: job.parallel.recompute,
        ..Options::new("the model on one chip", job.architecture, Phase::Training, job.micro_batch, job.sequence)
    };
    let part =
        Part { has_embedding: true, has_logits: true, micro_batches: Some(job.micro_batches()), ..Part::default() };
    write_part(&options, part)
}

fn written(job: &Job, piece: Piece, on_tiles: bool) -> Result<String, Diagnostic> {
    let layers = if let Piece::Layers(count) = piece { count } else { 1 };
    let options = Options {
        // Only the tokens that are predicted come to the logits.
        sequence: if piece == Piece::Logits { job.predicted_tokens() } else { job.sequence },
        dtype: if on_tiles { "fp16" } else { "bf16" }.to_owned(),
        sparsity: job.density.map(|density| Sparsity { density, block: 16 }),
        recompute: job.parallel.recompute,
        dropout: on_tiles,
        ..Options::new(
            "the part of the model on one chip",
            if piece == Piece::Routed { routed(job) } else { share(job, layers) },
            Phase::Training,
            job.micro_batch,
            job.sequence,
        )
    };
    let part = Part {
        has_embedding: piece == Piece::Embedding,
        has_no_layers: !matches!(piece, Piece::Layers(_) | Piece::Routed),
        router: router(job).filter(|_| piece == Piece::Routed),
        has_logits: piece == Piece::Logits,
        micro_batches: Some(job.micro_batches()),
        drops_scores: on_tiles && !job.parallel.tiled.keeps_scores,
        ..Part::default()
    };
    write_part(&options, part)
}

/// Positions without a table of their own.
const NO_TABLE: Position = Position::Alibi;

/// The widths of a chip's share. The embedding is the table of tokens alone, and the logits have a matrix of their own.
fn share(job: &Job, layers: u64) -> Architecture {
    let (a, t) = (job.architecture, job.parallel.tp1());
    let mut extras = a.extras;
    extras.head_width = Some(a.head());
    Architecture {
        layers,
        hidden: a.hidden / job.parallel.tiled.tp2,
        heads: a.heads / t,
        kv_heads: a.kv_heads / t,
        feed_forward: a.feed_forward / t,
        vocabulary: a.vocabulary.div_ceil(t),
        position: if a.position == Position::Rotary { Position::Rotary } else { NO_TABLE },
        tied: false,
        output: true,
        token_types: 0,
        embedding_norm: false,
        extras: Extras { experts: None, ..extras },
        ..a
    }
}

fn router(job: &Job) -> Option<Router> {
    job.experts().map(|of| Router { experts: of.count, has_shared: of.shared > 0 })
}

/// The widths of a chip's share of a layer with experts, of which the feed-forward block is the one that every token meets.
fn routed(job: &Job) -> Architecture {
    let all = share(job, 1);
    let shared = job.experts().map_or(0, |of| of.shared / job.parallel.tp1());
    Architecture { feed_forward: if shared > 0 { shared } else { all.feed_forward }, ..all }
}

/// Tensors and operators of a workload file.
#[derive(Debug, Default)]
struct Text {
    tensors: String,
    operators: String,
}

impl Text {
    fn tensor(&mut self, name: &str, [rows, columns]: [&str; 2], role: &str) {
        let _ =
            writeln!(self.tensors, "[[tensors]]\nname = {name:?}\nshape = [{rows:?}, {columns:?}]\nrole = {role:?}");
    }

    fn operator(&mut self, name: &str, kind: &str, inputs: &[&str], output: &str, more: &str) {
        let _ = writeln!(
            self.operators,
            "[[operators]]\nname = {name:?}\nkind = {kind:?}\ninputs = {inputs:?}\noutput = {output:?}\n{more}"
        );
    }

    fn with(self, head: &str) -> String {
        format!(
            "schema = 1\nname = \"experts on one chip\"\ndtype = \"bf16\"\n{head}{}{}",
            self.tensors, self.operators
        )
    }
}

/// The workload file of the products of a chip's experts, forward, backward and update, of so many rows each: a program that does not
/// change from batch to batch gives each the rows of the busiest.
pub(super) fn expert_products(job: &Job, experts: &Experts, rows: u64) -> String {
    let (local, width) = (experts.count / job.parallel.experts.ep, experts.width / job.parallel.tp1());
    let hidden = job.architecture.hidden;
    let (mut file, grouped) = (Text::default(), format!("batch = {local}\nblock = \"experts\""));
    let inside = "block = \"experts\"";
    file.tensor("x", ["rows", "hidden"], "input");
    file.tensor("w_up", ["experts_by_hidden", "width"], "weight");
    file.tensor("w_down", ["experts_by_width", "hidden"], "weight");
    file.operator("up", "gemm", &["x", "w_up"], "f", &grouped);
    match job.architecture.activation {
        Activation::GatedSilu | Activation::GatedGelu => {
            let is_gelu = job.architecture.activation == Activation::GatedGelu;
            file.tensor("w_gate", ["experts_by_hidden", "width"], "weight");
            file.operator("gate", "gemm", &["x", "w_gate"], "f_gate", &grouped);
            file.operator("open", if is_gelu { "gelu" } else { "silu" }, &["f_gate"], "f_open", inside);
            file.operator("gated", "mul", &["f_open", "f"], "g", inside);
        }
        Activation::Gelu | Activation::Relu | Activation::SquaredRelu => {
            let is_relu = job.architecture.activation != Activation::Gelu;
            file.operator("activation", if is_relu { "relu" } else { "gelu" }, &["f"], "g", inside);
        }
    }
    file.operator("down", "gemm", &["g", "w_down"], "y", &grouped);
    file.with(&format!(
        "[dims]\nrows = {}\nhidden = {hidden}\nwidth = {width}\nexperts_by_hidden = {}\nexperts_by_width = {}\n\
         [training]\noptimizer = \"adam\"\nactivations = {:?}\nmicro_batches = {}\n[[blocks]]\nname = \"experts\"\nrepeat = 1\n",
        local * rows,
        local * hidden,
        local * width,
        job.parallel.recompute.activations(),
        job.micro_batches()
    ))
}

/// The workload file of what puts rows in order: those that are sent, those that come, of which each expert has as many, those that go
/// back, and their sum for each token. Its gradient moves the same rows by the inverse orders, and is no graph of its own.
pub(super) fn expert_rows(job: &Job, experts: &Experts, (sent, came): (u64, u64)) -> String {
    let tokens = job.micro_batch * job.tokens();
    let mut file = Text::default();
    let mut gather = |index: &str, from: &str, rows: &str, to: &str| {
        let _ = writeln!(
            file.tensors,
            "[[tensors]]\nname = {index:?}\nshape = [{rows:?}, 1]\nrole = \"input\"\ndtype = \"fp32\""
        );
        file.operator(&format!("gather_{to}"), "embedding", &[index, from], to, "");
    };
    gather("ids_sent", "h", "sent", "x_sent");
    // Rows of several senders are ordered by expert, and back.
    let is_ordered = job.parallel.experts.ep > 1 && experts.count > job.parallel.experts.ep;
    if is_ordered {
        gather("ids_came", "x_came", "came", "x_ordered");
        gather("ids_back", "y_ordered", "came", "y_back");
    }
    gather("ids_visits", "y_came", "visits", "visited");
    file.tensor("h", ["tokens", "hidden"], "input");
    file.tensor("y_came", ["sent", "hidden"], "input");
    if is_ordered {
        file.tensor("x_came", ["came", "hidden"], "input");
        file.tensor("y_ordered", ["came", "hidden"], "input");
    }
    file.operator("weigh", "scale", &["visited"], "weighed", "");
    if experts.each > 1 {
        // The experts of a token are neighbours: a sum over a window of them.
        let window = format!("[1, {}]", experts.each);
        let more = format!("image = {window}\nkernel = {window}\nstride = {window}");
        file.operator("combine", "average_pool", &["weighed"], "fed", &more);
    }
    let came = if is_ordered { format!("came = {came}\n") } else { String::new() };
    file.with(&format!(
        "[dims]\ntokens = {tokens}\nsent = {sent}\n{came}visits = {}\nhidden = {}\n",
        tokens * experts.each,
        job.architecture.hidden
    ))
}
