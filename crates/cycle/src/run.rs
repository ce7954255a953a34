//! What a run of a section has counted, and why it ended.

use rdusim_base::index::IndexVec;
use rdusim_program::{FlowId, Resource, StreamId};

/// What a section did, launch excluded.
#[derive(Debug)]
pub struct CycleRun {
    /// Why it ended: `None` if drained.
    pub ended: Option<Ended>,
    /// Cycles from the first request to the last byte.
    pub cycles: u64,
    /// Flits that each flow has moved.
    pub flits: IndexVec<FlowId, u64>,
    /// Flits that went over each link and port.
    pub loads: Vec<(Resource, u64)>,
    /// Payload and other bytes of each off-chip stream.
    pub streams: IndexVec<StreamId, (u64, u64)>,
    /// Bytes that each memory tier has served.
    pub tier_bytes: Vec<u64>,
}

/// Why a section did not drain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// Nothing could move; one line for each that is blocked.
    Deadlock(Vec<String>),
    /// It took too many cycles.
    Limit,
}
