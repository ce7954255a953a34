//! `rdusim diff`: what changed between two results.

use crate::study::diff;

use super::failure::Failure;
use super::output;
use super::report::read;
use super::study_args::DiffArgs;
use super::values::Format;

/// Compares two `result.json`.
pub(super) fn diff(args: &DiffArgs) -> Result<(), Failure> {
    let (a, b) = (read(&args.a)?, read(&args.b)?);
    let found = diff::diff((&args.a.display().to_string(), &a), (&args.b.display().to_string(), &b))?;
    let text = match args.format {
        Format::Table => found.to_text(),
        Format::Json | Format::Csv => found.to_json(),
    };
    output::print_as(args.format, &text)
}
