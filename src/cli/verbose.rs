//! `-v`: what is told on standard error, by records of the log.
//!
//! Level info is how long things took; debug what the search, the engine, the importers and a pod's search did; trace the runs that a
//! search of mappings measures.

use std::io::{self, Write};

use log::{LevelFilter, Log, Metadata, Record};

/// The target of times.
const TIME: &str = "time";

/// The targets that are told; libraries may have others.
const TARGETS: [&str; 5] = [TIME, "search", "engine", "import", "pod"];

/// Writes records to standard error, whole ones.
struct StandardError;

impl Log for StandardError {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        TARGETS.contains(&metadata.target())
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let (target, text) = (record.target(), record.args().to_string());
        let mut lines = String::new();
        for line in text.lines() {
            if target != TIME {
                lines += target;
                lines += ": ";
            }
            lines += line;
            lines.push('\n');
        }
        // A closed standard error costs nothing but these lines.
        let _ = io::stderr().lock().write_all(lines.as_bytes());
    }

    fn flush(&self) {}
}

/// Tells as much as so many `v` ask for.
pub(super) fn tell(level: u8) {
    // A second command of one process finds the first one's.
    let _ = log::set_logger(&StandardError);
    log::set_max_level(match level {
        0 => LevelFilter::Off,
        1 => LevelFilter::Info,
        2 => LevelFilter::Debug,
        _ => LevelFilter::Trace,
    });
}

/// Tells how long something took, if that is asked for.
pub(super) fn time(line: &str) {
    log::info!(target: TIME, "{line}");
}
