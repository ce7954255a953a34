//! Why an analysis ends without a result.

use crate::diagnostics::Diagnostic;
use crate::outcome::{Outcome, StopReason};
use crate::report::WriteError;
use crate::study::StudyError;

/// Why an analysis ends without a result.
#[derive(Debug)]
pub enum Failure {
    /// Inputs that cannot be used.
    Refused(Diagnostic),
    /// A run that cannot go on: its mode, and one line a blocked stage.
    Deadlock(&'static str, Vec<String>),
    /// A run that was too long for the engine: its mode, and what was reached.
    Limit(&'static str, String),
    /// A certificate that does not hold, and why.
    Unproved(String),
    /// A file that could not be written.
    Files(WriteError),
}

impl From<Diagnostic> for Failure {
    fn from(diagnostic: Diagnostic) -> Self {
        Self::Refused(diagnostic)
    }
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Self {
        Self::Files(error)
    }
}

impl From<StudyError> for Failure {
    fn from(error: StudyError) -> Self {
        match error {
            StudyError::Refused(diagnostic) => Self::Refused(diagnostic),
            StudyError::Files(error) => Self::Files(error),
        }
    }
}

impl Failure {
    /// Refuses an outcome that did not run to its end.
    pub(super) fn unless_drained(outcome: &Outcome) -> Result<(), Self> {
        match &outcome.stop {
            StopReason::Drained => Ok(()),
            StopReason::Deadlock(blocked) => Err(Self::Deadlock(outcome.mode.name(), blocked.clone())),
            StopReason::Limit(reached) => Err(Self::Limit(outcome.mode.name(), reached.clone())),
        }
    }
}
