//! Execution of a process graph on counts alone: firings done, slots filled, slots freed.
//!
//! A process can fire when the slots it needs are filled and the slots it begins have a credit: fewer than `depth` slots
//! stand between the first one that some consumer still needs and the one it begins. A firing never takes from another
//! process what enables it, so the set of firings that a run reaches does not depend on the order (Karp and Miller,
//! "Properties of a model for parallel computations", 1966).

use rdusim_base::index::IndexVec;

use super::ids::{BufferId, ProcessId};
use super::process_graph::{PortRef, ProcessGraph};

/// What a process waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// A slot that is not filled.
    Filled {
        /// The buffer.
        buffer: BufferId,
        /// The slot.
        slot: u64,
    },
    /// A slot that has no credit.
    Credit {
        /// The buffer.
        buffer: BufferId,
        /// The slot.
        slot: u64,
    },
}

/// A process that has firings left and cannot fire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Blocked {
    /// The process.
    pub process: ProcessId,
    /// The firing it has come to.
    pub firing: u64,
    /// What the firing waits for.
    pub wait: Wait,
}

/// The state of an execution.
#[derive(Debug, Clone)]
pub struct Credits<'g> {
    graph: &'g ProcessGraph,
    done: IndexVec<ProcessId, u64>,
    filled: IndexVec<BufferId, u64>,
    released: IndexVec<BufferId, u64>,
}

impl<'g> Credits<'g> {
    /// The state before the first firing.
    pub fn new(graph: &'g ProcessGraph) -> Self {
        let done = graph.processes().map(|_| 0).collect();
        let zeros = || graph.buffers().map(|_| 0).collect();
        let mut credits = Self { graph, done, filled: zeros(), released: zeros() };
        for buffer in graph.buffers() {
            credits.update(buffer);
        }
        credits
    }

    /// Firings of a process that are through.
    pub fn done(&self, process: ProcessId) -> u64 {
        self.done[process]
    }

    /// Leading slots of a buffer that are filled.
    pub fn filled(&self, buffer: BufferId) -> u64 {
        self.filled[buffer]
    }

    /// Leading slots of a buffer that all consumers have freed.
    pub fn released(&self, buffer: BufferId) -> u64 {
        self.released[buffer]
    }

    /// Whether every process has done all its firings.
    pub fn is_finished(&self) -> bool {
        self.graph.processes().all(|process| self.done[process] == self.graph.firings(process))
    }

    /// What the next firing of a process waits for; `None` if it can fire or has none left.
    pub fn wait(&self, process: ProcessId) -> Option<Wait> {
        let n = self.done[process];
        if n >= self.graph.firings(process) {
            return None;
        }
        let at = self.graph.point(process, n);
        for (port, buffer) in self.graph.reads(process).enumerate() {
            let needed = self.graph.needed(PortRef { process, port }, n, &at);
            if needed > self.filled[buffer] {
                return Some(Wait::Filled { buffer, slot: self.filled[buffer] });
            }
        }
        for (port, buffer) in self.graph.writes(process).enumerate() {
            let begun = self.graph.begun(PortRef { process, port }, n, &at);
            let credited = self.released[buffer].saturating_add(self.graph.depth(buffer));
            if begun > credited {
                return Some(Wait::Credit { buffer, slot: credited });
            }
        }
        None
    }

    /// Whether a process has a next firing and nothing that it waits for.
    pub fn can_fire(&self, process: ProcessId) -> bool {
        self.done[process] < self.graph.firings(process) && self.wait(process).is_none()
    }

    /// Does the next firing of a process, which must be able to fire.
    pub fn fire(&mut self, process: ProcessId) {
        self.done[process] += 1;
        for buffer in self.graph.reads(process).chain(self.graph.writes(process)) {
            self.update(buffer);
        }
    }

    /// The processes that have firings left and cannot fire.
    pub fn blocked(&self) -> Vec<Blocked> {
        let blocked = |process| Some(Blocked { process, firing: self.done[process], wait: self.wait(process)? });
        self.graph.processes().filter_map(blocked).collect()
    }

    /// Fires what can fire until nothing can, or for `limit` firings; returns how many that were.
    pub fn run(&mut self, limit: u64) -> u64 {
        let mut fired = 0;
        loop {
            let before = fired;
            for process in self.graph.processes() {
                while fired < limit && self.can_fire(process) {
                    self.fire(process);
                    fired += 1;
                }
            }
            if fired == before || fired == limit {
                return fired;
            }
        }
    }

    fn update(&mut self, buffer: BufferId) {
        let completed = |port: &PortRef| self.graph.completed(*port, self.done[port.process]);
        let freed = |port: &PortRef| self.graph.released(*port, self.done[port.process]);
        self.filled[buffer] = self.graph.producers(buffer).iter().map(completed).min().unwrap_or(0);
        let slots = self.graph.slots(buffer).count();
        self.released[buffer] = self.graph.consumers(buffer).iter().map(freed).min().unwrap_or(slots);
    }
}
