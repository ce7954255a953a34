//! Flows that one actor sends together, and the work that a transfer of them brings to a resource.

use rdusim_cost::cost::Ticks;
use rdusim_program::FlowId;

/// Flows that an actor sends together: over the same time, each its share of the same number of flits.
#[derive(Debug, Clone)]
pub(crate) struct TransferGroup {
    /// The flows.
    pub flows: Vec<FlowId>,
    /// Whether a transfer ends before the next one of the group begins.
    pub serial: bool,
    /// Whether each flow moves at its own rate, whatever the others of the group do (the parts of a copy or a store).
    pub independent: bool,
}

/// Work of one transfer at one resource.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Work {
    /// Ticks that all of its flows take there.
    pub ticks: Ticks,
    /// Ticks of one flow, if that is the same whole number for all; else 0.
    pub(super) each: Ticks,
    pub(super) flows: u32,
}

impl Work {
    /// Ticks that `flows` take that have as much work each.
    pub(crate) fn of_flows(self, flows: u64) -> Ticks {
        if self.each > 0 { self.each * flows } else { self.ticks * flows / u64::from(self.flows) }
    }
}
