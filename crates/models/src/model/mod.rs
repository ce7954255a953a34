//! Models by their dimensions: presets, and the workload file of a phase.
//!
//! `docs/models.md` names the source of every preset.

mod chip_part;
mod ends;
mod expert_presets;
mod experts;
mod extras;
mod layers;
mod mamba;
mod mamba_layer;
mod mamba_presets;
mod named;
mod options;
mod part;
mod preset;
mod quantised;
mod stack;
mod storage;
mod write;

pub use chip_part::Part;
pub use expert_presets::EXPERT_PRESETS;
pub use experts::{ExpertLoad, Experts, Router, expected_above};
pub use extras::{Extras, Latent};
pub use mamba::{HybridLayers, LayerOrder, Mamba};
pub use mamba_presets::MAMBA_PRESETS;
pub use named::preset;
pub use options::{Options, Phase, Recompute, Sparsity, WeightFile};
pub use part::part_of;
pub use preset::{Activation, Architecture, Norm, PRESETS, Position, Preset};
pub use stack::{
    BlockNorms, Cache, Compressed, Decay, DeltaNet, Divided, Expertise, Feed, FeedBlock, HeadAttention, Indexer,
    LatentAttention, LayerKind, Lightning, MOST_KINDS, Matrix, Mixer, Stack, Window, linear_chunk, outline, plain,
};
pub use storage::{ActivationFormat, LONGEST, Storage, StorageFormat};
pub use write::{describe, write};
