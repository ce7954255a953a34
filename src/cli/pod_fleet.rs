//! `rdusim pod --phase requests --search`: the fleet that serves a model best under targets.

use clap::Args;

use super::failure::Failure;
use super::pod::PodArgs;
use super::pod_search::ObjectiveName;
use super::serving;
use super::{output, progress};
use crate::analysis::{self, FleetRequest};
use crate::diagnostics::Diagnostic;
use crate::input::Override;
use crate::model::Phase;
use crate::pod::{Arrivals, FleetObjective, Policy, Price, Target, Targets};
use crate::report::File;

/// What users are promised, and what chips cost.
#[derive(Debug, Args)]
#[command(next_help_heading = "Requests, with --search")]
pub(super) struct FleetArgs {
    /// Milliseconds to the first token at most, of a mean or a percentile: mean, p50, p95 or p99 [default: p99]
    #[arg(long, value_name = "STATISTIC:MS", requires = "search")]
    ttft_ms: Option<String>,
    /// Milliseconds from token to token at most, the mean of a request; in the same way
    #[arg(long, value_name = "STATISTIC:MS", requires = "search")]
    tpot_ms: Option<String>,
    /// Dollars for an hour of a chip, with its share of what is bought with it
    #[arg(long, value_name = "USD", requires = "search")]
    usd_per_chip_hour: Option<f64>,
    /// Dollars for a kilowatt-hour of the chips' energy, where it is paid beside the hour
    #[arg(long, value_name = "USD", requires = "search")]
    usd_per_kwh: Option<f64>,
}

impl FleetArgs {
    /// The first option that is given.
    pub(super) fn given(&self) -> Option<&'static str> {
        let options = [
            ("--ttft-ms", self.ttft_ms.is_some()),
            ("--tpot-ms", self.tpot_ms.is_some()),
            ("--usd-per-chip-hour", self.usd_per_chip_hour.is_some()),
            ("--usd-per-kwh", self.usd_per_kwh.is_some()),
        ];
        options.into_iter().find(|(_, is_given)| *is_given).map(|(option, _)| option)
    }

    fn targets(&self) -> Result<Targets, Diagnostic> {
        let read = |flag: &str, text: &Option<String>| text.as_ref().map(|text| Target::parse(flag, text)).transpose();
        Ok(Targets { ttft: read("--ttft-ms", &self.ttft_ms)?, token: read("--tpot-ms", &self.tpot_ms)? })
    }
}

/// What is looked for.
fn objective(name: Option<ObjectiveName>) -> Result<FleetObjective, Diagnostic> {
    match name.unwrap_or(ObjectiveName::Cost) {
        ObjectiveName::Cost => Ok(FleetObjective::Cost),
        ObjectiveName::Throughput => Ok(FleetObjective::Throughput),
        ObjectiveName::Users => Ok(FleetObjective::Users),
        ObjectiveName::Time | ObjectiveName::TokensPerChip | ObjectiveName::Chips | ObjectiveName::Energy => {
            let title = "`--objective`: with `--phase requests` cost, throughput or users is looked for";
            Err(Diagnostic::new(title).with_help("time, tokens-per-chip, chips and energy are of `--phase training`"))
        }
    }
}

/// Refuses options that a search has no use for.
fn refuse_others(args: &PodArgs) -> Result<(), Diagnostic> {
    let of = &args.requests;
    let others = [
        ("--trace", of.trace.is_some(), "loops draw their requests: --prompt-tokens, --output-tokens"),
        (
            "--arrivals",
            of.arrivals.is_some(),
            "users send the next request when the last one is answered: --concurrency",
        ),
        ("--requests", of.requests.is_some(), "loops have ten requests a user"),
        ("--grid", of.grid.is_some(), "leave it out: divisions have points of their own"),
        ("--stage-layers", args.stage_layers.is_some(), "leave it out: stages have equal shares"),
    ];
    match others.into_iter().find(|(_, given, _)| *given) {
        None => Ok(()),
        Some((flag, _, help)) => {
            Err(Diagnostic::new(format!("`{flag}` has no meaning with `--phase requests --search`")).with_help(help))
        }
    }
}

/// Searches and shows the best fleet, and why others lose.
pub(super) fn search(args: &PodArgs) -> Result<(), Failure> {
    refuse_others(args)?;
    let sets = args.set.iter().map(|set| Override::parse(set)).collect::<Result<Vec<_>, _>>()?;
    let of = &args.requests;
    let request = FleetRequest {
        serving: serving::request(args, &sets, Phase::Decode),
        chips: args.search_args.chips.map(|range| (range.least, range.most)),
        users: of.concurrency,
        lengths: Arrivals {
            // Times of arrival and their number have no meaning in loops.
            per_s: 1.0,
            count: 1,
            prompt: of.prompt_tokens.unwrap_or(1024),
            output: of.output_tokens.unwrap_or(256),
            seed: of.seed.unwrap_or(1),
        },
        policy: Policy {
            users: args.batch.unwrap_or(0),
            kv_tokens: of.kv_tokens,
            prefill_tokens: of.prefill_tokens.unwrap_or(8192),
            prefix_share: of.prefix_share.unwrap_or(0.0),
            chunk: of.prefill_chunk,
            seed: of.seed.unwrap_or(1),
            concurrency: None,
        },
        objective: objective(args.search_args.objective)?,
        targets: args.fleet.targets()?,
        price: Price::new(args.fleet.usd_per_chip_hour, args.fleet.usd_per_kwh)?,
    };
    let (files, text) = progress::watched("searching for a fleet", || {
        analysis::fleet(&request, &mut progress::note, |report| -> Result<_, Failure> {
            let files: Vec<File> = if args.out.is_some() { report.files()? } else { Vec::new() };
            Ok((files, args.form.shown(|| report.json(), || report.table(), || report.screen())))
        })
    })??;
    output::show_with_page(args.out.as_deref(), files, &[&args.system], args.form.format, &text)
}
