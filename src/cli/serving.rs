//! `rdusim pod --phase prefill|decode|requests`: a model that serves users on many chips.

use std::path::Path;

use crate::analysis;
use crate::diagnostics::Diagnostic;
use crate::input::{self, Override};
use crate::model::Phase;
use crate::pod::{self, Arrivals, Policy, Trace};
use crate::report::{File, ServingReport, ServingSetup, StreamReport};

use super::failure::Failure;
use super::pod::{PodArgs, PodPhase, training};
use super::serving_request::request;
use super::{output, pod_fleet, progress};

/// What `rdusim pod` was asked for.
pub(super) fn pod(args: &PodArgs) -> Result<(), Failure> {
    if let Some(flag) = args.requests.given().or(args.fleet.given()).filter(|_| args.phase != PodPhase::Requests) {
        let title = format!("`{flag}` is for `--phase requests`");
        return Err(Diagnostic::new(title).with_help(format!("leave `{flag}` out")).into());
    }
    match args.phase {
        PodPhase::Training => training(args),
        PodPhase::Prefill => serve(args, Phase::Prefill),
        PodPhase::Decode => serve(args, Phase::Decode),
        PodPhase::Requests if args.search => pod_fleet::search(args),
        PodPhase::Requests => requests(args),
    }
}

/// Simulates both phases and shows the one that was asked for.
fn serve(args: &PodArgs, phase: Phase) -> Result<(), Failure> {
    refuse_training_options(args)?;
    let sets = args.set.iter().map(|set| Override::parse(set)).collect::<Result<Vec<_>, _>>()?;
    let request = request(args, &sets, phase);
    let (files, text) = progress::watched("simulating prefill and decode", || {
        analysis::serving(&request, &mut progress::note, |system, stack, service, load, served| -> Result<_, Failure> {
            let setup = ServingSetup { system, stack, service };
            let report = ServingReport { setup, load, served, decodes: phase == Phase::Decode };
            let files: Vec<File> = if args.out.is_some() { report.files()? } else { Vec::new() };
            Ok((files, args.form.shown(|| report.json(), || report.table(), || report.screen())))
        })
    })??;
    output::show_with_page(args.out.as_deref(), files, &[&args.system], args.form.format, &text)
}

/// Refuses what only a training step has.
fn refuse_training_options(args: &PodArgs) -> Result<(), Diagnostic> {
    let given = [("--flat", args.flat), ("--search", args.search), ("--mtbf-h", args.goodput.is_given())];
    match given.into_iter().find(|(_, given)| *given) {
        None => Ok(()),
        Some((flag, _)) => {
            Err(Diagnostic::new(format!("`{flag}` is for `--phase training`")).with_help(format!("leave `{flag}` out")))
        }
    }
}

fn read(path: &Path) -> Result<String, Diagnostic> {
    input::read_text(path).map_err(|error| Diagnostic::new(format!("{} cannot be read: {error}", path.display())))
}

/// Runs a trace of requests and shows what its users saw.
fn requests(args: &PodArgs) -> Result<(), Failure> {
    let sets = args.set.iter().map(|set| Override::parse(set)).collect::<Result<Vec<_>, _>>()?;
    refuse_training_options(args)?;
    let idle = [("--micro-batch", args.micro_batch.is_some()), ("--seq", args.seq.is_some())];
    if let Some((flag, _)) = idle.into_iter().find(|(_, given)| *given) {
        let title = format!("`{flag}` has no meaning with `--phase requests`");
        return Err(Diagnostic::new(title)
            .with_help("requests have tokens of their own: --trace, --prompt-tokens")
            .into());
    }
    let of = &args.requests;
    let drawn = |per_s: f64| -> Result<Trace, Diagnostic> {
        let requests = pod::drawn(&Arrivals {
            per_s,
            count: of.requests.unwrap_or(1000),
            prompt: of.prompt_tokens.unwrap_or(1024),
            output: of.output_tokens.unwrap_or(256),
            seed: of.seed.unwrap_or(1),
        })?;
        Ok(Trace { requests, notes: Vec::new() })
    };
    let trace = match (&of.trace, of.arrivals) {
        (Some(path), _) => pod::read_trace(&path.display().to_string(), &read(path)?)?,
        // Times of arrival have no meaning in a closed loop.
        (None, None) if of.concurrency.is_some() => drawn(1.0)?,
        (None, Some(per_s)) => drawn(per_s)?,
        (None, None) => {
            let title = "`--phase requests` needs `--trace FILE`, `--arrivals RATE` or `--concurrency USERS`";
            return Err(Diagnostic::new(title).into());
        }
    };
    let policy = Policy {
        // Of a closed loop all users, unless it is said.
        users: args.batch.unwrap_or(u64::from(of.concurrency.is_none())),
        kv_tokens: of.kv_tokens,
        prefill_tokens: of.prefill_tokens.unwrap_or(8192),
        prefix_share: of.prefix_share.unwrap_or(0.0),
        chunk: of.prefill_chunk,
        seed: of.seed.unwrap_or(1),
        concurrency: of.concurrency,
    };
    let known = of.grid.as_ref().map(|path| pod::Grid::read(&path.display().to_string(), &read(path)?)).transpose()?;
    let request = request(args, &sets, Phase::Decode);
    let (files, text) = progress::watched("simulating requests", || {
        analysis::requests(
            &request,
            &trace,
            &policy,
            known.as_ref(),
            &mut progress::note,
            |system, stack, service, streamed| -> Result<_, Failure> {
                let report = StreamReport { setup: ServingSetup { system, stack, service }, streamed };
                let files: Vec<File> = if args.out.is_some() { report.files()? } else { Vec::new() };
                Ok((files, args.form.shown(|| report.json(), || report.table(), || report.screen())))
            },
        )
    })??;
    let inputs: Vec<&Path> =
        std::iter::once(&args.system).chain(&of.trace).chain(&of.grid).map(std::path::PathBuf::as_path).collect();
    output::show_with_page(args.out.as_deref(), files, &inputs, args.form.format, &text)
}
