//! Archives of `NumPy` (`.npz`): a zip file with one `.npy` an array.

use std::io::{BufReader, Read, Seek};

use zip::ZipArchive;
use zip::result::ZipError;

use super::error::ReadError;
use super::npy;
use super::sink::Sink;

/// Names that an error lists at most.
const NAMED: usize = 10;

pub(super) fn read(input: impl Read + Seek, key: Option<&str>, sink: &mut dyn Sink) -> Result<(), ReadError> {
    let mut archive = ZipArchive::new(input).map_err(refused)?;
    let names: Vec<String> = archive
        .file_names()
        .map(|name| name.map(std::borrow::Cow::into_owned))
        .collect::<Result<_, _>>()
        .map_err(refused)?;
    let mut arrays: Vec<&str> = names.iter().filter_map(|name| name.strip_suffix(".npy")).collect();
    arrays.sort_unstable();
    let chosen = choose(&arrays, key, "array")?;
    let name = format!("{chosen}.npy");
    let member = archive.by_name(&name).map_err(refused)?;
    npy::read(BufReader::new(member), sink)
}

/// The one of `names` that `key` means, or the only one.
pub(super) fn choose<'a>(names: &[&'a str], key: Option<&str>, what: &str) -> Result<&'a str, ReadError> {
    let listed = || {
        let list: Vec<String> = names.iter().take(NAMED).map(|name| format!("{name:?}")).collect();
        let more = names.len().saturating_sub(NAMED);
        if more > 0 { format!("{} and {more} more", list.join(", ")) } else { list.join(", ") }
    };
    match (key, names) {
        (_, []) => Err(ReadError::new(format!("there is no {what} in it"))),
        (Some(key), _) => names
            .iter()
            .find(|name| **name == key)
            .copied()
            .ok_or_else(|| ReadError::new(format!("there is no {what} {key:?}, only {}", listed()))),
        (None, [only]) => Ok(only),
        (None, _) => {
            Err(ReadError::new(format!("there are {} {what}s, a key must say which: {}", names.len(), listed())))
        }
    }
}

fn refused(error: ZipError) -> ReadError {
    match error {
        ZipError::Io(error) => error.into(),
        other => ReadError::new(format!("the archive cannot be read: {other}")),
    }
}
