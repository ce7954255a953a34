//! `rdusim diff`: what changed between two results.

use std::path::Path;

use crate::diagnostics::Diagnostic;
use crate::study::diff;

use super::failure::Failure;
use super::output;
use super::study_args::DiffArgs;
use super::values::Format;

/// Compares two `result.json`.
pub(super) fn diff(args: &DiffArgs) -> Result<(), Failure> {
    let (a, b) = (read(&args.a)?, read(&args.b)?);
    let found = diff::diff((&args.a.display().to_string(), &a), (&args.b.display().to_string(), &b))?;
    let text = match args.format {
        Format::Table => found.to_text(),
        Format::Json => found.to_json(),
    };
    output::print(text.as_bytes())
}

fn read(path: &Path) -> Result<String, Diagnostic> {
    std::fs::read_to_string(path).map_err(|error| Diagnostic::new(format!("cannot read `{}`: {error}", path.display())))
}
