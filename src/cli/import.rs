//! `rdusim import`, and models in place of workload files.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::diagnostics::Diagnostic;
use crate::import::{self, Options, Request};
use crate::report;

use super::failure::Failure;
use super::output;
use super::values::{ModelPhase, ValueType};

pub(super) const IMPORT_EXAMPLES: &str = "\
Examples:
  # the workload file of an exported network
  rdusim import resnet50.onnx -o resnet50.toml
  rdusim import block.pt2 --dim s0=8 -o block.toml

  # sizes of dimensions that the export left open
  rdusim import bert.onnx --dim batch=8 --dim sequence=128 -o bert.toml

  # what is zero in its weights, or an eighth of their blocks of 16 x 16, as masks
  rdusim import pruned.onnx --masks -o pruned.toml
  rdusim import gpt.onnx --density 0.125 --block 16x16 -o gpt.toml

  # a published model by its config.json: one generated token, or a step of training
  rdusim import llama/config.json --phase decode --batch 16 --context 4096

  # without a workload file in between
  rdusim compare --arch sn40l --workload resnet50.onnx
  rdusim compare --arch sn40l --workload qwen3/config.json --phase prefill --batch 4 --seq 1024";

#[derive(Debug, Args)]
pub(super) struct ImportArgs {
    /// The model: an ONNX network, an archive of torch.export (.pt2), or the config.json of a published model
    #[arg(value_name = "FILE")]
    pub(super) file: PathBuf,
    /// Write the workload to this file [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,
    #[command(flatten)]
    pub(super) model: ModelFileArgs,
    /// Store only what is not zero in the weights; masks go into a file beside the workload
    #[arg(long)]
    pub(super) masks: bool,
    /// Prune weights by magnitude to this share of their blocks
    #[arg(long, value_name = "SHARE")]
    pub(super) density: Option<f64>,
    /// Rows and columns of a block of the masks [default: 1x1]
    #[arg(long, value_name = "KxN")]
    pub(super) block: Option<String>,
    /// Do not look for the files of external weights: their shapes are enough without masks
    #[arg(long)]
    pub(super) without_weights: bool,
}

/// What a model takes that stands in place of a workload file.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct ModelFileArgs {
    /// Size of a dimension that a model leaves open; may be repeated
    #[arg(long, value_name = "NAME=N")]
    pub(super) dim: Vec<String>,
    /// Take nodes of a model that no operator stands for as elementwise or as boundaries; results say so
    #[arg(long)]
    pub(super) skip_unsupported: bool,
    /// Of a config.json: what is done with the model [default: forward]
    #[arg(long, value_enum)]
    pub(super) phase: Option<ModelPhase>,
    /// Of a config.json: sequences [default: 1]
    #[arg(long, value_name = "N")]
    pub(super) batch: Option<u64>,
    /// Of a config.json: tokens of a sequence [default: what the model takes, 2048 at most]
    #[arg(long, value_name = "N")]
    pub(super) seq: Option<u64>,
    /// Of a config.json: tokens in the cache when decoding [default: the sequence]
    #[arg(long, value_name = "N")]
    pub(super) context: Option<u64>,
    /// Of a model: data type of the workload [default: bf16]
    #[arg(long, value_enum)]
    pub(super) dtype: Option<ValueType>,
    /// Of a config.json with experts, how tokens fall on them: `even`, `uniform`, `zipf:EXPONENT`, or a file with a number for
    /// each expert [default: uniform]
    #[arg(long, value_name = "LOAD")]
    pub(super) expert_load: Option<String>,
}

impl ModelFileArgs {
    /// As the library takes them.
    pub(super) fn request(&self) -> Request {
        Request {
            dim: self.dim.clone(),
            skip_unsupported: self.skip_unsupported,
            phase: self.phase.map(Into::into),
            batch: self.batch,
            seq: self.seq,
            context: self.context,
            dtype: self.dtype.map(|dtype| crate::units::Dtype::from(dtype).name().to_owned()),
            expert_load: self.expert_load.clone(),
        }
    }

    /// The importer's options for a file that may be a workload.
    pub(super) fn options_for(&self, path: &Path) -> Result<Options, Diagnostic> {
        self.request().options_for(path)
    }
}

/// Writes the workload file of a model, and its masks beside it.
pub(super) fn import(args: &ImportArgs) -> Result<(), Failure> {
    if !import::is_model(&args.file) {
        return Err(Diagnostic::new(format!(
            "`{}` is no model: its name ends in none of .onnx, .pt2 and .json",
            args.file.display()
        ))
        .with_help("other formats have to be exported to one of these first")
        .into());
    }
    let mut options = args.model.request().options(&args.file)?;
    (options.masks, options.density, options.without_weights) = (args.masks, args.density, args.without_weights);
    options.block = args.block.as_deref().map(block).transpose()?;
    if options.block.is_some() && !options.masks && options.density.is_none() {
        return Err(Diagnostic::new("`--block` is the block of masks, and none are asked for")
            .with_help("give `--masks` or `--density`")
            .into());
    }
    let target = args.output.as_deref().map(place).transpose()?;
    options.beside = target.as_ref().map(|(directory, _)| directory.clone());
    options.masks_file = target.as_ref().map(|(_, name)| masks_name(name));
    let imported = import::import(&args.file, &options)?;
    let (Some(path), Some((directory, _))) = (&args.output, target) else {
        return output::print(imported.graph.text().as_bytes());
    };
    if let (Some(bytes), Some(name)) = (imported.masks, options.masks_file) {
        report::write_file(&directory.join(name), &bytes)?;
    }
    Ok(report::write_file(path, imported.graph.text().as_bytes())?)
}

fn masks_name(workload: &str) -> String {
    format!("{}.masks.safetensors", workload.strip_suffix(".toml").unwrap_or(workload))
}

/// Directory and name of a file to be written.
fn place(path: &Path) -> Result<(PathBuf, String), Diagnostic> {
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| Diagnostic::new(format!("`--output {}` names no file", path.display())))?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok((parent.to_owned(), name.to_owned()))
}

fn block(text: &str) -> Result<(u64, u64), Diagnostic> {
    let parsed = || {
        let (rows, columns) = text.split_once('x').unwrap_or((text, text));
        Some((rows.parse().ok().filter(|&n: &u64| n > 0)?, columns.parse().ok().filter(|&n: &u64| n > 0)?))
    };
    parsed().ok_or_else(|| {
        Diagnostic::new(format!("`--block {text}`: expected KxN, rows along K and columns along N"))
            .with_help("for example `--block 16x16`")
    })
}
