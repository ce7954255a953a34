//! Pods: a training step, prefill, decode, the best decomposition, and requests that come and go.

use std::path::{Path, PathBuf};

use pyo3::prelude::*;
use rdusim::analysis::{self, DraftRequest, Failure, PodRequest, SearchRequest, ServingRequest};
use rdusim::diagnostics::Diagnostic;
use rdusim::input::{self, Override};
use rdusim::model::Phase;
use rdusim::pod::{
    Arrivals, Counts, ExecutionTraces, Failures, Grid, Job, Objective, Policy, Trace, TrainingStep, drawn, read_trace,
};
use rdusim::report::{File, PodReport, ServingReport, ServingSetup, StreamReport, WriteError, write_traces};
use serde::Deserialize;

use super::request::{Answer, named, overrides, read};
use super::watch::watched;

/// JSON, text, pictures by name, and what was chosen for the caller.
type Texts = (String, String, Vec<(String, String)>, Vec<String>);

/// What all of them are asked for.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Base {
    system: PathBuf,
    sets: Vec<String>,
    model: String,
    parallel: String,
    stack: Option<String>,
    batch: u64,
    micro_batch: Option<u64>,
    seq: Option<u64>,
    sparsity: Option<f64>,
    draft: Option<DraftOf>,
    expert_load: Option<String>,
}

/// A model that drafts tokens for the other one.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DraftOf {
    model: String,
    tokens: u64,
    accept: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PodOf {
    base: Base,
    phase: String,
    flat: bool,
    training: TrainingOf,
    failures: Option<FailuresOf>,
    stragglers: Option<String>,
    chakra: Option<PathBuf>,
}

/// What a training step alone is asked for.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TrainingOf {
    predicted_tokens: Option<u64>,
    stage_layers: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FailuresOf {
    mtbf_h: f64,
    checkpoint_s: f64,
    restart_s: f64,
    checkpoint_every_s: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SearchOf {
    base: Base,
    training: TrainingOf,
    chips: Option<u64>,
    objective: String,
    target_step_s: Option<f64>,
    failures: Option<FailuresOf>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestsOf {
    base: Base,
    trace: Option<PathBuf>,
    arrivals: Option<f64>,
    requests: u64,
    prompt_tokens: u64,
    output_tokens: u64,
    seed: u64,
    kv_tokens: Option<u64>,
    grid: Option<PathBuf>,
    prefix_share: f64,
    prefill_tokens: u64,
    prefill_chunk: Option<u64>,
}

impl Base {
    fn training<'a>(&'a self, of: &'a TrainingOf, sets: &'a [Override], flat: bool) -> PodRequest<'a> {
        PodRequest {
            system: &self.system,
            sets,
            model: &self.model,
            parallel: &self.parallel,
            stack: self.stack.as_deref(),
            batch: self.batch,
            micro_batch: self.micro_batch.unwrap_or(1),
            sequence: self.seq,
            sparsity: self.sparsity,
            predicted: of.predicted_tokens,
            stage_layers: of.stage_layers.as_deref(),
            flat,
            expert_load: self.expert_load.as_deref(),
        }
    }

    fn serving<'a>(&'a self, sets: &'a [Override], phase: Phase) -> ServingRequest<'a> {
        ServingRequest {
            system: &self.system,
            sets,
            model: &self.model,
            parallel: &self.parallel,
            stack: self.stack.as_deref(),
            phase,
            batch: self.batch,
            micro_batch: self.micro_batch,
            sequence: self.seq,
            sparsity: self.sparsity,
            draft: self.draft.as_ref().map(|of| DraftRequest {
                model: &of.model,
                tokens: of.tokens,
                accept: of.accept,
            }),
            dtype: None,
            kv_dtype: None,
            expert_load: self.expert_load.as_deref(),
            stage_layers: None,
        }
    }
}

impl FailuresOf {
    fn checked(&self) -> Result<Failures, Diagnostic> {
        let Self { mtbf_h, checkpoint_s, restart_s, checkpoint_every_s: interval_s } = *self;
        let failures = Failures { mtbf_h, checkpoint_s, restart_s, interval_s };
        failures.check().map(|()| failures)
    }
}

/// The SVG pictures of some files.
fn pictures(files: Vec<File>) -> Vec<(String, String)> {
    let svg = files.into_iter().filter_map(|file| {
        let name = file.name.strip_suffix(".svg")?.to_owned();
        Some((name, String::from_utf8_lossy(&file.bytes).into_owned()))
    });
    svg.collect()
}

/// A training step, prefill or decode on many chips.
#[pyfunction]
pub(crate) fn pod(py: Python<'_>, request: &str) -> PyResult<Texts> {
    let request: PodOf = read(request)?;
    watched(py, None, move |_| {
        let known = [("training", None), ("prefill", Some(Phase::Prefill)), ("decode", Some(Phase::Decode))];
        match named("phase", &request.phase, &known)? {
            None => training(&request),
            Some(phase) => serving(&request, phase),
        }
    })
}

fn training(request: &PodOf) -> Answer<Texts> {
    let sets = overrides(&request.base.sets)?;
    let failures = request.failures.as_ref().map(FailuresOf::checked).transpose()?;
    let stragglers = request.stragglers.as_deref().map(analysis::stragglers).transpose()?;
    let asked = request.base.training(&request.training, &sets, request.flat);
    let mut notes = Vec::new();
    let made =
        analysis::pod(&asked, &mut |note| notes.push(note.to_owned()), |system, stack, job, step| -> Answer<_> {
            let chips = job.parallel.chips();
            let goodput = failures.map(|failures| failures.goodput(chips));
            let slowest = stragglers.as_ref().map(|of| of.of_step(chips, step.step_s, step.computing_s()));
            let step = &TrainingStep { slowest, goodput, ..step.clone() };
            if let Some(directory) = &request.chakra {
                write_traces(directory, &ExecutionTraces::new(system, stack, job)?)?;
            }
            let report = PodReport { system, stack, job, step };
            Ok((report.json(), report.table(), pictures(report.files()?)))
        })??;
    Ok((made.0, made.1, made.2, notes))
}

fn serving(request: &PodOf, phase: Phase) -> Answer<Texts> {
    let sets = overrides(&request.base.sets)?;
    let mut notes = Vec::new();
    let asked = request.base.serving(&sets, phase);
    let made =
        analysis::serving(&asked, &mut |note| notes.push(note.to_owned()), |system, stack, service, load, served| {
            let setup = ServingSetup { system, stack, service };
            let report = ServingReport { setup, load, served, decodes: phase == Phase::Decode };
            Ok::<_, WriteError>((report.json(), report.table(), pictures(report.files()?)))
        })??;
    Ok((made.0, made.1, made.2, notes))
}

/// The best decomposition of a training step; `progress` hears how many are simulated of those that fit.
#[pyfunction]
#[pyo3(signature = (request, progress = None))]
pub(crate) fn pod_search(py: Python<'_>, request: &str, progress: Option<&Bound<'_, PyAny>>) -> PyResult<Texts> {
    let request: SearchOf = read(request)?;
    watched(py, progress, move |watch| {
        let sets = overrides(&request.base.sets)?;
        let asked = SearchRequest {
            pod: request.base.training(&request.training, &sets, false),
            is_micro_batch_fixed: request.base.micro_batch.is_some(),
            chips: request.chips,
            objective: objective(&request)?,
            failures: request.failures.as_ref().map(FailuresOf::checked).transpose()?,
        };
        let mut notes = Vec::new();
        let mut heard = |counts: &Counts, _: Option<&Job>| watch.tick(counts.simulated, counts.fit);
        let made = analysis::pod_search(&asked, &mut |note| notes.push(note.to_owned()), &mut heard, |report| {
            Ok::<_, WriteError>((report.json(), report.table(), pictures(report.files()?)))
        })??;
        Ok((made.0, made.1, made.2, notes))
    })
}

fn objective(request: &SearchOf) -> Result<Objective, Diagnostic> {
    let known = [("time", 0), ("tokens_per_chip", 1), ("chips", 2), ("energy", 3)];
    match (named("objective", &request.objective, &known)?, request.target_step_s) {
        (2, Some(seconds)) if seconds.is_finite() && seconds > 0.0 => Ok(Objective::Chips(seconds)),
        (2, _) => Err(Diagnostic::new("the objective \"chips\" needs `target_step_s`, a time above 0")),
        (_, Some(_)) => Err(Diagnostic::new("`target_step_s` has no effect without the objective \"chips\"")),
        (0, None) => Ok(Objective::Time),
        (3, None) => Ok(Objective::Energy),
        (_, None) => Ok(Objective::TokensPerChip),
    }
}

/// Requests that come and go.
#[pyfunction]
pub(crate) fn pod_requests(py: Python<'_>, request: &str) -> PyResult<Texts> {
    let request: RequestsOf = read(request)?;
    watched(py, None, move |_| {
        let sets = overrides(&request.base.sets)?;
        let policy = Policy {
            users: request.base.batch,
            kv_tokens: request.kv_tokens,
            prefill_tokens: request.prefill_tokens,
            prefix_share: request.prefix_share,
            chunk: request.prefill_chunk,
            seed: request.seed,
            concurrency: None,
        };
        let list = trace(&request)?;
        let known = request.grid.as_ref().map(|path| Grid::read(&path.display().to_string(), &text(path)?));
        let known = known.transpose()?;
        let asked = request.base.serving(&sets, Phase::Decode);
        let mut notes = Vec::new();
        let made = analysis::requests(
            &asked,
            &list,
            &policy,
            known.as_ref(),
            &mut |note| notes.push(note.to_owned()),
            |system, stack, service, streamed| {
                let report = StreamReport { setup: ServingSetup { system, stack, service }, streamed };
                Ok::<_, WriteError>((report.json(), report.table(), pictures(report.files()?)))
            },
        )??;
        Ok((made.0, made.1, made.2, notes))
    })
}

fn trace(request: &RequestsOf) -> Result<Trace, Failure> {
    let list = match (&request.trace, request.arrivals) {
        (Some(path), None) => read_trace(&path.display().to_string(), &text(path)?)?,
        (None, Some(per_s)) => {
            let requests = drawn(&Arrivals {
                per_s,
                count: request.requests,
                prompt: request.prompt_tokens,
                output: request.output_tokens,
                seed: request.seed,
            })?;
            Trace { requests, notes: Vec::new() }
        }
        _ => return Err(Diagnostic::new("requests need either `trace` or `arrivals`").into()),
    };
    Ok(list)
}

fn text(path: &Path) -> Result<String, Diagnostic> {
    input::read_text(path).map_err(|error| Diagnostic::new(format!("{} cannot be read: {error}", path.display())))
}
