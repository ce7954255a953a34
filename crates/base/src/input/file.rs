//! Files as bytes and text: every reader of inputs has its limits from here.
//!
//! No more is read of a file than its limit, whatever the file is; its head is looked at before the rest is read.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use crate::diagnostics::Diagnostic;

/// The longest text that is read, in bytes: of chips, workloads, studies, tables, traces, results and certificates. A result of
/// 10,000 sections has a tenth of it.
pub(crate) const MOST_TEXT_BYTES: u64 = 256 << 20;

/// The longest network that is read, in bytes: that of a Protocol Buffers message.
pub const MOST_NETWORK_BYTES: u64 = 1 << 31;

/// Bytes read ahead.
const BUFFER_BYTES: usize = 1 << 16;

/// Opens a regular file to be read in parts; in the error, words that follow the name of the file.
pub fn open(path: &Path) -> Result<impl BufRead + Seek + use<>, String> {
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
pub fn open_inside(directory: &Path, name: &str) -> Result<impl BufRead + Seek + use<>, String> {
    let told = |error| format!("cannot be opened: {error}");
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    let path = directory.join(name).canonicalize().map_err(told)?;
    if !path.starts_with(directory.canonicalize().map_err(told)?) {
        return Err("is a symbolic link that leads out of the directory of the file that names it".to_owned());
    }
    open(&path)
}

/// Reads a regular file of at most `most_bytes`, whose first bytes `head` accepts; in the error, words that follow the name of
/// the file. A file that is too long, and one that begins as none of its kind does, is refused before it is read.
pub fn read_bytes(path: &Path, most_bytes: u64, head: impl Fn(&[u8]) -> Result<(), String>) -> Result<Vec<u8>, String> {
    let mut file = open(path)?;
    let failed = |error| format!("cannot be read: {error}");
    let length = file.seek(SeekFrom::End(0)).and_then(|length| file.rewind().map(|()| length)).map_err(failed)?;
    if length > most_bytes {
        return Err(too_long(most_bytes));
    }
    read_within(file, most_bytes, head)
}

/// The bytes of a file or a pipe that nothing is known of; otherwise as [`read_bytes`].
fn read_within(
    mut file: impl BufRead,
    most_bytes: u64,
    head: impl Fn(&[u8]) -> Result<(), String>,
) -> Result<Vec<u8>, String> {
    let failed = |error| format!("cannot be read: {error}");
    head(file.fill_buf().map_err(failed)?)?;
    let mut bytes = Vec::new();
    file.take(most_bytes + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > most_bytes { Err(too_long(most_bytes)) } else { Ok(bytes) }
}

/// Reads a regular file of text, of at most [`MOST_TEXT_BYTES`]; in the error, words that follow the name of the file.
pub fn read_text(path: &Path) -> Result<String, String> {
    text(read_bytes(path, MOST_TEXT_BYTES, begins_as_text)?)
}

/// [`read_text`] that reads pipes as well, as `<(...)` of a shell makes them.
pub fn read_piped_text(path: &Path) -> Result<String, String> {
    if path.metadata().is_ok_and(|found| found.is_file()) {
        return read_text(path);
    }
    let file = File::open(path).map_err(|error| format!("cannot be opened: {error}"))?;
    text(read_within(BufReader::with_capacity(BUFFER_BYTES, file), MOST_TEXT_BYTES, begins_as_text)?)
}

fn too_long(most_bytes: u64) -> String {
    format!("has more than {most_bytes} bytes")
}

/// Refuses what cannot be text: a byte of zero.
fn begins_as_text(head: &[u8]) -> Result<(), String> {
    match head.iter().position(|&byte| byte == 0) {
        Some(at) => Err(format!("is no text: byte {at} is zero")),
        None => Ok(()),
    }
}

fn text(bytes: Vec<u8>) -> Result<String, String> {
    String::from_utf8(bytes)
        .map_err(|error| format!("is no text: byte {} is not UTF-8", error.utf8_error().valid_up_to()))
}

/// Refuses a table in which two columns have one name.
///
/// # Errors
/// The first such name.
pub fn refuse_repeated(table: &str, columns: &[&str]) -> Result<(), Diagnostic> {
    match columns.iter().enumerate().find(|(at, column)| columns[..*at].contains(column)) {
        None => Ok(()),
        Some((_, column)) => {
            let title = format!("{table}: two columns are named {column:?}");
            Err(Diagnostic::new(title).with_help("give each column once"))
        }
    }
}

/// The line, counted from 1, that a record of a table begins on. A reader of tables says where it stands before it skips comments, empty
/// lines and the line feed behind a carriage return: at a byte of the text, on a line.
pub fn line_of_record(text: &str, byte: u64, line: u64) -> u64 {
    let at = usize::try_from(byte).unwrap_or(usize::MAX).min(text.len());
    let mut rest = text.as_bytes().get(at..).unwrap_or_default();
    let mut line = line;
    while let Some(&first) = rest.first() {
        let skipped = match first {
            b'\r' | b'\n' => 0,
            b'#' => rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len() - 1),
            _ => break,
        };
        line += u64::from(rest.get(skipped) == Some(&b'\n'));
        rest = rest.get(skipped + 1..).unwrap_or_default();
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_begin_behind_comments_and_empty_lines() {
        let text = "# a\r\nb\r\n# c\r\n\r\n1\r\n#";
        // A reader that has taken the header stands behind its carriage return.
        let header = text.find('b').expect("a header") as u64 + 2;
        assert_eq!(line_of_record(text, header, 2), 5);
        assert_eq!(line_of_record(text, 0, 1), 2);
        assert_eq!(line_of_record(text, text.len() as u64 - 1, 6), 6);
        assert_eq!(line_of_record(text, u64::MAX, 7), 7);
    }

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
    fn a_file_has_a_limit_and_a_head() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let any = |_: &[u8]| Ok(());
        std::fs::write(file.path(), "abc").unwrap();
        assert_eq!(read_bytes(file.path(), 3, any).unwrap(), b"abc");
        assert_eq!(read_bytes(file.path(), 2, any).unwrap_err(), "has more than 2 bytes");
        assert_eq!(read_within(&b"abc"[..], 2, any).unwrap_err(), "has more than 2 bytes");
        let head = |head: &[u8]| if head.starts_with(b"abc") { Err("is abc".to_owned()) } else { Ok(()) };
        assert_eq!(read_bytes(file.path(), 3, head).unwrap_err(), "is abc");
        std::fs::write(file.path(), [0x61, 0xff]).unwrap();
        assert_eq!(read_text(file.path()).unwrap_err(), "is no text: byte 1 is not UTF-8");
        std::fs::write(file.path(), [0x61, 0]).unwrap();
        assert_eq!(read_text(file.path()).unwrap_err(), "is no text: byte 1 is zero");
        assert_eq!(read_piped_text(file.path()).unwrap_err(), "is no text: byte 1 is zero");
    }
}
