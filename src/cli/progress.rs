//! Standard error: notes on what was chosen for the user, and a spinner while something takes long, if somebody watches.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Work that is done sooner shows nothing.
const PATIENCE: Duration = Duration::from_millis(500);

/// Says what was chosen for the user.
pub(super) fn note(note: &str) {
    // A closed standard error costs nothing but this line.
    let _ = writeln!(io::stderr().lock(), "note: {note}");
}

/// Watchers that show something of their own at the moment.
static SHOWN: AtomicUsize = AtomicUsize::new(0);

/// Counts a watcher while it lives.
struct Showing;

impl Showing {
    fn new() -> Self {
        SHOWN.fetch_add(1, Ordering::Relaxed);
        Self
    }
}

impl Drop for Showing {
    fn drop(&mut self) {
        SHOWN.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Does the work of a whole command: while it takes long and nothing in it shows more, a line from time to time.
pub(super) fn never_silent<T>(command: &str, work: impl FnOnce() -> T) -> T {
    let tell = |took_s: f64| {
        if SHOWN.load(Ordering::Relaxed) == 0 {
            say(&format!("{command}: {took_s:.0} s so far"));
        }
    };
    beside(LINE_EVERY, tell, work)
}

/// Does `work`; if it takes long, shows `message` meanwhile: a spinner on a terminal, else a line from time to time.
pub(super) fn watched<T>(message: &str, work: impl FnOnce() -> T) -> T {
    let _showing = Showing::new();
    if !io::stderr().is_terminal() {
        return beside(LINE_EVERY, |took_s| say(&format!("{message}: {took_s:.0} s so far")), work);
    }
    thread::scope(|scope| {
        // Dropping `done`, also while unwinding, wakes the watcher.
        let (done, finished) = mpsc::channel::<()>();
        scope.spawn(move || {
            if finished.recv_timeout(PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout) {
                let spinner = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
                spinner.set_message(message.to_owned());
                spinner.enable_steady_tick(Duration::from_millis(100));
                // Nothing is ever sent: this returns when the work is done.
                let _ = finished.recv();
                spinner.finish_and_clear();
            }
        });
        let result = work();
        drop(done);
        result
    })
}

/// Does `work`, and calls `tell` with the seconds it has taken so far: after [`FIRST_LINE`], and again and again after `every`.
#[expect(clippy::disallowed_methods, reason = "progress is told by the clock, on standard error")]
fn beside<T>(every: Duration, tell: impl Fn(f64) + Send, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    thread::scope(|scope| {
        // Dropping `done`, also while unwinding, wakes the watcher.
        let (done, finished) = mpsc::channel::<()>();
        scope.spawn(move || {
            let mut wait = FIRST_LINE.min(every);
            while finished.recv_timeout(wait) == Err(mpsc::RecvTimeoutError::Timeout) {
                tell(start.elapsed().as_secs_f64());
                wait = every;
            }
        });
        let result = work();
        drop(done);
        result
    })
}

#[expect(clippy::disallowed_methods, reason = "progress is told by the clock, on standard error")]
fn now() -> Instant {
    Instant::now()
}

fn say(line: &str) {
    // A closed standard error costs nothing but this line.
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// What takes longer says so.
const FIRST_LINE: Duration = Duration::from_secs(2);

/// Seconds between lines where nobody watches: few enough for a log, and nothing is silent for longer.
const LINE_EVERY: Duration = Duration::from_secs(9);

/// Does `work`, which is given a function to call with what is done and what there is, from any thread; meanwhile shows a bar
/// with rate and time left if standard error is a terminal, else a line from time to time.
pub(super) fn counted<T>(message: &str, work: impl FnOnce(&(dyn Fn(usize, usize) + Sync)) -> T) -> T {
    let _showing = Showing::new();
    if !io::stderr().is_terminal() {
        return in_lines(message, work);
    }
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    let template = "{msg} {wide_bar} {pos}/{len}  {per_sec}  {eta} left";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.set_message(message.to_owned());
    let result = work(&|done, all| {
        let is_first = bar.length().is_none();
        bar.set_length(all as u64);
        bar.set_position(done as u64);
        if is_first {
            // What a journal held already says nothing of the rate.
            bar.reset_eta();
        }
    });
    bar.finish_and_clear();
    result
}

fn in_lines<T>(message: &str, work: impl FnOnce(&(dyn Fn(usize, usize) + Sync)) -> T) -> T {
    // What was done when counting began, what is done now, what there is, and when counting began.
    let counts: Mutex<Option<(usize, usize, usize, Instant)>> = Mutex::new(None);
    let tell = |took_s| {
        let counts = *counts.lock().unwrap_or_else(PoisonError::into_inner);
        say(&counts.map_or_else(
            || format!("{message}: {took_s:.0} s so far"),
            |(from, done, all, since)| line(message, from, done, all, since.elapsed().as_secs_f64()),
        ));
    };
    beside(LINE_EVERY, tell, || {
        work(&|done, all| {
            let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
            let (from, since) = counts.map_or_else(|| (done, now()), |(from, _, _, since)| (from, since));
            // Threads tell out of order.
            let done = counts.map_or(done, |(_, earlier, ..)| earlier.max(done));
            *counts = Some((from, done, all, since));
        })
    })
}

/// `study: 30 of 90, 1.5 a second, about 40 s left`.
fn line(message: &str, from: usize, done: usize, all: usize, took_s: f64) -> String {
    let rate = (done - from.min(done)) as f64 / took_s.max(1e-9);
    let left =
        if rate > 0.0 { format!("about {:.0} s left", (all - done) as f64 / rate) } else { "no rate yet".into() };
    format!("{message}: {done} of {all}, {rate:.2} a second, {left}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_counts_from_where_the_run_began() {
        assert_eq!(line("study", 10, 40, 100, 20.0), "study: 40 of 100, 1.50 a second, about 40 s left");
        assert_eq!(line("study", 10, 10, 100, 20.0), "study: 10 of 100, 0.00 a second, no rate yet");
    }
}
