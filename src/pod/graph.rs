//! The part of a model that one RDU has, as a workload file: what `compile` takes.

use super::parallel::Job;
use crate::diagnostics::Diagnostic;
use crate::model::{Architecture, Options, Part, Phase, Position, Sparsity, write_part};

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
            share(job, layers),
            Phase::Training,
            job.micro_batch,
            job.sequence,
        )
    };
    let part = Part {
        has_embedding: piece == Piece::Embedding,
        has_no_layers: !matches!(piece, Piece::Layers(_)),
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
        extras,
        ..a
    }
}
