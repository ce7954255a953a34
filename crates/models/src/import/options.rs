//! What an import is asked for, and what it gives.

use std::path::{Path, PathBuf};

use crate::model::{ExpertLoad, Phase};
use rdusim_base::diagnostics::Diagnostic;

use super::expert_load::expert_load;
use rdusim_graph::workload::Graph;

fn ends(path: &Path, ending: &str) -> bool {
    path.extension().is_some_and(|found| found.eq_ignore_ascii_case(ending))
}

/// Whether a file is a model to be imported, by its ending.
pub fn is_model(path: &Path) -> bool {
    is_network(path) || ends(path, "json")
}

/// Whether a file holds a network with its phase and sizes, by its ending: ONNX, or an archive of `torch.export`.
pub fn is_network(path: &Path) -> bool {
    ends(path, "onnx") || is_pt2(path)
}

/// Whether a file is an archive of `torch.export`, by its ending.
pub(super) fn is_pt2(path: &Path) -> bool {
    ends(path, "pt2")
}

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
    /// Of a `config.json` with experts, how tokens fall on them.
    pub expert_load: ExpertLoad,
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

/// A model as a graph, and what goes with it.
#[derive(Debug)]
pub struct Imported {
    /// The graph, and its workload file.
    pub graph: Graph,
    /// The file of masks (safetensors).
    pub masks: Option<Vec<u8>>,
}

/// What a model takes that stands in place of a workload file, as the flags of these names say it.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// `NAME=N`: sizes of dimensions that a model leaves open.
    pub dim: Vec<String>,
    /// Nodes without an operator are taken as elementwise or as boundaries.
    pub skip_unsupported: bool,
    /// Of a `config.json`: what is done with the model; `forward` if not given.
    pub phase: Option<Phase>,
    /// Of a `config.json`: sequences.
    pub batch: Option<u64>,
    /// Of a `config.json`: tokens of a sequence.
    pub seq: Option<u64>,
    /// Of a `config.json`: tokens in the cache when decoding.
    pub context: Option<u64>,
    /// Data type of the workload; `bf16` if not given.
    pub dtype: Option<String>,
    /// Of a `config.json` with experts, how tokens fall on them: `even`, `uniform`, `zipf:A` or a file of a number an expert;
    /// `uniform` if not given.
    pub expert_load: Option<String>,
}

impl Request {
    /// As the importer takes them, for a model of this path.
    ///
    /// # Errors
    /// Sizes that are none, and flags that the model does not take.
    pub fn options(&self, path: &Path) -> Result<Options, Diagnostic> {
        let mut dims: Vec<(String, u64)> = Vec::with_capacity(self.dim.len());
        for text in &self.dim {
            let refused = || {
                Diagnostic::new(format!("`--dim {text}`: expected NAME=N with N from 1 to 2^40"))
                    .with_help("for example `--dim batch=8`")
            };
            let (name, size) = text.rsplit_once('=').ok_or_else(refused)?;
            let size = size.parse().ok().filter(|&size| (1..=1 << 40).contains(&size)).ok_or_else(refused)?;
            if name.is_empty() || dims.iter().any(|(known, _)| known == name) {
                return Err(Diagnostic::new(format!("`--dim {text}`: the name is empty or given twice")));
            }
            dims.push((name.to_owned(), size));
        }
        if is_network(path)
            && let Some(flag) = self.of_a_config()
        {
            let title =
                format!("`{flag}` is for a config.json: `{}` has its phase and its sizes in it", path.display());
            return Err(Diagnostic::new(title).with_help("give open dimensions with `--dim NAME=N`"));
        }
        let sizes =
            [("--batch", "batch", self.batch), ("--seq", "sequence", self.seq), ("--context", "context", self.context)];
        for (flag, name, size) in sizes {
            let Some(size) = size else { continue };
            if !(1..=1 << 40).contains(&size) {
                return Err(Diagnostic::new(format!("`{flag}` is {size}, expected a count from 1 to 2^40")));
            }
            if dims.iter().any(|(known, _)| known == name) {
                return Err(Diagnostic::new(format!("`{flag}` and `--dim {name}=...` say the same: give one of them")));
            }
            dims.push((name.to_owned(), size));
        }
        let dtype = self.dtype.clone().unwrap_or_else(|| "bf16".to_owned());
        let phase = self.phase.unwrap_or_default();
        let expert_load = self.expert_load.as_deref().map_or(Ok(ExpertLoad::default()), expert_load)?;
        Ok(Options { dims, skip_unsupported: self.skip_unsupported, dtype, phase, expert_load, ..Options::default() })
    }

    /// The first flag that only a config.json takes.
    fn of_a_config(&self) -> Option<&'static str> {
        let given = [
            (self.phase.is_some(), "--phase"),
            (self.batch.is_some(), "--batch"),
            (self.seq.is_some(), "--seq"),
            (self.context.is_some(), "--context"),
            (self.expert_load.is_some(), "--expert-load"),
        ];
        given.into_iter().find(|(is_given, _)| *is_given).map(|(_, flag)| flag)
    }

    /// The same for a file that may be a workload: of one, none of this means anything.
    ///
    /// # Errors
    /// As [`Request::options`], and flags of models for a workload.
    pub fn options_for(&self, path: &Path) -> Result<Options, Diagnostic> {
        let of_models = [
            (!self.dim.is_empty(), "--dim"),
            (self.skip_unsupported, "--skip-unsupported"),
            (self.dtype.is_some(), "--dtype"),
        ];
        let flag = of_models.into_iter().find(|(is_given, _)| *is_given).map(|(_, flag)| flag);
        if let Some(flag) = flag.or(self.of_a_config()).filter(|_| !is_model(path)) {
            let title = format!("`{flag}` is for models, and `{}` is a workload file", path.display());
            let help = if flag == "--dtype" { "workload.dtype=TYPE" } else { "workload.dims.NAME=N" };
            return Err(Diagnostic::new(title).with_help(format!("change the file's fields with `--set {help}`")));
        }
        self.options(path)
    }
}
