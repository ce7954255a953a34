//! The journal of a sweep: what is done is on disk, whatever happens next.
//!
//! One line of JSON for the study and its inputs, then one for each point, appended as points are done and forced to disk.
//! Every line ends with a checksum of itself. A line that a kill tore off is removed when the journal is opened again. A
//! damaged line, and a point that stands there twice with different results, are not believed: their points are run again.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::diagnostics::Diagnostic;
use crate::report::WriteError;
use crate::study::StudyError;

use super::fingerprints::Fingerprint;

/// The file's name in the directory of `--out`.
pub(super) const NAME: &str = "journal.jsonl";
/// Damaged lines that are told one by one.
const MOST_TOLD: usize = 3;
/// Most bytes of a line: a point has a few hundred metrics at most.
const MOST_LINE_BYTES: u64 = 1 << 20;

/// The first line: which study this is the journal of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Header {
    /// Version of the program, whose results may differ from another's.
    pub(super) rdusim: String,
    /// Hash of the study file and the overrides.
    pub(super) study: String,
    /// Hashes of the files that its points read.
    #[serde(default)]
    pub(super) inputs: Vec<Fingerprint>,
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

impl Record {
    /// Milliseconds after which the point was stopped; of one that ended by itself no number is larger.
    pub(super) fn patience_ms(&self) -> u64 {
        if let Ending::TimedOut(milliseconds) = self.s { milliseconds } else { u64::MAX }
    }
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
    /// It was stopped after so many milliseconds.
    TimedOut(u64),
}

/// What a journal holds.
#[derive(Debug, Default)]
pub(super) struct JournalContents {
    /// Records, at most one for each point.
    pub(super) records: Vec<Record>,
    /// What was not believed, for the user: a message for each of the first lines, and one for all others together.
    pub(super) damaged: Vec<String>,
}

/// An open journal; without a file, only a list in memory.
#[derive(Debug)]
pub(super) struct Journal(Option<(PathBuf, Mutex<File>)>);

/// The table of the points that are done so far, in the order in which they are done: to look at while a sweep runs. What
/// counts is the journal; this file is written anew by every start, and is gone when the table is whole.
#[derive(Debug)]
pub(super) struct PartialTable(Option<(PathBuf, Mutex<File>)>);

/// The file's name in the directory of `--out`.
pub const PARTIAL_TABLE: &str = "results.partial.csv";

impl PartialTable {
    /// A table that is not kept.
    pub(super) fn none() -> Self {
        Self(None)
    }

    /// Begins the table in a directory with lines of CSV.
    pub(super) fn open(directory: &Path, lines: &str) -> Result<Self, StudyError> {
        let path = directory.join(PARTIAL_TABLE);
        let failed = |error: io::Error| StudyError::from(WriteError::File(path.clone(), error));
        if path.symlink_metadata().is_ok_and(|found| !found.is_file()) {
            return Err(failed(io::Error::other("something that is no regular file is there")));
        }
        let mut file = File::create(&path).map_err(failed)?;
        file.write_all(lines.as_bytes()).map_err(failed)?;
        Ok(Self(Some((path, Mutex::new(file)))))
    }

    /// Adds lines of CSV.
    pub(super) fn append(&self, lines: &str) -> Result<(), StudyError> {
        let Some((path, file)) = &self.0 else { return Ok(()) };
        let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(lines.as_bytes()).map_err(|error| WriteError::File(path.clone(), error).into())
    }
}

impl Journal {
    /// A journal that is not kept.
    pub(super) fn none() -> Self {
        Self(None)
    }

    /// Opens the journal in a directory, which is made if it is missing; returns what it holds already of the records that
    /// `is_valid` lets pass.
    pub(super) fn open(
        directory: &Path,
        header: &Header,
        is_valid: &dyn Fn(&Record) -> bool,
    ) -> Result<(Self, JournalContents), StudyError> {
        std::fs::create_dir_all(directory).map_err(|error| WriteError::Directory(directory.to_owned(), error))?;
        let path = directory.join(NAME);
        let failed = |error: io::Error| StudyError::from(WriteError::File(path.clone(), error));
        // A pipe would wait for its other end.
        if path.symlink_metadata().is_ok_and(|found| !found.is_file()) {
            return Err(failed(io::Error::other("something that is no regular file is there")));
        }
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let title = format!("`{}` is in use: another sweep writes it", path.display());
                return Err(Diagnostic::new(title).with_help("wait for it, or choose another `--out`").into());
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let Parsed { header: found, held, whole_bytes } = parse(&path, &mut BufReader::new(&file), is_valid)?;
        match found {
            Some(found) if found == *header => {}
            Some(found) => return Err(other(&path, &found, header).into()),
            None => {
                // Nothing whole was written before.
                let line = to_line(header);
                file.set_len(0).map_err(failed)?;
                file.write_all(line.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
                return Ok((Self(Some((path, Mutex::new(file)))), JournalContents::default()));
            }
        }
        file.set_len(whole_bytes).and_then(|()| file.seek(SeekFrom::End(0))).map_err(failed)?;
        Ok((Self(Some((path, Mutex::new(file)))), held))
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
pub(super) fn read(
    directory: &Path,
    is_valid: &dyn Fn(&Record) -> bool,
) -> Result<(Header, JournalContents), Diagnostic> {
    let path = directory.join(NAME);
    let refused = |why: String| Diagnostic::new(format!("cannot read `{}`: it {why}", path.display()));
    let mut file = crate::input::open(&path).map_err(refused)?;
    match parse(&path, &mut file, is_valid)? {
        Parsed { header: Some(header), held, .. } => Ok((header, held)),
        _ => Err(refused("is empty".to_owned())),
    }
}

/// A value as a line: JSON whose last field `c` is a checksum of the rest.
pub(super) fn to_line<T: Serialize>(value: &T) -> String {
    let json = serde_json::to_string(value).expect("strings and numbers always serialise");
    let body = &json[..json.len() - 1];
    format!("{body},\"c\":\"{:016x}\"}}\n", xxh3_64(body.as_bytes()))
}

/// The value of a line, if its checksum is right.
pub(super) fn of_line<T: DeserializeOwned>(line: &[u8]) -> Option<T> {
    let line = std::str::from_utf8(line).ok()?;
    let (body, checksum) = line.strip_suffix("\"}\n")?.rsplit_once(",\"c\":\"")?;
    if format!("{:016x}", xxh3_64(body.as_bytes())) != checksum {
        return None;
    }
    serde_json::from_str(&format!("{body}}}")).ok()
}

/// A journal as read.
struct Parsed {
    header: Option<Header>,
    held: JournalContents,
    /// Up to the end of the last line that was not torn off.
    whole_bytes: u64,
}

fn parse(path: &Path, file: &mut impl BufRead, is_valid: &dyn Fn(&Record) -> bool) -> Result<Parsed, Diagnostic> {
    let mut parsed = Parsed { header: None, held: JournalContents::default(), whole_bytes: 0 };
    let mut by_point: std::collections::BTreeMap<usize, (Record, bool)> = std::collections::BTreeMap::new();
    let mut line = Vec::new();
    let mut untold = 0_u64;
    for number in 1_u64.. {
        line.clear();
        let failed = |error| Diagnostic::new(format!("cannot read `{}`: {error}", path.display()));
        file.take(MOST_LINE_BYTES).read_until(b'\n', &mut line).map_err(failed)?;
        let is_whole = line.ends_with(b"\n");
        if !is_whole && (line.len() as u64) < MOST_LINE_BYTES {
            // The end, or a line that was torn off.
            break;
        }
        if number == 1 {
            parsed.header = of_line(&line);
            if parsed.header.is_none() {
                let title = format!("line 1 of `{}` is not of a journal", path.display());
                let help = "choose another `--out`, or delete this one to start again";
                return Err(Diagnostic::new(title).with_help(help));
            }
        } else if !is_whole {
            let title = format!("line {number} of `{}` has more than {MOST_LINE_BYTES} bytes", path.display());
            return Err(Diagnostic::new(title).with_help("choose another `--out`, or delete this one to start again"));
        } else {
            let mut tell = |what: &str| {
                if parsed.held.damaged.len() < MOST_TOLD {
                    let told = format!("line {number} of `{}` {what}; its point is run again", path.display());
                    parsed.held.damaged.push(told);
                } else {
                    untold += 1;
                }
            };
            match of_line::<Record>(&line).filter(is_valid) {
                None => tell("is damaged"),
                Some(record) => match by_point.get_mut(&record.i) {
                    None => {
                        by_point.insert(record.i, (record, true));
                    }
                    Some((earlier, _)) if *earlier == record => {}
                    // What a longer run has shown holds.
                    Some((earlier, _)) if earlier.patience_ms() != record.patience_ms() => {
                        if earlier.patience_ms() < record.patience_ms() {
                            *earlier = record;
                        }
                    }
                    Some((_, is_believed)) => {
                        *is_believed = false;
                        tell("contradicts an earlier line");
                    }
                },
            }
        }
        parsed.whole_bytes += line.len() as u64;
    }
    if untold > 0 {
        let told = format!("{untold} more lines of `{}` are damaged or contradict earlier ones", path.display());
        parsed.held.damaged.push(told);
    }
    parsed.held.records =
        by_point.into_values().filter_map(|(record, is_believed)| is_believed.then_some(record)).collect();
    Ok(parsed)
}

fn other(path: &Path, found: &Header, wanted: &Header) -> Diagnostic {
    let what = if found.study != wanted.study || found.points != wanted.points {
        "of another study, or of this one before it was changed".to_owned()
    } else if found.shard != wanted.shard {
        format!("of shard {}/{}", found.shard.0, found.shard.1)
    } else if found.rdusim != wanted.rdusim {
        format!("of version {} of rdusim", found.rdusim)
    } else {
        changed_inputs(found, wanted)
    };
    Diagnostic::new(format!("`{}` is the journal {what}", path.display()))
        .with_help("choose another `--out`, or delete this one to start again")
}

/// Which files are not those of a journal, as words behind "the journal".
pub(super) fn changed_inputs(found: &Header, wanted: &Header) -> String {
    let changed = wanted.inputs.iter().filter(|input| !found.inputs.contains(input)).map(|(name, _)| name);
    let gone = found.inputs.iter().map(|(name, _)| name).filter(|name| wanted.inputs.iter().all(|(n, _)| n != *name));
    let names: Vec<String> = changed.chain(gone).map(|name| format!("`{name}`")).collect();
    format!("of other contents of {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        let inputs = vec![("chip.toml".to_owned(), "1".to_owned())];
        Header { rdusim: "1".into(), study: "a".into(), inputs, points: 3, shard: (1, 1) }
    }

    fn record(i: usize) -> Record {
        Record { i, s: Ending::Ok, m: vec!["0.1".into(), "a,\"b\"\n".into()] }
    }

    fn open(directory: &Path, header: &Header) -> Result<(Journal, JournalContents), StudyError> {
        Journal::open(directory, header, &|record| record.m.len() == 2 && record.i < 3)
    }

    #[test]
    fn what_was_appended_is_there_again() {
        let directory = tempfile::tempdir().unwrap();
        let (journal, found) = open(directory.path(), &header()).unwrap();
        assert!(found.records.is_empty());
        journal.append(&[record(0), record(2)]).unwrap();
        assert!(open(directory.path(), &header()).is_err(), "it is locked");
        drop(journal);
        let (_, found) = open(directory.path(), &header()).unwrap();
        assert_eq!(found.records, [record(0), record(2)]);
        assert!(found.damaged.is_empty());
    }

    #[test]
    fn a_torn_end_is_dropped_at_every_byte() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(NAME);
        let (journal, _) = open(directory.path(), &header()).unwrap();
        journal.append(&[record(0), record(1)]).unwrap();
        drop(journal);
        let bytes = std::fs::read(&path).unwrap();
        for length in 0..=bytes.len() {
            std::fs::write(&path, &bytes[..length]).unwrap();
            let (journal, found) = open(directory.path(), &header()).unwrap();
            let lines = bytes[..length].split(|&byte| byte == b'\n').count() - 1;
            assert_eq!(found.records.len(), lines.saturating_sub(1));
            journal.append(&[record(2)]).unwrap();
            drop(journal);
            let (_, again) = open(directory.path(), &header()).unwrap();
            assert_eq!(again.records.len(), found.records.len() + 1);
        }
    }

    #[test]
    fn damage_of_any_byte_is_seen() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(NAME);
        let (journal, _) = open(directory.path(), &header()).unwrap();
        let header_bytes = std::fs::metadata(&path).unwrap().len() as usize;
        journal.append(&[record(0), record(1)]).unwrap();
        drop(journal);
        let bytes = std::fs::read(&path).unwrap();
        for at in header_bytes..bytes.len() - 1 {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            std::fs::write(&path, &damaged).unwrap();
            let (_, found) = open(directory.path(), &header()).unwrap();
            assert!(!found.damaged.is_empty() && found.records.len() < 2, "byte {at}: {found:?}");
            assert!(found.records.iter().all(|found| *found == record(0) || *found == record(1)));
        }
        // A record that is none of the study's is not believed either.
        std::fs::write(&path, &bytes).unwrap();
        let (_, found) = Journal::open(directory.path(), &header(), &|record| record.i > 0).unwrap();
        assert_eq!((found.records, found.damaged.len()), (vec![record(1)], 1));
    }

    #[test]
    fn many_damaged_lines_are_counted() {
        let directory = tempfile::tempdir().unwrap();
        let (journal, _) = open(directory.path(), &header()).unwrap();
        journal.append(&[record(0)]).unwrap();
        drop(journal);
        let path = directory.path().join(NAME);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes.extend(b"x\n".repeat(100_000));
        std::fs::write(&path, &bytes).unwrap();
        let (_, found) = open(directory.path(), &header()).unwrap();
        assert_eq!((found.records, found.damaged.len()), (vec![record(0)], 4));
        assert!(found.damaged[2].starts_with("line 5 of") && found.damaged[3].starts_with("99997 more lines of"));
    }

    #[test]
    fn a_point_that_contradicts_itself_is_run_again() {
        let directory = tempfile::tempdir().unwrap();
        let (journal, _) = open(directory.path(), &header()).unwrap();
        let other = Record { m: vec!["0.2".into(), String::new()], ..record(1) };
        journal.append(&[record(0), record(1), record(0), other]).unwrap();
        drop(journal);
        let (_, found) = open(directory.path(), &header()).unwrap();
        assert_eq!(found.records, [record(0)]);
        assert!(found.damaged[0].starts_with("line 5 of") && found.damaged.len() == 1, "{:?}", found.damaged);
    }

    #[test]
    fn a_point_that_was_stopped_has_the_result_of_its_longest_run() {
        let directory = tempfile::tempdir().unwrap();
        let stopped = |ms| Record { s: Ending::TimedOut(ms), ..record(1) };
        for (order, kept) in [
            (vec![stopped(10), stopped(20)], stopped(20)),
            (vec![stopped(20), stopped(10)], stopped(20)),
            (vec![stopped(20), record(1)], record(1)),
            (vec![record(1), stopped(20)], record(1)),
        ] {
            let out = directory.path().join(format!("{order:?}").len().to_string());
            let (journal, _) = open(&out, &header()).unwrap();
            journal.append(&order).unwrap();
            drop(journal);
            let (_, found) = open(&out, &header()).unwrap();
            assert!(found.damaged.is_empty() && found.records.contains(&kept), "{order:?}: {found:?}");
            std::fs::remove_dir_all(out).unwrap();
        }
    }

    #[test]
    fn a_journal_of_something_else_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        drop(open(directory.path(), &header()).unwrap());
        for (wanted, why) in [
            (Header { study: "b".into(), ..header() }, "another study"),
            (Header { rdusim: "2".into(), ..header() }, "version 1"),
            (Header { shard: (2, 2), ..header() }, "shard 1/1"),
            (Header { inputs: vec![("chip.toml".into(), "2".into())], ..header() }, "other contents of `chip.toml`"),
            (Header { inputs: Vec::new(), ..header() }, "other contents of `chip.toml`"),
        ] {
            let StudyError::Refused(error) = open(directory.path(), &wanted).unwrap_err() else { panic!() };
            assert!(error.title().contains("is the journal of") && error.title().contains(why), "{error}");
        }
        for other in ["x\ny\n", "{\"rdusim\":\"1\"}\n"] {
            std::fs::write(directory.path().join(NAME), other).unwrap();
            let StudyError::Refused(error) = open(directory.path(), &header()).unwrap_err() else { panic!() };
            assert!(error.title().starts_with("line 1 of"), "{error}");
        }
        std::fs::write(directory.path().join(NAME), vec![0; 2 << 20]).unwrap();
        assert!(open(directory.path(), &header()).is_err());
    }
}
