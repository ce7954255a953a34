//! Models that people already have, as workload files: ONNX networks, programs of `torch.export`, and the `config.json` of
//! published models.
//!
//! `docs/import.md` is the guide.
//!
//! ```text
//! file ─► wire, proto ─► net ─► infer + fold ─► attention, pattern ─► lower (operators, images, moves over layout) ─► draft ─► TOML
//! .pt2 ─► pt2 (archive, schema, aten) ─┘
//! ```

mod attention;
mod checkpoint;
mod config;
mod constant;
mod defaults;
mod draft;
mod eight_bits;
mod expert_load;
mod families;
mod fold;
mod given;
mod hybrids;
mod image_shapes;
mod images;
mod infer;
mod json;
mod kind_formats;
mod layout;
mod logged;
mod lower;
mod masks;
mod matrix_modules;
mod module_names;
mod module_rules;
mod moves;
mod net;
mod network;
mod onnx;
mod operators;
mod options;
mod pattern;
mod products;
mod proto;
mod pt2;
mod published;
mod quantization;
mod shapes;
mod structure;
mod subject;
#[cfg(test)]
mod tests;
mod wire;

use std::path::Path;

pub use checkpoint::Checkpoint;
pub use expert_load::{expert_load, expert_load_word};
pub use options::{Imported, Options, PHASES, Request, is_model, is_network};
pub use published::{PublishedModel, published, published_models};

use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::input::{Given, Override};
use rdusim_graph::workload::{self, Workload};

/// The workload file of a model.
///
/// # Errors
/// A file that cannot be read or is damaged, dimensions that are open, shapes that contradict each other, nodes without
/// an operator in a workload.
pub fn import(path: &Path, options: &Options) -> Result<Imported, Diagnostic> {
    if path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("json")) || published(path).is_some() {
        return config::import(path, options);
    }
    if options::is_pt2(path) {
        return pt2::import(path, options);
    }
    onnx::import(path, options)
}

/// The model of a `config.json`. Experts stay experts if `keeps_experts`, else those that a token meets are one block. Where it is
/// trained, it is not quantised.
///
/// # Errors
/// A file that cannot be read or names no known family.
pub fn checkpoint(path: &Path, keeps_experts: bool, is_trained: bool) -> Result<Checkpoint, Diagnostic> {
    config::checkpoint(path, keeps_experts, is_trained)
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
    imported.graph.workload_with(&format!("{} (imported)", path.display()), sets, seed)
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
    workload::Template::of_text(&format!("{} (imported)", path.display()), imported.graph.text(), base)
}

/// [`load`] of a file, a model or the text of a workload.
///
/// # Errors
/// What [`load`] refuses.
pub fn take(given: &Given, sets: &[Override], seed: u64, options: &Options) -> Result<Workload, Diagnostic> {
    match given {
        Given::File(path) => load(path, sets, seed, options),
        Given::Text { name, text } => workload::parse(name, text, sets, seed),
    }
}

/// [`template`] of a file, a model or the text of a workload.
///
/// # Errors
/// What [`template`] refuses.
pub fn take_template(given: &Given, base: &[Override], options: &Options) -> Result<workload::Template, Diagnostic> {
    match given {
        Given::File(path) => template(path, base, options),
        Given::Text { name, text } => workload::Template::of_text(name, text, base),
    }
}
