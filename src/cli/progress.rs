//! A spinner on standard error while something takes long, if somebody watches.

use std::io::{self, IsTerminal};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Work that is done sooner shows nothing.
const PATIENCE: Duration = Duration::from_millis(500);

/// Does `work`; if it takes long and standard error is a terminal, shows `message` meanwhile.
pub(super) fn watched<T>(message: &str, work: impl FnOnce() -> T) -> T {
    if !io::stderr().is_terminal() {
        return work();
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

/// Does `work`, which is given a function to call with what is done and what there is, from any thread; shows a bar with
/// rate and time left meanwhile, if standard error is a terminal.
pub(super) fn counted<T>(message: &str, work: impl FnOnce(&(dyn Fn(usize, usize) + Sync)) -> T) -> T {
    if !io::stderr().is_terminal() {
        return work(&|_, _| {});
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
