//! How long a point may take on the clock of who runs the sweep.

/// Starts a clock; what it returns says, from any thread, whether the limit has passed since.
pub type StartClock<'a> = dyn Fn() -> Box<dyn Fn() -> bool + Send + Sync> + Sync + 'a;

/// A limit of the time that a point may take. A point is stopped by it or is not touched by it: no result depends on the clock.
#[derive(Clone, Copy)]
pub struct PointLimit<'a> {
    /// It. A point that was stopped is run again under a longer one.
    pub milliseconds: u64,
    /// The clock, which this library does not have.
    pub start: &'a StartClock<'a>,
}

impl std::fmt::Debug for PointLimit<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PointLimit({} ms)", self.milliseconds)
    }
}

/// What the status of a point says that was stopped.
pub(super) fn status(milliseconds: u64) -> String {
    format!("timed out after {} s", milliseconds as f64 / 1000.0)
}
