//! Failures as exceptions of `rdusim._errors`: message, file, line, column, field and advice.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use rdusim::analysis::Failure;
use rdusim::diagnostics::{COMMAND_LINE, Diagnostic};
use rdusim::input::field_of;

/// The exception for a failure.
pub(crate) fn raised(py: Python<'_>, failure: &Failure) -> PyErr {
    let made = match failure {
        Failure::Refused(error) => of_input(py, error),
        Failure::Deadlock(mode, blocked) => {
            let title = format!("the {mode} run is deadlocked: no stage can go on");
            plain(py, "DeadlockError", &format!("{title}\n  {}", blocked.join("\n  ")))
        }
        Failure::Limit(mode, reached) => plain(py, "LimitError", &format!("the {mode} run is too long: {reached}")),
        Failure::Unproved(why) => plain(py, "ProofError", &format!("the certificate is refused: {why}")),
        Failure::Files(error) => plain(py, "FileError", &error.to_string()),
    };
    made.unwrap_or_else(|error| error)
}

/// The exception for a mistake in an input.
pub(crate) fn refused(py: Python<'_>, error: &Diagnostic) -> PyErr {
    of_input(py, error).unwrap_or_else(|error| error)
}

fn of_input(py: Python<'_>, error: &Diagnostic) -> PyResult<PyErr> {
    let about = PyDict::new(py);
    about.set_item("advice", error.help())?;
    about.set_item("field", field_of(error))?;
    if let Some(origin) = error.origin() {
        if origin.path == COMMAND_LINE {
            about.set_item("file", Option::<String>::None)?;
        } else {
            let (line, column) = origin.line_column();
            about.set_item("file", &origin.path)?;
            about.set_item("line", line)?;
            about.set_item("column", column)?;
        }
    }
    about.set_item("rendered", error.render(false))?;
    new(py, "InputError", error.title(), Some(&about))
}

fn plain(py: Python<'_>, class: &str, message: &str) -> PyResult<PyErr> {
    new(py, class, message, None)
}

fn new(py: Python<'_>, class: &str, message: &str, about: Option<&Bound<'_, PyDict>>) -> PyResult<PyErr> {
    let class = py.import("rdusim._errors")?.getattr(class)?;
    Ok(PyErr::from_value(class.call((message,), about)?))
}
