//! Standard output.

use std::io::{self, BufWriter, Write};
use std::path::Path;

use crate::diagnostics::{Diagnostic, printable};
use crate::report::{self, File};

use super::failure::Failure;
use super::made::made;
use super::values::Format;

/// Prints a result as it is: JSON, a script, a page, a workload file.
pub(super) fn print(bytes: &[u8]) -> Result<(), Failure> {
    result_of(write(BufWriter::new(io::stdout().lock()), bytes))
}

/// Prints a result in the form that was asked for; `text` is JSON for all but tables.
pub(super) fn print_as(format: Format, text: &str) -> Result<(), Failure> {
    match format {
        Format::Table => print_text(text),
        Format::Json => print(text.as_bytes()),
        Format::Csv => {
            let table = report::result_csv(text);
            print(table.map_err(|error| Failure::Output(io::Error::other(error)))?.as_bytes())
        }
    }
}

/// Writes files into the directory of `--out`, if there is one, and prints a result in the form that was asked for.
pub(super) fn show(out: Option<&Path>, files: &[File], format: Format, text: &str) -> Result<(), Failure> {
    if let Some(directory) = out {
        report::write(directory, files)?;
    }
    print_as(format, text)
}

/// The same, with the page of the files in the directory; `inputs` are what the command read.
pub(super) fn show_with_page(
    out: Option<&Path>,
    files: Vec<File>,
    inputs: &[&Path],
    format: Format,
    text: &str,
) -> Result<(), Failure> {
    show(out, &with_page(out, files, inputs)?, format, text)
}

/// Files of a result, with its page where they go into a directory.
pub(super) fn with_page(out: Option<&Path>, mut files: Vec<File>, inputs: &[&Path]) -> Result<Vec<File>, Failure> {
    if out.is_some() {
        // The result was made by this program: what refuses it is a bug.
        let refused = |error: report::SavedError| Diagnostic::new(format!("no page: the result is {error}"));
        files.extend(report::page_of(&files, made(inputs)).map_err(refused)?);
    }
    Ok(files)
}

/// Prints text for people. Names come from files that anybody may have written: what would steer a terminal is shown.
pub(super) fn print_text(text: &str) -> Result<(), Failure> {
    print(printable(text).as_bytes())
}

/// What printing came to. A reader that has gone away (`| head`) has what it wanted: no failure.
pub(super) fn result_of(printed: io::Result<()>) -> Result<(), Failure> {
    match printed {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::Output(error)),
        _ => Ok(()),
    }
}

fn write(mut out: impl Write, bytes: &[u8]) -> io::Result<()> {
    out.write_all(bytes).and_then(|()| out.flush())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Failing(io::ErrorKind);

    impl Write for Failing {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn only_a_broken_pipe_is_forgiven() {
        assert!(result_of(write(Failing(io::ErrorKind::BrokenPipe), b"x")).is_ok());
        assert!(result_of(write(Failing(io::ErrorKind::StorageFull), b"x")).is_err());
        assert!(result_of(write(Vec::new(), b"x")).is_ok());
    }
}
