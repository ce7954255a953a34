//! What-if studies: why a run takes its time, what would change it, and sweeps over fields of chip and workload.
//!
//! A study calls the library as a user would: it reads inputs with overrides, compiles, simulates, and compares.

pub mod break_even;
pub mod diff;
pub mod explain;
mod gaps;
mod inputs;
mod strata;
pub mod sweep;
pub mod uncertainty;

pub use gaps::add_least_cycles;
pub use inputs::{Inputs, run_plain};

use crate::diagnostics::Diagnostic;
use crate::report::WriteError;

/// Why a study did not end with a result.
#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    /// Something a user gave cannot be used.
    #[error(transparent)]
    Refused(#[from] Diagnostic),
    /// A file could not be written.
    #[error(transparent)]
    Files(#[from] WriteError),
}
