//! What a kernel takes.

/// What a kernel's time follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Limit {
    /// The SMs, evenly loaded.
    Compute,
    /// The busiest SM, while others wait: the last wave is not full.
    Imbalance,
    /// The L2's bandwidth.
    L2,
    /// Device memory.
    Memory,
    /// Its start and end.
    Latency,
}

/// A kernel without its launch. Times are cycles.
#[derive(Debug, Clone)]
pub(super) struct KernelTime {
    pub(super) cycles: f64,
    pub(super) limit: Limit,
    /// Cycles of the busiest SM.
    pub(super) busiest: f64,
    /// Mean cycles of all SMs.
    pub(super) mean: f64,
    /// SMs with work.
    pub(super) sms: u64,
    /// Bytes of the first operand that come from memory.
    pub(super) a_read_bytes: f64,
    /// Bytes of the second operand that come from memory.
    pub(super) b_read_bytes: f64,
    /// Partial sums that do not stay in the L2: bytes written, and read again.
    pub(super) spill_bytes: f64,
    /// Bytes between L2 and SMs.
    pub(super) l2_bytes: f64,
    /// Attention by the kernel of decoding.
    pub(super) over_cache: bool,
    /// One line on how it was cut up.
    pub(super) shape: String,
}

impl KernelTime {
    /// A kernel of so many cycles, evenly loaded, without traffic.
    pub(super) fn of(cycles: f64, limit: Limit) -> Self {
        Self {
            cycles,
            limit,
            busiest: cycles,
            mean: cycles,
            sms: 1,
            a_read_bytes: 0.0,
            b_read_bytes: 0.0,
            spill_bytes: 0.0,
            l2_bytes: 0.0,
            over_cache: false,
            shape: String::new(),
        }
    }
}
