//! The part of a model that one RDU has, as a graph: what `compile` takes.

use super::parallel::Job;
use rdusim_base::diagnostics::Diagnostic;
use rdusim_graph::workload::{Builder, Graph, Kept, OperatorOptions, TensorFields, Training};
use rdusim_models::model::{
    Activation, Architecture, Experts, Extras, Options, Part, Phase, Position, Router, Sparsity, part_of,
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

/// The graph of a part: forward, backward and update, with the sharded widths of one chip.
///
/// # Errors
/// As [`part_of`].
pub(super) fn workload(job: &Job, piece: Piece) -> Result<Graph, Diagnostic> {
    written(job, piece, false)
}

/// The same for a chip of tiles: in fp16, with dropout.
///
/// # Errors
/// As [`part_of`].
pub(super) fn workload_on_tiles(job: &Job, piece: Piece) -> Result<Graph, Diagnostic> {
    written(job, piece, true)
}

/// The whole model as one graph, for a chip that has all of it.
///
/// # Errors
/// As [`part_of`].
pub(super) fn whole(job: &Job) -> Result<Graph, Diagnostic> {
    let options = Options {
        sparsity: job.density.map(|density| Sparsity { density, block: 16 }),
        recompute: job.parallel.recompute,
        ..Options::new("the model on one chip", job.architecture, Phase::Training, job.micro_batch, job.sequence)
    };
    let part =
        Part { has_embedding: true, has_logits: true, micro_batches: Some(job.micro_batches()), ..Part::default() };
    part_of(&options, part)
}

fn written(job: &Job, piece: Piece, on_tiles: bool) -> Result<Graph, Diagnostic> {
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
    part_of(&options, part)
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

/// The products of a chip's experts, forward, backward and update, of so many rows each: a program that does not change from batch to
/// batch gives each the rows of the busiest.
pub(super) fn expert_products(job: &Job, experts: &Experts, rows: u64) -> Graph {
    let (local, width) = (experts.count / job.parallel.experts.ep, experts.width / job.parallel.tp1());
    let hidden = job.architecture.hidden;
    let mut graph = Builder::new(EXPERTS_ON_ONE_CHIP, "bf16");
    let (grouped, alone) = (OperatorOptions::default().batch(local), OperatorOptions::default());
    graph.tensor("x", ["rows".into(), "hidden".into()], "input");
    graph.tensor("w_up", ["experts_by_hidden".into(), "width".into()], "weight");
    graph.tensor("w_down", ["experts_by_width".into(), "hidden".into()], "weight");
    graph.operator("up", "gemm", &["x", "w_up"], "f", &grouped);
    match job.architecture.activation {
        Activation::GatedSilu | Activation::GatedGelu => {
            let is_gelu = job.architecture.activation == Activation::GatedGelu;
            graph.tensor("w_gate", ["experts_by_hidden".into(), "width".into()], "weight");
            graph.operator("gate", "gemm", &["x", "w_gate"], "f_gate", &grouped);
            graph.operator("open", if is_gelu { "gelu" } else { "silu" }, &["f_gate"], "f_open", &alone);
            graph.operator("gated", "mul", &["f_open", "f"], "g", &alone);
        }
        Activation::Gelu | Activation::Relu | Activation::SquaredRelu => {
            let is_relu = job.architecture.activation != Activation::Gelu;
            graph.operator("activation", if is_relu { "relu" } else { "gelu" }, &["f"], "g", &alone);
        }
    }
    graph.operator("down", "gemm", &["g", "w_down"], "y", &grouped);
    for operator in &mut graph.operators {
        operator.block = Some("experts".to_owned());
    }
    graph.blocks = vec![("experts".to_owned(), 1.into())];
    graph.dims = dims([
        ("rows", local * rows),
        ("hidden", hidden),
        ("width", width),
        ("experts_by_hidden", local * hidden),
        ("experts_by_width", local * width),
    ]);
    graph.training = Some(Training {
        optimizer: "adam".to_owned(),
        activations: job.parallel.recompute.activations().to_owned(),
        micro_batches: Some(job.micro_batches()),
    });
    graph.finish()
}

/// What puts rows in order: the `sent` ones, those that `came`, of which each expert has as many, those that go back, and their sum
/// for each token. Its gradient moves the same rows by the inverse orders, and is no graph of its own.
pub(super) fn expert_rows(job: &Job, experts: &Experts, sent: u64, came: u64) -> Graph {
    let tokens = job.micro_batch * job.tokens();
    let mut graph = Builder::new(EXPERTS_ON_ONE_CHIP, "bf16");
    let alone = OperatorOptions::default();
    let mut gather = |index: &str, from: &str, rows: &str, to: &str| {
        graph.tensors.push(TensorFields {
            name: index.to_owned(),
            shape: Some([rows.into(), 1.into()]),
            role: Some("input"),
            kept: Kept::of_type("fp32"),
        });
        graph.operator(&format!("gather_{to}"), "embedding", &[index, from], to, &alone);
    };
    gather("ids_sent", "h", "sent", "x_sent");
    // Rows of several senders are ordered by expert, and back.
    let is_ordered = job.parallel.experts.ep > 1 && experts.count > job.parallel.experts.ep;
    if is_ordered {
        gather("ids_came", "x_came", "came", "x_ordered");
        gather("ids_back", "y_ordered", "came", "y_back");
    }
    gather("ids_visits", "y_came", "visits", "visited");
    graph.tensor("h", ["tokens".into(), "hidden".into()], "input");
    graph.tensor("y_came", ["sent".into(), "hidden".into()], "input");
    if is_ordered {
        graph.tensor("x_came", ["came".into(), "hidden".into()], "input");
        graph.tensor("y_ordered", ["came".into(), "hidden".into()], "input");
    }
    graph.operator("weigh", "scale", &["visited"], "weighed", &alone);
    if experts.each > 1 {
        // The experts of a token are neighbours: a sum over a window of them.
        let pooled = OperatorOptions::default().pooled([1, experts.each]);
        graph.operator("combine", "average_pool", &["weighed"], "fed", &pooled);
    }
    graph.dims = dims([
        ("tokens", tokens),
        ("sent", sent),
        ("came", came),
        ("visits", tokens * experts.each),
        ("hidden", job.architecture.hidden),
    ]);
    graph.finish()
}

const EXPERTS_ON_ONE_CHIP: &str = "experts on one chip";

fn dims(of: [(&str, u64); 5]) -> Vec<(String, u64)> {
    of.map(|(name, size)| (name.to_owned(), size)).into()
}
