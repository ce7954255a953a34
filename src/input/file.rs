//! Files that are read in parts.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek};
use std::path::Path;

/// Bytes read ahead.
const BUFFER_BYTES: usize = 1 << 16;

/// Opens a regular file to be read in parts; in the error, words that follow the name of the file.
pub(crate) fn open(path: &Path) -> Result<impl BufRead + Seek + use<>, String> {
    let told = |error| format!("cannot be opened: {error}");
    // Asked before it is opened: opening a pipe waits for a writer.
    if !path.metadata().map_err(told)?.is_file() {
        return Err("is no regular file".to_owned());
    }
    let file = File::open(path).map_err(told)?;
    Ok(BufReader::with_capacity(BUFFER_BYTES, file))
}

/// Opens a regular file that lies in a directory, also when symbolic links are followed; in the error, words that follow the
/// name of the file.
pub(crate) fn open_inside(directory: &Path, name: &str) -> Result<impl BufRead + Seek + use<>, String> {
    let told = |error| format!("cannot be opened: {error}");
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    let path = directory.join(name).canonicalize().map_err(told)?;
    if !path.starts_with(directory.canonicalize().map_err(told)?) {
        return Err("is a symbolic link that leads out of the directory of the file that names it".to_owned());
    }
    open(&path)
}

/// Reads a text file of at most `most_bytes`; in the error, words that follow the name of the file.
pub fn read_text(path: &Path, most_bytes: u64) -> Result<String, String> {
    let mut text = String::new();
    open(path)?.take(most_bytes + 1).read_to_string(&mut text).map_err(|error| format!("cannot be read: {error}"))?;
    if text.len() as u64 > most_bytes {
        return Err(format!("has more than {most_bytes} bytes"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn links_out_of_the_directory_are_refused() {
        let parent = tempfile::tempdir().unwrap();
        let inside = parent.path().join("model");
        std::fs::create_dir_all(inside.join("deep")).unwrap();
        std::fs::write(parent.path().join("secret"), "x").unwrap();
        std::fs::write(inside.join("deep/data"), "x").unwrap();
        std::os::unix::fs::symlink("../secret", inside.join("out")).unwrap();
        std::os::unix::fs::symlink("deep/data", inside.join("in")).unwrap();
        assert!(open_inside(&inside, "in").is_ok() && open_inside(&inside, "deep/data").is_ok());
        let refused = |name| open_inside(&inside, name).map(drop).unwrap_err();
        assert!(refused("out").contains("leads out"));
        assert!(refused("deep").contains("no regular file") && refused("gone").contains("cannot be opened"));
    }

    #[test]
    fn a_text_has_a_limit() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "abc").unwrap();
        assert_eq!(read_text(file.path(), 3).unwrap(), "abc");
        assert_eq!(read_text(file.path(), 2).unwrap_err(), "has more than 2 bytes");
        std::fs::write(file.path(), [0xff]).unwrap();
        assert!(read_text(file.path(), 9).unwrap_err().starts_with("cannot be read"));
    }
}
