//! What an import is asked for, and what it gives.

use std::path::PathBuf;

use crate::model::Phase;

/// What can be done with the model of a `config.json`, by name.
pub const PHASES: [(&str, Phase); 4] = [
    ("forward", Phase::Forward),
    ("training", Phase::Training),
    ("prefill", Phase::Prefill),
    ("decode", Phase::Decode),
];

/// What an import is asked for.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Sizes of dimensions by name.
    pub dims: Vec<(String, u64)>,
    /// Nodes without an operator are taken as elementwise or as boundaries.
    pub skip_unsupported: bool,
    /// Data type of the workload; `bf16` if empty.
    pub dtype: String,
    /// Zeros of weights become masks.
    pub masks: bool,
    /// Weights are pruned by magnitude to this share of their blocks.
    pub density: Option<f64>,
    /// Rows and columns of a block of a mask.
    pub block: Option<(u64, u64)>,
    /// Name of the file of masks, as the workload names it.
    pub masks_file: Option<String>,
    /// Of a `config.json`, what is done with the model.
    pub phase: Phase,
    /// Directory the workload will lie in, if that is not the model's.
    pub beside: Option<PathBuf>,
    /// Files of external data need not be there.
    pub without_weights: bool,
}

impl Options {
    pub(super) fn dtype(&self) -> &str {
        if self.dtype.is_empty() { "bf16" } else { &self.dtype }
    }
}

/// A workload file, and what goes with it.
#[derive(Debug, Clone)]
pub struct Imported {
    /// The workload file.
    pub text: String,
    /// The file of masks (safetensors).
    pub masks: Option<Vec<u8>>,
}
