//! What stays on chip: the choices that fix a section's buffers.

/// The choices that fix a section's buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Residency {
    /// Activations used in every column tile stay on chip for a row block (else they are read again).
    pub inputs: bool,
    /// Chunked weights stay on chip for the whole section (else each row block reads them again).
    pub weights: bool,
    /// What is made on chip and used in every column tile is computed again in each (else it stays for a row block).
    pub recompute: bool,
    /// Room for what memory moves in its latency.
    pub latency_slots: LatencySlots,
}

/// How many of the slots that hide the latency of off-chip memory there is room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LatencySlots {
    /// All.
    Full,
    /// A quarter.
    Quarter,
    /// None: a faster memory must not make a mapping impossible.
    None,
}

impl LatencySlots {
    /// About how many slots take turns; `None` if as many as hide the latency.
    pub(crate) fn slots(self) -> Option<u64> {
        match self {
            Self::Full => None,
            Self::Quarter => Some(3),
            Self::None => Some(2),
        }
    }

    pub(crate) fn of(self, slots: u64) -> u64 {
        match self {
            Self::Full => slots,
            Self::Quarter => slots / 4,
            Self::None => 0,
        }
    }
}
