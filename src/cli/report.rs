//! `rdusim report`: the page, made again from saved results.

use std::path::{Path, PathBuf};

use crate::diagnostics::Diagnostic;
use crate::input;
use crate::report::{self, Made, Page, PageInput};

use super::args::ReportArgs;
use super::failure::Failure;
use super::output;

/// This command and the files that it read.
pub(super) fn made(inputs: &[&Path]) -> Made {
    made_by(command_line(), inputs)
}

/// A command and the files that it read.
fn made_by(command: String, inputs: &[&Path]) -> Made {
    // Read before, so only a file that has just gone is left out.
    let text = |path: &&Path| {
        let text = input::text_of(path)?;
        Some(PageInput { name: path.display().to_string(), text })
    };
    Made::new(command, inputs.iter().filter_map(text).collect())
}

/// The command that runs a study at one go and the files that it reads: what `merge` joins is what it would have made.
pub(super) fn made_by_sweep(arguments: &[String], inputs: &[&Path]) -> Made {
    made_by(joined(std::iter::once("sweep".to_owned()).chain(arguments.iter().cloned())), inputs)
}

/// Options that change no result: where it is written, and on how many threads it was found.
const WITHOUT_EFFECT: [&str; 3] = ["--out", "-o", "--threads"];

/// The command as typed but for [`WITHOUT_EFFECT`].
fn command_line() -> String {
    joined(with_effect(std::env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned())).into_iter())
}

/// A command of these arguments, words with blanks or signs in quotes.
fn joined(arguments: impl Iterator<Item = String>) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+".contains(c);
    let word = |word: String| {
        if !word.is_empty() && word.chars().all(plain) { word } else { format!("'{}'", word.replace('\'', "'\\''")) }
    };
    std::iter::once("rdusim".to_owned()).chain(arguments.map(word)).collect::<Vec<_>>().join(" ")
}

/// Arguments but for [`WITHOUT_EFFECT`] and their values.
fn with_effect(arguments: impl Iterator<Item = String>) -> Vec<String> {
    let mut kept = Vec::new();
    let mut is_value = false;
    for argument in arguments {
        let option = argument.split_once('=').map_or(argument.as_str(), |(option, _)| option);
        let is_left_out = WITHOUT_EFFECT.contains(&option);
        if !is_left_out && !is_value {
            kept.push(argument.clone());
        }
        is_value = is_left_out && !argument.contains('=');
    }
    kept
}

/// Makes a page of one or more saved results.
pub(super) fn report(args: &ReportArgs) -> Result<(), Failure> {
    let mut page = Page::new(made(&[]));
    for path in &args.results {
        let text = read(path)?;
        // Layouts and inputs lie beside the result that they belong to.
        let beside = path.with_file_name("layout.json");
        let layouts = if beside.is_file() { Some(read(&beside)?) } else { None };
        let title = title(path, &args.results);
        page.add_saved(&title, &text, layouts.as_deref()).map_err(|error| {
            let file = if matches!(error, report::SavedError::Layouts(_)) { &beside } else { path };
            Diagnostic::new(format!("`{}` is {error}", file.display()))
                .with_help("a page is made of `result.json` of `--out DIR`, or of what `--format json` prints")
        })?;
    }
    let html = page.html().into_bytes();
    match &args.out {
        Some(file) => Ok(report::write_file(file, &html)?),
        None => output::print(&html),
    }
}

/// What tells a result from the others: its folder, where the files have one name.
fn title(path: &Path, all: &[PathBuf]) -> String {
    let stem = |path: &Path| path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
    let ambiguous = all.iter().filter(|other| stem(other) == stem(path)).count() > 1;
    let folder = path.parent().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    folder.filter(|_| ambiguous).unwrap_or_else(|| stem(path))
}

/// The text of a result or its layouts.
pub(super) fn read(path: &Path) -> Result<String, Diagnostic> {
    input::read_text(path)
        .map_err(|why| Diagnostic::new(format!("`{}` {why}", path.display())).with_help("a result is a JSON file"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_records_what_changes_results() {
        let kept = |text: &str| with_effect(text.split(' ').map(str::to_owned)).join(" ");
        assert_eq!(
            kept("sweep a.toml --out b --threads 2 --set workload.dims.tokens=8"),
            "sweep a.toml --set workload.dims.tokens=8"
        );
        assert_eq!(kept("run --out=b --arch a.toml -o"), "run --arch a.toml");
    }
}
