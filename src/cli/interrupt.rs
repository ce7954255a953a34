//! Interrupts (Ctrl-C, SIGTERM): answered at once, whatever is being computed, with what is kept.
//!
//! No temporary file stays, and a file that is being put in its place is there whole. The process then ends by the signal,
//! as a shell or a batch system expects.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// What there is so far, in words: of a sweep what is on disk and how to go on, of a search the best.
static KEPT: Mutex<Option<String>> = Mutex::new(None);

/// From now on an interrupt says that so many of all points are in the journal of a directory.
pub(super) fn keeps_points(out: Option<&Path>, done: usize, all: usize) {
    let kept = match out {
        Some(out) => {
            format!(
                "{done} of {all} points are kept in `{}`: the same command goes on from there",
                out.join("journal.jsonl").display()
            )
        }
        None => format!("the {done} of {all} points that ran are lost: `--out DIR` keeps them"),
    };
    keeps(kept);
}

/// From now on an interrupt says what there is so far.
pub(super) fn keeps(kept: String) {
    *KEPT.lock().unwrap_or_else(PoisonError::into_inner) = Some(kept);
}

/// What an interrupt says is kept.
#[cfg(unix)]
fn kept(written: &[std::path::PathBuf]) -> String {
    let files = || written.iter().map(|path| format!("`{}`", path.display())).collect::<Vec<_>>().join(", ");
    let points = KEPT.lock().unwrap_or_else(PoisonError::into_inner).take();
    match (points, written.is_empty()) {
        (Some(points), true) => points,
        (Some(points), false) => format!("{points}; {} are written", files()),
        (None, true) => "nothing is written".to_owned(),
        (None, false) => format!("of the files asked for, {} are written", files()),
    }
}

/// Answers interrupts from now on. A file-size limit becomes a failure to write, and memory that cannot be had exit code 1. Where signals cannot be watched, the system
/// does what it always did.
#[cfg(unix)]
pub(super) fn answered() {
    use std::io::Write;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use signal_hook::consts::{SIGABRT, SIGINT, SIGTERM, SIGXFSZ};
    use signal_hook::iterator::Signals;

    use crate::diagnostics::printable;
    use crate::report;

    let _ = signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
    // Memory that cannot be had ends the process by this signal, after a message that says how much was asked for.
    let _ = signal_hook::flag::register_conditional_shutdown(SIGABRT, 1, Arc::new(AtomicBool::new(true)));
    let watched = [SIGINT, SIGTERM].into_iter().filter(|&signal| !is_ignored(signal));
    let Ok(mut signals) = Signals::new(watched) else { return };
    report::note_written();
    std::thread::spawn(move || {
        for signal in signals.forever() {
            let written = report::stop_writing();
            // A closed standard error costs nothing but this line.
            let _ = writeln!(std::io::stderr(), "interrupted: {}", printable(&kept(&written)));
            let _ = signal_hook::low_level::emulate_default_handler(signal);
        }
    });
}

/// Without signals there is nothing to answer.
#[cfg(not(unix))]
pub(super) fn answered() {}

/// Whether who started the program wants it to live through a signal, as shells do for what runs in their background.
#[cfg(unix)]
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}
