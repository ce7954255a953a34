//! Studies: run whole, in parts by others, and collected; their tables.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use indexmap::IndexMap;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use rdusim::analysis::Failure;
use rdusim::input::text_of;
use rdusim::report::{self, File, Made, Page, PageInput};
use rdusim::study::sweep::{self, Results, Shard};
use serde::Deserialize;

use super::arrow;
use super::failure::{raised, refused};
use super::request::{Answer, Input, overrides, quality, read};
use super::watch::watched;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StudyRequest {
    study: Input,
    /// Texts of chips and workloads by the names that the study has for them.
    texts: IndexMap<PathBuf, String>,
    sets: Vec<String>,
    mapping: Option<String>,
}

/// A study, ready to run.
#[pyclass(frozen, module = "rdusim._native")]
pub(crate) struct Study {
    inner: Arc<sweep::Study>,
    input: Input,
    texts: IndexMap<PathBuf, String>,
}

#[pymethods]
impl Study {
    #[new]
    fn new(py: Python<'_>, request: &str) -> PyResult<Self> {
        let StudyRequest { study: input, texts, sets, mapping } = read(request)?;
        let made = || {
            let mapping = mapping.as_deref().map(quality).transpose()?;
            sweep::Study::take(&input.given(), texts.clone(), &overrides(&sets)?, mapping)
        };
        let study = made().map_err(|error| refused(py, &error))?;
        Ok(Self { inner: Arc::new(study), input, texts })
    }

    #[getter]
    fn name(&self) -> &str {
        self.inner.name()
    }

    #[getter]
    fn points(&self) -> usize {
        self.inner.points()
    }

    #[getter]
    fn columns(&self) -> Vec<String> {
        self.inner.columns().to_vec()
    }

    /// For each point, a hash of everything that its result depends on.
    fn keys(&self, py: Python<'_>) -> PyResult<Vec<Option<String>>> {
        let study = Arc::clone(&self.inner);
        watched(py, None, move |_| Ok(sweep::point_keys(&study)?))
    }

    /// Runs some points; a line with a checksum for each.
    #[pyo3(signature = (indices, threads = None, progress = None))]
    fn run_points(
        &self,
        py: Python<'_>,
        indices: Vec<usize>,
        threads: Option<usize>,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Vec<String>> {
        let study = Arc::clone(&self.inner);
        watched(py, progress, move |watch| {
            Ok(sweep::run_points(&study, &indices, threads, &|done, all| watch.tick(done, all))?)
        })
    }

    /// Runs the points that the journal in `out` does not have yet; `shard`: part i of n, from 1.
    #[pyo3(signature = (threads = None, out = None, shard = None, progress = None))]
    fn sweep(
        &self,
        py: Python<'_>,
        threads: Option<usize>,
        out: Option<PathBuf>,
        shard: Option<(usize, usize)>,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Table> {
        let shard = match shard {
            None => Shard::WHOLE,
            Some((index, count)) if index >= 1 && index <= count => Shard { index, count },
            Some((index, count)) => {
                return Err(PyValueError::new_err(format!("shard {index} of {count} is none: they count from 1")));
            }
        };
        let writer = self.writer(out.clone());
        let study = Arc::clone(&self.inner);
        watched(py, progress, move |watch| {
            let tick = |done, all| watch.tick(done, all);
            let results = sweep::sweep(&study, shard, threads, out.as_deref(), &tick)?;
            writer.table(&results)
        })
    }

    /// Joins the journals of shards.
    #[pyo3(signature = (directories, out = None))]
    fn merge(&self, py: Python<'_>, directories: Vec<PathBuf>, out: Option<PathBuf>) -> PyResult<Table> {
        let (writer, study) = (self.writer(out), Arc::clone(&self.inner));
        watched(py, None, move |_| {
            let directories: Vec<&Path> = directories.iter().map(AsRef::as_ref).collect();
            writer.table(&sweep::merge(&study, &directories)?)
        })
    }

    /// Goes on from the journal in `out` with lines that others make.
    #[pyo3(signature = (out = None))]
    fn collector(&self, py: Python<'_>, out: Option<PathBuf>) -> PyResult<Collector> {
        let opened = sweep::Collector::open(&self.inner, out.as_deref()).map_err(Failure::from);
        let collector = opened.map_err(|failure| raised(py, &failure))?;
        let writer = self.writer(out);
        Ok(Collector { study: Arc::clone(&self.inner), inner: Mutex::new(Some(collector)), writer })
    }
}

impl Study {
    fn writer(&self, out: Option<PathBuf>) -> Writer {
        let mut inputs = vec![self.input.clone()];
        inputs.extend(self.inner.input_files().iter().map(|path| Input::of(path, self.texts.get(path))));
        Writer { out, inputs }
    }
}

/// Makes tables, and the files of `--out` if they are asked for.
#[derive(Clone)]
struct Writer {
    out: Option<PathBuf>,
    inputs: Vec<Input>,
}

impl Writer {
    fn table(&self, results: &Results<'_>) -> Answer<Table> {
        if let Some(directory) = &self.out {
            let mut files = results.files()?;
            let mut page = Page::new(Made::new("rdusim.sweep".to_owned(), self.inputs.iter().map(shown).collect()));
            page.set_points(results.points());
            files.push(File { name: "report.html".to_owned(), bytes: page.html().into_bytes() });
            report::write(directory, &files)?;
            // The whole table is there now. If the part of it stays, the next sweep begins it anew.
            let _ = std::fs::remove_file(directory.join(sweep::PARTIAL_TABLE));
        }
        Ok(Table {
            columns: results.columns().to_vec(),
            rows: results.rows().to_vec(),
            csv: results.to_csv(),
            json: results.to_json(),
            text: results.to_text(),
            warnings: results.warnings().to_vec(),
        })
    }
}

fn shown(input: &Input) -> PageInput {
    let (name, text) = input.parts();
    PageInput {
        name: name.to_owned(),
        text: text.map_or_else(|| text_of(name.as_ref()), |t| Some(t.to_owned())).unwrap_or_default(),
    }
}

/// Takes the lines of points, each point once, in any order.
#[pyclass(frozen, module = "rdusim._native")]
pub(crate) struct Collector {
    study: Arc<sweep::Study>,
    inner: Mutex<Option<sweep::Collector>>,
    writer: Writer,
}

impl Collector {
    fn with<T>(&self, work: impl FnOnce(&mut sweep::Collector) -> PyResult<T>) -> PyResult<T> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let closed = || PyRuntimeError::new_err("the collector is finished");
        work(inner.as_mut().ok_or_else(closed)?)
    }
}

#[pymethods]
impl Collector {
    /// Points that no line has come of.
    fn pending(&self) -> PyResult<Vec<usize>> {
        self.with(|inner| Ok(inner.pending()))
    }

    /// Takes lines into the journal; returns how many were new.
    fn add(&self, py: Python<'_>, lines: Vec<String>) -> PyResult<usize> {
        self.with(|inner| inner.add(&self.study, &lines).map_err(|error| raised(py, &Failure::from(error))))
    }

    /// The table; the collector is closed.
    fn finish(&self, py: Python<'_>) -> PyResult<Table> {
        let taken = self.inner.lock().unwrap_or_else(PoisonError::into_inner).take();
        let inner = taken.ok_or_else(|| PyRuntimeError::new_err("the collector is finished"))?;
        let (study, writer) = (Arc::clone(&self.study), self.writer.clone());
        watched(py, None, move |_| writer.table(&inner.finish(&study)?))
    }

    /// Lets go of the journal.
    fn close(&self) {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// The rows of a study.
#[pyclass(frozen, module = "rdusim._native")]
pub(crate) struct Table {
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
    csv: String,
    json: String,
    text: String,
    warnings: Vec<String>,
}

#[pymethods]
impl Table {
    #[getter]
    fn columns(&self) -> Vec<String> {
        self.columns.clone()
    }

    /// Cells as in the CSV file, in the order of the columns.
    #[getter]
    fn rows(&self) -> Vec<Vec<String>> {
        self.rows.clone()
    }

    #[getter]
    fn warnings(&self) -> Vec<String> {
        self.warnings.clone()
    }

    fn __len__(&self) -> usize {
        self.rows.len()
    }

    /// The bytes of `results.csv`.
    fn csv(&self) -> &str {
        &self.csv
    }

    /// The bytes of `summary.json`.
    fn json(&self) -> &str {
        &self.json
    }

    /// The bytes of `summary.txt`.
    fn text(&self) -> &str {
        &self.text
    }

    /// The table as a stream of the Arrow C data interface; `requested_schema` is not followed, as that interface allows.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let _ = requested_schema;
        Ok(arrow::stream(py, &self.columns, &self.rows)?.into_any())
    }
}

/// What a line says without its point's index; `None` if it is damaged.
#[pyfunction]
pub(crate) fn line_content(line: &str) -> Option<String> {
    sweep::line_content(line)
}

/// The line of a point from such content; `None` if it is damaged.
#[pyfunction]
pub(crate) fn line_of(content: &str, index: usize) -> Option<String> {
    sweep::line_of(content, index)
}
