//! Flows that one actor sends together, and what they move over a resource.

use crate::cost::Ticks;
use crate::program::FlowId;

/// Flows that an actor sends together: the same stretch of time, parts of the same amount.
#[derive(Debug, Clone)]
pub struct Volley {
    /// The flows.
    pub flows: Vec<FlowId>,
    /// Whether each is through before its actor sends the next.
    pub serial: bool,
    /// Whether each of its flows goes as fast as it can, whatever the others do.
    pub apart: bool,
    /// Flits that FIFOs hold before a unit that takes them in step with its work; `None` if nobody does.
    pub holds_flits: Option<u64>,
}

/// What a volley has to move over one resource.
#[derive(Debug, Clone, Copy)]
pub struct Work {
    /// How long that takes by itself.
    pub ticks: Ticks,
    /// What one of its flows takes of that, if it is the same whole number for all; else 0.
    pub(super) each: Ticks,
    pub(super) flows: u32,
}

impl Work {
    /// What `flows` take that have as much to move each.
    pub fn of_flows(self, flows: u64) -> Ticks {
        if self.each > 0 { self.each * flows } else { self.ticks * flows / u64::from(self.flows) }
    }
}
