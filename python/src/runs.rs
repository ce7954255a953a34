//! `compare` and `run`: a workload on one chip or several, and what came of it.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use rdusim::analysis::{self, Failure, Ran, Uncertainty};
use rdusim::arch;
use rdusim::diagnostics::Diagnostic;
use rdusim::input::{Given, Override};
use rdusim::report::{self, Chart, Document, File, Made, PageInput, Side};
use rdusim::workload::Workload;

use super::failure::raised;
use super::request::{Answer, Request, overrides, read};
use super::watch::watched;

/// Draws for ranges, as on the command line.
const SAMPLES: u64 = 40;

/// What ran, ready to be shown.
#[pyclass(frozen, module = "rdusim._native")]
pub(crate) struct Runs(Arc<Inner>);

struct Inner {
    workload: Workload,
    sides: Vec<Ran>,
    json: String,
    document: Document,
    /// The table's part on ranges.
    ranges: Option<String>,
    made: Made,
}

/// Runs a workload in some modes.
#[pyfunction]
#[pyo3(signature = (request, progress = None))]
pub(crate) fn compare(py: Python<'_>, request: &str, progress: Option<&Bound<'_, PyAny>>) -> PyResult<Runs> {
    let request: Request = read(request)?;
    let inner = watched(py, progress, move |_| ran(&request))?;
    Ok(Runs(Arc::new(inner)))
}

fn ran(request: &Request) -> Answer<Inner> {
    let sets = request.sets()?;
    let mut of_others: Vec<Vec<Override>> = Vec::new();
    for (_, sets) in &request.against {
        of_others.push(overrides(sets)?);
    }
    let mut files: Vec<(Given, &[Override])> = vec![(request.arch.given(), &sets)];
    files.extend(request.against.iter().zip(&of_others).map(|((other, _), sets)| (other.given(), &sets[..])));
    let chips: Vec<_> = files.iter().map(|(given, sets)| arch::take(given, sets)).collect::<Result<_, _>>()?;
    let (workload, modes, options) = (request.workload(&sets)?, request.modes()?, request.options()?);
    let mut sides = Vec::with_capacity(chips.len());
    for chip in chips {
        let ran = Ran::on(chip, &workload, &modes, &options, &mut |_| {})?;
        ran.drained()?;
        sides.push(ran);
    }
    let nothing = || Failure::Refused(Diagnostic::new("there is no chip"));
    let mut document = analysis::document(&workload, &sides, &options, request.seed).ok_or_else(nothing)?;
    if request.uncertainty {
        let how = Uncertainty { samples: request.samples.unwrap_or(SAMPLES), seed: request.seed };
        analysis::add_ranges(&mut document, how, &options, &workload, &modes, &files, &sides)?;
    }
    let input = |given: &Given| PageInput {
        name: given.name(),
        text: match given {
            Given::File(path) => rdusim::input::text_of(path).unwrap_or_default(),
            Given::Text { text, .. } => text.clone(),
        },
    };
    let inputs = files.iter().map(|(given, _)| input(given)).chain([input(&request.workload.given())]).collect();
    let ranges = request.uncertainty.then(|| report::uncertainty_table(&document));
    let (made, json) = (Made::new(request.command.clone(), inputs), document.to_json());
    Ok(Inner { workload, sides, json, document, ranges, made })
}

impl Inner {
    fn shown(&self) -> Vec<Side<'_>> {
        self.sides.iter().map(Ran::side).collect()
    }

    fn page(&self) -> Vec<File> {
        analysis::page(&self.workload, &self.sides, &self.document, self.made.clone())
    }

    fn files(&self) -> Answer<Vec<File>> {
        let mut files = report::files_of(&self.workload, &self.shown())?;
        if let Some(result) = files.iter_mut().find(|file| file.name == "result.json") {
            result.bytes = self.json.clone().into_bytes();
        }
        files.extend(self.page());
        Ok(files)
    }
}

#[pymethods]
impl Runs {
    /// The result as the command line prints it with `--format json`, byte for byte.
    fn json(&self) -> &str {
        &self.0.json
    }

    /// The table that the command line prints.
    fn table(&self) -> String {
        let table = report::table_of(&self.0.workload, &self.0.shown());
        match &self.0.ranges {
            Some(ranges) => format!("{table}\n{ranges}"),
            None => table,
        }
    }

    /// The page, one HTML file.
    fn page(&self, py: Python<'_>) -> String {
        let inner = Arc::clone(&self.0);
        py.detach(move || {
            let page = inner.page().into_iter().find(|file| file.name == "report.html");
            page.map(|file| String::from_utf8_lossy(&file.bytes).into_owned()).unwrap_or_default()
        })
    }

    /// A chart as SVG: `traffic`, `time` or `roofline`.
    fn svg(&self, chart: &str) -> PyResult<String> {
        let found = Chart::ALL.into_iter().find(|known| known.name() == chart);
        let chart = found.ok_or_else(|| {
            let names = Chart::ALL.map(Chart::name).join(", ");
            PyValueError::new_err(format!("there is no chart {chart:?}: expected one of {names}"))
        })?;
        chart.svg_of(&self.0.workload, &self.0.shown()).map_err(|error| PyValueError::new_err(error.to_string()))
    }

    /// Writes the files of `--out DIR`.
    fn write(&self, py: Python<'_>, directory: PathBuf) -> PyResult<()> {
        let inner = Arc::clone(&self.0);
        let written = py.detach(move || -> Answer<()> { Ok(report::write(&directory, &inner.files()?)?) });
        written.map_err(|failure| raised(py, &failure))
    }
}
