//! Long work on a thread of its own: the interpreter is free meanwhile, hears of progress, and stops it on Ctrl-C.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use super::failure::raised;
use super::request::Answer;

/// Time between two looks for signals and progress.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What a thread tells, and is told.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    done: AtomicUsize,
    all: AtomicUsize,
    is_cancelled: AtomicBool,
}

/// What work unwinds with that was cancelled; no panic hook hears of it.
struct Cancelled;

impl Watch {
    /// Notes progress, from any thread; unwinds if the work is to stop.
    pub(crate) fn tick(&self, done: usize, all: usize) {
        self.done.fetch_max(done, Ordering::Relaxed);
        self.all.store(all, Ordering::Relaxed);
        if self.is_cancelled.load(Ordering::Relaxed) {
            resume_unwind(Box::new(Cancelled));
        }
    }

    fn progress(&self) -> (usize, usize) {
        (self.done.load(Ordering::Relaxed), self.all.load(Ordering::Relaxed))
    }
}

/// What becomes of work that is interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interrupted {
    /// It stops at its next tick, and is waited for: it holds files. A second interrupt leaves it.
    Stops,
    /// It is left: it ends by itself soon, and nobody hears of its result.
    IsLeft,
}

/// Does `work` on another thread. `progress` is called with what is done and what there is.
pub(crate) fn watched<T: Send + 'static>(
    py: Python<'_>,
    progress: Option<&Bound<'_, PyAny>>,
    interrupted: Interrupted,
    work: impl FnOnce(&Watch) -> Answer<T> + Send + 'static,
) -> PyResult<T> {
    let watch = Arc::new(Watch::default());
    let (send, mut receive) = mpsc::channel();
    let inside = Arc::clone(&watch);
    let started = thread::Builder::new().name("rdusim".to_owned()).spawn(move || {
        // A receiver that has gone has left the work.
        let _ = send.send(catch_unwind(AssertUnwindSafe(|| work(&inside))));
    });
    started.map_err(|error| PyRuntimeError::new_err(format!("cannot start a thread: {error}")))?;
    let mut told = (0, 0);
    let mut stopped: Option<PyErr> = None;
    loop {
        let inbox = &mut receive;
        let received = py.detach(move || inbox.recv_timeout(LOOK_EVERY));
        if stopped.is_none() && watch.progress() != told {
            told = watch.progress();
            if let Some(progress) = progress
                && let Err(error) = progress.call1(told)
            {
                watch.is_cancelled.store(true, Ordering::Relaxed);
                stopped = Some(error);
            }
        }
        match received {
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(PyRuntimeError::new_err("the work ended early")),
            Ok(result) => return finished(py, stopped, result),
        }
        if let Err(signal) = py.check_signals() {
            if stopped.is_some() || interrupted == Interrupted::IsLeft {
                return Err(signal);
            }
            watch.is_cancelled.store(true, Ordering::Relaxed);
            stopped = Some(signal);
        }
    }
}

fn finished<T>(py: Python<'_>, stopped: Option<PyErr>, result: Result<Answer<T>, Box<dyn Any + Send>>) -> PyResult<T> {
    if let Some(error) = stopped {
        return Err(error);
    }
    match result {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(failure)) => Err(raised(py, &failure)),
        Err(payload) => {
            let text = payload.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("(no message)");
            let version = env!("CARGO_PKG_VERSION");
            Err(PyRuntimeError::new_err(format!("this is a bug in rdusim {version}: it panicked: {text}")))
        }
    }
}
