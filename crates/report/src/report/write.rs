//! The files of `--out DIR`, each written whole or not at all.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use tempfile::{Builder, NamedTempFile};

use rdusim_graph::arch::Device;
use rdusim_graph::workload::Workload;
use rdusim_outcome::Outcome;

use super::chart::{Chart, ChartError};
use super::csv;
use super::document::Document;
use super::side::Side;

/// A file to be: its name and its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Name inside the directory.
    pub name: String,
    /// Contents.
    pub bytes: Vec<u8>,
}

/// A report could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// A picture could not be made.
    #[error("cannot draw `{0}`: {1}")]
    Chart(&'static str, #[source] ChartError),
    /// A table could not be made.
    #[error("cannot make `{0}`: {1}")]
    Csv(&'static str, #[source] ::csv::Error),
    /// The directory could not be created.
    #[error("cannot create the directory `{path}`: {1}", path = .0.display())]
    Directory(PathBuf, #[source] io::Error),
    /// A file could not be written.
    #[error("cannot write `{path}`: {1}", path = .0.display())]
    File(PathBuf, #[source] io::Error),
}

/// Every file of a report: `result.json`, `sections.csv`, `traffic.csv`, and each chart as SVG and PNG.
pub fn files(chip: &dyn Device, workload: &Workload, outcomes: &[Outcome]) -> Result<Vec<File>, WriteError> {
    files_of(workload, &[Side { chip, outcomes }])
}

/// The same of runs on one chip, or of others beside the first.
pub fn files_of(workload: &Workload, sides: &[Side<'_>]) -> Result<Vec<File>, WriteError> {
    let json = match sides {
        [first, others @ ..] => Document::versus(workload, *first, others).to_json(),
        [] => String::new(),
    };
    let sections = csv::sections_of(sides).map_err(|error| WriteError::Csv("sections.csv", error))?;
    let traffic = csv::traffic_of(sides).map_err(|error| WriteError::Csv("traffic.csv", error))?;
    let mut files = vec![
        File { name: "result.json".to_owned(), bytes: json.into_bytes() },
        File { name: "sections.csv".to_owned(), bytes: sections.into_bytes() },
        File { name: "traffic.csv".to_owned(), bytes: traffic.into_bytes() },
    ];
    for chart in Chart::ALL {
        let failed = |error| WriteError::Chart(chart.name(), error);
        let svg = chart.svg_of(workload, sides).map_err(failed)?;
        let png = chart.png_of(workload, sides).map_err(failed)?;
        files.push(File { name: format!("{}.svg", chart.name()), bytes: svg.into_bytes() });
        files.push(File { name: format!("{}.png", chart.name()), bytes: png });
    }
    Ok(files)
}

/// Writes files into a directory, which is created if it is missing. Each file appears whole or not at all, and none
/// appears unless all could be written beside their places. Symbolic links are replaced, not followed; what is neither a
/// link nor a regular file is left alone and is an error.
pub fn write(directory: &Path, files: &[File]) -> Result<(), WriteError> {
    std::fs::create_dir_all(directory).map_err(|error| WriteError::Directory(directory.to_owned(), error))?;
    remove_abandoned(directory);
    let mut waiting: Vec<(PathBuf, NamedTempFile)> = Vec::with_capacity(files.len());
    for file in files {
        let path = directory.join(&file.name);
        let is_taken = path.symlink_metadata().is_ok_and(|found| !found.is_file() && !found.is_symlink());
        let written = if is_taken { Err(not_a_file()) } else { write_beside(directory, &file.bytes) };
        waiting.push((path.clone(), written.map_err(|error| WriteError::File(path, error))?));
    }
    for (path, temporary) in waiting {
        persist(temporary, &path).map_err(|error| WriteError::File(path, error))?;
    }
    sync_directory(directory);
    Ok(())
}

/// Writes one file that the user named, whole or not at all. Its directory must be there. A symbolic link is followed, and
/// a device or a pipe is written into: neither is replaced.
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<(), WriteError> {
    let failed = |error| WriteError::File(path.to_owned(), error);
    let target = match path.metadata() {
        Ok(found) if found.is_dir() => return Err(failed(io::ErrorKind::IsADirectory.into())),
        Ok(found) if !found.is_file() => {
            let mut device = std::fs::OpenOptions::new().write(true).open(path).map_err(failed)?;
            return device.write_all(bytes).and_then(|()| device.flush()).map_err(failed);
        }
        Ok(_) => path.canonicalize().map_err(failed)?,
        Err(_) if path.is_symlink() => return Err(failed(io::Error::other("it is a symbolic link to nothing"))),
        Err(_) => path.to_owned(),
    };
    let directory = target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !directory.is_dir() {
        let missing = io::Error::other(format!("there is no directory `{}`", directory.display()));
        return Err(failed(missing));
    }
    remove_abandoned(directory);
    write_beside(directory, bytes).and_then(|temporary| persist(temporary, &target)).map_err(failed)?;
    sync_directory(directory);
    Ok(())
}

fn not_a_file() -> io::Error {
    io::Error::other("something that is no regular file is there")
}

/// Makes renames in a directory last. A file system that cannot is no failure: the files are there.
fn sync_directory(directory: &Path) {
    let _ = std::fs::File::open(directory).and_then(|directory| directory.sync_all());
}

/// Files that are being written by this process, so that an interrupt leaves none of them half done.
static FILES: Mutex<Files> =
    Mutex::new(Files { is_stopped: false, is_noted: false, temporary: Vec::new(), written: Vec::new() });

struct Files {
    is_stopped: bool,
    is_noted: bool,
    /// Not in their places yet.
    temporary: Vec<PathBuf>,
    /// In their places, if that is noted.
    written: Vec<PathBuf>,
}

impl Files {
    /// Does something to a file, unless writing has been stopped.
    fn with<T>(work: impl FnOnce(&mut Self) -> io::Result<T>) -> io::Result<T> {
        let mut files = FILES.lock().unwrap_or_else(PoisonError::into_inner);
        if files.is_stopped { Err(io::ErrorKind::Interrupted.into()) } else { work(&mut files) }
    }
}

/// From now on it is noted which files are written, for [`stop_writing`] to tell.
pub fn note_written() {
    FILES.lock().unwrap_or_else(PoisonError::into_inner).is_noted = true;
}

/// Ends all writing of files, for a process that is about to end: removes temporary files, and returns the files that are in
/// their places, as far as that was noted.
pub fn stop_writing() -> Vec<PathBuf> {
    let mut files = FILES.lock().unwrap_or_else(PoisonError::into_inner);
    files.is_stopped = true;
    for path in files.temporary.drain(..) {
        // There is nobody left to tell.
        let _ = std::fs::remove_file(path);
    }
    std::mem::take(&mut files.written)
}

/// Names of temporary files begin with this.
const PREFIX: &str = ".rdusim-";

/// Letters and digits at random that follow [`PREFIX`].
const RANDOM: usize = 6;

/// A temporary file that this process holds locked until it is in its place or gone.
fn locked(builder: &Builder<'_, '_>, directory: &Path) -> io::Result<NamedTempFile> {
    loop {
        let temporary = builder.tempfile_in(directory)?;
        // Before it was locked, [`remove_abandoned`] of another process may have taken it for abandoned. A file system without
        // locks has nothing removed.
        if temporary.as_file().lock().is_err() || temporary.path().symlink_metadata().is_ok() {
            return Ok(temporary);
        }
    }
}

/// Removes temporary files that a killed process left in a directory: those that nobody holds locked.
fn remove_abandoned(directory: &Path) {
    let is_temporary = |name: &std::ffi::OsStr| {
        let random = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        random.is_some_and(|random| random.len() == RANDOM && random.bytes().all(|byte| byte.is_ascii_alphanumeric()))
    };
    // A directory that cannot be listed keeps what is in it.
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if !is_file || !is_temporary(&entry.file_name()) {
            continue;
        }
        let file = std::fs::OpenOptions::new().write(true).open(entry.path());
        if let Ok(file) = file
            && file.try_lock().is_ok()
        {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

fn write_beside(directory: &Path, bytes: &[u8]) -> io::Result<NamedTempFile> {
    let mut builder = Builder::new();
    builder.prefix(PREFIX).rand_bytes(RANDOM);
    // Temporary files are private by default; these become results, readable as any new file is.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let mut temporary = Files::with(|files| {
        let temporary = locked(&builder, directory)?;
        files.temporary.push(temporary.path().to_owned());
        Ok(temporary)
    })?;
    temporary.write_all(bytes)?;
    temporary.flush()?;
    temporary.as_file().sync_all()?;
    Ok(temporary)
}

/// Puts a temporary file in its place.
fn persist(temporary: NamedTempFile, path: &Path) -> io::Result<()> {
    Files::with(|files| {
        files.temporary.retain(|waiting| waiting != temporary.path());
        temporary.persist(path).map_err(|error| error.error)?;
        if files.is_noted {
            files.written.push(path.to_owned());
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;

    fn names(directory: &Path) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn abandoned_files_of_a_killed_process_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let abandoned = [".rdusim-Ab12Cd", ".rdusim-000000"];
        let others = [".rdusim-notes.txt", ".rdusim-Ab12C", "rdusim-Ab12Cd", ".rdusim-locked"];
        abandoned.iter().chain(&others).for_each(|name| std::fs::write(at(name), "x").unwrap());
        let held = std::fs::File::open(at(".rdusim-locked")).unwrap();
        held.lock().unwrap();
        write(directory.path(), &[File { name: "a".into(), bytes: b"b".to_vec() }]).unwrap();
        let mut expected: Vec<&str> = others.into_iter().chain(["a"]).collect();
        expected.sort_unstable();
        assert_eq!(names(directory.path()), expected);
        drop(held);
        write_file(&at("a"), b"c").unwrap();
        assert!(!at(".rdusim-locked").exists());
    }

    #[test]
    fn a_report_has_its_result_tables_and_pictures() {
        let (chip, workload, outcomes) = (fixture::sn10(), fixture::ffn(None), fixture::outcomes());
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("a/b");
        for _ in 0..2 {
            write(&directory, &files(&chip, &workload, &outcomes).unwrap()).unwrap();
            let tables = ["result.json", "sections.csv", "traffic.csv"].map(str::to_owned);
            let pictures = [
                "bandwidth",
                "energy-by-section",
                "energy-by-tensor",
                "memory",
                "power",
                "roofline",
                "time",
                "traffic",
                "utilization",
            ];
            let pictures = pictures.iter().flat_map(|name| [format!("{name}.png"), format!("{name}.svg")]);
            let mut expected: Vec<String> = tables.into_iter().chain(pictures).collect();
            expected.sort();
            assert_eq!(names(&directory), expected);
        }
        let json = std::fs::read_to_string(directory.join("result.json")).unwrap();
        assert_eq!(json, Document::new(&chip, &workload, &outcomes).to_json());
    }

    #[cfg(unix)]
    #[test]
    fn files_are_as_readable_as_any_other() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let plain = directory.path().join("plain");
        std::fs::write(&plain, "").unwrap();
        write(directory.path(), &[File { name: "ours".into(), bytes: vec![1] }]).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(&directory.path().join("ours")), mode(&plain));
    }

    #[test]
    fn a_failure_leaves_nothing_behind() {
        let directory = tempfile::tempdir().unwrap();
        // A directory stands where the second file should go: the first must not be half of a report.
        std::fs::create_dir(directory.path().join("b")).unwrap();
        let file = |name: &str| File { name: name.into(), bytes: b"x".to_vec() };
        let error = write(directory.path(), &[file("b"), file("a")]).unwrap_err();
        assert!(error.to_string().starts_with("cannot write `"), "{error}");
        assert_eq!(names(directory.path()), ["b"]);
    }

    #[test]
    fn a_file_in_the_directorys_place_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("taken");
        std::fs::write(&path, "").unwrap();
        let error = write(&path, &[]).unwrap_err().to_string();
        assert!(error.starts_with("cannot create the directory `") && error.contains("taken"), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn links_in_the_directory_are_replaced_and_devices_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let outside = directory.path().join("outside");
        std::fs::write(&outside, "before").unwrap();
        let out = directory.path().join("out");
        std::fs::create_dir(&out).unwrap();
        std::os::unix::fs::symlink(&outside, out.join("a")).unwrap();
        write(&out, &[File { name: "a".into(), bytes: b"x".to_vec() }]).unwrap();
        assert_eq!(std::fs::read_to_string(&outside).unwrap(), "before");
        assert!(!out.join("a").is_symlink());
        let _socket = std::os::unix::net::UnixListener::bind(out.join("b")).unwrap();
        let error = write(&out, &[File { name: "b".into(), bytes: b"x".to_vec() }]).unwrap_err();
        assert!(error.to_string().contains("no regular file"), "{error}");
        assert_eq!(names(&out), ["a", "b"]);
    }

    #[cfg(unix)]
    #[test]
    fn a_named_file_is_written_where_its_link_leads() {
        let directory = tempfile::tempdir().unwrap();
        let (file, link) = (directory.path().join("file"), directory.path().join("link"));
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert!(write_file(&link, b"x").unwrap_err().to_string().contains("link to nothing"));
        write_file(&file, b"x").unwrap();
        write_file(&link, b"y").unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), b"y");
        assert!(link.is_symlink());
        assert_eq!(names(directory.path()), ["file", "link"]);
    }

    #[test]
    fn the_directory_of_a_named_file_is_not_made() {
        let directory = tempfile::tempdir().unwrap();
        let error = write_file(&directory.path().join("a/b"), b"x").unwrap_err().to_string();
        assert!(error.contains("there is no directory `") && error.contains("/a`"), "{error}");
        assert!(names(directory.path()).is_empty());
        let taken = write_file(directory.path(), b"x").unwrap_err().to_string();
        assert!(taken.starts_with("cannot write `"), "{taken}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_device_is_written_into() {
        use std::os::unix::fs::FileTypeExt;
        let error = write_file(Path::new("/dev/full"), b"x").unwrap_err();
        assert!(error.to_string().starts_with("cannot write `/dev/full`"), "{error}");
        write_file(Path::new("/dev/null"), b"x").unwrap();
        for device in ["/dev/full", "/dev/null"] {
            assert!(std::fs::metadata(device).unwrap().file_type().is_char_device());
        }
    }
}
