//! `rdusim report`: the page, made again from saved results.

use std::path::{Path, PathBuf};

use crate::diagnostics::Diagnostic;
use crate::input;
use crate::report::{self, Page, SavedResult};

use super::args::ReportArgs;
use super::failure::Failure;
use super::made::made;
use super::output;

/// Results that have a page.
const PAGES: &str = "a page is made of the JSON of `--out DIR`, or of what `--format json` prints: of compare, run, pod, sweep (its \
                     summary.json), map, sparsity, explain, break-even, verify, validate and prove";

/// Makes a page of one or more saved results.
pub(super) fn report(args: &ReportArgs) -> Result<(), Failure> {
    let mut page = Page::new(made(&[]));
    for path in &args.results {
        let text = read(path)?;
        // Layouts, inputs and the table of a study lie beside the result that they belong to.
        let layout = path.with_file_name("layout.json");
        let beside = |name: &str| {
            let file = path.with_file_name(name);
            if file.is_file() { read(&file).map(Some) } else { Ok(None) }
        };
        let (layouts, table) = (beside("layout.json")?, beside("results.csv")?);
        let title = title(path, &args.results);
        let saved = SavedResult { title: &title, json: &text, layout: layouts.as_deref(), table: table.as_deref() };
        page.add_saved(saved).map_err(|error| {
            let file = if matches!(error, report::SavedError::Layouts(_)) { &layout } else { path };
            Diagnostic::new(format!("`{}` is {error}", file.display())).with_help(PAGES)
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
