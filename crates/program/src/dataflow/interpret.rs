//! Reference interpreter: executes a dataflow on numbers.
//!
//! A load fills its slots from memory, a store writes its slots to memory, a copy writes what it reads, and a stage
//! calls its [`Kernel`]. The firing rule is that of [`Credits`]; slots are dropped when all consumers have freed them, so
//! that a schedule which frees a slot too early, or reads one too early, is a [`Fault`] and not a wrong number.

use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use rdusim_base::index::IndexVec;

use super::credits::{Blocked, Credits, Wait};
use super::domain::Point;
use super::graph::{Dataflow, ProcessKind};
use super::ids::{BufferId, LoopId, ProcessId};
use super::memory::{Memories, offsets};
use super::process_graph::{PortRef, ProcessGraph};
use super::streams::Stream;

/// Which of the processes that can fire does so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Schedule {
    /// The first, as often as it can.
    Eager,
    /// The last, once.
    Late,
}

/// The data of one slot that a firing reads.
#[derive(Debug, Clone)]
pub struct Tile {
    /// Number of the slot.
    pub slot: u64,
    /// Coordinates of the slot.
    pub at: Point,
    /// Its elements, row-major, from each producer.
    pub parts: Vec<Rc<Vec<f64>>>,
}

impl Tile {
    /// The elements of a slot with one producer.
    pub fn data(&self) -> &[f64] {
        self.parts.first().map_or(&[], |part| part)
    }
}

/// What a kernel sees of a firing.
#[derive(Debug)]
pub struct Firing<'a> {
    /// Number of the firing.
    pub number: u64,
    /// Its iteration indices, by level of its nest.
    pub at: Point,
    /// The process's nest.
    pub loops: &'a [LoopId],
    /// Elements that each loop covers, by level.
    pub ranges: Vec<Range<u64>>,
    /// Whether each loop is in its last iteration, by level.
    pub last: Vec<bool>,
    /// Slots it reads, by port, in slot order.
    pub inputs: Vec<Vec<Tile>>,
    /// Slots it completes, by port: a kernel puts out one tile for each.
    pub completes: Vec<Vec<u64>>,
}

/// Tiles that a firing puts out.
#[derive(Debug, Default)]
pub struct Outputs {
    tiles: Vec<Vec<Vec<f64>>>,
}

impl Outputs {
    /// Puts out the tile of the next slot that the firing completes on a write port.
    pub fn push(&mut self, port: usize, tile: Vec<f64>) {
        if self.tiles.len() <= port {
            self.tiles.resize(port + 1, Vec::new());
        }
        self.tiles[port].push(tile);
    }
}

/// What a stage computes. It keeps its own accumulators from firing to firing.
pub trait Kernel {
    /// Computes one firing.
    fn fire(&mut self, firing: &Firing<'_>, outputs: &mut Outputs);
}

impl<F: FnMut(&Firing<'_>, &mut Outputs)> Kernel for F {
    fn fire(&mut self, firing: &Firing<'_>, outputs: &mut Outputs) {
        self(firing, outputs);
    }
}

/// Why an execution stopped before its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// No process can fire. Names those that have firings left and what each waits for.
    Deadlock(Vec<Blocked>),
    /// A firing read a slot that held nothing.
    MissingSlot(ProcessId, BufferId, u64),
    /// A stage without a kernel.
    NoKernel(ProcessId),
    /// A firing put out another number of tiles, or of elements, than it completes slots or its stream moves.
    WrongOutput(ProcessId, u64),
}

impl Fault {
    /// The fault in words, with the dataflow's names.
    pub fn describe(&self, dataflow: &Dataflow) -> String {
        match self {
            Self::Deadlock(blocked) => {
                let line = |blocked: &Blocked| {
                    let (what, buffer, slot) = match blocked.wait {
                        Wait::Filled { buffer, slot } => ("filled", buffer, slot),
                        Wait::Credit { buffer, slot } => ("free", buffer, slot),
                    };
                    let (process, buffer) = (dataflow.process_name(blocked.process), dataflow.buffer_name(buffer));
                    format!("{process} (firing {}) waits for slot {slot} of {buffer} to be {what}", blocked.firing)
                };
                format!("deadlock: {}", blocked.iter().map(line).collect::<Vec<_>>().join("; "))
            }
            Self::MissingSlot(process, buffer, slot) => {
                let (process, buffer) = (dataflow.process_name(*process), dataflow.buffer_name(*buffer));
                format!("{process} reads slot {slot} of {buffer}, which holds nothing")
            }
            Self::NoKernel(process) => format!("stage {} has no kernel", dataflow.process_name(*process)),
            Self::WrongOutput(process, firing) => {
                format!("firing {firing} of {} puts out the wrong tiles", dataflow.process_name(*process))
            }
        }
    }
}

/// What a finished execution did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Bytes that each process moved to or from a stream.
    pub bytes: IndexVec<ProcessId, u64>,
    /// Most slots of each buffer that held data at a time.
    pub peak_slots: IndexVec<BufferId, u64>,
}

/// Slots of a buffer that hold data, with a part from each producer.
type Held = BTreeMap<u64, Vec<Option<Rc<Vec<f64>>>>>;

struct Interpreter<'a> {
    dataflow: &'a Dataflow,
    graph: &'a ProcessGraph,
    credits: Credits<'a>,
    held: IndexVec<BufferId, Held>,
    /// By process, write port and slot: the last firing that contributes, and what loads and copies have put together.
    last_touch: IndexVec<ProcessId, Vec<BTreeMap<u64, u64>>>,
    gathered: IndexVec<ProcessId, Vec<BTreeMap<u64, Vec<f64>>>>,
    run: Run,
}

/// Runs a dataflow to its end. `kernels` holds one for each stage.
pub fn interpret(
    dataflow: &Dataflow,
    graph: &ProcessGraph,
    kernels: &mut BTreeMap<ProcessId, Box<dyn Kernel + '_>>,
    memories: &mut Memories,
    schedule: Schedule,
) -> Result<Run, Fault> {
    let mut interpreter = Interpreter::new(dataflow, graph);
    loop {
        let fired = match schedule {
            Schedule::Eager => interpreter.fire_next(graph.processes(), u64::MAX, kernels, memories)?,
            Schedule::Late => interpreter.fire_next(graph.processes().rev(), 1, kernels, memories)?,
        };
        if !fired {
            break;
        }
    }
    if interpreter.credits.is_finished() {
        Ok(interpreter.run)
    } else {
        Err(Fault::Deadlock(interpreter.credits.blocked()))
    }
}

impl<'a> Interpreter<'a> {
    fn new(dataflow: &'a Dataflow, graph: &'a ProcessGraph) -> Self {
        let last_touch = |process: ProcessId| {
            let touches = |port: usize| {
                let points = graph.domain(process).points().enumerate();
                let slots = |at: Point| graph.written_slots(PortRef { process, port }, &at);
                points.flat_map(|(n, at)| slots(at).into_iter().map(move |slot| (slot, n as u64))).collect()
            };
            (0..graph.writes(process).len()).map(touches).collect()
        };
        let empty = |process: ProcessId| vec![BTreeMap::new(); graph.writes(process).len()];
        let zeros = || graph.buffers().map(|_| 0).collect();
        Self {
            dataflow,
            graph,
            credits: Credits::new(graph),
            held: graph.buffers().map(|_| Held::new()).collect(),
            last_touch: graph.processes().map(last_touch).collect(),
            gathered: graph.processes().map(empty).collect(),
            run: Run { bytes: graph.processes().map(|_| 0).collect(), peak_slots: zeros() },
        }
    }

    /// Fires the first of `order` that can, up to `times` times.
    fn fire_next(
        &mut self,
        order: impl Iterator<Item = ProcessId>,
        times: u64,
        kernels: &mut BTreeMap<ProcessId, Box<dyn Kernel + '_>>,
        memories: &mut Memories,
    ) -> Result<bool, Fault> {
        for process in order {
            let mut fired = 0;
            while fired < times && self.credits.can_fire(process) {
                self.fire(process, kernels, memories)?;
                fired += 1;
            }
            if fired > 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn fire(
        &mut self,
        process: ProcessId,
        kernels: &mut BTreeMap<ProcessId, Box<dyn Kernel + '_>>,
        memories: &mut Memories,
    ) -> Result<(), Fault> {
        let number = self.credits.done(process);
        let at = self.graph.point(process, number);
        let mut firing = self.firing(process, number, at)?;
        let mut outputs = Outputs::default();
        match &self.dataflow.processes[process].kind {
            ProcessKind::Stage => {
                let kernel = kernels.get_mut(&process).ok_or(Fault::NoKernel(process))?;
                kernel.fire(&firing, &mut outputs);
            }
            ProcessKind::Copy => {
                let data = firing.inputs.drain(..).flatten().flat_map(|tile| tile.data().to_vec());
                let data: Vec<f64> = data.collect();
                self.gather(process, &firing, &data, &mut outputs);
            }
            ProcessKind::Load(stream) => {
                let data = self.addresses(process, stream, &at).into_iter();
                let memory = memories.of(stream.source);
                let data = data.flat_map(|address| memory.read(address, stream.element_bytes, 1));
                let data: Vec<f64> = data.collect();
                self.run.bytes[process] += stream.bytes(self.graph.domain(process), &at);
                self.gather(process, &firing, &data, &mut outputs);
            }
            ProcessKind::Store(stream) => {
                let data: Vec<f64> = firing.inputs.iter().flatten().flat_map(|tile| tile.data().to_vec()).collect();
                let addresses = self.addresses(process, stream, &at);
                if addresses.len() != data.len() {
                    return Err(Fault::WrongOutput(process, number));
                }
                for (address, value) in addresses.into_iter().zip(data) {
                    memories.of(stream.source).write(address, stream.element_bytes, &[value]);
                }
                self.run.bytes[process] += stream.bytes(self.graph.domain(process), &at);
            }
        }
        self.put(process, &firing, outputs)?;
        self.credits.fire(process);
        self.drop_freed(process);
        Ok(())
    }

    fn firing(&self, process: ProcessId, number: u64, at: Point) -> Result<Firing<'a>, Fault> {
        let graph = self.graph;
        let domain = graph.domain(process);
        let mut inputs = Vec::new();
        for (port, buffer) in graph.reads(process).enumerate() {
            let slots = graph.read_slots(PortRef { process, port }, &at).into_iter();
            let tile = |slot| {
                let parts = self.held[buffer].get(&slot);
                let parts = parts.and_then(|parts| parts.iter().cloned().collect::<Option<Vec<_>>>());
                let parts = parts.ok_or(Fault::MissingSlot(process, buffer, slot))?;
                Ok(Tile { slot, at: graph.slots(buffer).point(slot), parts })
            };
            inputs.push(slots.map(tile).collect::<Result<Vec<_>, Fault>>()?);
        }
        let completes = |(port, last): (usize, &BTreeMap<u64, u64>)| {
            let slots = graph.written_slots(PortRef { process, port }, &at).into_iter();
            slots.filter(|slot| last[slot] == number).collect()
        };
        Ok(Firing {
            number,
            at,
            loops: &self.dataflow.processes[process].loops,
            ranges: (0..domain.depth()).map(|level| domain.range(level, &at)).collect(),
            last: (0..domain.depth()).map(|level| domain.is_last(level, &at)).collect(),
            inputs,
            completes: self.last_touch[process].iter().enumerate().map(completes).collect(),
        })
    }

    fn addresses(&self, process: ProcessId, stream: &Stream, at: &Point) -> Vec<u64> {
        let domain = self.graph.domain(process);
        let lengths: Vec<u64> = stream.shape.iter().map(|dim| dim.extent).collect();
        let base = stream.address(domain, at);
        let offsets = offsets(&lengths, &stream.elements(domain, at));
        offsets.into_iter().map(|offset| base + offset * stream.element_bytes).collect()
    }

    /// Appends what a load or a copy moves to the slots it touches, and puts out those it completes.
    fn gather(&mut self, process: ProcessId, firing: &Firing<'_>, data: &[f64], outputs: &mut Outputs) {
        for port in 0..firing.completes.len() {
            let gathered = &mut self.gathered[process][port];
            for slot in self.graph.written_slots(PortRef { process, port }, &firing.at) {
                gathered.entry(slot).or_default().extend(data);
            }
            for slot in &firing.completes[port] {
                outputs.push(port, gathered.remove(slot).unwrap_or_default());
            }
        }
    }

    fn put(&mut self, process: ProcessId, firing: &Firing<'_>, outputs: Outputs) -> Result<(), Fault> {
        let mut tiles = outputs.tiles;
        tiles.resize(tiles.len().max(firing.completes.len()), Vec::new());
        for (port, tiles) in tiles.into_iter().enumerate() {
            let completes = firing.completes.get(port).map_or(&[][..], |slots| slots);
            if completes.len() != tiles.len() {
                return Err(Fault::WrongOutput(process, firing.number));
            }
            let Some(buffer) = self.graph.writes(process).nth(port) else { continue };
            let producers = self.graph.producers(buffer);
            let part = producers.iter().position(|of| *of == PortRef { process, port }).unwrap_or_default();
            for (slot, tile) in completes.iter().zip(tiles) {
                let parts = self.held[buffer].entry(*slot).or_insert_with(|| vec![None; producers.len()]);
                parts[part] = Some(Rc::new(tile));
            }
            self.run.peak_slots[buffer] = self.run.peak_slots[buffer].max(self.held[buffer].len() as u64);
        }
        Ok(())
    }

    fn drop_freed(&mut self, process: ProcessId) {
        for buffer in self.graph.reads(process) {
            let released = self.credits.released(buffer);
            self.held[buffer].retain(|&slot, _| slot >= released);
        }
    }
}
