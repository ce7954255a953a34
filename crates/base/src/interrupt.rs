//! Work that another thread interrupts: it asks now and then, and unwinds when it is no longer wanted.
//!
//! Every thread that works for an [`Interrupt`] knows it: those of the pool that it runs work in, and those of pools that
//! [`pool`] makes inside. Without one, [`check`] always returns. What is interrupted has no result, so no result depends on when
//! that was. As with any panic, unwinding passes through all threads of a search; no panic hook is called.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rayon::{ThreadPoolBuildError, ThreadPoolBuilder};

thread_local! {
    /// Who may interrupt what this thread does.
    static CURRENT: RefCell<Option<Interrupt>> = const { RefCell::new(None) };
}

/// Interrupts the work that runs under it; clones are the same one.
#[derive(Debug, Clone, Default)]
pub struct Interrupt(Arc<AtomicBool>);

/// What interrupted work unwinds with.
struct Interrupted;

impl Interrupt {
    /// From now on, work that runs under it ends at its next [`check`].
    pub fn raise(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Does work on threads that know this interrupt; `None` if it was interrupted. Any other panic goes on.
    ///
    /// # Errors
    /// Threads that cannot be started.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<Option<T>, ThreadPoolBuildError> {
        let pool = self.builder().build()?;
        // What interrupted work leaves behind are caches, which hold whole entries only.
        match catch_unwind(AssertUnwindSafe(|| pool.install(work))) {
            Ok(done) => Ok(Some(done)),
            Err(unwinding) if unwinding.is::<Interrupted>() => Ok(None),
            Err(panic) => resume_unwind(panic),
        }
    }

    fn builder(&self) -> ThreadPoolBuilder {
        let own = self.clone();
        ThreadPoolBuilder::new()
            .start_handler(move |_| CURRENT.with(|current| *current.borrow_mut() = Some(own.clone())))
    }
}

/// A pool of threads that whoever may interrupt this thread may interrupt as well.
pub fn pool() -> ThreadPoolBuilder {
    CURRENT.with(|current| current.borrow().as_ref().map_or_else(ThreadPoolBuilder::new, Interrupt::builder))
}

/// Returns if the work of this thread is still wanted; else unwinds to [`Interrupt::run`].
pub fn check() {
    let is_raised = |interrupt: &Interrupt| interrupt.0.load(Ordering::Relaxed);
    if CURRENT.with(|current| current.borrow().as_ref().is_some_and(is_raised)) {
        resume_unwind(Box::new(Interrupted));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;
    use std::thread;

    use rayon::prelude::*;

    use super::*;

    /// Works until it is interrupted, on all threads of a pool inside a pool.
    fn endless(begun: &AtomicU64) {
        let inner = pool().num_threads(2).build().expect("threads");
        inner.install(|| {
            (0..4).into_par_iter().for_each(|_| {
                loop {
                    begun.fetch_add(1, Ordering::Relaxed);
                    check();
                }
            });
        });
    }

    #[test]
    fn all_threads_of_interrupted_work_end_and_no_others() {
        let (one, other, begun) = (Interrupt::default(), Interrupt::default(), AtomicU64::new(0));
        thread::scope(|scope| {
            let work = scope.spawn(|| one.run(|| endless(&begun)));
            while begun.load(Ordering::Relaxed) == 0 {
                thread::yield_now();
            }
            assert_eq!(other.run(|| (check(), 7).1).expect("threads"), Some(7));
            check();
            one.raise();
            assert_eq!(work.join().expect("no panic").expect("threads"), None);
        });
        let ended = begun.load(Ordering::Relaxed);
        assert_eq!(one.run(check).expect("threads"), None, "it stays raised");
        assert_eq!(begun.load(Ordering::Relaxed), ended, "nothing goes on");
    }

    #[test]
    fn another_panic_is_not_swallowed() {
        let one = Interrupt::default();
        let passed = catch_unwind(AssertUnwindSafe(|| one.run(|| resume_unwind(Box::new(5_u8)))));
        assert_eq!(passed.err().and_then(|panic| panic.downcast::<u8>().ok()), Some(Box::new(5)));
    }
}
