//! The journal of rows that are done: a line of JSON each, behind a checksum of itself, appended as they are done.
//!
//! A row is found again by a hash of all that its result depends on, so that a journal of other inputs is of no use and does no harm.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use super::simulated::Simulated;
use rdusim_base::diagnostics::Diagnostic;

/// The file's name in the directory of `--out`.
const NAME: &str = "journal.jsonl";
/// Most bytes of a journal that is read.
const MOST_BYTES: u64 = 256 << 20;

#[derive(Serialize, Deserialize)]
struct Record {
    key: String,
    /// Bits of seconds to the first token and of a token behind it: no rounding on the way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    times: Option<[u64; 2]>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    reason: String,
}

impl Record {
    fn new(key: &str, simulated: &Simulated) -> Self {
        let (times, reason) = match simulated {
            Simulated::Times { ttft_s, token_s } => (Some([ttft_s.to_bits(), token_s.to_bits()]), String::new()),
            Simulated::Refused(reason) => (None, reason.clone()),
        };
        Self { key: key.to_owned(), times, reason }
    }

    fn simulated(self) -> (String, Simulated) {
        let simulated = match self.times.map(|times| times.map(f64::from_bits)) {
            Some([ttft_s, token_s]) => Simulated::Times { ttft_s, token_s },
            None => Simulated::Refused(self.reason),
        };
        (self.key, simulated)
    }
}

/// An open journal; without a file nothing is kept.
pub(super) struct Journal(Option<(PathBuf, Mutex<File>)>);

impl Journal {
    /// Opens the journal of a directory, and reads what is done. A line that is torn or damaged is not believed.
    ///
    /// # Errors
    /// A directory that cannot be written.
    pub(super) fn open(directory: Option<&Path>) -> Result<(Self, BTreeMap<String, Simulated>), Diagnostic> {
        let Some(directory) = directory else { return Ok((Self(None), BTreeMap::new())) };
        let path = directory.join(NAME);
        let failed = |error: &io::Error| Diagnostic::new(format!("{} cannot be written: {error}", path.display()));
        std::fs::create_dir_all(directory).map_err(|error| failed(&error))?;
        if path.symlink_metadata().is_ok_and(|found| !found.is_file()) {
            return Err(failed(&io::Error::other("something that is no regular file is there")));
        }
        let mut bytes = Vec::new();
        if let Ok(file) = File::open(&path) {
            file.take(MOST_BYTES).read_to_end(&mut bytes).map_err(|error| failed(&error))?;
        }
        let text = String::from_utf8_lossy(&bytes);
        let done = text.lines().filter_map(read).map(Record::simulated).collect();
        let mut file = OpenOptions::new().create(true).append(true).open(&path).map_err(|error| failed(&error))?;
        if !bytes.is_empty() && !bytes.ends_with(b"\n") {
            file.write_all(b"\n").map_err(|error| failed(&error))?;
        }
        Ok((Self(Some((path, Mutex::new(file)))), done))
    }

    /// Adds rows, and forces them to disk.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub(super) fn append(&self, rows: &[(&str, &Simulated)]) -> Result<(), Diagnostic> {
        let Some((path, file)) = &self.0 else { return Ok(()) };
        let mut lines = String::new();
        for &(key, simulated) in rows {
            let record = Record::new(key, simulated);
            // Plain data: it can be written.
            let text = serde_json::to_string(&record).unwrap_or_default();
            let _ = writeln!(lines, "{:016x} {text}", xxh3_64(text.as_bytes()));
        }
        let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(lines.as_bytes())
            .and_then(|()| file.sync_data())
            .map_err(|error| Diagnostic::new(format!("{} cannot be written: {error}", path.display())))
    }
}

fn read(line: &str) -> Option<Record> {
    let (sum, text) = line.split_once(' ')?;
    let is_whole = u64::from_str_radix(sum, 16).ok() == Some(xxh3_64(text.as_bytes()));
    is_whole.then(|| serde_json::from_str(text).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_found_again_and_torn_lines_are_not_believed() {
        let directory = tempfile::tempdir().expect("a directory");
        let done = Simulated::Times { ttft_s: 0.5, token_s: 0.25 };
        let (journal, known) = Journal::open(Some(directory.path())).expect("a journal");
        assert!(known.is_empty());
        journal.append(&[("a", &done), ("b", &Simulated::Refused("why".to_owned()))]).expect("written");
        drop(journal);
        let path = directory.path().join(NAME);
        let text = std::fs::read_to_string(&path).expect("a file");
        // The second line loses its end.
        std::fs::write(&path, &text[..text.len() - 4]).expect("written");
        let (journal, known) = Journal::open(Some(directory.path())).expect("a journal");
        assert_eq!(known.into_iter().collect::<Vec<_>>(), [("a".to_owned(), done.clone())]);
        journal.append(&[("c", &done)]).expect("written");
        let (_, known) = Journal::open(Some(directory.path())).expect("a journal");
        assert_eq!(known.keys().collect::<Vec<_>>(), ["a", "c"]);
    }
}
