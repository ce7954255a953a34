//! From the options of `rdusim pod` to what is served on which system.

use crate::analysis::{DraftRequest, ServingRequest};
use crate::input::Override;
use crate::model::Phase;

use super::pod::{DraftArgs, PodArgs};

/// What is served: the phase is the one whose model is read.
pub(super) fn request<'a>(args: &'a PodArgs, sets: &'a [Override], phase: Phase) -> ServingRequest<'a> {
    ServingRequest {
        system: &args.system,
        sets,
        model: &args.model,
        parallel: args.parallel.as_deref().unwrap_or_default(),
        stack: args.stack.as_deref(),
        phase,
        batch: args.batch.unwrap_or(1),
        micro_batch: args.micro_batch,
        sequence: args.seq,
        sparsity: args.sparsity,
        draft: draft(&args.draft),
        dtype: args.dtype.as_deref(),
        kv_dtype: args.kv_dtype.as_deref(),
        expert_load: args.expert_load.as_deref(),
        stage_layers: args.stage_layers.as_deref(),
    }
}

/// The model that drafts; clap has seen to it that all is given, or nothing.
fn draft(args: &DraftArgs) -> Option<DraftRequest<'_>> {
    let (model, tokens, accept) = (args.draft.as_deref()?, args.speculate?, args.accept?);
    Some(DraftRequest { model, tokens, accept })
}
