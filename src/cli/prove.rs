//! `rdusim prove` and `rdusim check-proof`: how far a mapping is from the best, written down and checked.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use serde::{Deserialize, Serialize};

use crate::arch::{self, Chip};
use crate::compile::Compiled;
use crate::diagnostics::Diagnostic;
use crate::input::{self, Override};
use crate::outcome::{Fidelity, Outcome, StopReason};
use crate::proof::{self, Certificate, Mapped};
use crate::report;
use crate::workload::Workload;
use crate::{import, mode};

use super::execute::{execute, tell_durations, timed};
use super::failure::Failure;
use super::import::ModelFileArgs;
use super::run_args::ConfigArgs;
use super::values::{Mapping, Mode, ModelPhase, ValueType};
use super::{output, progress};

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

/// Longest certificate that is read.
const MOST_BYTES: u64 = 256 << 20;

#[derive(Debug, Args)]
pub(super) struct ProveArgs {
    /// How the graph is cut into sections
    #[arg(long, value_enum, default_value_t = Mode::Fused)]
    pub(super) mode: Mode,
    /// Chip file (TOML), or a built-in name (`rdusim list`)
    #[arg(long, value_name = "FILE")]
    pub(super) arch: PathBuf,
    /// Workload file (TOML), a built-in name, or a model (.onnx, config.json)
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
    /// Tell on standard error how long compiling, simulating and proving took
    #[arg(short, long)]
    pub(super) verbose: bool,
}

#[derive(Debug, Args)]
pub(super) struct CheckProofArgs {
    /// Certificate that `prove` wrote
    #[arg(value_name = "FILE")]
    pub(super) file: PathBuf,
}

/// A certificate with the inputs that it is for, as a file has it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProofFile {
    schema: u32,
    arch: String,
    workload: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    set: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    dim: Vec<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    skip_unsupported: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    phase: Option<ModelPhase>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    batch: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    seq: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    context: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dtype: Option<ValueType>,
    mapping: Mapping,
    seed: u64,
    certificate: Certificate,
}

/// The chip and the workload of a certificate.
fn inputs(
    (arch, workload): (&Path, &Path),
    model: &ModelFileArgs,
    sets: &[String],
    mapping: Mapping,
    seed: u64,
) -> Result<(Chip, Workload), Diagnostic> {
    let sets = sets.iter().map(|set| Override::parse(set)).collect::<Result<Vec<_>, _>>()?;
    let chip = arch::load(arch, &sets)?.under(mapping.into())?;
    let workload = import::load(workload, &sets, seed, &model.options_for(workload)?)?;
    Ok((chip, workload))
}

/// Compiles, simulates, and writes down what bounds the result.
pub(super) fn prove(args: &ProveArgs) -> Result<(), Failure> {
    let (chip, workload) = inputs((&args.arch, &args.workload), &args.model, &args.set, args.mapping, args.seed)?;
    let mode: mode::Mode = args.mode.into();
    let execution = progress::watched("compiling and simulating", || {
        execute(&chip, &workload, &[mode], Fidelity::Event, &ConfigArgs::default(), true)
    })?;
    let (compiled, outcome) = (&execution.configurations[0], &execution.outcomes[0]);
    match &outcome.stop {
        StopReason::Drained => {}
        StopReason::Deadlock(blocked) => return Err(Failure::Deadlock(mode.name(), blocked.clone())),
        StopReason::Limit(reached) => return Err(Failure::Limit(mode.name(), reached.clone())),
    }
    let (certificate, took) = timed(|| proof::certify(&chip, &workload, mode, &mapped(compiled, outcome)));
    let certificate = certificate.ok_or_else(|| Diagnostic::new("a tensor fits no memory tier of the chip"))?;
    if args.verbose {
        tell_durations(&execution);
        let _ = writeln!(io::stderr().lock(), "prove {:.3} s", took.as_secs_f64());
    }
    let text = summary(&certificate);
    if let Some(path) = &args.out {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let file = ProofFile {
            schema: proof::SCHEMA,
            arch: text(&args.arch),
            workload: text(&args.workload),
            set: args.set.clone(),
            dim: args.model.dim.clone(),
            skip_unsupported: args.model.skip_unsupported,
            phase: args.model.phase,
            batch: args.model.batch,
            seq: args.model.seq,
            context: args.model.context,
            dtype: args.model.dtype,
            mapping: args.mapping,
            seed: args.seed,
            certificate,
        };
        let json = serde_json::to_string_pretty(&file)
            .map_err(|error| Diagnostic::new(format!("the certificate cannot be written as JSON: {error}")))?;
        report::write_file(path, (json + "\n").as_bytes())?;
    }
    output::print(text.as_bytes())
}

/// The sections of a run, as a certificate has them.
pub(super) fn mapped(compiled: &Compiled, outcome: &Outcome) -> Vec<Mapped> {
    let sections = compiled.configuration.sections.iter().zip(&outcome.sections);
    let mapped = sections.map(|(section, ran)| Mapped {
        operators: section.operators.clone(),
        nest: section.schedule.nest(),
        cycles: ran.cycles,
    });
    mapped.collect()
}

/// What a certificate says, in a few lines.
fn summary(certificate: &Certificate) -> String {
    let leaves: usize = certificate.groups.iter().flat_map(|group| &group.leaves).map(|leaf| leaf.boxes.len()).sum();
    let sections: usize = certificate.groups.iter().map(|group| group.leaves.len()).sum();
    let whole = certificate.groups.iter().filter(|group| !group.by_sections).count();
    let mut text = format!(
        "{}: {} cycles, no mapping takes less than {}: gap {:.2} %\n{leaves} leaves: classes of loop nests of {sections} \
         possible sections in {} groups of operators\n",
        certificate.mode,
        certificate.cycles,
        certificate.least_cycles,
        certificate.gap * 100.0,
        certificate.groups.len(),
    );
    if whole > 0 {
        let _ = writeln!(text, "{whole} groups have too many sections and are bounded as a whole");
    }
    text
}

/// Recomputes a certificate's leaves, and that they cover the space.
pub(super) fn check_proof(args: &CheckProofArgs) -> Result<(), Failure> {
    let file = read(&args.file)?;
    let model = ModelFileArgs {
        dim: file.dim,
        skip_unsupported: file.skip_unsupported,
        phase: file.phase,
        batch: file.batch,
        seq: file.seq,
        context: file.context,
        dtype: file.dtype,
    };
    let (chip, workload) =
        inputs((Path::new(&file.arch), Path::new(&file.workload)), &model, &file.set, file.mapping, file.seed)?;
    let certificate = &file.certificate;
    proof::check(&chip, &workload, certificate)
        .map_err(|proof::Refusal(why)| Failure::Unproved(args.file.display().to_string(), why))?;
    output::print_text(&format!("{}: holds\n{}", args.file.display(), summary(certificate)))
}

fn read(path: &Path) -> Result<ProofFile, Diagnostic> {
    let refused = |why: String| Diagnostic::new(format!("cannot read the certificate `{}`: {why}", path.display()));
    let text = input::read_text(path, MOST_BYTES).map_err(|why| refused(format!("it {why}")))?;
    let file: ProofFile = serde_json::from_str(&text).map_err(|error| refused(error.to_string()))?;
    if file.schema != proof::SCHEMA {
        return Err(refused(format!("`schema`: found {}, expected {}", file.schema, proof::SCHEMA)));
    }
    Ok(file)
}
