//! The process graph: what each firing of a dataflow needs, frees, begins and completes.
//!
//! Built once from a [`Dataflow`]; every query is a few steps for each loop of a nest. Ports are numbered as in
//! [`super::Process::reads`] and [`super::Process::writes`].

use rdusim_base::units::{index, saturating_u32};
use std::fmt;
use std::ops::Range;

use rdusim_base::index::{Id, IndexVec};

use super::access::{AccessError, Footprint};
use super::counts::Counts;
use super::domain::{Domain, DomainError, Point};
use super::graph::{Dataflow, Port, Process};
use super::ids::{BufferId, ProcessId};

/// A port of a process: the `port`-th of its reads or of its writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortRef {
    /// The process.
    pub process: ProcessId,
    /// Position among its reads (of a consumer) or its writes (of a producer).
    pub port: usize,
}

/// A number of firings after which a process does the same again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Period {
    /// Level of the loop whose iteration it is.
    pub level: usize,
    /// Firings.
    pub firings: u64,
}

/// Why a dataflow has no process graph. [`super::check()`] says more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GraphError {
    /// The nest of a process.
    Nest(ProcessId, DomainError),
    /// The slots of a buffer.
    Slots(BufferId, DomainError),
    /// A port that names a buffer that is not in the table.
    UnknownBuffer(ProcessId, BufferId),
    /// A port whose access does not fit its process and buffer.
    Access(ProcessId, BufferId, AccessError),
    /// Classes of a loop that the process does not have, or too few of them.
    Classes(ProcessId),
}

impl fmt::Display for GraphError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nest(process, error) => write!(f, "process {}: {error}", process.index()),
            Self::Slots(buffer, error) => write!(f, "buffer {}: {error}", buffer.index()),
            Self::UnknownBuffer(process, buffer) => {
                write!(f, "process {} touches buffer {}, which does not exist", process.index(), buffer.index())
            }
            Self::Access(process, buffer, error) => {
                write!(f, "process {} at buffer {}: {error}", process.index(), buffer.index())
            }
            Self::Classes(process) => write!(f, "process {} has work classes that do not fit a loop", process.index()),
        }
    }
}

impl std::error::Error for GraphError {}

/// A port, resolved.
#[derive(Debug, Clone)]
struct Compiled {
    buffer: BufferId,
    footprint: Footprint,
    counts: Counts,
}

/// Work classes along one loop: a class by number of elements, times one given by the caller.
#[derive(Debug, Clone)]
struct LevelClasses {
    lengths: Vec<u64>,
    given: Vec<u32>,
    given_count: u64,
}

#[derive(Debug, Clone)]
struct Node {
    domain: Domain,
    reads: Vec<Compiled>,
    writes: Vec<Compiled>,
    classes: Vec<LevelClasses>,
}

/// What each firing of a dataflow needs, frees, begins and completes.
#[derive(Debug, Clone)]
pub struct ProcessGraph {
    nodes: IndexVec<ProcessId, Node>,
    slots: IndexVec<BufferId, Domain>,
    depths: Vec<u64>,
    producers: Vec<Vec<PortRef>>,
    consumers: Vec<Vec<PortRef>>,
}

impl ProcessGraph {
    /// The process graph of a dataflow.
    pub fn new(dataflow: &Dataflow) -> Result<Self, GraphError> {
        let slots = dataflow.buffers.iter_enumerated().map(|(id, buffer)| {
            Domain::new(&dataflow.loops, &buffer.slot_loops).map_err(|error| GraphError::Slots(id, error))
        });
        let slots: IndexVec<BufferId, Domain> = slots.collect::<Result<Vec<_>, _>>()?.into_iter().collect();
        let mut producers = vec![Vec::new(); slots.len()];
        let mut consumers = vec![Vec::new(); slots.len()];
        let mut nodes = IndexVec::new();
        for (id, process) in dataflow.processes.iter_enumerated() {
            let node = Node::new(dataflow, id, process, &slots)?;
            for (ports, users) in [(&node.reads, &mut consumers), (&node.writes, &mut producers)] {
                for (port, compiled) in ports.iter().enumerate() {
                    users[compiled.buffer.index()].push(PortRef { process: id, port });
                }
            }
            nodes.push(node);
        }
        let depths = dataflow.buffers.iter().map(|buffer| buffer.depth).collect();
        Ok(Self { nodes, slots, depths, producers, consumers })
    }

    /// Ids of the processes.
    pub fn processes(&self) -> impl DoubleEndedIterator<Item = ProcessId> + use<> {
        self.nodes.ids()
    }

    /// Ids of the buffers.
    pub fn buffers(&self) -> impl DoubleEndedIterator<Item = BufferId> + use<> {
        self.slots.ids()
    }

    /// Number of firings of a process.
    pub fn firings(&self, process: ProcessId) -> u64 {
        self.nodes[process].domain.count()
    }

    /// The iteration domain of a process.
    pub fn domain(&self, process: ProcessId) -> &Domain {
        &self.nodes[process].domain
    }

    /// The slots of a buffer.
    pub fn slots(&self, buffer: BufferId) -> &Domain {
        &self.slots[buffer]
    }

    /// Slots of a buffer that exist at a time.
    pub fn depth(&self, buffer: BufferId) -> u64 {
        self.depths[buffer.index()]
    }

    /// Where firing `n` stands in its nest.
    #[inline]
    pub fn point(&self, process: ProcessId, n: u64) -> Point {
        self.nodes[process].domain.point(n)
    }

    /// Ports that write a buffer.
    pub fn producers(&self, buffer: BufferId) -> &[PortRef] {
        &self.producers[buffer.index()]
    }

    /// Ports that read a buffer.
    pub fn consumers(&self, buffer: BufferId) -> &[PortRef] {
        &self.consumers[buffer.index()]
    }

    /// Buffers that a process reads, by port.
    pub fn reads(&self, process: ProcessId) -> impl ExactSizeIterator<Item = BufferId> + '_ {
        self.nodes[process].reads.iter().map(|port| port.buffer)
    }

    /// Buffers that a process writes, by port.
    pub fn writes(&self, process: ProcessId) -> impl ExactSizeIterator<Item = BufferId> + '_ {
        self.nodes[process].writes.iter().map(|port| port.buffer)
    }

    /// Slots of a read port that must be filled before firing `n`, which is at `at`.
    #[inline]
    pub fn needed(&self, reader: PortRef, n: u64, at: &Point) -> u64 {
        let node = &self.nodes[reader.process];
        let port = &node.reads[reader.port];
        port.counts.touched(&node.domain, &self.slots[port.buffer], n, at)
    }

    /// Slots of a read port that are free once the first `done` firings are through.
    #[inline]
    pub fn released(&self, reader: PortRef, done: u64) -> u64 {
        let node = &self.nodes[reader.process];
        let port = &node.reads[reader.port];
        port.counts.finished(&node.domain, &self.slots[port.buffer], done)
    }

    /// The same once firing `n`, which is at `at`, and those before it are through: `released(n + 1)` for those who have
    /// the point.
    #[inline]
    pub fn released_after(&self, reader: PortRef, n: u64, at: &Point) -> u64 {
        let node = &self.nodes[reader.process];
        let port = &node.reads[reader.port];
        port.counts.finished_after(&node.domain, &self.slots[port.buffer], n, at)
    }

    /// Slots of a write port that firing `n`, which is at `at`, and those before it have begun to fill: each must have a
    /// credit.
    #[inline]
    pub fn begun(&self, writer: PortRef, n: u64, at: &Point) -> u64 {
        let node = &self.nodes[writer.process];
        let port = &node.writes[writer.port];
        port.counts.touched(&node.domain, &self.slots[port.buffer], n, at)
    }

    /// Slots of a write port that are complete once the first `done` firings are through. A slot to which several
    /// firings contribute completes with the last of them.
    #[inline]
    pub fn completed(&self, writer: PortRef, done: u64) -> u64 {
        let node = &self.nodes[writer.process];
        let port = &node.writes[writer.port];
        port.counts.finished(&node.domain, &self.slots[port.buffer], done)
    }

    /// Slots of a write port that firing `n` is the first to contribute to.
    pub fn begins(&self, writer: PortRef, n: u64) -> Range<u64> {
        let begun = |n: u64| self.begun(writer, n, &self.point(writer.process, n));
        n.checked_sub(1).map_or(0, begun)..begun(n)
    }

    /// Slots of a write port that are complete once firing `n` is through and were not before.
    pub fn completes(&self, writer: PortRef, n: u64) -> Range<u64> {
        self.completed(writer, n)..self.completed(writer, n + 1)
    }

    /// Numbers of the slots that the firing at `at` reads, in rising order.
    pub fn read_slots(&self, reader: PortRef, at: &Point) -> Vec<u64> {
        let node = &self.nodes[reader.process];
        self.touched_slots(&node.domain, &node.reads[reader.port], at)
    }

    /// Numbers of the slots that the firing at `at` contributes to, in rising order.
    pub fn written_slots(&self, writer: PortRef, at: &Point) -> Vec<u64> {
        let node = &self.nodes[writer.process];
        self.touched_slots(&node.domain, &node.writes[writer.port], at)
    }

    fn touched_slots(&self, domain: &Domain, port: &Compiled, at: &Point) -> Vec<u64> {
        let mut slots = Vec::new();
        port.footprint.slots(domain, &self.slots[port.buffer], at, &mut slots);
        slots
    }

    /// The least depth with which each firing of a buffer's producers and consumers can do its work: the most slots
    /// that one port needs, or has begun, at a time. Processes of more than `limit` firings are tested by as many of
    /// their first. Reconvergent paths and overlap of producer and consumer need more.
    pub fn least_depth(&self, buffer: BufferId, limit: u64) -> u64 {
        let mut least = 1;
        for port in &self.consumers[buffer.index()] {
            for n in 0..self.firings(port.process).min(limit) {
                let needed = self.needed(*port, n, &self.point(port.process, n));
                least = least.max(needed.saturating_sub(self.released(*port, n)));
            }
        }
        for port in &self.producers[buffer.index()] {
            for n in 0..self.firings(port.process).min(limit) {
                let begun = self.begun(*port, n, &self.point(port.process, n));
                least = least.max(begun.saturating_sub(self.completed(*port, n)));
            }
        }
        least
    }

    /// Class of work of the firing at `at`: two firings of a process of equal class cover as many elements along every
    /// loop and have equal classes along loops that are given some.
    pub fn work_class(&self, process: ProcessId, at: &Point) -> u32 {
        let node = &self.nodes[process];
        let mut class = 0;
        for (level, classes) in node.classes.iter().enumerate() {
            if classes.lengths.len() > 1 {
                let range = node.domain.range(level, at);
                let length = range.end - range.start;
                let position = classes.lengths.iter().position(|&l| l == length).unwrap_or_default();
                class = class * classes.lengths.len() as u64 + position as u64;
            }
            if let Some(&given) = classes.given.get(index(at.get(level))) {
                class = class * classes.given_count + u64::from(given);
            }
        }
        saturating_u32(class)
    }

    /// One more than the largest work class that [`Self::work_class`] returns.
    pub fn work_classes(&self, process: ProcessId) -> u32 {
        let classes = self.nodes[process].classes.iter();
        saturating_u32(classes.map(|level| level.lengths.len().max(1) as u64 * level.given_count).product::<u64>())
    }

    /// Firings after which the process does the same recomputed: those of one iteration of its outermost loop that repeats
    /// ([`Self::periods`]). `None` if it has no such loop.
    pub fn period(&self, process: ProcessId) -> Option<u64> {
        self.periods(process).first().map(|period| period.firings)
    }

    /// The loops of a process that repeat, outermost first: they have at least four iterations, of as many firings and
    /// of one given work class. Within one iteration of the loops around it, between the second iteration of the loop and
    /// the last but one, firing `n + firings` needs, frees, begins and completes what firing `n` does, shifted by a
    /// constant for each port; a port with a window does so where the window is not clipped.
    pub fn periods(&self, process: ProcessId) -> Vec<Period> {
        let node = &self.nodes[process];
        let regular = |&level: &usize| {
            let classes = &node.classes[level].given;
            node.domain.trips(level, &Point::default()) >= 4 && classes.windows(2).all(|pair| pair[0] == pair[1])
        };
        let period = |level: usize| Some(Period { level, firings: node.domain.uniform_weight(level)? });
        (0..node.domain.depth()).filter(regular).filter_map(period).collect()
    }
}

impl Node {
    fn new(
        dataflow: &Dataflow,
        id: ProcessId,
        process: &Process,
        slots: &IndexVec<BufferId, Domain>,
    ) -> Result<Self, GraphError> {
        let domain = Domain::new(&dataflow.loops, &process.loops).map_err(|error| GraphError::Nest(id, error))?;
        let compile = |port: &Port| {
            let of = slots.get(port.buffer).ok_or(GraphError::UnknownBuffer(id, port.buffer))?;
            let footprint = Footprint::new(&port.access, &domain, of)
                .map_err(|error| GraphError::Access(id, port.buffer, error))?;
            let counts = Counts::new(&footprint, &domain, of);
            Ok(Compiled { buffer: port.buffer, footprint, counts })
        };
        let reads = process.reads.iter().map(compile).collect::<Result<_, _>>()?;
        let writes = process.writes.iter().map(compile).collect::<Result<_, _>>()?;
        let mut classes: Vec<LevelClasses> = (0..domain.depth())
            .map(|level| LevelClasses { lengths: domain.tile_lengths(level), given: Vec::new(), given_count: 1 })
            .collect();
        for given in &process.classes {
            let level = domain.level_of(given.of).ok_or(GraphError::Classes(id))?;
            if (given.classes.len() as u64) < domain.most_trips(level) {
                return Err(GraphError::Classes(id));
            }
            classes[level].given_count = given.classes.iter().max().map_or(1, |&most| u64::from(most) + 1);
            classes[level].given.clone_from(&given.classes);
        }
        Ok(Self { domain, reads, writes, classes })
    }
}
