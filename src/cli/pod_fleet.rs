//! `rdusim pod --phase requests --search`: the fleet that serves a model best under targets.

use super::failure::Failure;
use super::pod::PodArgs;
use super::pod_search::ObjectiveName;
use super::serving_request::request;
use super::{output, progress};
use crate::analysis::{self, FleetRequest};
use crate::diagnostics::Diagnostic;
use crate::input::Override;
use crate::model::Phase;
use crate::pod::{Arrivals, FleetAsked, FleetObjective, Policy};
use crate::report::File;

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
    let asked = FleetRequest {
        serving: request(args, &sets, Phase::Decode),
        chips: args.search_args.chips.map(|range| (range.least, range.most)),
        asked: FleetAsked {
            users: of.concurrency,
            lengths: Arrivals {
                // Neither has a meaning in loops.
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
            price: args.fleet.price()?,
        },
    };
    let (files, text) = progress::watched("searching for a fleet", || {
        analysis::fleet(&asked, &mut progress::note, |report| -> Result<_, Failure> {
            let files: Vec<File> = if args.out.is_some() { report.files()? } else { Vec::new() };
            Ok((files, args.form.shown(|| report.json(), || report.table(), || report.screen())))
        })
    })??;
    output::show_with_page(args.out.as_deref(), files, &[&args.system], args.form.format, &text)
}
