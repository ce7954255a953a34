//! `rdusim pod`: a model on many chips.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use crate::diagnostics::Diagnostic;
use crate::import;
use crate::input::Override;
use crate::model::{Architecture, Position, preset};
use crate::pod::{self, Detail, Job, Parallel, Stack, System};
use crate::report::{self, PodReport};

use super::failure::Failure;
use super::values::Format;
use super::{output, progress};

pub(super) const POD_EXAMPLES: &str = "\
Examples:
  # a training step of GPT-13B on 16 RDUs, four stages of four
  rdusim pod arch/systems/sn40l-16.toml --model gpt-13b --phase training \\
      --parallel tp=4,pp=4,dp=1 --batch 16 --micro-batch 1 --seq 2048 --stack rdu

  # 175 B on 1,024 GPUs, as JSON, with a picture of the schedule in results/
  rdusim pod arch/systems/dgx-a100.toml --model gpt3-175b --phase training \\
      --parallel tp=8,pp=16,dp=8,schedule=interleaved:3,recompute=full,zero=1 \\
      --batch 1024 --micro-batch 1 --seq 2048 --stack megatron-2021 --format json --out results";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum PodPhase {
    /// A step: forward, backward and the optimiser's step
    Training,
    /// Not modelled yet
    Prefill,
    /// Not modelled yet
    Decode,
}

#[derive(Debug, Args)]
pub(super) struct PodArgs {
    /// System file (TOML)
    #[arg(value_name = "SYSTEM")]
    pub(super) system: PathBuf,
    /// Name of a model (`rdusim model --help`), or a config.json
    #[arg(long, value_name = "NAME|FILE")]
    pub(super) model: String,
    /// What is done with it
    #[arg(long, value_enum)]
    pub(super) phase: PodPhase,
    /// Decomposition: tp, pp, dp, sp, schedule (naive, gpipe, 1f1b, interleaved:PARTS), recompute (none, selective,
    /// full), zero (0, 1); such as tp=8,pp=4,dp=2
    #[arg(long, value_name = "KEY=VALUE,...")]
    pub(super) parallel: String,
    /// Software, one of the system file's stacks [default: the first, and a note says so]
    #[arg(long, value_name = "NAME")]
    pub(super) stack: Option<String>,
    /// Sequences of a step
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) batch: u64,
    /// Sequences of a micro-batch
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) micro_batch: u64,
    /// Tokens of a sequence [default: the model's; of a config.json, 2048 at most]
    #[arg(long, value_name = "N")]
    pub(super) seq: Option<u64>,
    /// Share of the blocks of 16 x 16 of the layers' matrices that is pruned; RDUs only
    #[arg(long, value_name = "SHARE")]
    pub(super) sparsity: Option<f64>,
    /// Simulate every chip on its own, not a stage as one: the same result, later
    #[arg(long)]
    pub(super) flat: bool,
    /// Change a field of the system file: arch.PATH=VALUE; may be repeated
    #[arg(long, value_name = "PATH=VALUE")]
    pub(super) set: Vec<String>,
    /// Also write JSON and a picture of the schedule into this directory
    #[arg(long, value_name = "DIR")]
    pub(super) out: Option<PathBuf>,
    /// Form of the result on standard output
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(super) format: Format,
}

/// Most chips that are simulated one by one.
const MOST_FLAT: u64 = 64;

/// Simulates a step and shows it.
pub(super) fn pod(args: &PodArgs) -> Result<(), Failure> {
    if args.phase != PodPhase::Training {
        let title = "`--phase`: only training is modelled on a pod yet";
        return Err(Diagnostic::new(title).with_help("`rdusim compare` runs prefill and decode on one chip").into());
    }
    let sets = args.set.iter().map(|set| Override::parse(set)).collect::<Result<Vec<_>, _>>()?;
    let system = pod::open(&args.system, &sets)?;
    let parallel = Parallel::parse(&args.parallel)?;
    let stack = stack(&system, args.stack.as_deref())?;
    let job = job(args, parallel)?;
    job.check()?;
    let memory = pod::of_job(&job, stack.kind);
    if memory.peak() > system.chip_memory_bytes() {
        return Err(does_not_fit(&system, &job, stack).into());
    }
    if args.flat && job.parallel.chips() > MOST_FLAT {
        let title = format!("`--flat` is for at most {MOST_FLAT} chips, found {}", job.parallel.chips());
        return Err(Diagnostic::new(title).with_help("leave `--flat` out: the chips of a stage go in lockstep").into());
    }
    let detail = if args.flat { Detail::Flat } else { Detail::Grouped };
    let step = progress::watched("simulating a step", || pod::step(&system, stack, &job, detail))?;
    let report = PodReport { system: &system, stack, job: &job, step: &step };
    if let Some(directory) = &args.out {
        report::write(directory, &report.files()?)?;
    }
    let text = if args.format == Format::Json { report.json() } else { report.table() };
    output::print_as(args.format, &text)
}

fn job(args: &PodArgs, parallel: Parallel) -> Result<Job, Diagnostic> {
    let (model, mut architecture, trained_with) = model(&args.model)?;
    let counts = [("--batch", args.batch), ("--micro-batch", args.micro_batch), ("--seq", args.seq.unwrap_or(1))];
    if let Some((flag, count)) = counts.into_iter().find(|(_, count)| !(1..=1 << 24).contains(count)) {
        return Err(Diagnostic::new(format!("`{flag}` is {count}, expected a count from 1 to 2^24")));
    }
    let sequence = args.seq.unwrap_or(trained_with);
    if let Position::Learned(rows) = architecture.position {
        architecture.position = Position::Learned(rows.max(sequence));
    }
    let density = args.sparsity.map(|share| {
        let kept = 1.0 - share;
        if kept > 0.0 && kept <= 1.0 {
            return Ok(kept);
        }
        Err(Diagnostic::new(format!("`--sparsity` is {share}, expected a share from 0, below 1")))
    });
    let density = density.transpose()?;
    Ok(Job { model, architecture, parallel, batch: args.batch, micro_batch: args.micro_batch, sequence, density })
}

/// A preset, or the model of a config.json.
fn model(name: &str) -> Result<(String, Architecture, u64), Diagnostic> {
    if Path::new(name).extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json")) {
        let (model, architecture, sequence) = import::architecture(Path::new(name))?;
        if let Some(part) = architecture.unusual() {
            let title = format!("`--model {name}`: {model} has {part}, which are not modelled on many chips yet");
            return Err(Diagnostic::new(title).with_help("`rdusim compare --workload` runs it on one chip"));
        }
        return Ok((model, architecture, sequence));
    }
    let name = name.to_ascii_lowercase();
    if matches!(name.as_str(), "gpt" | "llama") {
        let title = format!("{name:?} is a family of models: it has no dimensions");
        return Err(Diagnostic::new(title).with_help("name a model of the family, or give a config.json"));
    }
    let (architecture, sequence) = preset(&name)?;
    Ok((name, architecture, sequence))
}

/// The stack that was named, else the first of the system file, and a line on standard error says so: what a step costs
/// depends on its software.
fn stack<'s>(system: &'s System, name: Option<&str>) -> Result<&'s Stack, Diagnostic> {
    let names = || system.stacks.iter().map(|stack| stack.kind.name()).collect::<Vec<_>>().join(", ");
    let name = name.unwrap_or_else(|| {
        let first = system.stacks.first().map_or("", |stack| stack.kind.name());
        let line = format!("note: no `--stack`: {first}, the first that {} has of {}", system.name, names());
        let _ = writeln!(io::stderr().lock(), "{line}");
        first
    });
    system.stacks.iter().find(|stack| stack.kind.name() == name).ok_or_else(|| {
        Diagnostic::new(format!("{} has no stack {name:?}", system.name)).with_help(format!("it has {}", names()))
    })
}

fn does_not_fit(system: &System, job: &Job, stack: &Stack) -> Diagnostic {
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    let memory = pod::of_job(job, stack.kind);
    let title = format!(
        "{} does not fit: stage {} needs {:.1} GiB a chip (weights {:.1}, gradients {:.1}, optimiser {:.1}, activations \
         {:.1}, buffers {:.1}), {} has {:.1}",
        job.model,
        memory.stage,
        gib(memory.peak()),
        gib(memory.weights),
        gib(memory.gradients),
        gib(memory.optimizer),
        gib(memory.activations),
        gib(memory.buffers),
        system.chip.device().name(),
        gib(system.chip_memory_bytes())
    );
    let remedies = pod::remedies(system, job, stack.kind);
    let help = if remedies.is_empty() {
        "no change of one key makes it fit: use more stages or tensor ranks".to_owned()
    } else {
        format!("what makes it fit, the cheapest first: {}", remedies.join("; "))
    };
    Diagnostic::new(title).with_help(help)
}
