//! `rdusim model`: the workload file of a model.

use crate::analysis::{ModelRequest, model_text};
use crate::model::{Phase, Storage};
use crate::report;

use super::args::ModelArgs;
use super::failure::Failure;
use super::output;
use super::values::{ModelPhase, Optimizer};

/// Writes it to a file or standard output.
pub(super) fn model(args: &ModelArgs) -> Result<(), Failure> {
    let text = model_text(&ModelRequest {
        name: args.name.clone(),
        phase: args.phase.into(),
        hidden: args.hidden,
        layers: args.layers,
        heads: args.heads,
        kv_heads: args.kv_heads,
        ffn: args.ffn,
        vocabulary: args.vocabulary,
        batch: args.batch,
        sequence: args.sequence,
        context: args.context,
        dtype: args.dtype.clone(),
        sparsity: args.sparsity,
        block: args.block,
        optimizer: match args.optimizer {
            Optimizer::Adam => "adam".to_owned(),
            Optimizer::Sgd => "sgd".to_owned(),
        },
        recompute: args.recompute.into(),
        dropout: args.dropout,
        storage: Storage {
            weights: args.weight_storage.clone(),
            cache: args.cache_storage.clone(),
            ..Storage::default()
        },
        activations: args.activations.clone(),
        chunk: args.chunk,
    })?;
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
