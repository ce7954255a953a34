//! Analyses whose results are texts: explain, verify, map, diff, sparsity, validate, prove.

use std::path::PathBuf;

use pyo3::prelude::*;
use rdusim::analysis::{self, MaskRequest, ProofFile, ProofInputs, VerifyRequest};
use rdusim::arch::{self, Chip};
use rdusim::compile::Effort;
use rdusim::diagnostics::Diagnostic;
use rdusim::input::Override;
use rdusim::map::{summarize, tell_times};
use rdusim::report;
use rdusim::study::Inputs;
use rdusim::study::diff as results;
use rdusim::study::explain::{self as explained, Question};
use rdusim::units::Dtype;
use serde::Deserialize;

use super::request::{Input, Request, named, overrides, read};
use super::watch::watched;

/// What bounds each section, and what one more of each resource saves: JSON and text.
#[pyfunction]
#[pyo3(signature = (request, progress = None))]
pub(crate) fn explain(
    py: Python<'_>,
    request: &str,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<(String, String)> {
    let request: Request = read(request)?;
    watched(py, progress, move |watch| {
        let (sets, import) = (request.sets()?, request.import()?);
        let inputs = Inputs::open(
            &request.arch.given(),
            &request.workload.given(),
            &import,
            &sets,
            request.seed,
            request.quality()?,
        )?;
        let question = Question {
            modes: request.modes()?,
            effort: Effort::Full,
            fidelity: request.fidelity()?,
            uncertainty: request.uncertainty,
        };
        let answer = explained::explain(&inputs, &question, &|done, all| watch.tick(done, all))?;
        Ok((answer.to_json(), answer.to_text()))
    })
}

/// The RDU that a function needs.
fn rdu_for(function: &str, request: &Request, sets: &[Override]) -> Result<Chip, Diagnostic> {
    arch::take(&request.arch.given(), sets)?.into_rdu().map_err(|other| {
        let title = format!("`{function}` needs an RDU: {} has no configurations", other.device().name());
        Diagnostic::new(title).with_help("`run` and `compare` take other chips")
    })
}

/// Runs the configurations on numbers: JSON, text, and the modes that do not compute what the graph says.
#[pyfunction]
pub(crate) fn verify(py: Python<'_>, request: &str) -> PyResult<(String, String, Vec<String>)> {
    let request: Request = read(request)?;
    watched(py, None, move |_| {
        let (sets, modes, options) = (request.sets()?, request.modes()?, request.options()?);
        let chip = rdu_for("verify", &request, &sets)?.under(options.quality)?;
        let load = |smaller: &[Override]| {
            let all: Vec<Override> = sets.iter().chain(smaller).cloned().collect();
            request.workload(&all)
        };
        let asked = VerifyRequest {
            chip: &chip,
            modes: &modes,
            max_flops: request.max_flops.unwrap_or(500_000_000),
            seed: request.seed,
            source: options.source,
        };
        let verified = analysis::verify(&asked, &load, &mut |_| {}, &mut |_| {})?;
        let failed = verified.failed.iter().map(|&mode| mode.to_owned()).collect();
        Ok((verified.verdict.to_json(), report::verify_table(&verified.verdict), failed))
    })
}

/// The first mode's mapping with names and coordinates: JSON and text.
#[pyfunction]
pub(crate) fn map(py: Python<'_>, request: &str) -> PyResult<(String, String)> {
    let request: Request = read(request)?;
    watched(py, None, move |_| {
        let (sets, options) = (request.sets()?, request.options()?);
        let mode = request.modes()?.first().copied().ok_or_else(|| Diagnostic::new("there is no mode"))?;
        let chip = rdu_for("map", &request, &sets)?.under(options.quality)?;
        let workload = analysis::graph_on(&chip, request.workload(&sets)?);
        let how = (options.fidelity, options.skip);
        let execution = analysis::execute(&chip, &workload, &[mode], how.0, how.1, &options.source, &mut |_| {})?;
        let (Some(measured), Some(outcome)) = (execution.configurations.first(), execution.outcomes.first()) else {
            return Err(Diagnostic::new("there is no configuration").into());
        };
        let mut map = summarize(&chip, &workload, &measured.configuration);
        tell_times(&mut map, &chip, &measured.configuration, outcome);
        Ok((map.to_json(), report::map_table(&chip, &workload, &map)))
    })
}

/// What changed between two results of `compare` or `run`, given as their JSON: JSON and text.
#[pyfunction]
pub(crate) fn diff(py: Python<'_>, a: String, b: String) -> PyResult<(String, String)> {
    watched(py, None, move |_| {
        let found = results::diff(("<a>", &a), ("<b>", &b))?;
        Ok((found.to_json(), found.to_text()))
    })
}

/// Which mask is looked over.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sparsity {
    /// A pattern, the path of a file, or what the workload is called.
    source: String,
    /// A request of the workload, if the mask is that of a weight.
    workload: Option<Request>,
    key: Option<String>,
    shape: Option<(u64, u64)>,
    block: Option<(u64, u64)>,
    density: Option<f64>,
    exponent: f64,
    transpose: bool,
    dtype: String,
    pcus: u64,
    seed: u64,
}

/// The numbers of a mask: JSON, text, and the picture as SVG.
#[pyfunction]
pub(crate) fn sparsity(py: Python<'_>, request: &str) -> PyResult<(String, String, String)> {
    let request: Sparsity = read(request)?;
    watched(py, None, move |_| {
        let workload = match &request.workload {
            Some(of) => Some(of.workload(&of.sets()?)?),
            None => None,
        };
        for (name, size) in [("shape", request.shape), ("block", request.block)] {
            if size.is_some_and(|(rows, columns)| rows.min(columns) < 1 || rows.max(columns) > MOST_EXTENT) {
                return Err(Diagnostic::new(format!("`{name}` takes two numbers from 1 to 2^40")).into());
            }
        }
        let known = Dtype::ALL.map(|dtype| (dtype.name(), dtype));
        let found = analysis::mask(&MaskRequest {
            source: &request.source,
            workload: workload.as_ref(),
            key: request.key.as_deref(),
            shape: request.shape,
            block: request.block,
            density: request.density,
            exponent: request.exponent,
            transpose: request.transpose,
            dtype: named("dtype", &request.dtype, &known)?,
            seed: request.seed,
        })?;
        let shown = found.report(request.pcus.max(1));
        Ok((shown.to_json(), shown.table(), shown.svg()?))
    })
}

/// Most rows or columns of a matrix.
const MOST_EXTENT: u64 = 1 << 40;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Validation {
    /// A chip file in place of the shipped ones.
    arch: Option<PathBuf>,
    sets: Vec<String>,
    only: Vec<String>,
}

/// Simulates published measurements: JSON and text.
#[pyfunction]
pub(crate) fn validate(py: Python<'_>, request: &str) -> PyResult<(String, String)> {
    let request: Validation = read(request)?;
    watched(py, None, move |_| {
        let reports = analysis::validate(request.arch.as_deref(), &overrides(&request.sets)?, &request.only)?;
        Ok((report::validation_json(&reports), report::validation_table(&reports)))
    })
}

/// A certificate of how far the first mode's mapping is from the best: JSON and text.
#[pyfunction]
pub(crate) fn prove(py: Python<'_>, request: &str) -> PyResult<(String, String)> {
    let request: Request = read(request)?;
    watched(py, None, move |_| {
        let sets = request.sets()?;
        let inputs = ProofInputs {
            arch: &request.arch.given(),
            workload: &request.workload.given(),
            model: &request.model.flags()?,
            sets: &sets,
            quality: request.quality()?,
            seed: request.seed,
        };
        let mode = request.modes()?.first().copied().ok_or_else(|| Diagnostic::new("there is no mode"))?;
        let file = analysis::prove(&inputs, mode, &mut |_| {})?;
        Ok((file.to_json()?, analysis::proved(&file)))
    })
}

/// Checks a certificate; `inputs`: chip and workload, if they are no files.
#[pyfunction]
#[pyo3(signature = (certificate, inputs = None))]
pub(crate) fn check_proof(py: Python<'_>, certificate: String, inputs: Option<&str>) -> PyResult<()> {
    let inputs: Option<(Input, Input)> = inputs.map(read).transpose()?;
    watched(py, None, move |_| {
        let file = ProofFile::parse("<certificate>", &certificate)?;
        let given = inputs.map(|(arch, workload)| (arch.given(), workload.given()));
        analysis::check(&file, given.as_ref().map(|(arch, workload)| (arch, workload)))
    })
}
