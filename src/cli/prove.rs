//! `rdusim prove` and `rdusim check-proof`: how far a mapping is from the best, written down and checked.

use std::path::PathBuf;

use clap::Args;

use crate::analysis::{self, ProofFile, ProofInputs, proved, summary};
use crate::diagnostics::Diagnostic;
use crate::input::{self, Override};
use crate::report;

use super::execute::Stopwatch;
use super::failure::Failure;
use super::import::ModelFileArgs;
use super::values::{Mapping, Mode};
use super::{output, progress, verbose};

pub(super) const PROVE_EXAMPLES: &str = "\
Examples:
  # how far is the fused mapping from the best that there can be?
  rdusim prove --arch arch/sn10.toml --workload workloads/gpt13b-mlp.toml --out sn10.proof.json
  rdusim check-proof sn10.proof.json

  # kernel by kernel, on a chip with a field changed
  rdusim prove --mode kbk --arch arch/sn40l.toml --workload workloads/gpt13b-mlp.toml \\
      --set arch.pmu.capacity_bytes=262144 --out kbk.proof.json";

pub(super) const CHECK_EXAMPLES: &str = "\
Examples:
  # from the directory that `prove` was started in: the certificate names its inputs
  rdusim check-proof sn10.proof.json

Exit code 0: the certificate holds; 1: it is refused, and standard error says why; 2: it cannot be read.";

/// What a certificate that holds does not show.
const CLAIM: &str = "The least cycles were computed again; the cycles of the mapping are a claim, which `rdusim run` reproduces \
                     and this check does not.";

#[derive(Debug, Args)]
pub(super) struct ProveArgs {
    /// How the graph is cut into sections
    #[arg(long, value_enum, default_value_t = Mode::Fused)]
    pub(super) mode: Mode,
    /// Chip file (TOML), or a built-in name (`rdusim list`)
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
    /// Write the certificate to this file
    #[arg(long, value_name = "FILE")]
    pub(super) out: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(super) struct CheckProofArgs {
    /// Certificate that `prove` wrote
    #[arg(value_name = "FILE")]
    pub(super) file: PathBuf,
}

/// Compiles, simulates, and writes down what bounds the result.
pub(super) fn prove(args: &ProveArgs) -> Result<(), Failure> {
    let sets = args.set.iter().map(|set| Override::parse(set)).collect::<Result<Vec<_>, _>>()?;
    let inputs = ProofInputs {
        arch: &args.arch.as_path().into(),
        workload: &args.workload.as_path().into(),
        model: &args.model.request(),
        sets: &sets,
        quality: args.mapping.into(),
        seed: args.seed,
    };
    let mut watch = Stopwatch::start();
    let file = progress::watched("compiling, simulating and proving", || {
        analysis::prove(&inputs, args.mode.into(), &mut |stage| watch.ended(stage))
    })?;
    watch.tell("simulate");
    verbose::time(&format!("prove {:.3} s", watch.rest().as_secs_f64()));
    let text = proved(&file);
    if let Some(path) = &args.out {
        report::write_file(path, file.to_json()?.as_bytes())?;
    }
    output::print_text(&text)
}

/// Recomputes a certificate's leaves, and that they cover the space.
pub(super) fn check_proof(args: &CheckProofArgs) -> Result<(), Failure> {
    let name = args.file.display().to_string();
    let refused = |why: String| Diagnostic::new(format!("cannot read the certificate `{name}`: it {why}"));
    let file = ProofFile::parse(&name, &input::read_text(&args.file).map_err(refused)?)?;
    analysis::check(&file, None).map_err(|failure| match failure {
        analysis::Failure::Unproved(why) => Failure::Unproved(name.clone(), why),
        other => other.into(),
    })?;
    output::print_text(&format!("{name}: holds\n{}{CLAIM}\n", summary(&file.certificate)))
}
