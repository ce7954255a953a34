//! The native half of the Python package `rdusim`: requests as JSON texts in, results as JSON texts and pictures out.
//!
//! Everything is a few lines over the public functions of the library; what a user sees is in `python/rdusim/`.

mod arrow;
mod failure;
mod inputs;
mod other;
mod pod;
mod request;
mod runs;
mod study;
mod watch;

/// The native half: requests as JSON texts in, results as texts out. Use the package, not this module.
#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use super::inputs::{builtins, chip_json, import_text, model_text, text_of, to_toml, workload_json};
    #[pymodule_export]
    use super::other::{check_proof, diff, explain, map, prove, sparsity, validate, verify};
    #[pymodule_export]
    use super::pod::{pod, pod_requests, pod_search};
    #[pymodule_export]
    use super::runs::{Runs, compare};
    #[pymodule_export]
    use super::study::{Collector, Study, Table, line_content, line_of};

    /// Version of the simulator.
    #[pymodule_export]
    #[allow(non_upper_case_globals, reason = "Python's name")]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
