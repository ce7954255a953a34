//! Models that people already have, as workload files: ONNX networks and the `config.json` of published models.
//!
//! `docs/import.md` is the guide.
//!
//! ```text
//! file ─► wire, proto ─► net ─► infer + fold ─► pattern ─► lower (operators, moves over layout) ─► draft ─► TOML
//! ```

mod config;
mod constant;
mod draft;
mod fold;
mod infer;
mod layout;
mod lower;
mod masks;
mod moves;
mod net;
mod onnx;
mod operators;
mod pattern;
mod proto;
#[cfg(test)]
mod tests;
mod wire;

use std::path::{Path, PathBuf};

use crate::diagnostics::Diagnostic;
use crate::input::Override;
use crate::model::Phase;
use crate::workload::{self, Workload};

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
    fn dtype(&self) -> &str {
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

/// Whether a file is a model to be imported, by its ending.
pub fn is_model(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("onnx") || ending.eq_ignore_ascii_case("json"))
}

/// The workload file of a model.
///
/// # Errors
/// A file that cannot be read or is damaged, dimensions that are open, shapes that contradict each other, nodes without
/// an operator in a workload.
pub fn import(path: &Path, options: &Options) -> Result<Imported, Diagnostic> {
    if path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("json")) {
        return config::import(path, options);
    }
    onnx::import(path, options)
}

/// Reads a workload file or a model, with the `workload.` overrides among `sets` applied. `seed` goes into every random
/// mask.
///
/// # Errors
/// What [`import`] and [`workload::load`] refuse.
pub fn load(path: &Path, sets: &[Override], seed: u64, options: &Options) -> Result<Workload, Diagnostic> {
    if !is_model(path) {
        return workload::load(path, sets, seed);
    }
    let imported = import(path, options)?;
    workload::parse(&format!("{} (imported)", path.display()), &imported.text, sets, seed)
}

/// The same for a file that is read many times with other overrides.
///
/// # Errors
/// What [`import`] refuses, and files that are no TOML.
pub fn template(path: &Path, base: &[Override], options: &Options) -> Result<workload::Template, Diagnostic> {
    if !is_model(path) {
        return workload::Template::open(path, base);
    }
    let imported = import(path, options)?;
    workload::Template::of_text(&format!("{} (imported)", path.display()), &imported.text, base)
}
