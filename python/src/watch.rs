//! Long work on threads of its own: the interpreter is free meanwhile, hears of progress, and interrupts it on Ctrl-C.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use rdusim::interrupt::{self, Interrupt};

use super::failure::raised;
use super::request::Answer;

/// Time between two looks for signals and progress.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What work tells of itself.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    done: AtomicUsize,
    all: AtomicUsize,
}

impl Watch {
    /// Notes progress, from any thread; unwinds if the work is interrupted.
    pub(crate) fn tick(&self, done: usize, all: usize) {
        self.done.fetch_max(done, Ordering::Relaxed);
        self.all.store(all, Ordering::Relaxed);
        interrupt::check();
    }

    fn progress(&self) -> (usize, usize) {
        (self.done.load(Ordering::Relaxed), self.all.load(Ordering::Relaxed))
    }
}

/// Does `work` on other threads. `progress` is called with what is done and what there is.
///
/// A signal whose handler raises, as Ctrl-C, interrupts the work and waits until it has stopped: it holds files and processors. A
/// second one leaves it to stop by itself.
pub(crate) fn watched<T: Send + 'static>(
    py: Python<'_>,
    progress: Option<&Bound<'_, PyAny>>,
    work: impl FnOnce(&Watch) -> Answer<T> + Send + 'static,
) -> PyResult<T> {
    let watch = Arc::new(Watch::default());
    let (send, mut receive) = mpsc::channel();
    let (inside, interrupt) = (Arc::clone(&watch), Interrupt::default());
    let interrupted = interrupt.clone();
    let started = thread::Builder::new().name("rdusim".to_owned()).spawn(move || {
        // A receiver that has gone has left the work.
        let _ = send.send(catch_unwind(AssertUnwindSafe(|| interrupted.run(|| work(&inside)))));
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
                interrupt.raise();
                stopped = Some(error);
            }
        }
        match received {
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(PyRuntimeError::new_err("the work ended early")),
            Ok(result) => return finished(py, stopped, result),
        }
        if let Err(signal) = py.check_signals() {
            if stopped.is_some() {
                return Err(signal);
            }
            interrupt.raise();
            stopped = Some(signal);
        }
    }
}

/// What the threads of work say at the end: its answer, none if it was interrupted, or the panic.
type Ended<T> = Result<Result<Option<Answer<T>>, rayon::ThreadPoolBuildError>, Box<dyn Any + Send>>;

fn finished<T>(py: Python<'_>, stopped: Option<PyErr>, result: Ended<T>) -> PyResult<T> {
    if let Some(error) = stopped {
        return Err(error);
    }
    match result {
        Ok(Ok(Some(Ok(value)))) => Ok(value),
        Ok(Ok(Some(Err(failure)))) => Err(raised(py, &failure)),
        Ok(Ok(None)) => Err(PyRuntimeError::new_err("the work was interrupted")),
        Ok(Err(error)) => Err(PyRuntimeError::new_err(format!("cannot start threads: {error}"))),
        Err(payload) => {
            let text = payload.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("(no message)");
            let version = env!("CARGO_PKG_VERSION");
            Err(PyRuntimeError::new_err(format!("this is a bug in rdusim {version}: it panicked: {text}")))
        }
    }
}
