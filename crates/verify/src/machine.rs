//! A section on numbers: actors fire when their inputs are there and they have credits, and move tiles over flows.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;

use rdusim_base::index::{Id, IndexVec};
use rdusim_base::interrupt;
use rdusim_graph::arch::Chip;
use rdusim_graph::workload::{TensorId, Workload};
use rdusim_program::{BufferId, BufferRole, FlowId, Iteration, Section, StageId, emits, forwards, merges};

use super::actors::{Actor, Kind, actors};
use super::address;
use super::fault::Fault;
use super::flow_share::{Stripe, stripes};
use super::inbox::Incoming;
use super::layout::Layout;
use super::matrix::Matrix;
use super::ring::Ring;
use super::running::Running;
use super::wires::{Trace, Unit, Wires};

/// In which order actors that may fire do so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// The first in the order of the data goes as far as its credits allow, then the next: every buffer is as full as it can be.
    Eager,
    /// Always the last in the order of the data that may fire: every buffer is as empty as it can be.
    Late,
}

/// What a stage emitted: values, and the PCU that each came from.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Emitted {
    pub(super) values: Matrix,
    /// Grid index of the PCU; row-major as the values.
    pub(super) from: Vec<u32>,
}

/// A section being run.
pub(super) struct Machine<'a> {
    pub(super) section: &'a Section,
    pub(super) wires: &'a Wires<'a>,
    pub(super) layout: Layout<'a>,
    pub(super) traces: IndexVec<FlowId, Trace>,
    /// Which part of its data each off-chip flow carries.
    pub(super) stripes: IndexVec<FlowId, Stripe>,
    pub(super) actors: Vec<Actor>,
    pub(super) rings: IndexVec<BufferId, Ring>,
    /// Partial sums: a ring for each piece, and the column tile its sums have come to.
    pub(super) partials: IndexVec<BufferId, Vec<Ring>>,
    /// What has arrived at each PCU and was not used yet.
    pub(super) inbox: Vec<Vec<Incoming>>,
    /// Off-chip memory, by tensor.
    pub(super) memory: Vec<Option<Matrix>>,
    /// Tensors that the section reads in another shape than they lie off chip in, as it reads them.
    pub(super) views: Vec<Option<Matrix>>,
    /// What each stage emitted.
    pub(super) emitted: IndexVec<StageId, Emitted>,
    /// Of every softmax over tiles of keys, what it keeps of a row and head: by stage, row and head.
    pub(super) running: RefCell<BTreeMap<(usize, u64, u64), Running>>,
    /// What the rows so far leave to the next, by stage and column slice.
    pub(super) carried: RefCell<BTreeMap<(usize, u64), Vec<f32>>>,
    /// Firings done.
    pub(super) step: u64,
}

impl<'a> Machine<'a> {
    /// Sets a section up over what is off chip.
    pub(super) fn new(
        chip: &'a Chip,
        workload: &'a Workload,
        wires: &'a Wires<'a>,
        section: &'a Section,
        memory: Vec<Option<Matrix>>,
    ) -> Result<Self, Fault> {
        let layout = Layout::new(chip, workload, section).map_err(|(stage, what)| Fault {
            section: section.name.as_str().into(),
            stage: section.stages.get(stage).map_or("", |s| workload.operators[s.spec.main].name.as_str()).into(),
            unit: "".into(),
            row_tile: None,
            step: 0,
            cycle: None,
            firing: None,
            what,
        })?;
        let actors = actors(section);
        let ring =
            |b: BufferId| Ring::new(chip, &section.buffers[b], section.schedule.count(section.buffers[b].spec.level));
        let mut rings: IndexVec<BufferId, Ring> = section.buffers.ids().map(ring).collect();
        for actor in &actors {
            actor.inputs.iter().for_each(|&b| rings[b].readers += 1);
            actor.outputs.iter().for_each(|&b| rings[b].writers += 1);
        }
        let partials = section.buffers.iter_enumerated().map(|(b, buffer)| match buffer.spec.role {
            BufferRole::PartialSums { .. } => {
                let mut ring = ring(b);
                (ring.readers, ring.writers) = (1, 1);
                vec![ring; buffer.pieces.len()]
            }
            _ => Vec::new(),
        });
        let emitted = section.stages.iter().map(|stage| {
            let tensor = &workload.tensors[stage.spec.output];
            let values = Matrix::unwritten(tensor.rows as usize, tensor.columns as usize);
            Emitted { from: vec![0; values.values.len()], values }
        });
        let mut views = vec![None; workload.tensors.len()];
        for spec in section.stages.iter().map(|stage| &stage.spec) {
            let operator = &workload.operators[spec.main];
            for &tensor in spec.activations.iter().chain(&spec.weight) {
                views[tensor.index()] = address::read(workload, operator, tensor, &memory);
            }
            if let Some(update) = spec.update {
                let step = &workload.operators[update.operator];
                views[update.state.index()] = address::read(workload, step, update.state, &memory);
            }
        }
        Ok(Self {
            section,
            views,
            wires,
            traces: section.flows.iter().map(|flow| wires.trace(flow)).collect(),
            stripes: stripes(section),
            actors,
            rings,
            partials: partials.collect(),
            inbox: vec![Vec::new(); chip.grid.pcus.len()],
            memory,
            emitted: emitted.collect(),
            layout,
            running: RefCell::default(),
            carried: RefCell::default(),
            step: 0,
        })
    }

    /// Runs every actor to its end.
    ///
    /// # Errors
    /// The first thing that goes wrong; also when nothing can go on.
    pub(super) fn run(&mut self, order: Order) -> Result<(), Fault> {
        loop {
            let mut moved = false;
            match order {
                Order::Eager => {
                    for actor in 0..self.actors.len() {
                        while self.is_ready(actor) {
                            self.fire(actor)?;
                            moved = true;
                        }
                    }
                }
                Order::Late => {
                    if let Some(actor) = (0..self.actors.len()).rev().find(|&actor| self.is_ready(actor)) {
                        self.fire(actor)?;
                        moved = true;
                    }
                }
            }
            if !moved {
                break;
            }
        }
        match self.actors.iter().position(|a| a.next < a.count) {
            Some(actor) => Err(self.blocked(actor)),
            None => self.check_stored(),
        }
    }

    /// Where an actor's next firing stands: a stage at the last of the firings that one of its own covers.
    pub(super) fn at(&self, actor: usize) -> Iteration {
        let actor = &self.actors[actor];
        let step = self.layout.schedule.step(actor.level, actor.next);
        match actor.kind {
            Kind::Group { .. } => self.layout.schedule.complete(actor.level, step),
            _ => step,
        }
    }

    /// The slot of a buffer that a firing uses.
    pub(super) fn slot(&self, buffer: BufferId, at: Iteration) -> u64 {
        self.layout.schedule.ordinal(self.section.buffers[buffer].spec.level, at)
    }

    /// Slots of a buffer that a firing of an actor reads.
    fn read_slots(&self, kind: Kind, buffer: BufferId, at: Iteration) -> Range<u64> {
        let level = self.section.buffers[buffer].spec.level;
        self.layout.schedule.read_slots(level, self.sequence(kind, buffer), at)
    }

    /// Whether results leave in a firing.
    pub(super) fn emits(&self, actor: usize, at: Iteration) -> bool {
        match self.actors[actor].kind {
            Kind::Group { stage, group } => emits(&self.section.stages[stage], group, self.layout.schedule, at),
            _ => true,
        }
    }

    /// Whether outputs are filled in a firing: with results, or with sums for the next slice of K.
    fn produces(&self, actor: usize, at: Iteration) -> bool {
        let forwards_sums = match self.actors[actor].kind {
            Kind::Group { stage, group } => forwards(&self.section.stages[stage], group, self.layout.schedule, at),
            _ => false,
        };
        forwards_sums || self.emits(actor, at)
    }

    /// Whether an actor reads a buffer in a firing: sums of other slices of K only where it adds them to its own.
    fn takes(&self, kind: Kind, buffer: BufferId, at: Iteration) -> bool {
        let Kind::Group { stage, group } = kind else { return true };
        let stage = &self.section.stages[stage];
        !self.section.is_partial_fifo(buffer)
            || stage.mapping.starts_from_sums(group)
            || merges(stage, group, self.layout.schedule, at)
    }

    fn is_ready(&self, index: usize) -> bool {
        let actor = &self.actors[index];
        if actor.next >= actor.count {
            return false;
        }
        let at = self.at(index);
        let is_filled = |&b: &BufferId| {
            !self.takes(actor.kind, b, at)
                || self.read_slots(actor.kind, b, at).all(|slot| self.rings[b].is_filled(slot))
        };
        actor.inputs.iter().all(is_filled)
            && (!self.produces(index, at) || actor.outputs.iter().all(|&b| self.rings[b].has_credit(self.slot(b, at))))
    }

    fn fire(&mut self, index: usize) -> Result<(), Fault> {
        interrupt::check();
        let at = self.at(index);
        let (emits, produces) = (self.emits(index, at), self.produces(index, at));
        if produces {
            for o in 0..self.actors[index].outputs.len() {
                let buffer = self.actors[index].outputs[o];
                self.claim(index, buffer, at)?;
            }
        }
        match self.actors[index].kind {
            Kind::Load { stream } => self.load(index, stream, at)?,
            Kind::Copy { .. } => self.copy(index, at)?,
            Kind::Group { stage, group } => self.group(index, stage, group, at, emits)?,
            Kind::Store { stream } => self.store(index, stream, at)?,
        }
        if produces {
            for o in 0..self.actors[index].outputs.len() {
                let buffer = self.actors[index].outputs[o];
                let slot = self.slot(buffer, at);
                self.rings[buffer].fill(slot);
            }
        }
        for i in 0..self.actors[index].inputs.len() {
            let buffer = self.actors[index].inputs[i];
            let level = self.section.buffers[buffer].spec.level;
            // A store stands where its slot does; the others may use a slot for many firings.
            let is_store = matches!(self.actors[index].kind, Kind::Store { .. });
            let slot = self.slot(buffer, at);
            let sequence = self.sequence(self.actors[index].kind, buffer);
            let freed = if is_store { slot..slot + 1 } else { self.layout.schedule.freed(level, sequence, at) };
            freed.for_each(|slot| self.rings[buffer].release(slot));
        }
        self.actors[index].next += 1;
        self.step += 1;
        Ok(())
    }

    /// Gives a slot its place in a buffer's ring.
    fn claim(&mut self, index: usize, buffer: BufferId, at: Iteration) -> Result<(), Fault> {
        let slot = self.slot(buffer, at);
        let (layout, b) = (&self.layout, &self.section.buffers[buffer]);
        let mut widest = 0;
        let claimed = self.rings[buffer].claim(slot, || {
            let pieces = layout.blank(b, layout.slot_step(b, slot));
            widest = layout.bytes_of(b, pieces.iter().map(|p| p.values.len() as u64).max().unwrap_or(0));
            pieces
        });
        if let Err(held) = claimed {
            let what = format!(
                "{} of the {} overwrites {} before its last read: its banks hold fewer than the {} slots that there are credits for",
                layout.slot_name(b, slot),
                layout.buffer_name(b),
                layout.slot_name(b, held),
                self.rings[buffer].depth()
            );
            return Err(self.fault(index, None, what));
        }
        if widest > b.spec.slot_bytes {
            let what = format!(
                "{} of the {} has {widest} bytes in one piece, a slot holds {}",
                layout.slot_name(b, slot),
                layout.buffer_name(b),
                b.spec.slot_bytes
            );
            return Err(self.fault(index, None, what));
        }
        Ok(())
    }

    /// A fault at an actor's next firing.
    pub(super) fn fault(&self, index: usize, unit: Option<Unit>, what: String) -> Fault {
        let actor = &self.actors[index];
        let stage = match actor.kind {
            Kind::Group { stage, .. } => self.layout.stage_name(stage).to_owned(),
            Kind::Copy { resident } => match self.section.buffers[resident].spec.role {
                BufferRole::Resident { stage, .. } => self.layout.stage_name(stage).to_owned(),
                _ => String::new(),
            },
            Kind::Load { stream } | Kind::Store { stream } => {
                let stream = &self.section.streams[stream].stream;
                let verb = if stream.writes { "store" } else { "load" };
                format!("{verb} {}", self.tensor_name(stream.tensor))
            }
        };
        Fault {
            section: self.section.name.as_str().into(),
            stage: stage.into(),
            unit: unit.map_or(String::new(), |unit| self.wires.name(unit)).into(),
            row_tile: (actor.next < actor.count).then(|| self.at(index).row_tile),
            step: self.step,
            cycle: None,
            firing: Some(Box::new((actor.kind, actor.next))),
            what,
        }
    }

    pub(super) fn tensor_name(&self, tensor: TensorId) -> &'a str {
        &self.layout.workload.tensors[tensor].name
    }

    /// Why an actor cannot go on when none can.
    fn blocked(&self, index: usize) -> Fault {
        let at = self.at(index);
        let actor = &self.actors[index];
        let name = |b: BufferId, slot: u64| {
            let buffer = &self.section.buffers[b];
            format!("{} of the {}", self.layout.slot_name(buffer, slot), self.layout.buffer_name(buffer))
        };
        let missing = |&b: &BufferId| {
            let slot = self.read_slots(actor.kind, b, at).find(|&slot| !self.rings[b].is_filled(slot))?;
            Some((b, slot))
        };
        let why = if let Some((b, slot)) = actor.inputs.iter().find_map(missing) {
            format!("waits for {}", name(b, slot))
        } else {
            let full = actor.outputs.iter().find(|&&b| !self.rings[b].has_credit(self.slot(b, at)));
            let depth = |b: BufferId| self.rings[b].depth();
            full.map_or(String::new(), |&b| {
                format!("waits for room for {}, all {} slots of which are in use", name(b, self.slot(b, at)), depth(b))
            })
        };
        self.fault(
            index,
            None,
            format!("deadlock: firing {} of {} {why}, and nothing can go on", actor.next, actor.count),
        )
    }

    /// Whether everything that leaves the section is off chip as it was emitted.
    fn check_stored(&self) -> Result<(), Fault> {
        for (stage, s) in self.section.stages.iter_enumerated() {
            let emitted = &self.emitted[stage].values;
            let stored =
                self.memory[s.spec.output.index()].as_ref().filter(|_| self.layout.graph.leaves_section(s.spec.output));
            let fault = |(row, column): (usize, usize), what: &str| Fault {
                section: self.section.name.as_str().into(),
                stage: self.layout.stage_name(stage).into(),
                unit: "".into(),
                row_tile: Some(row as u64 / self.layout.tiling.tile_rows),
                step: self.step,
                cycle: None,
                firing: None,
                what: format!("`{}` row {row}, column {column} {what}", self.tensor_name(s.spec.output)),
            };
            if let Some(at) = emitted.first_unwritten() {
                return Err(fault(at, "was never computed"));
            }
            if self.layout.graph.leaves_section(s.spec.output) {
                let Some(stored) = stored else { return Err(fault((0, 0), "was never stored off chip")) };
                if let Some(at) = stored.first_unwritten() {
                    return Err(fault(at, "was never stored off chip"));
                }
                let differs = stored.values.iter().zip(&emitted.values).position(|(a, b)| a.to_bits() != b.to_bits());
                if let Some(at) = differs {
                    let at = (at / stored.columns, at % stored.columns);
                    return Err(fault(at, "lies off chip with another value than was computed"));
                }
            }
        }
        Ok(())
    }
}
