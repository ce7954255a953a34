//! `rdusim break-even`: where two chips take as long.

use std::path::{Path, PathBuf};

use clap::Args;

use super::failure::Failure;
use super::import::ModelFileArgs;
use super::run_args::ConfigArgs;
use super::values::{Effort, FormArgs, Mode};
use super::{configured, output, progress};
use crate::analysis::{
    self, AxisRequest, BreakEven, BreakEvenRequest, Options, PodBreakEvenRequest, ServingRequest, Source,
};
use crate::arch::Quality;
use crate::diagnostics::Diagnostic;
use crate::input::Override;
use crate::model::Phase;
use crate::outcome::Fidelity;
use crate::report::{self, File};

pub(super) const BREAK_EVEN_EXAMPLES: &str = "\
Examples:
  # from how many tokens on is an SN10 as fast as an A100 for a sparse feed-forward block?
  rdusim break-even --arch sn10 --against a100 --workload gpt13b-mlp-sparse \\
      --axis workload.dims.tokens --from 64 --to 8192

  # how much bandwidth would an SN10 need on the dense block? as JSON, with a picture in results/
  rdusim break-even --arch sn10 --against a100 --workload gpt13b-mlp \\
      --axis arch.memory.ddr.bandwidth_gb_per_s --from 100 --to 1600 --format json --out results

  # up to how many dollars an hour is an H100 cheaper than an A100 at 1.5 for 64 users?
  rdusim break-even --arch dgx-h100 --against dgx-a100 --model llama3-70b --parallel tp=8 \\
      --batch 64 --seq 2048 --axis price --from 1 --to 10 --against-usd-per-chip-hour 1.5";

#[derive(Debug, Args)]
pub(super) struct BreakEvenArgs {
    /// Chip file (TOML), or a built-in name (`rdusim list`)
    #[arg(long, value_name = "FILE")]
    arch: PathBuf,
    /// The other chip
    #[arg(long, value_name = "FILE")]
    against: PathBuf,
    /// Workload file (TOML), a built-in name, or a model (.onnx, .pt2, config.json)
    #[arg(long, value_name = "FILE", required_unless_present = "model")]
    workload: Option<PathBuf>,
    #[command(flatten)]
    graph: ModelFileArgs,
    /// Where --arch and --against are systems: name of a model, or a config.json; --phase decode (if not given) or prefill
    #[arg(long, value_name = "NAME|FILE", conflicts_with = "workload")]
    model: Option<String>,
    /// Of systems: decomposition on the first, as tp=8,pp=2
    #[arg(long, value_name = "KEY=VALUE,...", requires = "model")]
    parallel: Option<String>,
    /// Of systems: decomposition on the other [default: that of --parallel]
    #[arg(long, value_name = "KEY=VALUE,...", requires = "model")]
    against_parallel: Option<String>,
    /// Of systems: software of the first [default: serving, else the first that serves]
    #[arg(long, value_name = "NAME", requires = "model")]
    stack: Option<String>,
    /// Of systems: software of the other
    #[arg(long, value_name = "NAME", requires = "model")]
    against_stack: Option<String>,
    /// Along what both are compared: arch.PATH of the first, workload.PATH, or price: dollars for an hour of a chip of the first; of
    /// systems also batch and seq
    #[arg(long, value_name = "PATH")]
    axis: String,
    /// Its value at the end where the search begins; may end in Ki, Mi, Gi, k, M or G
    #[arg(long, value_name = "VALUE", allow_hyphen_values = true)]
    from: String,
    /// Its value at the other end
    #[arg(long, value_name = "VALUE", allow_hyphen_values = true)]
    to: String,
    /// The mode in which both run
    #[arg(long, value_enum, default_value_t = Mode::Fused)]
    mode: Mode,
    /// Change another field: arch.PATH=VALUE of the chip of --arch, or workload.PATH=VALUE; may be repeated
    #[arg(long, value_name = "PATH=VALUE")]
    set: Vec<String>,
    /// Dollars for an hour of a chip of the first: costs are compared in place of times
    #[arg(long, value_name = "USD")]
    usd_per_chip_hour: Option<f64>,
    /// The same of the other
    #[arg(long, value_name = "USD")]
    against_usd_per_chip_hour: Option<f64>,
    /// How long the compiler searches
    #[arg(long, value_enum, default_value_t = Effort::Normal)]
    effort: Effort,
    /// Seed of random masks and of the compiler's choices
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Also write JSON and a picture into this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    form: FormArgs,
}

/// Finds the crossing and shows it.
pub(super) fn break_even(args: &BreakEvenArgs) -> Result<(), Failure> {
    let sets = args.set.iter().map(|set| Override::parse(set)).collect::<Result<Vec<_>, _>>()?;
    let found = match (&args.model, &args.workload) {
        (Some(model), _) => of_systems(args, model, &sets)?,
        (None, Some(workload)) => of_chips(args, workload, &sets)?,
        // Arguments have one or the other.
        (None, None) => return Err(Diagnostic::new("`--workload` or `--model` is needed").into()),
    };
    let text = args.form.shown(|| found.to_json(), || found.to_text(true), || found.to_text(false));
    let mut files = Vec::new();
    if args.out.is_some() {
        let chart = found.chart();
        let failed = |error| report::WriteError::Chart("break-even", error);
        files = vec![
            File { name: "result.json".to_owned(), bytes: found.to_json().into_bytes() },
            File { name: "break-even.svg".to_owned(), bytes: chart.svg().map_err(failed)?.into_bytes() },
            File { name: "break-even.png".to_owned(), bytes: chart.png().map_err(failed)? },
        ];
    }
    let inputs: Vec<&Path> =
        [&args.arch, &args.against].into_iter().chain(&args.workload).map(PathBuf::as_path).collect();
    output::show_with_page(args.out.as_deref(), files, &inputs, args.form.format, &text)
}

/// Two chips on a workload.
fn of_chips(args: &BreakEvenArgs, workload: &Path, sets: &[Override]) -> Result<BreakEven, Failure> {
    let from = ConfigArgs::default();
    let read = |sets: &[Override]| configured::workload(workload, &args.graph, sets, args.seed, &from);
    let request = BreakEvenRequest {
        arch: &args.arch,
        against: &args.against,
        sets,
        along: along(args),
        mode: args.mode.into(),
        options: Options {
            fidelity: Fidelity::Event,
            quality: Quality::Ideal,
            skip: true,
            source: Source::Compiler(args.effort.into()),
        },
        workload: &read,
    };
    Ok(progress::watched("comparing both along the axis", || analysis::break_even(&request))?)
}

/// Two systems on a batch of users.
fn of_systems(args: &BreakEvenArgs, model: &str, sets: &[Override]) -> Result<BreakEven, Failure> {
    let phase = match args.graph.phase.map(Phase::from) {
        None | Some(Phase::Decode) => Phase::Decode,
        Some(Phase::Prefill) => Phase::Prefill,
        Some(_) => {
            let title = "`--phase`: systems are compared in decode and prefill";
            return Err(Diagnostic::new(title).with_help("leave it out, or use `--phase prefill`").into());
        }
    };
    let parallel = args.parallel.as_deref().unwrap_or("tp=1");
    let first = ServingRequest {
        system: &args.arch,
        sets,
        model,
        parallel,
        stack: args.stack.as_deref(),
        phase,
        batch: args.graph.batch.unwrap_or(1),
        micro_batch: None,
        sequence: args.graph.seq,
        sparsity: None,
        draft: None,
        dtype: None,
        kv_dtype: None,
        expert_load: args.graph.expert_load.as_deref(),
        stage_layers: None,
    };
    let second = ServingRequest {
        system: &args.against,
        sets: &[],
        parallel: args.against_parallel.as_deref().unwrap_or(parallel),
        stack: args.against_stack.as_deref(),
        ..first.clone()
    };
    let request = PodBreakEvenRequest { first, second, along: along(args) };
    let mut told = Vec::new();
    let mut note = |text: &str| {
        // Each point would say it again.
        if !told.iter().any(|known| known == text) {
            told.push(text.to_owned());
            progress::note(text);
        }
    };
    progress::watched("comparing both along the axis", || Ok(analysis::break_even_of_pods(&request, &mut note)?))
}

fn along(args: &BreakEvenArgs) -> AxisRequest<'_> {
    AxisRequest {
        axis: &args.axis,
        from: &args.from,
        to: &args.to,
        usd_per_chip_hour: [args.usd_per_chip_hour, args.against_usd_per_chip_hour],
    }
}
