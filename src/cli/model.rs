//! `rdusim model`: the workload file of a model.

use crate::diagnostics::Diagnostic;
use crate::model::{Options, Phase, Position, Sparsity, preset, write};
use crate::{report, workload};

use super::args::ModelArgs;
use super::failure::Failure;
use super::output;
use super::values::{ModelPhase, Optimizer};

/// Writes it to a file or standard output.
pub(super) fn model(args: &ModelArgs) -> Result<(), Failure> {
    let (mut architecture, trained_with) = preset(&args.name)?;
    if args.name == "gpt" || args.name == "llama" {
        let given = [("--hidden", args.hidden), ("--layers", args.layers), ("--heads", args.heads)];
        if let Some((flag, _)) = given.into_iter().find(|(_, value)| value.is_none()) {
            let title = format!("`{}` is a family of models: `{flag}` is missing", args.name);
            return Err(Diagnostic::new(title).with_help("give `--hidden`, `--layers` and `--heads`").into());
        }
    }
    let sequence = args.sequence.unwrap_or(trained_with);
    let a = &mut architecture;
    if let Some(hidden) = args.hidden {
        let gated = a.activation == crate::model::Activation::GatedSilu;
        // A gated block of the same size has two thirds of the width, in whole 256s.
        a.feed_forward = if gated { (8 * hidden).div_ceil(3).next_multiple_of(256) } else { hidden.saturating_mul(4) };
        a.hidden = hidden;
    }
    if let Some(heads) = args.heads {
        (a.heads, a.kv_heads) = (heads, heads);
    }
    a.layers = args.layers.unwrap_or(a.layers);
    a.kv_heads = args.kv_heads.unwrap_or(a.kv_heads);
    a.feed_forward = args.ffn.unwrap_or(a.feed_forward);
    a.vocabulary = args.vocabulary.unwrap_or(a.vocabulary);
    if let Position::Learned(rows) = a.position {
        a.position = Position::Learned(rows.max(sequence));
    }
    let phase = args.phase.into();
    let text = write(&Options {
        name: args.name.clone(),
        architecture,
        phase,
        batch: args.batch,
        sequence,
        context: args.context.unwrap_or(sequence),
        dtype: args.dtype.clone(),
        sparsity: args.sparsity.map(|share| Sparsity { density: 1.0 - share, block: args.block }),
        optimizer: match args.optimizer {
            Optimizer::Adam => "adam".to_owned(),
            Optimizer::Sgd => "sgd".to_owned(),
        },
        recompute: args.recompute.into(),
        dropout: args.dropout,
        weights: Vec::new(),
        notes: Vec::new(),
    })?;
    // Whatever the dimensions, `rdusim check` takes the file.
    workload::parse(&format!("the workload of {}", args.name), &text, &[], 0)?;
    match &args.output {
        Some(path) => Ok(report::write_file(path, text.as_bytes())?),
        None => output::print(text.as_bytes()),
    }
}

impl From<ModelPhase> for Phase {
    fn from(phase: ModelPhase) -> Self {
        match phase {
            ModelPhase::Forward => Self::Forward,
            ModelPhase::Training => Self::Training,
            ModelPhase::Decode => Self::Decode,
            ModelPhase::Prefill => Self::Prefill,
        }
    }
}
