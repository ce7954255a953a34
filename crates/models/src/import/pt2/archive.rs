//! The records of a `.pt2` file: a zip archive that is not trusted.

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use zip::ZipArchive;
use zip::read::{ArchiveOffset, Config};

use rdusim_base::diagnostics::Diagnostic;
use rdusim_base::input;

/// Bytes of a record of JSON at most, unpacked.
const MOST_JSON: u64 = 1 << 28;

/// Bytes of all stored tensors that are read, unpacked.
const MOST_TENSORS: u64 = 1 << 31;

/// Records at most.
const MOST_RECORDS: usize = 1 << 20;

/// An archive.
pub(super) struct Archive<R> {
    zip: ZipArchive<R>,
    /// Bytes of stored tensors that may still be read.
    left: u64,
}

/// Opens an archive.
pub(super) fn open(path: &Path) -> Result<Archive<impl Read + Seek + use<>>, Diagnostic> {
    let shown = path.display();
    let refused = |why: String| Diagnostic::new(format!("cannot read `{shown}`: {why}"));
    let mut file = input::open(path).map_err(|why| refused(format!("it {why}")))?;
    let length = file.seek(SeekFrom::End(0)).map_err(|error| refused(error.to_string()))?;
    if length > input::MOST_NETWORK_BYTES {
        return Err(refused(format!("it has more than {} bytes", input::MOST_NETWORK_BYTES)));
    }
    // An archive that a file only ends with is none. PyTorch writes zip64 records of 76 bytes between directory and end; a search for
    // where the archive begins goes wrong if that is the length of the directory's first entry.
    let from_start = Config { archive_offset: ArchiveOffset::Known(0) };
    let zip = ZipArchive::with_config(from_start, file).map_err(|error| {
        Diagnostic::new(format!("`{shown}`: it is no .pt2 archive: {error}"))
            .with_help("a file that was cut off or changed must be fetched or exported again")
    })?;
    if zip.len() > MOST_RECORDS {
        return Err(refused(format!("it has more than {MOST_RECORDS} records")));
    }
    Ok(Archive { zip, left: MOST_TENSORS })
}

impl<R: Read + Seek> Archive<R> {
    /// Names of the records, sorted.
    pub(super) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.zip.file_names().flatten().map(std::borrow::Cow::into_owned).collect();
        names.sort_unstable();
        names
    }

    /// A record of JSON.
    pub(super) fn json(&mut self, name: &str) -> Result<Vec<u8>, Diagnostic> {
        self.record(name, MOST_JSON)
    }

    /// The elements of a stored tensor; `None` where the archive has no such record, or one that other tensors share.
    pub(super) fn elements(&mut self, name: &str, bytes: u64) -> Result<Option<Vec<u8>>, Diagnostic> {
        if self.zip.by_name(name).map_or(true, |record| record.size() != bytes) {
            return Ok(None);
        }
        if bytes > self.left {
            return Err(Diagnostic::new(format!("the tensors that are read have more than {MOST_TENSORS} bytes")));
        }
        let found = self.record(name, bytes)?;
        if found.len() as u64 != bytes {
            let title = format!("the record {name:?} has {} bytes, and its shape needs {bytes}", found.len());
            return Err(Diagnostic::new(title).with_help("the file is damaged: export it again"));
        }
        self.left -= bytes;
        Ok(Some(found))
    }

    /// A record of so many bytes at most, whatever the archive says of its length.
    fn record(&mut self, name: &str, most: u64) -> Result<Vec<u8>, Diagnostic> {
        let refused = |why: String| Diagnostic::new(format!("the record {name:?} {why}"));
        let record = self.zip.by_name(name).map_err(|error| refused(format!("cannot be read: {error}")))?;
        let mut bytes = Vec::new();
        record
            .take(most + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| refused(format!("cannot be read: {error}")).with_help("fetch the file again"))?;
        if bytes.len() as u64 > most {
            return Err(refused(format!("is larger than {most} bytes")));
        }
        Ok(bytes)
    }
}
