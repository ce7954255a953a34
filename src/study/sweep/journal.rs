//! The journal of a sweep: what is done is on disk, whatever happens next.
//!
//! One line of JSON for the study, then one for each point, appended as points are done and forced to disk. A line that
//! a kill tore is dropped when the journal is opened again; its point is run again.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::diagnostics::Diagnostic;
use crate::report::WriteError;
use crate::study::StudyError;

/// The file's name in the directory of `--out`.
pub(super) const NAME: &str = "journal.jsonl";

/// The first line: which study this is the journal of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Header {
    /// Version of the program, whose results may differ from another's.
    pub(super) rdusim: String,
    /// Hash of the study file and the overrides.
    pub(super) study: String,
    /// Points of the whole study.
    pub(super) points: usize,
    /// Index, from 1, and number of shards.
    pub(super) shard: (usize, usize),
}

/// What came of a point.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    /// Index of the point.
    pub(super) i: usize,
    /// How it ended.
    pub(super) s: Ending,
    /// Cells of its metrics.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) m: Vec<String>,
}

/// How a point ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Ending {
    /// It ran.
    Ok,
    /// A constraint leaves it out.
    Excluded,
    /// The chip, the workload or the mapping cannot be.
    Refused,
    /// Its lower bound is worse than a point that ran.
    Pruned,
}

/// An open journal; without a file, only a list in memory.
#[derive(Debug)]
pub(super) struct Journal(Option<(PathBuf, Mutex<File>)>);

impl Journal {
    /// A journal that is not kept.
    pub(super) fn none() -> Self {
        Self(None)
    }

    /// Opens the journal in a directory, which is made if it is missing; returns what it holds already.
    pub(super) fn open(directory: &Path, header: &Header) -> Result<(Self, Vec<Record>), StudyError> {
        std::fs::create_dir_all(directory).map_err(|error| WriteError::Directory(directory.to_owned(), error))?;
        let path = directory.join(NAME);
        let failed = |error: io::Error| StudyError::from(WriteError::File(path.clone(), error));
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let title = format!("`{}` is in use: another sweep writes it", path.display());
                return Err(Diagnostic::new(title).with_help("wait for it, or choose another `--out`").into());
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(failed)?;
        let (found, records, whole) = parse(&path, &bytes)?;
        match found {
            Some(found) if found == *header => {}
            Some(found) => return Err(other(&path, &found, header).into()),
            None => {
                // Nothing whole was written before.
                let line = to_line(header);
                file.set_len(0).map_err(failed)?;
                file.write_all(line.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
                return Ok((Self(Some((path, Mutex::new(file)))), Vec::new()));
            }
        }
        if whole < bytes.len() {
            file.set_len(whole as u64).and_then(|()| file.seek(SeekFrom::End(0))).map_err(failed)?;
        }
        Ok((Self(Some((path, Mutex::new(file)))), records))
    }

    /// Writes records, and returns when they are on disk.
    pub(super) fn append(&self, records: &[Record]) -> Result<(), StudyError> {
        let Some((path, file)) = &self.0 else { return Ok(()) };
        let text: String = records.iter().map(to_line).collect();
        let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(text.as_bytes())
            .and_then(|()| file.sync_data())
            .map_err(|error| WriteError::File(path.clone(), error).into())
    }
}

/// Reads the journal of a directory without opening it for more.
pub(super) fn read(directory: &Path) -> Result<(Header, Vec<Record>), Diagnostic> {
    let path = directory.join(NAME);
    let refused = |why: String| Diagnostic::new(format!("cannot read `{}`: {why}", path.display()));
    let bytes = std::fs::read(&path).map_err(|error| refused(error.to_string()))?;
    match parse(&path, &bytes)? {
        (Some(header), records, _) => Ok((header, records)),
        (None, _, _) => Err(refused("it is empty".to_owned())),
    }
}

fn to_line<T: Serialize>(value: &T) -> String {
    let mut line = serde_json::to_string(value).expect("strings and numbers always serialise");
    line.push('\n');
    line
}

/// Header, records, and the bytes up to the end of the last whole line.
fn parse(path: &Path, bytes: &[u8]) -> Result<(Option<Header>, Vec<Record>, usize), Diagnostic> {
    let mut header = None;
    let mut records = Vec::new();
    let mut whole = 0;
    let lines: Vec<&[u8]> = bytes.split_inclusive(|&byte| byte == b'\n').collect();
    for (at, line) in lines.iter().enumerate() {
        let read = if !line.ends_with(b"\n") {
            false
        } else if at == 0 {
            header = serde_json::from_slice(line).ok();
            header.is_some()
        } else {
            serde_json::from_slice(line).map(|record| records.push(record)).is_ok()
        };
        if read {
            whole += line.len();
        } else if at + 1 < lines.len() {
            let title = format!("line {} of `{}` is not of a journal", at + 1, path.display());
            return Err(Diagnostic::new(title).with_help("choose another `--out`, or delete this one to start again"));
        }
    }
    Ok((header, records, whole))
}

fn other(path: &Path, found: &Header, wanted: &Header) -> Diagnostic {
    let what = if found.study != wanted.study || found.points != wanted.points {
        "another study, or of this one before it was changed".to_owned()
    } else if found.shard != wanted.shard {
        format!("shard {}/{}", found.shard.0, found.shard.1)
    } else {
        format!("version {} of rdusim", found.rdusim)
    };
    Diagnostic::new(format!("`{}` is the journal of {what}", path.display()))
        .with_help("choose another `--out`, or delete this one to start again")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header { rdusim: "1".into(), study: "a".into(), points: 3, shard: (1, 1) }
    }

    fn record(i: usize) -> Record {
        Record { i, s: Ending::Ok, m: vec!["0.1".into(), "a,\"b\"\n".into()] }
    }

    #[test]
    fn what_was_appended_is_there_again() {
        let directory = tempfile::tempdir().unwrap();
        let (journal, found) = Journal::open(directory.path(), &header()).unwrap();
        assert!(found.is_empty());
        journal.append(&[record(0), record(2)]).unwrap();
        assert!(Journal::open(directory.path(), &header()).is_err(), "it is locked");
        drop(journal);
        let (_, found) = Journal::open(directory.path(), &header()).unwrap();
        assert_eq!(found, [record(0), record(2)]);
    }

    #[test]
    fn a_torn_end_is_dropped_at_every_byte() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(NAME);
        let (journal, _) = Journal::open(directory.path(), &header()).unwrap();
        journal.append(&[record(0), record(1)]).unwrap();
        drop(journal);
        let bytes = std::fs::read(&path).unwrap();
        for length in 0..=bytes.len() {
            std::fs::write(&path, &bytes[..length]).unwrap();
            let (journal, found) = Journal::open(directory.path(), &header()).unwrap();
            let lines = bytes[..length].split(|&byte| byte == b'\n').count() - 1;
            assert_eq!(found.len(), lines.saturating_sub(1));
            journal.append(&[record(2)]).unwrap();
            drop(journal);
            let (_, again) = Journal::open(directory.path(), &header()).unwrap();
            assert_eq!(again.len(), found.len() + 1);
        }
    }

    #[test]
    fn a_journal_of_something_else_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        drop(Journal::open(directory.path(), &header()).unwrap());
        for wanted in [
            Header { study: "b".into(), ..header() },
            Header { rdusim: "2".into(), ..header() },
            Header { shard: (2, 2), ..header() },
        ] {
            let StudyError::Refused(error) = Journal::open(directory.path(), &wanted).unwrap_err() else { panic!() };
            assert!(error.title().contains("is the journal of"), "{error}");
        }
        std::fs::write(directory.path().join(NAME), "x\ny\n").unwrap();
        let StudyError::Refused(error) = Journal::open(directory.path(), &header()).unwrap_err() else { panic!() };
        assert!(error.title().starts_with("line 1 of"), "{error}");
    }
}
