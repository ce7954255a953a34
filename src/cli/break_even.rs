//! `rdusim break-even`: where two chips take as long.

use std::path::{Path, PathBuf};

use clap::Args;

use super::failure::Failure;
use super::import::ModelFileArgs;
use super::run_args::ConfigArgs;
use super::values::{Effort, FormArgs, Mode};
use super::{configured, output, progress};
use crate::analysis::{self, BreakEvenRequest, Options, Source};
use crate::arch::Quality;
use crate::input::Override;
use crate::outcome::Fidelity;
use crate::report::{self, File};

pub(super) const BREAK_EVEN_EXAMPLES: &str = "\
Examples:
  # from how many tokens on is an SN10 as fast as an A100 for a sparse feed-forward block?
  rdusim break-even --arch sn10 --against a100 --workload gpt13b-mlp-sparse \\
      --axis workload.dims.tokens --from 64 --to 8192

  # how much bandwidth would an SN10 need to be as fast on the dense block? as JSON, with a picture in results/
  rdusim break-even --arch sn10 --against a100 --workload gpt13b-mlp \\
      --axis arch.memory.ddr.bandwidth_gb_per_s --from 100 --to 1600 --format json --out results";

#[derive(Debug, Args)]
pub(super) struct BreakEvenArgs {
    /// Chip file (TOML), or a built-in name (`rdusim list`)
    #[arg(long, value_name = "FILE")]
    arch: PathBuf,
    /// The other chip
    #[arg(long, value_name = "FILE")]
    against: PathBuf,
    /// Workload file (TOML), a built-in name, or a model (.onnx, .pt2, config.json)
    #[arg(long, value_name = "FILE")]
    workload: PathBuf,
    #[command(flatten)]
    model: ModelFileArgs,
    /// The field along which both are compared: arch.PATH of the chip of --arch, or workload.PATH
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
    let from = ConfigArgs::default();
    let read = |sets: &[Override]| configured::workload((&args.workload, &args.model), sets, args.seed, &from);
    let request = BreakEvenRequest {
        arch: &args.arch,
        against: &args.against,
        sets: &sets,
        axis: &args.axis,
        from: &args.from,
        to: &args.to,
        mode: args.mode.into(),
        options: Options {
            fidelity: Fidelity::Event,
            quality: Quality::Ideal,
            skip: true,
            source: Source::Compiler(args.effort.into()),
        },
        workload: &read,
    };
    let found = progress::watched("comparing both chips along the axis", || analysis::break_even(&request))?;
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
    let inputs: [&Path; 3] = [&args.arch, &args.against, &args.workload];
    output::show_with_page(args.out.as_deref(), files, &inputs, args.form.format, &text)
}
