//! Files that are read in parts.

use std::fs::File;
use std::io::{BufRead, BufReader, Seek};
use std::path::Path;

/// Bytes read ahead.
const BUFFER_BYTES: usize = 1 << 16;

/// Opens a file to be read in parts; in the error, words that follow the name of the file.
pub(crate) fn open(path: &Path) -> Result<impl BufRead + Seek + use<>, String> {
    let file = File::open(path).map_err(|error| format!("cannot be opened: {error}"))?;
    let is_file = file.metadata().is_ok_and(|metadata| metadata.is_file());
    if !is_file {
        return Err("is no file".to_owned());
    }
    Ok(BufReader::with_capacity(BUFFER_BYTES, file))
}
