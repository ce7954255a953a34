//! How a command fails: what is said, and with which exit code.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use crate::analysis;
use crate::diagnostics::Diagnostic;
use crate::report::WriteError;
use crate::study::StudyError;

/// Why a command did not do what was asked.
#[derive(Debug)]
pub(super) enum Failure {
    /// Arguments, files or values that cannot be used.
    Refused(Vec<Diagnostic>),
    /// A run that cannot go on: its mode, and one line a blocked stage.
    Deadlock(&'static str, Vec<String>),
    /// A run that was too long for the engine: its mode, and what was reached.
    Limit(&'static str, String),
    /// Numbers that do not come out: the modes. The result says where.
    Mismatch(Vec<&'static str>),
    /// A certificate that is not believed: its file, and why.
    Unproved(String, String),
    /// A file of `--out` could not be written.
    Files(WriteError),
    /// Standard output could not be written.
    Output(io::Error),
}

impl From<Diagnostic> for Failure {
    fn from(diagnostic: Diagnostic) -> Self {
        Self::Refused(vec![diagnostic])
    }
}

impl From<analysis::Failure> for Failure {
    fn from(failure: analysis::Failure) -> Self {
        match failure {
            analysis::Failure::Refused(diagnostic) => diagnostic.into(),
            analysis::Failure::Deadlock(mode, blocked) => Self::Deadlock(mode, blocked),
            analysis::Failure::Limit(mode, reached) => Self::Limit(mode, reached),
            analysis::Failure::Unproved(why) => Self::Unproved("the certificate".to_owned(), why),
            analysis::Failure::Files(error) => error.into(),
        }
    }
}

impl From<StudyError> for Failure {
    fn from(error: StudyError) -> Self {
        match error {
            StudyError::Refused(diagnostic) => diagnostic.into(),
            StudyError::Files(error) => error.into(),
        }
    }
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Self {
        Self::Files(error)
    }
}

impl Failure {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Refused(_) => 2,
            Self::Deadlock(..)
            | Self::Limit(..)
            | Self::Mismatch(_)
            | Self::Unproved(..)
            | Self::Files(_)
            | Self::Output(_) => 1,
        }
    }

    /// The message for a terminal (`styled`) or a file.
    fn message(&self, styled: bool) -> String {
        let diagnostics = match self {
            Self::Refused(diagnostics) => diagnostics,
            Self::Deadlock(mode, blocked) => {
                let title = format!("the {mode} run is deadlocked: no stage can go on");
                let mut text = Diagnostic::new(title).render(styled);
                for line in blocked {
                    text.push_str("\n  ");
                    text.push_str(line);
                }
                return text;
            }
            Self::Limit(mode, reached) => &vec![Diagnostic::new(format!("the {mode} run is too long: {reached}"))],
            Self::Mismatch(modes) => {
                let title =
                    format!("the {} configuration does not compute what the graph says", modes.join(" and the "));
                &vec![Diagnostic::new(title)]
            }
            Self::Unproved(file, why) => &vec![Diagnostic::new(format!("{file}: the certificate is refused: {why}"))],
            Self::Files(error) => &vec![Diagnostic::new(error.to_string())],
            Self::Output(error) => &vec![Diagnostic::new(format!("cannot write to standard output: {error}"))],
        };
        diagnostics.iter().map(|diagnostic| diagnostic.render(styled)).collect::<Vec<_>>().join("\n\n")
    }

    /// Says it on standard error; returns the exit code.
    pub(super) fn report(&self) -> ExitCode {
        let mut stderr = io::stderr().lock();
        let styled = stderr.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        // There is nowhere left to complain about a closed standard error.
        let _ = writeln!(stderr, "{}", self.message(styled));
        ExitCode::from(self.exit_code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadlock_names_the_blocked_stages() {
        let failure = Failure::Deadlock("fused", vec!["up waits for a credit of h".into()]);
        assert_eq!(failure.exit_code(), 1);
        let message = failure.message(false);
        assert!(message.contains("the fused run is deadlocked") && message.ends_with("\n  up waits for a credit of h"));
    }

    #[test]
    fn every_refusal_is_told() {
        let failure = Failure::Refused(vec![Diagnostic::new("first"), Diagnostic::new("second")]);
        assert_eq!(failure.exit_code(), 2);
        assert_eq!(failure.message(false), "error: first\n\nerror: second");
    }
}
