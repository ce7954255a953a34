//! Refuses outputs that would replace an input, or each other, before any work.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::{ArgMatches, CommandFactory};

use super::args::Cli;
use crate::diagnostics::Diagnostic;

/// Arguments that name a file to be written, in the commands that have them.
const OUTPUTS: [&str; 5] = ["out", "save_config", "output", "trace", "chakra"];

/// A file that a command reads or writes, and the argument that names it.
struct Named {
    argument: String,
    path: PathBuf,
    /// The file itself, links resolved.
    file: PathBuf,
}

/// What is wrong with the files that arguments name, if something is.
pub(super) fn refusal(arguments: &[OsString]) -> Option<Diagnostic> {
    let matches = Cli::command().try_get_matches_from(arguments).ok()?;
    let (command, of_command) = matches.subcommand()?;
    let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
    for id in of_command.ids().map(clap::Id::as_str).filter(|id| *id != "verbose") {
        // Requests come from a trace, runs go into one.
        let is_output = OUTPUTS.contains(&id) && !(command == "pod" && id == "trace");
        for value in raw(of_command, id) {
            let path = PathBuf::from(value);
            let Some(file) = resolved(&path) else { continue };
            let argument = if is_output { format!("--{}", id.replace('_', "-")) } else { id.replace('_', "-") };
            let named = Named { argument, path, file };
            if is_output {
                outputs.push(named);
            } else if named.file.is_file() {
                inputs.push(named);
            }
        }
    }
    for (at, output) in outputs.iter().enumerate() {
        if let Some(input) = inputs.iter().find(|input| input.file == output.file) {
            let title = format!(
                "`{} {}` would replace `{}`, which the command reads",
                output.argument,
                output.path.display(),
                input.path.display()
            );
            return Some(Diagnostic::new(title).with_help("name another file to be written"));
        }
        if let Some(other) = outputs[..at].iter().find(|other| other.file == output.file) {
            let (argument, path) = (&output.argument, output.path.display());
            let title = format!("`{argument} {path}` and `{} {}` are one file", other.argument, other.path.display());
            return Some(Diagnostic::new(title).with_help("name two files"));
        }
    }
    None
}

/// The values of an argument that is no flag, as they were typed.
fn raw<'m>(matches: &'m ArgMatches, id: &str) -> Vec<&'m OsStr> {
    match matches.try_get_raw(id) {
        Ok(Some(values)) => values.collect(),
        _ => Vec::new(),
    }
}

/// A path with its links resolved; of a file that is not there, with those of its directory.
fn resolved(path: &Path) -> Option<PathBuf> {
    if let Ok(file) = path.canonicalize() {
        return Some(file);
    }
    let name = path.file_name()?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Some(directory.canonicalize().ok()?.join(name))
}
