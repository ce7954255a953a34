//! What a `config.json` says of a model that many chips share.

use std::sync::Arc;

use crate::model::{ActivationFormat, Architecture, Stack, Storage};

/// What a `config.json` says of a model, for many chips.
#[derive(Debug, Clone)]
pub struct Checkpoint {
    /// What it is called.
    pub name: String,
    /// Its dimensions.
    pub architecture: Architecture,
    /// Whether the dimensions say all of it; else they are an outline of its layers.
    pub is_whole: bool,
    /// Its layers; none of presets and of families without them.
    pub stack: Option<Arc<Stack>>,
    /// Tokens of a sequence unless others are asked for: at most 2,048.
    pub sequence: u64,
    /// The most tokens of a sequence.
    pub positions: u64,
    /// How its matrices and caches are stored.
    pub storage: Storage,
    /// The data type that activations of the layers' products are quantised to.
    pub activations: Option<ActivationFormat>,
    /// What every result is to say.
    pub notes: Vec<String>,
}
