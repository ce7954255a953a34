//! How large what a workload file declares may be.

/// The largest dimension, 2^40.
pub(super) const MAX_DIM: u64 = 1 << 40;
