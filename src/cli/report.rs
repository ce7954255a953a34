//! `rdusim report`: the page, made again from saved results.

use std::path::{Path, PathBuf};

use crate::arch::AnyChip;
use crate::compile::Compiled;
use crate::diagnostics::Diagnostic;
use crate::map::summarize;
use crate::outcome::Outcome;
use crate::report::{self, Document, File, Layout, Made, Page, PageInput};
use crate::workload::Workload;

use super::args::ReportArgs;
use super::failure::Failure;
use super::output;

/// Most bytes of a result or its layouts that are read.
const MOST_BYTES: u64 = 1 << 28;

/// The page and the layouts of a result, as files of `--out DIR`.
///
/// `sides`: chips with their configurations and runs; a GPU has no configurations, and no grid is shown of it.
pub(super) fn page_files(
    workload: &Workload,
    sides: &[(&AnyChip, &[Compiled], &[Outcome])],
    inputs: &[&Path],
) -> Vec<File> {
    let mut page = Page::new(made(inputs));
    for &(chip, configurations, outcomes) in sides {
        let layouts: Vec<Layout> = match chip {
            AnyChip::Rdu(chip) => configurations
                .iter()
                .zip(outcomes)
                .map(|(measured, outcome)| {
                    Layout::new(chip, &summarize(chip, workload, &measured.configuration), outcome)
                })
                .collect(),
            AnyChip::Gpu(_) => Vec::new(),
        };
        let title = if sides.len() > 1 { chip.device().name() } else { &workload.name };
        page.add(title, &Document::new(chip.device(), workload, outcomes), layouts);
    }
    vec![
        File { name: "layout.json".to_owned(), bytes: page.beside().into_bytes() },
        File { name: "report.html".to_owned(), bytes: page.html().into_bytes() },
    ]
}

/// This command and the files that it read.
pub(super) fn made(inputs: &[&Path]) -> Made {
    // Read before, so only a file that has just gone is left out.
    let text = |path: &&Path| {
        let text = std::fs::read_to_string(path).ok()?;
        Some(PageInput { name: path.display().to_string(), text })
    };
    Made::new(command_line(), inputs.iter().filter_map(text).collect())
}

/// The command as typed, words with blanks or signs in quotes.
fn command_line() -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+".contains(c);
    let word = |word: String| {
        if !word.is_empty() && word.chars().all(plain) { word } else { format!("'{}'", word.replace('\'', "'\\''")) }
    };
    let words = std::env::args_os().skip(1).map(|argument| word(argument.to_string_lossy().into_owned()));
    std::iter::once("rdusim".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
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
        Some(file) => {
            let name = file.file_name().map(|name| name.to_string_lossy().into_owned());
            let directory = file.parent().filter(|d| !d.as_os_str().is_empty()).unwrap_or(Path::new("."));
            let Some(name) = name else {
                return Err(Diagnostic::new(format!("`--out {}` names no file", file.display())).into());
            };
            Ok(report::write(directory, &[File { name, bytes: html }])?)
        }
        None => output::print(&html),
    }
}

/// What tells a result from the others: its folder, where the files have one name.
fn title(path: &Path, all: &[PathBuf]) -> String {
    let stem = |path: &Path| path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
    let alike = all.iter().filter(|other| stem(other) == stem(path)).count() > 1;
    let folder = path.parent().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    folder.filter(|_| alike).unwrap_or_else(|| stem(path))
}

fn read(path: &Path) -> Result<String, Diagnostic> {
    let failed = |why: String| Diagnostic::new(format!("cannot read `{}`: {why}", path.display()));
    let size = std::fs::metadata(path).map_err(|error| failed(error.to_string()))?.len();
    if size > MOST_BYTES {
        return Err(failed(format!("it has {size} bytes, a result has at most {MOST_BYTES}")));
    }
    std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))
}
