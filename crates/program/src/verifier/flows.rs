//! Checks of the ends of flows: each begins and ends at the units that its kind says, at the part of the buffer that it
//! names, and at the PCUs that this part is for.

use crate::buffer::{Buffer, BufferRole, Part};
use crate::configuration::Section;
use crate::fabric::{Port, Resource};
use crate::flow::{Amount, Flow, FlowEnd, FlowKind};
use crate::ids::{BufferId, StageId, StreamId};
use crate::mapping::{GemmMapping, Mapping, Reduction};

use super::context::Verifier;
use super::fault::{Fault, Place};
use super::positions::{Position, Positions};
use super::routes::parts;
use super::streams::is_end;

/// The ends of every flow.
pub(super) fn ends(verifier: &Verifier<'_>, section: &Section) -> Result<(), Fault> {
    let positions = Positions::new(verifier.chip.grid.pcus.len(), section);
    let mut ends = Ends { verifier, section, positions, sinks: Vec::new() };
    for (f, flow) in section.flows.iter_enumerated() {
        ends.check(flow).map_err(|wrong| {
            let title = format!("{wrong}: {:?}", flow.kind);
            Fault::new(Place::Route(f), title, "expected the units that its buffers and its stage have")
        })?;
    }
    Ok(())
}

struct Ends<'a> {
    verifier: &'a Verifier<'a>,
    section: &'a Section,
    positions: Positions,
    /// Scratch: ports that a flow must write.
    sinks: Vec<Resource>,
}

/// What is wrong with a flow.
type Wrong = &'static str;

/// Fails with `wrong` unless `holds`.
fn require(holds: bool, wrong: Wrong) -> Result<(), Wrong> {
    if holds { Ok(()) } else { Err(wrong) }
}

impl Ends<'_> {
    fn check(&mut self, flow: &Flow) -> Result<(), Wrong> {
        let (source, sinks, _) = parts(flow).ok_or("a flow without ports")?;
        require(flow.share.0 > 0 && flow.share.0 <= flow.share.1, "a flow whose share is not from 0 to 1")?;
        for end in flow.reads.iter().chain(&flow.writes) {
            let buffer = self.section.buffers.get(end.buffer).ok_or("a flow with a buffer that is none")?;
            let mut pieces = (0..buffer.spec.copies).map(|copy| buffer.piece(copy, end.slice));
            let is_slice = end.slice < buffer.spec.slices;
            require(is_slice && pieces.any(|piece| end.part < piece.parts.len()), "a flow with a part that is none")?;
        }
        let from = self.verifier.fabric.port_at(source).ok_or("a flow from a link")?;
        let amount = match flow.kind {
            FlowKind::Fill { stream, buffer } => {
                self.fill(flow, stream, buffer, from)?;
                Amount::SlotBytes
            }
            FlowKind::Copy { resident } => {
                self.copy(flow, resident)?;
                Amount::SlotBytes
            }
            FlowKind::Drain { stream } => {
                let end = flow.reads.filter(|_| flow.writes.is_none()).ok_or("a drain that reads no buffer")?;
                require(self.section.streams.get(stream).is_some(), "a drain of a stream that is none")?;
                let is_drained = is_end(self.verifier, self.section, end.buffer, stream);
                require(is_drained && self.is_store(end.buffer), "a drain of a buffer that is no end of its stream")?;
                let is_given = sinks.iter().all(|&sink| {
                    self.verifier.fabric.port_at(sink).is_some_and(|port| self.is_generator(stream, port))
                });
                require(is_given, "a drain to a generator that its stream does not have")?;
                Amount::SlotBytes
            }
            FlowKind::Feed { stage, group } => self.feed(flow, stage, group, from, sinks)?,
            FlowKind::Emit { stage, group } => {
                self.emit(flow, stage, group, from)?;
                Amount::ResultBytes
            }
            FlowKind::PartialRead { .. } | FlowKind::Merge { .. } => {
                let end = flow.reads.filter(|_| flow.writes.is_none()).ok_or("partial sums from no buffer")?;
                let &[sink] = sinks else { return Err("partial sums for several PCUs") };
                let at = self.pcu_in(sink).ok_or("partial sums for no PCU")?;
                self.partial(end, flow.kind, at, true)?;
                Amount::Partials
            }
            FlowKind::State { stage, group } => {
                let end = flow.reads.filter(|_| flow.writes.is_none()).ok_or("state from no buffer")?;
                let &[sink] = sinks else { return Err("state for several PCUs") };
                let at = self.pcu_in(sink).ok_or("state for no PCU")?;
                require((at.stage, at.group) == (stage, group), "state of a PCU of another stage")?;
                let role = self.section.buffers[end.buffer].spec.role;
                let is_own = matches!(role, BufferRole::State { stage: of, .. } if of == stage);
                let of = &self.section.stages[stage];
                require(is_own && end.slice == at.row * of.group_width() + at.column, "state for another PCU")?;
                Amount::State
            }
            FlowKind::PartialWrite { .. } | FlowKind::Forward { .. } => {
                let end = flow.writes.filter(|_| flow.reads.is_none()).ok_or("partial sums into no buffer")?;
                let at = self.pcu_out(from).ok_or("partial sums of no PCU")?;
                self.partial(end, flow.kind, at, false)?;
                Amount::Partials
            }
        };
        require(flow.amount == amount, "a flow that counts another amount")?;
        if let Some(end) = flow.reads {
            self.source_is_part(flow, end, from)?;
        }
        if let Some(end) = flow.writes {
            self.sinks_are_parts(end, sinks)?;
        }
        Ok(())
    }

    /// The source is a read port of the PMU that holds the part.
    fn source_is_part(&self, flow: &Flow, end: FlowEnd, from: Port) -> Result<(), Wrong> {
        let buffer = &self.section.buffers[end.buffer];
        // Every lockstep group has a copy of its operands.
        let copy = match (flow.kind, buffer.spec.role) {
            (FlowKind::Feed { group, .. }, BufferRole::Operand { .. }) if buffer.spec.copies > 1 => {
                group % buffer.spec.copies
            }
            _ => 0,
        };
        let part = buffer.piece(copy, end.slice).parts.get(end.part).ok_or("a flow from a part that is none")?;
        let is_there = matches!(from, Port::PmuRead(pmu, _) if pmu == part.pmu);
        require(is_there, "a flow that does not begin at the PMU it reads")
    }

    /// The sinks are the write ports of the part, in every copy that has it.
    fn sinks_are_parts(&mut self, end: FlowEnd, sinks: &[Resource]) -> Result<(), Wrong> {
        let (fabric, buffer) = (self.verifier.fabric, &self.section.buffers[end.buffer]);
        let ports = |buffer: &Buffer, copy| {
            let part: Option<&Part> = buffer.piece(copy, end.slice).parts.get(end.part);
            part.map(|part| fabric.pmu_write(part.pmu, part.write_port))
        };
        self.sinks.clear();
        self.sinks.extend((0..buffer.spec.copies).filter_map(|copy| ports(buffer, copy)));
        let are_there = self.sinks == sinks || {
            let mut found = sinks.to_vec();
            found.sort_unstable();
            self.sinks.sort_unstable();
            self.sinks == found
        };
        require(are_there, "a flow that does not end at the PMUs it writes")
    }

    fn is_store(&self, buffer: BufferId) -> bool {
        matches!(self.section.buffers[buffer].spec.role, BufferRole::Output { .. })
    }

    fn is_generator(&self, stream: StreamId, port: Port) -> bool {
        matches!(port, Port::Ag(agcu, ag) if self.section.streams[stream].ags.contains(&(agcu, ag)))
    }

    fn pcu_in(&self, sink: Resource) -> Option<Position> {
        let Some(Port::PcuIn(pcu, _)) = self.verifier.fabric.port_at(sink) else { return None };
        self.positions.of(pcu)
    }

    fn pcu_out(&self, from: Port) -> Option<Position> {
        let Port::PcuOut(pcu, _) = from else { return None };
        self.positions.of(pcu)
    }

    fn fill(&self, flow: &Flow, stream: StreamId, buffer: BufferId, from: Port) -> Result<(), Wrong> {
        let end = flow.writes.filter(|_| flow.reads.is_none()).ok_or("a fill that writes no buffer")?;
        require(self.section.streams.get(stream).is_some() && end.buffer == buffer, "a fill of another buffer")?;
        let is_filled = is_end(self.verifier, self.section, buffer, stream) && !self.is_store(buffer);
        require(is_filled, "a fill of a buffer that is no end of its stream")?;
        require(self.is_generator(stream, from), "a fill from a generator that its stream does not have")
    }

    fn copy(&self, flow: &Flow, resident: BufferId) -> Result<(), Wrong> {
        let (Some(reads), Some(writes)) = (flow.reads, flow.writes) else { return Err("a copy without a buffer") };
        let BufferRole::Resident { stage, tensor } = self.section.buffers[reads.buffer].spec.role else {
            return Err("a copy of a buffer that is no resident copy");
        };
        let to = self.section.buffers[writes.buffer].spec.role;
        let is_beside = to == BufferRole::Operand { stage, tensor } && reads.slice == writes.slice;
        require(reads.buffer == resident && is_beside, "a copy into another operand")
    }

    /// Operands: to the PCUs that the slice is for. Returns what such a flow counts.
    fn feed(&self, flow: &Flow, stage: StageId, group: u64, from: Port, sinks: &[Resource]) -> Result<Amount, Wrong> {
        require(flow.writes.is_none(), "a feed that writes a buffer")?;
        let of = self.section.stages.get(stage).ok_or("a feed of a stage that is none")?;
        let at = |sink: &Resource| self.pcu_in(*sink).filter(|at| (at.stage, at.group) == (stage, group));
        let Some(end) = flow.reads else {
            // Along a chain.
            let before = self.pcu_out(from).filter(|at| at.stage == stage).ok_or("a feed from no buffer")?;
            let next = Position { link: before.link + 1, ..before };
            require(
                sinks.iter().all(|sink| at(sink) == Some(next)),
                "a feed to another PCU than the next of its chain",
            )?;
            return Ok(Amount::Activations);
        };
        let role = self.section.buffers[end.buffer].spec.role;
        let amount = match role {
            BufferRole::Weight { stage: of, .. } if of == stage => Amount::Weights,
            BufferRole::Operand { stage: of_stage, tensor } if of_stage == stage => {
                let is_second = of.spec.sums.is_some() && of.spec.activations.first() != Some(&tensor);
                if is_second { Amount::Weights } else { Amount::Activations }
            }
            _ => return Err("a feed from a buffer of another stage"),
        };
        let expected: u64 = match (&of.mapping, role) {
            _ if of.spec.sums.is_some() => sinks.len() as u64,
            (Mapping::Gemm(m), BufferRole::Weight { .. }) => m.pm,
            (Mapping::Gemm(m), _) => m.multicast_width / m.streams,
            (Mapping::Simd(m), BufferRole::Operand { tensor, .. }) if self.verifier.graph.is_common(stage, tensor) => {
                m.pn
            }
            (Mapping::Simd(_), _) => 1,
        };
        require(sinks.len() as u64 == expected, "a feed to fewer or more PCUs than take it")?;
        let takes = |at: Position| match &of.mapping {
            _ if of.spec.sums.is_some() => true,
            Mapping::Gemm(m) if matches!(role, BufferRole::Weight { .. }) => {
                end.slice == group * m.multicast_width + at.column
            }
            Mapping::Gemm(m) => end.slice == operand_slice(m, at),
            Mapping::Simd(_) => end.slice == at.row && at.link == 0,
        };
        let are_right = sinks.iter().all(|sink| at(sink).is_some_and(takes));
        require(are_right, "a feed to a PCU that takes another part")?;
        Ok(amount)
    }

    /// Results: from the last PCU of a chain, of the last slice of K, into a buffer that takes the stage's output.
    fn emit(&self, flow: &Flow, stage: StageId, group: u64, from: Port) -> Result<(), Wrong> {
        let end = flow.writes.filter(|_| flow.reads.is_none()).ok_or("results into no buffer")?;
        let of = self.section.stages.get(stage).ok_or("results of a stage that is none")?;
        let at = self.pcu_out(from).filter(|at| (at.stage, at.group) == (stage, group));
        let at = at.ok_or("results of a PCU of another stage")?;
        let last = if let Mapping::Simd(m) = &of.mapping { m.chain - 1 } else { 0 };
        require(at.link == last && !of.mapping.forwards_sums(group), "results of a PCU that has none")?;
        require(takes_output(self.section, end.buffer, stage), "results into a buffer of another tensor")?;
        let own = at.row * of.group_width() + at.column;
        require(of.spec.sums.is_none() || end.slice == own, "sums into the slice of another PCU")
    }

    /// Partial sums: of the PCU that the slice is for.
    fn partial(&self, end: FlowEnd, kind: FlowKind, at: Position, reads: bool) -> Result<(), Wrong> {
        let (FlowKind::PartialRead { stage, group }
        | FlowKind::PartialWrite { stage, group }
        | FlowKind::Forward { stage, group }
        | FlowKind::Merge { stage, group }) = kind
        else {
            return Err("no partial sums");
        };
        let of = self.section.stages.get(stage).ok_or("partial sums of a stage that is none")?;
        require((at.stage, at.group) == (stage, group), "partial sums of a PCU of another stage")?;
        let (pm, wide) = (of.mapping.pm(), of.group_width());
        let within = at.row * wide + at.column;
        let slice = match self.section.buffers[end.buffer].spec.role {
            BufferRole::PartialSums { stage: of } if of == stage => {
                let is_own = matches!(kind, FlowKind::PartialRead { .. } | FlowKind::PartialWrite { .. });
                require(is_own, "partial sums of other slices of K among a PCU's own")?;
                group * pm * wide + within
            }
            BufferRole::PartialFifo { stage: s, slice } if s == stage => {
                let k_slice = of.mapping.k_slice(group);
                let is_end = if reads { of.mapping.next_slice(slice) == Some(k_slice) } else { k_slice == slice };
                require(is_end, "partial sums of another slice of K")?;
                let is_tree = of.mapping.reduction() == Reduction::Tree;
                let is_so = match kind {
                    FlowKind::Forward { .. } => true,
                    FlowKind::Merge { .. } => is_tree,
                    _ => reads && !is_tree,
                };
                require(is_so, "partial sums that come together another way")?;
                group % (of.mapping.groups() / of.mapping.pk()) * pm * wide + within
            }
            _ => return Err("partial sums of another stage"),
        };
        require(end.slice == slice, "partial sums in the slice of another PCU")
    }
}

/// The slice of its operand that a PCU of a GEMM takes.
pub(super) fn operand_slice(m: &GemmMapping, at: Position) -> u64 {
    let head = at.column / (m.multicast_width / m.streams);
    at.row * m.parts() + m.k_slice(at.group) * m.streams + head
}

/// Whether a buffer takes the output of a stage.
pub(super) fn takes_output(section: &Section, buffer: BufferId, stage: StageId) -> bool {
    let output = section.stages[stage].spec.output;
    match section.buffers[buffer].spec.role {
        BufferRole::Operand { stage: of, tensor } => {
            let resident = BufferRole::Resident { stage: of, tensor };
            tensor == output && !section.buffers.iter().any(|b| b.spec.role == resident)
        }
        BufferRole::Resident { tensor, .. } | BufferRole::Output { tensor, .. } | BufferRole::Weight { tensor, .. } => {
            tensor == output
        }
        BufferRole::PartialSums { .. } | BufferRole::PartialFifo { .. } | BufferRole::State { .. } => false,
    }
}
