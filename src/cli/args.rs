//! What can be typed.

use std::path::PathBuf;

use clap::{ArgAction, Args, Parser, Subcommand};

use super::break_even;
use super::import::{IMPORT_EXAMPLES, ImportArgs, ModelFileArgs};
use super::list::{LIST_EXAMPLES, ListArgs, NEW_EXAMPLES, NewArgs};
use super::pod::{POD_EXAMPLES, PodArgs};
use super::prove::{self, CheckProofArgs, ProveArgs};
use super::run_args::{ConfigArgs, RangeArgs, SharedArgs};
use super::study_args;
use super::validate::{self, CalibrateArgs, ValidateArgs};
use super::values::{Fidelity, Format, Mapping, Mode, ModelPhase, Optimizer, Recompute, ValueType};
use crate::model::{ActivationFormat, StorageFormat};

const EXAMPLES: &str = "\
Examples:
  # a feed-forward layer kernel by kernel, with epilogues and fused, side by side
  rdusim compare --arch arch/sn10.toml --workload workloads/gpt13b-mlp.toml

  # the same with twice the tokens; --set changes any field of either file
  rdusim compare --arch arch/sn10.toml --workload workloads/gpt13b-mlp.toml \\
      --set workload.dims.tokens=4096

  # sparse weights, and JSON, CSV and pictures in results/
  rdusim compare --arch arch/sn40l.toml --workload workloads/gpt13b-mlp-sparse.toml --out results

  # one way of running it, as JSON
  rdusim run --mode fused --arch arch/sn10.toml --workload workloads/gpt13b-mlp.toml --format json

  # what do the files hold, and is it right?
  rdusim check arch/sn40l.toml workloads/gpt13b-mlp.toml

  # chips and workloads that come with rdusim have names, which work in any directory
  rdusim list
  rdusim compare --arch sn40l --workload gpt13b-mlp-sparse

Results go to standard output, messages to standard error. Exit code 0: done; 1: a run or a file
could not be finished; 2: arguments or inputs that cannot be used.";

const COMPARE_EXAMPLES: &str = "\
Examples:
  # a table for the terminal
  rdusim compare --arch arch/sn10.toml --workload workloads/gpt13b-mlp.toml

  # what would twice the memory bandwidth do?
  rdusim compare --arch arch/sn10.toml --workload workloads/gpt13b-mlp.toml \\
      --set arch.memory.ddr.bandwidth_gb_per_s=200

  # what would PMUs of other sizes do? a table; with --out DIR a plot and a page too
  rdusim compare --arch sn10 --workload gpt13b-mlp --set arch.pmu.capacity_bytes=64Ki..1Mi*2

  # the same layer on two GPUs beside it
  rdusim compare --arch arch/sn40l.toml --against a100 --against h100 \\
      --workload workloads/gpt13b-mlp.toml

  # a closed-form estimate in place of the simulation, as JSON
  rdusim compare --arch arch/sn10.toml --workload workloads/gpt13b-mlp.toml \\
      --fidelity bound --format json

  # also result.json, sections.csv, traffic.csv; traffic, time and roofline as SVG and PNG
  rdusim compare --arch arch/sn10.toml --workload workloads/gpt13b-mlp.toml --out results";

const RUN_EXAMPLES: &str = "\
Examples:
  # as many operators on the chip at a time as pay
  rdusim run --mode fused --arch arch/sn10.toml --workload workloads/gpt13b-mlp.toml

  # one operator at a time, as JSON
  rdusim run --mode kbk --arch arch/sn10.toml --workload workloads/gpt13b-mlp.toml --format json

  # elementwise operators folded into the GEMM before them, as GPU libraries do
  rdusim run --mode epilogue --arch arch/sn10.toml --workload workloads/gpt13b-mlp.toml

  # keep the configuration, and run it again after an edit by hand
  rdusim run --mode fused --arch arch/sn10.toml --workload workloads/gpt13b-mlp.toml \\
      --save-config mine.toml
  rdusim run --mode fused --arch arch/sn10.toml --workload workloads/gpt13b-mlp.toml \\
      --config mine.toml

  # other random masks, and files in results/
  rdusim run --mode fused --arch arch/sn10.toml --workload workloads/gpt13b-mlp-sparse.toml \\
      --seed 7 --out results";

const MAP_EXAMPLES: &str = "\
Examples:
  # which units do what, where the buffers are, how full the links
  rdusim map --arch arch/sn10.toml --workload workloads/gpt13b-mlp.toml

  # the same one operator at a time; map.json and a picture of the grid for each section in maps/
  rdusim map --mode kbk --arch arch/sn10.toml --workload workloads/gpt13b-mlp.toml --out maps

  # memory and work of all 1,472 tiles of a Bow in its fullest and longest step, drawn in maps/
  rdusim map --arch arch/bow.toml --workload workloads/gpt13b-mlp-sparse.toml --out maps

  # every unit, bank and route, as JSON
  rdusim map --arch arch/sn40l.toml --workload workloads/gpt13b-mlp-sparse.toml --format json";

const MODEL_EXAMPLES: &str = "\
Examples:
  # one training step of GPT-2 XL with 4 of its layers, as a workload file
  rdusim model gpt2-xl --phase training --layers 4 --batch 8 -o gpt2-xl-4.toml

  # a model by its dimensions, its layers' matrices pruned to an eighth in blocks of 16 x 16
  rdusim model gpt --hidden 5120 --layers 40 --heads 40 --sequence 2048 --sparsity 0.875

  # one generated token with 4096 tokens in the cache
  rdusim model llama2-7b --phase decode --context 4096 -o llama2-7b-decode.toml";

const VERIFY_EXAMPLES: &str = "\
Examples:
  # do the configurations of all modes compute what the graph says?
  rdusim verify --arch arch/sn10.toml --workload workloads/gpt13b-mlp.toml

  # a larger part of it, fused only, as JSON
  rdusim verify --arch arch/sn40l.toml --workload workloads/gpt13b-mlp-sparse.toml \\
      --mode fused --max-flops 5000000000 --format json

  # other numbers and masks, in fp32
  rdusim verify --arch arch/sn10.toml --workload workloads/tiny-mlp.toml --seed 7 \\
      --set workload.dtype=fp32";

const SPARSITY_EXAMPLES: &str = "\
Examples:
  # a random mask: density, histograms, imbalance, bytes in each format
  rdusim sparsity unstructured --shape 5120x20480 --density 0.125

  # blocks and N:M
  rdusim sparsity block --block 16x16 --shape 5120x20480 --density 0.125
  rdusim sparsity 2:4 --shape 5120x20480

  # a mask from a file, as JSON, with a picture in mask/
  rdusim sparsity examples/masks/band.smtx --format json --out mask

  # the largest weights of a checkpoint, stored [out, in], in blocks of 4 x 4
  rdusim sparsity examples/masks/layer.safetensors --key w_up --transpose --density 0.25 --block 4x4

  # a weight of a workload file
  rdusim sparsity workloads/gpt13b-mlp-sparse.toml --key w_up";

const REPORT_EXAMPLES: &str = "\
Examples:
  # a page of a result; `--out results` of compare and run writes one too
  rdusim report results/result.json --out report.html

  # two results in one page, side by side, differences marked
  rdusim report before/result.json after/result.json --out both.html";

const CHECK_EXAMPLES: &str = "\
Examples:
  # one line on each file, or what is wrong with it and where
  rdusim check mychip.toml workloads/gpt13b-mlp.toml

  # the same for a chip and a workload by their places
  rdusim check --arch arch/sn10.toml

  # both files
  rdusim check --arch arch/sn10.toml --workload workloads/gpt13b-mlp.toml

  # a file with a field changed
  rdusim check --workload workloads/gpt13b-mlp.toml --set workload.dims.d_ff=10240";

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  # completion in bash from the next session on
  rdusim completions bash > ~/.local/share/bash-completion/completions/rdusim";

/// Simulate a model layer on a dataflow accelerator: kernel by kernel or fused, dense or sparse
#[derive(Debug, Parser)]
#[command(name = "rdusim", version, after_help = EXAMPLES)]
pub(super) struct Cli {
    #[command(subcommand)]
    pub(super) command: Command,
    /// Tell on standard error how long things took; `-vv` what searches, engine and importers did, `-vvv` every run that a search
    /// of mappings measures
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(super) verbose: u8,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Run a workload kernel by kernel, with epilogues and fused, and compare the three
    #[command(after_help = COMPARE_EXAMPLES)]
    Compare(CompareArgs),
    /// Run a workload in one mode
    #[command(after_help = RUN_EXAMPLES)]
    Run(RunArgs),
    /// Show how a workload is laid out on a chip: units, buffers, routes
    #[command(after_help = MAP_EXAMPLES)]
    Map(MapArgs),
    /// Write the workload file of a model: a preset, or `gpt` or `llama` by dimensions
    #[command(after_help = MODEL_EXAMPLES)]
    Model(ModelArgs),
    /// Write the workload file of a model file: an ONNX network, a .pt2 archive, or a config.json
    #[command(after_help = IMPORT_EXAMPLES)]
    Import(ImportArgs),
    /// Run configurations on numbers, and compare the results with a plain reference
    #[command(after_help = VERIFY_EXAMPLES)]
    Verify(VerifyArgs),
    /// Show the numbers of a sparse mask: density, histograms, imbalance, bytes in each format
    #[command(after_help = SPARSITY_EXAMPLES)]
    Sparsity(SparsityArgs),
    /// Simulate published measurements, and show the errors
    #[command(after_help = validate::VALIDATE_EXAMPLES)]
    Validate(ValidateArgs),
    /// Fit the `vendor` limits of a chip file to published measurements
    #[command(after_help = validate::CALIBRATE_EXAMPLES)]
    Calibrate(CalibrateArgs),
    /// Say what bounds each section, and what one more of each resource would buy
    #[command(after_help = study_args::EXPLAIN_EXAMPLES)]
    Explain(study_args::ExplainArgs),
    /// Run a what-if study: axes over any field, in parallel, resumable
    #[command(after_help = study_args::SWEEP_EXAMPLES)]
    Sweep(study_args::SweepArgs),
    /// Join the shards of a study
    #[command(after_help = study_args::MERGE_EXAMPLES)]
    Merge(study_args::MergeArgs),
    /// Find where two chips take as long, along a field of the chip or of the workload
    #[command(after_help = break_even::BREAK_EVEN_EXAMPLES)]
    BreakEven(break_even::BreakEvenArgs),
    /// Say what changed between two results, and why
    #[command(after_help = study_args::DIFF_EXAMPLES)]
    Diff(study_args::DiffArgs),
    /// Make a page to look at from saved results
    #[command(after_help = REPORT_EXAMPLES)]
    Report(ReportArgs),
    /// Read input files of any kind, and say what they hold
    #[command(after_help = CHECK_EXAMPLES)]
    Check(CheckArgs),
    /// Show what comes with rdusim: chips, systems, workloads, studies and models by name
    #[command(after_help = LIST_EXAMPLES)]
    List(ListArgs),
    /// Write a file of your own that begins as a copy of one that comes with rdusim
    #[command(after_help = NEW_EXAMPLES)]
    New(NewArgs),
    /// Train or serve a model on many chips: stages, links, memory
    #[command(after_help = POD_EXAMPLES)]
    Pod(Box<PodArgs>),
    /// Write a certificate: how far a mapping is from what no mapping beats
    #[command(after_help = prove::PROVE_EXAMPLES)]
    Prove(ProveArgs),
    /// Check a certificate: its bounds, and that they cover all mappings
    #[command(after_help = prove::CHECK_EXAMPLES)]
    CheckProof(CheckProofArgs),
    /// Print a completion script for a shell
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions {
        /// Shell to complete in
        shell: clap_complete::Shell,
    },
}

#[derive(Debug, Args)]
pub(super) struct CompareArgs {
    /// Chip file or built-in name of another chip, to be shown beside the first; may be repeated, or a list with commas
    #[arg(long, value_name = "FILE", value_delimiter = ',')]
    pub(super) against: Vec<PathBuf>,
    #[command(flatten)]
    pub(super) shared: SharedArgs,
    #[command(flatten)]
    pub(super) ranges: RangeArgs,
}

#[derive(Debug, Args)]
pub(super) struct RunArgs {
    /// How the graph is cut into sections
    #[arg(long, value_enum)]
    pub(super) mode: Mode,
    #[command(flatten)]
    pub(super) shared: SharedArgs,
    #[command(flatten)]
    pub(super) ranges: RangeArgs,
}

#[derive(Debug, Args)]
pub(super) struct MapArgs {
    /// How the graph is cut into sections
    #[arg(long, value_enum, default_value_t = Mode::Fused)]
    pub(super) mode: Mode,
    /// Chip file (TOML), or a built-in name
    #[arg(long, value_name = "FILE")]
    pub(super) arch: PathBuf,
    /// Workload file (TOML), a built-in name, or a model (.onnx, .pt2, config.json)
    #[arg(long, value_name = "FILE")]
    pub(super) workload: PathBuf,
    #[command(flatten)]
    pub(super) model: ModelFileArgs,
    /// Change a field: arch.PATH=VALUE or workload.PATH=VALUE; may be repeated
    #[arg(long, value_name = "PATH=VALUE")]
    pub(super) set: Vec<String>,
    /// How good the mapping is taken to be
    #[arg(long, value_enum, default_value_t = Mapping::Ideal)]
    pub(super) mapping: Mapping,
    /// Seed of random masks and of the compiler's choices
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(super) seed: u64,
    /// Also write JSON, a picture of each section and a page into this directory
    #[arg(long, value_name = "DIR")]
    pub(super) out: Option<PathBuf>,
    #[command(flatten)]
    pub(super) configuration: ConfigArgs,
    /// Form of the result on standard output
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(super) format: Format,
    /// Of a chip of tiles: the step to draw, `OPERATOR` or `OPERATOR.STEP`; may be repeated [default: the fullest and the longest]
    #[arg(long, value_name = "NAME")]
    pub(super) step: Vec<String>,
    /// How closely the time of the stages is modelled
    #[arg(long, value_enum, default_value_t = Fidelity::Event)]
    pub(super) fidelity: Fidelity,
    /// Write a timeline of the event engine that Perfetto and Chrome open (JSON)
    #[arg(long, value_name = "FILE")]
    pub(super) trace: Option<PathBuf>,
    /// Simulate every event, even where the run only repeats itself: the same result, in more time
    #[arg(long)]
    pub(super) no_skip: bool,
}

#[derive(Debug, Args)]
pub(super) struct ModelArgs {
    /// A preset or a published model by its name (`rdusim list` shows all), `gpt` or `llama` by dimensions, or a config.json
    #[arg(value_name = "NAME")]
    pub(super) name: String,
    /// What is done with it
    #[arg(long, value_enum, default_value_t = ModelPhase::Forward)]
    pub(super) phase: ModelPhase,
    /// Width of the residual stream
    #[arg(long, value_name = "N")]
    pub(super) hidden: Option<u64>,
    /// Layers
    #[arg(long, value_name = "N")]
    pub(super) layers: Option<u64>,
    /// Query heads
    #[arg(long, value_name = "N")]
    pub(super) heads: Option<u64>,
    /// Key and value heads [default: the query heads]
    #[arg(long, value_name = "N")]
    pub(super) kv_heads: Option<u64>,
    /// Width of the feed-forward block [default: 4 x hidden]
    #[arg(long, value_name = "N")]
    pub(super) ffn: Option<u64>,
    /// Rows of the token table
    #[arg(long, value_name = "N")]
    pub(super) vocabulary: Option<u64>,
    /// Sequences
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) batch: u64,
    /// Tokens of a sequence [default: the model's]
    #[arg(long, alias = "seq", value_name = "N")]
    pub(super) sequence: Option<u64>,
    /// Tokens in the cache when decoding [default: the sequence]
    #[arg(long, value_name = "N")]
    pub(super) context: Option<u64>,
    /// Data type
    #[arg(long, value_name = "TYPE", default_value = "bf16")]
    pub(super) dtype: String,
    /// Share of the layers' weights that is pruned
    #[arg(long, value_name = "SHARE")]
    pub(super) sparsity: Option<f64>,
    /// Side of the blocks that are pruned
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub(super) block: u64,
    /// Optimiser of a training step
    #[arg(long, value_enum, default_value_t = Optimizer::Adam)]
    pub(super) optimizer: Optimizer,
    /// What the backward phase computes again instead of reading it from memory
    #[arg(long, value_enum, num_args = 0..=1, require_equals = true, default_value = "none", default_missing_value = "full")]
    pub(super) recompute: Recompute,
    /// Drop elements behind attention and feed-forward block
    #[arg(long)]
    pub(super) dropout: bool,
    /// The format that the layers' matrices are stored in.
    #[arg(
        long,
        value_name = "FORMAT",
        help = "Store the layers' matrices as FORMAT[:GROUP]: int4, int8, fp8_e4m3, fp8_e5m2, mxfp8, mxfp4, nvfp4; GROUP elements share a scale"
    )]
    pub(super) weight_storage: Option<StorageFormat>,
    /// Store the keys and values of the context in such a format when decoding
    #[arg(long, value_name = "FORMAT")]
    pub(super) cache_storage: Option<StorageFormat>,
    /// Quantise what the layers multiply to TYPE, a data type of 8 bits; with `:token` each row has its scale
    #[arg(long, value_name = "TYPE[:token]")]
    pub(super) activations: Option<ActivationFormat>,
    /// Rows of a chunk of Mamba-2, 1 for row by row [default: the model's]
    #[arg(long, value_name = "N")]
    pub(super) chunk: Option<u64>,
    /// File to write [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(super) struct VerifyArgs {
    /// How the graph is cut into sections (every mode if not given)
    #[arg(long, value_enum)]
    pub(super) mode: Option<Mode>,
    /// Chip file (TOML), or a built-in name
    #[arg(long, value_name = "FILE")]
    pub(super) arch: PathBuf,
    /// Workload file (TOML), a built-in name, or a model (.onnx, .pt2, config.json)
    #[arg(long, value_name = "FILE")]
    pub(super) workload: PathBuf,
    #[command(flatten)]
    pub(super) model: ModelFileArgs,
    /// Change a field: arch.PATH=VALUE or workload.PATH=VALUE; may be repeated
    #[arg(long, value_name = "PATH=VALUE")]
    pub(super) set: Vec<String>,
    /// Named dimensions are made smaller until the graph needs no more operations than this
    #[arg(long, value_name = "N", default_value_t = MAX_FLOPS, value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) max_flops: u64,
    /// Seed of the numbers and of random masks
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(super) seed: u64,
    /// How good the mapping is taken to be
    #[arg(long, value_enum, default_value_t = Mapping::Ideal)]
    pub(super) mapping: Mapping,
    /// Also write verify.json into this directory
    #[arg(long, value_name = "DIR")]
    pub(super) out: Option<PathBuf>,
    #[command(flatten)]
    pub(super) configuration: ConfigArgs,
    /// Form of the result on standard output
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(super) format: Format,
    /// Taken as by the other commands; numbers do not depend on it
    #[arg(long, value_enum, default_value_t = Fidelity::Event)]
    pub(super) fidelity: Fidelity,
    /// Write a timeline of the verified configurations that Perfetto and Chrome open (JSON)
    #[arg(long, value_name = "FILE")]
    pub(super) trace: Option<PathBuf>,
    /// Taken as by the other commands; numbers do not depend on it
    #[arg(long)]
    pub(super) no_skip: bool,
}

/// Operations of a graph that `verify` does in a few seconds.
const MAX_FLOPS: u64 = 500_000_000;

#[derive(Debug, Args)]
pub(super) struct ReportArgs {
    /// Saved result of any command (JSON of `--out` or `--format json`); its grid and pictures are shown if `layout.json` lies beside it
    #[arg(value_name = "RESULT", required = true, num_args = 1..)]
    pub(super) results: Vec<PathBuf>,
    /// HTML file to write; without it the page goes to standard output
    #[arg(long, value_name = "FILE")]
    pub(super) out: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[group(id = "files", required = true, multiple = true, args = ["paths", "arch", "workload"])]
pub(super) struct CheckArgs {
    /// Files of any kind, or built-in names: chips, systems, workloads, studies, models
    #[arg(value_name = "FILE", id = "paths")]
    pub(super) files: Vec<PathBuf>,
    /// Chip file (TOML), or a built-in name
    #[arg(long, value_name = "FILE")]
    pub(super) arch: Option<PathBuf>,
    /// Workload file (TOML), a built-in name, or a model (.onnx, .pt2, config.json)
    #[arg(long, value_name = "FILE")]
    pub(super) workload: Option<PathBuf>,
    #[command(flatten)]
    pub(super) model: ModelFileArgs,
    /// Change a field: arch.PATH=VALUE or workload.PATH=VALUE; may be repeated
    #[arg(long, value_name = "PATH=VALUE")]
    pub(super) set: Vec<String>,
}

#[derive(Debug, Args)]
pub(super) struct SparsityArgs {
    /// A file (.smtx, .mtx, .npy, .npz, .safetensors), a workload (.toml, or a built-in name), or a pattern: `unstructured`, `block`,
    /// `banded`, `row_skewed`, `column_skewed`, or N:M such as `2:4`
    #[arg(value_name = "FILE|PATTERN")]
    pub(super) source: String,
    /// Array, tensor or weight of a file with several
    #[arg(long, value_name = "NAME")]
    pub(super) key: Option<String>,
    /// Rows (K) and columns (N) of the matrix; of a file, what they must be
    #[arg(long, value_name = "RxC", value_parser = extents)]
    pub(super) shape: Option<(u64, u64)>,
    /// Rows and columns of a block
    #[arg(long, value_name = "RxC", value_parser = extents)]
    pub(super) block: Option<(u64, u64)>,
    /// Share of the blocks to keep; of a file, those of the largest magnitudes
    #[arg(long, value_name = "D")]
    pub(super) density: Option<f64>,
    /// Exponent of the power law of the skewed patterns
    #[arg(long, value_name = "E", default_value_t = 1.0)]
    pub(super) exponent: f64,
    /// The file has columns where the matrix has rows
    #[arg(long)]
    pub(super) transpose: bool,
    /// Data type of the values, for the bytes
    #[arg(long, value_enum, default_value_t = ValueType::Bf16)]
    pub(super) dtype: ValueType,
    /// PCUs over which the work is spread, for the imbalance (an SN10 has 640)
    #[arg(long, value_name = "N", default_value_t = 640, value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) pcus: u64,
    /// Change a field of a workload file: workload.PATH=VALUE; may be repeated
    #[arg(long, value_name = "PATH=VALUE")]
    pub(super) set: Vec<String>,
    /// Seed of random masks
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(super) seed: u64,
    /// Also write JSON, a picture and a page into this directory
    #[arg(long, value_name = "DIR")]
    pub(super) out: Option<PathBuf>,
    /// Form of the result on standard output
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(super) format: Format,
}

/// `5120x20480`.
fn extents(text: &str) -> Result<(u64, u64), String> {
    let number = |part: &str| part.parse::<u64>().ok().filter(|n| (1..=1 << 40).contains(n));
    text.split_once('x')
        .and_then(|(rows, columns)| Some((number(rows)?, number(columns)?)))
        .ok_or_else(|| "expected two numbers from 1 to 2^40, such as 5120x20480".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    const ALL_EXAMPLES: [&str; 16] = [
        break_even::BREAK_EVEN_EXAMPLES,
        EXAMPLES,
        COMPARE_EXAMPLES,
        RUN_EXAMPLES,
        MAP_EXAMPLES,
        MODEL_EXAMPLES,
        IMPORT_EXAMPLES,
        VERIFY_EXAMPLES,
        SPARSITY_EXAMPLES,
        validate::VALIDATE_EXAMPLES,
        validate::CALIBRATE_EXAMPLES,
        REPORT_EXAMPLES,
        CHECK_EXAMPLES,
        POD_EXAMPLES,
        LIST_EXAMPLES,
        NEW_EXAMPLES,
    ];

    #[test]
    fn the_arguments_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_examples_of_the_help_parse() {
        let examples = ALL_EXAMPLES.join("\n").replace("\\\n", "");
        let lines: Vec<&str> = examples.lines().filter(|line| line.starts_with("  rdusim ")).collect();
        assert!(lines.len() > 30);
        for line in lines {
            if let Err(error) = Cli::try_parse_from(line.split_whitespace()) {
                panic!("{line}: {error}");
            }
        }
    }

    #[test]
    fn the_help_fits_a_terminal() {
        for text in ALL_EXAMPLES.iter().chain([&COMPLETIONS_EXAMPLES]) {
            for line in text.lines() {
                assert!(line.len() <= 100, "{line}");
            }
        }
    }

    #[test]
    fn defaults() {
        let line = "rdusim compare --arch a --workload w";
        let Command::Compare(args) = Cli::try_parse_from(line.split(' ')).unwrap().command else { panic!() };
        let shared = args.shared;
        assert_eq!((shared.fidelity, shared.format, shared.seed), (Fidelity::Event, Format::Table, 0));
        assert_eq!(shared.mapping, Mapping::Ideal);
        assert!(shared.set.is_empty() && shared.out.is_none() && !shared.no_skip);
    }
}
