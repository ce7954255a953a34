//! What a study's results depend on beyond its own text: a hash of every file that its points read.
//!
//! Two runs of a study with equal fingerprints give the same results, so a journal that records other ones is of other
//! inputs.

use std::collections::BTreeSet;
use std::io::BufRead;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use crate::diagnostics::Diagnostic;
use crate::import;
use crate::input::{self, Override};

use super::axis::{Axis, Change};
use super::study::Study;

/// A file and the hash of its bytes, as hexadecimal digits.
pub(super) type Fingerprint = (String, String);

/// Chip files, workload files and the mask files that these name, each once and in order of first use.
///
/// # Errors
/// A file that cannot be read.
pub(super) fn fingerprints(study: &Study) -> Result<Vec<Fingerprint>, Diagnostic> {
    let mut files = study.input_files();
    let workloads: BTreeSet<PathBuf> = study.file_pairs().into_iter().map(|(_, workload)| workload).collect();
    for workload in workloads.iter().filter(|workload| !import::is_model(workload)) {
        let directory = workload.parent().unwrap_or(Path::new(""));
        let masks = mask_files(study, workload).into_iter().map(|mask| directory.join(mask));
        // A point whose mask is missing is refused where it is read.
        files.extend(masks.filter(|mask| mask.is_file()));
    }
    let mut seen = BTreeSet::new();
    files.retain(|file| seen.insert(file.clone()));
    let hashed = |file: &PathBuf| match study.texts.get(file) {
        Some(text) => Ok(format!("{:032x}", xxh3_128(text.as_bytes()))),
        None => hash(file),
    };
    files.iter().map(|file| Ok((file.display().to_string(), hashed(file)?))).collect()
}

/// Mask files that a workload file, an override or an axis names.
fn mask_files(study: &Study, workload: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    // A workload that cannot be read is refused where it is read.
    let read = match (study.texts.get(workload), input::builtin(workload)) {
        (Some(text), _) => Some(text.clone()),
        (None, Some(file)) => Some(file.text.to_owned()),
        (None, None) => input::read_text(workload).ok(),
    };
    if let Some(table) = read.and_then(|text| text.parse::<toml::Table>().ok()) {
        named_masks(&toml::Value::Table(table), &mut found);
    }
    let changes = study.axes.iter().flat_map(Axis::listed).filter_map(|value| match &value.change {
        Change::Fields(sets) => Some(sets),
        Change::Arch(_) | Change::Workload(_) | Change::Seed(_) => None,
    });
    let sets = changes.flatten().chain(&study.base);
    let names_a_mask = |set: &&Override| set.path().ends_with(&["sparsity".to_owned(), "file".to_owned()]);
    let value = |set: &Override| set.value().trim().parse::<toml::Value>().ok()?.as_str().map(str::to_owned);
    found.extend(sets.filter(names_a_mask).filter_map(value));
    found
}

/// Every `sparsity.file` in a workload file.
fn named_masks(value: &toml::Value, found: &mut BTreeSet<String>) {
    match value {
        toml::Value::Table(table) => {
            let file = table.get("sparsity").and_then(|sparsity| sparsity.get("file")).and_then(toml::Value::as_str);
            found.extend(file.map(str::to_owned));
            table.values().for_each(|value| named_masks(value, found));
        }
        toml::Value::Array(list) => list.iter().for_each(|value| named_masks(value, found)),
        _ => {}
    }
}

fn hash(path: &Path) -> Result<String, Diagnostic> {
    if let Some(file) = input::builtin(path) {
        return Ok(format!("{:032x}", xxh3_128(file.text.as_bytes())));
    }
    let failed = |why: String| Diagnostic::new(format!("cannot read `{}`: it {why}", path.display()));
    let mut file = input::open(path).map_err(failed)?;
    let mut hash = Xxh3::new();
    loop {
        let bytes = file.fill_buf().map_err(|error| failed(format!("cannot be read: {error}")))?;
        if bytes.is_empty() {
            return Ok(format!("{:032x}", hash.digest128()));
        }
        hash.update(bytes);
        let length = bytes.len();
        file.consume(length);
    }
}
