//! Long work that its caller may stop: it asks now and then, and unwinds when it is no longer wanted. The same places ask whether
//! the whole is interrupted ([`interrupt`]).
//!
//! What is stopped has no result, so no result depends on when that was asked: work that ends is the same with and without a caller
//! who might have stopped it. Unwinding passes through the threads of a search, as that of any panic does, but no panic hook is called.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use rdusim_base::interrupt;

/// Whether work is still wanted.
#[derive(Clone, Copy)]
pub struct Stop<'a>(Option<&'a (dyn Fn() -> bool + Sync)>);

/// What stopped work unwinds with.
struct Unwanted;

impl<'a> Stop<'a> {
    /// Work that runs to its end.
    pub const NEVER: Stop<'static> = Stop(None);

    /// Work that ends when `is_unwanted` first says so. It is called from several threads, and often.
    pub fn when(is_unwanted: &'a (dyn Fn() -> bool + Sync)) -> Self {
        Self(Some(is_unwanted))
    }

    /// Returns if the work is still wanted; else unwinds to [`Stop::caught`].
    pub fn check(self) {
        interrupt::check();
        if self.0.is_some_and(|is_unwanted| is_unwanted()) {
            resume_unwind(Box::new(Unwanted));
        }
    }

    /// Does work; `None` if it was stopped. Any other panic goes on.
    pub fn caught<T>(self, work: impl FnOnce() -> T) -> Option<T> {
        if self.0.is_none() {
            return Some(work());
        }
        // What stopped work leaves behind are caches, which hold whole entries only.
        match catch_unwind(AssertUnwindSafe(work)) {
            Ok(done) => Some(done),
            Err(unwinding) if unwinding.is::<Unwanted>() => None,
            Err(panic) => resume_unwind(panic),
        }
    }
}

impl std::fmt::Debug for Stop<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "Stop::when" } else { "Stop::NEVER" })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn work_ends_where_it_asks_and_not_before() {
        let asked = AtomicU64::new(0);
        let third = || asked.fetch_add(1, Ordering::Relaxed) == 2;
        let stop = Stop::when(&third);
        let steps = AtomicU64::new(0);
        let ended = stop.caught(|| {
            loop {
                stop.check();
                steps.fetch_add(1, Ordering::Relaxed);
            }
        });
        assert_eq!((ended, steps.into_inner()), (None::<()>, 2));
        assert_eq!(stop.caught(|| 7), Some(7));
        assert_eq!(Stop::NEVER.caught(|| Stop::NEVER.check()), Some(()));
    }

    #[test]
    fn another_panic_is_not_swallowed() {
        let never = || false;
        let passed = catch_unwind(|| Stop::when(&never).caught(|| resume_unwind(Box::new(5_u8))));
        assert_eq!(passed.err().and_then(|panic| panic.downcast::<u8>().ok()), Some(Box::new(5)));
    }
}
